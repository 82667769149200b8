"""The question who paused whom."""

from __future__ import annotations

from app.jobs.rate_limits.pauses import NUMBERED
from app.read.owner_rules import OWNED
from app.read.question import Question
from app.read.relations import OWNERS

_LEVELS = {
    "topic": "{topic}",
    "namespace": "weir_topic_namespace({topic})",
    "tenant": "weir_topic_tenant({topic})",
}


# Only a topic's own limit has a culprit. A pause with several culprits counts in full for each. A
# victim's use is compared with its own limit, in the windows in which it was paused by the culprit:
# the highest of messages and bytes.
def _blame(level: str) -> str:
    """Pairs of topics, namespaces or tenants."""
    return f"""
{NUMBERED}, pairs AS (
  SELECT * FROM (
    SELECT cluster, broker, cnx_id, pause_no, culprit, unnest(topics) AS victim, reason
    FROM held
  ) WHERE victim <> culprit
), lasting AS (
  FROM pauses WHERE start_ms IS NULL OR (start_ms >= $since AND start_ms < $until)
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
  {OWNED}
), blamed AS (
  SELECT b.cluster, b.broker, b.cnx_id, b.pause_no, {_LEVELS[level].format(topic="b.culprit")} AS culprit,
    {_LEVELS[level].format(topic="b.victim")} AS victim, b.victim AS victim_topic, b.reason, o.use,
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
  SELECT DISTINCT cluster, broker, cnx_id, pause_no, paused_ns,
    {_LEVELS[level].format(topic="t.topic")} AS victim
  FROM (
    SELECT cluster, broker, cnx_id, pause_no, paused_ns, unnest(topics) AS topic FROM lasting
  ) AS t
), suffered AS (
  SELECT cluster, victim, sum(paused_ns) AS paused_ns FROM seen GROUP BY cluster, victim
), facts AS (
  SELECT cluster, culprit, victim, mode(reason ORDER BY reason) AS reason, max(use) AS victim_use,
    any_value(culprit_owner.team) AS culprit_team, any_value(culprit_owner.contact)
      AS culprit_contact, any_value(victim_owner.team) AS victim_team,
    count(DISTINCT culprit_owner.team) AS culprit_teams, count(DISTINCT victim_owner.team)
      AS victim_teams
  FROM blamed GROUP BY cluster, culprit, victim
)
SELECT s.cluster, s.culprit, s.victim, s.pauses, s.paused_ns / 1e9 AS paused_s,
  s.paused_ns / nullif(t.paused_ns, 0) AS share_of_victims_pauses, f.reason,
  f.victim_use, f.victim_use < 0.5 AS victim_below_half,
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


PAIRS, NAMESPACE_PAIRS, TENANT_PAIRS = (
    Question(
        "",
        f"{pairs}: how long the culprit's own limit paused the victim, which share of the victim's"
        " pauses that was, for what reason, whether the victim used less than half of its own"
        " limit, and who owns both.",
        ("throttle_events", "topic_throttle_stats", OWNERS),
        _blame(level),
        needs="a row needs a topic that shares a connection with one whose own limit paused it",
    )
    for level, pairs in (
        ("topic", "Culprits and victims"),
        ("namespace", "The same of namespaces"),
        ("tenant", "The same of tenants"),
    )
)
