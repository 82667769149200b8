"""The caches of one broker as arrays of records, and the rows that the kernel emits.

Positions in these arrays are the identities inside a key; they are renumbered when state is
written. Lists are linked by position, -1 ends them; a free element is linked by `next`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from state.engine.clocks import CLOCK
from state.engine.kernel import NULL, Array, Int, Record, codes, compiled, inlined
from state.engine.structs import layout
from state.engine.tables import Code, Count, Ms, Name, Place, StateRow
from state.entry_cache.outputs import SUFFIXES

__all__ = ["NULL", "Array", "Int", "Record", "compiled", "inlined"]

NOBODY = np.int64(-1)
ZERO, ONE = codes(2)
SMALLEST, LARGEST = np.int64(-(2**63)), np.int64(2**63 - 1)
NEVER_READ = LARGEST
"""Next read of an entry that is never read again (policy `belady`)."""

EXPECTED, STASHING, FIFO, PROPORTIONAL, LRU, BELADY = codes(6)
PENDING = ("stop", "stash", "ignore")
PENDING_STOP, PENDING_STASH, PENDING_IGNORE = codes(3)
TAIL, CATCH_UP, REPLAY = codes(3)
TIME, SIZE, INVALIDATED = codes(3)
PLAIN, EXTENDED_OUT, UNREAD, NEVER_WANTED = codes(4)
SUFFIX_COUNT = np.int64(len(SUFFIXES))

BLOCK = np.int64(32)
"""Positions of one page."""
BLOCK_SHIFT, BLOCK_MASK = np.int64(5), np.int64(31)

COUNTED = (
    "hits",
    "misses",
    "hit_bytes",
    "miss_bytes",
    "inserted",
    "evicted_time",
    "evicted_size",
    "invalidated",
    "evicted_wanted",
    "extended",
    "stashed",
    "unknown_reads",
)
"""Counters of a window per topic."""
SETTINGS = (
    "policy",
    "max_bytes",
    "trigger",
    "goal",
    "interval_ns",
    "ttl_ns",
    "ttl_max_ns",
    "max_requeue",
    "extend_recent",
    "merge",
    "pending",
    "by_mark_delete",
    "decrement",
    "grace_ns",
    "as_broker",
    "backlog_cursors",
    "backlog_entries",
    "backlog_between",
)

VARIANT = layout(
    "given",
    *SETTINGS,
    "used",
    "count",
    "wanted",
    "head",
    "tail",
    "stash_head",
    "stash_tail",
    "aside",
    "unwanted_head",
    "unwanted_tail",
    "topics",
    "number",
    "passed_ns",
    "idle_until_ns",
    "idle_visits",
    "idle_passes",
    "passes_size",
    "entries_visited",
    "max_used",
    "most_used",
    "most_wanted",
    "evicted_wanted_bytes",
    "passes",
    "work",
    *COUNTED,
    "filled",
)
"""One cache. Its settings in force (`max_bytes` NULL = no size check). `filled`: had an entry in
this run of the broker. `aside` entries are in the
stash; those that expect no read are in the list of `unwanted_head`. `topics` have entries. Passes
before `passed_ns` have run; those before `idle_until_ns` visit `idle_visits` entries, count
`idle_passes` size passes and do nothing else (NULL = not known). Then counters of the open window
and, from `most_used` on, those since the key began, without the open window.
"""

CELL = layout("used", "count", "wanted", "bare", "head_at", "held", *COUNTED)
"""A topic in a cache, at topic * caches + cache: levels (`bare`: bytes without a counter), place in
the heap of lowest positions, and what the open window counts; `held`: had an entry in it."""

SET = layout("first", "last", "finger")
"""Pages of an ordered set of positions; `finger` is the one used last."""

PAGE = layout("owner", "ledger", "block", "bits", "previous", "next")
"""Entries block * 32 to block * 32 + 31 of a ledger. Owner: a cell, or `replay_owner` for the replay
queue of that subscription.
"""

ENTRY = layout(
    "ts",
    "inserted_ns",
    "bytes",
    "expected",
    "page",
    "previous",
    "next",
    "requeue_count",
    "place",
    "unwanted_previous",
    "unwanted_next",
    ("slot", "|u1"),
    ("counted", "|u1"),
    ("accessed", "|u1"),
    ("aside", "|u1"),
)
"""A cached entry; its position is that of `slot` in `page`. `counted`: has a counter. Those
in the stash have a `place` there, and a list of its own if they expect no read any more. Under
`belady`: `ts` = number of its insertion, `expected` = its next read, `next` = place in the heap."""

KEPT_ENTRY = layout(
    "ledger",
    "entry",
    "bytes",
    "ts",
    "inserted_ns",
    "expected",
    ("requeue_count", "<i4"),
    ("order", "<i4"),
    ("flags", "|u1"),
)
"""An entry in the state: `order` in its queue, the stash before it; flags: 1 counter, 2 accessed,
4 stash. Entries are in the order of cells and positions."""
KEPT_FLAG = layout("cursor", "ledger", "entry")

TOPIC = layout(
    "name",
    "rank",
    "cursors",
    "active",
    "flags",
    "first_cursor",
    "seen_ns",
    "left_ns",
    "has_persisted",
    "persisted_ledger",
    "persisted_entry",
    "event",
    "has_slow_read",
    "slow_read_ledger",
    "slow_read_entry",
    "has_slow_mark",
    "slow_mark_ledger",
    "slow_mark_entry",
    "first_ledger",
    "check_ns",
)
"""`rank` by name. Slowest positions are those of the active cursors that have one. `first_ledger`:
the newest before that of the last persisted entry. Backlogs are counted next after `check_ns`."""

CURSOR = layout(
    "topic",
    "name",
    "known",
    "active",
    "has_read",
    "read_ledger",
    "read_entry",
    "has_mark",
    "mark_ledger",
    "mark_entry",
    "next",
    "flags",
    "told",
    "durable",
    "backlog",
)
"""A subscription of a topic; not `known` = no cursor, only entries queued for replay. `told`: its
record has whether it is active. `backlog`: entries at the last check (NULL = was not counted)."""

LEDGER = layout("ledger", "entries", "next")
"""Number of entries of a closed ledger of a topic; the next one is older."""
KEPT_LEDGER = layout("topic", "ledger", "entries")

KEY = layout(
    "cluster",
    "broker",
    *CLOCK,
    ("any", "|u1"),
    "last_ns",
    "last_wall_ms",
    "last_feed",
    "window_start_ms",
    "window_ms",
    "idle_ns",
    "started_ns",
    "next_ns",
    "by_dispatch",
    "with_evictions",
    "with_reads",
    "touched",
    "now_ns",
    "now_wall_ms",
    "now_feed",
    "entries",
    "entries_top",
    "free_entry",
    "pages",
    "pages_top",
    "free_page",
    "ledgers",
    "ledgers_top",
    "free_ledger",
    "evictions",
    "eviction_ns",
    "eviction_no",
    "reads",
    "read_ns",
    "read_no",
    "stats",
    "blind",
    "blind_until_ns",
)
"""Scalars of one key. No pass is due before `next_ns`; `now_…` are of what is being carried out;
`touched`: the open window has something in it. `blind`: after a gap, until `blind_until_ns`, caches
may hold entries that were not seen."""


class World(NamedTuple):
    """The state of one broker's caches."""

    key: Array
    variants: Array
    topics: Array
    by_rank: Array
    cells: Array
    sets: Array
    cursors: Array
    flag_sets: Array
    pages: Array
    slots: Array
    table: Array
    entries: Array
    heads: Array
    far: Array
    ledgers: Array
    scratch: Array


class Out(NamedTuple):
    """Room for what one call emits; `World.key` counts what is used."""

    evictions: Array
    reads: Array
    stats: Array


class Position(NamedTuple):
    """A position of a topic."""

    ledger: Int
    entry: Int


class Slowest(NamedTuple):
    """The smallest position of a topic's active cursors, by reads or by mark-deletes."""

    exists: Int
    ledger: Int
    entry: Int


class CursorState(NamedTuple):
    """The record of a cursor."""

    active: Int
    told: Int
    durable: Int
    has_read: Int
    read: Position
    has_mark: Int
    mark: Position


class CacheRecord(StateRow):
    """A judged record of one key; topics and cursors are places in the world."""

    ts_mono_ns: Count
    ts_wall_ms: Ms
    source_feed: Name
    event_type: Code
    topic: Place
    cursor: Place
    """-1 for one that is not known."""
    subscription: Name
    ledger_id: Count
    entry_id: Count
    entry_bytes: Count
    active: Count
    told: Count
    """Whether it says that the cursor is active, or not."""
    durable: Count
    has_read: Count
    read_ledger: Count
    read_entry: Count
    has_mark: Count
    mark_ledger: Count
    mark_entry: Count
    next_read: Count
    """The record that reads the entry next, as only a whole trace tells (policy `belady`)."""
