"""When a publish limit is used up, and who is paused because of others, as views window by window."""

from __future__ import annotations

from app.jobs.rate_limits.quotas import QUOTAS
from app.tables.view import RATIOS, View

_ENTITY = "{0}.cluster, {0}.broker, {0}.limiter, {0}.entity"
_SAME = " AND ".join(f"{{0}}.{c} = n.{c}" for c in ("cluster", "broker"))
_END_MS = "CAST({0}.window_start_ms AS DOUBLE) + {0}.window_ms"
# Of the messages and bytes of a limiter the one that is used most counts. Runs are windows that follow one
# another; whoever is not known in one of them is the one before.
_WINDOWS = f"""
WITH usage AS (
{RATIOS.format(usage=QUOTAS.usage)}
), limits AS (
  SELECT u.cluster, u.broker, regexp_replace(u.kind, '_(msgs|bytes|requests)$', '') AS limiter,
    u.entity, u.window_start_ms, max(u.window_ms) AS window_ms, max(u.ratio) AS ratio,
    bool_or(u.breached) AS reached, max_by(u.kind, (coalesce(u.ratio, 0), u.kind)) AS kind,
    max_by(u.used, (coalesce(u.ratio, 0), u.kind)) AS used,
    max_by(u.limit, (coalesce(u.ratio, 0), u.kind)) AS limit
  FROM usage AS u
  GROUP BY u.cluster, u.broker, regexp_replace(u.kind, '_(msgs|bytes|requests)$', ''), u.entity,
    u.window_start_ms
), seen AS (
  SELECT n.*, t.topic IS NOT NULL
      OR (n.limiter IN ('topic', 'resource_group', 'broker') AND coalesce(n.ratio >= 1, false))
      AS is_over
  FROM limits AS n LEFT JOIN topic_throttle_stats AS t
    ON n.limiter = 'topic' AND {_SAME.format("t")} AND t.topic = n.entity
    AND t.window_start_ms = n.window_start_ms
    AND t.culprit_ns >= CAST(t.window_ms AS DOUBLE) * 500000
), near AS (
  SELECT n.*, lag({_END_MS.format("n")}) OVER one AS before_ms, lag(n.reached) OVER one AS was_reached
  FROM seen AS n WHERE n.reached OR coalesce(n.ratio >= 0.8, false) OR n.is_over
  WINDOW one AS (PARTITION BY {_ENTITY.format("n")} ORDER BY n.window_start_ms)
), begun AS (
  SELECT n.*, coalesce(n.window_start_ms > n.before_ms, true) AS begins FROM near AS n
), numbered AS (
  SELECT n.*, sum(CASE WHEN n.begins THEN 1 ELSE 0 END) OVER (
    PARTITION BY {_ENTITY.format("n")} ORDER BY n.window_start_ms) AS run
  FROM begun AS n
), lasting AS (
  SELECT n.*, min(n.window_start_ms) OVER of_run AS begun_ms, max(
      CASE WHEN n.reached AND (n.begins OR NOT n.was_reached) THEN n.window_start_ms END
    ) OVER of_run AS reached_ms
  FROM numbered AS n
  WINDOW of_run AS (PARTITION BY {_ENTITY.format("n")}, n.run ORDER BY n.window_start_ms)
), acted AS (
  SELECT {_ENTITY.format("m")}, m.window_start_ms, min_by(m.used_by, (-m.marks, m.used_by)) AS used_by
  FROM (
    SELECT {_ENTITY.format("n")}, n.window_start_ms, CASE n.limiter
        WHEN 'topic' THEN concat('producer ', e.producer_name)
        ELSE concat('topic ', e.trigger_topic) END AS used_by, count(*) AS marks
    FROM lasting AS n JOIN throttle_events AS e
      ON {_SAME.format("e")} AND e.limiter = n.limiter AND e.limiter_name = n.entity
      AND e.ts_wall_ms >= n.window_start_ms AND e.ts_wall_ms < {_END_MS.format("n")}
    WHERE e.action = 'mark'
      AND CASE n.limiter WHEN 'topic' THEN e.producer_name ELSE e.trigger_topic END IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5, 6
  ) AS m GROUP BY {_ENTITY.format("m")}, m.window_start_ms
), largest AS (
  SELECT t.cluster, t.broker, t.window_start_ms,
    min_by(concat('topic ', t.topic), (-CAST(t.messages AS DOUBLE), t.topic)) AS used_by
  FROM topic_throttle_stats AS t GROUP BY t.cluster, t.broker, t.window_start_ms
), named AS (
  SELECT n.*, coalesce(a.used_by, b.used_by) AS used_by,
    {_END_MS.format("n")} - n.begun_ms >= 300000 OR n.is_over AS holds,
    n.reached AND {_END_MS.format("n")} - n.reached_ms >= 600000 AS is_sustained
  FROM lasting AS n
  LEFT JOIN acted AS a ON {_SAME.format("a")} AND a.limiter = n.limiter AND a.entity = n.entity
    AND a.window_start_ms = n.window_start_ms
  LEFT JOIN largest AS b ON n.limiter = 'broker' AND {_SAME.format("b")}
    AND b.window_start_ms = n.window_start_ms
), told AS (
  SELECT n.*, max_by(n.used_by, CASE WHEN n.used_by IS NOT NULL THEN n.window_start_ms END) OVER of_run
      AS mostly, coalesce(bool_or(n.holds) OVER (
      PARTITION BY {_ENTITY.format("n")}, n.run ORDER BY n.window_start_ms
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), false) AS has_held
  FROM named AS n
  WINDOW of_run AS (PARTITION BY {_ENTITY.format("n")}, n.run ORDER BY n.window_start_ms)
)
SELECT {_ENTITY.format("n")}, n.window_start_ms, n.window_ms,
  CASE WHEN n.has_held THEN n.window_start_ms ELSE n.begun_ms END AS start_ms, n.ratio, n.kind,
  n.used, n.limit, n.is_over, n.is_sustained, n.mostly
FROM told AS n WHERE n.holds
""".strip()

VIEWS = (
    View(
        "topic_pauses",
        "The windows of `topic_throttle_stats`, with whether its own limit paused the topic (is_culprit),"
        " and the limits of others (is_victim).",
        """
SELECT t.cluster, t.broker, t.topic, t.window_start_ms, t.window_ms, t.messages, t.bytes,
  t.limit_msgs, t.limit_bytes, t.limited_times, t.culprit_times, t.shared_times, t.collateral_times,
  t.culprit_ns, t.shared_ns, t.collateral_ns, t.culprit_times > 0 OR t.culprit_ns > 0 AS is_culprit,
  t.collateral_times > 0 OR t.collateral_ns > 0 AS is_victim
FROM topic_throttle_stats AS t
""".strip(),
        reads=("topic_throttle_stats",),
    ),
    View(
        "publish_limit_windows",
        "The windows in which a publish limit is used up: 80 % of it, or a charge that leaves nothing, from"
        " five minutes on; at once (is_over) where the mean of a window is at the limit, or its topic was"
        " held back for half of it. is_sustained: the limit was reached in every window of ten minutes."
        " The first window of a row of them counts from start_ms. mostly: whoever used it.",
        _WINDOWS,
        reads=("limiter_stats", "topic_throttle_stats", "throttle_events"),
    ),
    View(
        "noisy_neighbour_victims",
        "The windows in which a topic was paused for the limits of other topics, for a tenth of the time at"
        " least, summed over its connections (share), and never for its own.",
        """
SELECT t.cluster, t.broker, t.topic, t.window_start_ms, t.window_ms,
  t.collateral_ns / (CAST(t.window_ms AS DOUBLE) * 1000000) AS share
FROM topic_throttle_stats AS t
WHERE t.culprit_ns = 0 AND t.collateral_ns >= CAST(t.window_ms AS DOUBLE) * 100000 AND t.window_ms > 0
""".strip(),
        reads=("topic_throttle_stats",),
    ),
)
