"""Questions about who is responsible: who paused whom, and what each tenant used."""

from __future__ import annotations

from app.warehouse.questions.question import USUAL, Param, Question
from app.warehouse.questions.rate_limits import NUMBERED
from app.warehouse.relations import OWNERS

# The first rule that fits owns a topic. A user of Kafka has no topic.
RULES = f"""
SELECT n.cluster, n.topic, n.user_name,
  arg_min(struct_pack(team := o.team, contact := o.contact, cost_centre := o.cost_centre), o.place)
    AS owner
FROM (SELECT DISTINCT cluster, topic, user_name FROM names) AS n JOIN {OWNERS} AS o
  ON (o.cluster IS NULL OR n.cluster GLOB o.cluster)
  AND (o.tenant IS NULL OR weir_topic_tenant(n.topic) GLOB o.tenant)
  AND (o.namespace IS NULL OR weir_topic_namespace(n.topic) GLOB o.namespace)
  AND (o.topic IS NULL OR regexp_replace(regexp_replace(n.topic, '^[a-z-]+://', ''),
    '-partition-[0-9]+$', '') GLOB o.topic)
  AND (o.principal IS NULL OR n.user_name GLOB o.principal)
GROUP BY n.cluster, n.topic, n.user_name
""".strip()
_NAME = """
CASE $by WHEN 'tenant' THEN weir_topic_tenant({topic})
    WHEN 'namespace' THEN weir_topic_namespace({topic}) ELSE {topic} END
""".strip()

# As in noisy-neighbours, with the limit that was used up. A victim's use is compared with its own
# limit, in the windows in which it was paused by the culprit: the highest of messages and bytes.
_BLAME = f"""
{NUMBERED}, marks AS (
  SELECT cluster, broker, cnx_id, pause_no, publisher AS culprit, reason,
    unnest(list_append(collateral_topics, topic)) AS victim
  FROM numbered
  WHERE pause_no > 0 AND reads_paused AND action IN ('mark', 'pause')
    AND transition <> 'Dropped' AND limiter = 'topic'
), pairs AS (
  SELECT cluster, broker, cnx_id, pause_no, culprit, victim, min(reason) AS reason
  FROM marks WHERE victim <> culprit GROUP BY ALL
), lasting AS (
  SELECT *, CAST(end_ns AS HUGEINT) - start_ns AS paused_ns FROM pauses
  WHERE start_ms IS NULL OR (start_ms >= $since AND start_ms < $until)
), own AS (
  SELECT b.cluster, b.broker, b.cnx_id, b.pause_no, b.victim,
    max(greatest(s.messages * 1e3 / s.window_ms / nullif(s.limit_msgs, 0),
      s.bytes * 1e3 / s.window_ms / nullif(s.limit_bytes, 0))) AS use
  FROM pairs AS b
  JOIN lasting AS p USING (cluster, broker, cnx_id, pause_no)
  JOIN topic_throttle_stats AS s ON s.cluster = b.cluster AND s.broker = b.broker
    AND s.topic = b.victim AND p.start_ms >= s.window_start_ms
    AND p.start_ms < s.window_start_ms + s.window_ms
  GROUP BY ALL
), names AS (
  SELECT cluster, culprit AS topic, CAST(NULL AS VARCHAR) AS user_name FROM pairs
  UNION SELECT cluster, victim, NULL FROM pairs
), owned AS (
  {RULES}
), blamed AS (
  SELECT b.cluster, b.broker, b.cnx_id, b.pause_no, {_NAME.format(topic="b.culprit")} AS culprit,
    {_NAME.format(topic="b.victim")} AS victim, b.victim AS victim_topic, b.reason, o.use,
    p.paused_ns, p.start_ms, c.owner AS culprit_owner, v.owner AS victim_owner
  FROM pairs AS b
  JOIN lasting AS p USING (cluster, broker, cnx_id, pause_no)
  LEFT JOIN own AS o USING (cluster, broker, cnx_id, pause_no, victim)
  LEFT JOIN owned AS c ON c.cluster = b.cluster AND c.topic = b.culprit
  LEFT JOIN owned AS v ON v.cluster = b.cluster AND v.topic = b.victim
), once AS (
  SELECT cluster, culprit, victim, broker, cnx_id, pause_no, max(paused_ns) AS paused_ns,
    max(start_ms) AS start_ms
  FROM blamed WHERE culprit IS DISTINCT FROM victim GROUP BY ALL
), sums AS (
  SELECT cluster, culprit, victim, count(*) AS pauses, sum(paused_ns) AS paused_ns,
    min(start_ms) AS first_ms, max(start_ms) AS last_ms
  FROM once GROUP BY cluster, culprit, victim
), seen AS (
  SELECT DISTINCT cluster, broker, cnx_id, pause_no,
    {_NAME.format(topic="t.topic")} AS victim
  FROM (
    SELECT cluster, broker, cnx_id, pause_no, unnest(list_append(collateral_topics, topic)) AS topic
    FROM numbered WHERE pause_no > 0 AND reads_paused AND action IN ('mark', 'pause')
    AND transition <> 'Dropped'
  ) AS t
), suffered AS (
  SELECT s.cluster, s.victim, sum(p.paused_ns) AS paused_ns
  FROM seen AS s JOIN lasting AS p USING (cluster, broker, cnx_id, pause_no)
  GROUP BY s.cluster, s.victim
), facts AS (
  SELECT cluster, culprit, victim, mode(reason ORDER BY reason) AS reason, max(use) AS victim_use,
    any_value(culprit_owner.team) AS culprit_team, any_value(culprit_owner.contact)
      AS culprit_contact, any_value(victim_owner.team) AS victim_team,
    count(DISTINCT culprit_owner.team) AS culprit_teams, count(DISTINCT victim_owner.team)
      AS victim_teams
  FROM blamed GROUP BY cluster, culprit, victim
)
SELECT s.cluster, s.culprit, s.victim, s.pauses, round(s.paused_ns / 1e9, 3) AS paused_s,
  round(s.paused_ns / nullif(t.paused_ns, 0), 4) AS share_of_victims_pauses, f.reason,
  round(f.victim_use, 4) AS victim_use, f.victim_use < 0.5 AS victim_below_half,
  CASE WHEN f.culprit_teams = 1 THEN f.culprit_team END AS culprit_team,
  CASE WHEN f.culprit_teams = 1 THEN f.culprit_contact END AS culprit_contact,
  CASE WHEN f.victim_teams = 1 THEN f.victim_team END AS victim_team,
  epoch_ms(s.first_ms) AS first_pause, epoch_ms(s.last_ms) AS last_pause
FROM sums AS s
JOIN facts AS f USING (cluster, culprit, victim)
LEFT JOIN suffered AS t ON t.cluster = s.cluster AND t.victim = s.victim
ORDER BY s.paused_ns DESC NULLS LAST, s.pauses DESC, s.cluster, s.culprit, s.victim
LIMIT $rows
""".strip()

# A backlog counts from one check of the broker's topics to the next. Of caches side by side the
# largest counts.
_SHOWBACK = f"""
WITH passes AS (
  SELECT cluster, broker, pass_ms,
    lead(pass_ms) OVER (PARTITION BY cluster, broker ORDER BY pass_ms) AS next_ms
  FROM (SELECT DISTINCT cluster, broker, pass_ms FROM backlog_checks)
), used AS (
  SELECT cluster, topic, CAST(NULL AS VARCHAR) AS user_name, window_start_ms AS at_ms, messages,
    bytes, CAST(culprit_ns AS HUGEINT) + coalesce(shared_ns, 0) + collateral_ns AS paused_ns,
    0 AS new_ids, CAST(0 AS DOUBLE) AS backlog, CAST(0 AS DOUBLE) AS cache
  FROM topic_throttle_stats
  UNION ALL
  SELECT cluster, NULL, s.user, window_start_ms, 0, 0, 0, new_ids, 0, 0
  FROM producer_id_stats AS s
  UNION ALL
  SELECT c.cluster, c.topic, NULL, c.pass_ms, 0, 0, 0, 0,
    c.backlog_bytes::DOUBLE * (p.next_ms::DOUBLE - c.pass_ms) / 1e3, 0
  FROM backlog_checks AS c
  JOIN passes AS p ON p.cluster = c.cluster AND p.broker = c.broker AND p.pass_ms = c.pass_ms
  UNION ALL
  SELECT cluster, topic, NULL, window_start_ms, 0, 0, 0, 0, 0,
    max(used_bytes::DOUBLE * window_ms / 1e3)
  FROM cache_stats WHERE topic IS NOT NULL
  GROUP BY cluster, broker, topic, window_start_ms
), kept AS (
  SELECT *, strftime(epoch_ms(at_ms), '%Y-%m') AS month FROM used
  WHERE at_ms >= $since AND at_ms < $until
), names AS (
  SELECT DISTINCT cluster, topic, user_name FROM kept
), owned AS (
  {RULES}
), placed AS (
  SELECT k.*, o.owner, CASE $by WHEN 'principal' THEN k.user_name WHEN 'team' THEN o.owner.team
    WHEN 'topic' THEN k.topic WHEN 'namespace' THEN weir_topic_namespace(k.topic)
    ELSE weir_topic_tenant(k.topic) END AS name
  FROM kept AS k
  LEFT JOIN owned AS o ON o.cluster = k.cluster AND o.topic IS NOT DISTINCT FROM k.topic
    AND o.user_name IS NOT DISTINCT FROM k.user_name
)
SELECT cluster, month, name, CAST(sum(messages) AS BIGINT) AS messages,
  CAST(sum(bytes) AS BIGINT) AS bytes, round(sum(paused_ns) / 1e9, 3) AS paused_s,
  CAST(sum(new_ids) AS BIGINT) AS new_ids, round(sum(coalesce(backlog, 0))) AS backlog_byte_s,
  round(sum(coalesce(cache, 0))) AS cache_byte_s,
  list_sort(list(DISTINCT owner.team) FILTER (WHERE owner.team IS NOT NULL)) AS teams,
  list_sort(list(DISTINCT owner.contact) FILTER (WHERE owner.contact IS NOT NULL)) AS contacts,
  list_sort(list(DISTINCT owner.cost_centre) FILTER (WHERE owner.cost_centre IS NOT NULL))
    AS cost_centres
FROM placed
GROUP BY cluster, month, name
ORDER BY month DESC, bytes DESC, new_ids DESC, cluster, name NULLS LAST
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "blame",
        "Culprits and victims of publish limits: how long the culprit's own limit paused"
        " the victim, which share of the victim's pauses that was, for what reason, whether the"
        " victim used less than half of its own limit, and who owns both.",
        ("throttle_events", "topic_throttle_stats", OWNERS),
        _BLAME,
        (
            Param(
                "by",
                "level of the pairs; principals: blame-principals",
                "topic",
                allowed=("topic", "namespace", "tenant"),
            ),
            *USUAL,
        ),
        "a row needs a topic that shares a connection with one whose own limit paused it",
    ),
    Question(
        "showback",
        "What each tenant used in each month: messages, bytes, paused time, new"
        " producer ids, backlog and cache (bytes times seconds), and its owners; Kafka's users are"
        " under principal or team.",
        ("topic_throttle_stats", "producer_id_stats", "backlog_checks", "cache_stats", OWNERS),
        _SHOWBACK,
        (
            Param(
                "by",
                "what is summed",
                "tenant",
                allowed=("tenant", "namespace", "topic", "principal", "team"),
            ),
            *USUAL,
        ),
    ),
)
