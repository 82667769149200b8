"""Questions about shadow policies: their effects compared with the live policies."""

from __future__ import annotations

from app.read.question import USUAL, Param, Question
from app.tables.shadow_effects import OF_TOPICS

# Measures have different units: the largest differences of each come first, what is alike last.
_SHADOW = f"""
WITH named AS (
  SELECT *, CASE WHEN $by = 'name' OR measure NOT IN {OF_TOPICS} THEN name
    WHEN $by = 'tenant' THEN weir_topic_tenant(name) ELSE weir_topic_namespace(name) END AS who
  FROM shadow_effects WHERE at_ms >= $since AND at_ms < $until
), summed AS (
  SELECT policy, cluster, who AS name, measure, round(sum(live), 3) AS live,
    round(sum(shadow), 3) AS shadow, round(sum(shadow) - sum(live), 3) + 0.0 AS difference
  FROM named GROUP BY policy, cluster, who, measure
)
SELECT * FROM summed
ORDER BY difference = 0, row_number() OVER (
  PARTITION BY policy, measure ORDER BY abs(difference) DESC, cluster, name
), policy, measure, cluster, name
LIMIT $rows
""".strip()

_BY = Param("by", "grouping of topics", "name", allowed=("name", "namespace", "tenant"))

QUESTIONS = (
    Question(
        "shadow",
        "What shadow policies would have done beside what the live ones did, by topic or"
        " user and measure: the largest differences of each measure first.",
        ("shadow_effects",),
        _SHADOW,
        (*USUAL, _BY),
        "a run whose configuration has shadows writes them",
        place=3,
    ),
)
