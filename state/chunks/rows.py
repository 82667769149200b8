"""The kernel's rows as output tables."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pyarrow as pa

from state.chunks import layout as L
from state.chunks import outputs as T
from state.chunks.layout import NULL, Array, Out, World
from state.engine.emitted import Emitted, integers, positions, shorts, words
from state.engine.names import Names
from state.engine.table import SHORTS

_RULES = pa.array(
    [
        f"{outcome}+{defect}" if defect else outcome
        for outcome in T.OUTCOMES
        for defect in ("", *L.DEFECTS)
    ]
)
_STATES, _INTEGRITY = pa.array(T.MESSAGE_STATES), pa.array(T.INTEGRITY)
MOST_MISSING = 1000
"""Missing chunks of a message that are listed."""
_MS_PER_S = 1000


def emitted(o: Out) -> Out:
    """What a call has put into `Out`, without the room for more."""
    return o._replace(**{name: getattr(o, name)[: o.used[name][0]] for name in L.Lengths.fields})


class Rows:
    """Makes tables of what one call has put into `Out`."""

    def __init__(self, w: World, o: Out, names: Names) -> None:
        self._w, self._p = w, w.settings[0]
        self.emitted = emitted(o)
        self._of = Emitted(
            names,
            w.keys,
            sub=w.subs,
            consumer=w.consumers,
            window=self.emitted.windows,
        )

    def tables(self) -> dict[str, pa.Table]:
        """The tables that have rows."""
        found = {
            T.MESSAGES.name: (self.emitted.messages, self.chunk_messages),
            T.EVENTS.name: (self.emitted.rows, self.chunk_events),
            T.STATE.name: (self.emitted.levels, self.chunk_state),
            T.INCOMPLETE.name: (self.emitted.missing, self.incomplete_messages),
            T.STATS.name: (self.emitted.windows, self.chunk_topic_stats),
        }
        tables = {name: make() for name, (rows, make) in found.items() if len(rows)}
        return {name: table for name, table in tables.items() if table.num_rows}

    def _lists(self, start: Array, count: Array) -> pa.Array:
        """Positions from `start` on, `count` of them, per row."""
        used = self.emitted.positions
        offsets = np.concatenate([[0], np.cumsum(count)])
        flat = np.repeat(start - offsets[:-1], count) + np.arange(offsets[-1])
        texts = positions(used[flat, 0], used[flat, 1])
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), texts)

    def chunk_events(self) -> pa.Table:
        """Every decision but BUFFERED."""
        rows = self.emitted.rows
        start, acks, tracked = rows["start"], rows["acks"], rows["tracked"]
        return self._of.table(
            T.EVENTS,
            rows,
            rule=words(_RULES, rows["outcome"] * (1 + len(L.DEFECTS)) + rows["defect"]),
            acks=self._lists(start, acks),
            tracked=self._lists(start + acks, tracked),
            orphaned=self._lists(start + acks + tracked, rows["orphaned"]),
            leaked=shorts(rows["counter"] - rows["contexts"]),
        )

    def integrity(self, rows: Array) -> Array:
        """Per message, the position in INTEGRITY."""
        short = np.where(rows["buffered"] == rows["total_chunk_bytes"], T.EXACT, T.SHORT)
        known = np.where(rows["unknown"] != 0, T.UNKNOWN, short)
        return np.where(rows["total_chunk_bytes"] > self._p["max_payload"], T.TOO_LARGE, known)

    def chunk_messages(self) -> pa.Table:
        """Every completed message, without its payload."""
        rows = self.emitted.messages
        parts = self.emitted.parts
        places = positions(parts["ledger_id"], parts["entry_id"])
        offsets = np.concatenate([[0], np.cumsum(rows["parts"])]).astype(np.int32)
        integrity = self.integrity(rows)
        no_sum = (rows["has_crc"] == 0) | (integrity == T.TOO_LARGE)
        return self._of.table(
            T.MESSAGES,
            rows,
            first_position=places.take(pa.array(offsets[:-1])),
            last_position=places.take(pa.array(offsets[1:] - 1)),
            positions=pa.ListArray.from_arrays(pa.array(offsets), places),
            assembled_bytes=integers(rows["buffered"], rows["unknown"] != 0),
            assembly_ms=integers(rows["ts_wall_ms"] - rows["first_ms"]),
            checksum=integers(rows["crc"], no_sum),
            integrity=words(_INTEGRITY, integrity),
        )

    # -- windows -----------------------------------------------------------------------------

    def _of_window(self, rows: Array) -> dict[str, pa.Array]:
        """What rows have of the key of their window, and their number in it."""
        keys, key = self._w.keys, self.emitted.windows["key"][rows["window"]]
        first = np.ones(len(rows), bool)
        first[1:] = rows["window"][1:] != rows["window"][:-1]
        number = np.arange(len(rows))
        number -= np.maximum.accumulate(np.where(first, number, 0))
        return {
            "cluster": self._of.texts(keys["cluster"][key]),
            "topic": self._of.texts(keys["topic"][key]),
            "row_no": shorts(number),
        }

    def _order(self, rows: Array, first: Array, last: Array) -> Array:
        """By window, `first`, subscription, consumer and `last`."""
        return np.lexsort(
            (
                last,
                self._rank(self._consumer_names(rows["consumer"])),
                self._rank(self._w.subs["name"][rows["sub"]]),
                first,
                rows["window"],
            )
        )

    def _consumer_names(self, places: Array) -> Array:
        """Names of consumers, -1 for none."""
        names = self._w.consumers["name"]
        return np.where(places >= 0, names[places], -1) if len(names) else places

    def _rank(self, ids: Array) -> Array:
        distinct, position = np.unique(ids, return_inverse=True)
        texts = [(t or "").encode() for t in self._of.texts(distinct).to_pylist()]
        rank = np.empty(len(distinct), np.int64)
        rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
        return rank[position]

    def chunk_state(self) -> pa.Table:
        """Every consumer that had a chunk or has something open, at the end of each window."""
        rows = self.emitted.levels
        rows = rows[self._order(rows, np.zeros(len(rows)), np.zeros(len(rows)))]
        at = self.emitted.windows["ts_wall_ms"][rows["window"]]
        return self._of.table(
            T.STATE,
            rows,
            leaked=shorts(rows["counter"] - rows["contexts"]),
            oldest_age_ms=integers(at - rows["oldest_ms"], rows["oldest_ms"] == NULL),
            **self._of_window(rows),
        )

    def incomplete_messages(self) -> pa.Table:
        """Every message that is being assembled, at the end of each window."""
        rows = self.emitted.missing
        rows = rows[self._order(rows, rows["stall_ledger"] != NULL, rows["order"])]
        at = self.emitted.windows["ts_wall_ms"][rows["window"]]
        expiry = int(self._p["expiry_ms"])
        stalled = rows["stall_ledger"] != NULL
        expires = np.where((expiry > 0) & ~stalled, rows["first_ms"] + expiry, NULL)
        return self._of.table(
            T.INCOMPLETE,
            rows,
            state=words(_STATES, stalled),
            age_ms=integers(at - rows["first_ms"]),
            expires_ms=integers(expires),
            missing_chunks=self._gone(rows, stalled),
            **self._of_window(rows),
        )

    def _gone(self, rows: Array, stalled: Array) -> pa.Array:
        """The missing chunks of stalled messages, the first ones; null for others."""
        ids: list[list[int] | None] = []
        for row, wanted in zip(rows, stalled, strict=True):
            begin = int(row["gone_start"])
            ranges = self.emitted.gone[begin : begin + int(row["gone"])] if wanted else ()
            every = chain.from_iterable(range(int(a), int(b) + 1) for a, b in ranges)
            ids.append(list(islice(every, MOST_MISSING)) if wanted else None)
        return pa.array(ids, SHORTS)

    def chunk_topic_stats(self) -> pa.Table:
        """What was published in chunks, per topic and window."""
        rows = self.emitted.windows
        rows = rows[rows["topic_row"] != 0]
        return self._of.table(
            T.STATS,
            rows,
            chunked_message_rate=pa.array(rows["firsts"] / (rows["window_ms"] / _MS_PER_S)),
            msg_chunk_published=pa.array(rows["chunks"] > 0),
        )
