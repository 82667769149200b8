"""What lies about itself: each has a named outcome, none a crash or a buffer without bound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.contract.event_contract import parse
from state.chunks import shard
from tests.support.chunks import CHUNK, START_MS
from tests.unit.contract.records import record
from tests.unit.state.chunk_trace import numbered, play

UPSTREAM = ["B1", "B2", "B3", "B4", "B7", "B8"]


def chunk(n: int, **columns: Any) -> dict[str, Any]:
    """The n-th delivery of a trace."""
    return {
        **CHUNK,
        "ts_wall_ms": START_MS + n,
        "ledger_id": 1,
        "entry_id": n,
        "uuid": "u",
        "num_chunks": 2,
        "total_chunk_bytes": 20,
        "entry_bytes": 10,
        **columns,
    }


def outcomes(records: list[dict[str, Any]], **params: Any) -> list[str]:
    rows = play([numbered(records)], params, until_ms=START_MS + 10_000)
    return [r["outcome"] for r in rows.get("chunk_events", [])]


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"chunk_id": -1}, "CHUNK_ID_OUT_OF_RANGE"),
        ({"chunk_id": 2}, "CHUNK_ID_OUT_OF_RANGE"),
        ({"total_chunk_bytes": -1}, "NEGATIVE_AMOUNT"),
        ({"total_chunk_bytes": 2**63}, "BAD_TYPE"),
        ({"entry_bytes": -5}, "NEGATIVE_AMOUNT"),
        ({"num_chunks": 2**31}, "BAD_TYPE"),
        ({"uuid": None}, "CHUNK_FIELDS_INCOMPLETE"),
        ({"payload": "***"}, "BAD_TYPE"),
        ({"num_messages": 2}, "CHUNK_IN_BATCH"),
        ({"topic": "non-persistent://t/ns/a"}, "CHUNK_NON_PERSISTENT"),
    ],
)
def test_what_one_record_shows_is_refused(columns: dict[str, Any], reason: str) -> None:
    fields = {"uuid": "u", "chunk_id": 0, "num_chunks": 2, "total_chunk_bytes": 20, **columns}
    line = json.dumps(record("dispatch", **fields)).encode()
    import pyarrow as pa

    parsed = parse(pa.array([line]), ("chunks",))
    assert reason in parsed.bad.column("reason_code").to_pylist()
    assert not parsed.job_ok["chunks"].any()


def test_a_count_that_changes() -> None:
    trace = [chunk(0, chunk_id=0, num_chunks=3), chunk(1, chunk_id=1, num_chunks=2)]
    assert outcomes(trace) == ["GIVEN_UP_COUNT"]
    assert outcomes(trace, defects=UPSTREAM) == ["COUNT_EXCEPTION"]
    beyond = [
        chunk(0, chunk_id=0),
        chunk(1, chunk_id=1, num_chunks=9),
        chunk(2, chunk_id=2, num_chunks=9, entry_bytes=0),
    ]
    assert outcomes(beyond, defects=UPSTREAM)[-1] == "COUNT_EXCEPTION"


def test_a_declared_size_that_is_too_small_or_too_large() -> None:
    small = [chunk(i, chunk_id=i, total_chunk_bytes=15) for i in range(2)]
    assert outcomes(small) == ["GIVEN_UP_OVERFLOW"]
    assert outcomes(small, defects=UPSTREAM) == ["OVERFLOW_EXCEPTION"]
    large = [chunk(i, chunk_id=i, total_chunk_bytes=2**63 - 1) for i in range(2)]
    [message] = play([numbered(large)], {}, until_ms=START_MS + 10_000)["chunk_messages"]
    assert (message["integrity"], message["assembled_bytes"]) == ("too_large", 20)


def test_absurd_sizes_do_not_add_up_to_nonsense() -> None:
    trace = [chunk(i, chunk_id=0, uuid=f"u{i}", total_chunk_bytes=2**63 - 1) for i in range(5)]
    rows = play([numbered(trace)], {}, until_ms=START_MS + 120_000)
    assert {r["declared_bytes"] for r in rows["chunk_state"] if r["contexts"]} == {2**63 - 1}


def test_nothing_is_allocated_for_what_a_record_only_claims() -> None:
    states: list[bytes] = []
    claims = chunk(0, chunk_id=0, num_chunks=2**31 - 1, total_chunk_bytes=2**63 - 1)
    play([numbered([claims])], {}, until_ms=START_MS + 10_000, states=states)
    assert len(states[-1]) < 20_000


def test_empty_payloads() -> None:
    trace = [chunk(i, chunk_id=i, total_chunk_bytes=0, payload=b"") for i in range(2)]
    [message] = play([numbered(trace)], {"assemble_payload": True}, until_ms=START_MS + 10_000)[
        "chunk_messages"
    ]
    assert (message["payload"], message["checksum"], message["integrity"]) == (b"", 0, "exact")


def test_one_uuid_of_two_producers() -> None:
    trace = [
        chunk(0, chunk_id=0, producer_name="a"),
        chunk(1, chunk_id=0, producer_name="b"),
        chunk(2, chunk_id=1, producer_name="a"),
        chunk(3, chunk_id=1, producer_name="b"),
    ]
    assert outcomes(trace) == ["RESTART_CORRUPTED", "COMPLETE", "NO_FIRST_CHUNK"]


def test_uuids_of_64_kb() -> None:
    long = [f"{i}" + "u" * 65_536 for i in range(30)]
    trace = [chunk(i, chunk_id=0, uuid=uuid) for i, uuid in enumerate(long)]
    trace += [chunk(30 + i, chunk_id=1, uuid=uuid) for i, uuid in enumerate(long)]
    states: list[bytes] = []
    rows = play(
        [numbered([r]) for r in trace],
        {"allowed_lateness_ms": 1},
        until_ms=START_MS + 600_000,
        states=states,
    )
    # ten are assembled at once; the others were evicted before
    assert sorted(r["uuid"] for r in rows["chunk_messages"]) == sorted(long[20:])
    assert len(shard.read(states[-1]).names) < 10


def test_memory_stays_within_the_bound_of_the_consumer() -> None:
    """At most `max_bytes` of payload wait in state, whatever comes."""
    staged: list[int] = []

    def stage(rows: Any) -> str:
        staged.append(rows.num_rows)
        return f"file-{len(staged)}"

    trace = [
        chunk(i, chunk_id=0, uuid=f"u{i}", total_chunk_bytes=2000, payload=b"x" * 1000)
        for i in range(200)
    ]
    states: list[bytes] = []
    play(
        [numbered(trace[i : i + 20]) for i in range(0, 200, 20)],
        {
            "assemble_payload": True,
            "max_bytes": 5000,
            "maxPendingChunkedMessage": 0,
            "allowed_lateness_ms": 1,
        },
        until_ms=START_MS + 10_000,
        states=states,
        stage=stage,
    )
    assert staged
    for state in states:
        assert shard.read(state).store.nbytes < 5000 + 5000 + 1000 + 30 * 8


def test_memory_stays_within_the_bound_of_the_shard() -> None:
    """Many consumers that keep little each: at most `max_shard_bytes` wait in the state."""
    staged: list[int] = []

    def stage(rows: Any) -> str:
        staged.append(rows.num_rows)
        return f"file-{len(staged)}"

    trace = [
        chunk(
            i,
            chunk_id=0,
            uuid=f"u{i}",
            total_chunk_bytes=2000,
            payload=b"x" * 100,
            subscription=f"s{i}",
            consumer=f"c{i}",
        )
        for i in range(200)
    ]
    states: list[bytes] = []
    play(
        [numbered(trace[i : i + 20]) for i in range(0, 200, 20)],
        {"assemble_payload": True, "max_shard_bytes": 5000, "allowed_lateness_ms": 1},
        until_ms=START_MS + 10_000,
        states=states,
        stage=stage,
    )
    assert staged
    assert max(shard.read(state).store.nbytes for state in states) < 5000 + 500 * 8
