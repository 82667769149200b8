"""The kernel's rows as output tables."""

from __future__ import annotations

from itertools import chain, islice

import numpy as np
import pyarrow as pa

from state.chunks import layout as L
from state.chunks.layout import NULL, Array, Out, World
from state.engine.names import Names
from state.engine.table import SHORTS

WINDOW_RULE = "window"
INTEGRITY = pa.array(["exact", "short", "unknown", "too_large"])
EXACT, SHORT, UNKNOWN, TOO_LARGE = range(4)
_OUTCOMES = pa.array(L.OUTCOMES)
_RULES = pa.array(
    [
        f"{outcome}+{defect}" if defect else outcome
        for outcome in L.OUTCOMES
        for defect in ("", *L.DEFECTS)
    ]
)
_STATES = pa.array(["assembling", "stalled"])
MOST_MISSING = 1000
"""Missing chunks of a message that are listed."""
_MS_PER_S = 1000


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


def _known(values: Array) -> pa.Array:
    return _long(values, values == NULL)


def _int(values: Array) -> pa.Array:
    return pa.array(np.where(values == NULL, 0, values).astype(np.int32), mask=values == NULL)


class Rows:
    """Makes tables of what one call has put into `Out`."""

    def __init__(self, w: World, o: Out, names: Names) -> None:
        self._w, self._o, self._p = w, o, w.settings[0]
        self._strings = names.strings()

    def tables(self) -> dict[str, pa.Table]:
        """The tables that have rows."""
        found = {
            "chunk_messages": ("messages", self.chunk_messages),
            "chunk_events": ("rows", self.chunk_events),
            "chunk_state": ("levels", self.chunk_state),
            "incomplete_messages": ("missing", self.incomplete_messages),
            "chunk_topic_stats": ("windows", self.chunk_topic_stats),
        }
        tables = {name: make() for name, (count, make) in found.items() if self._p[count]}
        return {name: table for name, table in tables.items() if table.num_rows}

    def _text(self, ids: Array) -> pa.Array:
        ids = np.ascontiguousarray(ids, np.int64)
        return self._strings.take(pa.array(ids, mask=ids < 0)).cast(pa.string())

    def _of(self, array: Array, field: str, places: Array) -> pa.Array:
        """Names of elements by their places, null for -1."""
        if not len(array):
            return pa.nulls(len(places), pa.string())
        return self._text(np.where(places >= 0, array[field][places], -1))

    def _common(self, rows: Array, row_no: Array) -> dict[str, pa.Array]:
        return {
            "cluster": self._of(self._w.keys, "cluster", rows["key"]),
            "broker": self._text(rows["broker"]),
            "ts_mono_ns": _known(rows["mono_ns"]),
            "ts_wall_ms": _long(rows["at_ms"]),
            "source_feed": self._text(rows["feed"]),
            "row_no": pa.array(row_no.astype(np.int32)),
            "topic": self._of(self._w.keys, "topic", rows["key"]),
        }

    def _whose(self, rows: Array) -> dict[str, pa.Array]:
        return {
            "subscription": self._of(self._w.subs, "name", rows["sub"]),
            "consumer": self._of(self._w.consumers, "name", rows["consumer"]),
        }

    def _positions(self, ledger: Array, entry: Array) -> pa.Array:
        """`ledger:entry`, null where there is none."""
        absent = ledger == NULL
        both = np.char.add(np.char.add(ledger.astype(str), ":"), entry.astype(str))
        return pa.array(both.astype(object), pa.string(), mask=absent)

    def _lists(self, start: Array, count: Array) -> pa.Array:
        """Positions from `start` on, `count` of them, per row."""
        used = self._o.positions[: self._p["positions"]]
        offsets = np.concatenate([[0], np.cumsum(count)])
        flat = np.repeat(start - offsets[:-1], count) + np.arange(offsets[-1])
        texts = self._positions(used[flat, 0], used[flat, 1])
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), texts)

    def chunk_events(self) -> pa.Table:
        """Every decision but BUFFERED."""
        rows = self._o.rows[: self._p["rows"]]
        rule = rows["outcome"] * (1 + len(L.DEFECTS)) + rows["defect"]
        start, acks, tracked = rows["start"], rows["acks"], rows["tracked"]
        return pa.table(
            {
                **self._common(rows, rows["row_no"]),
                **self._whose(rows),
                "rule": _RULES.take(pa.array(rule)),
                "uuid": self._text(rows["uuid"]),
                "chunk_id": _int(rows["chunk_id"]),
                "num_chunks": _int(rows["num_chunks"]),
                "position": self._positions(rows["ledger"], rows["entry"]),
                "outcome": _OUTCOMES.take(pa.array(rows["outcome"])),
                "acks": self._lists(start, acks),
                "tracked": self._lists(start + acks, tracked),
                "orphaned": self._lists(start + acks + tracked, rows["orphaned"]),
                "permits": _int(rows["permits"]),
                "counter": _int(rows["counter"]),
                "contexts": _int(rows["contexts"]),
                "leaked": _int(rows["counter"] - rows["contexts"]),
                "buffered_bytes": _long(rows["buffered"]),
                "age_ms": _known(rows["age_ms"]),
            }
        )

    def integrity(self, rows: Array) -> Array:
        """Per message, the position in INTEGRITY."""
        short = np.where(rows["bytes"] == rows["declared"], EXACT, SHORT)
        known = np.where(rows["unknown"] != 0, UNKNOWN, short)
        return np.where(rows["declared"] > self._p["max_payload"], TOO_LARGE, known)

    def chunk_messages(self) -> pa.Table:
        """Every completed message, without its payload."""
        rows = self._o.messages[: self._p["messages"]]
        n = len(rows)
        parts = self._o.parts[: self._p["parts"]]
        places = self._positions(parts["ledger"], parts["entry"])
        offsets = np.concatenate([[0], np.cumsum(rows["parts"])]).astype(np.int32)
        integrity = self.integrity(rows)
        no_sum = (rows["has_crc"] == 0) | (integrity == TOO_LARGE)
        columns = {
            **self._common(rows, rows["row_no"]),
            **self._whose(rows),
            "rule": pa.repeat(pa.scalar(L.OUTCOMES[int(L.COMPLETE)]), n),
            "uuid": self._text(rows["uuid"]),
            "producer_name": self._text(rows["producer"]),
            "sequence_id": _known(rows["sequence_id"]),
            "num_chunks": _int(rows["num_chunks"]),
            "first_position": places.take(pa.array(offsets[:-1])),
            "last_position": places.take(pa.array(offsets[1:] - 1)),
            "positions": pa.ListArray.from_arrays(pa.array(offsets), places),
            "declared_bytes": _long(rows["declared"]),
            "assembled_bytes": _long(rows["bytes"], rows["unknown"] != 0),
            "first_chunk_ms": _long(rows["first_ms"]),
            "complete_ms": _long(rows["at_ms"]),
            "assembly_ms": _long(rows["at_ms"] - rows["first_ms"]),
            "publish_time_ms": _known(rows["publish_ms"]),
            "checksum": _long(rows["crc"], no_sum),
            "integrity": INTEGRITY.take(pa.array(integrity)),
            "marker_position": self._positions(rows["marker_ledger"], rows["marker_entry"]),
        }
        return pa.table(columns)

    # -- windows -----------------------------------------------------------------------------

    def _windows(self, rows: Array, order: Array) -> dict[str, pa.Array]:
        """Common columns of rows that belong to windows, in an order."""
        windows = self._o.windows[rows["window"]][order]
        first = np.ones(len(windows), bool)
        number = rows["window"][order]
        first[1:] = number[1:] != number[:-1]
        begin = np.maximum.accumulate(np.where(first, np.arange(len(windows)), 0))
        return {
            **self._common(windows, np.arange(len(windows)) - begin),
            **self._whose(rows[order]),
            "rule": pa.repeat(pa.scalar(WINDOW_RULE), len(windows)),
            "window_start_ms": _long(windows["start_ms"]),
            "window_ms": _long(windows["window_ms"]),
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
        texts = [(t or "").encode() for t in self._text(distinct).to_pylist()]
        rank = np.empty(len(distinct), np.int64)
        rank[sorted(range(len(texts)), key=texts.__getitem__)] = np.arange(len(texts))
        return rank[position]

    def chunk_state(self) -> pa.Table:
        """Every consumer that had a chunk or has something open, at the end of each window."""
        rows = self._o.levels[: self._p["levels"]]
        order = self._order(rows, np.zeros(len(rows)), np.zeros(len(rows)))
        columns = self._windows(rows, order)
        rows = rows[order]
        at = self._o.windows["at_ms"][rows["window"]]
        return pa.table(
            {
                **columns,
                "contexts": _int(rows["contexts"]),
                "counter": _int(rows["counter"]),
                "leaked": _int(rows["counter"] - rows["contexts"]),
                "buffered_bytes": _long(rows["buffered"]),
                "declared_bytes": _long(rows["declared"]),
                "oldest_age_ms": _long(at - rows["oldest_ms"], rows["oldest_ms"] == NULL),
                "fifo_length": _int(rows["entries"]),
                "permits_lost": _int(rows["lost"]),
            }
        )

    def incomplete_messages(self) -> pa.Table:
        """Every message that is being assembled, at the end of each window."""
        rows = self._o.missing[: self._p["missing"]]
        order = self._order(rows, rows["stall_ledger"] != NULL, rows["order"])
        columns = self._windows(rows, order)
        rows = rows[order]
        at = self._o.windows["at_ms"][rows["window"]]
        expiry = int(self._p["expiry_ms"])
        stalled = rows["stall_ledger"] != NULL
        expires = np.where((expiry > 0) & ~stalled, rows["first_ms"] + expiry, NULL)
        return pa.table(
            {
                **columns,
                "state": _STATES.take(pa.array(stalled.astype(np.int8))),
                "uuid": self._text(rows["uuid"]),
                "producer_name": self._text(rows["producer"]),
                "sequence_id": _known(rows["sequence_id"]),
                "num_chunks": _int(rows["num_chunks"]),
                "next_chunk_id": _int(rows["next_chunk"]),
                "first_position": self._positions(rows["first_ledger"], rows["first_entry"]),
                "last_position": self._positions(rows["last_ledger"], rows["last_entry"]),
                "first_chunk_ms": _long(rows["first_ms"]),
                "last_chunk_ms": _long(rows["last_ms"]),
                "age_ms": _long(at - rows["first_ms"]),
                "buffered_bytes": _long(rows["buffered"]),
                "declared_bytes": _long(rows["declared"]),
                "expires_ms": _known(expires),
                "stalled_at": self._positions(rows["stall_ledger"], rows["stall_entry"]),
                "missing_chunks": self._gone(rows, stalled),
            }
        )

    def _gone(self, rows: Array, stalled: Array) -> pa.Array:
        """The missing chunks of stalled messages, the first ones; null for others."""
        ids: list[list[int] | None] = []
        for row, wanted in zip(rows, stalled, strict=True):
            begin = int(row["gone_start"])
            ranges = self._o.gone[begin : begin + int(row["gone"])] if wanted else ()
            every = chain.from_iterable(range(int(a), int(b) + 1) for a, b in ranges)
            ids.append(list(islice(every, MOST_MISSING)) if wanted else None)
        return pa.array(ids, SHORTS)

    def chunk_topic_stats(self) -> pa.Table:
        """What was published in chunks, per topic and window."""
        rows = self._o.windows[: self._p["windows"]]
        rows = rows[rows["topic_row"] != 0]
        n = len(rows)
        return pa.table(
            {
                **self._common(rows, np.zeros(n, np.int64)),
                "rule": pa.repeat(pa.scalar(WINDOW_RULE), n),
                "window_start_ms": _long(rows["start_ms"]),
                "window_ms": _long(rows["window_ms"]),
                "chunks": _long(rows["chunks"]),
                "chunk_bytes": _long(rows["bytes"]),
                "chunked_message_rate": pa.array(
                    rows["firsts"] / (rows["window_ms"] / _MS_PER_S), pa.float64()
                ),
                "msg_chunk_published": pa.array(rows["chunks"] > 0),
                "producers": _int(rows["producers"]),
                "max_contexts": _int(rows["most"]),
            }
        )
