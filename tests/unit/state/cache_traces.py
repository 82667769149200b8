"""Random small traces of entry caches, drawn so that every rule is met often."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.reference.entry_cache import (
    BACKLOG_BETWEEN,
    BACKLOG_CURSORS,
    BACKLOG_ENTRIES,
    BY_COUNT,
    BY_MARK_DELETE,
    INTERVAL_MS,
    MAX_TIMES,
    RECENT,
    SIZE_MB,
    TTL_MAX_MS,
    TTL_MS,
    WATERMARK,
)
from tests.unit.state.drawn_trace import GAPS_MS, Trace, missing
from tests.unit.state.trace import START_MS, START_NS

MS = 1_000_000
MIB = 1_048_576
BROKERS = ("b1", "b2")
EVERYWHERE = "*"
TOPICS = (
    "persistent://t/ns/a",
    "persistent://t/ns/b-partition-10",
    "persistent://t/ns/b-partition-2",
)
SUBSCRIPTIONS = ("s1", "s2", "s3", "s4")
SIZES = (100, 100, 100, 40, 10, 300, 300, 1, 0, 500, 990, 2000)
STEPS_NS = (
    *(0,) * 24,
    *(1, MS) * 4,
    999_999,
    3 * MS,
    4 * MS,
    5 * MS,
    10 * MS - 1,
    *(10 * MS,) * 2,
    10 * MS + 1,
    25 * MS,
    100 * MS,
    100 * MS,
    400 * MS,
    500 * MS,
    990 * MS,
    1000 * MS - 1,
    *(1000 * MS,) * 2,
    1000 * MS + 1,
    1001 * MS,
    1010 * MS,
    2500 * MS,
    5000 * MS,
    5001 * MS,
    7500 * MS,
    60_000 * MS,
    61_000 * MS,
    3_700_000 * MS,
)
KINDS = (
    *("add",) * 14,
    *("burst",) * 5,
    *("again",) * 2,
    *("next",) * 12,
    *("tail",) * 8,
    "reread",
    *("release",) * 10,
    "stray_release",
    *("queue",) * 5,
    *("replay",) * 5,
    "stray_read",
    *("invalidate",) * 2,
    "invalidate_ledger",
    *("delete_ledger",) * 2,
    *("new_ledger",) * 2,
    *("cursor",) * 4,
    *("seek",) * 3,
    *("mark",) * 4,
    *("inactive",) * 2,
    "remove_cursor",
    *("policy",) * 5,
    *("everywhere",) * 2,
    "other",
    *("started",) * 2,
    "ignored",
    *("gap",) * 2,
)
POLICIES = ("expected_reads", "expected_reads_stash", "fifo", "proportional", "lru")
BROKER_VALUES: dict[str, tuple[Any, ...]] = {
    SIZE_MB: (1000 / MIB, 400 / MIB, 2500 / MIB, 0.001, 0, 1, -1, None, 100 / MIB),
    WATERMARK: (0.9, 0.5, 0.98, 1.0, 0, -1, 0.75),
    INTERVAL_MS: (10, 7, 50, 1000, 2500, 0, 10.9),
    TTL_MS: (1000, 20, 300, 3000, 0, -1, 999.5),
    TTL_MAX_MS: (5000, 50, 1200, 10_000, None),
    MAX_TIMES: (5, 0, 1, 2, -1, 3.9),
    RECENT: (True, False, None),
    BY_COUNT: (True, False),
    BY_MARK_DELETE: (False, True),
    "cacheEvictionWatermark": (0.5, 0.9, -1),
    BACKLOG_CURSORS: (1, 1, 2, 0, -1),
    BACKLOG_ENTRIES: (1, 0, 2, 5, None),
    BACKLOG_BETWEEN: (2, 0, 1, 6, None),
}
"""What policies of the scope `broker` say."""
VARIANT_VALUES: dict[str, tuple[Any, ...]] = {
    "policy": POLICIES,
    "max_bytes": (1000, 1000, 400, 2500, 10_000, 100, 0, None),
    "duplicate_insert": ("discard", "merge"),
    "extend_recently_accessed": (True, False),
    "time_pass_pending": ("stop", "stash", "ignore"),
    "decrement_on_mark_delete": (False, True),
    "settings_applied_at_start": (True, False),
    "grace_ms": (0, 10, 1500),
    "storage_reads": ("all", "as_broker"),
    SIZE_MB: (1000 / MIB, 600 / MIB, 0),
    WATERMARK: (0.9, 0.5),
    INTERVAL_MS: (10, 7, 1000),
    TTL_MS: (1000, 20, 300),
    TTL_MAX_MS: (5000, 1200),
    MAX_TIMES: (5, 0, 1, 2),
    BY_COUNT: (True, False),
    BY_MARK_DELETE: (False, True),
    BACKLOG_CURSORS: (1, 1, 2, 0),
    BACKLOG_ENTRIES: (1, 0, 2, 5),
    BACKLOG_BETWEEN: (2, 0, 1, 6),
}
"""What a variant may fix and parameters may set, `variants` aside."""


@dataclass
class _Log:
    """What a broker has persisted of one topic."""

    ledger: int = 1
    next_entry: int = 0
    entries: list[tuple[int, int, int]] = field(default_factory=list)
    """Ledger, entry, bytes."""
    places: dict[str, int] = field(default_factory=dict)
    """Index of the next entry of each subscription."""
    read: list[tuple[str, tuple[int, int, int]]] = field(default_factory=list)
    queued: list[tuple[str, tuple[int, int, int]]] = field(default_factory=list)
    marked: dict[str, int] = field(default_factory=dict)


class _Writer:
    """Turns drawn numbers into records."""

    def __init__(self, brokers: int, topics: int, by_dispatch: bool, plain: dict[str, Any]) -> None:
        self.records: list[dict[str, Any]] = []
        self.now = 0
        """Nanoseconds since the trace began."""
        self._brokers, self._topics = BROKERS[:brokers], TOPICS[:topics]
        self._by_dispatch, self._plain = by_dispatch, plain
        self._seq = dict.fromkeys((*BROKERS, EVERYWHERE), 0)
        self._origin = dict(zip(BROKERS, plain["origins"], strict=True))
        self._logs: dict[tuple[str, str], _Log] = {}
        self._last_policy_ms = -1
        self._here = ("", "")

    def step(self, kind: str, a: int, b: int, c: int) -> None:
        """One thing that happens; `a`, `b`, `c` choose among its possibilities."""
        self._here = self._brokers[a % len(self._brokers)], self._topics[b % len(self._topics)]
        getattr(self, f"_{kind}")(a, b, c)

    @property
    def _log(self) -> _Log:
        return self._logs.setdefault(self._here, _Log())

    def begin(self, broker: str, topic: str, subscriptions: int) -> None:
        """The first state of the cursors."""
        self._here = broker, topic
        for subscription in SUBSCRIPTIONS[:subscriptions]:
            self._state(subscription, 0, True)

    # -- entries ---------------------------------------------------------------------------------

    def _add(self, a: int, b: int, c: int) -> None:
        log = self._log
        entry = log.ledger, log.next_entry, SIZES[(a + c) % len(SIZES)]
        if self._plain["size"]:
            entry = log.ledger, log.next_entry, self._plain["size"]
        log.next_entry += 1
        log.entries.append(entry)
        self._entry("entry_added", entry, size=True)

    def _burst(self, a: int, b: int, c: int) -> None:
        for i in range(2 + c % 5):
            self._add(a + i, b, c)

    def _again(self, a: int, b: int, c: int) -> None:
        """An entry that has been persisted is said to be so again."""
        if entry := self._any(c):
            self._entry("entry_added", entry, size=True)

    def _any(self, c: int) -> tuple[int, int, int] | None:
        log = self._log
        return log.entries[-1 - c % min(len(log.entries), 9)] if log.entries else None

    def _read(self, subscription: str, entry: tuple[int, int, int], **columns: Any) -> None:
        if self._by_dispatch:
            kind, columns = "dispatch", {"consumer": "c1", **columns}
        else:
            kind = "entry_read"
        self._log.read.append((subscription, entry))
        self._entry(kind, entry, size=True, subscription=subscription, **columns)

    def _next(self, a: int, b: int, c: int) -> None:
        """Subscriptions read on, each from its place."""
        log = self._log
        for i in range(1 + a % 3):
            subscription = SUBSCRIPTIONS[(c + i) % len(SUBSCRIPTIONS)]
            place = log.places.get(subscription, 0)
            if place < len(log.entries):
                log.places[subscription] = place + 1
                self._read(subscription, log.entries[place])

    def _tail(self, a: int, b: int, c: int) -> None:
        log = self._log
        if log.entries:
            subscription = SUBSCRIPTIONS[c % len(SUBSCRIPTIONS)]
            log.places[subscription] = len(log.entries)
            self._read(subscription, log.entries[-1])

    def _reread(self, a: int, b: int, c: int) -> None:
        if entry := self._any(a + c):
            self._read(SUBSCRIPTIONS[c % len(SUBSCRIPTIONS)], entry)

    def _stray_read(self, a: int, b: int, c: int) -> None:
        """Of an entry that was never added, or by somebody unknown, or without a size."""
        subscription = ("s1", "nobody")[a % 2]
        entry = self._any(c) if c % 2 else (c % 3, c, SIZES[c % len(SIZES)])
        if self._plain["size"] and not c % 2:
            # none that is added later
            entry = 1000, c, self._plain["size"]
        if entry is not None and self._by_dispatch and c % 3 == 0:
            self._read(subscription, entry, entry_bytes=None)
        elif entry is not None:
            self._read(subscription, entry)

    def _release(self, a: int, b: int, c: int) -> None:
        log = self._log
        for _ in range(1 + a % 3):
            if log.read:
                _, entry = log.read.pop(c % len(log.read))
                self._entry("entry_released", entry)

    def _stray_release(self, a: int, b: int, c: int) -> None:
        if entry := self._any(c):
            self._entry("entry_released", entry)

    def _queue(self, a: int, b: int, c: int) -> None:
        log = self._log
        subscription, entry = SUBSCRIPTIONS[c % len(SUBSCRIPTIONS)], self._any(c)
        if log.read and c % 4:
            subscription, entry = log.read[a % len(log.read)]
        if entry is not None:
            log.queued.append((subscription, entry))
            self._entry("replay_queued", entry, subscription=subscription)

    def _replay(self, a: int, b: int, c: int) -> None:
        log = self._log
        if log.queued:
            self._read(*log.queued.pop(c % len(log.queued)))

    # -- removals --------------------------------------------------------------------------------

    def _invalidate(self, a: int, b: int, c: int) -> None:
        if entry := self._any(c):
            self._entry("entry_invalidated", entry)

    def _invalidate_ledger(self, a: int, b: int, c: int) -> None:
        if entry := self._any(c):
            self._put("entry_invalidated", topic=self._here[1], ledger_id=entry[0])

    def _delete_ledger(self, a: int, b: int, c: int) -> None:
        log = self._log
        ledger = log.entries[0][0] if log.entries else log.ledger
        if a % 3 and len({e[0] for e in log.entries}) == 1:
            self._new_ledger(a, b, c)
            return
        self._put("ledger_deleted", topic=self._here[1], ledger_id=ledger)

    def _new_ledger(self, a: int, b: int, c: int) -> None:
        log = self._log
        log.ledger, log.next_entry = log.ledger + 1 + c % 2, 0

    # -- cursors ---------------------------------------------------------------------------------

    def _position(self, place: int) -> str:
        log = self._log
        if place < len(log.entries):
            ledger, entry, _ = log.entries[place]
            return f"{ledger}:{entry}"
        return f"{log.ledger}:{log.next_entry}"

    def _state(
        self, subscription: str, place: int | None, active: bool | None, marked: int | None = None
    ) -> None:
        if marked is not None:
            self._log.marked[subscription] = marked
        entry = None if marked is None else self._position(marked).split(":")
        if self._plain["silent"] and active:
            active = None
        durable = False if self._plain["silent"] and len(self.records) % 11 == 10 else None
        self._put(
            "cursor_state",
            topic=self._here[1],
            subscription=subscription,
            read_pos=None if place is None else self._position(place),
            active=active,
            durable=durable,
            mark_delete=None if entry is None else f"{entry[0]}:{int(entry[1]) - 1}",
        )

    def _cursor(self, a: int, b: int, c: int) -> None:
        """One that may be new stands somewhere."""
        subscription = SUBSCRIPTIONS[c % len(SUBSCRIPTIONS)]
        place = len(self._log.entries) if a % 2 else self._log.places.get(subscription, 0)
        self._log.places[subscription] = place
        self._state(subscription, place, None if a % 3 else True, 0 if c % 5 == 0 else None)

    def _seek(self, a: int, b: int, c: int) -> None:
        subscription = SUBSCRIPTIONS[c % len(SUBSCRIPTIONS)]
        place = max(len(self._log.entries) - a * 2, 0)
        self._log.places[subscription] = place
        self._state(subscription, place, True)

    def _mark(self, a: int, b: int, c: int) -> None:
        """Mark-delete moves, mostly on; sometimes the cursor does not read."""
        subscription = SUBSCRIPTIONS[c % len(SUBSCRIPTIONS)]
        place = self._log.places.get(subscription, 0)
        before = self._log.marked.get(subscription, 0)
        marked = max(before + a % 5 - 1, 0) if a % 2 else place
        reads = place if c % 6 else None
        self._state(subscription, reads, (None, True, True, False)[b % 4], marked)

    def _inactive(self, a: int, b: int, c: int) -> None:
        for i in range(1 + a % 4):
            subscription = SUBSCRIPTIONS[(c + i) % len(SUBSCRIPTIONS)]
            self._state(subscription, self._log.places.get(subscription, 0), False)

    def _remove_cursor(self, a: int, b: int, c: int) -> None:
        for i in range(1 + a % 4):
            self._put(
                "cursor_deleted",
                topic=self._here[1],
                subscription=SUBSCRIPTIONS[(c + i) % len(SUBSCRIPTIONS)],
            )

    # -- policies and others ---------------------------------------------------------------------

    def _limits(self, b: int, c: int) -> dict[str, Any]:
        keys = list(BROKER_VALUES)
        chosen = {keys[b % len(keys)], SIZE_MB if b % 2 else keys[(b + c) % len(keys)]}
        return {k: BROKER_VALUES[k][c % len(BROKER_VALUES[k])] for k in keys if k in chosen}

    def _document(self, broker: str, scope: str, name: str, limits: dict[str, Any]) -> None:
        """Every policy has a wall time of its own."""
        if self.now // MS <= self._last_policy_ms:
            self.now = (self._last_policy_ms + 1) * MS
        self._last_policy_ms = self.now // MS
        self._here = broker, self._here[1]
        text = json.dumps({"scope": scope, "name": name, "limits": limits})
        self._put("policy", policy_json=text)

    def _policy(self, a: int, b: int, c: int) -> None:
        name = (self._here[0], EVERYWHERE)[a % 2]
        self._document(self._here[0], "broker", name, self._limits(b, c) if c % 7 else {})

    def _everywhere(self, a: int, b: int, c: int) -> None:
        name = (self._here[0], EVERYWHERE, EVERYWHERE)[a % 3]
        self._document(EVERYWHERE, "broker", name, self._limits(b, c) if c % 7 else {})

    def _other(self, a: int, b: int, c: int) -> None:
        """One that this job does not use."""
        self._document(self._here[0], "topic", "t/ns/a", {"publishRateInMsgs": c})

    def _started(self, a: int, b: int, c: int) -> None:
        """A run apart on the wall clock, anywhere on the monotonic one."""
        if not self._plain["starts"]:
            return
        broker = self._here[0]
        self.now = (self.now // MS + 1) * MS
        self._origin[broker] += (0, -(10**15), 5 * 10**9)[c % 3]
        self._put("broker_started")
        self.now += MS
        if c % 4:
            for topic in self._topics:
                self._here = broker, topic
                for subscription in SUBSCRIPTIONS[: 1 + c % 3]:
                    self._state(subscription, self._log.places.get(subscription, 0), True)

    def _gap(self, a: int, b: int, c: int) -> None:
        self._put("gap", **missing(GAPS_MS[b % len(GAPS_MS)], START_MS, None, c))

    def _ignored(self, a: int, b: int, c: int) -> None:
        """The kinds that `release_event` leaves out, and one of other jobs."""
        if (entry := self._any(c)) is None or a % 4 == 0:
            self._put("reads_paused", cnx_id="x")
        elif not self._by_dispatch:
            self._entry("dispatch", entry, size=True, subscription="s1", consumer="c1")
        elif a % 2:
            self._entry("entry_read", entry, size=True, subscription="s1")
        else:
            self._entry("entry_released", entry)

    def _entry(
        self, kind: str, entry: tuple[int, int, int], size: bool = False, **columns: Any
    ) -> None:
        if size:
            columns = {"entry_bytes": entry[2], **columns}
        self._put(kind, topic=self._here[1], ledger_id=entry[0], entry_id=entry[1], **columns)

    def _put(self, kind: str, **columns: Any) -> None:
        broker = self._here[0]
        if self._plain["ticks"]:
            self.now += 1
        seq = None
        if self._plain["seq"]:
            seq = self._seq[broker] = self._seq[broker] + 1
        at = None if broker == EVERYWHERE else START_NS + self._origin[broker] + self.now
        wall: int | None = START_MS + self.now // MS
        count = len(self.records)
        if kind == "policy":
            if self._plain["floating"] and count % 3 == 0:
                at = None
        elif kind != "broker_started" and (
            (self._plain["walls"] == "holey" and count % 4 == 0)
            or (self._plain["walls"] == "b1" and broker != "b1")
        ):
            wall = None
        self.records.append(
            {
                "event_type": kind,
                "source_feed": ("contract", "other")[count % 11 == 0],
                "cluster": "c",
                "broker": broker,
                "seq": seq,
                "ts_mono_ns": at,
                "ts_wall_ms": wall,
                **columns,
            }
        )


OPS = st.tuples(
    st.sampled_from(KINDS),
    st.sampled_from(STEPS_NS),
    st.integers(0, 11),
    st.integers(0, 15),
    st.integers(0, 23),
)
ORIGINS = (0, 0, 7_000_001, -(5 * 10**15), 123_456_789_012)


@st.composite
def _variant(draw: st.DrawFn) -> dict[str, Any]:
    found = {name: draw(st.sampled_from(VARIANT_VALUES[name])) for name in ("policy", "max_bytes")}
    rest = [name for name in VARIANT_VALUES if name not in found]
    for name in draw(st.lists(st.sampled_from(rest), max_size=5, unique=True)):
        found[name] = draw(st.sampled_from(VARIANT_VALUES[name]))
    for name in ("policy", "max_bytes"):
        if draw(st.integers(0, 5)) == 0:
            # follows the parameters and the stream
            del found[name]
    return found


@st.composite
def traces(draw: st.DrawFn, most: int = 60, least: int = 20, plain: bool = False) -> Trace:
    """A trace of one or two brokers with one to three topics each.

    A silent one does not say which cursors are active: where backlogs decide what is cached, and
    broker and time let them.

    A plain one has entries of one size, none added twice, no start of a broker and no policy.
    """
    ops = draw(st.lists(OPS, min_size=least, max_size=most))
    params: dict[str, Any] = {
        "stats_window_ms": draw(st.sampled_from((1000, 300, 7000, 60_000))),
        "idle_state_ms": draw(st.sampled_from((3_600_000, 400, 2500))),
        "release_event": draw(st.sampled_from(("entry_released", "entry_released", "dispatch"))),
        "extra_outputs": ("cache_evictions", "cache_reads"),
        **draw(_variant()),
        "variants": draw(st.lists(_variant(), max_size=3)),
    }
    silent = draw(st.booleans())
    if silent:
        params["policy"] = draw(st.sampled_from(("fifo", "proportional")))
        for name in (BACKLOG_CURSORS, BACKLOG_ENTRIES, BACKLOG_BETWEEN):
            params[name] = draw(st.sampled_from(VARIANT_VALUES[name]))
    origins = st.sampled_from(ORIGINS)
    starts = not plain and draw(st.booleans())
    seq = draw(st.sampled_from((True, True, False)))
    walls: tuple[str, ...] = ("all", "all", "holey", "b1")
    if starts:
        # what follows a start is known from the wall clock, or from seq where that is missing
        walls = ("all", "all", "holey") if seq else ("all",)
    known = {
        "seq": seq,
        "starts": starts,
        "walls": draw(st.sampled_from(walls)),
        "origins": (draw(origins), draw(origins)),
        "ticks": draw(st.sampled_from((False, True))),
        "floating": draw(st.booleans()),
        "silent": silent,
        "size": 100 if plain else draw(st.sampled_from((None, None, 100))),
    }
    configured = []
    if not plain:
        names = ("b1", "b2", EVERYWHERE)
        for name in draw(st.lists(st.sampled_from(names), max_size=2, unique=True)):
            keys = draw(st.lists(st.sampled_from(sorted(BROKER_VALUES)), max_size=3, unique=True))
            limits = {key: draw(st.sampled_from(BROKER_VALUES[key])) for key in keys}
            configured.append(json.dumps({"scope": "broker", "name": name, "limits": limits}))
    brokers, topics = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    writer = _Writer(brokers, topics, params["release_event"] == "dispatch", known)
    subscriptions = draw(st.sampled_from((2, 1, 3, 4, 0)))
    for broker in BROKERS[:brokers]:
        for topic in TOPICS[:topics]:
            writer.begin(broker, topic, subscriptions)
    for i, (kind, step, a, b, c) in enumerate(ops):
        if plain and kind in ("policy", "everywhere", "again"):
            continue
        writer.now += 60_000 * MS if silent and i % 12 == 11 else step
        writer.step(kind, a, b, c)
    rest = draw(st.sampled_from((0, 1, 1000, 7000, 61_000, 130_001)))
    return Trace(writer.records, params, configured, START_MS + writer.now // MS + rest)


__all__ = ["Trace", "traces"]
