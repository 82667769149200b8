"""The question that has a row for each cluster: what is worst in it, and whether it answers."""

from __future__ import annotations

from app.jobs import every
from app.read.question import FleetColumns, Question

_OF_JOBS: tuple[FleetColumns, ...] = tuple(every("fleet", "FLEET"))


def _sql() -> str:
    parts = "".join(f", of_job_{n} AS (\n{part.sql}\n)" for n, part in enumerate(_OF_JOBS))
    joins = "".join(
        f"LEFT JOIN of_job_{n} AS j{n} ON j{n}.cluster = c.cluster\n" for n in range(len(_OF_JOBS))
    )
    names = [f"j{n}.{name}" for n, part in enumerate(_OF_JOBS) for name in part.names]
    columns = "".join(f"{name}, " for name in names)
    worst_first = "".join(f"{name} DESC NULLS LAST, " for name in names)
    return f"""
WITH clusters AS (
  SELECT cluster FROM coverage_counts UNION SELECT cluster FROM coverage_polls
), breaches AS (
  SELECT cluster, count(DISTINCT (kind, entity)) AS breached_quotas FROM quota_usage
  WHERE breached AND window_start_ms >= $since AND window_start_ms < $until GROUP BY cluster
), polls AS (
  SELECT cluster, count(*) FILTER (WHERE dropped IS NULL) AS unanswered_polls,
    max(ts_wall_ms) FILTER (WHERE dropped IS NOT NULL) AS answered_ms,
    arg_max(problem, ts_wall_ms) FILTER (WHERE problem IS NOT NULL) AS last_problem
  FROM coverage_polls WHERE ts_wall_ms >= $since AND ts_wall_ms < $until GROUP BY cluster
){parts}
SELECT c.cluster, {columns}coalesce(b.breached_quotas, 0) AS breached_quotas,
  coalesce(p.unanswered_polls, 0) AS unanswered_polls, epoch_ms(p.answered_ms) AS answered,
  p.last_problem
FROM clusters AS c
LEFT JOIN breaches AS b ON b.cluster = c.cluster
LEFT JOIN polls AS p ON p.cluster = c.cluster
{joins}ORDER BY unanswered_polls DESC, breached_quotas DESC, {worst_first}c.cluster
LIMIT $rows
""".strip()


QUESTIONS = (
    Question(
        "fleet",
        "Per cluster: the worst of each job, quotas that were breached, polls that were not answered"
        " and the end of the newest that was.",
        (
            *dict.fromkeys(
                ["coverage_counts", "coverage_polls", "quota_usage"]
                + [table for part in _OF_JOBS for table in part.reads]
            ),
        ),
        _sql(),
        place=1,
        usual=True,
    ),
)
