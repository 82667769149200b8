"""What a broker counts of its publish limits, against the tables of the job."""

from __future__ import annotations

from app.read.spelling import TOPIC
from app.show.reconcile.measures import Measure
from app.show.reconcile.side import MINUTE_MS, Numbers, WeirSide
from app.show.reconcile.spans import Counted, Key
from state.rate_limits.declaration import NAME

MEASURES = (
    Measure(
        "publish_limited_times",
        NAME,
        "pulsar_publish_rate_limit_times",
        "period",
        meaning="pauses of connections that the topic was on",
    ),
    Measure(
        "messages_in",
        NAME,
        "pulsar_in_messages_total",
        "counter",
        meaning="messages published",
    ),
    Measure("bytes_in", NAME, "pulsar_in_bytes_total", "counter", meaning="bytes published"),
)
SAMPLED: frozenset[str] = frozenset({"connection"})
"""Values of `reconcile.sampled_by` under which the numbers are no comparison."""
PAUSE_MS = 200
"""Pauses of the model begin and end some milliseconds beside the broker's."""
# The archive has repeated records as well. Of a digest that lasts over an edge of the span it is not
# known what lies on either side.
_PUBLISHES = f"""
SELECT topic,
  CAST(coalesce(sum(messages) FILTER (WHERE ts_wall_ms < $at_ms AND ts_wall_ms >= $window_ms), 0)
    AS BIGINT),
  CAST(coalesce(sum(bytes) FILTER (WHERE ts_wall_ms < $at_ms AND ts_wall_ms >= $window_ms), 0)
    AS BIGINT),
  CAST(coalesce(sum(messages) FILTER (WHERE ts_wall_ms >= $from_ms AND begun_ms <= $to_ms), 0)
    AS BIGINT),
  CAST(coalesce(sum(bytes) FILTER (WHERE ts_wall_ms >= $from_ms AND begun_ms <= $to_ms), 0)
    AS BIGINT)
FROM (
  SELECT DISTINCT source_feed, seq, ts_mono_ns, ts_wall_ms, cnx_id, producer_id, sequence_id,
    coalesce(digest_from_wall_ms, ts_wall_ms) AS begun_ms, {TOPIC} AS topic,
    coalesce(num_messages, 1) AS messages, coalesce(entry_bytes, 0) AS bytes
  FROM events
  WHERE event_type IN ('publish', 'publish_digest') AND cluster = $cluster AND broker = $broker
    AND ts_wall_ms >= $least_ms AND coalesce(digest_from_wall_ms, ts_wall_ms) <= $most_ms
) GROUP BY 1
"""
# The broker counts a pause for every topic with a producer on the connection. A mark within a pause
# may be one of its own at the broker, where the pause before ended some milliseconds earlier.
_PAUSES = """
SELECT topic, count(*)
FROM (
  SELECT unnest(list_prepend(topic, coalesce(collateral_topics, []))) AS topic
  FROM throttle_events
  WHERE cluster = $cluster AND broker = $broker AND action IN ('mark', 'pause')
    AND transition <> 'Dropped'
    AND ts_wall_ms >= $from_ms AND ts_wall_ms <= $to_ms
) GROUP BY topic
"""
_TABLES = ("topic_throttle_stats", "limiter_stats", "throttle_events")


def numbers(side: WeirSide) -> Numbers:
    """Publishes and pauses of a span."""
    reached = _reached(side)
    return Numbers(_publishes(side) | _pauses(side), reached)


def _publishes(side: WeirSide) -> dict[Key, Counted]:
    span = side.span
    sums: dict[str, list[int]] = {}
    for topic, messages, size in side.published(side.window_of(span.start_ms), side.last_window_ms):
        sums[topic] = [messages, size, 0, 0]
    for scrape, sign in ((span.before, -1), (span.after, 1)):
        window_ms = side.window_of(scrape.at_ms)
        for topic, *edge in side.ask(
            _PUBLISHES,
            {
                "window_ms": window_ms,
                "at_ms": scrape.at_ms,
                "from_ms": scrape.from_ms,
                "to_ms": scrape.to_ms,
                "least_ms": min(window_ms, scrape.from_ms),
                "most_ms": scrape.to_ms,
            },
        ):
            total = sums.setdefault(topic, [0, 0, 0, 0])
            for i, amount in enumerate(edge):
                total[i] += sign * amount if i < 2 else amount
    return {
        key: Counted(value, bound)
        for topic, (messages, size, messages_off, size_off) in sums.items()
        for key, value, bound in (
            (("messages_in", topic), messages, messages_off),
            (("bytes_in", topic), size, size_off),
        )
    }


def _pauses(side: WeirSide) -> dict[Key, Counted]:
    """The broker's number begins anew at each update of its statistics: it is anything up to
    the pauses of a whole period."""
    chosen, end = side.settings.reconcile, side.span.after
    period_ms = chosen.stats_period_ms if chosen is not None else MINUTE_MS
    found = side.ask(
        _PAUSES,
        {
            "from_ms": end.from_ms - period_ms - PAUSE_MS,
            "to_ms": end.to_ms + PAUSE_MS,
        },
    )
    return {("publish_limited_times", topic): Counted(0, 0, n) for topic, n in found}


def _reached(side: WeirSide) -> bool:
    """Whether the archive has a record behind the span, and the tables of the job have rows up
    to its last whole window; or a record comes so much later that the job must be past it."""
    if side.is_past():
        return True
    return side.has("events", side.span.end_ms) and any(
        side.has(table, side.last_window_ms) for table in _TABLES
    )
