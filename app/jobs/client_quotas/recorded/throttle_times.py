"""Throttle times that brokers answered, against those of the job.

The log has whole milliseconds, so a request may come before another of its sensor, or fall on the
other side of an edge of a sample. It finds a request's charge, or a sample's, more or less than the
broker did. Limit 100 bytes per s: 20 bytes more are 200 ms more of throttle time, and a sample of 1 s
that is full to the limit is 1 s more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from app.jobs.client_quotas.recorded.windows import IN_WINDOWS, PLACE, RequestWindow, RequestWindows
from app.show.reconcile.recorded_numbers import RecordedSide
from app.show.reconcile.spans import Row
from state.client_quotas.declaration import NAME

MS_PER_S = 1000
EDGES = 2
"""Samples by which a decision may be off: one that is full may have more than the limit's share."""
# Of a throttled fetch without its size the job takes the throttle time of the broker, and the rate
# that it means: these are left out.
_THROTTLED = f"""
WITH {IN_WINDOWS}, decided AS (
  SELECT d.cluster, d.broker, d.quota_type, d.user AS user, d.client, d.observed_throttle_ms,
    w.start_ms, CASE WHEN d.quota_type = 'controller_mutation' THEN d.throttle_ms
      ELSE (d.rate / d.bound - 1) * d.window_ms END AS beyond_ms,
    d.quota_type = 'fetch' AND abs(
      d.rate - d.bound * (1 + d.observed_throttle_ms / CAST(d.window_ms AS DOUBLE))
    ) <= 1e-9 * d.rate AS taken
  FROM client_quota_decisions AS d
  JOIN windows AS w ON w.cluster = d.cluster AND w.broker = d.broker
    AND d.ts_wall_ms >= w.start_ms AND d.ts_wall_ms < w.start_ms + w.length_ms
  WHERE d.ts_wall_ms >= $least_ms
), counted AS (
  SELECT d.cluster, d.broker, d.quota_type, d.user AS user, d.client, d.start_ms,
    count(*) FILTER (WHERE d.observed_throttle_ms > 0) AS both,
    count(*) FILTER (WHERE d.observed_throttle_ms = 0 AND beyond_ms > $edges_ms) AS beyond,
    count(*) FILTER (WHERE taken) AS taken,
    coalesce(sum(d.observed_throttle_ms) FILTER (WHERE taken), 0) AS taken_ms
  FROM decided AS d
  GROUP BY d.cluster, d.broker, d.quota_type, d.user, d.client, d.start_ms
)
SELECT s.cluster, s.broker, s.window_start_ms, s.window_ms, s.quota_type, s.user AS user, s.client,
  s.requests - coalesce(c.taken, 0), s.throttled - coalesce(c.taken, 0),
  s.observed_throttled - coalesce(c.taken, 0), coalesce(c.both, 0) - coalesce(c.taken, 0),
  coalesce(c.beyond, 0), s.charged / s.requests, s.rate_max, s.bound,
  s.throttle_ms - coalesce(c.taken_ms, 0), s.observed_throttle_ms - coalesce(c.taken_ms, 0)
FROM client_quota_stats AS s
JOIN windows AS w ON w.cluster = s.cluster AND w.broker = s.broker
  AND w.start_ms = s.window_start_ms
LEFT JOIN counted AS c ON c.cluster = s.cluster AND c.broker = s.broker
  AND c.quota_type = s.quota_type AND c.user = s.user AND c.client = s.client
  AND c.start_ms = s.window_start_ms
WHERE s.basis = 'requests' AND s.window_start_ms >= $least_ms AND s.observed_throttled IS NOT NULL
  AND s.throttled + s.observed_throttled > 2 * coalesce(c.taken, 0)
ORDER BY ALL
"""
_CHARGED = f"""
WITH {IN_WINDOWS}
SELECT s.cluster, s.broker, s.window_start_ms, s.window_ms, CAST(sum(s.requests) AS BIGINT)
FROM client_quota_stats AS s
JOIN windows AS w ON w.cluster = s.cluster AND w.broker = s.broker
  AND w.start_ms = s.window_start_ms
WHERE s.basis = 'requests' AND s.window_start_ms >= $least_ms AND s.observed_throttled IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""


def compare_throttling(side: RecordedSide, windows: RequestWindows) -> Iterator[Row]:
    """How many requests both decide alike, and the sums of throttle times: of each entity that was
    throttled. The first of them for every window of a broker, too, all of its entities together."""
    apart: Counter[RequestWindow] = Counter()
    explained: Counter[RequestWindow] = Counter()
    for row in _of_entities(side, windows):
        yield row
        if row["measure"].endswith("agreeing") and row["reason"] != "NOT_LOGGED":
            window = RequestWindow(*(row[name] for name in PLACE))
            apart[window] += row["broker_value"] - row["weir_value"]
            explained[window] += row["bound"]
    for *place, requests in side.ask(_CHARGED, windows.params):
        window = RequestWindow(*place)
        yield window.row(
            "",
            "",
            "agreeing",
            broker_value=requests,
            weir_value=requests - apart[window],
            bound=explained[window],
            reason=windows.reasons[window],
        )


def _of_entities(side: RecordedSide, windows: RequestWindows) -> Iterator[Row]:
    params = side.settings.job_params(NAME)
    sample_ms = params["quota_window_ms"]
    least_share = 1 - EDGES / params["quota_window_num"]
    given = {**windows.params, "edges_ms": EDGES * sample_ms}
    for cluster, broker, start_ms, ms, quota_type, user, client, *numbers in side.ask(
        _THROTTLED, given
    ):
        requests, weir, theirs, both, beyond, charge, most, bound, weir_ms, theirs_ms = numbers
        window = RequestWindow(cluster, broker, start_ms, ms)
        theirs_alone = theirs - both
        apart = weir - both + theirs_alone
        near = bound is not None and (most is None or most >= least_share * bound)
        unexplained = beyond if near else beyond + theirs_alone
        one_ms = 0.0 if bound is None else max(charge / bound * MS_PER_S, 1)
        explained_ms = round(both * one_ms + apart * EDGES * sample_ms)
        reason = windows.reasons[window]
        for measure, broker_value, weir_value, explained, only_more in (
            ("agreeing", requests, requests - apart, apart - unexplained, not beyond),
            ("throttle_ms", theirs_ms, weir_ms, explained_ms, theirs_ms > weir_ms),
        ):
            differs = abs(broker_value - weir_value) > explained
            unlogged = quota_type == "request" and differs and only_more
            yield window.row(
                user,
                client,
                f"{quota_type}_{measure}",
                broker_value=broker_value,
                weir_value=weir_value,
                bound=explained,
                reason=reason or ("NOT_LOGGED" if unlogged else None),
            )
