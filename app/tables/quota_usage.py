"""The view of the quotas of all jobs, and their kinds."""

from __future__ import annotations

from app.jobs import parts
from app.tables.view import JobQuotas, Quota, View

_JOBS: tuple[JobQuotas, ...] = tuple(part.QUOTAS for part in parts("quotas").values())
QUOTAS: tuple[Quota, ...] = tuple(quota for job in _JOBS for quota in job.kinds)
TABLES_OF_USE = tuple(job.table for job in _JOBS)
"""The tables of windows and checks."""
GROWING = "\nUNION ALL\n".join(job.growing for job in _JOBS if job.growing)
GROWING_READS = tuple(table for job in _JOBS for table in job.growing_reads)
_UNION = "\nUNION ALL\n".join(job.usage for job in _JOBS)
QUOTA_USAGE = View(
    "quota_usage",
    "Every quota of every job: per window or check its limit, its use, their ratio, and whether"
    " it was breached; rates are per second. `peak` is the highest use within a second of the"
    " window as a share of the limit: what the bucket lacked of full at its lowest balance. Of"
    " quotas without a bucket it is the ratio.",
    f"""
WITH usage AS (
{_UNION}
)
SELECT u.kind, u.cluster, u.broker, u.entity, u.quota AS limit, u.used,
  CASE WHEN u.quota > 0 THEN u.used / u.quota END AS ratio,
  CASE WHEN u.quota > 0 THEN coalesce(u.most_used, u.used) / u.quota END AS peak,
  u.breached OR coalesce(u.used > u.quota, false) AS breached, u.window_start_ms, u.window_ms
FROM usage AS u
""".strip(),
    reads=tuple(table for job in _JOBS for table in (job.table, *job.joined)),
)
