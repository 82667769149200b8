"""The configuration changes at a time of the stream: rows follow from the time alone, whichever
batch brought the change."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given

from state.engine.documents import Version, changes, gone
from state.engine.reach import Reach
from tests.reference import entry_cache as reference
from tests.support.effort import drawn
from tests.unit.state.contract import jobs
from tests.unit.state.contract.contract_traces import SEEDS
from tests.unit.state.contract.jobs import JOBS, Job, Rows, Sample, assert_same, cut
from tests.unit.state.contract.patterns import KINDS as WITH_PATTERNS
from tests.unit.state.contract.patterns import names_of
from tests.unit.state.contract.versions import documents
from tests.unit.state.shipping import Row, params_of

KINDS = [*WITH_PATTERNS, (JOBS["entry_cache"], "any")]


def with_walls(records: Sequence[Row]) -> list[Row]:
    """See `jobs`. Of backlog's records without the documents that it forgets while there is no
    pattern, so that a pattern that comes later holds for their names (docs/limitations.md)."""
    if any(r["event_type"] == "ledger_state" for r in records):
        records = [r for r in records if not sets_no_quota(r)]
    return jobs.with_walls(records)


def in_stream_order(by: Sample) -> Sample:
    """The records by wall time, so that a batch has none that its key has passed: policies without
    a monotonic time hold before all records of their time."""
    records = sorted(
        with_walls(by.records), key=lambda r: (r["ts_wall_ms"], r["ts_mono_ns"] is not None)
    )
    until = max([by.until_ms or 0, *[r["ts_wall_ms"] + 1 for r in records]])
    return Sample(records, by.params, (), until)


def sets_no_quota(record: Row) -> bool:
    if not record.get("policy_json"):
        return False
    document = json.loads(record["policy_json"])
    limits = document["limits"]
    return document["scope"] != "broker" and not (
        limits.get("backlog_quota") or "message_ttl_in_seconds" in limits
    )


def live(
    job: Job,
    batches: Sequence[Sequence[Row]],
    by: Sample,
    order: random.Random,
    every: Sequence[tuple[str, ...]],
) -> tuple[Rows, list[Version]]:
    """Rows of a run whose configuration changes at some of the batches, and its versions."""
    core = job.core(by.params, every[0])
    advance = params_of(job.name, **by.params)["idle_advance_ms"]
    rows, versions = Rows(), []
    state: bytes | None = None
    stream = latest = 0
    left = list(every[1:])
    for batch in [*batches, []]:
        if left and order.random() < 0.4:
            since = max(latest + 1, versions[-1].since_ms + 1 if versions else 0)
            before, now = every[len(versions)], left.pop(0)
            versions.append(Version(len(versions) + 1, since, changes(before, now, None)))
            core = job.core(by.params, every[0])
            core.follow(versions)
        step = core.step(state, [job.blob(batch)] if batch else [], Reach(stream))
        state = step.state
        for name, table in step.tables.items():
            rows.setdefault(name, []).extend(job.plain(table))
        latest = max([latest, *[r["ts_wall_ms"] for r in batch]])
        stream = max(stream, latest - advance)
    if by.until_ms is not None:
        for name, table in core.step(state, [], Reach(by.until_ms)).tables.items():
            rows.setdefault(name, []).extend(job.plain(table))
    return job.in_order(rows), versions


def at_once(job: Job, by: Sample, first: tuple[str, ...], versions: Sequence[Version]) -> Rows:
    """Rows of a core that knows all versions and gets all records in one call."""
    core = job.core(by.params, first)
    core.follow(versions)
    rows = Rows()
    step = core.step(None, [job.blob(by.records)], Reach(0))
    for found in (step, core.step(step.state, [], Reach(by.until_ms or 0))):
        for name, table in found.tables.items():
            rows.setdefault(name, []).extend(job.plain(table))
    return job.in_order(rows)


@pytest.mark.parametrize(
    ("judge", "traces"), KINDS, ids=lambda x: getattr(x, "name", x).replace(" ", "-")
)
def test_a_change_holds_from_its_time_on_whatever_the_batches(judge: Job, traces: str) -> None:
    @drawn(40)
    @given(judge.traces[traces], SEEDS)
    def check(trace: Any, seed: int) -> None:
        order, by = random.Random(seed), in_stream_order(judge.sample(trace))
        names = names_of(by.records)
        every = [documents(judge, names, order) for _ in range(4)]
        rows, versions = live(judge, cut(by.records, order), by, order, every)
        expected = at_once(judge, by, every[0], versions)
        assert_same(rows, expected)
        if judge.name == "entry_cache":
            found = reference.judge(
                by.records,
                params_of(judge.name, **by.params),
                every[0],
                by.until_ms,
                as_records(versions),
            )
            assert_same(expected, judge.in_order(found) | {"quarantine": expected["quarantine"]})

    check()


def as_records(versions: Sequence[Version]) -> list[Row]:
    """Changes of the configuration as the reference takes them."""
    return [
        {"ts_wall_ms": version.since_ms, "policy_json": gone(source) if text is None else text}
        for version in versions
        for source, text in version.changed.items()
    ]
