"""Random small traces of chunked messages, drawn so that every rule is met often."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.unit.state.drawn_trace import BROKERS, GAPS_MS, Trace, WallWriter, clocks, operations

TOPICS = ("persistent://t/ns/a", "persistent://t/ns/b-partition-1")
SUBSCRIPTIONS = ("s1", "s2", "s3")
CONSUMERS = ("c1", "c2", "c3")
PRODUCERS = ("p1", "p2", "p3", None)
SUB_TYPES = ("exclusive", "failover", "shared", "shared", "key_shared", None)
STEPS_MS = (
    *(0,) * 8,
    1,
    1,
    2,
    5,
    40,
    399,
    400,
    499,
    500,
    501,
    999,
    1000,
    1001,
    3000,
    7000,
    30_000,
    60_000,
    60_001,
    200_000,
)
"""Mostly short: long ones empty the buffers."""
AGES_MS = (0, 0, 0, 0, None, 1, 499, 500, 501, 60_000, 60_001, 100_000)
SIZES = (0, 1, 5, 10, 10, 10, 300)
KINDS = (
    *("next",) * 26,
    *("lose",) * 2,
    *("skip",) * 2,
    *("swap",) * 2,
    *("restart",) * 2,
    *("resend",) * 2,
    *("repeat",) * 4,
    *("burst",) * 3,
    *("again",) * 3,
    *("count",) * 3,
    *("ack",) * 3,
    *("created",) * 2,
    *("closed",) * 3,
    "ordinary",
    "ordinary_added",
    *("marker",) * 3,
    "stray",
    *("gap",) * 2,
    *("cursor",) * 3,
    "deleted",
    *("store",) * 3,
    *("offset",) * 2,
)
PARAMS: dict[str, tuple[Any, ...]] = {
    "maxPendingChunkedMessage": (10, 1, 2, 2, 3, 0, -1),
    "consumers": (
        [],
        [],
        [],
        [{"topic": "**", "subscription": "s2", "consumer": "**", "maxPendingChunkedMessage": 1}],
        [
            {
                "topic": "t/*/b",
                "subscription": "**",
                "consumer": "**",
                "maxPendingChunkedMessage": 1,
            },
            {"topic": "**", "subscription": "s*", "consumer": "c2", "maxPendingChunkedMessage": 0},
            {
                "topic": "persistent://t/ns/a",
                "subscription": "s1",
                "consumer": "c1",
                "maxPendingChunkedMessage": 2,
            },
        ],
    ),
    "autoAckOldestChunkedMessageOnQueueFull": (False, True),
    "expireTimeOfIncompleteChunkedMessageMillis": (60_000, 500, 500, 0, -1),
    "defects": (
        [],
        ["B1", "B2", "B3", "B4", "B7", "B8"],
        ["B1", "B2", "B3", "B4", "B7", "B8"],
        ["B1"],
        ["B2"],
        ["B3"],
        ["B4"],
        ["B7"],
        ["B8"],
        ["B1", "B3"],
        ["B1", "B8"],
        ["B7", "B8"],
        ["B2", "B4", "B7"],
        ["B1", "B2", "B3", "B4"],
    ),
    "first_dup": ("restart", "restart", "restart", "lose"),
    "shared_mode": ("pin", "pin", "hash", "marker"),
    "shared_orphan": ("ack_skip", "stall", "stall", "stall", "dispatch", "dispatch"),
    "max_payload_bytes": (134_217_728, 134_217_728, 25),
    "stats_window_ms": (1000, 7000, 60_000),
    "idle_state_ms": (3_600_000, 60_000, 3000, 400),
}
"""Values of the parameters, those that lead furthest more often."""


@dataclass
class _Message:
    """A message that a producer is sending."""

    producer: str | None
    uuid: str
    sequence_id: int
    num_chunks: int
    total: int
    next: int = 0


@dataclass
class _Topic:
    name: str
    broker: str
    entry_id: int = 0
    ledger_id: int = 1
    current: dict[str | None, _Message] = field(default_factory=dict)
    sent: list[_Message] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    """The chunk columns of everything stored."""
    markers: list[dict[str, Any]] = field(default_factory=list)


class _Writer(WallWriter):
    """Turns drawn numbers into records."""

    def __init__(self, topics: int, subscriptions: list[tuple[str, int]], plain: dict[str, Any]):
        super().__init__(plain)
        self._topics = [_Topic(TOPICS[i], BROKERS[0]) for i in range(topics)]
        self._subscriptions = subscriptions
        self._sequence_id = 0

    def step(self, kind: str, a: int, b: int, c: int) -> None:
        """One thing that happens; `a`, `b`, `c` choose among its possibilities."""
        t = self._topics[a % len(self._topics)]
        if (a, b) == (11, 7):
            t.broker = BROKERS[1 - BROKERS.index(t.broker)]
        if c == 23:
            t.ledger_id, t.entry_id = t.ledger_id + 1, 0
        getattr(self, f"_{kind}")(t, a, b, c)

    # -- producers -------------------------------------------------------------------------------

    def _message(self, t: _Topic, a: int, b: int, c: int) -> _Message:
        """What the producer is sending, else a new message."""
        producer = PRODUCERS[min(a // 2 % 5, 3) if c % 7 else 0]
        found = t.current.get(producer)
        if found is None or found.next >= found.num_chunks:
            self._sequence_id += 1
            chunks = (2, 2, 3, 3, 4, 5)[b % 6]
            size = SIZES[c % len(SIZES)]
            total = max(0, chunks * size + (0, 0, 0, 0, 0, 7, -1, -size)[(b + c) % 8])
            uuid = f"{producer or 'x'}-{self._sequence_id}"
            found = _Message(producer, uuid, self._sequence_id, chunks, total)
            t.current[producer] = found
            t.sent.append(found)
        return found

    def _stored(
        self, t: _Topic, m: _Message, chunk_id: int, b: int, c: int, count: int | None = None
    ) -> dict[str, Any]:
        """Store a chunk; answers its columns."""
        count = count or m.num_chunks
        size = m.total // m.num_chunks if (b + c) % 11 else SIZES[b % len(SIZES)]
        shape = (self._plain["shape"] if c % 13 else b) % 3
        age = AGES_MS[(b * 5 + c) % len(AGES_MS)]
        entry = {
            "topic": t.name,
            "ledger_id": t.ledger_id,
            "entry_id": t.entry_id,
            "uuid": m.uuid,
            "chunk_id": chunk_id,
            "num_chunks": count,
            "total_chunk_bytes": m.total,
            "producer_name": m.producer,
            "sequence_id": m.sequence_id,
            "publish_time_ms": None if age is None else self.now - age,
            "payload": bytes((m.sequence_id + i) % 256 for i in range(size))
            if shape == 0
            else None,
            "entry_bytes": None if shape == 2 else size + (3 if shape == 0 and b % 2 else 0),
        }
        t.entry_id += 1
        t.entries.append(entry)
        if self._plain["added"]:
            added = {k: v for k, v in entry.items() if k != "payload"}
            self.put(t.broker, "entry_added", **added | {"entry_bytes": size + 40})
        return entry

    def _send(self, t: _Topic, m: _Message, chunk_id: int, a: int, b: int, c: int) -> None:
        self._dispatch_all(t, self._stored(t, m, chunk_id, b, c), a, b, c)

    def _next(self, t: _Topic, a: int, b: int, c: int) -> None:
        m = self._message(t, a, b, c)
        self._send(t, m, m.next, a, b, c)
        m.next += 1
        if m.next == m.num_chunks and c % 4:
            self._marker(t, a, b, c, m)

    def _lose(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A chunk that is stored and never reaches some subscription."""
        m = self._message(t, a, b, c)
        entry = self._stored(t, m, m.next, b, c)
        m.next += 1
        for i in range(b % len(self._subscriptions)):
            self._dispatch(t, entry, i, a, b, c)

    def _skip(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A chunk that the producer never sent."""
        self._message(t, a, b, c).next += 1

    def _swap(self, t: _Topic, a: int, b: int, c: int) -> None:
        """Two chunks in the wrong order."""
        m = self._message(t, a, b, c)
        if m.next + 1 < m.num_chunks:
            self._send(t, m, m.next + 1, a, b, c)
            self._send(t, m, m.next, a, b, c + 1)
            m.next += 2
        else:
            self._next(t, a, b, c)

    def _restart(self, t: _Topic, a: int, b: int, c: int) -> None:
        """The producer begins its message again."""
        m = self._message(t, a, b, c)
        m.next = b % 2
        self._next(t, a, b, c)

    def _resend(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A whole message is sent again under its uuid."""
        if t.sent:
            m = t.sent[-1 - b % min(len(t.sent), 4)]
            for chunk_id in range(m.num_chunks):
                self._send(t, m, chunk_id, a, b, c)

    def _again(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A chunk that was sent already, sometimes as if it were the last."""
        m = self._message(t, a, b, c)
        if m.next == 0:
            self._next(t, a, b, c)
        chunk_id = max(m.next - 1 - b % 2, 0)
        count = max(chunk_id + 1, 2) if c % 3 == 0 else None
        self._dispatch_all(t, self._stored(t, m, chunk_id, b, c, count), a, b, c)

    def _count(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A chunk that claims another number of chunks."""
        m = self._message(t, a, b, c)
        count = max(2, m.next + 1, (m.next + 1, m.num_chunks + 1, m.num_chunks - 1)[b % 3])
        chunk_id = min(m.next, count - 1)
        if b % 7 == 0:
            chunk_id, count = m.num_chunks, m.num_chunks + 2
        self._dispatch_all(t, self._stored(t, m, chunk_id, b, c, count), a, b, c)
        m.next = chunk_id + 1

    # -- deliveries ------------------------------------------------------------------------------

    def _dispatch_all(self, t: _Topic, entry: dict[str, Any], a: int, b: int, c: int) -> None:
        for i in range(len(self._subscriptions)):
            self._dispatch(t, entry, i, a, b, c)

    def _dispatch(
        self, t: _Topic, entry: dict[str, Any], which: int, a: int, b: int, c: int, **more: Any
    ) -> None:
        name, pick = self._subscriptions[which]
        self.put(
            t.broker,
            "dispatch",
            **entry | more,
            subscription=name,
            sub_type=self._sub_type(pick, a, c),
            consumer=self._consumer_of(pick, a, b, c),
        )

    @staticmethod
    def _sub_type(pick: int, a: int, c: int) -> str | None:
        return None if (a + c) % 5 == 0 else SUB_TYPES[pick % len(SUB_TYPES)]

    @staticmethod
    def _consumer_of(pick: int, a: int, b: int, c: int) -> str:
        """Ordered subscriptions mostly have one consumer."""
        many = pick // len(SUB_TYPES) + 1
        if SUB_TYPES[pick % len(SUB_TYPES)] == "shared":
            return CONSUMERS[(a + b + c) % many]
        return CONSUMERS[(a + b) % many if c % 9 == 0 else 0]

    def _repeat(self, t: _Topic, a: int, b: int, c: int) -> None:
        """One entry is delivered again."""
        if t.entries:
            entry = t.entries[-1 - (b + c // 8) % min(len(t.entries), 8)]
            self._dispatch(t, entry, c % len(self._subscriptions), a, b, c)

    def _burst(self, t: _Topic, a: int, b: int, c: int) -> None:
        """The last entries are delivered again in order of position, to one consumer."""
        for entry in t.entries[-1 - b % 8 :]:
            self._dispatch(t, entry, c % len(self._subscriptions), a, b, c)

    def _ordinary(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A message without chunks, or with one."""
        more: dict[str, Any] = {"num_chunks": 1, "chunk_id": 0} if b % 2 else {}
        entry = {"topic": t.name, "ledger_id": t.ledger_id, "entry_id": t.entry_id}
        t.entry_id += 1
        self._dispatch_all(t, entry | more, a, b, c)

    def _ordinary_added(self, t: _Topic, a: int, b: int, c: int) -> None:
        self.put(
            t.broker,
            "entry_added",
            topic=t.name,
            ledger_id=t.ledger_id,
            entry_id=t.entry_id,
            entry_bytes=c,
            num_chunks=(None, 1, 0)[b % 3],
        )
        t.entry_id += 1

    def _stray(self, t: _Topic, a: int, b: int, c: int) -> None:
        """Something that other jobs read."""
        kind = ("entry_released", "producer_closed", "cursor_state")[b % 3]
        self.put(t.broker, kind, topic=t.name, subscription="s1", mark_delete="1:0")

    def _marker(self, t: _Topic, a: int, b: int, c: int, m: _Message | None = None) -> None:
        """A marker that lists the chunks of a message, sometimes not quite."""
        if m is None and t.markers and c % 3 == 1:
            # redelivered, perhaps to another consumer
            marker = t.markers[-1 - b % min(len(t.markers), 3)]
            for i in range(len(self._subscriptions)):
                self._dispatch(t, marker, i, a, b, c)
            return
        if m is None and t.sent:
            m = t.sent[-1 - b % min(len(t.sent), 3)]
        if m is None or not self._plain["markers"]:
            return
        found: dict[int, str] = {}
        for entry in t.entries:
            if entry["uuid"] == m.uuid:
                found[entry["chunk_id"]] = f"{entry['ledger_id']}:{entry['entry_id']}"
        listed = [found[i] for i in sorted(found)]
        if b % 6 == 5:
            listed = [*listed[1:], "9:9", *listed[:1]]
        if c % 17 == 16:
            listed = []
        marker = {
            "topic": t.name,
            "ledger_id": t.ledger_id,
            "entry_id": t.entry_id,
            "marker_ids": listed,
        }
        t.markers.append(marker)
        t.entry_id += 1
        for i in range(len(self._subscriptions)):
            self._dispatch(t, marker, i, a, b, c)

    def _store(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A message is stored from some chunk on, and is not delivered."""
        m = self._message(t, a, b, c)
        m.next = max(m.next, b % 3 % m.num_chunks)
        while m.next < m.num_chunks:
            self._stored(t, m, m.next, b, c)
            m.next += 1

    # -- cursors ---------------------------------------------------------------------------------

    def _cursor(self, t: _Topic, a: int, b: int, c: int) -> None:
        """Mark-delete of a subscription: mostly directly before a chunk."""
        name, _ = self._subscriptions[c % len(self._subscriptions)]
        ledger, entry = t.ledger_id, t.entry_id - 1
        if t.entries and b % 5:
            chunk = t.entries[-1 - (a + b) % min(len(t.entries), 6)]
            ledger, entry = chunk["ledger_id"], chunk["entry_id"] - 1
            if entry < 0 and c % 2:
                ledger, entry = max(ledger - 1, 0), 10 * (a % 2)
        self.put(
            t.broker,
            "cursor_state",
            topic=t.name,
            subscription=name,
            mark_delete=None if b == 14 else f"{ledger}:{max(entry, -1)}",
            read_pos=f"{ledger}:{entry + 1}",
        )

    def _offset(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A shared subscription that stands at a chunk of which the first ones are gone."""
        name, _ = self._subscriptions[c % len(self._subscriptions)]
        self.put(
            t.broker,
            "consumer_created",
            topic=t.name,
            subscription=name,
            sub_type="shared",
            consumer=CONSUMERS[0],
        )
        self.put(
            t.broker,
            "cursor_state",
            topic=t.name,
            subscription=name,
            mark_delete=f"{t.ledger_id}:{t.entry_id - 1}",
        )
        m = self._message(t, a, b, c)
        m.next = m.num_chunks - 1
        self._store(t, a, b, c)

    def _deleted(self, t: _Topic, a: int, b: int, c: int) -> None:
        name, _ = self._subscriptions[c % len(self._subscriptions)]
        self.put(t.broker, "cursor_deleted", topic=t.name, subscription=name)

    # -- consumers -------------------------------------------------------------------------------

    def _ack(self, t: _Topic, a: int, b: int, c: int) -> None:
        if not t.entries:
            return
        entry = t.entries[-1 - (b + a) % min(len(t.entries), 10)]
        if t.markers and (a + c) % 3 == 1:
            entry = t.markers[-1 - b % min(len(t.markers), 3)]
        name, _ = self._subscriptions[c % len(self._subscriptions)]
        self.put(
            t.broker,
            "ack",
            topic=t.name,
            subscription=name,
            ledger_id=entry["ledger_id"],
            entry_id=entry["entry_id"],
            ack_cumulative=(None, False, False, True)[c % 4],
            consumer=None if b % 2 else CONSUMERS[0],
        )
        if (a + b) % 3 == 0:
            # it was on its way already
            self._dispatch(t, entry, c % len(self._subscriptions), a, b, c)

    def _created(self, t: _Topic, a: int, b: int, c: int, kind: str = "consumer_created") -> None:
        name, pick = self._subscriptions[c % len(self._subscriptions)]
        sub_type = self._sub_type(pick, a, c) if kind == "consumer_created" else None
        self.put(
            t.broker,
            kind,
            topic=t.name,
            subscription=name,
            sub_type=sub_type,
            consumer=CONSUMERS[(a + b) % 3 if b % 3 == 0 else 0],
        )

    def _closed(self, t: _Topic, a: int, b: int, c: int) -> None:
        """A consumer goes, and mostly comes back at once."""
        self._created(t, a, b, c, "consumer_closed")
        if b % 3:
            self.now += (0, 1, 499, 500, 501)[c % 5]
            self._created(t, a, b, c)

    # -- records ---------------------------------------------------------------------------------

    def _gap(self, t: _Topic, a: int, b: int, c: int) -> None:
        self.put(BROKERS[c % 5 == 0], "gap", since=GAPS_MS[b % len(GAPS_MS)])


OPS = operations(KINDS, STEPS_MS)


@st.composite
def traces(draw: st.DrawFn, most: int = 60, least: int = 20) -> Trace:
    """A trace of one or two topics with one to three subscriptions each."""
    ops = draw(st.lists(OPS, min_size=least, max_size=most))
    params = {name: draw(st.sampled_from(values)) for name, values in PARAMS.items()}
    picks = draw(
        st.lists(st.integers(0, len(SUB_TYPES) * len(CONSUMERS) - 1), min_size=1, max_size=3)
    )
    subscriptions = list(zip(SUBSCRIPTIONS, picks, strict=False))
    plain = {
        **clocks(draw, (False, True)),
        "added": draw(st.sampled_from((True, True, False))),
        "markers": params["shared_mode"] == "marker" or draw(st.integers(0, 3)) == 0,
        "shape": draw(st.integers(0, 2)),
    }
    writer = _Writer(draw(st.integers(1, 2)), subscriptions, plain)
    for kind, step, a, b, c in ops:
        writer.now += step
        writer.step(kind, a, b, c)
    rest = draw(st.sampled_from((0, 1, 1000, 61_000, 130_001)))
    return Trace(writer.records, dict(params), [], writer.now + rest)


__all__ = ["Trace", "traces"]
