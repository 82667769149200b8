"""Chunked messages of one topic: what every consumer decides, when, and what is written."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.reference.order import Record, each_once
from tests.reference.wall import Key, gathered, play, wall_level
from tests.reference.words import words

Row = dict[str, Any]

READ = words(
    "consumer_created consumer_closed entry_added dispatch ack cursor_state cursor_deleted"
)
MOST_STORED = 10_000
"""Stored chunks of a topic after a window."""
TABLES = words("chunk_messages chunk_events chunk_state incomplete_messages chunk_topic_stats")
_LATER = words(
    "source_feed cluster broker ts_mono_ns cnx_id supports_throttle reports_pauses io_thread"
    " principal client_id producer_id producer_name sequence_id entry_bytes num_messages uuid"
    " chunk_id num_chunks total_chunk_bytes payload marker_ids publish_time_ms broker_time_ms"
    " subscription sub_type consumer ack_cumulative durable mark_delete"
)


# -- records ---------------------------------------------------------------------------------


def _level(record: Record) -> tuple[Any, ...]:
    return wall_level(record, ("seq", "partition", "ledger_id", "entry_id"), _LATER)


def position_of(record: Record) -> str:
    """`ledger:entry`."""
    return f"{record['ledger_id']}:{record['entry_id']}"


def murmur3_32(data: bytes) -> int:
    """MurmurHash3 x86 32-bit with seed 0, unsigned."""
    mask, h = 0xFFFFFFFF, 0

    def mixed(k: int) -> int:
        k = k * 0xCC9E2D51 & mask
        k = (k << 15 | k >> 17) & mask
        return k * 0x1B873593 & mask

    whole = len(data) // 4 * 4
    for i in range(0, whole, 4):
        h ^= mixed(int.from_bytes(data[i : i + 4], "little"))
        h = (h << 13 | h >> 19) & mask
        h = (h * 5 + 0xE6546B64) & mask
    if data[whole:]:
        h ^= mixed(int.from_bytes(data[whole:], "little"))
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & mask
    h = (h ^ h >> 13) * 0xC2B2AE35 & mask
    return h ^ h >> 16


# -- one consumer ----------------------------------------------------------------------------


@dataclass
class Chunk:
    """One chunk as delivered; `size` is None where neither payload nor entry size is known."""

    uuid: str
    chunk_id: int
    num_chunks: int
    position: str
    total_bytes: int
    size: int | None
    publish_time_ms: int | None = None
    payload: bytes | None = None
    producer_name: str | None = None
    sequence_id: int | None = None
    marker: str | None = None
    """Position of the marker with which the broker sends it."""

    @property
    def is_last(self) -> bool:
        """By its own count."""
        return self.chunk_id == self.num_chunks - 1


def chunk_of(record: Record) -> Chunk:
    """The chunk in a `dispatch`."""
    payload = record.get("payload")
    return Chunk(
        record["uuid"],
        record["chunk_id"],
        record["num_chunks"],
        position_of(record),
        record["total_chunk_bytes"],
        len(payload) if payload is not None else record.get("entry_bytes"),
        record.get("publish_time_ms"),
        payload,
        record.get("producer_name"),
        record.get("sequence_id"),
    )


def is_chunk(record: Record) -> bool:
    """A message counts as chunked only if it has more than one chunk."""
    return (record.get("num_chunks") or 0) > 1


@dataclass
class Context:
    """A message that is being assembled; `first` is the chunk that began it."""

    first: Chunk
    received_ms: int
    last: int = -1
    last_ms: int = 0
    buffered: int = 0
    sizes_known: bool = True
    ids: dict[int, str] = field(default_factory=dict)
    payloads: list[bytes | None] = field(default_factory=list)
    marker: str | None = None
    """The marker that brought its newest chunk."""

    @property
    def marker_ids(self) -> list[str]:
        """The marker as a list."""
        return [] if self.marker is None else [self.marker]

    @property
    def positions(self) -> list[str]:
        """All positions it keeps, by chunk id."""
        return [self.ids[i] for i in sorted(self.ids)]

    @property
    def last_chunk_id(self) -> int:
        """Chunk 0 also where it was the one that overflowed."""
        return max(self.last, 0)


@dataclass
class Decision:
    """What was decided about a chunk or a context; a row unless the outcome is `BUFFERED`."""

    outcome: str
    uuid: str
    chunk_id: int
    num_chunks: int
    position: str
    age_ms: int | None = None
    acks: list[str] = field(default_factory=list)
    tracked: list[str] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)
    defect: str | None = None
    message: Context | None = None

    @property
    def rule(self) -> str:
        """Outcome and the defect that shaped it."""
        return self.outcome if self.defect is None else f"{self.outcome}+{self.defect}"


@dataclass
class Answer:
    """The decisions about one chunk, in order, and the permits it returned."""

    decisions: list[Decision]
    permits: int

    @property
    def outcome(self) -> str:
        """What became of the chunk itself."""
        return self.decisions[-1].outcome

    @property
    def side_effects(self) -> list[str]:
        """What happened to other messages or to an earlier delivery of this one."""
        found = []
        for d in self.decisions:
            if d is not self.decisions[-1]:
                found.append(d.outcome)
            if d.orphaned:
                found.append("ORPHANED")
        return found

    @property
    def acks(self) -> list[str]:
        """Positions acknowledged."""
        return [p for d in self.decisions for p in d.acks]

    @property
    def tracked(self) -> list[str]:
        """Positions left to the tracker of unacknowledged messages."""
        return [p for d in self.decisions for p in d.tracked]

    @property
    def message(self) -> Context | None:
        """The completed message."""
        return self.decisions[-1].message


def fits(pattern: str, name: str) -> bool:
    """Whether a pattern, of which only `**` and `*` are special, matches a name; a pattern of a
    partitioned topic matches its partitions."""
    rest = name.removeprefix("persistent://") if "://" not in pattern else name
    parts = [re.escape(part) for part in pattern.split("**")]
    wild = ".*".join(part.replace(r"\*", "[^/]*") for part in parts)
    return re.fullmatch(wild + r"(-partition-\d+)?", rest) is not None


class Consumer:
    """The buffers of one consumer: sections 4 and 5."""

    def __init__(self, params: Mapping[str, Any], *names: str | None) -> None:
        """`names` are those of its topic, subscription and the consumer itself."""
        self._most: int = params["maxPendingChunkedMessage"]
        for one in params.get("consumers", ()):
            patterns = [one["topic"], one["subscription"], one["consumer"]]
            if all(fits(p, n or "") for p, n in zip(patterns, names, strict=True)):
                self._most = one["maxPendingChunkedMessage"]
        self._acks_evicted: bool = params["autoAckOldestChunkedMessageOnQueueFull"]
        self._expiry: int = params["expireTimeOfIncompleteChunkedMessageMillis"]
        self._defects = frozenset(params["defects"])
        self._loses = params.get("first_dup", "restart") == "lose"
        self.contexts: dict[str, Context] = {}
        self.fifo: list[str] = []
        self.counter = 0
        self.permits_lost = 0
        self.started_ms: int | None = None

    @property
    def leaked(self) -> int:
        """What the counter counts without a context."""
        return self.counter - len(self.contexts)

    @property
    def buffered_bytes(self) -> int:
        """Known bytes of all contexts."""
        return sum(c.buffered for c in self.contexts.values())

    def chunk(
        self,
        uuid: str,
        chunk_id: int,
        num_chunks: int,
        position: str,
        total_bytes: int,
        size: int | None,
        now_ms: int,
        publish_time_ms: int | None = None,
    ) -> Answer:
        """One chunk delivered."""
        return self.take(
            Chunk(uuid, chunk_id, num_chunks, position, total_bytes, size, publish_time_ms), now_ms
        )

    def emptied(self) -> Consumer:
        """The same consumer, of whose buffers nothing is known any more."""
        self.contexts, self.fifo, self.counter = {}, [], 0
        return self

    def take(self, chunk: Chunk, now: int, is_blind: bool = False) -> Answer:
        """One chunk delivered; its position was not acknowledged before. `is_blind`: a first chunk
        may have come that nobody saw."""
        if self.started_ms is None:
            self.started_ms = now
        decisions = self._decide(chunk, now, is_blind)
        permits = self._permits(chunk, decisions[-1].outcome)
        if permits == 0 and decisions[-1].outcome not in ("COMPLETE", "FIRST_UNSEEN"):
            self.permits_lost += 1
        return Answer(decisions, permits)

    def sweep(self, now_ms: int) -> list[Decision]:
        """One expiry pass."""
        found: list[Decision] = []
        if self._expiry <= 0:
            return found
        while self.fifo:
            context = self.contexts.get(self.fifo[0])
            if context is None and "B3" not in self._defects:
                self.fifo.pop(0)
                continue
            if context is None or now_ms <= context.received_ms + self._expiry:
                break
            self.fifo.pop(0)
            found.append(self._remove("EXPIRED", context, now_ms, acknowledge=True))
        return found

    def _decide(self, chunk: Chunk, now: int, is_blind: bool) -> list[Decision]:
        context = self.contexts.get(chunk.uuid)
        before: list[Decision] = []
        if chunk.chunk_id == 0:
            if context is not None and self._loses:
                return [self._gap(chunk, context, now)]
            if context is not None:
                before.append(self._restart(chunk, context, now))
            self.counter += 1
            if 0 < self._most < self.counter:
                before += self._evict(now)
            context = self.contexts[chunk.uuid] = Context(
                chunk, now, last_ms=now, marker=chunk.marker
            )
            self.fifo.append(chunk.uuid)
        if context is None and is_blind:
            return [self._about("FIRST_UNSEEN", chunk, None, now)]
        if context is None:
            return [self._no_first(chunk, now)]
        if chunk.chunk_id <= context.last:
            return [self._duplicate(chunk, context, now)]
        if chunk.chunk_id != context.last + 1:
            return [self._gap(chunk, context, now)]
        return [*before, self._append(chunk, context, now)]

    def _permits(self, chunk: Chunk, outcome: str) -> int:
        if not chunk.is_last:
            return 1
        if outcome in ("COMPLETE", "OVERFLOW_EXCEPTION", "COUNT_EXCEPTION", "FIRST_UNSEEN"):
            return 0
        if outcome.startswith("GIVEN_UP"):
            return 1
        return 0 if "B2" in self._defects else 1

    # -- chunk 0 ---------------------------------------------------------------------------------

    def _restart(self, chunk: Chunk, context: Context, now: int) -> Decision:
        redelivered = chunk.position in context.positions
        self._drop(chunk.uuid)
        other = [m for m in context.marker_ids if m != chunk.marker]
        return self._about(
            "RESTART_REDELIVERY" if redelivered else "RESTART_CORRUPTED",
            chunk,
            context,
            now,
            acks=[] if redelivered else context.positions + other,
            defect=self._has("B1"),
        )

    def _evict(self, now: int) -> list[Decision]:
        while self.fifo:
            context = self.contexts.get(self.fifo.pop(0))
            if context is not None:
                return [self._remove("EVICTED", context, now, self._acks_evicted)]
        return []

    def _remove(self, outcome: str, context: Context, now: int, acknowledge: bool) -> Decision:
        uuid, last = context.first.uuid, context.last_chunk_id
        del self.contexts[uuid]
        self.counter -= 1
        return Decision(
            outcome,
            uuid,
            last,
            context.first.num_chunks,
            context.ids[last],
            now - context.received_ms,
            acks=context.positions + context.marker_ids if acknowledge else [],
            tracked=[] if acknowledge else context.positions + context.marker_ids,
        )

    # -- out of order ----------------------------------------------------------------------------

    def _duplicate(self, chunk: Chunk, context: Context, now: int) -> Decision:
        same = chunk.position in context.positions
        return self._about(
            "DUP_SAME_ID" if same else "DUP_ACKED",
            chunk,
            context,
            now,
            acks=[] if same else [chunk.position],
            defect=self._b2(chunk),
        )

    def _gap(self, chunk: Chunk, context: Context, now: int) -> Decision:
        self._drop(chunk.uuid)
        ids = [p for p in context.positions if p != chunk.position] + context.marker_ids
        acks, tracked = self._by_age(chunk, now)
        hole = "B4" in self._defects
        return self._about(
            "GAP",
            chunk,
            context,
            now,
            acks=acks,
            tracked=tracked if hole else [*ids, *tracked],
            orphaned=ids if hole else [],
            defect=self._has("B4") or self._has("B1") or self._b2(chunk),
        )

    def _no_first(self, chunk: Chunk, now: int) -> Decision:
        acks, tracked = self._by_age(chunk, now)
        return self._about(
            "NO_FIRST_CHUNK", chunk, None, now, acks=acks, tracked=tracked, defect=self._b2(chunk)
        )

    def _by_age(self, chunk: Chunk, now: int) -> tuple[list[str], list[str]]:
        """The position as acknowledged or as tracked."""
        published = now if chunk.publish_time_ms is None else chunk.publish_time_ms
        if self._expiry > 0 and now > published + self._expiry:
            return [chunk.position], []
        return [], [chunk.position]

    # -- in order --------------------------------------------------------------------------------

    def _append(self, chunk: Chunk, context: Context, now: int) -> Decision:
        count = context.first.num_chunks
        if chunk.num_chunks != count and "B8" not in self._defects:
            return self._give_up("GIVEN_UP_COUNT", chunk, context, now)
        if chunk.chunk_id >= count:
            return self._about("COUNT_EXCEPTION", chunk, context, now, defect="B8")
        known = context.sizes_known and chunk.size is not None
        if known and context.buffered + (chunk.size or 0) > context.first.total_bytes:
            if "B7" not in self._defects:
                return self._give_up("GIVEN_UP_OVERFLOW", chunk, context, now)
            context.ids[chunk.chunk_id] = chunk.position
            return self._about("OVERFLOW_EXCEPTION", chunk, context, now, defect="B7")
        context.ids[chunk.chunk_id] = chunk.position
        context.sizes_known = known
        context.buffered += chunk.size or 0
        context.payloads.append(chunk.payload)
        context.last, context.last_ms = chunk.chunk_id, now
        context.marker = chunk.marker
        if not chunk.is_last:
            return self._about("BUFFERED", chunk, context, now)
        if len(context.ids) < count:
            self._drop(chunk.uuid)
            return self._about("COUNT_EXCEPTION", chunk, context, now, defect="B8")
        del self.contexts[chunk.uuid]
        self.counter -= 1
        done = self._about("COMPLETE", chunk, context, now)
        done.message = context
        return done

    def _give_up(self, outcome: str, chunk: Chunk, context: Context, now: int) -> Decision:
        if "B1" in self._defects:
            self.counter -= 1
        self._drop(chunk.uuid)
        ids = [p for p in context.positions if p != chunk.position]
        acks = [*ids, chunk.position, *context.marker_ids]
        return self._about(outcome, chunk, context, now, acks=acks)

    # -- common ----------------------------------------------------------------------------------

    def _drop(self, uuid: str) -> None:
        """A context goes without having been completed, evicted or expired."""
        del self.contexts[uuid]
        if "B1" not in self._defects:
            self.counter -= 1
            found = [i for i, u in enumerate(self.fifo) if u == uuid]
            if found:
                del self.fifo[found[-1]]

    def _has(self, defect: str) -> str | None:
        return defect if defect in self._defects else None

    def _b2(self, chunk: Chunk) -> str | None:
        return self._has("B2") if chunk.is_last else None

    @staticmethod
    def _about(
        outcome: str, chunk: Chunk, context: Context | None, now: int, **more: Any
    ) -> Decision:
        return Decision(
            outcome,
            chunk.uuid,
            chunk.chunk_id,
            chunk.num_chunks,
            chunk.position,
            None if context is None else now - context.received_ms,
            **more,
        )


# -- one topic -------------------------------------------------------------------------------


@dataclass
class Timer:
    """Something that happens strictly after `due`; `start` and `number` order equal ones."""

    due: int
    start: int
    number: int
    what: Callable[[], None]
    period: int | None = None


@dataclass
class Seat:
    """A consumer of a subscription, as the broker knows it."""

    name: str | None
    judge: Consumer
    is_open: bool = False
    opened: tuple[int, int] = (0, 0)
    last_chunk_ms: int | None = None
    began: int | None = None
    """Number of its first chunk."""
    in_window: bool = False
    expiry_pass: Timer | None = None
    vanishing: Timer | None = None


@dataclass
class Held:
    """A chunk that the broker has skipped, with the time and number of its dispatch."""

    record: Record
    since: int
    number: int
    used: int
    """When it was skipped or a marker brought it last."""
    marker: str | None = None
    """The marker that brought it last."""


Place = tuple[int, int]
"""Ledger and entry."""


@dataclass
class Stored:
    """A chunk that the broker has stored, or that a stopped subscription did not deliver."""

    at: Place
    before: Place | None
    """The entry before it, where one was seen."""
    chunk_id: int
    num_chunks: int
    since: int
    size: int
    sent_to: set[str] = field(default_factory=set)
    """Subscriptions to which it was delivered and that will not get it again."""

    @property
    def is_last(self) -> bool:
        """By its own count."""
        return self.chunk_id == self.num_chunks - 1


@dataclass
class Letter:
    """A large message of which chunks are stored."""

    record: Record
    """Of the chunk that came first."""
    chunks: list[Stored] = field(default_factory=list)


@dataclass
class Subscription:
    """What is known of one subscription."""

    name: str
    sub_type: str | None = None
    seats: dict[str | None, Seat] = field(default_factory=dict)
    bound: dict[str, tuple[str, int]] = field(default_factory=dict)
    """uuid -> consumer and time of the last use."""
    stalled: bool = False
    acked: set[str] = field(default_factory=set)
    acked_up_to: tuple[int, int] = (-1, -1)
    last_chunk_ms: int | None = None
    held: dict[str, Held] = field(default_factory=dict)
    """Skipped chunks by position; the marker brings them at each of its deliveries."""
    mark: Place | None = None
    told: Place | None = None
    """Mark-delete, and as a cursor_state said it last."""
    newest_sent: Place | None = None
    sent_ms: int | None = None
    consumers: int | None = None
    """Open consumers; None before one was seen to come or go."""
    stopped_at: Place | None = None
    tells_acks: bool = False

    @property
    def may_stall(self) -> bool:
        """Only shared subscriptions do; of an unknown type it may be one."""
        return self.sub_type == "shared" or (self.sub_type is None and self.mark is not None)


@dataclass
class Window:
    """Sums of one window."""

    start: int
    chunks: int = 0
    chunk_bytes: int = 0
    firsts: int = 0
    producers: set[str] = field(default_factory=set)
    delivered: bool = False
    began_live: bool = False
    max_contexts: int = 0


class Topic(Key):
    """One key: a topic of a cluster, its clock, timers and windows."""

    def __init__(self, cluster: str, topic: str, params: Mapping[str, Any]) -> None:
        super().__init__(cluster, TABLES)
        self._holds = 0
        self.subscriptions: dict[str, Subscription] = {}
        self._topic, self._params = topic, params
        self._expiry: int = params["expireTimeOfIncompleteChunkedMessageMillis"]
        self._idle: int = params["idle_state_ms"]
        self._window_ms: int = params["stats_window_ms"]
        self._timers: list[Timer] = []
        self._window: Window | None = None
        self._count = 0
        self._letters: list[Letter] = []
        """Stored messages in the order in which they came."""
        self._newest: Place | None = None
        self._behind = 0
        self._gaps: dict[str, int] = {}
        """When each broker was out of sight last (ms)."""

    # -- time --------------------------------------------------------------------------------

    def advance(self, to: int, following: Record | None = None) -> None:
        """Fire what is due before `to` and write the windows that end by then."""
        self._next, self._from_record = following, False
        while True:
            timer = min(self._timers, key=lambda t: (t.due, -t.start, t.number), default=None)
            if timer is not None and timer.due >= to:
                timer = None
            end = None if self._window is None else self._window.start + self._window_ms
            if end is not None and end <= to and (timer is None or end <= timer.due):
                self._now = end
                self._end_window(end)
            elif timer is not None:
                self._now = timer.due
                if timer.period is None:
                    self._cancel(timer)
                else:
                    timer.due += timer.period
                timer.what()
            else:
                break

    def take(self, record: Record) -> None:
        """Judge a record at its time, to which the topic has been advanced."""
        kind = record["event_type"]
        if kind == "gap":
            self._lose_sight(record)
            return
        self._last, self._from_record, self._now = record, True, record["ts_wall_ms"]
        if kind == "cursor_state":
            self._cursor(record)
            return
        if kind == "cursor_deleted":
            self._cursor_deleted(record)
            return
        if self._window is None:
            self._window = Window(self._now // self._window_ms * self._window_ms)
        if kind == "entry_added":
            self._added(record)
        elif kind == "ack":
            self._ack(record)
        elif kind == "consumer_created":
            s = self._subscription(record)
            s.sub_type = record.get("sub_type") or s.sub_type
            s.consumers = (s.consumers or 0) + 1
            self._open(s, record.get("consumer"))
        elif kind == "consumer_closed":
            self._close(record)
        elif kind == "dispatch":
            self._dispatch(record)

    def _set_timer(self, what: Callable[[], None], period: int | None) -> Timer:
        self._count += 1
        timer = Timer(self._now + self._expiry, self._now, self._count, what, period)
        self._timers.append(timer)
        return timer

    def _cancel(self, timer: Timer | None) -> None:
        self._timers = [t for t in self._timers if t is not timer]

    # -- consumers ---------------------------------------------------------------------------

    # -- gaps --------------------------------------------------------------------------------

    @property
    def _is_blind(self) -> bool:
        """Whether the first chunk of a message may have come while nobody looked."""
        ended = self._gaps.get(self._last["broker"]) if self._last is not None else None
        life = 2 * self._expiry if self._expiry > 0 else self._idle
        return ended is not None and self._now < ended + life

    def _lose_sight(self, gap: Record) -> None:
        """A gap of a broker, to whose time the topic has been advanced."""
        self._gaps[gap["broker"]] = self._now = gap["ts_wall_ms"]
        if self._last is None or self._last["broker"] != gap["broker"]:
            return
        self._from_record = False
        seats = [
            (seat.began or 0, s, seat)
            for s in self.subscriptions.values()
            for seat in s.seats.values()
        ]
        for _, s, seat in sorted(seats, key=lambda found: found[0]):
            contexts, seat.judge = seat.judge.contexts, seat.judge.emptied()
            for context in contexts.values():
                last = context.last_chunk_id
                self._event(
                    s,
                    seat,
                    seat.name,
                    Decision(
                        "LOST_TO_SIGHT",
                        context.first.uuid,
                        last,
                        context.first.num_chunks,
                        context.ids[last],
                        self._now - context.received_ms,
                    ),
                )
        held = [
            (held.number, s, position, held)
            for s in self.subscriptions.values()
            for position, held in s.held.items()
        ]
        for _, s, position, one in sorted(held, key=lambda found: found[0]):
            record = one.record
            if not self._is_acked(s, position):
                self._event(
                    s,
                    None,
                    None,
                    Decision(
                        "LOST_TO_SIGHT",
                        record["uuid"],
                        record["chunk_id"],
                        record["num_chunks"],
                        position,
                        self._now - one.since,
                    ),
                )
        for s in self.subscriptions.values():
            s.bound, s.held, s.newest_sent = {}, {}, None
        self._letters, self._newest = [], None

    def _subscription(self, record: Record) -> Subscription:
        name = record["subscription"]
        return self.subscriptions.setdefault(name, Subscription(name))

    def _consumer(self, s: Subscription, name: str | None) -> Consumer:
        return Consumer(self._params, self._topic, s.name, name)

    def _open(self, s: Subscription, name: str | None) -> Seat:
        seat = s.seats.setdefault(name, Seat(name, self._consumer(s, name)))
        if not seat.is_open:
            self._count += 1
            seat.is_open, seat.opened = True, (self._now, self._count)
            self._cancel(seat.vanishing)
        return seat

    def _close(self, record: Record) -> None:
        s = self.subscriptions.get(record["subscription"])
        if s is not None:
            s.consumers = max((s.consumers or 0) - 1, 0)
            self._sends_again(s)
            if s.consumers == 0:
                s.newest_sent = None
        seat = s.seats.get(record.get("consumer")) if s is not None else None
        if s is None or seat is None or not seat.is_open:
            return
        seat.is_open = False
        s.bound = {u: (c, at) for u, (c, at) in s.bound.items() if c != seat.name}
        if self._expiry <= 0:
            self._vanish(s, seat)
        else:
            seat.vanishing = self._set_timer(lambda: self._vanish(s, seat), None)

    def _vanish(self, s: Subscription, seat: Seat) -> None:
        self._cancel(seat.expiry_pass)
        del s.seats[seat.name]
        for context in seat.judge.contexts.values():
            last = context.last_chunk_id
            self._event(
                s,
                None,
                seat.name,
                Decision(
                    "ORPHANED",
                    context.first.uuid,
                    last,
                    context.first.num_chunks,
                    context.ids[last],
                    self._now - context.received_ms,
                    orphaned=context.positions + context.marker_ids,
                ),
            )

    def _pass(self, s: Subscription, seat: Seat) -> None:
        if seat.is_open:
            for decision in seat.judge.sweep(self._now):
                self._event(s, seat, seat.name, decision)

    # -- acknowledgements --------------------------------------------------------------------

    def _ack(self, record: Record) -> None:
        s = self.subscriptions.get(record["subscription"])
        if s is None:
            return
        at = record["ledger_id"], record["entry_id"]
        cumulative = bool(record.get("ack_cumulative"))
        self._goes_on(s, at, cumulative)
        if s.mark is not None and (cumulative or at == (s.mark[0], s.mark[1] + 1)):
            self._move_mark(s, at)
        if s.last_chunk_ms is None or self._now - s.last_chunk_ms >= self._idle:
            return
        s.tells_acks = True
        if cumulative:
            s.acked_up_to = max(s.acked_up_to, at)
        else:
            s.acked.add(position_of(record))
        if s.mark is not None:
            self._move_mark(s, s.mark)
        self._letters = [
            letter
            for letter in self._letters
            if all(c.at != at for c in letter.chunks) or self._is_waited_for(letter)
        ]
        if self._params["shared_mode"] == "marker":
            s.held = {
                position: held
                for position, held in s.held.items()
                if held.marker is None or not _covers(at, cumulative, held.marker)
            }

    @staticmethod
    def _is_acked(s: Subscription, position: str) -> bool:
        ledger, entry = map(int, position.split(":"))
        return position in s.acked or (ledger, entry) <= s.acked_up_to

    # -- stored messages ---------------------------------------------------------------------

    @property
    def _stalls(self) -> bool:
        params = self._params
        return params["shared_mode"] == "pin" and params["shared_orphan"] == "stall"

    @property
    def _patience(self) -> int:
        """How long a stored message may wait."""
        return self._expiry if self._expiry > 0 else self._window_ms

    def _cursor(self, record: Record) -> None:
        if record.get("mark_delete") is None or "://" not in self._topic:
            return
        s = self._subscription(record)
        ledger, entry = map(int, record["mark_delete"].split(":"))
        at = ledger, entry
        if s.told is not None and at < s.told:
            s.mark, s.newest_sent, s.stalled = at, None, False
            s.acked, s.acked_up_to = set(), (-1, -1)
            self._sends_again(s)
        else:
            self._move_mark(s, at)
        s.told = at
        self._goes_on(s, at, True)

    def _cursor_deleted(self, record: Record) -> None:
        s = self.subscriptions.get(record["subscription"])
        if s is None:
            return
        s.mark = s.told = s.newest_sent = s.sent_ms = s.consumers = s.sub_type = None
        s.stalled = False
        self._sends_again(s)

    @staticmethod
    def _goes_on(s: Subscription, at: Place, cumulative: bool) -> None:
        if s.stopped_at is not None and (at == s.stopped_at or (cumulative and s.stopped_at < at)):
            s.stalled = False

    def _move_mark(self, s: Subscription, at: Place) -> None:
        """Forward only, and past what has been acknowledged one by one."""
        s.mark = at if s.mark is None else max(s.mark, at)
        while f"{s.mark[0]}:{s.mark[1] + 1}" in s.acked:
            s.mark = s.mark[0], s.mark[1] + 1

    def _sends_again(self, s: Subscription) -> None:
        for letter in self._letters:
            for chunk in letter.chunks:
                chunk.sent_to.discard(s.name)

    def _has(self, s: Subscription, at: Place) -> bool:
        """Whether a subscription has acknowledged a position."""
        return (s.mark is not None and at <= s.mark) or self._is_acked(s, f"{at[0]}:{at[1]}")

    def _is_waited_for(self, letter: Letter) -> bool:
        for s in self.subscriptions.values():
            tells = s.tells_acks or s.mark is not None
            for c in letter.chunks if s.may_stall else ():
                is_young = self._window is not None and c.since >= self._window.start
                known = tells or s.name not in c.sent_to or is_young
                if known and not self._has(s, c.at):
                    return True
        return False

    def _keep(self, record: Record, size: int | None) -> None:
        at = record["ledger_id"], record["entry_id"]
        if any(c.at == at for letter in self._letters for c in letter.chunks):
            return
        same = [x for x in self._letters if x.record["uuid"] == record["uuid"]]
        if not same or record["chunk_id"] == 0:
            same = [Letter(record)]
            self._letters += same
        same[-1].chunks.append(
            Stored(
                at,
                self._newest,
                record["chunk_id"],
                record["num_chunks"],
                self._now,
                size or 0,
                {
                    s.name
                    for s in self.subscriptions.values()
                    if s.may_stall and s.newest_sent is not None and at <= s.newest_sent
                },
            )
        )

    def _sent(self, s: Subscription, record: Record) -> None:
        at = record["ledger_id"], record["entry_id"]
        s.sent_ms = self._now
        s.newest_sent = at if s.newest_sent is None else max(s.newest_sent, at)
        for letter in list(self._letters) if is_chunk(record) else []:
            for chunk in letter.chunks:
                if chunk.at == at:
                    chunk.sent_to.add(s.name)

    def _stopped_at(self, s: Subscription) -> Stored | None:
        """The chunk at which a shared subscription stands for good."""
        if s.sub_type != "shared" or s.consumers == 0:
            return None
        if s.sent_ms is not None and self._now - s.sent_ms <= self._patience:
            return None
        every = [
            (c, letter) for letter in self._letters for c in letter.chunks if not self._has(s, c.at)
        ]
        if s.stalled:
            every = [pair for pair in every if pair[0].at == s.stopped_at]
        if not every:
            return None
        head, letter = min(every, key=lambda pair: pair[0].at)
        left = [c for c in letter.chunks if not self._has(s, c.at)]
        if self._now - head.since <= self._patience:
            return None
        if head.chunk_id == 0 or any(c.at < head.at or c.chunk_id < head.chunk_id for c in left):
            return None if s.stalled else self._handed_back(s, head, letter)
        if s.stalled:
            return head
        if s.name in head.sent_to:
            return None
        if s.mark is None:
            known = any(c.chunk_id == 0 and self._has(s, c.at) for c in letter.chunks)
            return head if known else None
        return head if self._stands_at(s.mark, head) else None

    @staticmethod
    def _stands_at(mark: Place, head: Stored) -> bool:
        """Whether a mark-delete is directly before a chunk."""
        next_of_ledger = (mark[0], mark[1] + 1) == head.at
        next_ledger = (
            mark[0] != head.at[0]
            and head.at[1] == 0
            and (head.before is None or head.before <= mark)
        )
        return next_of_ledger or next_ledger

    def _handed_back(self, s: Subscription, head: Stored, letter: Letter) -> Stored | None:
        """The last chunk of a message that was sent whole and is not acknowledged, at mark-delete,
        while others wait: a client that hands it back asks for that chunk alone."""
        last = [c for c in letter.chunks if c.is_last and not self._has(s, c.at)]
        if s.mark is None or not self._stands_at(s.mark, head) or not last:
            return None
        if any(s.name not in c.sent_to for c in letter.chunks):
            return None
        others = (x for x in self._letters if x is not letter)
        return last[-1] if any(self._waits(s, x) for x in others) else None

    def _waits(self, s: Subscription, letter: Letter) -> bool:
        """Whether a message has been whole for a time and its last chunk was not sent."""
        return any(
            c.is_last
            and s.name not in c.sent_to
            and self._now - c.since > self._patience
            and not self._has(s, c.at)
            for c in letter.chunks
        )

    def _stalled_rows(self, shown: Row) -> int:
        n = 0
        for s in sorted(self.subscriptions.values(), key=lambda s: s.name.encode()):
            head = self._stopped_at(s)
            for letter in self._letters if head is not None else ():
                assert head is not None
                left = [c for c in letter.chunks if not self._has(s, c.at)]
                stands = any(c is head for c in left)
                if stands:
                    left = [c for c in left if c.chunk_id >= head.chunk_id]
                if stands or self._waits(s, letter):
                    self._stalled_row(s, letter, left, head, shown)
                    n += 1
        return n

    def _forget_stored(self, is_stalled: bool) -> None:
        self._letters = [letter for letter in self._letters if self._is_waited_for(letter)]
        while sum(len(letter.chunks) for letter in self._letters) > MOST_STORED:
            del self._letters[-1 if is_stalled else 0]

    # -- deliveries --------------------------------------------------------------------------

    def _added(self, record: Record) -> None:
        assert self._window is not None
        if (
            is_chunk(record)
            and self._stalls
            and any(s.may_stall for s in self.subscriptions.values())
        ):
            self._keep(record, record["entry_bytes"])
        self._newest = record["ledger_id"], record["entry_id"]
        if not is_chunk(record):
            return
        w = self._window
        w.chunks += 1
        w.chunk_bytes += record["entry_bytes"]
        w.firsts += record["chunk_id"] == 0
        if record.get("producer_name") is not None:
            w.producers.add(record["producer_name"])

    def _dispatch(self, record: Record) -> None:
        known = self.subscriptions.get(record["subscription"])
        sub_type = record.get("sub_type") or (known.sub_type if known is not None else None)
        mode = self._params["shared_mode"] if sub_type == "shared" else None
        is_marker = mode == "marker" and bool(record.get("marker_ids"))
        if sub_type is not None:
            self._subscription(record).sub_type = sub_type
        if not is_chunk(record) and not is_marker:
            known = self.subscriptions.get(record["subscription"])
            if known is not None and self._stalls and known.may_stall and not known.stalled:
                self._sent(known, record)
            return
        s = self._subscription(record)
        seat = self._open(s, record.get("consumer"))
        if s.last_chunk_ms is not None and self._now - s.last_chunk_ms >= self._idle:
            s.acked, s.acked_up_to = set(), (-1, -1)
        s.last_chunk_ms = self._now
        if is_marker:
            self._play_marker(s, seat, record)
            return
        chunk = chunk_of(record)
        if mode == "marker" and not self._is_acked(s, chunk.position):
            before = s.held.pop(chunk.position, None)
            self._holds += 1
            s.held[chunk.position] = Held(
                record, self._now, self._holds, self._now, None if before is None else before.marker
            )
            return
        if mode == "marker":
            self._deliver(s, seat, chunk, [])
            return
        if s.stalled and mode is not None:
            self._orphan(s, seat, chunk, [], record)
            return
        if mode is not None:
            name = self._route(s, seat, chunk, mode)
            if name is not None:
                if self._stalls:
                    self._sent(s, record)
                self._deliver(s, s.seats[name], chunk, [])
                return
            orphan = self._params["shared_orphan"]
            if orphan == "dispatch":
                self._deliver(s, seat, chunk, [self._orphaned(chunk, [])])
                return
            if orphan == "stall":
                s.stalled, s.stopped_at = True, (record["ledger_id"], record["entry_id"])
            acks = [chunk.position] if orphan == "ack_skip" else []
            self._orphan(s, seat, chunk, acks, record)
            return
        self._deliver(s, seat, chunk, [])

    def _play_marker(self, s: Subscription, seat: Seat, record: Record) -> None:
        """The broker reads what the marker lists and sends it with the marker, in that order."""
        marker = position_of(record)
        if self._is_acked(s, marker):
            return
        for position in record["marker_ids"]:
            held = s.held.get(position)
            if held is not None:
                held.marker, held.used = marker, self._now
                self._deliver(s, seat, replace(chunk_of(held.record), marker=marker), [])

    def _route(self, s: Subscription, seat: Seat, chunk: Chunk, mode: str) -> str | None:
        """The consumer that a shared subscription sends a chunk to; None for an orphan."""
        bound = s.bound.get(chunk.uuid)
        name: str | None = None
        if bound is not None and self._now - bound[1] < self._idle:
            name = bound[0]
        elif mode == "hash":
            there = sorted((c for c in s.seats.values() if c.is_open), key=lambda c: c.opened)
            name = there[murmur3_32(chunk.uuid.encode()) % len(there)].name
        elif chunk.chunk_id == 0 or (mode == "pin" and self._is_blind):
            name = seat.name
        if name is not None:
            s.bound[chunk.uuid] = (name, self._now)
        if chunk.is_last:
            s.bound.pop(chunk.uuid, None)
        return name

    @staticmethod
    def _orphaned(chunk: Chunk, acks: list[str]) -> Decision:
        return Decision(
            "SHARED_ORPHAN", chunk.uuid, chunk.chunk_id, chunk.num_chunks, chunk.position, acks=acks
        )

    def _orphan(
        self, s: Subscription, seat: Seat, chunk: Chunk, acks: list[str], record: Record
    ) -> None:
        self._event(s, seat, seat.name, self._orphaned(chunk, acks))
        if self._stalls:
            self._keep(record, chunk.size)

    def _deliver(
        self, s: Subscription, seat: Seat, chunk: Chunk, before: Sequence[Decision]
    ) -> None:
        """`before` holds what the broker decided about the chunk."""
        assert self._window is not None
        now, rested = self._now, seat.last_chunk_ms
        new_again = rested is not None and now - rested >= self._idle
        if new_again and not seat.judge.contexts and seat.judge.counter == 0:
            self._cancel(seat.expiry_pass)
            seat.judge, seat.expiry_pass, seat.began = self._consumer(s, seat.name), None, None
        seat.last_chunk_ms, seat.in_window, self._window.delivered = now, True, True
        judge = seat.judge
        if self._is_acked(s, chunk.position):
            decisions = [
                Decision(
                    "ALREADY_ACKED", chunk.uuid, chunk.chunk_id, chunk.num_chunks, chunk.position
                )
            ]
            permits = 1
        else:
            if seat.began is None:
                self._count += 1
                seat.began = self._count
            answer = judge.take(chunk, now, self._is_blind)
            decisions, permits = answer.decisions, answer.permits
            if seat.expiry_pass is None and self._expiry > 0:
                seat.expiry_pass = self._set_timer(lambda: self._pass(s, seat), self._expiry)
        self._window.max_contexts = max(self._window.max_contexts, len(judge.contexts))
        shown = [*before, *[d for d in decisions if d.outcome != "BUFFERED"]]
        for d in shown:
            self._event(s, seat, seat.name, d, permits if d is shown[-1] else 0)
        if decisions[-1].message is not None:
            self._message(s, seat, chunk, decisions[-1].message)

    # -- windows -----------------------------------------------------------------------------

    def _end_window(self, end: int) -> None:
        assert self._window is not None
        w, live, busy = self._window, 0, False
        shown = {"window_start_ms": w.start, "window_ms": self._window_ms}
        in_order_of_names = sorted(self.subscriptions.values(), key=lambda s: s.name.encode())
        for s in in_order_of_names:
            for seat in sorted(s.seats.values(), key=lambda c: (c.name or "").encode()):
                contexts = seat.judge.contexts
                live = max(live, len(contexts))
                level = bool(contexts) or seat.judge.counter > 0
                if level or seat.in_window:
                    self._state_row(s, seat, shown)
                for context in contexts.values():
                    self._incomplete_row(s, seat, context, shown)
                seat.in_window = False
                busy = busy or level
        self._forget_held()
        behind = self._stalled_rows(shown)
        self._forget_stored(behind > 0)
        busy = busy or any(s.held for s in in_order_of_names) or bool(self._letters) or behind > 0
        stalled, self._behind = self._behind or behind, behind
        if w.chunks or w.delivered or w.began_live or live or stalled:
            self._put(
                "chunk_topic_stats",
                "window",
                {
                    **shown,
                    "topic": self._topic,
                    "chunks": w.chunks,
                    "chunk_bytes": w.chunk_bytes,
                    "chunked_message_rate": w.firsts / (self._window_ms / 1000),
                    "msg_chunk_published": w.chunks > 0,
                    "producers": len(w.producers),
                    "max_contexts": w.max_contexts,
                },
            )
        self._window = Window(end, began_live=live > 0, max_contexts=live) if busy else None

    def _forget_held(self) -> None:
        """What no marker has brought for idle_state_ms."""
        old = [
            (held.number, s, position, held)
            for s in self.subscriptions.values()
            for position, held in s.held.items()
            if self._now - held.used >= self._idle
        ]
        for _, s, position, held in sorted(old, key=lambda found: found[0]):
            del s.held[position]
            if self._is_acked(s, position):
                continue
            record = held.record
            self._event(
                s,
                None,
                None,
                Decision(
                    "ORPHANED",
                    record["uuid"],
                    record["chunk_id"],
                    record["num_chunks"],
                    position,
                    self._now - held.since,
                    orphaned=[position],
                ),
            )

    # -- rows --------------------------------------------------------------------------------

    def _event(
        self,
        s: Subscription,
        seat: Seat | None,
        consumer: str | None,
        d: Decision,
        permits: int = 0,
    ) -> None:
        judge = seat.judge if seat is not None else None
        self._put(
            "chunk_events",
            d.rule,
            {
                "topic": self._topic,
                "subscription": s.name,
                "consumer": consumer,
                "uuid": d.uuid,
                "chunk_id": d.chunk_id,
                "num_chunks": d.num_chunks,
                "position": d.position,
                "outcome": d.outcome,
                "acks": d.acks,
                "tracked": d.tracked,
                "orphaned": d.orphaned,
                "permits": permits,
                "counter": judge.counter if judge else 0,
                "contexts": len(judge.contexts) if judge else 0,
                "leaked": judge.leaked if judge else 0,
                "buffered_bytes": judge.buffered_bytes if judge else 0,
                "age_ms": d.age_ms,
            },
        )

    def _message(self, s: Subscription, seat: Seat, chunk: Chunk, done: Context) -> None:
        first, positions = done.first, done.positions
        large = first.total_bytes > self._params["max_payload_bytes"]
        if large:
            integrity = "too_large"
        elif not done.sizes_known:
            integrity = "unknown"
        else:
            integrity = "exact" if done.buffered == first.total_bytes else "short"
        checksum = None
        payloads = [p for p in done.payloads if p is not None]
        if not large and len(payloads) == len(done.payloads):
            checksum = zlib.crc32(b"".join(payloads))
        self._put(
            "chunk_messages",
            "COMPLETE",
            {
                "topic": self._topic,
                "subscription": s.name,
                "consumer": seat.name,
                "uuid": chunk.uuid,
                "producer_name": first.producer_name,
                "sequence_id": first.sequence_id,
                "num_chunks": first.num_chunks,
                "first_position": positions[0],
                "last_position": positions[-1],
                "positions": positions,
                "declared_bytes": first.total_bytes,
                "assembled_bytes": done.buffered if done.sizes_known else None,
                "first_chunk_ms": done.received_ms,
                "complete_ms": self._now,
                "assembly_ms": self._now - done.received_ms,
                "publish_time_ms": first.publish_time_ms,
                "checksum": checksum,
                "integrity": integrity,
                "marker_position": done.marker,
            },
        )

    def _state_row(self, s: Subscription, seat: Seat, shown: Row) -> None:
        judge = seat.judge
        contexts = judge.contexts.values()
        self._put(
            "chunk_state",
            "window",
            {
                **shown,
                "topic": self._topic,
                "subscription": s.name,
                "consumer": seat.name,
                "contexts": len(contexts),
                "counter": judge.counter,
                "leaked": judge.leaked,
                "buffered_bytes": judge.buffered_bytes,
                "declared_bytes": sum(c.first.total_bytes for c in contexts),
                "oldest_age_ms": max((self._now - c.received_ms for c in contexts), default=None),
                "fifo_length": len(judge.fifo),
                "permits_lost": judge.permits_lost,
            },
        )

    def _incomplete_row(self, s: Subscription, seat: Seat, c: Context, shown: Row) -> None:
        self._put(
            "incomplete_messages",
            "window",
            {
                **shown,
                "topic": self._topic,
                "subscription": s.name,
                "consumer": seat.name,
                "state": "assembling",
                "uuid": c.first.uuid,
                "producer_name": c.first.producer_name,
                "sequence_id": c.first.sequence_id,
                "num_chunks": c.first.num_chunks,
                "next_chunk_id": c.last + 1,
                "first_position": c.ids[0],
                "last_position": c.ids[c.last_chunk_id],
                "first_chunk_ms": c.received_ms,
                "last_chunk_ms": c.last_ms,
                "age_ms": self._now - c.received_ms,
                "buffered_bytes": c.buffered,
                "declared_bytes": c.first.total_bytes,
                "expires_ms": c.received_ms + self._expiry if self._expiry > 0 else None,
                "stalled_at": None,
                "missing_chunks": None,
            },
        )

    def _stalled_row(
        self, s: Subscription, letter: Letter, left: list[Stored], head: Stored, shown: Row
    ) -> None:
        there = sorted({c.chunk_id for c in left})
        missing = sorted(set(range(there[-1])) - set(there))
        record, first, last = letter.record, left[0], left[-1]
        begin, end = min(c.at for c in left), max(c.at for c in left)
        self._put(
            "incomplete_messages",
            "window",
            {
                **shown,
                "topic": self._topic,
                "subscription": s.name,
                "consumer": None,
                "state": "stalled",
                "uuid": record["uuid"],
                "producer_name": record.get("producer_name"),
                "sequence_id": record.get("sequence_id"),
                "num_chunks": record["num_chunks"],
                "next_chunk_id": (missing or there)[0],
                "first_position": f"{begin[0]}:{begin[1]}",
                "last_position": f"{end[0]}:{end[1]}",
                "first_chunk_ms": first.since,
                "last_chunk_ms": last.since,
                "age_ms": self._now - first.since,
                "buffered_bytes": sum(c.size for c in left),
                "declared_bytes": record["total_chunk_bytes"],
                "expires_ms": None,
                "stalled_at": f"{head.at[0]}:{head.at[1]}",
                "missing_chunks": missing[:1000],
            },
        )


def _covers(at: tuple[int, int], cumulative: bool, position: str) -> bool:
    """Whether an acknowledgement is of a position."""
    ledger, entry = map(int, position.split(":"))
    return (ledger, entry) == at or (cumulative and (ledger, entry) < at)


def keys_of(records: Iterable[Record]) -> list[tuple[str, str]]:
    """Clusters and topics of the records that this job reads."""
    return sorted({(r["cluster"], r["topic"]) for r in records if r["event_type"] in READ})


def records_of(records: Iterable[Record], key: tuple[str, str]) -> list[Record]:
    """What this job reads of one topic, in order: its own records and the gaps of its cluster."""
    own = [r for r in records if r["event_type"] in READ and (r["cluster"], r["topic"]) == key]
    gaps = [r for r in records if r["event_type"] == "gap" and r["cluster"] == key[0]]
    return sorted([*each_once(own, _level), *each_once(gaps, _level)], key=_level)


def judge(
    records: Sequence[Record], params: Mapping[str, Any], until_ms: int | None = None
) -> dict[str, list[Row]]:
    """Rows by table after all records, with every topic's clock moved on to `until_ms`."""
    played = (
        play(Topic(*key, params), records_of(records, key), until_ms) for key in keys_of(records)
    )
    return gathered(TABLES, (topic.rows for topic in played))
