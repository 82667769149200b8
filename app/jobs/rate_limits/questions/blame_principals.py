"""The question which principal paused which: whose connections, because of whose publishes."""

from __future__ import annotations

from app.jobs.rate_limits.pauses import NUMBERED
from app.read.owner_rules import OWNED
from app.read.question import LEAST, USUAL, Param, Question
from app.read.relations import OWNERS
from app.read.spelling import TOPIC

# A bucket holds what its rate gives in a second, and throttles until its debt is repaid. So what it
# was used up by is published from a second before the throttling begins, and ten minutes at most.
_SECOND_NS = 10**9
_LONGEST_NS = 600 * _SECOND_NS
# How much earlier than a mark the records lie that its culprit is found in: a minute more, since
# ranges are of wall time.
_EARLIER_MS = 660_000
_DAY_MS = 86_400_000
_OPENED_MS = f"""
CASE WHEN $opened_since > {LEAST + 1} THEN $opened_since
    ELSE greatest($since, {LEAST + 1 + _DAY_MS}) - {_DAY_MS} END
""".strip()
_PUBLISHED_MS = f"greatest($since, {LEAST + 1 + _EARLIER_MS}) - {_EARLIER_MS}"

# Monotonic times are compared within a run of the broker. A principal without a name is '' until
# the last step: ASOF joins compare by =.
_RUN = """
ASOF LEFT JOIN starts AS s
    ON s.cluster = {of}.cluster AND s.broker = {of}.broker AND {of}.{at} >= s.ts_wall_ms
""".strip()
_CONNECTION = """
ASOF LEFT JOIN connections AS c
    ON c.cluster = {of}.cluster AND c.broker = {of}.broker AND c.run = {of}.run
    AND c.cnx_id = {of}.cnx_id AND {of}.{at} >= c.ts_mono_ns
""".strip()
# What was used by a time of the monotonic clock.
_USED_BY = """
ASOF LEFT JOIN {used} AS {name}
    ON {name}.cluster = m.cluster AND {name}.broker = m.broker AND {name}.run = m.run
    AND {name}.topic = m.topic AND {name}.{who} = m.{who} AND m.{at} >= {name}.ts_mono_ns
""".strip()
# What a culprit is found for: marks of one time may be of different buckets.
_MOMENT = "cluster, broker, run, topic, ts_mono_ns, from_ns, by_messages"
_AMOUNTS = """
CASE WHEN by_messages THEN messages ELSE bytes END AS amount,
    CASE WHEN by_messages THEN bytes ELSE messages END AS other
""".strip()


def _summed(who: str) -> str:
    """Sums of the publishes to each topic up to each publish, by the column `who`."""
    window = f"PARTITION BY cluster, broker, run, topic, {who} ORDER BY ts_mono_ns"
    return f"""
  SELECT cluster, broker, run, topic, {who}, ts_mono_ns,
    sum(messages) OVER by_time AS messages, sum(bytes) OVER by_time AS bytes
  FROM published WINDOW by_time AS ({window})
""".strip()


def _used(marks: str, used: str, who: str) -> str:
    """The use by `who` in the time before each mark."""
    until = _USED_BY.format(used=used, name="u", who=who, at="ts_mono_ns")
    before = _USED_BY.format(used=used, name="b", who=who, at="from_ns")
    return f"""
  SELECT m.*, coalesce(u.messages, 0) - coalesce(b.messages, 0) AS messages,
    coalesce(u.bytes, 0) - coalesce(b.bytes, 0) AS bytes
  FROM {marks} AS m
  {until}
  {before}
""".strip()


_BLAME = f"""
{NUMBERED}, lasting AS (
  FROM pauses WHERE start_ms IS NULL OR (start_ms >= $since AND start_ms < $until)
), queued AS (
  SELECT *, coalesce(lag(waiting) OVER in_order, 0) AS waited FROM (
    SELECT cluster, broker, cnx_id, pause_no, ts_wall_ms, ts_mono_ns, row_no, action, transition,
      trigger_topic AS topic, reads_paused, coalesce(waiting, 0) AS waiting, reason,
      coalesce(balance_msgs <= 0, false) AS by_messages
    FROM numbered WHERE limiter = 'topic' AND action <> 'receipt'
  ) WINDOW in_order AS (
    PARTITION BY cluster, broker, topic
    ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no)
), throttling AS (
  SELECT *, last_value(CASE WHEN waited = 0 THEN ts_mono_ns END IGNORE NULLS) OVER (
      PARTITION BY cluster, broker, topic
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
    ) AS begun_ns
  FROM queued
), starts AS (
  SELECT cluster, broker, ts_wall_ms FROM events
  WHERE event_type = 'broker_started' AND ts_wall_ms < $until AND ts_wall_ms >= {_OPENED_MS}
  GROUP BY ALL
), connections AS (
  SELECT o.cluster, o.broker, coalesce(s.ts_wall_ms, -1) AS run, o.cnx_id, o.ts_mono_ns,
    arg_max(CASE WHEN o.event_type = 'connection_opened' THEN coalesce(o.principal, '') ELSE '' END,
      coalesce(o.seq, -1)) AS principal
  FROM (
    SELECT cluster, broker, event_type, cnx_id, principal, ts_wall_ms, ts_mono_ns, seq FROM events
    WHERE event_type IN ('connection_opened', 'connection_closed') AND ts_wall_ms < $until
      AND ts_wall_ms >= {_OPENED_MS} AND ts_mono_ns IS NOT NULL
  ) AS o
  {_RUN.format(of="o", at="ts_wall_ms")}
  GROUP BY ALL
), paused AS (
  SELECT l.*, coalesce(c.principal, '') AS victim
  FROM (
    SELECT p.*, coalesce(s.ts_wall_ms, -1) AS run FROM lasting AS p
    {_RUN.format(of="p", at="start_ms")}
  ) AS l
  {_CONNECTION.format(of="l", at="start_ns")}
), marks AS (
  SELECT t.cluster, t.broker, p.run, t.topic, t.cnx_id, t.pause_no, t.ts_mono_ns, t.row_no,
    t.by_messages, t.reason, p.victim,
    greatest(least(t.begun_ns, t.ts_mono_ns) - {_SECOND_NS}::HUGEINT,
      t.ts_mono_ns - {_LONGEST_NS}::HUGEINT) AS from_ns
  FROM throttling AS t JOIN paused AS p USING (cluster, broker, cnx_id, pause_no)
  WHERE t.reads_paused AND t.action IN ('mark', 'pause') AND t.transition <> 'Dropped'
    AND (t.ts_wall_ms IS NULL OR t.ts_wall_ms < $until)
), published AS MATERIALIZED (
  SELECT w.cluster, w.broker, w.run, w.topic, w.cnx_id, w.ts_mono_ns, w.messages, w.bytes,
    coalesce(c.principal, '') AS principal
  FROM (
    SELECT r.*, coalesce(s.ts_wall_ms, -1) AS run FROM (
      SELECT DISTINCT source_feed, cluster, broker, seq, ts_mono_ns, ts_wall_ms, cnx_id,
        {TOPIC} AS topic, coalesce(num_messages, 1) AS messages, coalesce(entry_bytes, 0) AS bytes,
        CASE WHEN seq IS NULL THEN (source_partition, source_offset) END AS place
      FROM events
      WHERE event_type IN ('publish', 'publish_digest') AND ts_wall_ms < $until
        AND ts_wall_ms >= {_PUBLISHED_MS} AND ts_mono_ns IS NOT NULL
    ) AS r
    {_RUN.format(of="r", at="ts_wall_ms")}
    SEMI JOIN marks AS m
      ON m.cluster = r.cluster AND m.broker = r.broker AND m.topic = r.topic
  ) AS w
  {_CONNECTION.format(of="w", at="ts_mono_ns")}
), by_principal AS (
  {_summed("principal")}
), by_connection AS (
  {_summed("cnx_id")}
), parties AS (
  SELECT m.*, w.principal
  FROM (SELECT DISTINCT {_MOMENT} FROM marks) AS m
  JOIN (SELECT DISTINCT cluster, broker, run, topic, principal FROM published) AS w
    USING (cluster, broker, run, topic)
), used AS (
  SELECT *, {_AMOUNTS} FROM (
  {_used("parties", "by_principal", "principal")}
  )
), culprits AS (
  SELECT {_MOMENT}, sum(amount) AS total,
    arg_min(principal, (-amount, -other, principal)) AS culprit, max(amount) AS amount,
    map(list(principal), list(amount)) AS amounts
  FROM used WHERE messages > 0 OR bytes > 0
  GROUP BY {_MOMENT}
), own AS (
  SELECT *, {_AMOUNTS} FROM (
  {_used("marks", "by_connection", "cnx_id")}
  )
), pairs AS (
  SELECT o.cluster, o.broker, o.cnx_id, o.pause_no, o.topic, o.reason, o.victim,
    coalesce(c.culprit, '') AS culprit, c.amount / nullif(c.total, 0) AS culprit_share,
    CASE WHEN o.victim = '' THEN o.amount ELSE coalesce(c.amounts[o.victim], 0) END
      / nullif(c.total, 0) AS victim_share,
    o.amount = c.amount AND o.amount > 0 AS alone
  FROM own AS o
  LEFT JOIN culprits AS c USING ({_MOMENT})
), blamed AS (
  SELECT b.*, p.paused_ns, p.start_ms FROM pairs AS b
  JOIN paused AS p USING (cluster, broker, cnx_id, pause_no)
  WHERE b.culprit <> b.victim OR (b.victim = '' AND b.alone IS NOT TRUE)
), once AS (
  SELECT cluster, culprit, victim, broker, cnx_id, pause_no, max(paused_ns) AS paused_ns,
    max(start_ms) AS start_ms
  FROM blamed GROUP BY cluster, culprit, victim, broker, cnx_id, pause_no
), sums AS (
  SELECT cluster, culprit, victim, count(*) AS pauses, sum(paused_ns) AS paused_ns,
    min(start_ms) AS first_ms, max(start_ms) AS last_ms
  FROM once GROUP BY cluster, culprit, victim
), suffered AS (
  SELECT cluster, victim, sum(paused_ns) AS paused_ns FROM paused GROUP BY cluster, victim
), facts AS (
  SELECT cluster, culprit, victim, mode(topic ORDER BY topic) AS topic,
    mode(reason ORDER BY reason) AS reason, avg(culprit_share) AS culprit_share,
    avg(victim_share) AS victim_share
  FROM blamed GROUP BY cluster, culprit, victim
), names AS (
  SELECT cluster, CAST(NULL AS VARCHAR) AS topic, weir_user(nullif(culprit, '')) AS user_name
  FROM sums UNION SELECT cluster, NULL, weir_user(nullif(victim, '')) FROM sums
), owned AS (
  {OWNED}
)
SELECT s.cluster, nullif(s.culprit, '') AS culprit, nullif(s.victim, '') AS victim, f.topic,
  s.pauses, s.paused_ns / 1e9 AS paused_s,
  s.paused_ns / nullif(t.paused_ns, 0) AS share_of_victims_pauses, f.reason,
  f.culprit_share, f.victim_share,
  c.owner.team AS culprit_team, c.owner.contact AS culprit_contact, v.owner.team AS victim_team,
  epoch_ms(s.first_ms) AS first_pause, epoch_ms(s.last_ms) AS last_pause
FROM sums AS s
JOIN facts AS f USING (cluster, culprit, victim)
LEFT JOIN suffered AS t ON t.cluster = s.cluster AND t.victim = s.victim
LEFT JOIN owned AS c
  ON c.cluster = s.cluster AND c.user_name = weir_user(s.culprit)
LEFT JOIN owned AS v
  ON v.cluster = s.cluster AND v.user_name = weir_user(s.victim)
ORDER BY s.paused_ns DESC NULLS LAST, s.pauses DESC, s.cluster, s.culprit, s.victim
LIMIT $rows
""".strip()

PRINCIPAL_PAIRS = Question(
    "",
    "Principals: how long the connections of one were paused because another one had used up the"
    " limit of a topic, which share of that limit's use both had, and who owns them.",
    ("throttle_events", "events", OWNERS),
    _BLAME,
    (
        *USUAL,
        Param(
            "opened_since",
            "connections that were opened from this time on are known by their principal"
            " (principal-pair)",
            LEAST,
            is_time=True,
            shown="a day before `since`",
        ),
    ),
    "a row needs two principals that publish to the same topic, and a pause for its limit",
)
