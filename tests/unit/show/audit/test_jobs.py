"""The audit of every job: what its core writes passes, each damage is named and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from app.show.audit.suites import ACROSS, SUITES
from app.tables.definitions import TABLES
from state.jobs import DECLARED
from tests.unit.show.audit.evaluated import failures
from tests.unit.show.audit.jobs import JOBS
from tests.unit.show.audit.jobs.job import UNIQUE, Conflict, Job, Row, Rows

AUDITED = [pytest.param(job, table, id=table) for job in JOBS.values() for table in job.keys]
ACROSS_TABLES = [
    pytest.param(job, table, id=table)
    for job in JOBS.values()
    for table in job.tables
    if table in ACROSS
]


def conflicts(of: Callable[[Job], Sequence[Conflict]]) -> list[Any]:
    return [
        pytest.param(job, conflict, id=f"{job.name} {number}: {conflict.name}")
        for job in JOBS.values()
        for number, conflict in enumerate(of(job))
    ]


def row_at(rows: Rows, place: int | tuple[str, int]) -> Row:
    """A row of a table, or of a cluster in it."""
    if isinstance(place, tuple):
        cluster, place = place
        rows = [row for row in rows if row["cluster"] == cluster]
    return rows[place]


def edited(job: Job, conflict: Conflict) -> dict[str, Rows]:
    """The rows of all tables of a job, with those of the conflict."""
    return {table: conflict.edits.get(table, list)(job.rows_of(table)) for table in job.tables}


def test_every_job_is_here() -> None:
    assert JOBS.keys() == DECLARED.keys()
    asked = {table for job in JOBS.values() for table in job.tables if table in ACROSS}
    assert asked == ACROSS.keys()


@pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)
def test_the_rows_of_these_tests_have_most_of_what_there_is(job: Job) -> None:
    for table, of, values in job.variety:
        assert {of(row) for row in job.rows_of(table)} == values


@pytest.mark.parametrize(("job", "table"), AUDITED)
def test_what_the_core_writes_passes(job: Job, table: str) -> None:
    assert failures(table, job.rows_of(table), SUITES[table]) == {}


@pytest.mark.parametrize(("job", "table"), AUDITED)
def test_each_damage_is_named_and_counted(job: Job, table: str) -> None:
    """All damaged rows of a table in one audit; its first row comes twice."""
    twice = {**job.rows_of(table)[0], "cluster": "twice"}
    expected: Counter[tuple[str, str | None]] = Counter(
        {(UNIQUE, key): 2 for key in job.keys[table]}
    )
    rows = [*job.rows_of(table), twice, twice]
    for number, (place, changes, failed) in enumerate(job.damage[table]):
        assert changes.keys() <= set(TABLES[table].names)
        row = row_at(job.rows_of(table), place)
        rows.append({**row, **changes, "cluster": f"damaged-{number}"})  # none explains another
        expected.update((name, None) if isinstance(name, str) else name for name in failed)
    assert failures(table, rows, SUITES[table]) == expected


@pytest.mark.parametrize(("job", "conflict"), conflicts(lambda job: job.sums))
def test_rows_that_contradict_each_other_are_found(job: Job, conflict: Conflict) -> None:
    rows = edited(job, conflict)
    for table, failed in conflict.failed.items():
        found = failures(table, rows[table], SUITES[table])
        assert {(name, None): count for name, count in failed.items()}.items() <= found.items()


@pytest.mark.parametrize(("job", "table"), ACROSS_TABLES)
def test_what_the_core_writes_agrees_across_tables(job: Job, table: str) -> None:
    rows = {name: job.rows_of(name) for name in job.tables}
    assert failures(table, rows[table], ACROSS[table], rows) == {}


@pytest.mark.parametrize(("job", "table"), ACROSS_TABLES)
def test_tables_without_rows_agree(job: Job, table: str) -> None:
    none: dict[str, Rows] = {name: [] for name in job.tables}
    assert failures(table, [], ACROSS[table], none) == {}


@pytest.mark.parametrize(("job", "conflict"), conflicts(lambda job: job.conflicts))
def test_tables_that_contradict_each_other_are_found(job: Job, conflict: Conflict) -> None:
    rows = edited(job, conflict)
    for table, failed in conflict.failed.items():
        found = failures(table, rows[table], ACROSS[table], rows)
        assert found == {(name, None): count for name, count in failed.items()}
