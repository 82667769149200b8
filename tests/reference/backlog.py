"""Backlog of topics: size, age and quota at every pass, as the rules say it, without haste."""

from __future__ import annotations

import json
import math
import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from tests.reference.order import Record, each_once
from tests.reference.policies import full_name, is_the_brokers, namespace_of, without_partition
from tests.reference.wall import SHARED, gathered, play, wall_level
from tests.reference.wall import Key as WallKey
from tests.reference.words import words

Row = dict[str, Any]
Position = tuple[int, int]
Key = tuple[str, str | None]
Timed = tuple[int, str]
"""A time and where it comes from."""

OWN = words(
    "producer_created producer_closed entry_added ack cursor_state cursor_deleted ledger_state"
    " ledger_deleted group_state"
)
"""Kinds that have a topic."""
TABLES = words(
    "backlog_checks backlog_evictions backlog_subscriptions producer_refusals group_lag"
    " group_states lost_messages"
)
DEDUPLICATION = "pulsar.dedup"
"""The cursor of deduplication: durable, but nobody's subscription."""
SIZE, TIME = "destination_storage", "message_age"
SHOWN = {SIZE: "size", TIME: "time"}
LIMITS = {SIZE: "limitSize", TIME: "limitTime"}
HOLDS = ("producer_request_hold", "producer_exception")
EVICTS = "consumer_backlog_eviction"
ERRORS = {
    "producer_exception": "ProducerBlockedQuotaExceededException",
    "producer_request_hold": "ProducerBlockedQuotaExceededError",
}
BROKER_KEYS: dict[str, Any] = {
    "backlogQuotaCheckEnabled": True,
    "backlogQuotaCheckIntervalInSeconds": 60,
    "backlogQuotaDefaultLimitBytes": -1,
    "backlogQuotaDefaultLimitGB": -1,
    "backlogQuotaDefaultLimitSecond": -1,
    "backlogQuotaDefaultRetentionPolicy": "producer_request_hold",
    "preciseTimeBasedBacklogQuotaCheck": False,
    "ttlDurationDefaultInSeconds": 0,
    "messageExpiryCheckIntervalInMinutes": 5,
}
"""What a broker's configuration says unless it or the parameters say otherwise."""
DEFAULTS: dict[str, Any] = {
    "size_estimate": "consumed_average",
    "age_without_quota": "always",
    "age_reset": "reset",
    "age_when_empty": "minus_one",
    "age_reading": "live",
    "eviction_count_rule": "evicted_only",
    "apply_evictions": False,
    "check_rows": "backlogged",
    "forecast_checks": 10,
}
REDUCTION = 0.9
MOST_RANGES = 10_000
SAMPLES_PER_SECOND = 4
SAMPLE_MS = 1000
INT_MAX = 2**31 - 1
MOST_ROUNDS = 100
"""Rounds of an eviction after which INT_MAX is no bound any more; no topic has so many entries."""
LARGEST = 2**63 - 1
"""What a count or a sum is at most."""
_LATER = words(
    "source_feed cluster broker ts_mono_ns cnx_id client_id producer_id producer_name"
    " sequence_id entry_bytes num_messages publish_time_ms broker_time_ms subscription consumer"
    " ack_cumulative durable mark_delete read_pos active ledger_entries ledger_bytes"
    " ledger_close_ms policy_json acked_ranges expired_messages remarks log_start unread"
    " group_state client_host group_type group_epoch assignment_epoch"
)


# -- records ---------------------------------------------------------------------------------


def topic_of(record: Record) -> str:
    """The topic with its scheme and the ending of its partition."""
    name, number = full_name(record["topic"]), record.get("partition")
    if number is None or re.search(r"-partition-\d+$", name):
        return name
    return f"{name}-partition-{number}"


def key_of(record: Record) -> Key:
    """Cluster and topic."""
    return record["cluster"], None if record.get("topic") is None else topic_of(record)


def position_of(text: str) -> Position:
    """`ledger:entry` as a pair."""
    ledger, entry = text.split(":")
    return int(ledger), int(entry)


def shown(position: Position | None) -> str | None:
    """A pair as `ledger:entry`."""
    return None if position is None else f"{position[0]}:{position[1]}"


def _level(record: Record) -> tuple[Any, ...]:
    topic = None if record.get("topic") is None else topic_of(record)
    return wall_level({**record, "topic": topic}, ("seq", "topic", "ledger_id", "entry_id"), _LATER)


# -- ledgers ---------------------------------------------------------------------------------


@dataclass
class Ledger:
    """Contents of one ledger; `close_ms` is None while it is open or unknown."""

    entries: int = 0
    size: int = 0
    close_ms: int | None = None


class Ledgers:
    """The ledgers of one topic: what is stored after a position, and how many bytes."""

    def __init__(self, size_estimate: str = "consumed_average") -> None:
        self._estimate = size_estimate
        self._ledgers: dict[int, Ledger] = {}
        self.deleted_entries = 0
        self.skipped = 0
        """Entries of the newest ledger whose records a later one came before."""
        self.has_state = False
        """Whether a `ledger_state` has come since the list was last empty."""

    def __contains__(self, ledger: int) -> bool:
        return ledger in self._ledgers

    def __getitem__(self, ledger: int) -> Ledger:
        return self._ledgers[ledger]

    @property
    def ids(self) -> list[int]:
        """Known ledgers, oldest first."""
        return sorted(self._ledgers)

    @property
    def entries(self) -> int:
        """Entries of all ledgers."""
        return min(sum(x.entries for x in self._ledgers.values()), LARGEST)

    @property
    def open_id(self) -> int | None:
        """The newest ledger, unless it has been closed."""
        newest = max(self._ledgers, default=None)
        return None if newest is None or self[newest].close_ms is not None else newest

    def state(self, ledger: int, entries: int, size: int, close_ms: int | None) -> None:
        """What a `ledger_state` says; a ledger once closed stays closed."""
        if close_ms is None and ledger in self:
            close_ms = self[ledger].close_ms
        self._ledgers[ledger] = Ledger(entries, size, close_ms)
        self.skipped = 0 if ledger == max(self._ledgers) else self.skipped
        self.has_state = True

    def add(self, ledger: int, entry: int, size: int) -> None:
        """An entry: it counts in the open ledger, and a newer ledger is opened by it."""
        if not self._ledgers or ledger > max(self._ledgers):
            self._ledgers[ledger] = Ledger()
            self.skipped = 0
        if ledger != self.open_id:
            return
        known = self[ledger]
        if entry >= known.entries:
            self.skipped += entry - known.entries
            known.entries = min(entry + 1, LARGEST)
        elif self.skipped:
            self.skipped -= 1
        else:
            return
        known.size += size

    def delete(self, ledger: int) -> None:
        """A ledger that has been trimmed."""
        if ledger in self:
            deleted = self._ledgers.pop(ledger).entries
            self.deleted_entries = min(self.deleted_entries + deleted, LARGEST)
        self.has_state = self.has_state and bool(self._ledgers)

    def after(self, position: Position) -> int:
        """How many entries follow a position."""
        ledger, entry = position
        rest = max(self[ledger].entries - entry - 1, 0) if ledger in self else 0
        return min(rest + sum(x.entries for i, x in self._ledgers.items() if i > ledger), LARGEST)

    def first_after(self, position: Position) -> Position | None:
        """The first entry that follows a position."""
        ledger, entry = position
        if ledger in self and entry + 1 < self[ledger].entries:
            return ledger, entry + 1
        later = (i for i in self.ids if i > ledger and self[i].entries > 0)
        return next(((i, 0) for i in later), None)

    def follow(self, position: Position) -> Position:
        """The position that comes next, whether or not its entry is known to exist."""
        ledger, entry = position
        if ledger == self.open_id or (ledger in self and entry + 1 < self[ledger].entries):
            return ledger, entry + 1
        later = (i for i in self.ids if i > ledger and (self[i].entries > 0 or i == self.open_id))
        return next(((i, 0) for i in later), (ledger, entry + 1))

    def forward(self, position: Position, count: int) -> Position:
        """The position `count` existing entries on, at most the last one."""
        while count > 0:
            first = self.first_after(position)
            if first is None:
                break
            ledger, entry = first
            step = min(count, self[ledger].entries - entry)
            position = ledger, entry + step - 1
            count -= step
        return position

    def next_ledger(self, ledger: int) -> int | None:
        """The oldest ledger after one."""
        return next((i for i in self.ids if i > ledger), None)

    def backlog_bytes(self, position: Position | None) -> int:
        """Section 3: bytes after a mark-delete position, estimated; 0 without one."""
        if position is None:
            return 0
        first = self.first_after(position)
        if first is None:
            return 0
        if self._estimate == "ledger_sum":
            return sum(x.size for i, x in self._ledgers.items() if i >= first[0])
        ledger, entry = position
        size = sum(x.size for i, x in self._ledgers.items() if i >= ledger)
        if ledger not in self or self[ledger].entries == 0:
            return size
        own = self[ledger]
        if entry >= own.entries:
            return size - own.size
        return size - (entry + 1) * (own.size // own.entries)

    def close_of_oldest(self, position: Position) -> int | None:
        """Section 4, estimated: close time of the ledger with the next entry, if it has one."""
        ledger, entry = position
        if ledger == self.open_id:
            return None
        if ledger not in self or entry + 1 >= self[ledger].entries:
            first = self.first_after(position)
            if first is None:
                return None
            ledger = first[0]
        return self.closed_at(ledger)

    def closed_at(self, ledger: int) -> int | None:
        """Close time of a ledger, None where it is open or its time is not known."""
        close_ms = self[ledger].close_ms
        return close_ms if close_ms is not None and close_ms > 0 else None


# -- times of entries ------------------------------------------------------------------------


@dataclass
class Sample:
    """From this position on, up to the next sample, entries have about this time."""

    position: Position
    time: int
    source: str


class AgeCache:
    """Times of entries, to about one second, in bounded space."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.samples: list[Sample] = []
        self.seen: Position | None = None
        self._second = 0
        self._kept = 0

    def added(self, record: Record) -> None:
        """An entry; the first record that shows it gives its time."""
        position = record["ledger_id"], record["entry_id"]
        if self.seen is None or position > self.seen:
            time, source = time_in(record) or (record["ts_wall_ms"], "publish_time")
            self._offer(Sample(position, time, source), record)
            self.seen = position

    def state(self, record: Record, close_ms: int | None) -> None:
        """A ledger: entries that no record has shown before are as old as this record, or as
        the end of their ledger."""
        ledger, last = record["ledger_id"], record["ledger_entries"] - 1
        if last < 0 or (self.seen is not None and (ledger, last) <= self.seen):
            return
        first = self.seen[1] + 1 if self.seen is not None and self.seen[0] == ledger else 0
        now = record["ts_wall_ms"]
        if close_ms is not None and 0 < close_ms < now:
            sample = Sample((ledger, first), close_ms, "ledger_close")
        else:
            sample = Sample((ledger, first), now, "publish_time")
        self._offer(sample, record)
        self.seen = ledger, last

    def _offer(self, sample: Sample, record: Record) -> None:
        second = record["ts_wall_ms"] // 1000
        kept = self._kept if second == self._second else 0
        if self.samples:
            differs = abs(sample.time - self.samples[-1].time) >= SAMPLE_MS
            if not differs or kept >= SAMPLES_PER_SECOND:
                return
        self.samples.append(sample)
        self._second, self._kept = second, kept + 1

    def of(self, position: Position) -> Sample | None:
        """The sample that stands for an entry."""
        return max(
            (s for s in self.samples if s.position <= position),
            key=lambda s: s.position,
            default=None,
        )

    def next_position(self, position: Position) -> Position | None:
        """Position of the first sample after an entry."""
        return min((s.position for s in self.samples if s.position > position), default=None)

    def trim(self, oldest: Position | None) -> None:
        """Forget what is before the sample of the oldest entry still needed."""
        wanted = oldest if oldest is not None else self.seen
        sample = None if wanted is None else self.of(wanted)
        if sample is not None:
            self.samples = [s for s in self.samples if s.position >= sample.position]


def time_in(record: Record) -> Timed | None:
    """Broker time of a record, else its publish time."""
    for column, source in (("broker_time_ms", "broker_time"), ("publish_time_ms", "publish_time")):
        if record.get(column) is not None:
            return record[column], source
    return None


# -- cursors ---------------------------------------------------------------------------------


@dataclass
class Check:
    """What one check saw of a cursor."""

    pass_ms: int
    backlog_bytes: int
    consumed: int
    mark_delete: Position


@dataclass
class Cursor:
    """One cursor: where it stands and what is acknowledged beyond."""

    name: str
    durable: bool
    mark_delete: Position
    first: Timed | None = None
    """Time of the first entry after the mark-delete, if a record has told it."""
    ranges: list[tuple[int, int, int]] = field(default_factory=list)
    """Acknowledged entries beyond the mark-delete: ledger, first, last."""
    floor: Position | None = None
    """Where evictions that are applied have moved it."""
    history: list[Check] = field(default_factory=list)
    was_behind: bool = False
    dropped: int = 0
    """Acknowledged entries in ranges that are too many to keep."""
    set_back: tuple[Position, Position] | None = None
    """From where to where it was set back since the last check."""
    expired: int | None = None
    """Messages that expired since the last check."""
    expired_before: int = 0
    remarks: str | None = None
    broker_expired: int | None = None

    @property
    def kind(self) -> str:
        """What it is for, by its name."""
        if self.name.startswith("pulsar.repl"):
            return "replicator"
        named = {DEDUPLICATION: "deduplication", "__compaction": "compaction"}
        return named.get(self.name, "subscription")

    def unacknowledged(self, ledgers: Ledgers) -> int:
        """Entries after the mark-delete that are not acknowledged one by one."""
        done = sum(
            max(min(last, ledgers[ledger].entries - 1) - first + 1, 0)
            for ledger, first, last in self.ranges
            if ledger in ledgers
        )
        return max(ledgers.after(self.mark_delete) - done - self.dropped, 0)

    def first_hole(self, ledgers: Ledgers) -> Position | None:
        """The first entry that is not acknowledged; None without ranges beyond the mark-delete."""
        at = self.mark_delete if self.ranges else None
        while at is not None:
            at = ledgers.first_after(at)
            over = [
                last
                for ledger, first, last in self.ranges
                if at is not None and ledger == at[0] and first <= at[1] <= last
            ]
            if at is None or not over:
                return at
            at = at[0], over[0]
        return None

    @property
    def place(self) -> tuple[Position, bytes]:
        """What decides which cursor is the slowest."""
        return self.mark_delete, self.name.encode()

    def observed(self, position: Position, time: Timed | None, ledgers: Ledgers) -> None:
        """What a `cursor_state` says."""
        if self.floor is not None and position < self.floor:
            position, time = self.floor, None
        if position < self.mark_delete:
            self.ranges, self.dropped, self.history = [], 0, []
            self.set_back = self.set_back[0] if self.set_back else self.mark_delete, position
        if position != self.mark_delete or time is not None:
            self.first = time
        self.mark_delete = position
        self._absorb(ledgers)

    def acknowledged_as(self, text: str, ledgers: Ledgers) -> None:
        """The ranges that a broker shows, ascending, replace those that were known."""
        told = [
            (int(ledger), int(first), int(last))
            for ledger, first, last in re.findall(r"(\d+):(\d+)\.\.(\d+)", text)
        ]
        taken: list[tuple[int, int, int]] = []
        self.dropped = 0
        for ledger, first, last in told:
            if len(taken) == MOST_RANGES:
                self.dropped += max(last - first + 1, 0)
            elif (
                first <= last
                and (ledger, last) > self.mark_delete
                and (not taken or (taken[-1][0], taken[-1][2]) < (ledger, first))
            ):
                taken.append((ledger, first, last))
        self.ranges = taken
        self._absorb(ledgers)

    def acknowledged_to(self, position: Position, ledgers: Ledgers) -> None:
        """Everything up to a position has been acknowledged."""
        if position > self.mark_delete:
            self.mark_delete, self.first = position, None
        self._absorb(ledgers)

    def acknowledged(self, position: Position, ledgers: Ledgers) -> None:
        """One entry has been acknowledged."""
        if position > self.mark_delete:
            ledger, entry = position
            first = last = entry
            others = []
            for other in self.ranges:
                if other[0] == ledger and other[1] <= last + 1 and first <= other[2] + 1:
                    first, last = min(first, other[1]), max(last, other[2])
                else:
                    others.append(other)
            self.ranges = sorted([*others, (ledger, first, last)])[:MOST_RANGES]
        self._absorb(ledgers)

    def moved_to(self, position: Position, ledgers: Ledgers) -> Cursor:
        """What it would be with everything up to a position acknowledged."""
        moved = replace(self, ranges=list(self.ranges))
        moved.acknowledged_to(position, ledgers)
        return moved

    def evicted_to(self, position: Position, ledgers: Ledgers) -> None:
        """An eviction that is applied; no later observation is behind it."""
        self.floor = position
        self.acknowledged_to(position, ledgers)

    def _absorb(self, ledgers: Ledgers) -> None:
        while True:
            at = self.mark_delete
            self.ranges = [
                (ledger, max(first, at[1] + 1) if ledger == at[0] else first, last)
                for ledger, first, last in self.ranges
                if (ledger, last) > at
            ]
            following = ledgers.follow(at)
            end = [last for ledger, first, last in self.ranges if (ledger, first) == following]
            if not end:
                return
            self.mark_delete, self.first = (following[0], end[0]), None


def slowest(marks: Mapping[str, Position]) -> str | None:
    """Name of the cursor with the smallest position, the smallest name among equals."""
    return min(marks, key=lambda name: (marks[name], name.encode()), default=None)


# -- quotas ----------------------------------------------------------------------------------


@dataclass
class Quota:
    """The quota of one type in force; a limit below 0 is none."""

    limit: int
    policy: str
    source: str

    @property
    def shown(self) -> int | None:
        """The limit as outputs show it."""
        return None if self.limit < 0 else self.limit

    def is_exceeded_size(self, backlog_bytes: int) -> bool:
        """Section 5, size: closed, and 0 is always exceeded."""
        return 0 <= self.limit <= backlog_bytes

    def is_exceeded_time(self, timestamp: int | None, now: int) -> bool:
        """Section 5, time: strict, and 0 is off."""
        return self.limit > 0 and timestamp is not None and now > timestamp + self.limit * 1000


A = TypeVar("A")


def remembered(answer: Callable[..., A]) -> Callable[..., A]:
    """What documents say is the same until another one is put."""

    def known(self: Policies, *about: str) -> A:
        key = answer.__name__, *about
        if key not in self.known:
            self.known[key] = answer(self, *about)
        found: A = self.known[key]
        return found

    return known


class Policies:
    """Documents in force in one cluster."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self.known: dict[tuple[str, ...], Any] = {}
        self._params = params
        self._limits: dict[tuple[str, str], dict[str, Any]] = {}

    def put(self, document: Mapping[str, Any]) -> None:
        """A document replaces the earlier one of its scope and name."""
        scope, name = document["scope"], document["name"]
        name = full_name(name) if scope == "topic" else name
        self._limits[scope, name] = dict(document.get("limits") or {})
        self.known.clear()

    @remembered
    def setting(self, key: str, broker: str) -> Any:
        """A broker's own value, that for all brokers, the parameter, the default."""
        least = 1 if "Interval" in key else 0
        for name in (broker, "*"):
            value = self._limits.get(("broker", name), {}).get(key)
            if value is None:
                continue
            if isinstance(value, bool | str) or value >= least:
                return value
        return self._params.get(key, BROKER_KEYS[key])

    def interval_ms(self, broker: str) -> int:
        """Milliseconds from pass to pass."""
        seconds: int = math.floor(self.setting("backlogQuotaCheckIntervalInSeconds", broker))
        return seconds * 1000

    @remembered
    def quota(self, kind: str, topic: str, broker: str) -> Quota:
        """The quota of a topic: its own, its namespace's, the broker's."""
        default: str = self.setting("backlogQuotaDefaultRetentionPolicy", broker)
        base = without_partition(topic)
        if is_the_brokers(base):
            return Quota(-1, default, "system")
        for scope, name in (("topic", base), ("namespace", namespace_of(base))):
            quotas = self._limits.get((scope, name or ""), {}).get("backlog_quota") or {}
            if name is not None and quotas.get(kind) is not None:
                limit = quotas[kind].get(LIMITS[kind])
                limit = -1 if limit is None else max(math.floor(limit), -1)
                return Quota(limit, quotas[kind].get("policy") or default, scope)
        return Quota(self._of_broker(kind, broker), default, "broker")

    @remembered
    def ttl_s(self, topic: str, broker: str) -> int:
        """Age at which messages expire: the topic's own, its namespace's, the broker's; 0: never."""
        base = without_partition(topic)
        if is_the_brokers(base):
            return 0
        for scope, name in (("topic", base), ("namespace", namespace_of(base))):
            ttl = self._limits.get((scope, name or ""), {}).get("message_ttl_in_seconds")
            if ttl is not None and ttl >= 0:
                return math.floor(ttl)
        return max(math.floor(self.setting("ttlDurationDefaultInSeconds", broker)), 0)

    def expiry_s(self, broker: str) -> int:
        """Seconds from one expiry to the next."""
        return 60 * math.floor(self.setting("messageExpiryCheckIntervalInMinutes", broker))

    def _of_broker(self, kind: str, broker: str) -> int:
        key = "backlogQuotaDefaultLimitSecond" if kind == TIME else "backlogQuotaDefaultLimitBytes"
        limit: int = math.floor(self.setting(key, broker))
        gigabytes: float = self.setting("backlogQuotaDefaultLimitGB", broker)
        return int(gigabytes * 1024**3) if kind == SIZE and gigabytes > 0 else limit


# -- evictions -------------------------------------------------------------------------------


@dataclass
class Move:
    """What an eviction did to one cursor."""

    subscription: str | None
    start: Position | None
    end: Position | None
    factor: float | None = None


@dataclass
class Eviction:
    """One eviction call."""

    rule: str
    moves: list[Move]
    rounds: int | None = None
    target_bytes: int | None = None
    expire_s: int | None = None


def skip_of(backlog: int, target: float, entries: int, most: int) -> tuple[float, int]:
    """One round of size eviction: the factor and the entries to skip."""
    factor = (backlog - target) / backlog
    return factor, min(int(factor * entries), most)


def evict_size(ledgers: Ledgers, durable: Mapping[str, Cursor], limit: int) -> Eviction:
    """Size eviction over durable cursors: section 6. Of the entries that a cursor has not
    acknowledged a share decides how many *positions* it moves on, acknowledged ones included."""
    at, target = dict(durable), REDUCTION * limit
    marks = {name: cursor.mark_delete for name, cursor in durable.items()}
    moves: dict[str, Move] = {}
    before: str | None = None
    rounds, rule, computed = 0, "target_reached", None

    while True:
        name = slowest({name: cursor.mark_delete for name, cursor in at.items()})
        backlog = ledgers.backlog_bytes(None if name is None else at[name].mark_delete)
        if backlog <= target:
            break
        assert name is not None
        if name == before:
            rule = "same_cursor"
            break
        before = name
        factor, skip = skip_of(
            backlog,
            target,
            at[name].unacknowledged(ledgers),
            INT_MAX if rounds < MOST_ROUNDS else 2**62,
        )
        computed = factor if computed is None else computed
        if skip == 0:
            rule = "skip_zero"
            break
        move = moves.setdefault(name, Move(name, marks[name], None, factor))
        at[name] = at[name].moved_to(ledgers.forward(at[name].mark_delete, skip), ledgers)
        move.end = at[name].mark_delete
        rounds += 1
    return Eviction(rule, list(moves.values()) or [_standing(marks, computed)], rounds, int(target))


def evict_time_estimated(
    ledgers: Ledgers, marks: Mapping[str, Position], limit_s: int, now: int
) -> Eviction:
    """Time eviction by whole ledgers over durable cursors: section 6."""
    at = dict(marks)
    moves: dict[str, Move] = {}
    rounds = 0
    while (name := slowest(at)) is not None:
        ledger = at[name][0]
        if ledger in ledgers:
            close_ms = ledgers.closed_at(ledger)
            if close_ms is None or now - close_ms <= limit_s * 1000:
                break
        following = ledgers.next_ledger(ledger)
        if following is None:
            break
        move = moves.setdefault(name, Move(name, at[name], None))
        at[name] = move.end = (following, -1)
        rounds += 1
    rule = "ledger_jump" if rounds else "no_closed_ledger"
    return Eviction(rule, list(moves.values()) or [_standing(marks)], rounds, None, limit_s)


def _standing(marks: Mapping[str, Position], factor: float | None = None) -> Move:
    name = slowest(marks)
    at = None if name is None else marks[name]
    return Move(name, at, at, factor)


def expires_older_than(limit_s: int) -> int:
    """Seconds after which precise time eviction expires messages."""
    return int(REDUCTION * limit_s)


# -- one key ---------------------------------------------------------------------------------


@dataclass
class Info:
    """The cached oldest message."""

    position: Position
    timestamp: int
    subscription: str
    version: int


def age_of(now: int, timestamp: int) -> int:
    """Whole seconds, truncated toward zero."""
    age = abs(now - timestamp) // 1000
    return age if now >= timestamp else -age


def _first_pass(since: int, last: int, interval: int) -> int:
    """The first pass at or after a time of a topic whose last record is of `last`: at every
    interval, and from 4,096 of them on at every second, from twice as many on at every fourth."""
    due = -(-since // interval) * interval
    while due % (interval << ((due - last) // interval // 4096).bit_length()):
        due += interval
    return due


class Topic(WallKey):
    """One key: a topic of a cluster, its clock and passes."""

    def __init__(
        self, cluster: str, topic: str, params: Mapping[str, Any], configured: Sequence[str] = ()
    ) -> None:
        super().__init__(cluster, TABLES)
        self._topic = topic
        self._params = {**DEFAULTS, **params}
        self._policies = Policies(self._params)
        for text in configured:
            self._policies.put(json.loads(text))
        self.ledgers = Ledgers(self._params["size_estimate"])
        self.times = AgeCache()
        self.cursors: dict[str, Cursor] = {}
        self.info: Info | None = None
        self._version = 0
        self._producers: set[tuple[str, int]] = set()
        self._was_backlogged = False
        self._gaps: set[str] = set()
        """Brokers that have been out of sight."""
        self._unseen: set[str] = set()
        """What has not been stated since: then no pass judges the topic."""
        self._taken_ms = 0
        self._last_pass: int | None = None

    # -- time --------------------------------------------------------------------------------

    def advance(self, to: int, following: Record | None = None) -> None:
        """Make the passes due before `to`; `following` is the next record of this key."""
        self._next, self._from_record = following, False
        while self._last is not None:
            interval = self._policies.interval_ms(self._broker)
            since = self._taken_ms
            if self._last_pass is not None:
                since = max(since, self._last_pass + 1)
            due = _first_pass(since, self._last["ts_wall_ms"], interval)
            if due >= to:
                break
            self._last_pass = self._now = due
            self._pass()

    def take(self, record: Record) -> None:
        """A record at its time, to which the topic has been advanced."""
        kind = record["event_type"]
        if kind == "policy":
            self._policies.put(json.loads(record["policy_json"]))
        elif kind == "broker_started":
            if self._last is not None and record["broker"] == self._broker:
                self.info = None
                self._producers = set()
        elif kind == "gap":
            self._gaps.add(record["broker"])
            if self._last is not None and record["broker"] == self._broker:
                self._unseen = {"cursors", "sizes"}
                self._producers = set()
                self._not_checked()
        else:
            self._last, self._from_record, self._now = record, True, record["ts_wall_ms"]
            self._begin()
            getattr(self, f"_{kind}")(record)
            self._begin()
        if self._last is not None:
            self._taken_ms = record["ts_wall_ms"]

    def _begin(self) -> None:
        """A topic without ledgers and cursors is as new: after a gap of its broker nobody knows
        what it has."""
        if not self.ledgers.ids and not self.cursors:
            self._unseen = {"cursors", "sizes"} if self._broker in self._gaps else set()

    @property
    def _broker(self) -> str:
        assert self._last is not None
        broker: str = self._last["broker"]
        return broker

    @property
    def _precise(self) -> bool:
        return bool(self._policies.setting("preciseTimeBasedBacklogQuotaCheck", self._broker))

    def _quota(self, kind: str) -> Quota:
        return self._policies.quota(kind, self._topic, self._broker)

    # -- records -----------------------------------------------------------------------------

    def _entry_added(self, record: Record) -> None:
        self.ledgers.add(record["ledger_id"], record["entry_id"], record["entry_bytes"])
        if record["ledger_id"] in self.ledgers:
            self.times.added(record)

    def _ledger_state(self, record: Record) -> None:
        self._unseen.discard("sizes")
        ledger = record["ledger_id"]
        self.ledgers.state(
            ledger, record["ledger_entries"], record["ledger_bytes"], record.get("ledger_close_ms")
        )
        self.times.state(record, self.ledgers[ledger].close_ms)

    def _ledger_deleted(self, record: Record) -> None:
        ledger = record["ledger_id"]
        self.ledgers.delete(ledger)
        for cursor in self.cursors.values():
            if cursor.mark_delete[0] <= ledger:
                cursor.first = None
        if not self.ledgers.ids:
            self.times.clear()

    def _cursor_state(self, record: Record) -> None:
        if record.get("mark_delete") is None:
            return
        self._unseen.discard("cursors")
        name, position = record["subscription"], position_of(record["mark_delete"])
        durable = record.get("durable") is not False
        cursor = self.cursors.get(name)
        before = None if cursor is None else cursor.mark_delete
        was_durable = cursor is not None and cursor.durable
        if cursor is None:
            cursor = self.cursors[name] = Cursor(name, durable, position)
            cursor.broker_expired = record.get("expired_messages")
        else:
            self._expire(cursor, position, record)
        cursor.durable = durable
        cursor.observed(position, time_in(record), self.ledgers)
        cursor.remarks = record.get("remarks")
        if record.get("acked_ranges") is not None:
            cursor.acknowledged_as(record["acked_ranges"], self.ledgers)
        moved = before != cursor.mark_delete
        self._version += was_durable != durable or (durable and moved)

    def _expire(self, cursor: Cursor, position: Position, record: Record) -> None:
        """Count what has expired: the broker's own count, else what is beyond the TTL of the
        entries that the mark-delete has passed."""
        told, before = record.get("expired_messages"), cursor.broker_expired
        if told is not None:
            cursor.broker_expired = told
            more = 0 if before is None else told - before if told >= before else told
            # what was told before is of the same count, else this is its beginning
            cursor.expired = (cursor.expired or 0) + more if before is not None else 0
            return
        ttl_s = self._policies.ttl_s(self._topic, self._broker)
        if position > cursor.mark_delete and ttl_s > 0:
            end = min(self.expired_to(cursor.mark_delete, ttl_s * 1000, True), position)
            gone = self.ledgers.after(cursor.mark_delete) - self.ledgers.after(end)
            cursor.expired = (cursor.expired or 0) + gone

    def _group_state(self, record: Record) -> None:
        """Of Kafka alone."""

    def _cursor_deleted(self, record: Record) -> None:
        cursor = self.cursors.pop(record["subscription"], None)
        self._version += cursor is not None and cursor.durable

    def _ack(self, record: Record) -> None:
        cursor = self.cursors.get(record["subscription"])
        if cursor is None:
            return
        before, position = cursor.mark_delete, (record["ledger_id"], record["entry_id"])
        if record.get("ack_cumulative"):
            cursor.acknowledged_to(position, self.ledgers)
        else:
            cursor.acknowledged(position, self.ledgers)
        self._version += cursor.durable and cursor.mark_delete != before

    def _producer_created(self, record: Record) -> None:
        producer = record["cnx_id"], record["producer_id"]
        refused = self._refusal()
        if refused is None:
            self._producers.add(producer)
            return
        self._producers.discard(producer)
        kind, quota = refused
        self._put(
            "producer_refusals",
            f"{SHOWN[kind]}_exceeded",
            {
                "topic": self._topic,
                "producer_id": record["producer_id"],
                "error": ERRORS[quota.policy],
                "quota_type": SHOWN[kind],
            },
        )

    def _producer_closed(self, record: Record) -> None:
        self._producers.discard((record["cnx_id"], record["producer_id"]))

    def _refusal(self) -> tuple[str, Quota] | None:
        if (
            self._unseen
            or not self.ledgers.has_state
            or self._topic.startswith("non-persistent://")
        ):
            return None
        size, time = self._quota(SIZE), self._quota(TIME)
        if time.limit > 0 and time.policy in HOLDS:
            self._refresh()
            timestamp = None if self.info is None else self.info.timestamp
        else:
            timestamp = None
        if size.policy in HOLDS and size.is_exceeded_size(self._backlog()):
            return SIZE, size
        if time.policy in HOLDS and time.is_exceeded_time(timestamp, self._now):
            return TIME, time
        return None

    # -- size and age ------------------------------------------------------------------------

    @property
    def _marks(self) -> dict[str, Position]:
        """Durable cursors and where they stand."""
        return {c.name: c.mark_delete for c in self.cursors.values() if c.durable}

    def _backlog(self) -> int:
        name = slowest(self._marks)
        return self.ledgers.backlog_bytes(None if name is None else self._marks[name])

    def _time_after(self, position: Position, precisely: bool = False) -> Timed | None:
        """Time of the first entry after a mark-delete, as far as it is known."""
        if precisely or self._precise:
            for cursor in sorted(self.cursors.values(), key=lambda c: c.name.encode()):
                if cursor.mark_delete == position and cursor.first is not None:
                    return cursor.first
            first = self.ledgers.first_after(position)
            sample = None if first is None else self.times.of(first)
            if sample is not None:
                return sample.time, sample.source
        close_ms = self.ledgers.close_of_oldest(position)
        return None if close_ms is None else (close_ms, "ledger_close")

    def _is_waited_for(self, marks: dict[str, Position]) -> bool:
        """Whether a subscription has anything left to acknowledge."""
        return any(
            self.cursors[name].unacknowledged(self.ledgers)
            for name in marks
            if self.cursors[name].kind not in ("deduplication", "replicator")
        )

    def _refresh(self) -> tuple[str, str]:
        """Section 4: bring the cached info up to date; answers state and source."""
        marks = self._marks
        name = slowest(marks)
        if name is None:
            self.info = None
            return "no_durable_cursor", "none"
        if not self._is_waited_for(marks):
            self.info = None
            return "no_backlog", "none"
        position, info = marks[name], self.info
        if (
            info is not None
            and info.position == position
            and (position[0] >= self.ledgers.ids[0] or info.version == self._version)
        ):
            self.info = Info(position, info.timestamp, name, self._version)
            return "known", "kept"
        found = self._time_after(position)
        if found is not None:
            self.info = Info(position, found[0], name, self._version)
            return "known", found[1]
        if self._params["age_reset"] == "reset":
            self.info = None
        return "no_estimate", "none" if self.info is None else "kept"

    def _age(self, quota: Quota) -> tuple[str, str]:
        """The age at a pass; answers state and source."""
        if self._params["age_without_quota"] == "always" or quota.limit > 0:
            return self._refresh()
        self.info = None
        state, _ = self._refresh()
        self.info = None
        return ("no_estimate" if state == "known" else state), "none"

    # -- the pass ----------------------------------------------------------------------------

    def _pass(self) -> None:
        if self._topic.startswith("non-persistent://"):
            return
        if self._policies.setting("backlogQuotaCheckEnabled", self._broker):
            if self.ledgers.has_state and not self._unseen:
                self._check()
            else:
                self._not_checked()
        marks = [c.mark_delete for c in self.cursors.values()]
        self.times.trim(self.ledgers.first_after(min(marks)) if marks else None)

    def _not_checked(self) -> None:
        self.info = None
        self._was_backlogged = False
        for cursor in self.cursors.values():
            cursor.was_behind = False

    def _check(self) -> None:
        size, time = self._quota(SIZE), self._quota(TIME)
        state, source = self._age(time)
        info, marks, now = self.info, self._marks, self._now
        backlog = self._backlog()
        over_size = size.is_exceeded_size(backlog)
        over_time = time.is_exceeded_time(None if info is None else info.timestamp, now)
        policy = size.policy if over_size else time.policy if over_time else None
        action = "none"
        if policy == EVICTS:
            action = "evict_size" if over_size else "evict_time"
        elif policy is not None:
            deduplicates = slowest(marks) == DEDUPLICATION
            action = "deduplication_snapshot" if deduplicates else "disconnect_producers"
        rule = "within_limits"
        if action == "deduplication_snapshot":
            rule = "deduplication_cursor"
        elif over_size and over_time:
            rule = "size_masks_time"
        elif over_size or over_time:
            rule = "size_exceeded" if over_size else "time_exceeded"
        if info is not None:
            age = age_of(now, info.timestamp)
        else:
            empty = state in ("no_backlog", "no_durable_cursor")
            age = 0 if empty and self._params["age_when_empty"] == "zero" else -1
        behind = any(self.cursors[name].unacknowledged(self.ledgers) for name in marks)
        is_backlogged = backlog > 0 or behind or over_size or over_time
        if is_backlogged or self._was_backlogged or self._params["check_rows"] == "all":
            self._put(
                "backlog_checks",
                rule,
                {
                    "topic": self._topic,
                    "pass_ms": now,
                    "backlog_bytes": backlog,
                    "limit_bytes": size.shown,
                    "size_usage": backlog / size.limit if size.limit > 0 else None,
                    "age_s": age,
                    "limit_s": time.shown,
                    "age_state": state,
                    "time_usage": None if info is None or time.limit <= 0 else age / time.limit,
                    "oldest_subscription": None if info is None else info.subscription,
                    "oldest_position": None if info is None else shown(info.position),
                    "oldest_timestamp_ms": None if info is None else info.timestamp,
                    "timestamp_source": source,
                    "exceeded_size": over_size,
                    "exceeded_time": over_time,
                    "limit_source_size": size.source,
                    "limit_source_time": time.source,
                    "action": action,
                    "retention_policy": policy,
                    "producers_disconnected": len(self._producers)
                    if action == "disconnect_producers"
                    else 0,
                    "ttl_s": self._policies.ttl_s(self._topic, self._broker) or None,
                },
            )
        self._was_backlogged = is_backlogged
        self._subscription_rows(rule, size, time)
        if action == "evict_size":
            durable = {name: self.cursors[name] for name in marks}
            self._evict(evict_size(self.ledgers, durable, size.limit), "size")
        elif action == "evict_time":
            self._evict(self._evict_time(time.limit), "time")

    # -- subscriptions -----------------------------------------------------------------------

    def _subscription_rows(self, rule: str, size: Quota, time: Quota) -> None:
        for cursor in sorted(self.cursors.values(), key=lambda c: c.name.encode()):
            at = cursor.mark_delete
            entries = cursor.unacknowledged(self.ledgers)
            backlog = self.ledgers.backlog_bytes(at)
            cursor.expired_before += cursor.expired or 0
            consumed = self.ledgers.deleted_entries + self.ledgers.entries - entries
            consumed -= cursor.expired_before
            cursor.history.append(Check(self._now, backlog, consumed, at))
            del cursor.history[: -self._params["forecast_checks"]]
            timestamp = self._timestamp_of(cursor, time) if entries else None
            is_behind = entries > 0 or backlog > 0
            has_news = bool(cursor.expired) or cursor.set_back is not None
            if is_behind or has_news or cursor.was_behind or self._params["check_rows"] == "all":
                age = None if timestamp is None else age_of(self._now, timestamp)
                self._put(
                    "backlog_subscriptions",
                    rule,
                    {
                        "topic": self._topic,
                        "pass_ms": self._now,
                        "subscription": cursor.name,
                        "durable": cursor.durable,
                        "mark_delete": shown(at),
                        "backlog_entries": entries,
                        "backlog_bytes": backlog,
                        "age_s": age,
                        **self._forecasts(cursor, size, time, timestamp),
                        "kind": cursor.kind,
                        "unacked_ranges": len(cursor.ranges),
                        "first_hole": shown(cursor.first_hole(self.ledgers)),
                        "set_back": cursor.set_back is not None,
                        "set_back_from": shown(cursor.set_back and cursor.set_back[0]),
                        "set_back_to": shown(cursor.set_back and cursor.set_back[1]),
                        "time_to_expiry_s": self._time_to_expiry(cursor, entries),
                        "expired_unread": cursor.expired,
                        "remarks": cursor.remarks,
                    },
                )
            cursor.was_behind, cursor.set_back = is_behind, None
            cursor.expired = None if cursor.broker_expired is None else 0

    def _expires(self, cursor: Cursor) -> bool:
        """Whether the messages of a cursor expire at all."""
        return cursor.durable and cursor.kind in ("subscription", "replicator")

    def _time_to_expiry(self, cursor: Cursor, entries: int) -> float | None:
        ttl_s = self._policies.ttl_s(self._topic, self._broker)
        if ttl_s == 0 or entries == 0 or not self._expires(cursor):
            return None
        found = self._time_after(cursor.mark_delete, True)
        if found is None:
            return None
        if self._now > found[0] + ttl_s * 1000:
            return 0.0
        return float(ttl_s - age_of(self._now, found[0])) if self._stands(cursor) else None

    @staticmethod
    def _stands(cursor: Cursor) -> bool:
        """Whether a mark-delete is that of the check before."""
        seen = cursor.history
        return len(seen) > 1 and seen[-2].mark_delete == seen[-1].mark_delete

    def _timestamp_of(self, cursor: Cursor, time: Quota) -> int | None:
        if cursor.kind == "replicator":
            return None
        if self._params["age_without_quota"] != "always" and time.limit <= 0:
            return None
        if self.info is not None and self.info.position == cursor.mark_delete:
            return self.info.timestamp
        found = self._time_after(cursor.mark_delete)
        return None if found is None else found[0]

    def _forecasts(self, cursor: Cursor, size: Quota, time: Quota, timestamp: int | None) -> Row:
        found: Row = dict.fromkeys(
            ("growth_rate", "drain_rate", "time_to_drain_s", "time_to_quota_s")
        )
        seen = cursor.history
        if len(seen) < 3:
            return found
        oldest, newest = seen[0], seen[-1]
        growth = growth_rate([(c.pass_ms, c.backlog_bytes) for c in seen])
        found["growth_rate"] = growth
        found["drain_rate"] = max(newest.consumed - oldest.consumed, 0) / (
            (newest.pass_ms - oldest.pass_ms) / 1000.0
        )
        if growth < 0:
            found["time_to_drain_s"] = newest.backlog_bytes / -growth
        if not cursor.durable:
            return found
        if not self._is_waited_for(self._marks):
            timestamp = None  # what is no subscription makes no topic old
        if size.is_exceeded_size(newest.backlog_bytes) or (
            time.is_exceeded_time(timestamp, self._now)
        ):
            found["time_to_quota_s"] = 0.0
            return found
        left: list[float] = []
        if growth > 0 and size.limit >= 0 and cursor.unacknowledged(self.ledgers):
            left.append((size.limit - newest.backlog_bytes) / growth)
        ttl_s = self._policies.ttl_s(self._topic, self._broker)
        never = ttl_s > 0 and ttl_s + self._policies.expiry_s(self._broker) <= time.limit
        never = (never and self._expires(cursor)) or cursor.kind == "deduplication"
        if time.limit > 0 and timestamp is not None and self._stands(cursor) and not never:
            left.append(max(float(time.limit - age_of(self._now, timestamp)), 0.0))
        found["time_to_quota_s"] = min(left, default=None)
        return found

    # -- evictions ---------------------------------------------------------------------------

    def _evict_time(self, limit_s: int) -> Eviction:
        marks = self._marks
        if not self._precise:
            return evict_time_estimated(self.ledgers, marks, limit_s, self._now)
        target = expires_older_than(limit_s)
        moves = []
        for cursor in sorted(self.cursors.values(), key=lambda c: c.name.encode()):
            if cursor.kind not in ("deduplication", "replicator") and target > 0:
                end = self.expired_to(cursor.mark_delete, target * 1000)
                end = cursor.moved_to(end, self.ledgers).mark_delete
                if end != cursor.mark_delete:
                    moves.append(Move(cursor.name, cursor.mark_delete, end))
        return Eviction("expired", moves or [_standing(marks)], None, None, target)

    def expired_to(
        self, mark_delete: Position, older_than_ms: int, precisely: bool = False
    ) -> Position:
        """Where a mark-delete comes to when entries beyond an age are expired, one by one until
        the first that is younger or of unknown age."""

        def is_old(time: int | None) -> bool:
            return time is not None and self._now > time + older_than_ms

        first = self.ledgers.first_after(mark_delete)
        known = None if first is None else self._time_after(mark_delete, precisely)
        if first is None or known is None or not is_old(known[0]):
            return mark_delete
        at: Position | None
        end, at = first, self.ledgers.first_after(first)
        while at is not None:
            sample, bound = self.times.of(at), self.times.next_position(at)
            if sample is not None:
                time: int | None = sample.time
            else:
                is_open = at[0] == self.ledgers.open_id
                time = None if is_open else self.ledgers.closed_at(at[0])
            if not is_old(time):
                break
            last = self.ledgers[at[0]].entries - 1
            if bound is not None and bound[0] == at[0]:
                last = min(last, bound[1] - 1)
            end = at[0], last
            at = self.ledgers.first_after(end)
        return end

    def _evict(self, done: Eviction, quota_type: str) -> None:
        before, ledgers = self._marks, self.ledgers
        after = before | {
            m.subscription: m.end for m in done.moves if m.subscription in before and m.end
        }
        skipped = [
            0
            if m.subscription is None or m.end is None
            else (cursor := self.cursors[m.subscription]).unacknowledged(ledgers)
            - cursor.moved_to(m.end, ledgers).unacknowledged(ledgers)
            for m in done.moves
        ]
        is_phantom = sum(skipped) == 0
        counts = self._params["eviction_count_rule"] == "every_call" or not is_phantom
        first, last = slowest(before), slowest(after)
        for i, (move, count) in enumerate(zip(done.moves, skipped, strict=True)):
            self._put(
                "backlog_evictions",
                done.rule,
                {
                    "topic": self._topic,
                    "quota_type": quota_type,
                    "subscription": move.subscription,
                    "from_position": shown(move.start),
                    "to_position": shown(move.end),
                    "entries_skipped": count,
                    "rounds": done.rounds,
                    "factor": move.factor,
                    "target_bytes": done.target_bytes,
                    "expire_older_than_s": done.expire_s,
                    "backlog_before": ledgers.backlog_bytes(
                        None if first is None else before[first]
                    ),
                    "backlog_after": ledgers.backlog_bytes(None if last is None else after[last]),
                    "phantom": is_phantom,
                    "count_delta": int(counts and i == 0),
                },
            )
        if self._params["apply_evictions"]:
            for move in done.moves:
                if move.subscription is not None and move.end != move.start:
                    assert move.end is not None
                    cursor = self.cursors[move.subscription]
                    cursor.evicted_to(move.end, ledgers)
                    self._version += cursor.durable


def growth_rate(values: Sequence[tuple[int, int]]) -> float:
    """Median slope per second between all pairs of (ms, value)."""
    return float(
        statistics.median(
            (later - value) / ((later_ms - ms) / 1000.0)
            for i, (ms, value) in enumerate(values)
            for later_ms, later in values[i + 1 :]
        )
    )


# -- whole traces ----------------------------------------------------------------------------


def keys_of(records: Iterable[Record]) -> list[Key]:
    """The keys of the records that this job reads."""
    found = {key_of(r) for r in records if r["event_type"] in OWN}
    return sorted(found, key=lambda key: (key[0], key[1] or ""))


def records_of(records: Iterable[Record], key: Key) -> list[Record]:
    """What one key reads, in order: its own records, every policy of its cluster and every
    broker start."""
    own, shared = [], []
    for r in records:
        if r["event_type"] in OWN and key_of(r) == key:
            own.append(r)
        elif r["event_type"] in SHARED and r["cluster"] == key[0]:
            shared.append(r)
    return sorted([*each_once(own, _level), *each_once(shared, _level)], key=_level)


def topic_for(key: Key, params: Mapping[str, Any], configured: Sequence[str] = ()) -> Topic:
    """What judges a key: a topic of Pulsar, or a partition of Kafka."""
    from tests.reference import groups

    cluster, name = key
    if name is None or groups.is_kafka(name):
        return groups.Partition(cluster, name, params, configured)
    return Topic(cluster, name, params, configured)


def judge(
    records: Sequence[Record],
    params: Mapping[str, Any],
    configured: Sequence[str] = (),
    until_ms: int | None = None,
) -> dict[str, list[Row]]:
    """Rows by table after all records, with every key's clock moved on to `until_ms`."""
    keys = keys_of(records)
    played = (
        play(topic_for(key, params, configured), records_of(records, key), until_ms) for key in keys
    )
    return gathered(TABLES, (topic.rows for topic in played))


# -- the view --------------------------------------------------------------------------------


def topic_stats(checks: Sequence[Row], age_reading: str = "live") -> list[Row]:
    """`backlog_topic_stats`: the stats fields of every topic and every partitioned topic; a topic
    beside its partitions, as only names can make one, is one of them."""
    newest = max((r["pass_ms"] for r in checks), default=0)
    latest: dict[Key, Row] = {}
    for row in sorted(checks, key=lambda r: r["pass_ms"]):
        latest[row["cluster"], row["topic"]] = row
    whole: dict[Key, list[Row]] = {}
    for (cluster, topic), row in latest.items():
        whole.setdefault((cluster, without_partition(topic)), []).append(row)
    found = {key: _stats(key, [row], newest, age_reading) for key, row in latest.items()}
    for key, rows in whole.items():
        rows.sort(key=lambda r: _partition(r["topic"]))
        found[key] = _stats(key, rows, newest, age_reading)
    return [found[key] for key in sorted(found)]


def _partition(topic: str) -> int:
    """The number of a partition, -1 for a topic that is none."""
    digits = topic.rpartition("-")[2]
    return -1 if without_partition(topic) == topic or len(digits) > 9 else int(digits)


def _stats(key: Key, rows: list[Row], newest: int, age_reading: str) -> Row:
    def age(row: Row) -> int:
        timestamp = row["oldest_timestamp_ms"]
        is_live = age_reading == "live" and timestamp is not None
        return age_of(newest, timestamp) if is_live else int(row["age_s"])

    limits = max(rows, key=lambda r: r["pass_ms"])
    known = [r for r in rows if r["oldest_timestamp_ms"] is not None]
    oldest = max(known or rows, key=age)
    return {
        "cluster": key[0],
        "topic": key[1],
        "backlogQuotaLimitSize": -1 if limits["limit_bytes"] is None else limits["limit_bytes"],
        "backlogQuotaLimitTime": -1 if limits["limit_s"] is None else limits["limit_s"],
        "oldestBacklogMessageAgeSeconds": age(oldest),
        "oldestBacklogMessageSubscriptionName": oldest["oldest_subscription"],
    }
