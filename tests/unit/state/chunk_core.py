"""One consumer of the core, driven chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from state.chunks import consumer as kernel
from state.chunks import flow, shard
from state.chunks import layout as L
from state.chunks.operator import Chunks, more_rows, no_rows
from state.chunks.outputs import OUTCOMES
from state.chunks.shared import NO_GAPS
from state.engine.kernel import Int, compiled
from state.engine.names import Names
from state.engine.tables import in_order
from tests.unit.state.chunk_trace import PARAMS
from udfs.hashing import hash_strings

ROOM = 4000
SIDE_EFFECTS = ("RESTART_REDELIVERY", "RESTART_CORRUPTED", "EVICTED", "EXPIRED")


@compiled
def deliver_next(w: L.World, o: L.Out, begin: Int) -> Int:
    """Judge the chunk that stands at the place of the timer."""
    return kernel.deliver(w, o, w.timer[0], begin)


@compiled
def expire_all(w: L.World, o: L.Out) -> None:
    """Run an expiry pass at the time of the timer."""
    kernel.expire(w, o, w.timer[0])


@dataclass
class Message:
    """A completed message."""

    positions: list[str]
    buffered: int


@dataclass
class Answer:
    """What came of one chunk, or one context of an expiry pass."""

    outcome: str
    permits: int = 0
    acks: list[str] = field(default_factory=list)
    tracked: list[str] = field(default_factory=list)
    side_effects: list[str] = field(default_factory=list)
    message: Message | None = None


class Context:
    """A view of a context of the core; `received_ms` may be set."""

    def __init__(self, record: Any) -> None:
        self._record = record

    @property
    def last(self) -> int:
        """Its last chunk."""
        return int(self._record["last"])

    @property
    def received_ms(self) -> int:
        """When its chunk 0 came."""
        return int(self._record["first_ms"])

    @received_ms.setter
    def received_ms(self, value: int) -> None:
        self._record["first_ms"] = value


class CoreConsumer:
    """A consumer of an exclusive subscription."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        given = {**PARAMS, **params}
        job = Chunks(given)
        parts = {name: np.zeros(0, row.dtype) for name, row in shard.ROWS.items()}
        for name in ("keys", "subs", "consumers"):
            parts[name] = shard.ROWS[name].blank.copy()
        for name in ("sub", "key", "known", "open"):
            parts["consumers"][name] = name in ("known", "open")
        parts["subs"]["key"] = 0
        self._w = shard.more_room(
            shard.unpack(
                parts,
                job.settings,
                0,
                NO_GAPS,
                np.zeros(1, np.int64),
                np.full(1, given["maxPendingChunkedMessage"]),
                np.zeros((0, 2), np.int64),
            ),
            ROOM,
        )
        flow.prepare(self._w, np.full(1, L.NULL))
        o = no_rows()
        flow.lacks_room(self._w, o, np.int64(6 * ROOM), np.int64(0), np.int64(0))
        self._o = more_rows(o)
        self._names = Names()
        self._places: list[str] = []

    @property
    def counter(self) -> int:
        """pendingChunkedMessageCount."""
        return int(self._w.consumers[0]["counter"])

    @property
    def contexts(self) -> dict[str, Context]:
        """By uuid, in order of creation."""
        rows = self._w.contexts.rows
        return {
            self._names.get(int(rows[at]["uuid"])): Context(rows[at])
            for at in in_order(self._w.contexts_of, np.zeros(1, np.int64))
        }

    @property
    def fifo(self) -> list[str]:
        """uuids, head first."""
        by_hash = {
            int(h): name.as_py()
            for h, name in zip(
                hash_strings(self._names.strings().cast(pa.string())),
                self._names.strings(),
                strict=True,
            )
        }
        entries = in_order(self._w.fifo_of, np.zeros(1, np.int64))
        return [by_hash[int(h)] for h in self._w.fifo.rows["hash"][entries]]

    def chunk(
        self,
        uuid: str,
        chunk_id: int,
        num_chunks: int,
        position: str,
        total_bytes: int,
        size: int,
        now_ms: int,
        publish_time_ms: int | None = None,
    ) -> Answer:
        """Deliver one chunk."""
        if position not in self._places:
            self._places.append(position)
        c = self._w.timer[0]
        c["ts_wall_ms"], c["uuid"] = now_ms, self._names.intern_one(uuid)
        c["hash"] = int(hash_strings(pa.array([uuid]))[0])
        c["chunk_id"], c["num_chunks"], c["total_chunk_bytes"] = chunk_id, num_chunks, total_bytes
        c["entry_bytes"], c["ledger_id"], c["entry_id"] = size, 0, self._places.index(position)
        c["payload"] = c["payload_file"] = c["producer_name"] = -1
        c["payload_bytes"] = c["marker_ledger"] = c["marker_entry"] = L.NULL
        c["publish_time_ms"] = L.NULL if publish_time_ms is None else publish_time_ms
        begin, done = (int(self._o.used[name][0]) for name in ("rows", "messages"))
        permits = int(deliver_next(self._w, self._o, np.int64(begin)))
        rows = list(self._rows(begin))
        answer = Answer("BUFFERED", permits)
        for row in rows:
            answer.acks += row.acks
            answer.tracked += row.tracked
            answer.side_effects += row.side_effects
            if row.outcome not in SIDE_EFFECTS:
                answer.outcome = row.outcome
        if self._o.used["messages"][0] > done:
            m = self._o.messages[done]
            parts = self._o.parts[m["start"] : m["start"] + m["parts"]]
            answer.message = Message(
                [self._places[int(e)] for e in parts["entry_id"]], int(m["buffered"])
            )
        return answer

    def sweep(self, now_ms: int) -> list[Answer]:
        """Run an expiry pass."""
        begin = int(self._o.used["rows"][0])
        self._w.timer[0]["ts_wall_ms"] = now_ms
        expire_all(self._w, self._o)
        return list(self._rows(begin))

    def _rows(self, begin: int) -> Iterator[Answer]:
        for row in self._o.rows[begin : self._o.used["rows"][0]]:
            at, acks, tracked = int(row["start"]), int(row["acks"]), int(row["tracked"])
            positions = self._o.positions[at : at + acks + tracked, 1]
            names = [self._places[int(e)] for e in positions]
            outcome = OUTCOMES[row["outcome"]]
            effects = [outcome] if outcome in SIDE_EFFECTS else []
            effects += ["ORPHANED"] * bool(row["orphaned"])
            yield Answer(outcome, 0, names[:acks], names[acks:], effects)
