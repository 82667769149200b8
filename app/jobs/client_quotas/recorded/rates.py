"""Rates that brokers measured, against those that follow from single requests."""

from __future__ import annotations

from collections.abc import Iterator

from app.jobs.client_quotas.recorded.windows import IN_WINDOWS, RequestWindow, RequestWindows
from app.show.reconcile.recorded_numbers import RecordedSide
from app.show.reconcile.spans import Row
from state.client_quotas.declaration import NAME

# The window before says what a sensor still has at the begin of this one.
_RATES = f"""
WITH {IN_WINDOWS}, stats AS (
  SELECT s.cluster, s.broker, s.window_start_ms AS start_ms, s.window_ms, s.quota_type,
    s.user AS user, s.client, s.basis, s.rate_avg, s.rate_max
  FROM client_quota_stats AS s
  WHERE s.window_start_ms >= $least_ms AND s.quota_type <> 'controller_mutation'
), judged AS (
  SELECT s.cluster, s.broker, s.start_ms, s.quota_type, s.user AS user, s.client, s.rate_avg,
    s.rate_max, 0.0 AS before
  FROM stats AS s WHERE s.basis = 'requests'
  UNION ALL
  SELECT s.cluster, s.broker, s.start_ms + s.window_ms, s.quota_type, s.user, s.client, NULL,
    NULL, s.rate_max
  FROM stats AS s WHERE s.basis = 'requests'
), beside AS (
  SELECT j.cluster, j.broker, j.start_ms, j.quota_type, j.user AS user, j.client,
    max(j.rate_avg) AS rate_avg, max(j.rate_max) AS rate_max, max(j.before) AS before
  FROM judged AS j GROUP BY j.cluster, j.broker, j.start_ms, j.quota_type, j.user, j.client
), measured AS (
  SELECT * FROM stats AS s WHERE s.basis = 'metrics'
), named AS (
  SELECT b.cluster, b.broker, b.start_ms, b.quota_type, b.user AS user, b.client FROM beside AS b
  UNION
  SELECT m.cluster, m.broker, m.start_ms, m.quota_type, m.user, m.client FROM measured AS m
)
SELECT n.cluster, n.broker, n.start_ms, w.length_ms, n.quota_type, n.user AS user, n.client,
  m.rate_avg, m.rate_max, b.rate_avg, b.rate_max, b.before
FROM named AS n
JOIN windows AS w ON w.cluster = n.cluster AND w.broker = n.broker AND w.start_ms = n.start_ms
LEFT JOIN beside AS b ON b.cluster = n.cluster AND b.broker = n.broker
  AND b.start_ms = n.start_ms AND b.quota_type = n.quota_type AND b.user = n.user
  AND b.client = n.client
LEFT JOIN measured AS m ON m.cluster = n.cluster AND m.broker = n.broker
  AND m.start_ms = n.start_ms AND m.quota_type = n.quota_type AND m.user = n.user
  AND m.client = n.client
WHERE EXISTS (
  SELECT 1 FROM measured AS x
  WHERE x.cluster = n.cluster AND x.broker = n.broker AND x.start_ms = n.start_ms
)
ORDER BY ALL
"""


def compare_rates(side: RecordedSide, windows: RequestWindows) -> Iterator[Row]:
    """Mean and largest rate of each entity of a broker that requests and metrics are known of."""
    params = side.settings.job_params(NAME)
    samples, sample_ms = params["quota_window_num"], params["quota_window_ms"]
    for cluster, broker, start_ms, ms, quota_type, user, client, *rates in side.ask(
        _RATES, windows.params
    ):
        window = RequestWindow(cluster, broker, start_ms, ms)
        measured_avg, measured_max, avg, most, before = rates
        largest = max(most or 0.0, before or 0.0)
        missing = None
        if measured_max is None:
            missing = "NO_METRICS"
        elif not largest:
            missing = "NO_REQUESTS"
        # A rate is over the samples up to its time, and its peaks are seen by polls or missed.
        edge = largest * min(samples * sample_ms / ms, 1.0)
        burst = largest - (avg or 0.0)
        # The oldest sample expires at once, its time not.
        sample = largest / max(samples - 1, 1)
        missed = max(largest - (measured_max or 0.0), 0.0)
        for name, measured, own, bound in (
            ("rate_avg", measured_avg, avg, edge + burst),
            ("rate_max", measured_max, largest, max(sample, missed)),
        ):
            scale = 1000 if quota_type == "request" else 1
            value, weir = round((measured or 0.0) * scale), round((own or 0.0) * scale)
            if not value and not weir:
                continue
            explained = round(bound * scale) + 1
            reason = windows.reasons[window] if windows.reasons[window] == "GAP" else missing
            # Of the time of a request the log lacks that of network threads.
            if reason is None and quota_type == "request" and value - weir > explained:
                reason = "NOT_LOGGED"
            yield window.row(
                user,
                client,
                f"{quota_type}_{name}" + ("_milli" if scale > 1 else ""),
                broker_value=value,
                weir_value=weir,
                bound=explained,
                reason=reason,
            )
