"""Quotas of the job: size and age of each topic's backlog."""

from __future__ import annotations

from app.tables.view import JobQuotas, Quota

# A check is a moment, so its window has no length. An age of -1 is none.
_USAGE = """
SELECT CASE n.name WHEN 'size' THEN 'backlog_size' ELSE 'backlog_age' END, c.cluster, c.broker,
  c.topic, CAST(CASE n.name WHEN 'size' THEN c.limit_bytes ELSE c.limit_s END AS DOUBLE),
  CAST(CASE WHEN n.name = 'size' THEN c.backlog_bytes WHEN c.age_s >= 0 THEN c.age_s END AS DOUBLE),
  CAST(CASE WHEN n.name = 'size' THEN c.backlog_bytes WHEN c.age_s >= 0 THEN c.age_s END AS DOUBLE),
  coalesce(CASE n.name WHEN 'size' THEN c.exceeded_size ELSE c.exceeded_time END, false),
  c.pass_ms, CAST(0 AS BIGINT)
FROM backlog_checks AS c CROSS JOIN (VALUES ('size'), ('time')) AS n(name)
WHERE CASE n.name WHEN 'size' THEN c.limit_bytes ELSE c.limit_s END IS NOT NULL
""".strip()

QUOTAS = JobQuotas(
    (Quota("backlog_size", of_topic=True), Quota("backlog_age", of_topic=True)),
    _USAGE,
    "backlog_checks",
)
