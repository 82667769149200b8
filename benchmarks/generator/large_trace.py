"""Large messages of a trace: planned as runs of chunks, expanded to records slice by slice."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.json_lines import running_number
from benchmarks.generator.large_fleet import (
    EXCLUSIVE,
    FAILOVER,
    TYPES,
    LargeFleet,
    build_large_fleet,
    consumer_rows,
    producer_rows,
)
from benchmarks.generator.large_messages import (
    CHUNK_HEADER_BYTES,
    Messages,
    PlainMessages,
    draw_messages,
    draw_plain,
    script_of,
)
from benchmarks.generator.large_scripts import (
    ACKED_EARLY,
    CLOSED,
    COMPLETE,
    EVICTED,
    NAMES,
    NEVER_FINISHED,
    RESTARTED,
    ChunkRun,
)
from benchmarks.generator.lifecycle import FIRST_PUBLISH_NS
from benchmarks.generator.plan import MS
from benchmarks.generator.scenario import LargeSpec
from benchmarks.generator.streams import INTERCEPTOR, stream_of
from benchmarks.generator.trace_rows import NULL, PLACE, make_rows

MOST_PENDING = 10
"""Default of `maxPendingChunkedMessage`."""
LEAST_POOL = 4_000_000
CREATED_NS = 800 * MS
"""Producers and consumers are created from then on, before anything is published."""


@dataclass
class Runs:
    """Chunks of one message that follow one another, a step apart; one entry per run."""

    message: np.ndarray
    pair: np.ndarray
    """Message and subscription that they are delivered or acknowledged in; -1 = sent."""
    first: np.ndarray
    count: np.ndarray
    at_ns: np.ndarray
    step_ns: np.ndarray
    source: np.ndarray
    """Number of the entry that holds the first chunk, among all of the trace."""
    consumer: np.ndarray

    def take(self, chosen: np.ndarray) -> Runs:
        """Some of them, by mask or order."""
        return Runs(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    def in_order(self) -> Runs:
        """By time."""
        return self.take(np.argsort(self.at_ns, kind="stable"))

    def between(self, begin: int, end: int) -> Runs:
        """Those that begin in [begin, end) ns; they are in order of time."""
        return self.take(np.arange(*np.searchsorted(self.at_ns, [begin, end])))

    @staticmethod
    def concat(parts: list[Runs]) -> Runs:
        """All of them, one part after another."""
        names = Runs.__dataclass_fields__
        return Runs(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))

    def expanded(self) -> tuple[np.ndarray, np.ndarray]:
        """One entry per chunk: index of its run, and its place in the run."""
        run = np.repeat(np.arange(self.count.size), self.count)
        return run, np.arange(run.size) - np.repeat(np.cumsum(self.count) - self.count, self.count)


@dataclass
class Pairs:
    """One entry per message and subscription: what is planted there and what becomes of it."""

    message: np.ndarray
    sub: np.ndarray
    kind: np.ndarray
    evicted: np.ndarray
    times: np.ndarray


@dataclass
class Large:
    """The large messages of a trace, and the plain ones between them."""

    fleet: Fleet
    large: LargeFleet
    messages: Messages
    pairs: Pairs
    sent: Runs
    delivered: Runs
    acked: Runs
    plain: PlainMessages
    ledger: np.ndarray
    """By entry: all chunks by number, then the plain messages."""
    entry: np.ndarray
    sent_ns: np.ndarray
    """By number of a chunk's entry."""

    @property
    def records(self) -> int:
        """How many there are of them."""
        plain_subs = self.large.topics.subs[self.plain.topic]
        return int(
            2 * self.sent.count.sum()
            + self.delivered.count.sum()
            + self.acked.count.sum()
            + (2 + 2 * plain_subs).sum()
        ) + len(self.once())

    @property
    def planted(self) -> Counter[str]:
        """How often each fate occurs, by message and subscription."""
        names = np.array([*NAMES, EVICTED])
        kind = np.where(self.pairs.evicted, len(NAMES), self.pairs.kind)
        return Counter(names[kind].tolist())

    def once(self) -> np.ndarray:
        """Producers and consumers as they come and go, in no order."""
        return np.concatenate([*_opening(self), *_restarts(self), *_closings(self)])

    def rows(self, begin: int, end: int) -> list[np.ndarray]:
        """The records of what begins in [begin, end) ns: one block of rows per kind."""
        sent = _sent_rows(self, self.sent.between(begin, end))
        delivered = _delivered_rows(self, self.delivered.between(begin, end))
        acked = _acked_rows(self, self.acked.between(begin, end))
        return [*sent, delivered, acked, *_plain_rows(self, begin, end)]


def plan_large(fleet: Fleet, spec: LargeSpec, records: float, seed: int) -> Large:
    """The large messages of a scenario, about so many records in all."""
    rng = np.random.default_rng([seed, 5])
    large = build_large_fleet(fleet, spec, rng)
    records -= large.producers.id.size + large.consumer_sub.size
    messages = draw_messages(fleet.scenario, spec, large, records, rng)
    pairs = _pairs(large, messages)
    sent, delivered, acked = _runs(large, messages, pairs, rng)
    run, within = sent.expanded()
    at = np.empty(run.size, dtype=np.int64)
    number = sent.source[run] + within
    at[number] = sent.at_ns[run] + within * sent.step_ns[run]
    topic = np.empty(run.size, dtype=np.int64)
    topic[number] = messages.topic[sent.message[run]]
    per_topic = np.bincount(topic, minlength=large.topics.role.size)
    left = records - 2 * run.size - int(delivered.count.sum() + acked.count.sum())
    plain = draw_plain(fleet.scenario, spec, large, messages, per_topic, left, rng)
    ledger, entry = _positions(
        large,
        np.append(topic, plain.topic),
        np.append(at, plain.at_ns),
        fleet.scenario.traffic.ledger_entries,
    )
    pool = max(LEAST_POOL, int(messages.bytes.max()) + LEAST_POOL // 4)
    fleet.texts.payloads = np.frombuffer(rng.bytes(pool), dtype=np.uint8)
    messages.begins[:] = rng.integers(0, pool - messages.bytes + 1)
    return Large(
        fleet,
        large,
        messages,
        pairs,
        sent.in_order(),
        delivered.in_order(),
        acked.in_order(),
        plain,
        ledger,
        entry,
        at,
    )


def _positions(
    large: LargeFleet, topic: np.ndarray, at: np.ndarray, ledger_entries: int
) -> tuple[np.ndarray, np.ndarray]:
    """Entries are numbered per topic in order of time; a ledger holds so many."""
    order = np.argsort(at, kind="stable")
    number = running_number(topic, np.zeros(large.topics.role.size, np.int64), order)
    return large.topics.first_ledger[topic] + number // ledger_entries, number % ledger_entries


# -- fates -----------------------------------------------------------------------------------


def _pairs(large: LargeFleet, messages: Messages) -> Pairs:
    subs = large.topics.subs[messages.topic]
    message = np.repeat(np.arange(subs.size), subs)
    sub = (
        large.topics.first_sub[messages.topic][message]
        + np.arange(message.size)
        - np.repeat(np.cumsum(subs) - subs, subs)
    )
    kind, times = np.full(message.size, COMPLETE), np.ones(message.size, dtype=np.int64)
    for k in np.unique(messages.kind).tolist():
        own = np.flatnonzero(messages.kind == k)
        script = script_of(messages, k, own[:1])
        here = (messages.kind[message] == k) & (script.everywhere | (messages.sub[message] == sub))
        kind[here], times[here] = k, script.times
    evicted = _evicted(large, messages, message, sub)
    times[evicted] = 0
    return Pairs(message, sub, kind, evicted, times)


def _evicted(
    large: LargeFleet, messages: Messages, message: np.ndarray, sub: np.ndarray
) -> np.ndarray:
    """A consumer keeps `MOST_PENDING` of a crowd: the last ones to begin."""
    _, number, sizes = np.unique(messages.episode, return_inverse=True, return_counts=True)
    size, place, ways = sizes[number][message], messages.place[message], large.ways[sub]
    of_consumer = (size - place % ways + ways - 1) // ways
    evicted: np.ndarray = (place // ways < of_consumer - MOST_PENDING) & (
        messages.episode[message] >= 0
    )
    return evicted


def _runs(
    large: LargeFleet, messages: Messages, pairs: Pairs, rng: np.random.Generator
) -> tuple[Runs, Runs, Runs]:
    """Chunks as they are sent, delivered and acknowledged."""
    sent: list[Runs] = []
    delivered: list[Runs] = []
    acked: list[Runs] = []
    entries = 0
    later = rng.integers(5 * MS, 300 * MS, pairs.message.size)
    for kind in np.unique(messages.kind).tolist():
        own = np.flatnonzero(messages.kind == kind)
        script = script_of(messages, kind, own)
        sources = []
        for part in script.sends:
            run = _run(messages, own, part)
            run.source = entries + np.cumsum(run.count) - run.count
            entries += int(run.count.sum())
            starts = np.zeros(messages.topic.size, dtype=np.int64)
            starts[own] = run.source - run.first
            sources.append(starts)
            sent.append(run)
        of_kind = np.flatnonzero(messages.kind[pairs.message] == kind)
        planted = pairs.kind[of_kind] == kind
        for chosen, k in ((of_kind[planted], kind), (of_kind[~planted], COMPLETE)):
            there = script_of(messages, k, pairs.message[chosen])
            for part in there.seen:
                delivered.append(_at_pairs(large, messages, pairs, chosen, part, sources))
            done = pairs.times[chosen] > 0
            early = kind == ACKED_EARLY
            for part in there.acks:
                run = _at_pairs(large, messages, pairs, chosen, part, sources)
                run.at_ns = run.at_ns + (0 if early else later[chosen])
                run.step_ns = np.zeros_like(run.step_ns)
                acked.append(run.take(done))
    return Runs.concat(sent), Runs.concat(delivered), Runs.concat(acked)


def _run(messages: Messages, own: np.ndarray, part: ChunkRun) -> Runs:
    first = np.zeros(own.size, dtype=np.int64) + part.first
    step = messages.step_ns[own]
    nobody = np.full(own.size, -1)
    return Runs(
        own,
        nobody,
        first,
        part.end - first,
        messages.start_ns[own] + part.step * step,
        step,
        nobody,
        nobody,
    )


def _at_pairs(
    large: LargeFleet,
    messages: Messages,
    pairs: Pairs,
    chosen: np.ndarray,
    part: ChunkRun,
    sources: list[np.ndarray],
) -> Runs:
    message, sub = pairs.message[chosen], pairs.sub[chosen]
    run = _run(messages, message, part)
    run.pair = chosen
    run.source = sources[part.source][message] + run.first
    # A message that went round the consumers goes on to the next one when it comes again; a
    # failover subscription changes only if its consumer is gone.
    moves = (large.ways[sub] > 1) | (
        (large.subs.type[sub] == FAILOVER) & (pairs.kind[chosen] == CLOSED)
    )
    at = messages.place[message] % large.ways[sub] + part.turn * moves
    run.consumer = large.subs.first_consumer[sub] + at % large.subs.consumers[sub]
    return run


# -- records ---------------------------------------------------------------------------------


def _chunk_rows(
    plan: Large, runs: Runs, kind: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Rows with what all records of a chunk share; message, run, chunk id and time of each."""
    m, large, texts = plan.messages, plan.large, plan.fleet.texts
    run, within = runs.expanded()
    message = runs.message[run]
    number = runs.source[run] + within
    topic = m.topic[message]
    rows = make_rows(
        run.size,
        event_type=texts.add(kind),
        fixed=1,
        stream=stream_of(plan.fleet, INTERCEPTOR, large.topics.broker[topic]),
        topic=large.topics.text[topic],
        producer_name=large.producers.text[m.producer[message]],
        ledger_id=plan.ledger[number],
        entry_id=plan.entry[number],
    )
    at = runs.at_ns[run] + within * runs.step_ns[run]
    return rows, message, run, runs.first[run] + within, at


def _put(rows: np.ndarray, **columns: Any) -> None:
    for name, values in columns.items():
        rows[:, PLACE[name]] = values


def _sizes(m: Messages, message: np.ndarray, chunk: np.ndarray) -> np.ndarray:
    """Bytes of a chunk's payload: all but the last one are equal."""
    left = m.bytes[message] - chunk * m.chunk_bytes[message]
    sizes: np.ndarray = np.minimum(m.chunk_bytes[message], left)
    return sizes


def _put_chunk(
    plan: Large, rows: np.ndarray, message: np.ndarray, chunk: np.ndarray, sent_ns: np.ndarray
) -> None:
    """The chunk columns and what a producer put into the metadata; `sent_ns` = when sent."""
    m, large = plan.messages, plan.large
    stored = sent_ns + large.topics.stored_ns[m.topic[message]]
    start = plan.fleet.scenario.start_ms
    _put(
        rows,
        sequence_id=m.sequence[message],
        num_messages=1,
        publish_time_ms=start + sent_ns // MS - m.lag_ms[message],
        broker_time_ms=start + stored // MS,
        uuid=large.producers.text[m.producer[message]],
        uuid_number=m.sequence[message],
        chunk_id=chunk,
        num_chunks=m.chunks[message],
        total_chunk_bytes=m.declared[message],
    )


def _sent_rows(plan: Large, runs: Runs) -> list[np.ndarray]:
    m, large = plan.messages, plan.large
    added, message, _, chunk, at = _chunk_rows(plan, runs, "entry_added")
    _put_chunk(plan, added, message, chunk, at)
    connection = large.producers.connection[m.producer[message]]
    _put(
        added,
        at_ns=at + large.topics.stored_ns[m.topic[message]],
        cnx_id=plan.fleet.connection_text(connection, at),
        entry_bytes=_sizes(m, message, chunk) + CHUNK_HEADER_BYTES,
    )
    publish = added.copy()
    _put(
        publish,
        event_type=plan.fleet.texts.add("publish"),
        at_ns=at,
        ledger_id=NULL,
        entry_id=NULL,
        broker_time_ms=NULL,
        uuid=NULL,
        chunk_id=NULL,
        num_chunks=NULL,
        total_chunk_bytes=NULL,
        producer_id=large.producers.id[m.producer[message]],
    )
    return [publish, added]


def _subscribed(plan: Large, rows: np.ndarray, sub: np.ndarray, consumer: np.ndarray) -> None:
    large = plan.large
    types = plan.fleet.texts.add_all(list(TYPES))
    _put(
        rows,
        subscription=large.subs.text[sub],
        sub_type=types[large.subs.type[sub]],
        consumer=large.consumer_text[consumer],
    )


def _delivered_rows(plan: Large, runs: Runs) -> np.ndarray:
    m, large = plan.messages, plan.large
    rows, message, run, chunk, at = _chunk_rows(plan, runs, "dispatch")
    number = runs.source[run] + chunk - runs.first[run]
    _put_chunk(plan, rows, message, chunk, plan.sent_ns[number])
    sub, size = plan.pairs.sub[runs.pair[run]], _sizes(m, message, chunk)
    _put(
        rows,
        at_ns=at + large.topics.stored_ns[m.topic[message]] + large.subs.delay_ns[sub],
        entry_bytes=size,
        payload=m.begins[message] + chunk * m.chunk_bytes[message],
        payload_size=size,
    )
    _subscribed(plan, rows, sub, runs.consumer[run])
    return rows


def _acked_rows(plan: Large, runs: Runs) -> np.ndarray:
    large = plan.large
    rows, message, run, _, at = _chunk_rows(plan, runs, "ack")
    sub = plan.pairs.sub[runs.pair[run]]
    stored = large.topics.stored_ns[plan.messages.topic[message]]
    _put(rows, at_ns=at + stored + large.subs.delay_ns[sub])
    _subscribed(plan, rows, sub, runs.consumer[run])
    _put(rows, sub_type=NULL)
    return rows


def _plain_rows(plan: Large, begin: int, end: int) -> list[np.ndarray]:
    """Publishes of [begin, end) ns with entries, deliveries and acknowledgements."""
    plain, large, texts = plan.plain, plan.large, plan.fleet.texts
    own = np.arange(*np.searchsorted(plain.at_ns, [begin, end]))
    topic, at = plain.topic[own], plain.at_ns[own]
    producer = large.topics.first_producer[topic] + large.topics.producers[topic]
    start, stored = plan.fleet.scenario.start_ms, at + large.topics.stored_ns[topic]
    publish = make_rows(
        own.size,
        event_type=texts.add("publish"),
        at_ns=at,
        stream=stream_of(plan.fleet, INTERCEPTOR, large.topics.broker[topic]),
        cnx_id=plan.fleet.connection_text(large.producers.connection[producer], at),
        topic=large.topics.text[topic],
        producer_id=large.producers.id[producer],
        producer_name=large.producers.text[producer],
        sequence_id=plain.sequence[own],
        entry_bytes=plain.bytes[own],
        num_messages=1,
        publish_time_ms=start + at // MS - plain.lag_ms[own],
    )
    added, number = publish.copy(), plan.sent_ns.size + own
    _put(
        added,
        event_type=texts.add("entry_added"),
        at_ns=stored,
        producer_id=NULL,
        ledger_id=plan.ledger[number],
        entry_id=plan.entry[number],
        broker_time_ms=start + stored // MS,
    )
    each = np.repeat(np.arange(own.size), large.topics.subs[topic])
    first = np.cumsum(large.topics.subs[topic]) - large.topics.subs[topic]
    sub = large.topics.first_sub[topic][each] + np.arange(each.size) - first[each]
    consumer = large.subs.first_consumer[sub] + plain.sequence[own][each] % large.ways[sub]
    dispatch = added[each]
    _put(
        dispatch,
        event_type=texts.add("dispatch"),
        cnx_id=NULL,
        at_ns=stored[each] + large.subs.delay_ns[sub],
    )
    _subscribed(plan, dispatch, sub, consumer)
    ack = dispatch.copy()
    later = 5 * MS + plain.sequence[own][each] * 7919 % (250 * MS)
    _put(
        ack,
        event_type=texts.add("ack"),
        at_ns=dispatch[:, PLACE["at_ns"]] + later,
        sequence_id=NULL,
        entry_bytes=NULL,
        num_messages=NULL,
        publish_time_ms=NULL,
        broker_time_ms=NULL,
        sub_type=NULL,
    )
    return [publish, added, dispatch, ack]


# -- producers and consumers -----------------------------------------------------------------


def _opening(plan: Large) -> list[np.ndarray]:
    large = plan.large
    producers, consumers = np.arange(large.producers.id.size), np.arange(large.consumer_sub.size)
    room = FIRST_PUBLISH_NS - CREATED_NS
    return [
        producer_rows(
            plan.fleet,
            large,
            producers,
            "producer_created",
            CREATED_NS + producers * (room // producers.size),
        ),
        consumer_rows(
            plan.fleet,
            large,
            consumers,
            "consumer_created",
            CREATED_NS + consumers * (room // consumers.size),
        ),
    ]


def _restarts(plan: Large) -> list[np.ndarray]:
    """A producer that dies after chunk k is gone for a step."""
    m = plan.messages
    own = np.flatnonzero(np.isin(m.kind, (RESTARTED, NEVER_FINISHED)))
    gone = m.start_ns[own] + (m.k[own] + 2) * m.step_ns[own]
    return [
        producer_rows(plan.fleet, plan.large, m.producer[own], "producer_closed", gone),
        producer_rows(
            plan.fleet, plan.large, m.producer[own], "producer_created", gone + m.step_ns[own]
        ),
    ]


def _closings(plan: Large) -> list[np.ndarray]:
    """A consumer goes after chunk k; the only one is back at once, another after the message."""
    m, large, pairs = plan.messages, plan.large, plan.pairs
    own = np.flatnonzero(pairs.kind == CLOSED)
    message, sub = pairs.message[own], pairs.sub[own]
    consumer = large.subs.first_consumer[sub] + m.place[message] % large.ways[sub]
    delay = large.topics.stored_ns[m.topic[message]] + large.subs.delay_ns[sub]
    gone = m.start_ns[message] + (m.k[message] + 2) * m.step_ns[message] + delay
    away = np.where(large.subs.type[sub] == EXCLUSIVE, 1, m.chunks[message] + 5)
    return [
        consumer_rows(plan.fleet, large, consumer, "consumer_closed", gone),
        consumer_rows(
            plan.fleet, large, consumer, "consumer_created", gone + away * m.step_ns[message]
        ),
    ]
