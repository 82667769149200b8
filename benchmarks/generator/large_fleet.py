"""Producers and consumers of large messages: topics of three roles with producers and consumers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.plan import MS
from benchmarks.generator.scenario import LargeSpec
from benchmarks.generator.streams import INTERCEPTOR, stream_of
from benchmarks.generator.trace_rows import make_rows

BUSY, CROWDED, HANDOVER = range(3)
EXCLUSIVE, FAILOVER, SHARED = range(3)
TYPES = ("exclusive", "failover", "shared")
NAMES = ("index", "archive", "render")


@dataclass
class LargeTopics:
    """One entry per topic; positions and times of a topic follow from it alone."""

    names: list[str]
    text: np.ndarray
    broker: np.ndarray
    role: np.ndarray
    first_ledger: np.ndarray
    stored_ns: np.ndarray
    """From publish to entry."""
    first_producer: np.ndarray
    producers: np.ndarray
    """How many, besides the one of plain messages, which comes after them."""
    first_sub: np.ndarray
    subs: np.ndarray


@dataclass
class LargeProducers:
    """One entry per producer."""

    names: list[str]
    text: np.ndarray
    topic: np.ndarray
    connection: np.ndarray
    id: np.ndarray


@dataclass
class LargeSubs:
    """One entry per subscription."""

    names: list[str]
    text: np.ndarray
    topic: np.ndarray
    type: np.ndarray
    delay_ns: np.ndarray
    """From entry to dispatch."""
    first_consumer: np.ndarray
    consumers: np.ndarray


@dataclass
class LargeFleet:
    """All of them, and the texts of their consumers."""

    topics: LargeTopics
    producers: LargeProducers
    subs: LargeSubs
    consumer_text: np.ndarray
    consumer_sub: np.ndarray

    @property
    def ways(self) -> np.ndarray:
        """By subscription: among how many consumers messages go round."""
        return np.where(self.subs.type == SHARED, self.subs.consumers, 1)


def build_large_fleet(fleet: Fleet, spec: LargeSpec, rng: np.random.Generator) -> LargeFleet:
    """The topics of large messages, spread over the brokers of a fleet."""
    role = np.repeat(
        [BUSY, CROWDED, HANDOVER], [spec.busy_topics, spec.crowded_topics, spec.handover_topics]
    )
    n = role.size
    low, high = spec.producers
    producers = np.select(
        [role == CROWDED, role == HANDOVER], [spec.crowd[1], 1], rng.integers(low, high + 1, n)
    )
    fewest, most = spec.subscriptions
    subs = np.where(role == BUSY, rng.integers(fewest, most + 1, n), len(TYPES))
    # The first one has most of them, all if it may, so that every fate meets every type.
    subs[0] = most
    names = [f"persistent://{spec.namespace}/large-{t:03d}" for t in range(n)]
    topics = LargeTopics(
        names,
        fleet.texts.add_all(names),
        _brokers(fleet, spec, n),
        role,
        1_000_000 + np.arange(n) * 100_000,
        rng.integers(MS, 10 * MS, n),
        _firsts(producers + 1),
        producers,
        _firsts(subs),
        subs,
    )
    found, texts, of_sub = _subs(fleet, spec, topics, rng)
    return LargeFleet(topics, _producers(fleet, spec, topics), found, texts, of_sub)


def _brokers(fleet: Fleet, spec: LargeSpec, n: int) -> np.ndarray:
    """The brokers of so many topics, in turn."""
    allowed = np.array(spec.brokers or range(len(fleet.brokers)))
    return allowed[np.arange(n) % allowed.size]


def _firsts(counts: np.ndarray) -> np.ndarray:
    firsts: np.ndarray = np.cumsum(counts) - counts
    return firsts


def _producers(fleet: Fleet, spec: LargeSpec, topics: LargeTopics) -> LargeProducers:
    topic = np.repeat(np.arange(topics.role.size), topics.producers + 1)
    used = np.bincount(fleet.producers.connection, minlength=fleet.connections.broker.size)
    connection = np.array(
        [fleet.large_connection_on(int(topics.broker[t]), p) for p, t in enumerate(topic)]
    )
    ids = np.empty(topic.size, dtype=np.int64)
    for p, c in enumerate(connection):
        ids[p] = used[c]
        used[c] += 1
    names = [f"{fleet.scenario.cluster}-{spec.label}-{t}-{p}" for p, t in enumerate(topic)]
    return LargeProducers(names, fleet.texts.add_all(names), topic, connection, ids)


def _subs(
    fleet: Fleet, spec: LargeSpec, topics: LargeTopics, rng: np.random.Generator
) -> tuple[LargeSubs, np.ndarray, np.ndarray]:
    topic = np.repeat(np.arange(topics.role.size), topics.subs)
    kind = (np.arange(topic.size) - topics.first_sub[topic] + topic) % len(TYPES)
    names = [NAMES[k] for k in kind]
    consumers = np.select([kind == SHARED, kind == FAILOVER], [spec.shared_consumers, 2], 1)
    of_sub = np.repeat(np.arange(topic.size), consumers)
    first = _firsts(consumers)
    texts = fleet.texts.add_all(
        [f"{names[s]}-{topic[s]}-{i - first[s]}" for i, s in enumerate(of_sub)]
    )
    subs = LargeSubs(
        names,
        fleet.texts.add_all(names),
        topic,
        kind,
        rng.integers(MS, 20 * MS, topic.size),
        first,
        consumers,
    )
    return subs, texts, of_sub


def producer_rows(
    fleet: Fleet, large: LargeFleet, producers: np.ndarray, kind: str, at: np.ndarray
) -> np.ndarray:
    """Producers that are created or closed at given times."""
    known = large.producers
    topic, connection = known.topic[producers], known.connection[producers]
    return make_rows(
        producers.size,
        event_type=fleet.texts.add(kind),
        at_ns=at,
        fixed=1,
        stream=stream_of(fleet, INTERCEPTOR, large.topics.broker[topic]),
        cnx_id=fleet.connection_text(connection, at),
        topic=large.topics.text[topic],
        producer_id=known.id[producers],
        producer_name=known.text[producers],
    )


def consumer_rows(
    fleet: Fleet, large: LargeFleet, consumers: np.ndarray, kind: str, at: np.ndarray
) -> np.ndarray:
    """Consumers that are created or closed at given times."""
    sub = large.consumer_sub[consumers]
    topic = large.subs.topic[sub]
    types = fleet.texts.add_all(list(TYPES))
    return make_rows(
        consumers.size,
        event_type=fleet.texts.add(kind),
        at_ns=at,
        fixed=1,
        stream=stream_of(fleet, INTERCEPTOR, large.topics.broker[topic]),
        topic=large.topics.text[topic],
        subscription=large.subs.text[sub],
        sub_type=types[large.subs.type[sub]],
        consumer=large.consumer_text[consumers],
    )
