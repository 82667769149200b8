"""The jobs as data: the tests of the audit are one body over them."""

from __future__ import annotations

from app.tables.definitions import TABLES
from tests.unit.show.audit.jobs import (
    backlog,
    chunks,
    client_quotas,
    entry_cache,
    producer_ids,
    rate_limits,
)
from tests.unit.show.audit.jobs.job import Job, Rows

JOBS: dict[str, Job] = {
    module.JOB.name: module.JOB
    for module in (rate_limits, chunks, producer_ids, backlog, entry_cache, client_quotas)
}


def rows_of(table: str) -> Rows:
    """Sound rows of a table."""
    job = TABLES[table].job
    assert job is not None
    return JOBS[job].rows_of(table)
