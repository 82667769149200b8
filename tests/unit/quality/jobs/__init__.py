"""The jobs as data: the tests of the audit are one body over them."""

from __future__ import annotations

from app.warehouse.tables import TABLES
from tests.unit.quality.jobs import backlog, chunks, entry_cache, producer_ids, rate_limits
from tests.unit.quality.jobs.job import Job, Rows

JOBS: dict[str, Job] = {
    module.JOB.name: module.JOB
    for module in (rate_limits, chunks, producer_ids, backlog, entry_cache)
}


def rows_of(table: str) -> Rows:
    """Sound rows of a table."""
    job = TABLES[table].job
    assert job is not None
    return JOBS[job].rows_of(table)
