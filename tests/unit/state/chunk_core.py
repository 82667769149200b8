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
from state.chunks.operator import Chunks, room_for_rows
from state.chunks.outputs import OUTCOMES
from state.chunks.shared import NO_GAPS
from state.engine.names import Names
from tests.unit.state.chunk_trace import PARAMS
from udfs.hashing import hash_strings

ROOM = 4000
SIDE_EFFECTS = ("RESTART_REDELIVERY", "RESTART_CORRUPTED", "EVICTED", "EXPIRED")


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
        parts = {name: np.zeros(0, kind) for name, kind in shard.LAYOUTS.items()}
        for name in ("keys", "subs", "consumers"):
            parts[name] = np.zeros(1, shard.LAYOUTS[name])
        for name in ("row_ms", "message_ms", "due_ms"):
            parts["keys"][name] = L.NULL
        for name in ("start_ms", "closed_ms", "used_ms", "passed_ms"):
            parts["consumers"][name] = L.NULL
        parts["consumers"]["known"] = parts["consumers"]["open"] = 1
        self._w = shard.unpack(
            parts,
            job.settings,
            0,
            shard.Room(ROOM, 0),
            NO_GAPS,
            np.zeros(1, np.int64),
            np.full(1, given["maxPendingChunkedMessage"]),
        )
        flow.prepare(self._w, np.full(1, L.NULL))
        self._o = room_for_rows(self._w, None, 6 * ROOM)
        self._names = Names()
        self._places: list[str] = []

    @property
    def counter(self) -> int:
        """pendingChunkedMessageCount."""
        return int(self._w.consumers[0]["counter"])

    @property
    def contexts(self) -> dict[str, Context]:
        """By uuid, in order of creation."""
        at, found = self._w.consumers[0]["first"], {}
        while at >= 0:
            record = self._w.contexts[at]
            found[self._names.get(int(record["uuid"]))] = Context(record)
            at = record["next"]
        return found

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
        at, found = self._w.consumers[0]["head"], []
        while at >= 0:
            found.append(by_hash[int(self._w.entries[at]["hash"])])
            at = self._w.entries[at]["next"]
        return found

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
        c = self._w.chunk[0]
        c["at_ms"], c["uuid"] = now_ms, self._names.intern_one(uuid)
        c["hash"] = int(hash_strings(pa.array([uuid]))[0])
        c["chunk_id"], c["num_chunks"], c["declared"] = chunk_id, num_chunks, total_bytes
        c["size"], c["ledger"], c["entry"] = size, 0, self._places.index(position)
        c["payload"] = c["file"] = c["producer"] = -1
        c["marker_ledger"] = c["marker_entry"] = L.NULL
        c["publish_ms"] = L.NULL if publish_time_ms is None else publish_time_ms
        begin, done = self._w.settings[0]["rows"], self._w.settings[0]["messages"]
        permits = int(kernel.deliver(self._w, self._o, begin))
        rows = list(self._rows(int(begin)))
        answer = Answer("BUFFERED", permits)
        for row in rows:
            answer.acks += row.acks
            answer.tracked += row.tracked
            answer.side_effects += row.side_effects
            if row.outcome not in SIDE_EFFECTS:
                answer.outcome = row.outcome
        if self._w.settings[0]["messages"] > done:
            m = self._o.messages[done]
            parts = self._o.parts[m["start"] : m["start"] + m["parts"]]
            answer.message = Message(
                [self._places[int(e)] for e in parts["entry"]], int(m["bytes"])
            )
        return answer

    def sweep(self, now_ms: int) -> list[Answer]:
        """Run an expiry pass."""
        begin = int(self._w.settings[0]["rows"])
        self._w.chunk[0]["at_ms"] = now_ms
        kernel.expire(self._w, self._o, np.int64(0))
        return list(self._rows(begin))

    def _rows(self, begin: int) -> Iterator[Answer]:
        for row in self._o.rows[begin : self._w.settings[0]["rows"]]:
            at, acks, tracked = int(row["start"]), int(row["acks"]), int(row["tracked"])
            positions = self._o.positions[at : at + acks + tracked, 1]
            names = [self._places[int(e)] for e in positions]
            outcome = OUTCOMES[row["outcome"]]
            effects = [outcome] if outcome in SIDE_EFFECTS else []
            effects += ["ORPHANED"] * bool(row["orphaned"])
            yield Answer(outcome, 0, names[:acks], names[acks:], effects)
