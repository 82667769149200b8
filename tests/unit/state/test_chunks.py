"""The core of chunks: equal to the reference, however a trace is cut, and within its bounds."""

from __future__ import annotations

import random
import zlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.chunks import CHUNK, START_MS
from tests.support.effort import drawn
from tests.unit.state.chunk_trace import numbered, play
from tests.unit.state.contract.jobs import cut

Rows = dict[str, list[dict[str, Any]]]
SEEDS = st.integers(0, 2**32 - 1)


def messages(count: int, chunks: int, producers: int, seed: int) -> list[dict[str, Any]]:
    """Complete messages of several producers, in any interleaving; payloads of random bytes."""
    order = random.Random(seed)
    todo: dict[int, list[tuple[str, int, bytes, int]]] = {p: [] for p in range(producers)}
    for m in range(count):
        parts = [order.randbytes(order.randrange(1, 200)) for _ in range(chunks)]
        total = sum(map(len, parts))
        todo[m % producers] += [(f"m{m}", i, part, total) for i, part in enumerate(parts)]
    records: list[dict[str, Any]] = []
    while any(todo.values()):
        mine = todo[order.choice([p for p, left in todo.items() if left])]
        uuid, chunk_id, part, total = mine.pop(0)
        records.append(
            {
                **CHUNK,
                "ts_wall_ms": START_MS + len(records),
                "ledger_id": 1,
                "entry_id": len(records),
                "uuid": uuid,
                "chunk_id": chunk_id,
                "num_chunks": chunks,
                "total_chunk_bytes": total,
                "payload": part,
            }
        )
    return records


@drawn(150)
@given(st.integers(1, 40), st.integers(2, 6), st.integers(1, 10), SEEDS)
def test_any_interleaving_of_whole_messages_assembles_every_one(
    count: int, chunks: int, producers: int, seed: int
) -> None:
    records = messages(count, chunks, producers, seed)
    rows = play(
        cut(numbered(records), random.Random(seed)),
        {"assemble_payload": True},
        until_ms=START_MS + 10_000,
    )
    sent: dict[str, bytes] = {}
    for r in records:
        sent[r["uuid"]] = sent.get(r["uuid"], b"") + r["payload"]
    got = {r["uuid"]: r for r in rows["chunk_messages"]}
    assert {uuid: r["payload"] for uuid, r in got.items()} == sent
    assert {uuid: r["checksum"] for uuid, r in got.items()} == {
        uuid: zlib.crc32(payload) for uuid, payload in sent.items()
    }
    assert {r["integrity"] for r in got.values()} == {"exact"}
    assert {r["outcome"] for r in rows["chunk_events"]} == {"COMPLETE"}
