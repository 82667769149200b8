"""Views over the tables, in SQL that Spark and DuckDB both accept.

A view is text only: nothing is stored, every reading command creates it, and the text can be
printed for any other engine.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.warehouse import backlog_views, cache_views, group_views, shadow_views


@dataclass(frozen=True)
class View:
    """A view: the meaning of a row, its SQL and the tables that it reads."""

    name: str
    meaning: str
    sql: str
    reads: tuple[str, ...]


# A pause begins at the row after which reads are paused and were not before, be it a mark or, with
# the exchange of PIP-385, a receipt that did not come; it ends at the row after which they are not.
# Pauses are numbered by counting their first rows in time order; rows outside a pause are left out.
# Wall time leads the order, since the monotonic clock starts anew with the broker; where it is null
# the two engines would disagree about nulls, so their place is written out. They also disagree
# about aggregating nothing into an array: the intersections leave out the placeholder of no value.
# Only a topic's own limit has a culprit; rows of earlier versions name one for every limit.
_THROTTLE_INTERVALS = """
WITH flagged AS (
  SELECT cluster, broker, cnx_id, ts_wall_ms, ts_mono_ns, row_no, reason, limiter,
    coalesce(trigger_topic, culprit_topic, '') AS publisher,
    concat(limiter, ' ', coalesce(limiter_name, '')) AS whose, reads_paused, seen_until_ns,
    coalesce(lag(reads_paused) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
    ), false) AS were_paused
  FROM throttle_events
), rows_of_pauses AS (
  SELECT *, reads_paused AND NOT were_paused AS starts, were_paused AND NOT reads_paused AS ends,
    sum(CASE WHEN reads_paused AND NOT were_paused THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS pause_no
  FROM flagged
)
SELECT
  cluster,
  broker,
  cnx_id,
  min(ts_mono_ns) FILTER (WHERE starts) AS start_ns,
  min(coalesce(seen_until_ns, ts_mono_ns)) FILTER (WHERE ends) AS end_ns,
  min(ts_wall_ms) FILTER (WHERE starts) AS start_ms,
  min(ts_wall_ms - coalesce(CAST(floor((ts_mono_ns - seen_until_ns) / 1000000) AS BIGINT), 0))
    FILTER (WHERE ends) AS end_ms,
  array_sort(array_agg(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)) AS reasons,
  array_sort(array_intersect(
    array_agg(DISTINCT CASE WHEN limiter = 'topic' THEN publisher ELSE 'none' END),
    array_agg(DISTINCT publisher))) AS culprit_topics,
  array_sort(array_intersect(
    array_agg(DISTINCT CASE WHEN limiter = 'topic' THEN 'none' ELSE whose END),
    array_agg(DISTINCT whose))) AS shared_limits,
  bool_and(seen_until_ns IS NULL) FILTER (WHERE ends) AS end_seen
FROM rows_of_pauses
WHERE pause_no > 0 AND (reads_paused OR ends)
GROUP BY cluster, broker, cnx_id, pause_no
""".strip()

# A producer is its name, or the connection and its id where it has none. With repeat_throttle =
# replace the next command of a producer ends what the one before announced. Every partition has
# rows of its own, and all of them together those with a null partition.
_IS_THROTTLED = """
WITH commands AS (
  SELECT cluster, coalesce(producer_name, concat(cnx_id, '/', producer_id)) AS producer,
    producer_name, regexp_replace(topic, '-partition-[0-9]+$', '') AS base, partition, reason,
    start_ms,
    CASE WHEN switches['repeat_throttle'] = 'max' THEN end_ms ELSE least(end_ms, coalesce(
      lead(start_ms) OVER (
        PARTITION BY cluster, broker, cnx_id, topic, producer_id
        ORDER BY start_ms, ts_mono_ns, row_no
      ), end_ms)) END AS end_ms
  FROM producer_throttle
  WHERE request_id IS NOT NULL AND exception IS NULL AND start_ms IS NOT NULL
), spans AS (
  SELECT * FROM commands WHERE end_ms > start_ms
  UNION ALL
  SELECT cluster, producer, producer_name, base, CAST(NULL AS INT) AS partition, reason, start_ms,
    end_ms
  FROM commands WHERE end_ms > start_ms AND partition IS NOT NULL
), marked AS (
  SELECT *, max(end_ms) OVER (
      PARTITION BY cluster, producer, base, partition ORDER BY start_ms, end_ms
      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
    ) AS until_ms
  FROM spans
), numbered AS (
  SELECT *, sum(CASE WHEN until_ms IS NULL OR start_ms > until_ms THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, producer, base, partition ORDER BY start_ms, end_ms
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS throttle_no
  FROM marked
)
SELECT cluster, min(producer_name) AS producer_name, base AS topic, partition,
  min(start_ms) AS start_ms, max(end_ms) AS end_ms,
  array_sort(array_agg(DISTINCT reason)) AS reasons
FROM numbered
GROUP BY cluster, producer, base, partition, throttle_no
""".strip()

# Sums since the tables begin, under the names that a broker's or a client's own metrics have. Of
# the connection counter, `throttled` and `unthrottled` count the in-flight reason alone, as brokers
# do. The dispatch metrics of PIP-406 have no counterpart: Weir follows no dispatch limiter.
_THROTTLE_METRICS = """
WITH pauses AS (
  SELECT cluster, broker, cnx_id, reads_paused, limiter, transition, action,
    coalesce(lag(reads_paused) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
    ), false) AS were_paused
  FROM throttle_events
), connections AS (
  SELECT cluster, broker,
    sum(CASE WHEN reads_paused AND NOT were_paused THEN 1 ELSE 0 END) AS paused,
    sum(CASE WHEN were_paused AND NOT reads_paused THEN 1 ELSE 0 END) AS resumed,
    sum(CASE WHEN limiter = 'connection' AND action = 'mark' AND transition <> 'Dropped'
      THEN 1 ELSE 0 END) AS throttled,
    sum(CASE WHEN limiter = 'connection' AND action = 'unmark' AND transition <> 'Dropped'
      THEN 1 ELSE 0 END) AS unthrottled
  FROM pauses GROUP BY cluster, broker
), topics AS (
  SELECT cluster, broker, topic, sum(limited_times) AS limited
  FROM topic_throttle_stats GROUP BY cluster, broker, topic
)
SELECT 'pulsar.client.producer.throttled_times' AS metric, 'counter' AS kind, cluster, broker,
  topic, reason, CAST(NULL AS STRING) AS limiter, CAST(NULL AS STRING) AS operation,
  CAST(sum(pause_ms) AS BIGINT) AS value
FROM producer_throttle WHERE request_id IS NOT NULL AND exception IS NULL
GROUP BY cluster, broker, topic, reason
UNION ALL
SELECT 'pulsar.broker.topic.publish.rate.limit.count', 'counter', cluster, broker, topic, NULL,
  name, NULL, CAST(sum(limited_by_limiter[name]) AS BIGINT)
FROM topic_throttle_stats
CROSS JOIN (VALUES ('topic'), ('resource_group'), ('broker'), ('connection'), ('io_thread'))
  AS limiters(name)
GROUP BY cluster, broker, topic, name HAVING sum(limited_by_limiter[name]) > 0
UNION ALL
SELECT 'pulsar_publish_rate_limit_times', 'counter', cluster, broker, topic, NULL, NULL, NULL,
  CAST(limited AS BIGINT) FROM topics
UNION ALL
SELECT 'publishRateLimitedTimes', 'counter', cluster, broker, topic, NULL, NULL, NULL,
  CAST(limited AS BIGINT) FROM topics
UNION ALL
SELECT 'pulsar.broker.connection.rate_limit.count', 'counter', cluster, broker, NULL, NULL, NULL,
  name, CAST(CASE name WHEN 'paused' THEN paused WHEN 'resumed' THEN resumed
    WHEN 'throttled' THEN throttled ELSE unthrottled END AS BIGINT)
FROM connections
CROSS JOIN (VALUES ('paused'), ('resumed'), ('throttled'), ('unthrottled')) AS operations(name)
UNION ALL
SELECT 'pulsar_broker_throttled_connections', 'gauge', cluster, broker, NULL, NULL, NULL, NULL,
  CAST(paused - resumed AS BIGINT) FROM connections
""".strip()

# `user` is written with its table: alone, the word is a function in some engines.
_PRODUCER_ID_OWNER = """
WITH ranked AS (
  SELECT o.cluster, o.producer_id, o.user AS user, o.client_id, o.ts_wall_ms, row_number() OVER (
      PARTITION BY o.cluster, o.producer_id
      ORDER BY o.ts_wall_ms DESC, o.user DESC, o.client_id DESC NULLS LAST
    ) AS place
  FROM producer_id_owners AS o
)
SELECT r.cluster, r.producer_id, r.user AS user, r.client_id, r.ts_wall_ms AS since_ms
FROM ranked AS r WHERE r.place = 1
""".strip()

# What the quota sees against what is true: with membership=exact a recount is known to be one.
_PRODUCER_ID_DISTINCT = """
SELECT s.cluster, s.broker, s.user AS user, s.window_start_ms, s.window_ms,
  s.new_ids AS counted_ids,
  CAST(count(CASE WHEN NOT d.recount THEN 1 END) AS BIGINT) AS distinct_ids,
  CAST(count(CASE WHEN d.recount THEN 1 END) AS BIGINT) AS recounted_ids
FROM producer_id_stats AS s
LEFT JOIN producer_id_decisions AS d
  ON d.cluster = s.cluster AND d.broker = s.broker AND d.user = s.user
  AND d.ts_wall_ms >= s.window_start_ms
  AND d.ts_wall_ms < CAST(s.window_start_ms AS DOUBLE) + s.window_ms
  AND d.verdict <> 'rejected' AND d.switches['membership'] = 'exact'
WHERE s.switches['membership'] = 'exact'
GROUP BY s.cluster, s.broker, s.user, s.window_start_ms, s.window_ms, s.new_ids
""".strip()

_PRODUCER_ID_METRICS = """
WITH ranked AS (
  SELECT s.cluster, s.broker, s.user AS user, s.rate, s.tokens, s.throttle_time_avg_ms,
    s.ts_wall_ms, row_number() OVER (
      PARTITION BY s.cluster, s.broker, s.user ORDER BY s.window_start_ms DESC, s.ts_wall_ms DESC
    ) AS place
  FROM producer_id_stats AS s
), named AS (
  SELECT r.*, n.name FROM ranked AS r
  CROSS JOIN (VALUES ('rate'), ('tokens'), ('throttle-time')) AS n(name)
  WHERE r.place = 1
)
SELECT 'kafka.server:type=ProducerIds' AS metric, m.name AS attribute, m.cluster, m.broker,
  m.user AS user, m.ts_wall_ms,
  CASE m.name WHEN 'rate' THEN m.rate WHEN 'tokens' THEN m.tokens
    ELSE coalesce(m.throttle_time_avg_ms, CAST(0 AS DOUBLE)) END AS value
FROM named AS m WHERE m.name <> 'tokens' OR m.tokens IS NOT NULL
""".strip()

# Limiters are those of rate_limits: buckets by messages and bytes per second, connections by
# requests in flight, IO threads by bytes buffered. A bucket is breached where a charge left nothing
# in it, even if the window as a whole stayed below its limit. Connections stop at their limit, IO
# threads above it. `limit` is a keyword: only an alias may be called so.
_QUOTA_USAGE_LIMITERS = """
SELECT concat(s.limiter, CASE n.name WHEN 'msgs' THEN '_msgs' ELSE '_bytes' END) AS kind,
  s.cluster AS cluster, s.broker AS broker, s.limiter_name AS entity,
  CASE n.name WHEN 'msgs' THEN s.limit_msgs ELSE s.limit_bytes END AS quota,
  CAST(CASE n.name WHEN 'msgs' THEN s.messages ELSE s.bytes END AS DOUBLE) * 1000 / s.window_ms
    AS used,
  CASE n.name WHEN 'msgs' THEN s.limit_msgs - s.min_balance_msgs
    ELSE s.limit_bytes - s.min_balance_bytes END AS most_used,
  coalesce(CASE n.name WHEN 'msgs' THEN s.min_balance_msgs ELSE s.min_balance_bytes END <= 0, false)
    AS breached,
  s.window_start_ms AS window_start_ms, s.window_ms AS window_ms
FROM limiter_stats AS s CROSS JOIN (VALUES ('msgs'), ('bytes')) AS n(name)
WHERE CASE n.name WHEN 'msgs' THEN s.limit_msgs ELSE s.limit_bytes END IS NOT NULL
UNION ALL
SELECT CASE s.limiter WHEN 'connection' THEN 'connection_requests'
    ELSE concat(s.limiter, '_bytes') END, s.cluster, s.broker, s.limiter_name,
  CAST(s.limit_level AS DOUBLE), CAST(s.max_level AS DOUBLE), CAST(s.max_level AS DOUBLE),
  CASE s.limiter WHEN 'connection' THEN s.max_level >= s.limit_level
    ELSE s.max_level > s.limit_level END,
  s.window_start_ms, s.window_ms
FROM limiter_stats AS s WHERE s.limit_level IS NOT NULL
""".strip()

# The statistics give rate and rate / bound, so the bound per second is their quotient; at a rate of
# 0 it is not known. A bound of 0 has no utilisation. Whether there is a bound at all is in the
# user's newest decision.
_QUOTA_USAGE_PRODUCER_IDS = """
SELECT 'producer_ids', s.cluster, s.broker, s.user,
  CASE WHEN s.utilisation IS NULL THEN CAST(0 AS DOUBLE)
    WHEN s.utilisation > 0 THEN s.rate / s.utilisation END,
  s.rate, s.rate, s.rejected > 0 OR coalesce(s.throttle_time_avg_ms > 0, false),
  s.window_start_ms, s.window_ms
FROM producer_id_stats AS s
JOIN (
  SELECT d.cluster, d.broker, d.user AS user, d.bound_source, row_number() OVER (
      PARTITION BY d.cluster, d.broker, d.user ORDER BY d.ts_wall_ms DESC, d.row_no DESC
    ) AS place
  FROM producer_id_decisions AS d
) AS b ON b.cluster = s.cluster AND b.broker = s.broker AND b.user = s.user
  AND b.place = 1 AND b.bound_source <> 'none'
""".strip()

# A check is a moment, so its window has no length. An age of -1 is none.
_QUOTA_USAGE_BACKLOG = """
SELECT CASE n.name WHEN 'size' THEN 'backlog_size' ELSE 'backlog_age' END, c.cluster, c.broker,
  c.topic, CAST(CASE n.name WHEN 'size' THEN c.limit_bytes ELSE c.limit_s END AS DOUBLE),
  CAST(CASE WHEN n.name = 'size' THEN c.backlog_bytes WHEN c.age_s >= 0 THEN c.age_s END AS DOUBLE),
  CAST(CASE WHEN n.name = 'size' THEN c.backlog_bytes WHEN c.age_s >= 0 THEN c.age_s END AS DOUBLE),
  coalesce(CASE n.name WHEN 'size' THEN c.exceeded_size ELSE c.exceeded_time END, false),
  c.pass_ms, CAST(0 AS BIGINT)
FROM backlog_checks AS c CROSS JOIN (VALUES ('size'), ('time')) AS n(name)
WHERE CASE n.name WHEN 'size' THEN c.limit_bytes ELSE c.limit_s END IS NOT NULL
""".strip()

_QUOTA_USAGE = f"""
WITH usage AS (
{_QUOTA_USAGE_LIMITERS}
UNION ALL
{_QUOTA_USAGE_PRODUCER_IDS}
UNION ALL
{_QUOTA_USAGE_BACKLOG}
)
SELECT u.kind, u.cluster, u.broker, u.entity, u.quota AS limit, u.used,
  CASE WHEN u.quota > 0 THEN u.used / u.quota END AS ratio,
  CASE WHEN u.quota > 0 THEN coalesce(u.most_used, u.used) / u.quota END AS peak,
  u.breached OR coalesce(u.used > u.quota, false) AS breached, u.window_start_ms, u.window_ms
FROM usage AS u
""".strip()

# A gap is repeated by a feed that sends it again, a refused record by each job that refuses it.
_COVERAGE = """
WITH counted AS (
  SELECT cluster, broker, minute_ms, sum(received) AS received, sum(quarantined) AS quarantined
  FROM coverage_counts GROUP BY cluster, broker, minute_ms
), refused AS (
  SELECT cluster, broker, ts_wall_ms - ts_wall_ms % 60000 AS minute_ms,
    count(DISTINCT CASE WHEN reason_code = 'DUPLICATE_RECORD'
      THEN concat(source_partition, ' ', source_offset) END) AS repeated,
    count(DISTINCT CASE WHEN reason_code = 'TOO_LATE'
      THEN concat(source_partition, ' ', source_offset) END) AS late
  FROM quarantine
  WHERE reason_code IN ('DUPLICATE_RECORD', 'TOO_LATE') AND broker <> '*'
    AND ts_wall_ms IS NOT NULL
  GROUP BY cluster, broker, ts_wall_ms - ts_wall_ms % 60000
), known AS (
  SELECT DISTINCT cluster, broker, source_feed, seq, ts_wall_ms, dropped
  FROM coverage_gaps WHERE ts_wall_ms IS NOT NULL
), gaps AS (
  SELECT cluster, broker, ts_wall_ms - ts_wall_ms % 60000 AS minute_ms, count(*) AS gaps,
    CASE WHEN count(*) = count(dropped) THEN sum(dropped) END AS dropped
  FROM known GROUP BY cluster, broker, ts_wall_ms - ts_wall_ms % 60000
), minutes AS (
  SELECT cluster, broker, minute_ms FROM counted
  UNION SELECT cluster, broker, minute_ms FROM refused
  UNION SELECT cluster, broker, minute_ms FROM gaps
), blind AS (
  SELECT m.cluster, m.broker, m.minute_ms, array_sort(array_agg(DISTINCT g.job)) AS blind_jobs
  FROM minutes AS m JOIN coverage_gaps AS g
    ON g.cluster = m.cluster AND g.broker = m.broker
    AND coalesce(g.gap_from_wall_ms, g.ts_wall_ms) < CAST(m.minute_ms AS DOUBLE) + 60000
    AND g.blind_until_ms > m.minute_ms
  GROUP BY m.cluster, m.broker, m.minute_ms
)
SELECT m.cluster, m.broker, m.minute_ms, coalesce(c.received, 0) AS received,
  coalesce(r.repeated, 0) AS repeated, coalesce(r.late, 0) AS late,
  coalesce(c.quarantined, 0) AS quarantined, coalesce(g.gaps, 0) AS gaps,
  CASE WHEN g.gaps IS NULL THEN 0 ELSE g.dropped END AS dropped, b.blind_jobs
FROM minutes AS m
LEFT JOIN counted AS c
  ON c.cluster = m.cluster AND c.broker = m.broker AND c.minute_ms = m.minute_ms
LEFT JOIN refused AS r
  ON r.cluster = m.cluster AND r.broker = m.broker AND r.minute_ms = m.minute_ms
LEFT JOIN gaps AS g
  ON g.cluster = m.cluster AND g.broker = m.broker AND g.minute_ms = m.minute_ms
LEFT JOIN blind AS b
  ON b.cluster = m.cluster AND b.broker = m.broker AND b.minute_ms = m.minute_ms
""".strip()

VIEWS: dict[str, View] = {
    "coverage": View(
        "coverage",
        "What is known of each broker by minute: records received, repeated, late and quarantined,"
        " gaps that end in it, events that they dropped (null: not known), and the jobs that were"
        " blind in it (null: none).",
        _COVERAGE,
        reads=("coverage_counts", "coverage_gaps", "quarantine"),
    ),
    "throttle_intervals": View(
        "throttle_intervals",
        "One row per pause of a connection: start, end, reasons, culprits and shared limits;"
        " end_ns and end_ms are null while it is paused.",
        _THROTTLE_INTERVALS,
        reads=("throttle_events",),
    ),
    "is_throttled": View(
        "is_throttled",
        "Pauses that throttle commands announced to a producer (protocol=pip385), merged where they"
        " overlap; a null partition = any partition of the topic.",
        _IS_THROTTLED,
        reads=("producer_throttle",),
    ),
    "throttle_metrics": View(
        "throttle_metrics",
        "Counts of throttling under the names of Pulsar's own metrics, for comparison.",
        _THROTTLE_METRICS,
        reads=("producer_throttle", "throttle_events", "topic_throttle_stats"),
    ),
    "producer_id_owner": View(
        "producer_id_owner",
        "Owner of each producer id: its latest row of producer_id_owners.",
        _PRODUCER_ID_OWNER,
        reads=("producer_id_owners",),
    ),
    "producer_id_distinct": View(
        "producer_id_distinct",
        "Per user and window of a run with membership=exact: ids that the quota counted, new ids"
        " among them, and recounts.",
        _PRODUCER_ID_DISTINCT,
        reads=("producer_id_stats", "producer_id_decisions"),
    ),
    "producer_id_metrics": View(
        "producer_id_metrics",
        "The newest window of each user under the names of KIP-936's metrics.",
        _PRODUCER_ID_METRICS,
        reads=("producer_id_stats",),
    ),
    "quota_usage": View(
        "quota_usage",
        "Every quota of every job: per window or check its limit, its use, their ratio, and whether"
        " it was breached; rates are per second. `peak` is the highest use within a second of the"
        " window as a share of the limit: what the bucket lacked of full at its lowest balance. Of"
        " quotas without a bucket it is the ratio.",
        _QUOTA_USAGE,
        reads=("limiter_stats", "producer_id_stats", "producer_id_decisions", "backlog_checks"),
    ),
    "backlog_topic_stats": View(
        "backlog_topic_stats",
        "The newest check of every topic, and of every partitioned topic as a whole, under the"
        " names of the broker's topic stats. With age_reading = live the age has grown since the"
        " check.",
        backlog_views.TOPIC_STATS,
        reads=("backlog_checks",),
    ),
    "backlog_metrics": View(
        "backlog_metrics",
        "Sizes, ages, limits and evictions of backlogs under the names of Pulsar's own metrics."
        " With age_reading = live an age has grown since its check.",
        backlog_views.METRICS,
        reads=("backlog_checks", "backlog_evictions"),
    ),
    "group_lag_now": View(
        "group_lag_now",
        "Kafka: the newest check of every group and partition that is not gone, with its trend"
        " and the offsets that it lost.",
        group_views.GROUP_LAG_NOW,
        reads=("group_lag", "lost_messages"),
    ),
    "cache_metrics": View(
        "cache_metrics",
        "Each cache under the names of Pulsar's own metrics; counters since the tables begin.",
        cache_views.METRICS,
        reads=("cache_stats",),
    ),
    "shadow_effects": View(
        "shadow_effects",
        "What live and shadow policies did to topics and users: a row per shadow, decision and"
        " measure, with the amount under `live` or under `shadow`, of the time that both have"
        " judged.",
        shadow_views.EFFECTS,
        reads=shadow_views.READS,
    ),
}
