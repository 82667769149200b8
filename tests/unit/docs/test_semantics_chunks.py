"""The worked example of docs/semantics/chunks.md, judged by the core."""

from __future__ import annotations

from typing import Any

from tests.unit.state.chunk_trace import numbered, play

START_MS = 1_767_621_600_000
UPSTREAM = ["B1", "B2", "B3", "B4", "B7", "B8"]


def chunk(second: int, uuid: str, chunk_id: int, num_chunks: int, entry: int) -> dict[str, Any]:
    """A chunk of 100 bytes, delivered to the one consumer of the example."""
    at_ms = START_MS + second * 1000
    return {
        "event_type": "dispatch",
        "source_feed": "contract",
        "cluster": "c",
        "broker": "b",
        "ts_mono_ns": None,
        "ts_wall_ms": at_ms,
        "topic": "persistent://t/ns/scans",
        "subscription": "s",
        "consumer": "c1",
        "sub_type": "exclusive",
        "ledger_id": 7,
        "entry_id": entry,
        "entry_bytes": 100,
        "uuid": uuid,
        "chunk_id": chunk_id,
        "num_chunks": num_chunks,
        "total_chunk_bytes": 100 * num_chunks,
        "producer_name": uuid[0],
        "publish_time_ms": at_ms,
    }


FEED = numbered(
    [
        chunk(0, "a-1", 0, 3, 0),
        chunk(1, "b-1", 0, 2, 1),
        chunk(2, "a-1", 2, 3, 2),
        chunk(3, "b-1", 1, 2, 3),
        chunk(4, "b-2", 0, 2, 4),
        chunk(5, "c-1", 0, 2, 5),
        chunk(6, "b-2", 1, 2, 6),
        chunk(7, "c-1", 1, 2, 7),
        chunk(8, "d-1", 0, 2, 8),
    ]
)


Rows = dict[str, list[dict[str, Any]]]


def example(defects: list[str]) -> Rows:
    params = {"defects": defects, "maxPendingChunkedMessage": 2}
    return play([FEED], params, until_ms=START_MS + 180_001)


def seen(rows: Rows, table: str, *shown: str) -> list[tuple[Any, ...]]:
    """Second and columns of every row of a table."""
    return [
        ((r["ts_wall_ms"] - START_MS) // 1000, *(r[name] for name in shown)) for r in rows[table]
    ]


def decisions(rows: Rows) -> list[tuple[Any, ...]]:
    return seen(
        rows,
        "chunk_events",
        "uuid",
        "rule",
        "acks",
        "tracked",
        "orphaned",
        "permits",
        "counter",
        "contexts",
    )


def levels(rows: Rows) -> list[tuple[Any, ...]]:
    return seen(
        rows,
        "chunk_state",
        "contexts",
        "counter",
        "leaked",
        "oldest_age_ms",
        "fifo_length",
        "permits_lost",
    )


def test_the_worked_example_as_a_released_client_goes_through_it():
    rows = example(UPSTREAM)
    assert decisions(rows) == [
        (2, "a-1", "GAP+B4", [], ["7:2"], ["7:0"], 0, 2, 1),
        (3, "b-1", "COMPLETE", [], [], [], 0, 1, 0),
        (5, "b-2", "EVICTED", [], ["7:4"], [], 1, 2, 1),
        (6, "b-2", "NO_FIRST_CHUNK+B2", [], ["7:6"], [], 0, 2, 1),
        (7, "c-1", "COMPLETE", [], [], [], 0, 1, 0),
    ]
    assert levels(rows) == [
        (60, 1, 2, 1, 52_000, 2, 2),
        (120, 1, 2, 1, 112_000, 2, 2),
        (180, 1, 2, 1, 172_000, 2, 2),
    ]
    assert seen(rows, "incomplete_messages", "uuid", "next_chunk_id", "last_position") == [
        (60, "d-1", 1, "7:8"),
        (120, "d-1", 1, "7:8"),
        (180, "d-1", 1, "7:8"),
    ]


def test_the_worked_example_without_the_defects():
    rows = example([])
    assert decisions(rows) == [
        (2, "a-1", "GAP", [], ["7:0", "7:2"], [], 1, 1, 1),
        (3, "b-1", "COMPLETE", [], [], [], 0, 0, 0),
        (6, "b-2", "COMPLETE", [], [], [], 0, 1, 1),
        (7, "c-1", "COMPLETE", [], [], [], 0, 0, 0),
        (120, "d-1", "EXPIRED", ["7:8"], [], [], 0, 0, 0),
    ]
    assert levels(rows) == [(60, 1, 1, 0, 52_000, 4, 0), (120, 1, 1, 0, 112_000, 1, 0)]


def test_the_messages_of_the_worked_example():
    whole = ("positions", "assembly_ms", "declared_bytes", "assembled_bytes", "integrity")
    expected = {
        "b-1": (["7:1", "7:3"], 2000, 200, 200, "exact"),
        "b-2": (["7:4", "7:6"], 2000, 200, 200, "exact"),
        "c-1": (["7:5", "7:7"], 2000, 200, 200, "exact"),
    }
    for defects, uuids in (([], ["b-1", "b-2", "c-1"]), (UPSTREAM, ["b-1", "c-1"])):
        got = [(r["uuid"], tuple(r[n] for n in whole)) for r in example(defects)["chunk_messages"]]
        assert got == [(uuid, expected[uuid]) for uuid in uuids]
