"""What must hold of the tables of the job rate_limits."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    no_rows,
    rows_that,
    suite,
    unique,
)

# Marks and unmarks of one connection and type, counted in time order. Dropped ones count too: a
# producer that waits twice is marked and unmarked twice, whatever the tracker made of it.
_UNMARK_WITHOUT_MARK = """
SELECT * FROM (
  SELECT *, sum(CASE action WHEN 'mark' THEN 1 WHEN 'unmark' THEN -1 ELSE 0 END) OVER (
      PARTITION BY cluster, broker, cnx_id, throttle_type
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS open_marks
  FROM {batch}
) AS counted
WHERE action = 'unmark' AND open_marks < 0
"""

# A row without a wall time has no window.
_DATED = """
(s.cluster, s.broker) NOT IN (
  SELECT (cluster, broker) FROM throttle_events WHERE ts_wall_ms IS NULL
)
"""
# A pause begins at the row that pauses the reads of a connection, for every topic there. Which
# topics share a group's limit is not in the rows.
_PAUSES_UNLIKE_EVENTS = f"""
SELECT s.* FROM {{batch}} AS s LEFT JOIN (
  SELECT e.cluster, e.broker, e.params_hash, e.on_it, l.window_ms,
    e.ts_wall_ms - e.ts_wall_ms % l.window_ms AS window_start_ms,
    count_if(e.limiter = 'topic' AND e.on_it = e.culprit_topic) AS culprit,
    count_if(e.limiter = 'topic' AND e.on_it <> e.culprit_topic) AS others,
    count_if(e.limiter IN ('broker', 'connection', 'io_thread', 'unknown')) AS shared,
    count_if(e.limiter = 'resource_group') AS of_group
  FROM (
    SELECT *, unnest(list_distinct(collateral_topics || [topic])) AS on_it FROM throttle_events
    WHERE action <> 'unmark' AND transition = 'ConnectionStateChanged' AND reads_paused
  ) AS e CROSS JOIN (SELECT DISTINCT window_ms FROM {{batch}}) AS l GROUP BY ALL
) AS t
  ON t.cluster = s.cluster AND t.broker = s.broker AND t.params_hash = s.params_hash
  AND t.on_it = s.topic AND t.window_ms = s.window_ms AND t.window_start_ms = s.window_start_ms
WHERE (s.culprit_times <> coalesce(t.culprit, 0)
  OR s.collateral_times NOT BETWEEN coalesce(t.others, 0) AND coalesce(t.others + t.of_group, 0)
  OR s.shared_times NOT BETWEEN coalesce(t.shared, 0) AND coalesce(t.shared + t.of_group, 0))
  AND {_DATED}"""
_THROTTLES_UNLIKE_MARKS = f"""
SELECT s.* FROM {{batch}} AS s LEFT JOIN (
  SELECT e.cluster, e.broker, e.params_hash, e.limiter, l.window_ms,
    e.ts_wall_ms - e.ts_wall_ms % l.window_ms AS window_start_ms,
    e.limiter_name, count(*) AS marks
  FROM throttle_events AS e CROSS JOIN (SELECT DISTINCT window_ms FROM {{batch}}) AS l
  WHERE e.action = 'mark' GROUP BY ALL
) AS t
  ON t.cluster = s.cluster AND t.broker = s.broker AND t.params_hash = s.params_hash
  AND t.limiter = s.limiter AND t.limiter_name = s.limiter_name
  AND t.window_ms = s.window_ms AND t.window_start_ms = s.window_start_ms
WHERE s.throttles <> coalesce(t.marks, 0) AND {_DATED}"""
# Who is only informed is not marked, and who does not know the command is sent none.
_COMMAND_WITHOUT_MARK = """
SELECT c.* FROM {batch} AS c
ANTI JOIN throttle_events AS e
  ON e.cluster = c.cluster AND e.broker = c.broker AND e.cnx_id = c.cnx_id
  AND e.request_id = c.request_id AND e.action = 'mark'
WHERE c.exception IS NULL AND c.rule NOT IN ('informed_only', 'client_unsupported')
"""

SUITES: dict[str, list[AuditCheck]] = {
    "throttle_events": suite(
        "throttle_events",
        rows_that(
            "an empty bucket has a balance of 0 or less",
            "rule = 'bucket_empty' AND coalesce(balance_msgs, 1) > 0"
            " AND coalesce(balance_bytes, 1) > 0",
        ),
        rows_that(
            "only a paused connection has collateral topics",
            "NOT reads_paused AND len(collateral_topics) > 0",
        ),
        rows_that(
            "only a topic's own limit has a culprit",
            "(limiter = 'topic') <> (culprit_topic IS NOT NULL) AND trigger_topic IS NOT NULL",
        ),
        rows_that("a culprit is the topic of the publish", "culprit_topic <> trigger_topic"),
        no_rows("every unmark has its mark", _UNMARK_WITHOUT_MARK),
    ),
    "topic_throttle_stats": suite(
        "topic_throttle_stats",
        unique("cluster", "broker", "topic", "window_start_ms"),
        rows_that(
            "limited_times is culprit_times, shared_times and collateral_times",
            "limited_times <> culprit_times + shared_times + collateral_times",
        ),
        rows_that(
            "limited_by_limiter adds up to limited_times",
            "coalesce(list_sum(map_values(limited_by_limiter)), 0) <> limited_times",
        ),
    ),
    "limiter_stats": suite(
        "limiter_stats",
        unique("cluster", "broker", "limiter", "limiter_name", "window_start_ms"),
        rows_that("a predicted pause is an observed one", "predicted_pauses > observed_pauses"),
        rows_that(
            "a limiter has a rate or a level",
            "limit_msgs IS NULL AND limit_bytes IS NULL AND limit_level IS NULL",
        ),
    ),
    "producer_throttle": suite(
        "producer_throttle",
        rows_that(
            "a row is a command, a client without it or a send that timed out",
            "(exception IS NULL) <> (rule <> 'send_timeout')"
            " OR (rule = 'client_unsupported') <> (exception IS NULL AND request_id IS NULL)",
        ),
        rows_that("an announced pause ends when it is over", "end_ms <> start_ms + pause_ms"),
    ),
}
ACROSS: dict[str, list[AuditCheck]] = {
    "topic_throttle_stats": [
        no_rows(
            "culprit, shared and collateral times are the pauses of the window",
            _PAUSES_UNLIKE_EVENTS,
            "throttle_events",
        ),
    ],
    "limiter_stats": [
        no_rows(
            "throttles are the marks of the window", _THROTTLES_UNLIKE_MARKS, "throttle_events"
        ),
    ],
    "producer_throttle": [
        no_rows("every command has its mark", _COMMAND_WITHOUT_MARK, "throttle_events"),
    ],
}
