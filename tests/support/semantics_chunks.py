"""What tests share of semantics chunks."""

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
