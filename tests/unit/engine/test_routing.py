"""Routing: where a record goes follows from the record alone, whatever its batch holds."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.config.settings import load_settings
from app.contract.event_contract import parse
from app.engine.operators import operators
from app.engine.routing import BLOB_BYTES, Packing, pack_parsed
from app.run.session import OPERATOR_ROWS, REQUIRED
from state.engine.blobs import Blob
from state.engine.reach import Reach
from state.events import COLUMNS, KINDS
from state.jobs import JOBS, readers
from tests.reference.words import words
from tests.support import archive
from tests.unit.contract.records import T0, line, record, wide_record

SHARDS = 16
CONFIGURED = load_settings(
    overrides={"shards": SHARDS, "source": {"format": "files", "path": "in"}}
)
OPERATORS = operators(CONFIGURED, JOBS)
ROUTES = {name: operator.route for name, operator in OPERATORS.items()}
OPTIONAL_KEYS = ("principal", "topic")


def packed(lines: Sequence[bytes], first: int = 0) -> pa.RecordBatch:
    """The records as one batch of a source, routed to every job; offsets count from `first`."""
    identity = pa.record_batch(
        {
            "source_partition": pa.array(["0"] * len(lines)),
            "source_offset": pa.array(range(first, first + len(lines)), pa.int64()),
        }
    )
    parsed = parse(pa.array(lines, pa.binary()), JOBS)
    return pack_parsed(parsed, identity, ROUTES, SHARDS, T0 + 1000)


def homes_of(blob: bytes) -> list[tuple[int, int]]:
    """(offset, home) of each record of a blob."""
    return [
        (offset, home) for offset, home in Blob(blob).values(("source_offset", "home")).T.tolist()
    ]


def places(lines: Sequence[bytes], first: int = 0) -> list[tuple[int, str, int, int]]:
    """(offset, job, shard, home) of every copy of every record."""
    return sorted(
        (offset, row["job"], row["shard"], home)
        for row in packed(lines, first).to_pylist()
        if row["job"] in ROUTES
        for offset, home in homes_of(row["blob"])
    )


def sliced(
    lines: Sequence[bytes], slices: Sequence[int], job: str, refused: Sequence[bool]
) -> list[tuple[int, int, str, int, int]]:
    """(slice, offset, job, shard, home) of every copy of every record; a job gets none that it has
    refused."""
    n = len(lines)
    identity = pa.record_batch(
        {"source_partition": pa.array(["0"] * n), "source_offset": pa.array(range(n), pa.int64())}
    )
    parsed = parse(pa.array(lines, pa.binary()), JOBS)
    packing = Packing(parsed, identity, ROUTES, SHARDS, T0 + 1000)
    found = []
    for number, name, shard, body in packing.by_slice(
        np.array(slices, np.int64), {job: np.array(refused, np.bool_)}
    ):
        for offset, home in homes_of(body.to_pybytes()):
            found.append((number, offset, name, shard, home))
    return sorted(found)


def stepped(lines: Sequence[bytes]) -> None:
    """Every job takes what a batch sends to each of its shards, and goes on without records."""
    for row in packed(lines).to_pylist():
        if row["job"] in OPERATORS:
            job = OPERATORS[row["job"]].job
            state = job.step(None, [row["blob"]], Reach(T0)).state
            job.step(state, [], Reach(T0 + 60_000))


def archived(lines: Sequence[bytes], folder: Path) -> int:
    """How many rows the archive makes of a batch: events, and rules that records broke."""
    batch = pa.record_batch(
        {
            "value": pa.array(lines, pa.binary()),
            "source_partition": pa.array(["0"] * len(lines)),
            "source_offset": pa.array(range(len(lines)), pa.int64()),
        }
    )
    found = archive.archived([batch], folder, dict.fromkeys(JOBS, 0), ["source_offset"])
    return len(found["events"]) + len(found["quarantine"])


def without(made: dict[str, Any], columns: Sequence[str]) -> dict[str, Any]:
    """The record with some columns null."""
    return {name: None if name in columns else value for name, value in made.items()}


@settings(max_examples=60, deadline=None)
@given(
    st.randoms(use_true_random=False),
    st.integers(1, 12),
    st.lists(st.sampled_from([c.name for c in COLUMNS]), max_size=8, unique=True),
)
def test_where_a_record_goes_does_not_depend_on_its_batch(
    random_: random.Random, many: int, absent: list[str]
) -> None:
    """Batches in which any columns are null throughout, beside batches of one record each."""
    lines = [line(without(wide_record(random_), absent)) for _ in range(many)]

    together = places(lines)

    alone = [place for i, one in enumerate(lines) for place in places([one], i)]
    assert together == sorted(alone)


@settings(deadline=None)
@given(st.data(), st.randoms(use_true_random=False), st.integers(1, 12), st.sampled_from(JOBS))
def test_records_of_several_slices_go_where_those_of_each_slice_alone_go(
    data: st.DataObject, random_: random.Random, many: int, job: str
) -> None:
    """Slices in any order, records of no slice (-1), and records that a job does not get again."""
    lines = [line(wide_record(random_)) for _ in range(many)]
    slices = data.draw(st.lists(st.integers(-1, 4), min_size=many, max_size=many))
    refused = data.draw(st.lists(st.booleans(), min_size=many, max_size=many))

    alone = [
        (number, *place)
        for i, number in enumerate(slices)
        for place in places([lines[i]], i)
        if number >= 0 and not (place[1] == job and refused[i])
    ]
    assert sliced(lines, slices, job, refused) == sorted(alone)


@pytest.mark.parametrize("column", OPTIONAL_KEYS)
def test_a_batch_in_which_a_key_is_null_throughout_goes_to_every_job(column: str) -> None:
    lines = [line(without(record(kind.name), [column])) for kind in KINDS]

    stepped(lines)

    assert places(lines)


@pytest.mark.parametrize("column", [c.name for c in COLUMNS])
def test_a_batch_in_which_a_column_is_null_throughout_is_archived(
    column: str, tmp_path: Path
) -> None:
    lines = [line(without(record(kind.name), [column])) for kind in KINDS]

    assert archived(lines, tmp_path) >= len(lines)


@pytest.mark.parametrize("kind", [kind.name for kind in KINDS])
def test_a_batch_of_one_kind_alone_goes_to_every_job_that_reads_it(kind: str) -> None:
    lines = [line(record(kind, seq=seq)) for seq in range(3)]

    stepped(lines)

    assert {job for _, job, _, _ in places(lines)} == set(readers(kind))


def test_the_home_of_a_shared_record_is_one_shard_in_every_batch() -> None:
    """A policy has no principal and no topic; one copy of it, the same everywhere, is at home."""
    policy = line(record("policy", broker="*"))
    others = [line(record("produce_batch", principal=f"User:{n}")) for n in range(5)]

    homes = {
        tuple(place[1:3] for place in places([policy, *others[:n]]) if place[0] == 0 and place[3])
        for n in range(6)
    }

    assert len(homes) == 1
    assert {job for job, _ in homes.pop()} == {
        *words("rate_limits producer_ids backlog entry_cache client_quotas")
    }


def test_one_topic_goes_to_one_shard_however_it_is_spelled() -> None:
    spelled = [
        {"topic": "acme/orders/created", "partition": 3},
        {"topic": "acme/orders/created-partition-3"},
        {"topic": "persistent://acme/orders/created", "partition": 3},
        {"topic": "persistent://acme/orders/created-partition-3", "partition": 3},
    ]
    lines = [
        line(record("ledger_state", seq=seq, **{"partition": None, **topic}))
        for seq, topic in enumerate(spelled)
    ]

    assert len({shard for _, job, shard, _ in places(lines) if job == "backlog"}) == 1


def test_blobs_that_spark_puts_into_one_vector_stay_below_the_limit_of_arrow() -> None:
    assert OPERATOR_ROWS * BLOB_BYTES < 2**31
    assert int(REQUIRED["spark.sql.execution.arrow.maxRecordsPerBatch"]) == OPERATOR_ROWS


@pytest.mark.parametrize("text", [10, 1_000, 100_000, 3 * BLOB_BYTES])
def test_a_blob_is_bounded_and_only_a_single_record_exceeds_the_bound(text: int) -> None:
    """A hot broker: every record of the batch goes to one shard of each job."""
    many = max(4, min(20_000, 8 * BLOB_BYTES // text))
    lines = [
        line(record("publish", seq=n, producer_name=f"{n}-".ljust(text, "x"))) for n in range(many)
    ]

    rows = [row for row in packed(lines).to_pylist() if row["job"] == "rate_limits"]

    counted = [Blob(row["blob"]).length for row in rows]
    assert sum(counted) == many
    assert all(
        len(row["blob"]) <= BLOB_BYTES or count == 1
        for row, count in zip(rows, counted, strict=True)
    )
    assert len(rows) <= 4 * (sum(len(row["blob"]) for row in rows) // BLOB_BYTES + 1) or text > 1000


def test_a_hundred_thousand_new_topics_in_a_batch_are_each_routed_once() -> None:
    count = 100_000
    one = line(record("publish", seq=987_654, topic="persistent://t/n/topic-987654"))
    lines = [one.replace(b"987654", b"%d" % n) for n in range(count)]

    rows = [row for row in packed(lines).to_pylist() if row["job"] == "rate_limits"]

    names = set().union(*(Blob(row["blob"]).texts().to_pylist() for row in rows))
    assert sum(Blob(row["blob"]).length for row in rows) == count
    assert len({name for name in names if "/topic-" in name}) == count
    assert max(len(row["blob"]) for row in rows) <= BLOB_BYTES
