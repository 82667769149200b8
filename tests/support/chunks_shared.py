"""What tests share of chunks shared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.reference.chunks import judge
from tests.support import records as by_hand
from tests.unit.state.chunk_trace import PARAMS, numbered, play

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Judge = Callable[..., Rows]
START_MS = 1_767_621_600_000
MINUTE, HOUR = 60_000, 3_600_000
DEFAULTS: dict[str, Any] = {
    **PARAMS,
    "maxPendingChunkedMessage": 10,
    "autoAckOldestChunkedMessageOnQueueFull": False,
    "expireTimeOfIncompleteChunkedMessageMillis": MINUTE,
    "defects": [],
    "first_dup": "restart",
    "shared_mode": "pin",
    "shared_orphan": "ack_skip",
    "max_payload_bytes": 1 << 27,
}


def by_core(records: list[Row], until_ms: int, **params: Any) -> Rows:
    return play([numbered(records)], {**DEFAULTS, **params}, until_ms=until_ms)


def by_core_in_pieces(records: list[Row], until_ms: int, **params: Any) -> Rows:
    return play([[r] for r in numbered(records)], {**DEFAULTS, **params}, until_ms=until_ms)


def by_reference(records: list[Row], until_ms: int, **params: Any) -> Rows:
    return judge(records, {**DEFAULTS, **params}, until_ms)


@pytest.fixture(params=[by_core, by_core_in_pieces, by_reference])
def rows_of(request: pytest.FixtureRequest) -> Judge:
    """Rows by table; `forget` says how long after the last record the clock stands (ms)."""

    def found(records: list[Row], forget: int = 1, **params: Any) -> Rows:
        until_ms = max(r["ts_wall_ms"] for r in records) + forget
        rows: Rows = request.param(records, until_ms, **params)
        return rows

    return found


def record(kind: str, at_ms: int, **columns: Any) -> Row:
    at = START_MS + at_ms
    of = {"broker": "b", "topic": "persistent://a/b/t", "subscription": "s"}
    return by_hand.record(kind, at, at * 1_000_000, **{**of, **columns})


def joins(at_ms: int, *consumers: str) -> list[Row]:
    return [
        record("consumer_created", at_ms + i, consumer=name, sub_type="shared")
        for i, name in enumerate(consumers)
    ]


def chunk(
    at_ms: int,
    place: str,
    entry: int,
    consumer: str = "c1",
    total: int = 100,
    uuid: str = "u",
) -> Row:
    """The chunk `k/n` of a message at 1:entry, 10 bytes."""
    number, count = map(int, place.split("/"))
    return record(
        "dispatch",
        at_ms,
        consumer=consumer,
        sub_type="shared",
        ledger_id=1,
        entry_id=entry,
        entry_bytes=10,
        uuid=uuid,
        chunk_id=number,
        num_chunks=count,
        total_chunk_bytes=total,
        publish_time_ms=START_MS + at_ms,
        producer_name="p",
        sequence_id=7,
    )
