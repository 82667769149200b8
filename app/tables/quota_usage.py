"""The view of the quotas of all jobs, and their kinds."""

from __future__ import annotations

from app.jobs import parts
from app.tables.view import RATIOS, JobQuotas, Quota, View

_JOBS: tuple[JobQuotas, ...] = tuple(part.QUOTAS for part in parts("quotas").values())
QUOTAS: tuple[Quota, ...] = tuple(quota for job in _JOBS for quota in job.kinds)
TABLES_OF_USE = tuple(job.table for job in _JOBS)
"""The tables of windows and checks."""
GROWING = "\nUNION ALL\n".join(job.growing for job in _JOBS if job.growing)
GROWING_READS = tuple(table for job in _JOBS for table in job.growing_reads)
QUOTA_USAGE = View(
    "quota_usage",
    "Every quota of every job: per window or check its limit, its use, their ratio, and whether"
    " it was breached; rates are per second. `peak` is the highest use within a second of the"
    " window as a share of the limit: what the bucket lacked of full at its lowest balance. Of"
    " quotas without a bucket it is the ratio.",
    RATIOS.format(usage="\nUNION ALL\n".join(job.usage for job in _JOBS)),
    reads=tuple(table for job in _JOBS for table in (job.table, *job.joined)),
)
