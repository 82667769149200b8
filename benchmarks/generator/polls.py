"""An administrator's poll: the size of each ledger and the position of each cursor."""

from __future__ import annotations

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.streams import ADMIN, stream_of
from benchmarks.generator.trace_rows import PLACE, make_rows
from benchmarks.generator.traffic import Storage

UNACKED = 3
"""Entries that a cursor is behind the last one, about what is on its way to the consumer."""


def polls_at(fleet: Fleet) -> np.ndarray:
    """When the fleet is polled (ns since the start): between slices, so that counts are exact."""
    scenario = fleet.scenario
    every = max(scenario.traffic.poll_s // scenario.slice_s, 1) * scenario.slice_s
    return np.arange(every, scenario.duration_s, every) * SECOND


def records_per_poll(fleet: Fleet) -> int:
    """Records of one poll, closed ledgers not counted."""
    return len(fleet.topics.names) + fleet.subscriptions.topic.size


def poll(fleet: Fleet, at: int, storage: Storage) -> list[np.ndarray]:
    """Ledgers and cursors at a time; a ledger that is big enough is closed after it."""
    topics = np.arange(len(fleet.topics.names))
    ledgers = _ledgers(fleet, topics, at, storage)
    full = np.flatnonzero(storage.entries >= fleet.scenario.traffic.ledger_entries)
    closed = _ledgers(fleet, full, at + MS, storage)
    closed[:, PLACE["ledger_close_ms"]] = fleet.scenario.start_ms + (at + MS) // MS
    cursors = _cursors(fleet, at, storage)
    storage.next_ledger(full)
    return [ledgers, closed, cursors]


def _common(fleet: Fleet, topics: np.ndarray) -> dict[str, np.ndarray]:
    return {
        "stream": stream_of(fleet, ADMIN, fleet.topics.broker[topics]),
        "topic": fleet.topics.text[topics],
        "partition": fleet.topics.partition[topics],
    }


def _ledgers(fleet: Fleet, topics: np.ndarray, at: int, storage: Storage) -> np.ndarray:
    return make_rows(
        topics.size,
        event_type=fleet.texts.add("ledger_state"),
        at_ns=at,
        ledger_id=storage.ledger[topics],
        ledger_entries=storage.entries[topics],
        ledger_bytes=storage.bytes[topics],
        **_common(fleet, topics),
    )


def _cursors(fleet: Fleet, at: int, storage: Storage) -> np.ndarray:
    topics = fleet.subscriptions.topic
    return make_rows(
        topics.size,
        event_type=fleet.texts.add("cursor_state"),
        at_ns=at,
        subscription=fleet.subscriptions.text,
        durable=fleet.texts.add_raw(b"true"),
        mark_delete=storage.ledger[topics],
        mark_delete_entry=np.maximum(storage.entries[topics] - 1 - UNACKED, -1),
        **_common(fleet, topics),
    )
