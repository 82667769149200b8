"""Hostile records of any shape cost their own keys alone, and each is kept (contract, 2)."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from app.sources.clocks import stamped
from state.jobs import JOBS
from tests.support.archive import archived
from tests.support.effort import examples
from tests.unit.state.contract.ahead import honest, streamed, without_quarantine
from tests.unit.state.contract.hostile import hostile
from tests.unit.state.contract.jobs import Job, Rows, assert_same
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS


def of_the_honest(job: Job, rows: Rows) -> Rows:
    """The rows of the keys a and b."""

    def is_theirs(row: Row) -> bool:
        return str(row[job.key[-1]]).rpartition("/")[2] in ("a", "b")

    return {
        name: [row for row in found if is_theirs(row)]
        for name, found in without_quarantine(rows).items()
    }


@pytest.mark.parametrize("seed", range(examples(10)))
def test_whatever_others_send_a_keys_rows_are_the_same(job: Job, seed: int) -> None:
    order = random.Random(seed)
    calm = honest(job)
    attacked: list[tuple[int, list[Row | bytes]]] = []
    for plan_ms, records in calm:
        mixed: list[Row | bytes] = list(records)
        for _ in range(order.randrange(30)):
            mixed.insert(order.randrange(len(mixed) + 1), hostile(job, order, order.randrange(99)))
        attacked.append((plan_ms, mixed))
    found, expected = streamed(job, attacked), streamed(job, calm)
    assert_same(of_the_honest(job, found), of_the_honest(job, expected))


@pytest.mark.parametrize("seed", range(examples(10)))
def test_every_record_is_kept(seed: int, job: Job, tmp_path: Path) -> None:
    order = random.Random(seed)
    lines = [hostile(job, order, i) for i in range(200)]
    raw = stamped(
        pa.record_batch(
            {
                "value": pa.array(lines, pa.binary()),
                "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
                "source_offset": pa.array(range(len(lines)), pa.int64()),
            }
        ),
        START_MS,
    )
    kept = archived([raw], tmp_path, dict.fromkeys(JOBS, 0), ["source_offset", "job"])
    events = [row["source_offset"] for row in kept["events"]]
    refused = {row["source_offset"] for row in kept["quarantine"]}
    whole = {row["source_offset"] for row in kept["quarantine"] if row["job"] is None}
    assert len(events) == len(set(events))
    assert set(events) | refused == set(range(len(lines)))
    assert not set(events) & whole
