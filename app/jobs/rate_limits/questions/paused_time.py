"""How often and how long topics were paused, by topic, namespace and tenant."""

from __future__ import annotations

from app.read.question import Question
from app.read.spelling import NAMESPACE, TENANT

_SUMS = """
SELECT cluster, topic, CAST(sum({whose}_times) AS BIGINT) AS {times},
  sum({whose}_ns) / 1e9 AS paused_s,{also}
  epoch_ms(min(window_start_ms)) AS first_window, epoch_ms(max(window_start_ms)) AS last_window
FROM topic_pauses
WHERE window_start_ms >= $since AND window_start_ms < $until AND is_{role}
GROUP BY cluster, topic
ORDER BY sum({whose}_ns) DESC, {times} DESC, cluster, topic
LIMIT $rows
""".strip()
_TOP_VICTIMS = _SUMS.format(
    whose="collateral",
    role="victim",
    times="paused_by_others",
    also=" CAST(sum(culprit_times) AS BIGINT) AS broke_its_limit,",
)

# A Kafka topic has neither: its rows come under null.
_THROTTLE_TIME = """
WITH named AS (
  SELECT *, {part} AS name
  FROM topic_throttle_stats
  WHERE window_start_ms >= $since AND window_start_ms < $until
)
SELECT cluster, name, count(DISTINCT topic) AS topics,
  CAST(sum(limited_times) AS BIGINT) AS pauses,
  sum(culprit_ns) / 1e9 AS own_limit_s,
  sum(shared_ns) / 1e9 AS shared_limits_s,
  sum(collateral_ns) / 1e9 AS limits_of_others_s
FROM named
GROUP BY cluster, name
HAVING sum(limited_times) > 0
  OR sum(culprit_ns) + sum(shared_ns) + sum(collateral_ns) > 0
ORDER BY sum(culprit_ns) + sum(shared_ns) + sum(collateral_ns) DESC, cluster, name
LIMIT $rows
""".strip()

CULPRITS = Question(
    "",
    "Topics that used up their own limit: how often, and how long that paused them.",
    ("topic_throttle_stats",),
    _SUMS.format(whose="culprit", role="culprit", times="broke_its_limit", also=""),
)
VICTIMS = Question(
    "",
    "Topics that were paused for the limits of other topics: how often and how long.",
    ("topic_throttle_stats",),
    _TOP_VICTIMS,
)
NAMESPACES, TENANTS = (
    Question(
        "",
        f"Paused time of all topics of a {level}, by whose limit.",
        ("topic_throttle_stats",),
        _THROTTLE_TIME.replace("{part}", part),
    )
    for level, part in (("namespace", NAMESPACE), ("tenant", TENANT))
)
