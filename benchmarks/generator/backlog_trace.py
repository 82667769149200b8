"""The backlog part of a trace: topics with quotas, played whole, written slice by slice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from benchmarks.generator.backlog_spec import BacklogSpec, BacklogTopicSpec
from benchmarks.generator.backlog_topic import FIRST_ENTRY_NS, Played, ledger_of, play_topic
from benchmarks.generator.fleet import Fleet
from benchmarks.generator.limits import Policy
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.streams import ADMIN, INTERCEPTOR, stream_of
from benchmarks.generator.trace_rows import NULL, make_rows, no_rows

CREATED_NS = 900 * MS
POLL_APART_NS = 3 * MS
CHECK_S = 60
"""Interval of the check of quotas, the default of brokers."""
LEAST_ENTRIES = 40
"""Entries of each topic that a trace has room for, however short it is."""
FEW_ENTRIES_NS = 2 * SECOND


@dataclass(frozen=True)
class Added:
    """Entries of all topics in order of time."""

    at_ns: np.ndarray
    topic: np.ndarray
    ledger: np.ndarray
    entry: np.ndarray
    bytes: np.ndarray
    lag_ms: np.ndarray


@dataclass(frozen=True)
class Acked:
    """Acknowledgements of all subscriptions in order of time."""

    at_ns: np.ndarray
    sub: np.ndarray
    ledger: np.ndarray
    entry: np.ndarray


@dataclass(frozen=True)
class Subs:
    """One entry per subscription."""

    topic: np.ndarray
    text: np.ndarray
    cumulative: np.ndarray


@dataclass(frozen=True)
class BacklogTrace:
    """The backlog part of a trace; the same each time it is read."""

    fleet: Fleet
    spec: BacklogSpec
    names: list[str]
    text: np.ndarray
    broker: np.ndarray
    played: list[Played]
    subs: Subs
    added: Added
    acked: Acked
    polled: np.ndarray
    """Rows of all polls, and of producers that come and go."""
    least: int
    """Records that there are in however short a trace."""

    @property
    def records(self) -> int:
        """How many there are of it."""
        return self.added.at_ns.size + self.acked.at_ns.size + len(self.polled)

    @property
    def policies(self) -> list[Policy]:
        """Quotas of topics and namespaces, and how brokers check them."""
        broker = {"preciseTimeBasedBacklogQuotaCheck": True}
        found: list[Policy] = [{"scope": "broker", "name": "*", "limits": broker}]
        for name, topic, played in zip(
            self.spec.topics, self.spec.topics.values(), self.played, strict=True
        ):
            quota = topic.quota
            if quota is None:
                continue
            quotas: dict[str, object] = {}
            if played.limit_bytes is not None:
                quotas["destination_storage"] = {
                    "limitSize": played.limit_bytes,
                    "policy": quota.policy,
                }
            if quota.time_s is not None:
                quotas["message_age"] = {"limitTime": quota.time_s, "policy": quota.policy}
            whose = self.spec.namespace_of(name)
            own = topic.namespace is not None
            found.append(
                {
                    "scope": "namespace" if own else "topic",
                    "name": whose if own else f"{whose}/{name}",
                    "limits": {"backlog_quota": quotas},
                }
            )
        return found

    def once(self) -> np.ndarray:
        """What is not written slice by slice."""
        return self.polled

    def rows(self, begin: int, end: int) -> list[np.ndarray]:
        """Entries and acknowledgements of [begin, end) ns."""
        return [_added_rows(self, begin, end), _acked_rows(self, begin, end)]


def plan_backlog(fleet: Fleet, spec: BacklogSpec, events: float, seed: int) -> BacklogTrace:
    """The backlog part of a trace of so many events in all."""
    subs = sum(len(topic.subscriptions) for topic in spec.topics.values())
    passes = fleet.scenario.duration_s // CHECK_S + 1
    fixed = passes * (subs + 4 * len(spec.topics)) + 4 * len(spec.topics)
    least = fixed + LEAST_ENTRIES * (len(spec.topics) + subs)
    wanted = max(events * spec.share, least)
    entries = (wanted - fixed) / (1 + subs / len(spec.topics))
    for _ in range(6):
        backlog = _planned(fleet, spec, entries, least, seed)
        flexible = backlog.records - len(backlog.polled)
        if abs(backlog.records - wanted) < max(wanted / 500, 10):
            break
        entries *= max(wanted - len(backlog.polled), 1) / max(flexible, 1)
    return backlog


def _planned(
    fleet: Fleet, spec: BacklogSpec, entries: float, least: int, seed: int
) -> BacklogTrace:
    names = [f"persistent://{spec.namespace_of(name)}/{name}" for name in spec.topics]
    allowed = np.array(spec.brokers or range(len(fleet.brokers)))
    broker = allowed[np.arange(len(names)) % allowed.size]
    total = sum(t.weight for t in spec.topics.values() if t.entries is None)
    played = [
        _topic(fleet, spec, topic, entries * topic.weight / total, seed, number)
        for number, topic in enumerate(spec.topics.values())
    ]
    kept = [s for topic in spec.topics.values() for s in topic.subscriptions.values()]
    sub_names = [name for topic in spec.topics.values() for name in topic.subscriptions]
    counts = [len(topic.subscriptions) for topic in spec.topics.values()]
    subs = Subs(
        np.repeat(np.arange(len(names)), counts),
        fleet.texts.add_all(sub_names),
        np.array([s.cumulative for s in kept]),
    )
    ledgers = [
        _Ledgers(t, number, p)
        for number, (t, p) in enumerate(zip(spec.topics.values(), played, strict=True))
    ]
    rng = np.random.default_rng([seed, 12])
    backlog = BacklogTrace(
        fleet,
        spec,
        names,
        fleet.texts.add_all(names),
        broker,
        played,
        subs,
        _all_added(played, ledgers, rng),
        _all_acked(fleet, played, ledgers),
        no_rows(),
        least,
    )
    polled = [_Polls(backlog, t, ledgers[t]).rows() for t in range(len(names))]
    return replace(backlog, polled=np.concatenate([*polled, _producers(backlog)]))


def passes_ns(fleet: Fleet) -> list[int]:
    """The checks within a trace (ns since its start): multiples of the interval on the clock."""
    start, every = fleet.scenario.start_ms, CHECK_S * 1000
    first = -(-start // every) * every
    end = start + fleet.scenario.duration_s * 1000
    return [(at - start) * MS for at in range(first, end, every) if at > start]


def _topic(
    fleet: Fleet,
    spec: BacklogSpec,
    topic: BacklogTopicSpec,
    entries: float,
    seed: int,
    number: int,
) -> Played:
    rng = np.random.default_rng([seed, 11, number])
    active = fleet.scenario.active_s
    if topic.entries is None:
        n = max(round(entries), 1)
        at = np.sort(rng.integers(FIRST_ENTRY_NS, active * SECOND, n))
        rate = n / active
    else:
        n = topic.entries
        at = FIRST_ENTRY_NS + np.arange(n) * FEW_ENTRIES_NS
        rate = SECOND / FEW_ENTRIES_NS
    low, high = np.log(topic.entry_bytes)
    sizes = np.round(np.exp(rng.uniform(low, high, n))).astype(np.int64)
    passes = passes_ns(fleet)
    return play_topic(topic, at, sizes, rate, passes, (active, fleet.scenario.duration_s), rng)


class _Ledgers:
    """Which ledger each entry of a topic is in: one after another, each so long."""

    def __init__(self, spec: BacklogTopicSpec, number: int, played: Played) -> None:
        self._length = int(spec.ledger_s * SECOND)
        self._first = 3_000_000 + number * 10_000
        self.place = ledger_of(spec, played.at_ns)
        new = np.append(True, self.place[1:] != self.place[:-1])[: self.place.size]
        begins = np.flatnonzero(new)
        self.entry = np.arange(self.place.size) - begins[np.cumsum(new) - 1]
        self.ledger = self._first + self.place

    def id_of(self, place: int) -> int:
        """The id of the ledger with a number."""
        return self._first + place

    def open_at(self, at: int) -> int:
        """The number of the ledger that is open at a time."""
        return max(at - FIRST_ENTRY_NS, 0) // self._length

    def closes(self, place: int) -> int:
        """When a ledger is closed (ns)."""
        return FIRST_ENTRY_NS + (place + 1) * self._length

    def mark(self, count: int) -> tuple[int, int]:
        """The mark-delete position after so many entries."""
        if count == 0:
            return self._first, -1
        return int(self.ledger[count - 1]), int(self.entry[count - 1])


def _all_added(played: list[Played], ledgers: list[_Ledgers], rng: np.random.Generator) -> Added:
    at = np.concatenate([p.at_ns for p in played])
    order = np.argsort(at, kind="stable")
    topic = np.repeat(np.arange(len(played)), [p.at_ns.size for p in played])
    columns = [
        topic,
        np.concatenate([x.ledger for x in ledgers]),
        np.concatenate([x.entry for x in ledgers]),
        np.concatenate([p.bytes for p in played]),
        rng.integers(2, 15, at.size),
    ]
    return Added(at[order], *(c[order] for c in columns))


def _all_acked(fleet: Fleet, played: list[Played], ledgers: list[_Ledgers]) -> Acked:
    end = fleet.scenario.duration_s * SECOND
    parts, sub = [], 0
    for own, known in zip(played, ledgers, strict=True):
        for acks in own.acks:
            done = np.flatnonzero(acks < end)
            parts.append(
                np.stack(
                    [acks[done], np.full(done.size, sub), known.ledger[done], known.entry[done]]
                )
            )
            sub += 1
    table = np.concatenate(parts, axis=1)
    return Acked(*table[:, np.argsort(table[0], kind="stable")])


def _added_rows(plan: BacklogTrace, begin: int, end: int) -> np.ndarray:
    known, start = plan.added, plan.fleet.scenario.start_ms
    own = np.arange(*np.searchsorted(known.at_ns, [begin, end]))
    topic, wall = known.topic[own], start + known.at_ns[own] // MS
    return make_rows(
        own.size,
        event_type=plan.fleet.texts.add("entry_added"),
        at_ns=known.at_ns[own],
        fixed=1,
        stream=stream_of(plan.fleet, INTERCEPTOR, plan.broker[topic]),
        topic=plan.text[topic],
        cnx_id=plan.fleet.connection_text(_connections(plan)[topic], known.at_ns[own]),
        ledger_id=known.ledger[own],
        entry_id=known.entry[own],
        entry_bytes=known.bytes[own],
        num_messages=1,
        publish_time_ms=wall - known.lag_ms[own],
        broker_time_ms=wall,
    )


def _acked_rows(plan: BacklogTrace, begin: int, end: int) -> np.ndarray:
    known, texts = plan.acked, plan.fleet.texts
    own = np.arange(*np.searchsorted(known.at_ns, [begin, end]))
    sub = known.sub[own]
    topic = plan.subs.topic[sub]
    flags = np.array([NULL, texts.add_raw(b"true")])
    return make_rows(
        own.size,
        event_type=texts.add("ack"),
        at_ns=known.at_ns[own],
        fixed=1,
        stream=stream_of(plan.fleet, INTERCEPTOR, plan.broker[topic]),
        topic=plan.text[topic],
        subscription=plan.subs.text[sub],
        ledger_id=known.ledger[own],
        entry_id=known.entry[own],
        ack_cumulative=flags[plan.subs.cumulative[sub].astype(np.int64)],
    )


class _Polls:
    """What the polls of one topic see, before every check."""

    def __init__(self, plan: BacklogTrace, topic: int, ledgers: _Ledgers) -> None:
        self._plan, self._topic, self._ledgers = plan, topic, ledgers
        self._played = plan.played[topic]
        self._total = np.append(0, np.cumsum(self._played.bytes))
        self._subs = np.flatnonzero(plan.subs.topic == topic)
        specs = list(plan.spec.topics.values())[topic].subscriptions.values()
        self._durable = [spec.durable for spec in specs]
        self._listed: set[int] = set()
        self._trimmed = 0

    def rows(self) -> np.ndarray:
        """Every poll: what is gone, then ledgers, then cursors."""
        spec = self._plan.spec
        early = int(spec.poll_before_s * SECOND) - self._topic * POLL_APART_NS
        found = [no_rows()]
        for at in passes_ns(self._plan.fleet):
            if at > early:
                found += self._poll(at - early)
        return np.concatenate(found)

    def _poll(self, at: int) -> list[np.ndarray]:
        played, ledgers = self._played, self._ledgers
        entries = int(np.searchsorted(played.at_ns, at, side="right"))
        counts = [marks.until(at) for marks in played.marks]
        now_open = ledgers.open_at(at)
        place = ledgers.place[:entries]
        held = [int(x) for x in np.unique(place) if x >= self._trimmed and x != now_open]
        listed = [*held, now_open]
        gone = sorted(self._listed - set(listed))
        self._listed = set(listed)
        ends = np.searchsorted(place, listed, side="right")
        begins = np.searchsorted(place, listed, side="left")
        rows = [
            self._made(
                "ledger_deleted",
                at,
                len(gone),
                ledger_id=np.array([ledgers.id_of(x) for x in gone], dtype=np.int64),
            ),
            self._made(
                "ledger_state",
                at,
                len(listed),
                ledger_id=np.array([ledgers.id_of(x) for x in listed]),
                ledger_entries=ends - begins,
                ledger_bytes=self._total[ends] - self._total[begins],
                ledger_close_ms=np.array(
                    [NULL if x == now_open else self._wall(ledgers.closes(x)) for x in listed]
                ),
            ),
            self._cursors(at, entries, counts),
        ]
        durable = [c for c, own in zip(counts, self._durable, strict=True) if own]
        least = min(durable, default=entries)
        # The next poll no longer finds ledgers that every subscription has left behind.
        self._trimmed = now_open if least == entries else int(place[least])
        return rows

    def _cursors(self, at: int, entries: int, counts: list[int]) -> np.ndarray:
        marks = [self._ledgers.mark(count) for count in counts]
        first = [
            NULL if count >= entries else self._wall(int(self._played.at_ns[count]))
            for count in counts
        ]
        flags = [self._plan.fleet.texts.add_raw(x) for x in (b"false", b"true")]
        return self._made(
            "cursor_state",
            at,
            len(counts),
            subscription=self._plan.subs.text[self._subs],
            durable=np.array([flags[own] for own in self._durable]),
            mark_delete=np.array([m[0] for m in marks]),
            mark_delete_entry=np.array([m[1] for m in marks]),
            publish_time_ms=np.array(first),
        )

    def _wall(self, at: int) -> int:
        return self._plan.fleet.scenario.start_ms + at // MS

    def _made(self, kind: str, at: int, n: int, **columns: object) -> np.ndarray:
        plan = self._plan
        return make_rows(
            n,
            event_type=plan.fleet.texts.add(kind),
            at_ns=at,
            fixed=1,
            stream=stream_of(plan.fleet, ADMIN, int(plan.broker[self._topic])),
            topic=plan.text[self._topic],
            **columns,
        )


def _producers(plan: BacklogTrace) -> np.ndarray:
    """One producer of each topic: there from the start, disconnected, refused, back again."""
    table = []
    for t, own in enumerate(plan.played):
        table.append((t, CREATED_NS + t * MS, 1))
        table += [(t, at, 0) for at in own.closed_ns]
        table += [(t, at, 1) for at in (*own.refused_ns, *own.created_ns)]
    topic, at, created = np.array(table, dtype=np.int64).T
    fleet = plan.fleet
    kinds = fleet.texts.add_all(["producer_closed", "producer_created"])
    connection = _connections(plan)[topic]
    return make_rows(
        len(table),
        event_type=kinds[created],
        at_ns=at,
        fixed=1,
        stream=stream_of(fleet, INTERCEPTOR, plan.broker[topic]),
        cnx_id=fleet.connection_text(connection, at),
        topic=plan.text[topic],
        producer_id=topic,
        producer_name=fleet.texts.add_all(
            [f"{name.rsplit('/', 1)[1]}-producer" for name in plan.names]
        )[topic],
    )


def _connections(plan: BacklogTrace) -> np.ndarray:
    """By topic: the connection of its producer."""
    return np.array([plan.fleet.backlog_connection_on(int(b)) for b in plan.broker])
