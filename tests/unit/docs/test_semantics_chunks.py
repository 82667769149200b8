"""The worked example of docs/semantics/chunks.md, judged by the core."""

from __future__ import annotations

from typing import Any

from tests.support.semantics_chunks import START_MS, UPSTREAM, Rows, example


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
