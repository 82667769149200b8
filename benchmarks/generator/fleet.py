"""The fleet: brokers, connections, topics, producers and subscriptions, as arrays.

The layout follows from the scenario; the seed decides names, weights and sizes. Topic t lives on
broker t mod brokers. The first connection of the first broker is a shared gateway that carries
exactly `shared_topics` topics.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.generator.scenario import Scenario
from benchmarks.generator.trace_rows import NULL, TraceTexts

NEVER = np.iinfo(np.int64).max
WORDS = (
    "created",
    "updated",
    "priced",
    "shipped",
    "paid",
    "viewed",
    "indexed",
    "resized",
    "scored",
    "settled",
    "audited",
    "expired",
)
KINDS_OF_SUBSCRIPTION = ("exclusive", "failover", "shared", "key_shared")


@dataclass
class Topics:
    """One entry per topic; a partition is a topic of its own."""

    names: list[str]
    """Names as outputs give them: with scheme and `-partition-N`."""
    namespaces: list[str]
    text: np.ndarray
    """Names as records give them."""
    partition: np.ndarray
    broker: np.ndarray
    weight: np.ndarray
    """Share of all publishes."""
    message_bytes: np.ndarray
    first_ledger: np.ndarray


@dataclass
class Connections:
    """One entry per connection. After `reopens_ns` it comes from another port, as another one."""

    names: list[tuple[str, str]]
    broker: np.ndarray
    text: np.ndarray
    """[connection, before or after it reopens]"""
    supports_throttle: np.ndarray
    io_thread: np.ndarray
    principal: np.ndarray
    client: np.ndarray
    reopens_ns: np.ndarray


@dataclass
class Producers:
    """One entry per producer; the first `topics` ones are each topic's main producer."""

    topic: np.ndarray
    connection: np.ndarray
    id: np.ndarray
    text: np.ndarray
    share: np.ndarray
    """Cumulative share of all publishes."""


@dataclass
class Subscriptions:
    """One entry per subscription; the first `topics` ones are each topic's first."""

    topic: np.ndarray
    text: np.ndarray
    type: np.ndarray
    consumer: np.ndarray
    cumulative: np.ndarray
    second: np.ndarray
    """Index of each topic's second subscription, -1 without."""


@dataclass
class Fleet:
    """The whole fleet with the texts that its records use."""

    scenario: Scenario
    brokers: list[str]
    origins: np.ndarray
    """[broker, before or after its restart]: monotonic clock at the start of the trace (ns)."""
    restarts_ns: np.ndarray
    topics: Topics
    connections: Connections
    producers: Producers
    subscriptions: Subscriptions
    texts: TraceTexts = field(default_factory=TraceTexts)
    kafka_brokers: list[str] = field(default_factory=list)
    own_connections: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Connections that only large messages use."""
    backlog_connections: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    """Connections that only the topics of the backlog part use, one on each of its brokers."""

    @property
    def keys(self) -> list[str]:
        """The subjects of records, by number: the brokers, all of them, those of Kafka."""
        return [*self.brokers, "*", *self.kafka_brokers]

    def connection_text(self, connection: np.ndarray, at_ns: np.ndarray) -> np.ndarray:
        """Ids of the names that connections have at given times."""
        later = at_ns >= self.connections.reopens_ns[connection]
        names: np.ndarray = self.connections.text[connection, later.astype(np.int64)]
        return names

    def topic_on(self, broker: int, number: int) -> int:
        """The index of a broker's topic, counted from 0."""
        return topic_of(len(self.topics.names), len(self.brokers), broker, number)

    def connection_on(self, broker: int, number: int) -> int:
        """The index of a broker's connection, counted from 0."""
        others = self.own_connections.size + self.backlog_connections.size
        ordinary = self.connections.broker.size - others  # the others are the last ones
        own = np.flatnonzero(self.connections.broker[:ordinary] == broker)
        return int(own[number % own.size])

    def backlog_connection_on(self, broker: int) -> int:
        """The index of a broker's connection for the topics of the backlog part."""
        own = self.backlog_connections
        return int(own[self.connections.broker[own] == broker][0])

    def large_connection_on(self, broker: int, number: int) -> int:
        """The index of a broker's connection for large messages, counted from 0."""
        own = self.own_connections[self.connections.broker[self.own_connections] == broker]
        return int(own[number % own.size]) if own.size else self.connection_on(broker, number)


def topic_of(topics: int, brokers: int, broker: int, number: int) -> int:
    """The index of a broker's topic, counted from 0, in a fleet of so many topics and brokers."""
    return broker + brokers * (number % len(range(broker, topics, brokers)))


def build_fleet(scenario: Scenario, seed: int) -> Fleet:
    """The fleet of a scenario."""
    rng = np.random.default_rng([seed, 1])
    texts = TraceTexts()
    spec = scenario.fleet
    brokers = [f"broker-{i}" for i in range(spec.brokers)]
    day = 86_400_000_000_000
    up = rng.integers(120 * day, 200 * day, spec.brokers)
    fresh = rng.integers(day // 8640, day // 1440, spec.brokers)  # a rebooted host: 10 to 60 s
    topics = _topics(scenario, rng, texts)
    connections = _connections(scenario, rng, texts)
    kafka = scenario.kafka
    fleet = Fleet(
        scenario,
        brokers,
        np.stack([up, fresh], axis=1),
        np.full(spec.brokers, NEVER),
        topics,
        connections,
        _producers(scenario, rng, texts, topics, connections),
        _subscriptions(scenario, rng, texts, topics),
        texts,
        [] if kafka is None else [f"{kafka.cluster}-{i}" for i in range(kafka.brokers)],
    )
    large, backlog = scenario.large, scenario.backlog
    if large is not None and large.connections:
        own = np.repeat(large.brokers or range(spec.brokers), large.connections)
        fleet.own_connections = _add_connections(
            fleet, own, large.label, 9, np.random.default_rng([seed, 6])
        )
    if backlog is not None:
        own = np.array(backlog.brokers or range(spec.brokers))
        fleet.backlog_connections = _add_connections(
            fleet, own, backlog.label, 10, np.random.default_rng([seed, 13])
        )
    return fleet


def _topics(scenario: Scenario, rng: np.random.Generator, texts: TraceTexts) -> Topics:
    spec, traffic = scenario.fleet, scenario.traffic
    spaces = [f"{tenant}/{name}" for tenant, names in spec.tenants.items() for name in names]
    number = np.arange(spec.topics) // spec.brokers
    namespaces = [spaces[n % len(spaces)] for n in number]
    # Partitions of one topic are neighbours, so that they spread over the brokers.
    partitioned = (rng.random(spec.topics // spec.brokers + 1) < spec.partitioned)[number]
    partition = np.where(partitioned, np.arange(spec.topics) % spec.brokers, NULL)
    names, written = [], []
    for t, space in enumerate(namespaces):
        word = WORDS[number[t] % len(WORDS)]
        base = f"{space}/{word}-{number[t] if partitioned[t] else t:03d}"
        ending = f"-partition-{partition[t]}" if partitioned[t] else ""
        names.append(f"persistent://{base}{ending}")
        # Feeds differ in spelling: with or without the scheme, the partition's ending.
        scheme = "" if number[t] % 5 == 4 else "persistent://"
        written.append(f"{scheme}{base}{ending if number[t] % 2 else ''}")
    weight = (1.0 + rng.permutation(spec.topics)) ** -traffic.skew
    low, high = traffic.message_bytes
    size = np.exp(rng.uniform(np.log(low), np.log(high), spec.topics)).astype(np.int64)
    return Topics(
        names,
        namespaces,
        texts.add_all(written),
        partition,
        np.arange(spec.topics) % spec.brokers,
        weight / weight.sum(),
        size,
        np.sort(rng.integers(10_000, 90_000, spec.topics)) * 10,
    )


def _connections(scenario: Scenario, rng: np.random.Generator, texts: TraceTexts) -> Connections:
    spec = scenario.fleet
    n = max(spec.connections, spec.brokers)
    hosts = [f"10.{rng.integers(1, 9)}.{rng.integers(0, 255)}.{i + 1}" for i in range(n)]
    ports = rng.choice(np.arange(32_768, 60_999), (n, 2), replace=False)
    names = [(f"{h}:{a}", f"{h}:{b}") for h, (a, b) in zip(hosts, ports, strict=True)]
    tenants = list(spec.tenants)
    flags = np.array([texts.add_raw(b"false"), texts.add_raw(b"true")])
    knows = rng.random(n) < spec.supports_throttle
    return Connections(
        names,
        np.arange(n) % spec.brokers,
        np.stack([texts.add_all([a for a, _ in names]), texts.add_all([b for _, b in names])], 1),
        flags[knows.astype(np.int64)],
        rng.integers(0, 8, n),
        texts.add_all([f"app:{tenants[i % len(tenants)]}" for i in range(n)]),
        texts.add_all([f"client-{i:02d}" for i in range(n)]),
        np.full(n, NEVER),
    )


def _add_connections(
    fleet: Fleet, broker: np.ndarray, label: str, net: int, rng: np.random.Generator
) -> np.ndarray:
    """Connections of a part's own, so that no incident pauses them."""
    known, texts = fleet.connections, fleet.texts
    n, first = broker.size, known.broker.size
    names = [
        f"10.{net}.{rng.integers(0, 255)}.{i + 1}:{rng.integers(32_768, 60_999)}" for i in range(n)
    ]
    text = texts.add_all(names)
    known.names += [(name, name) for name in names]
    known.broker = np.append(known.broker, broker)
    known.text = np.concatenate([known.text, np.stack([text, text], axis=1)])
    knows = np.full(n, texts.add_raw(b"true"))
    known.supports_throttle = np.append(known.supports_throttle, knows)
    known.io_thread = np.append(known.io_thread, rng.integers(0, 8, n))
    known.principal = np.append(known.principal, texts.add_all([f"app:{label}"] * n))
    known.client = np.append(known.client, texts.add_all([f"{label}-{i:02d}" for i in range(n)]))
    known.reopens_ns = np.append(known.reopens_ns, np.full(n, NEVER))
    return np.arange(first, first + n)


def _producers(
    scenario: Scenario,
    rng: np.random.Generator,
    texts: TraceTexts,
    topics: Topics,
    connections: Connections,
) -> Producers:
    spec = scenario.fleet
    topic, connection = [], []
    second: list[tuple[int, int]] = []
    wanted = {
        topic_of(spec.topics, spec.brokers, i.broker, i.topic)
        for i in scenario.incidents
        if i.name == "shared-topic"
    }
    for t in range(spec.topics):
        own = np.flatnonzero(connections.broker == topics.broker[t])
        number = t // spec.brokers
        shared = topics.broker[t] == 0 and number < spec.shared_topics
        rest = own[1:] if topics.broker[t] == 0 and own.size > 1 else own
        main = own[0] if shared else rest[number % rest.size]
        topic.append(t)
        connection.append(int(main))
        if not shared and rest.size > 1 and (rng.random() < spec.second_producers or t in wanted):
            second.append((t, int(rest[(number + 1) % rest.size])))
    topic += [t for t, _ in second]
    connection += [c for _, c in second]
    topics_of, connections_of = np.array(topic), np.array(connection)
    ids = np.zeros(topics_of.size, dtype=np.int64)
    used: dict[int, int] = {}
    for p, c in enumerate(connection):
        ids[p] = used.get(c, 0)
        used[c] = ids[p] + 1
    weight = topics.weight[topics_of] / np.bincount(topics_of)[topics_of]
    names = [f"{scenario.cluster}-{t}-{p}" for p, t in enumerate(topic)]
    return Producers(
        topics_of, connections_of, ids, texts.add_all(names), np.cumsum(weight) / weight.sum()
    )


def _subscriptions(
    scenario: Scenario, rng: np.random.Generator, texts: TraceTexts, topics: Topics
) -> Subscriptions:
    n = scenario.fleet.topics
    twice = np.flatnonzero(rng.random(n) < scenario.fleet.second_subscriptions)
    topic = np.concatenate([np.arange(n), twice])
    kind = rng.integers(0, 4, topic.size)
    second = np.full(n, -1)
    second[twice] = n + np.arange(twice.size)
    names = ["main"] * n + ["audit"] * twice.size
    return Subscriptions(
        topic,
        texts.add_all(names),
        texts.add_all(list(KINDS_OF_SUBSCRIPTION))[kind],
        texts.add_all([f"{name}-{t}" for name, t in zip(names, topic, strict=True)]),
        kind < 2,
        second,
    )
