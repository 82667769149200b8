"""Event records as rows of one integer matrix, and the texts that the integers refer to.

A row holds one record: a number as itself, a text as its id in the `TraceTexts` of the trace, a missing
value as `NULL`. So a slice of the trace is built, sorted and written without a Python object per
record.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

NULL = np.iinfo(np.int64).min
NUMBER, TEXT, POSITION, TAIL, UUID, PAYLOAD = range(6)

WRITTEN: tuple[tuple[str, int], ...] = (
    ("event_type", TEXT),
    ("source_feed", TEXT),
    ("cluster", TEXT),
    ("broker", TEXT),
    ("seq", NUMBER),
    ("ts_mono_ns", NUMBER),
    ("ts_wall_ms", NUMBER),
    ("cnx_id", TEXT),
    ("supports_throttle", TEXT),
    ("io_thread", NUMBER),
    ("principal", TEXT),
    ("client_id", TEXT),
    ("topic", TEXT),
    ("partition", NUMBER),
    ("producer_id", NUMBER),
    ("producer_name", TEXT),
    ("sequence_id", NUMBER),
    ("ledger_id", NUMBER),
    ("entry_id", NUMBER),
    ("entry_bytes", NUMBER),
    ("num_messages", NUMBER),
    ("publish_time_ms", NUMBER),
    ("broker_time_ms", NUMBER),
    ("subscription", TEXT),
    ("sub_type", TEXT),
    ("consumer", TEXT),
    ("ack_cumulative", TEXT),
    ("durable", TEXT),
    ("mark_delete", POSITION),
    ("read_pos", POSITION),
    ("active", TEXT),
    ("ledger_entries", NUMBER),
    ("ledger_bytes", NUMBER),
    ("ledger_close_ms", NUMBER),
    ("uuid", UUID),
    ("chunk_id", NUMBER),
    ("num_chunks", NUMBER),
    ("total_chunk_bytes", NUMBER),
    ("payload", PAYLOAD),
    ("policy_json", TEXT),
    ("api", TEXT),
    ("charged_bytes", NUMBER),
    ("handler_time_ns", NUMBER),
    ("throttle_ms", NUMBER),
    ("topic_bytes", TEXT),
    ("tail", TAIL),
)
"""Columns that are written, in order, and how. A `tail` is the rest of a malformed line as it
stands, closing brace included."""

SECOND_PLACE: dict[int, str] = {POSITION: "_entry", UUID: "_number", PAYLOAD: "_size"}
"""Manners that take two places of a row: a position is ledger and entry; a uuid is the id of the
producer's name and the sequence id; a payload is where it begins in the bytes of the trace and how
long it is."""

INTERNAL: tuple[str, ...] = ("stream", "at_ns", "arrives_ns", "fixed")
"""Places that are not written: who numbers the record, its true time and its arrival (ns since the
start of the trace), and whether an incident needs it in its place."""


def _places() -> dict[str, int]:
    places: dict[str, int] = {}
    for name, how in WRITTEN:
        places[name] = len(places)
        if how in SECOND_PLACE:
            places[name + SECOND_PLACE[how]] = len(places)
    return places | {name: len(places) + i for i, name in enumerate(INTERNAL)}


PLACE: dict[str, int] = _places()
WIDTH: int = len(PLACE)


def make_rows(n: int, **columns: Any) -> np.ndarray:
    """`n` rows with the given columns (arrays or single values), everything else missing."""
    rows = np.full((n, WIDTH), NULL, dtype=np.int64)
    for name, values in columns.items():
        rows[:, PLACE[name]] = values
    return rows


def no_rows() -> np.ndarray:
    """An empty matrix of rows."""
    return np.empty((0, WIDTH), dtype=np.int64)


class TraceTexts:
    """The texts of a trace, each once, ready to be copied into a JSON line."""

    def __init__(self) -> None:
        self._ids: dict[bytes, int] = {}
        self._arrays: tuple[np.ndarray, np.ndarray] | None = None
        self.payloads = np.empty(0, dtype=np.uint8)
        """The bytes that payloads are taken from."""

    def add(self, text: str) -> int:
        """The id of a JSON string."""
        return self.add_raw(json.dumps(text).encode())

    def add_all(self, texts: list[str]) -> np.ndarray:
        """The ids of several JSON strings."""
        return np.array([self.add(t) for t in texts], dtype=np.int64)

    def add_raw(self, raw: bytes) -> int:
        """The id of bytes that are written as they are: `true`, `false`, a malformed tail."""
        known = self._ids.get(raw)
        if known is None:
            known = self._ids[raw] = len(self._ids)
            self._arrays = None
        return known

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """All bytes behind one another, and where each text begins (one more than texts)."""
        if self._arrays is None:
            raws = list(self._ids)
            starts = np.zeros(len(raws) + 1, dtype=np.int64)
            np.cumsum([len(r) for r in raws], out=starts[1:])
            self._arrays = np.frombuffer(b"".join(raws), dtype=np.uint8), starts
        return self._arrays
