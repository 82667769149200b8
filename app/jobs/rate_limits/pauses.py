"""What a pause of a connection is, as SQL over `throttle_events`: when it begins and ends, how long it
lasts, whose limit it is for, and which topics it holds up."""

from __future__ import annotations

# Wall time leads the order, since the monotonic clock starts anew with the broker; where it is null
# two engines would disagree about nulls, so their place is written out.
_IN_TIME = """
PARTITION BY t.cluster, t.broker, t.cnx_id
        ORDER BY t.ts_wall_ms NULLS FIRST, t.ts_mono_ns NULLS FIRST, t.row_no
""".strip()


def numbered(source: str = "throttle_events AS t", columns: str = "t.*") -> str:
    """The rows of `source`, a relation `t` like `throttle_events`, with whether they begin or end a
    pause, and its number in their connection (0 before the first).

    A pause begins at the row after which reads are paused and were not before, be it a mark, a report
    of the broker or, with the exchange of PIP-385, a receipt that did not come; it ends at the row
    after which they are not. Pauses are numbered by counting their first rows in time order.
    """
    return f"""
SELECT t.*, CAST(sum(CASE WHEN t.starts THEN 1 ELSE 0 END) OVER (
      {_IN_TIME}
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS BIGINT) AS pause_no
FROM (
  SELECT f.*, f.reads_paused AND NOT f.were_paused AS starts,
    f.were_paused AND NOT f.reads_paused AS ends
  FROM (
    SELECT {columns}, coalesce(lag(t.reads_paused) OVER (
        {_IN_TIME}
      ), false) AS were_paused
    FROM {source}
  ) AS f
) AS t
""".strip()


# A mark, also of a connection that is paused already, and the end of a wait for a receipt.
_HOLDS = """
r.pause_no > 0 AND r.reads_paused AND r.transition IS DISTINCT FROM 'Dropped'
  AND (r.action IN ('mark', 'pause') OR r.rule = 'receipt_timeout')
""".strip()
_ON_IT = f"array_agg(r.topic) FILTER (WHERE {_HOLDS} AND r.topic IS NOT NULL)"
_OTHERS = f"flatten(array_agg(r.collateral_topics) FILTER (WHERE {_HOLDS}))"
# Engines disagree about aggregating nothing into an array: each stands in for the other.
_TOPICS = (
    f"array_sort(array_distinct(coalesce({_ON_IT}, {_OTHERS}) || coalesce({_OTHERS}, {_ON_IT})))"
)
_END_MS = """
r.ts_wall_ms - coalesce(CAST(floor((r.ts_mono_ns - r.seen_until_ns) / 1000000) AS BIGINT), 0)
""".strip()
# Only a topic's own limit has a culprit. The intersections leave out the placeholder of no value.
INTERVALS = f"""
SELECT p.*, CASE WHEN p.end_ns >= p.start_ns THEN CAST(p.end_ns AS DECIMAL(20, 0)) - p.start_ns
    WHEN p.end_ms >= p.start_ms THEN (CAST(p.end_ms AS DECIMAL(20, 0)) - p.start_ms) * 1000000
    WHEN NOT p.is_open THEN 0 END AS paused_ns
FROM (
  SELECT r.cluster, r.broker, r.cnx_id,
    min(r.ts_mono_ns) FILTER (WHERE r.starts) AS start_ns,
    min(coalesce(r.seen_until_ns, r.ts_mono_ns)) FILTER (WHERE r.ends) AS end_ns,
    min(r.ts_wall_ms) FILTER (WHERE r.starts) AS start_ms,
    min({_END_MS}) FILTER (WHERE r.ends) AS end_ms,
    array_sort(array_agg(DISTINCT r.reason) FILTER (WHERE r.reason IS NOT NULL)) AS reasons,
    array_sort(array_intersect(
      array_agg(DISTINCT CASE WHEN r.limiter = 'topic' AND {_HOLDS}
        THEN coalesce(r.trigger_topic, '') ELSE 'none' END),
      array_agg(DISTINCT coalesce(r.trigger_topic, '')))) AS culprit_topics,
    array_sort(array_intersect(
      array_agg(DISTINCT CASE WHEN r.limiter <> 'topic' AND {_HOLDS}
        THEN concat(r.limiter, ' ', coalesce(r.limiter_name, '')) ELSE 'none' END),
      array_agg(DISTINCT concat(r.limiter, ' ', coalesce(r.limiter_name, ''))))) AS shared_limits,
    bool_and(r.seen_until_ns IS NULL) FILTER (WHERE r.ends) AS end_seen,
    r.pause_no, NOT bool_or(r.ends) AS is_open,
    min(r.limiter) FILTER (WHERE r.starts) AS limiter,
    min(r.limiter_name) FILTER (WHERE r.starts) AS limiter_name,
    min(r.trigger_topic) FILTER (WHERE r.starts) AS trigger_topic,
    min(r.reason) FILTER (WHERE r.starts) AS reason,
    coalesce(bool_or(r.starts AND (r.limiter = 'connection' OR r.balance_msgs <= 0)), false)
      AS by_messages,
    {_TOPICS} AS topics
  FROM numbered AS r
  WHERE r.pause_no > 0 AND (r.reads_paused OR r.ends)
  GROUP BY r.cluster, r.broker, r.cnx_id, r.pause_no
) AS p
""".strip()
"""A row per pause, over the rows of `numbered`. It lasts by the monotonic clock, by wall time if the
broker has restarted; where the end was not seen, as long as it was seen. `limiter`, `limiter_name`,
`trigger_topic` and `reason` are of the limit that began it."""
CULPRITS = f"""
SELECT r.cluster, r.broker, r.cnx_id, r.pause_no, r.trigger_topic AS culprit,
  min(r.ts_wall_ms) AS since_ms, min(r.reason) AS reason, {_TOPICS} AS topics
FROM numbered AS r
WHERE {_HOLDS} AND r.limiter = 'topic'
GROUP BY r.cluster, r.broker, r.cnx_id, r.pause_no, r.trigger_topic
""".strip()
"""A row per pause and topic whose own limit held it, over the rows of `numbered`."""
NUMBERED = f"""
WITH numbered AS MATERIALIZED (
{numbered()}
), pauses AS (
{INTERVALS}
), held AS (
{CULPRITS}
)
""".strip()
"""Common table expressions of a question that reads more than one of them: the table is read once."""
CHANGES = """
count_if(t.starts) AS paused, count_if(t.ends) AS resumed,
  count_if(t.limiter = 'connection' AND t.action = 'mark' AND t.transition <> 'Dropped')
    AS throttled,
  count_if(t.limiter = 'connection' AND t.action = 'unmark' AND t.transition <> 'Dropped')
    AS unthrottled
""".strip()
"""What a broker counts of its connections, over rows `t` of `numbered`. The last two are of the
in-flight reason alone, as brokers do it."""
