"""Entry caches of brokers: what stays, what leaves when and why, and which reads find it."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from tests.reference.order import Record, in_order
from tests.reference.two_clocks import NS_PER_MS, TwoClocks
from tests.reference.two_clocks import play as play_between
from tests.reference.wall import gathered
from tests.reference.words import words

Row = dict[str, Any]
Position = tuple[int, int]
"""Ledger and entry."""

TABLES = ("cache_stats", "cache_evictions", "cache_reads")
READ = words(
    "broker_started entry_added dispatch entry_read entry_released replay_queued"
    " entry_invalidated cursor_state cursor_deleted ledger_deleted policy gap"
)
MIB = 1_048_576
TRIGGER = 0.98
MOST_EXTENSIONS = 1000
EVERYWHERE = "*"

EVICTION = "managedLedgerCacheEviction"
SIZE_MB = "managedLedgerCacheSizeMB"
WATERMARK = f"{EVICTION}Watermark"
INTERVAL_MS = f"{EVICTION}IntervalMs"
TTL_MS = f"{EVICTION}TimeThresholdMillis"
TTL_MAX_MS = f"{EVICTION}TimeThresholdMillisMax"
MAX_TIMES = f"{EVICTION}ExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes"
RECENT = f"{EVICTION}ExtendTTLOfRecentlyAccessed"
BY_COUNT = "cacheEvictionByExpectedReadCount"
BY_MARK_DELETE = "cacheEvictionByMarkDeletedPosition"
BACKLOG_CURSORS = "managedLedgerMinimumBacklogCursorsForCaching"
BACKLOG_ENTRIES = "managedLedgerMinimumBacklogEntriesForCaching"
BACKLOG_BETWEEN = "managedLedgerMaxBacklogBetweenCursorsForCaching"
CHECK = 60_000 * NS_PER_MS
"""How often a broker takes the backlogs of cursors."""
MOST_LEDGERS = 1000
"""Ledgers of a topic, besides the one that is written, of which the entries are known."""

BROKER_KEYS: dict[str, Any] = {
    SIZE_MB: None,
    WATERMARK: 0.9,
    INTERVAL_MS: 10,
    TTL_MS: 1000,
    TTL_MAX_MS: 5000,
    MAX_TIMES: 5,
    RECENT: True,
    BY_COUNT: True,
    BY_MARK_DELETE: False,
    BACKLOG_CURSORS: 0,
    BACKLOG_ENTRIES: 1000,
    BACKLOG_BETWEEN: 1000,
}
"""Settings that policy documents of the scope `broker` change, and their defaults."""

DEFAULTS: dict[str, Any] = {
    "policy": "expected_reads",
    "max_bytes": None,
    "duplicate_insert": None,
    "extend_recently_accessed": True,
    "time_pass_pending": "stop",
    "decrement_on_mark_delete": False,
    "settings_applied_at_start": True,
    "release_event": "dispatch",
    "grace_ms": 0,
    "storage_reads": "all",
    "variants": (),
    "stats_window_ms": 60_000,
    "idle_state_ms": 3_600_000,
    "extra_outputs": (),
}
SWITCHES = words(
    "policy duplicate_insert extend_recently_accessed time_pass_pending decrement_on_mark_delete"
    " settings_applied_at_start release_event grace_ms storage_reads"
)
"""Version parameters, in every row."""
REQUEUES, STASHES = "expected_reads", "expected_reads_stash"
COUNTING = (REQUEUES, STASHES)
NOT_JUDGED = {"dispatch": ("entry_read", "entry_released"), "entry_released": ("dispatch",)}
"""What `release_event` leaves out."""
BY_CURSOR = ("fifo", "proportional")
"""Policies that cursors take entries from."""


def position_of(record: Record) -> Position:
    """Ledger and entry of a record."""
    return record["ledger_id"], record["entry_id"]


def parsed(text: str | None) -> Position | None:
    """A position as written, `ledger:entry`."""
    if text is None:
        return None
    ledger, entry = text.split(":")
    return int(ledger), int(entry)


def bytes_of_mb(value: float) -> int:
    """Size of a cache in bytes."""
    return int(value * MIB)


# -- one cache -------------------------------------------------------------------------------


@dataclass
class Settings:
    """What is in force at a moment; times in the unit of the cache's clock."""

    policy: str = REQUEUES
    max_bytes: int | None = None
    watermark: float = 0.9
    interval: int = 10 * NS_PER_MS
    ttl: int = 1000 * NS_PER_MS
    ttl_max: int = 5000 * NS_PER_MS
    max_requeue: int = 5
    extend_recent: bool = True
    duplicate_insert: str = "discard"
    time_pass_pending: str = "stop"
    by_mark_delete: bool = False
    decrement_on_mark_delete: bool = False
    grace: int = 0
    storage_reads: str = "all"
    backlog_cursors: int = 0
    backlog_entries: int = 1000
    backlog_between: int = 1000

    @property
    def trigger(self) -> int | None:
        """Size above which a size pass runs."""
        return None if self.max_bytes is None else int(self.max_bytes * TRIGGER)

    @property
    def goal(self) -> int | None:
        """Size that a size pass aims at."""
        return None if self.max_bytes is None else int(self.max_bytes * self.watermark)

    def need(self, used: int) -> int:
        """Bytes that a size pass has to free; 0 = none runs."""
        if self.trigger is None or self.goal is None or used <= self.trigger:
            return 0
        if self.policy == "belady":
            return used - self.trigger
        return max(used - self.goal, 0)


@dataclass(eq=False)
class Entry:
    """One cached entry; `expected` is None without a counter."""

    topic: str
    position: Position
    bytes: int
    inserted: int
    ts: int
    expected: int | None
    number: int
    accessed: bool = False
    requeue_count: int = 0
    evicted: bool = False

    def change(self, by: int) -> bool:
        """Change the count, if there is a counter and the entry is still cached."""
        if self.evicted or self.expected is None:
            return False
        self.expected += by
        return True

    @property
    def is_wanted(self) -> bool:
        """Has expected reads."""
        return self.expected is not None and self.expected > 0


@dataclass
class Removal:
    """An entry that left."""

    entry: Entry
    cause: str
    used_before: int


@dataclass
class Counts:
    """What a window counts for one topic."""

    hits: int = 0
    misses: int = 0
    hit_bytes: int = 0
    miss_bytes: int = 0
    inserted: int = 0
    evicted_time: int = 0
    evicted_size: int = 0
    invalidated: int = 0
    evicted_wanted: int = 0
    extended: int = 0
    stashed: int = 0
    unknown_reads: int = 0

    @property
    def hit_ratio(self) -> float | None:
        """Share of the reads that were hits."""
        reads = self.hits + self.misses
        return self.hits / reads if reads else None

    def add(self, other: Counts) -> None:
        """Sum both into this one."""
        for f in fields(self):
            setattr(self, f.name, getattr(self, f.name) + getattr(other, f.name))

    def row(self) -> Row:
        """The columns."""
        shown = {f.name: getattr(self, f.name) for f in fields(self)}
        unknown = self.unknown_reads or None
        return {**shown, "unknown_reads": unknown, "hit_ratio": self.hit_ratio}


class Cache:
    """The cached entries of all topics of a broker under one variant."""

    def __init__(
        self, settings: Settings, next_read: Callable[[Entry], float] | None = None
    ) -> None:
        self.settings = settings
        self.switches: list[tuple[str, str]] = []
        """Parameters of its rows."""
        self.used = 0
        self.was_filled = False
        """Whether it had an entry in this run of the broker."""
        self.topics: dict[str, dict[Position, Entry]] = {}
        self.queue: deque[Entry] = deque()
        self.stash: list[Entry] = []
        self.removed: list[Removal] = []
        """What left since somebody looked, in order."""
        self._next_read = next_read
        self._number = 0
        self.evicted_wanted_bytes = self.passes = self.work = 0
        self.most_used = self.most_wanted = 0
        self.counts: dict[str, Counts] = {}
        self.ended = Counts()
        """Sum of the windows that have ended."""
        self.begin_window()

    def begin_window(self) -> None:
        """Counting begins anew."""
        self.ended = self.total
        self.counts = {}
        self.held = set(self.topics)
        """Topics that had an entry in the window."""
        self.passes_size = self.entries_visited = 0
        self.max_used = self.used

    @property
    def total(self) -> Counts:
        """Sum of everything counted."""
        total = Counts()
        for counts in (self.ended, *self.counts.values()):
            total.add(counts)
        return total

    def count(self, topic: str) -> Counts:
        """Counts of a topic."""
        return self.counts.setdefault(topic, Counts())

    @property
    def entries(self) -> list[Entry]:
        """All of them."""
        return [e for found in self.topics.values() for e in found.values()]

    @property
    def wanted_bytes(self) -> int:
        """Bytes of entries with expected reads."""
        return wanted_bytes(self.entries)

    @property
    def non_evictable_bytes(self) -> int:
        """The same and bytes of entries without a counter."""
        return non_evictable_bytes(self.entries)

    def find(self, topic: str, position: Position) -> Entry | None:
        """The entry if it is cached."""
        return self.topics.get(topic, {}).get(position)

    def dump(self) -> list[list[Any]]:
        """The queue from its head: entry id, bytes, ts, requeue count, accessed, expected."""
        return [
            [e.position[1], e.bytes, e.ts, e.requeue_count, e.accessed, e.expected]
            for e in self.queue
        ]

    # -- what happens to entries -----------------------------------------------------------------

    def insert(self, topic: str, position: Position, size: int, expected: int, now: int) -> bool:
        """A new entry, then the size check; a position that is present is refused or merged."""
        present = self.find(topic, position)
        if present is not None:
            merges = self.settings.duplicate_insert == "merge"
            if merges and expected > 0 and self.settings.policy in COUNTING:
                present.expected = (present.expected or 0) + expected
            return False
        counted = expected if expected > 0 and self.settings.policy in COUNTING else None
        self._number += 1
        entry = Entry(topic, position, size, now, now, counted, self._number)
        self.topics.setdefault(topic, {})[position] = entry
        self.queue.append(entry)
        self.used += size
        self.count(topic).inserted += 1
        self.held.add(topic)
        self.was_filled = True
        self.max_used = max(self.max_used, self.used)
        self.most_used = max(self.most_used, self.used)
        self.most_wanted = max(self.most_wanted, self.wanted_bytes)
        self.check_size(now)
        return True

    def read(self, topic: str, position: Position, now: int) -> Entry | None:
        """A read; the entry on a hit."""
        entry = self.find(topic, position)
        if entry is not None:
            entry.accessed = True
            if self.settings.policy == "lru":
                entry.ts = now
                self.queue.remove(entry)
                self.queue.append(entry)
        return entry

    def release(self, topic: str, position: Position) -> bool:
        """A delivered copy released."""
        return self._change(topic, position, -1)

    def replay_queued(self, topic: str, position: Position) -> bool:
        """One more read expected, if there is a counter."""
        return self._change(topic, position, 1)

    def _change(self, topic: str, position: Position, by: int) -> bool:
        entry = self.find(topic, position)
        if entry is None or not entry.change(by):
            return False
        self.most_wanted = max(self.most_wanted, self.wanted_bytes)
        return True

    def pass_by(self, topic: str, after: Position, upto: Position) -> None:
        """A mark-delete moved over entries that expected its cursor."""
        for position in self.topics.get(topic, {}):
            if after < position <= upto:
                self._change(topic, position, -1)

    def invalidate(self, topic: str, gone: Callable[[Position], bool]) -> None:
        """Explicit removal of the entries at some positions."""
        for position in sorted(filter(gone, self.topics.get(topic, {}))):
            self._remove(self.topics[topic][position], "invalidated")

    def _remove(self, entry: Entry, cause: str) -> int:
        entry.evicted = True
        found = self.topics[entry.topic]
        del found[entry.position]
        if not found:
            del self.topics[entry.topic]
        if entry in self.queue:
            self.queue.remove(entry)
        else:
            self.stash.remove(entry)
        self.removed.append(Removal(entry, cause, self.used))
        self.used -= entry.bytes
        counts = self.count(entry.topic)
        if cause == "invalidated":
            counts.invalidated += 1
            return entry.bytes
        if cause == "time":
            counts.evicted_time += 1
        else:
            counts.evicted_size += 1
        if entry.is_wanted:
            counts.evicted_wanted += 1
            self.evicted_wanted_bytes += entry.bytes
        return entry.bytes

    @property
    def has_work(self) -> bool:
        """Whether a periodic pass has anything to look at."""
        if self.settings.policy == "belady":
            return self.settings.need(self.used) > 0
        return bool(self.topics)

    # -- passes ----------------------------------------------------------------------------------

    def periodic_pass(self, due: int) -> None:
        """What is due every interval; it judges ages a moment later and stamps its due time."""
        if self.settings.policy != "belady":
            self.time_pass(due + 1 - self.settings.ttl, due + 1, due)
        self.check_size(due + 1, due)

    def check_size(self, now: int, stamp: int | None = None) -> None:
        """A size pass if the cache is larger than its trigger."""
        need = self.settings.need(self.used)
        if need > 0:
            self.size_pass(need, now, stamp)

    def size_pass(self, need: int, now: int, stamp: int | None = None) -> int:
        """Free at least `need` bytes where the policy lets; answers the bytes freed.

        What is extended gets `stamp`, or `now` without it.
        """
        if need <= 0:
            raise ValueError(f"a size pass for {need} bytes")
        self.passes_size += 1
        self.passes += 1
        if self.settings.policy == STASHES:
            return self._size_stash(need, now)
        if self.settings.policy == "proportional":
            return self._size_proportional(need)
        if self.settings.policy == "belady":
            return self._size_belady(need)
        return self._size_queue(need, now if stamp is None else stamp)

    def time_pass(self, threshold: int, now: int, stamp: int | None = None) -> None:
        """Remove what is older than the threshold where the policy lets."""
        if self.settings.policy == STASHES:
            self._time_stash(threshold, now)
        elif self.settings.policy == "proportional":
            self._time_proportional(threshold)
        else:
            self._time_queue(threshold, now if stamp is None else stamp)

    def _visit(self) -> None:
        self.entries_visited += 1
        self.work += 1

    def _extends(self, e: Entry) -> bool:
        s = self.settings
        if s.policy != REQUEUES:
            return False
        return (s.extend_recent and e.accessed) or (e.is_wanted and e.requeue_count < s.max_requeue)

    def _extend(self, e: Entry, stamp: int) -> None:
        self.queue.remove(e)
        self.queue.append(e)
        e.ts, e.accessed = stamp, False
        e.requeue_count += 1
        self.count(e.topic).extended += 1

    def _size_queue(self, need: int, stamp: int) -> int:
        freed = 0
        while self.queue and freed < need:
            e = self.queue[0]
            self._visit()
            if self._extends(e):
                self._extend(e, stamp)
            else:
                freed += self._remove(e, "size")
        return freed

    def _time_queue(self, threshold: int, stamp: int) -> None:
        while self.queue:
            e = self.queue[0]
            self._visit()
            if e.ts >= threshold:
                break
            if self._extends(e):
                self._extend(e, stamp)
            else:
                self._remove(e, "time")

    def _set_aside(self, e: Entry) -> None:
        """Into the stash, or it stays there."""
        if e in self.queue:
            self.queue.remove(e)
            self.stash.append(e)
            self.count(e.topic).stashed += 1

    def _size_stash(self, need: int, now: int) -> int:
        freed = 0
        for e in [*self.stash, *self.queue]:
            if freed >= need:
                break
            self._visit()
            if not e.is_wanted or e.ts < now - self.settings.ttl_max:
                freed += self._remove(e, "size")
            else:
                self._set_aside(e)
        return freed

    def _time_stash(self, threshold: int, now: int) -> None:
        pending, longer = self.settings.time_pass_pending, now - self.settings.ttl_max
        for e in [*self.stash, *self.queue]:
            self._visit()
            if e.is_wanted and pending == "stop":
                if e.ts >= longer:
                    break
                self._remove(e, "time")
            elif e.ts >= threshold:
                break
            elif e.is_wanted and pending == "stash" and e.ts >= longer:
                self._set_aside(e)
            else:
                self._remove(e, "time")

    def _size_proportional(self, need: int) -> int:
        sizes = {t: sum(e.bytes for e in found.values()) for t, found in self.topics.items()}
        chosen: list[str] = []
        total = 0
        for topic in sorted(sizes, key=lambda t: (-sizes[t], t.encode())):
            if chosen and total >= int(self.used * 0.5):
                break
            chosen.append(topic)
            total += sizes[topic]
        freed = 0
        for topic in chosen:
            share = int(need * (sizes[topic] / total)) if total else 0
            of_topic = 0
            for position in sorted(self.topics[topic]):
                if of_topic >= share:
                    break
                self._visit()
                of_topic += self._remove(self.topics[topic][position], "size")
            freed += of_topic
        return freed

    def _time_proportional(self, threshold: int) -> None:
        for topic in sorted(self.topics, key=str.encode):
            for position in sorted(self.topics[topic]):
                e = self.topics[topic][position]
                self._visit()
                if e.ts >= threshold:
                    break
                self._remove(e, "time")

    def _size_belady(self, need: int) -> int:
        next_read = self._next_read
        assert next_read is not None
        freed = 0
        while self.queue and freed < need:
            e = max(self.queue, key=lambda e: (next_read(e), -e.number))
            self._visit()
            freed += self._remove(e, "size")
        return freed


def wanted_bytes(entries: Iterable[Entry]) -> int:
    """Bytes of those with expected reads."""
    return sum(e.bytes for e in entries if e.is_wanted)


def non_evictable_bytes(entries: Iterable[Entry]) -> int:
    """The same and bytes of those without a counter."""
    return sum(e.bytes for e in entries if e.is_wanted or e.expected is None)


def rule_of(entry: Entry, cause: str, settings: Settings) -> str:
    """Cause of a removal and what was amiss."""
    if entry.is_wanted:
        if settings.policy != REQUEUES or settings.max_requeue == 0:
            return f"{cause}+unread"
        return f"{cause}+extended_out" if entry.requeue_count >= settings.max_requeue else cause
    if entry.expected is None and not entry.accessed and entry.requeue_count == 0:
        return f"{cause}+never_wanted"
    return cause


# -- cursors ---------------------------------------------------------------------------------


@dataclass
class Cursor:
    """One subscription's cursor."""

    active: bool = True
    told: bool = False
    """Whether its last record says if it is active."""
    durable: bool = True
    read_pos: Position | None = None
    mark_delete: Position | None = None
    backlog: int | None = None
    """Entries that it had before it at the last check; None if nobody counted them."""


@dataclass
class Topic:
    """What is known of a topic besides its entries."""

    cursors: dict[str, Cursor] = field(default_factory=dict)
    replays: set[tuple[str, Position]] = field(default_factory=set)
    """Subscription and position of what is queued for replay."""
    persisted: Position | None = None
    left: int | None = None
    """When the last active cursor left."""
    seen: int = 0
    ledgers: dict[int, int] = field(default_factory=dict)
    """Entries of each ledger."""

    def persist(self, position: Position) -> None:
        """An entry is in a ledger, and all before it are."""
        if self.persisted is not None and position <= self.persisted:
            return
        self.persisted = position
        self.ledgers[position[0]] = position[1] + 1
        if len(self.ledgers) > MOST_LEDGERS + 1:
            del self.ledgers[min(self.ledgers)]

    def delete_ledger(self, ledger: int) -> None:
        """One that is not written any more is gone."""
        if self.persisted is not None and ledger != self.persisted[0]:
            self.ledgers.pop(ledger, None)

    def entries_from(self, position: Position) -> int:
        """Known entries at a position and behind it."""
        ledger, entry = position
        behind = [count for other, count in self.ledgers.items() if other > ledger]
        return sum(behind) + max(self.ledgers.get(ledger, 0) - max(entry, 0), 0)

    def take_backlogs(self) -> None:
        """The check of a broker."""
        for cursor in self.cursors.values():
            counts = cursor.durable and cursor.read_pos is not None
            cursor.backlog = self.entries_from(cursor.read_pos) if counts else None

    def keeps(self, subscription: str, s: Settings, expected: int, kind: str) -> bool:
        """Whether what this reader gets from storage is put into a cache. A broker 4.2.4 inserts
        what `getNumberOfCursorsAtSamePositionOrBefore` of the reader expects above 0: the count of
        active cursors, or without expected reads 1 where `isCacheReadEntry` says so; a replay
        reads single entries, of which `asyncReadEntry` expects none. Of a reader without a record
        neither is known: it counts as one whose reads are cached."""
        if s.storage_reads == "all" or s.policy not in (*COUNTING, *BY_CURSOR):
            return self.caches_reads(subscription, s)
        reader = self.cursors.get(subscription)
        if kind == "replay":
            return False
        if s.policy in COUNTING:
            return expected > 0 or reader is None
        return s.backlog_cursors > 0 and (reader is None or self.is_near(reader, s))

    def caches_reads(self, subscription: str, s: Settings) -> bool:
        """The same as the specification has it."""
        reader = self.cursors.get(subscription)
        if s.backlog_cursors < 1 or s.policy not in BY_CURSOR or reader is None or reader.told:
            return True
        return self.is_near(reader, s)

    def is_near(self, reader: Cursor, s: Settings) -> bool:
        """Whether enough others have a backlog like a reader's."""
        own = reader.backlog
        if own is None or own < s.backlog_entries:
            return False
        others = [
            c.backlog for c in self.cursors.values() if c is not reader and c.backlog is not None
        ]
        near = [b for b in others if abs(own - b) <= s.backlog_between]
        return len(near) >= s.backlog_cursors

    @property
    def active(self) -> int:
        """Number of active cursors."""
        return sum(c.active for c in self.cursors.values())

    def expected_by(self, subscription: str) -> int:
        """Cursors at the same read position as this reader's or before, itself included."""
        reader = self.cursors.get(subscription)
        if reader is None or not reader.active or reader.read_pos is None:
            return 0
        positions = [c.read_pos for c in self.cursors.values() if c.active]
        return at_or_before([p for p in positions if p is not None], reader.read_pos)

    def slowest(self, by_mark_delete: bool) -> Position | None:
        """Position of the slowest active cursor that has one."""
        active = [c for c in self.cursors.values() if c.active]
        found = [c.mark_delete if by_mark_delete else c.read_pos for c in active]
        return min((p for p in found if p is not None), default=None)


def at_or_before(positions: Sequence[Any], position: Any) -> int:
    """How many are at a position or before it."""
    return sum(p <= position for p in positions)


# -- settings --------------------------------------------------------------------------------


class Documents:
    """Policy documents of the scope `broker` in force on one broker."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._found: dict[str, tuple[int | None, dict[str, Any], int | None]] = {}

    def put(self, document: Mapping[str, Any], wall: int | None, run: int | None) -> None:
        """A document replaces the earlier one of its name, unless it is the older; `run` is the
        run of the broker in which it came, None for the configuration's."""
        if document["scope"] != "broker":
            return
        name = document["name"]
        since = self._found[name][0] if name in self._found else None
        if since is not None and wall is not None and wall < since:
            return
        self._found[name] = (wall, dict(document.get("limits") or {}), run)

    def get(self, key: str, run: int | None = None) -> Any:
        """Own value, else that of all brokers; with `run` only from documents of that run."""
        for name in (self._broker, EVERYWHERE):
            _, limits, of_run = self._found.get(name, (None, {}, None))
            for spelt in (key, "cacheEvictionWatermark") if key == WATERMARK else (key,):
                if (run is None or of_run == run) and is_set(key, limits.get(spelt)):
                    return limits[spelt]
        return None


def is_set(key: str, value: Any) -> bool:
    """Whether a value counts: not null, not negative, an interval of at least 1."""
    if value is None:
        return False
    if isinstance(value, bool):
        return True
    return bool(value >= (1 if key == INTERVAL_MS else 0))


class Variant:
    """Policy, size and settings of one of the caches that are judged side by side."""

    def __init__(self, given: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        self._given, self._params = given, params
        self._policy = ""

    def switches(self) -> list[tuple[str, str]]:
        """Version parameters, and what the cache fixes besides its size."""
        found = {name: self._params.get(name, "") for name in SWITCHES} | dict(self._given)
        found.pop("max_bytes", None)
        return sorted((name, str(value)) for name, value in found.items())

    def begin(self, documents: Documents) -> None:
        """A cache begins: the policy is the one in force."""
        self._policy = self._own("policy")
        if (
            "policy" not in self._given
            and self._policy in COUNTING
            and not self._setting(BY_COUNT, documents)
        ):
            self._policy = "fifo"

    def _own(self, name: str) -> Any:
        return self._given.get(name, {**DEFAULTS, **self._params}[name])

    def _setting(self, key: str, documents: Documents, run: int | None = None) -> Any:
        """`run` is set where only documents of that run count."""
        name = "extend_recently_accessed" if key == RECENT else key
        if run is not None:
            found = [documents.get(key, run)]
        else:
            found = [self._given.get(name), documents.get(key), self._params.get(name)]
        return next((v for v in found if is_set(key, v)), BROKER_KEYS[key])

    def _size(self, documents: Documents) -> int | None:
        if "max_bytes" in self._given:
            size: int | None = self._given["max_bytes"]
            return size
        by_params: Any = self._params.get(SIZE_MB)
        if self._params.get("max_bytes") is not None:
            by_params = self._params["max_bytes"] / MIB
        found: list[Any] = [self._given.get(SIZE_MB), documents.get(SIZE_MB), by_params]
        return next((bytes_of_mb(value) for value in found if is_set(SIZE_MB, value)), None)

    def settings(self, documents: Documents, run: int) -> Settings:
        """What is in force in a run of the broker."""
        retention = None if self._own("settings_applied_at_start") else run
        duplicate = self._own("duplicate_insert")
        if duplicate is None:
            duplicate = "merge" if self._policy == STASHES else "discard"
        return Settings(
            self._policy,
            self._size(documents),
            float(self._setting(WATERMARK, documents)),
            int(self._setting(INTERVAL_MS, documents)) * NS_PER_MS,
            int(self._setting(TTL_MS, documents)) * NS_PER_MS,
            int(self._setting(TTL_MAX_MS, documents)) * NS_PER_MS,
            min(int(self._setting(MAX_TIMES, documents, retention)), MOST_EXTENSIONS),
            bool(self._setting(RECENT, documents, retention)),
            duplicate,
            self._own("time_pass_pending"),
            bool(self._setting(BY_MARK_DELETE, documents)),
            bool(self._own("decrement_on_mark_delete")),
            self._own("grace_ms") * NS_PER_MS,
            self._own("storage_reads"),
            *(
                int(self._setting(key, documents))
                for key in (BACKLOG_CURSORS, BACKLOG_ENTRIES, BACKLOG_BETWEEN)
            ),
        )


# -- future ---------------------------------------------------------------------------------

_LATER = words(
    "source_feed ts_wall_ms cnx_id producer_name sequence_id entry_bytes num_messages uuid"
    " chunk_id num_chunks total_chunk_bytes publish_time_ms broker_time_ms subscription sub_type"
    " consumer durable mark_delete read_pos active policy_json"
)


class Future:
    """When entries are read next, known from the whole trace of one key."""

    def __init__(self, records: Sequence[Record], release_event: str) -> None:
        reads = "dispatch" if release_event == "dispatch" else "entry_read"
        self._reads: dict[tuple[str, Position], list[int]] = {}
        self._ends: list[tuple[int, Callable[[str, Position], bool]]] = []
        self.passed = -1
        """Number of the last record that has been carried out."""
        for i, r in enumerate(records):
            if r["event_type"] == reads:
                self._reads.setdefault((r["topic"], position_of(r)), []).append(i)
            elif r["event_type"] in ("broker_started", "gap"):
                self._ends.append((i, lambda _, __: True))
            elif r["event_type"] in ("entry_invalidated", "ledger_deleted"):
                self._ends.append((i, _removed_by(r)))

    def next_read(self, e: Entry) -> float:
        """Number of the record that reads it next, infinity if none does before it is removed."""
        reads = self._reads.get((e.topic, e.position), [])
        at = next((i for i in reads if i > self.passed), None)
        if at is None:
            return math.inf
        ended = any(
            self.passed < i < at and removes(e.topic, e.position) for i, removes in self._ends
        )
        return math.inf if ended else at


def _removed_by(r: Record) -> Callable[[str, Position], bool]:
    """Which entries an `entry_invalidated` or a `ledger_deleted` removes."""
    ledger = r["ledger_id"]
    entry = r.get("entry_id") if r["event_type"] == "entry_invalidated" else None
    return lambda topic, position: (
        topic == r["topic"] and position[0] == ledger and (entry is None or position[1] == entry)
    )


# -- one key ---------------------------------------------------------------------------------


class Broker(TwoClocks):
    """One (cluster, broker): its caches, cursors, clock and windows."""

    def __init__(
        self, cluster: str, broker: str, params: Mapping[str, Any], future: Future | None = None
    ) -> None:
        self._names = {"cluster": cluster, "broker": broker}
        self._params = {**DEFAULTS, **params}
        self._window_ms: int = self._params["stats_window_ms"]
        self._future = future
        self._next_read = None if future is None else future.next_read
        self.documents = Documents(broker)
        self.rows: dict[str, list[Row]] = {table: [] for table in TABLES}
        self._numbers: dict[str, tuple[int | None, int]] = {}
        self._window_start = 0
        self._events: set[str] = set()
        """Topics that had an event in the window."""
        given: Sequence[Mapping[str, Any]] = self._params["variants"] or ({},)
        self._variants = [Variant(settings, params) for settings in given]
        self.caches: list[Cache] = []
        self._run = -1

    def _begin(self, now: int) -> None:
        """A run of the broker begins, with nothing in memory."""
        self._run += 1
        self._blind_until: int | None = None
        self._started = now
        self._check = now + CHECK
        self._topics: dict[str, Topic] = {}
        before, self.caches = self.caches, []
        for i, variant in enumerate(self._variants):
            variant.begin(self.documents)
            cache = Cache(variant.settings(self.documents, self._run), self._next_read)
            cache.switches = variant.switches()
            if before:
                _carry_counts(before[i], cache)
            self.caches.append(cache)
        self._passed = [now] * len(self.caches)
        """Passes due before this time have run."""

    # -- time --------------------------------------------------------------------------------

    def advance(self, to: int, following: Record | None) -> None:
        """Passes and checks that are due before a moment, windows that end up to it."""
        if self.last is None:
            return
        if self._check < to:
            # nothing that they look at changes between two records
            for topic in self._topics.values():
                topic.take_backlogs()
            self._check += -((self._check - to) // CHECK) * CHECK
        while True:
            due = min(
                ((self._due(i), i) for i, cache in enumerate(self.caches) if cache.has_work),
                default=None,
            )
            if due is None or due[0] >= to:
                break
            at, i = due[0] + 1, due[1]
            wall = self.wall_at(at, following)
            self._end_windows(at, wall, following)
            self._passed[i] = at
            self.caches[i].periodic_pass(due[0])
            self._write_removals(i, at, wall, self.last["source_feed"])
        self._passed = [max(passed, to) for passed in self._passed]
        self._end_windows(to, self.wall_at(to, following), following)

    def _due(self, i: int) -> int:
        """The next pass: start + k x interval."""
        interval = self.caches[i].settings.interval
        k = max(-((self._started - self._passed[i]) // interval), 1)
        return int(self._started + k * interval)

    def _end_windows(
        self, ns: int, wall: int | None, following: Record | None, jumps: bool = False
    ) -> None:
        """Write the windows that end by a moment; with `jumps` the next begins at the moment."""
        clock = ns // NS_PER_MS if wall is None else wall
        while clock >= self._window_start + self._window_ms:
            end = self._window_start + self._window_ms
            self._stats_rows(end, following)
            self._events = set()
            for cache in self.caches:
                cache.begin_window()
            if any(cache.topics for cache in self.caches) and not jumps:
                self._window_start = end
            else:
                self._window_start = max(end, clock // self._window_ms * self._window_ms)

    # -- records -----------------------------------------------------------------------------

    def take(self, record: Record) -> None:
        """Carry out the next record of the key."""
        ns, wall = record["ts_mono_ns"], record["ts_wall_ms"]
        if record["event_type"] == "broker_started":
            self._restart(record)
            return
        if self.last is None:
            self._first(record)
        else:
            jumps = (wall is None) != (self.last["ts_wall_ms"] is None)
            self.advance(ns, record)
            self._end_windows(ns, wall, record, jumps)
        self._stand_at(record)
        if record["event_type"] == "policy":
            self.apply(json.loads(record["policy_json"]), wall)
            return
        if record["event_type"] == "gap":
            self._lose_sight(ns)
            return
        if record["event_type"] not in NOT_JUDGED[self._params["release_event"]]:
            topic = self._topic(record["topic"], ns)
            getattr(self, "_on_" + record["event_type"])(record, topic, ns, wall)

    def _lose_sight(self, now: int) -> None:
        """Every cache is as empty, but may hold what was inserted before: nothing that could still
        be there is missed by a read until it would have gone."""
        self._topics = {}
        lives = []
        for i, before in enumerate(self.caches):
            s = before.settings
            lives.append(max(s.ttl_max, (1 + s.max_requeue) * s.ttl))
            self.caches[i] = Cache(s, self._next_read)
            self.caches[i].switches = before.switches
            self.caches[i].was_filled = before.was_filled
            _carry_counts(before, self.caches[i])
        self._passed = [now] * len(self.caches)
        self._blind_until = now + max(lives)

    def _first(self, record: Record) -> None:
        ns, wall = record["ts_mono_ns"], record["ts_wall_ms"]
        clock = ns // NS_PER_MS if wall is None else wall
        self._window_start = clock // self._window_ms * self._window_ms
        self._begin(ns)

    def _restart(self, record: Record) -> None:
        ns, wall = record["ts_mono_ns"], record["ts_wall_ms"]
        if self.last is None:
            self._first(record)
        else:
            before = self.last["ts_mono_ns"]
            if wall is not None:
                before = max(before, self.ns_at(wall))
            self.advance(before, {**record, "ts_mono_ns": before})
            self._begin(ns)
        self._stand_at(record)

    def _stand_at(self, record: Record) -> None:
        self.last = record
        if self._future is not None:
            self._future.passed += 1

    def take_floating(self, policy: Record, ns: int | None) -> None:
        document = json.loads(policy["policy_json"])
        self.apply(document, policy["ts_wall_ms"], policy.get("configured", False))

    def apply(
        self, document: Mapping[str, Any], wall: int | None, is_configured: bool = False
    ) -> None:
        """A document takes effect."""
        is_of_run = self.last is not None and not is_configured
        self.documents.put(document, wall, self._run if is_of_run else None)
        for variant, cache in zip(self._variants, self.caches, strict=False):
            if not cache.was_filled:
                variant.begin(self.documents)
            cache.settings = variant.settings(self.documents, self._run)

    def _topic(self, name: str, now: int) -> Topic:
        topic = self._topics.get(name)
        if topic is not None:
            idle = now - topic.seen > self._params["idle_state_ms"] * NS_PER_MS
            if idle and not topic.cursors and not topic.replays:
                topic = None
        if topic is None:
            topic = self._topics[name] = Topic()
        topic.seen = now
        return topic

    def _on_entry_added(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        position = position_of(r)
        self._events.add(r["topic"])
        topic.persist(position)
        for i, cache in enumerate(self.caches):
            s = cache.settings
            lingers = topic.left is not None and ns - topic.left < s.grace
            if s.max_bytes != 0 and (topic.active or lingers):
                cache.insert(r["topic"], position, r["entry_bytes"], topic.active, ns)
            self._write_removals(i, ns, wall, r["source_feed"])

    def _on_entry_read(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        self._read(r, topic, ns, wall, releases=False)

    def _on_dispatch(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        self._read(r, topic, ns, wall, releases=True)

    def _read(self, r: Record, topic: Topic, ns: int, wall: int | None, releases: bool) -> None:
        name, position, subscription = r["topic"], position_of(r), r["subscription"]
        self._events.add(name)
        kind = "catch_up"
        if (subscription, position) in topic.replays:
            kind = "replay"
            topic.replays.remove((subscription, position))
        elif topic.persisted is not None and position >= topic.persisted:
            kind = "tail"
        expected = topic.expected_by(subscription)
        before = self._slowest(topic)
        reader = topic.cursors.get(subscription)
        if reader is not None:
            at = reader.read_pos
            if position >= at if at is not None else kind != "replay":
                reader.read_pos = position[0], position[1] + 1
        is_blind = self._blind_until is not None and ns < self._blind_until
        for i, cache in enumerate(self.caches):
            entry = cache.read(name, position, ns)
            counts = cache.count(name)
            if entry is not None:
                counts.hits += 1
                counts.hit_bytes += entry.bytes
            else:
                size = r.get("entry_bytes")
                if is_blind:
                    counts.unknown_reads += 1
                else:
                    counts.misses += 1
                    counts.miss_bytes += size or 0
                s = cache.settings
                takes = s.max_bytes != 0 and topic.keeps(subscription, s, expected, kind)
                if size is not None and takes:
                    cache.insert(name, position, size, expected, ns)
            if releases:
                cache.release(name, position)
            self._follow_cursors(i, r, topic, before)
            left = cache.find(name, position)
            self._write_removals(i, ns, wall, r["source_feed"])
            unknown = entry is None and is_blind
            found = "unknown" if unknown else "miss" if entry is None else "hit"
            self._put(
                "cache_reads",
                found,
                ns,
                wall,
                r["source_feed"],
                {
                    **_shown(cache),
                    "topic": name,
                    "subscription": subscription,
                    "position": f"{position[0]}:{position[1]}",
                    "hit": None if unknown else entry is not None,
                    "expected_after": None if left is None else left.expected,
                    "reader_kind": kind,
                },
            )

    def _on_entry_released(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        self._events.add(r["topic"])
        for cache in self.caches:
            cache.release(r["topic"], position_of(r))

    def _on_replay_queued(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        self._events.add(r["topic"])
        topic.replays.add((r["subscription"], position_of(r)))
        for cache in self.caches:
            cache.replay_queued(r["topic"], position_of(r))

    def _on_entry_invalidated(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        self._invalidate(r, ns, wall)

    def _on_ledger_deleted(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        topic.replays = {x for x in topic.replays if x[1][0] != r["ledger_id"]}
        topic.delete_ledger(r["ledger_id"])
        self._invalidate(r, ns, wall)

    def _invalidate(self, r: Record, ns: int, wall: int | None) -> None:
        self._events.add(r["topic"])
        removes = _removed_by(r)
        for i, cache in enumerate(self.caches):
            cache.invalidate(r["topic"], lambda p: removes(r["topic"], p))
            self._write_removals(i, ns, wall, r["source_feed"])

    # -- cursors -----------------------------------------------------------------------------

    def _on_cursor_state(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        before, active = self._slowest(topic), topic.active
        cursor = topic.cursors.setdefault(r["subscription"], Cursor())
        cursor.active = True if r.get("active") is None else r["active"]
        cursor.told = r.get("active") is not None
        cursor.durable = r.get("durable") is not False
        cursor.read_pos = parsed(r.get("read_pos"))
        was, marked = cursor.mark_delete, parsed(r.get("mark_delete"))
        if marked is not None:
            cursor.mark_delete = marked
            topic.replays = {x for x in topic.replays if x[0] != r["subscription"] or x[1] > marked}
            if was is not None and cursor.active:
                for cache in self.caches:
                    if cache.settings.decrement_on_mark_delete:
                        cache.pass_by(r["topic"], was, marked)
        self._after_cursor(r, topic, before, active, ns, wall)

    def _on_cursor_deleted(self, r: Record, topic: Topic, ns: int, wall: int | None) -> None:
        before, active = self._slowest(topic), topic.active
        topic.cursors.pop(r["subscription"], None)
        topic.replays = {x for x in topic.replays if x[0] != r["subscription"]}
        self._after_cursor(r, topic, before, active, ns, wall)

    def _after_cursor(
        self,
        r: Record,
        topic: Topic,
        before: list[Position | None],
        active: int,
        ns: int,
        wall: int | None,
    ) -> None:
        left = active > 0 and topic.active == 0
        if left:
            topic.left = ns
        for i, cache in enumerate(self.caches):
            s = cache.settings
            if left and s.policy in BY_CURSOR and s.grace == 0:
                cache.invalidate(r["topic"], lambda _: True)
            self._follow_cursors(i, r, topic, before)
            self._write_removals(i, ns, wall, r["source_feed"])

    @staticmethod
    def _slowest(topic: Topic) -> list[Position | None]:
        """By read position and by mark-delete."""
        return [topic.slowest(False), topic.slowest(True)]

    def _follow_cursors(
        self, i: int, r: Record, topic: Topic, before: list[Position | None]
    ) -> None:
        """Entries that the slowest active cursor has passed, where that counts."""
        s = self.caches[i].settings
        slowest = topic.slowest(s.by_mark_delete)
        if s.policy not in BY_CURSOR or slowest is None or slowest == before[s.by_mark_delete]:
            return
        limit = slowest
        if s.by_mark_delete:
            self.caches[i].invalidate(r["topic"], lambda p: p <= limit)
        else:
            self.caches[i].invalidate(r["topic"], lambda p: p < limit)

    # -- rows --------------------------------------------------------------------------------

    def _put(
        self, table: str, rule: str, ns: int, wall: int | None, feed: str, columns: Row
    ) -> None:
        if table not in self._params["extra_outputs"]:
            return
        last_ns, no = self._numbers.get(table, (None, -1))
        no = no + 1 if last_ns == ns else 0
        self._numbers[table] = (ns, no)
        self.rows[table].append(
            {
                **self._names,
                "ts_mono_ns": ns,
                "ts_wall_ms": wall,
                "rule": rule,
                "source_feed": feed,
                "row_no": no,
                **columns,
            }
        )

    def _write_removals(self, i: int, ns: int, wall: int | None, feed: str) -> None:
        cache = self.caches[i]
        for removal in cache.removed:
            e = removal.entry
            rule = rule_of(e, removal.cause, cache.settings)
            self._put(
                "cache_evictions",
                rule,
                ns,
                wall,
                feed,
                {
                    **_shown(cache),
                    "topic": e.topic,
                    "ledger_id": e.position[0],
                    "entry_id": e.position[1],
                    "entry_bytes": e.bytes,
                    "cause": removal.cause,
                    "expected_remaining": e.expected,
                    "requeue_count": e.requeue_count,
                    "accessed": e.accessed,
                    "age_ns": ns - e.inserted,
                    "used_bytes_before": removal.used_before,
                },
            )
        cache.removed.clear()

    def _stats_rows(self, end: int, following: Record | None) -> None:
        assert self.last is not None
        ns, wall = end * NS_PER_MS, None
        if self.last["ts_wall_ms"] is not None:
            ns, wall = self.ns_at(end), end
        if following is not None:
            ns = min(ns, following["ts_mono_ns"])
        rows: list[Row] = []
        for cache in self.caches:
            topics = sorted(self._events | cache.held, key=str.encode)
            if not topics:
                continue
            total = Counts()
            for topic in topics:
                total.add(cache.count(topic))
            whole: Row = {
                "passes_size": cache.passes_size,
                "entries_visited": cache.entries_visited,
                "max_used_bytes": cache.max_used,
            }
            parts: list[tuple[str | None, Counts, list[Entry], Row]] = [
                (None, total, cache.entries, whole),
                *[
                    (
                        t,
                        cache.count(t),
                        list(cache.topics.get(t, {}).values()),
                        dict.fromkeys(whole),
                    )
                    for t in topics
                ],
            ]
            for topic_name, counts, entries, of_broker in parts:
                rows.append(
                    {
                        **_shown(cache),
                        "topic": topic_name,
                        **counts.row(),
                        **of_broker,
                        "entries": len(entries),
                        "used_bytes": sum(e.bytes for e in entries),
                        "wanted_bytes": wanted_bytes(entries),
                        "non_evictable_bytes": non_evictable_bytes(entries),
                    }
                )
        self.rows["cache_stats"].extend(
            {
                **self._names,
                "ts_mono_ns": ns,
                "ts_wall_ms": wall,
                "rule": "window",
                "source_feed": self.last["source_feed"],
                "row_no": no,
                "window_start_ms": self._window_start,
                "window_ms": self._window_ms,
                **row,
            }
            for no, row in enumerate(rows)
        )


def _shown(cache: Cache) -> Row:
    return {
        "switches": cache.switches,
        "policy": cache.settings.policy,
        "max_bytes": cache.settings.max_bytes,
    }


def _carry_counts(old: Cache, new: Cache) -> None:
    """What the open window and the whole trace have counted outlives a restart."""
    new.counts, new.held = old.counts, old.held
    for name in words(
        "ended passes_size entries_visited max_used evicted_wanted_bytes passes work most_used"
        " most_wanted"
    ):
        setattr(new, name, getattr(old, name))


# -- whole traces ----------------------------------------------------------------------------


def keys_of(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Cluster and broker of the records that this job reads."""
    return sorted(
        {
            (r["cluster"], r["broker"])
            for r in records
            if r["event_type"] in READ and r["broker"] != EVERYWHERE
        }
    )


def play(
    records: Sequence[Record],
    params: Mapping[str, Any],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
    watch: Callable[[Broker], None] | None = None,
    changes: Sequence[Record] = (),
) -> list[Broker]:
    """Every key after all records, moved on to `until_ms`; `watch` is called after each record.
    `changes` are later documents of the configuration with the time from which each holds."""
    found = []
    for cluster, broker in keys_of(records):
        of_cluster = [r for r in records if r["cluster"] == cluster and r["event_type"] in READ]
        mine = [r for r in of_cluster if r["broker"] == broker]
        everywhere = [r for r in of_cluster if r["broker"] == EVERYWHERE]
        ordered = in_order([r for r in mine if r["ts_mono_ns"] is not None], _LATER)
        floating = [{**r, "configured": True} for r in changes]
        floating += [*everywhere, *[r for r in mine if r["ts_mono_ns"] is None]]
        future = Future(ordered, {**DEFAULTS, **params}["release_event"])
        b = Broker(cluster, broker, params, future)
        for text in configured:
            b.documents.put(json.loads(text), None, None)
        play_between(b, ordered, floating, until_ms, watch)
        found.append(b)
    return found


def judge(
    records: Sequence[Record],
    params: Mapping[str, Any],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
    changes: Sequence[Record] = (),
) -> dict[str, list[Row]]:
    """Rows by table after all records, with every key's clock moved on to `until_ms`."""
    brokers = play(records, params, configured, until_ms, changes=changes)
    return gathered(TABLES, (b.rows for b in brokers))


def bakeoff(
    records: Sequence[Record],
    params: Mapping[str, Any],
    variants: Sequence[Mapping[str, Any]],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
) -> list[Row]:
    """One row per variant, over all brokers of a trace that is known to its end.

    `belady` evicts what is read again last. It is the best that any eviction without age can do
    while all entries have one size; with mixed sizes it is a heuristic and can be beaten.
    """
    wanted = {**params, "variants": variants, "extra_outputs": TABLES}
    brokers = play(records, wanted, configured, until_ms)
    table = []
    for i, given in enumerate(variants):
        total = Counts()
        for b in brokers:
            total.add(b.caches[i].total)
        caches = [b.caches[i] for b in brokers]
        table.append(
            {
                "variant": i,
                "given": dict(given),
                **(_shown(caches[0]) if caches else {}),
                "hits": total.hits,
                "misses": total.misses,
                "hit_ratio": total.hit_ratio,
                "hit_bytes": total.hit_bytes,
                "storage_bytes": total.miss_bytes,
                "evicted_wanted": total.evicted_wanted,
                "evicted_wanted_bytes": sum(c.evicted_wanted_bytes for c in caches),
                "wanted_bytes": sum(c.most_wanted for c in caches),
                "max_used_bytes": sum(c.most_used for c in caches),
                "passes": sum(c.passes for c in caches),
                "work": sum(c.work for c in caches),
            }
        )
    return table
