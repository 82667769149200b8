"""Rows of the archive, as a dispatch of a topic by default."""

from __future__ import annotations

from typing import Any

from app.tables.definitions import TABLES

START_MS, START_NS = 1_767_621_600_000, 100_000_000_000
LATER_MS = START_MS + 86_400_000
"""When the records were archived."""
SCHEMA = TABLES["events"].schema


def event(at_ms: int, seq: int, **columns: Any) -> dict[str, Any]:
    """A row of `events`."""
    filled = {
        "event_type": "dispatch",
        "source_feed": "f",
        "cluster": "c",
        "broker": "b",
        "seq": seq,
        "ts_mono_ns": START_NS + at_ms * 1_000_000,
        "ts_wall_ms": START_MS + at_ms,
        "topic": "persistent://t/ns/a",
        "subscription": "s1",
        "consumer": "x",
        "ledger_id": 1,
        "entry_id": seq,
        "num_messages": 4,
        "entry_bytes": 100,
        "source_partition": "0",
        "source_offset": seq,
        "ingest_ms": LATER_MS,
        "event_date": None,
        **columns,
    }
    return {name: filled.get(name) for name in SCHEMA.names}
