"""What tests share of chunks stalled."""

from __future__ import annotations

from tests.support.chunks_shared import (
    Row,
    joins,
    record,
)


def stored(at_ms: int, place: str, entry: int, uuid: str = "u", ledger: int = 1) -> Row:
    """The chunk `k/n` of a message is stored."""
    number, count = map(int, place.split("/"))
    return record(
        "entry_added",
        at_ms,
        subscription=None,
        ledger_id=ledger,
        entry_id=entry,
        entry_bytes=10,
        uuid=uuid,
        chunk_id=number,
        num_chunks=count,
        total_chunk_bytes=100,
        producer_name="p",
    )


def cursor(at_ms: int, mark: str, subscription: str = "s") -> Row:
    return record("cursor_state", at_ms, subscription=subscription, mark_delete=mark)


WHOLE = [stored(20, "0/2", 8, "v"), stored(21, "1/2", 9, "v")]
"""A message behind 1:7."""
STALL = [*joins(0, "c1"), cursor(5, "1:6"), stored(10, "2/3", 7), *WHOLE]
