"""The core of chunks: equal to the reference, however a trace is cut, and within its bounds."""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.chunks import shard
from state.engine import names
from tests.reference.chunks import TABLES, judge
from tests.state.chunk_trace import numbered, play
from tests.state.chunk_traces import Trace, traces
from tests.state.test_reference import CHECKED
from tests.state.test_splits import LATENESS_MS, cut

Rows = dict[str, list[dict[str, Any]]]
SEEDS = st.integers(0, 2**32 - 1)


def in_order(rows: Rows) -> Rows:
    """Rows of every table by key, time and number, payloads left out."""
    return {
        table: [
            {k: v for k, v in r.items() if k != "payload"}
            for r in sorted(rows.get(table, []), key=lambda r: (
                r["cluster"], r["topic"], r["ts_wall_ms"], r["row_no"],
            ))
        ]
        for table in TABLES
    }


def assert_same(got: Rows, expected: Rows) -> None:
    got, expected = in_order(got), in_order(expected)
    for table in TABLES:
        for i, (mine, wanted) in enumerate(zip(got[table], expected[table], strict=False)):
            assert mine == wanted, (table, i)
        assert len(got[table]) == len(expected[table]), table


def canonical(state: bytes) -> dict[Any, Any]:
    """What a state says of its consumers, free of places and of what is as good as forgotten."""
    s = shard.read(state)
    p = s.parts

    def text(i: int) -> str | None:
        return s.names.get(int(i)) if i >= 0 else None

    found: dict[Any, Any] = {}
    for i, e in enumerate(p["consumers"]):
        sub = p["subs"][e["sub"]]
        place = text(p["keys"][e["key"]]["topic"]), text(sub["name"]), text(e["name"])
        contexts = []
        for c in [c for c in range(len(p["contexts"])) if p["contexts"][c]["consumer"] == i]:
            x = p["contexts"][c]
            mine = p["nodes"][p["nodes"]["next"] == c]
            contexts.append((
                text(x["uuid"]), int(x["last"]), int(x["first_ms"]), int(x["bytes"]),
                [(int(n["ledger"]), int(n["entry"])) for n in mine], int(x["more"]),
            ))
        if contexts or e["counter"]:
            found[place] = (
                int(e["counter"]), int(e["lost"]), int(e["start_ms"]), int(e["open"]), contexts,
                [int(x["hash"]) for x in p["entries"] if x["next"] == i],
            )
    return found


@CHECKED
@given(traces())
def test_core_and_reference_agree(trace: Trace) -> None:
    end = trace.end_ms + 1
    assert_same(
        play([numbered(trace.records)], trace.params, until_ms=end),
        judge(trace.records, trace.params, end),
    )


@CHECKED
@given(traces(), SEEDS, st.sampled_from((0, LATENESS_MS)), st.sampled_from((1, 3000, 200_000)))
def test_any_cut_gives_the_same_rows_and_state(
    trace: Trace, seed: int, jitter_ms: int, drain_ms: int
) -> None:
    order, end = random.Random(seed), trace.end_ms + drain_ms
    whole_states: list[bytes] = []
    split_states: list[bytes] = []
    records = numbered(trace.records)
    whole = play([records], trace.params, end, whole_states)
    came = sorted(
        records, key=lambda r: (r["ts_wall_ms"] + order.random() * jitter_ms, r["source_offset"])
    )
    split = play(cut(came, order), trace.params, end, split_states)
    assert_same(split, whole)
    assert canonical(split_states[-1]) == canonical(whole_states[-1])


def test_names_may_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are compared byte by byte; here every hash is one of two."""
    monkeypatch.setattr(
        names.Names.__init__, "__defaults__", (None, None, 1)
    )
    test_core_and_reference_agree()  # type: ignore[call-arg]


CHUNK = {
    "event_type": "dispatch", "source_feed": "contract", "cluster": "c", "broker": "b",
    "ts_mono_ns": None, "topic": "persistent://t/ns/a", "subscription": "s", "consumer": "c1",
}
START_MS = 1_767_621_600_000


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
        records.append({
            **CHUNK, "ts_wall_ms": START_MS + len(records), "ledger_id": 1,
            "entry_id": len(records), "uuid": uuid, "chunk_id": chunk_id, "num_chunks": chunks,
            "total_chunk_bytes": total, "payload": part,
        })
    return records


@CHECKED
@given(st.integers(1, 40), st.integers(2, 6), st.integers(1, 10), SEEDS)
def test_any_interleaving_of_whole_messages_assembles_every_one(
    count: int, chunks: int, producers: int, seed: int
) -> None:
    records = messages(count, chunks, producers, seed)
    rows = play(
        cut(numbered(records), random.Random(seed)), {"assemble_payload": True},
        START_MS + 10_000,
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
