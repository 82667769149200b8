"""A run may go on with another configuration: it holds from the clock of each key on."""

from __future__ import annotations

from typing import Any

from state.engine.reach import Reach
from tests.unit.state.contract.jobs import MS, Job, Rows, Sample
from tests.unit.state.trace import START_MS

CHANGED_MS, LATER_MS, END_MS = 10_000, 150_000, 400_000


def rows_of(job: Job, *runs: Sample) -> Rows:
    """Rows of runs, each with a configuration of its own that judges its batches, on one state."""
    state, tables = None, {}
    for run in runs:
        core = job.core(run.params, run.policies)
        for batch in run.records:
            step = core.step(state, [job.blob(batch)], Reach(0))
            state = step.state
            for name, table in step.tables.items():
                tables.setdefault(name, []).extend(job.plain(table))
    step = core.step(state, [], Reach(START_MS + END_MS))
    for name, table in step.tables.items():
        tables.setdefault(name, []).extend(job.plain(table))
    return job.in_order(tables)


def run(by: Sample, *batches: list[dict[str, Any]]) -> Sample:
    """Batches under a configuration."""
    return Sample(batches, by.params, by.policies)  # type: ignore[arg-type]


def first(job: Job) -> list[dict[str, Any]]:
    """Records of a key before the change, the last of which moves its clock to it."""
    return [
        *(job.event(i * 100, 1 + i, number=1 + i) for i in range(9)),
        job.event(CHANGED_MS + 500, 20, number=20),
    ]


def then(job: Job, key: str = "a") -> list[dict[str, Any]]:
    """Records of a key after the change."""
    return [job.event(CHANGED_MS + 1000 + i * 100, 30 + i, key, number=30 + i) for i in range(9)]


def test_the_same_configuration_goes_on_as_if_nothing_had_ended(job: Job) -> None:
    together = rows_of(job, run(job.before, first(job), then(job)))
    assert rows_of(job, run(job.before, first(job)), run(job.before, then(job))) == together


def test_the_two_configurations_judge_differently(job: Job) -> None:
    batches = first(job), then(job)
    assert rows_of(job, run(job.before, *batches)) != rows_of(job, run(job.after, *batches))


def test_rows_before_the_change_are_those_of_the_configuration_before(job: Job) -> None:
    def early(rows: Rows) -> Rows:
        return {
            name: [r for r in found if (r["ts_wall_ms"] or 0) < START_MS + CHANGED_MS]
            for name, found in rows.items()
        }

    changed = rows_of(job, run(job.before, first(job)), run(job.after, then(job)))
    assert early(changed) == early(rows_of(job, run(job.before, first(job), then(job))))
    assert changed != rows_of(job, run(job.before, first(job), then(job)))


def test_rows_long_after_the_change_are_those_of_the_configuration_after(job: Job) -> None:
    def late(rows: Rows) -> Rows:
        return {
            name: [r for r in rows[name] if r["ts_wall_ms"] > START_MS + LATER_MS]
            for name in job.tables
        }

    later = [
        {
            **r,
            "ts_wall_ms": r["ts_wall_ms"] + LATER_MS - CHANGED_MS,
            "ts_mono_ns": r["ts_mono_ns"] + (LATER_MS - CHANGED_MS) * MS,
        }
        for r in then(job)
    ]
    changed = rows_of(job, run(job.before, first(job)), run(job.after, later))
    after = rows_of(job, run(job.after, first(job), later))
    assert late(changed) == late(after) != late(rows_of(job, run(job.before, first(job), later)))


def test_a_key_that_comes_after_the_change_knows_no_other_configuration(job: Job) -> None:
    both = rows_of(job, run(job.before, first(job)), run(job.after, then(job, "z")))
    alone = rows_of(job, run(job.after, then(job, "z")))
    named = [job.key[-1]]
    found = {name: [r for r in both[name] if str(r[named[0]]).endswith("z")] for name in job.tables}
    assert found == {name: alone[name] for name in job.tables}
    assert any(found.values())
