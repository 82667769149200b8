"""The producers of the Kafka cluster: users, and the producer instances that they run one by one.

An instance is one start of a producer. It is given a producer id, brings its first batch and goes
on until its user starts it anew. A storm is one job whose instances crash after a batch or two.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from benchmarks.generator.fleet import WORDS, Fleet
from benchmarks.generator.json_lines import running_number
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.scenario import KafkaSpec, StormSpec, UserSpec

SAMPLES = 11
"""Default of `producer.id.quota.window.num`: a bucket holds that many times the bound."""
BLOCK = 1000
"""A broker hands out producer ids from blocks of that many."""
FIRST_ID = 4_120_000
UP_NS = 500 * MS
"""Producers are there from then on."""
TO_FIRST_BATCH = (5 * MS, 40 * MS)
"""From the answer that brings an id to the first batch."""
AWAY = (SECOND, 4 * SECOND)
"""How long a producer that starts anew is gone."""


@dataclass
class Users:
    """One entry per user."""

    names: list[str]
    principal: np.ndarray
    first_topic: np.ndarray
    topics: np.ndarray
    topic_names: list[str]
    topic_text: np.ndarray
    """By topic, like its names."""


@dataclass
class Instances:
    """One entry per producer instance, in the order of their ids' assignment."""

    user: np.ndarray
    client: np.ndarray
    id: np.ndarray
    assigned_ns: np.ndarray
    broker: np.ndarray
    """That assigned the id."""
    first_ns: np.ndarray
    """First batch."""
    end_ns: np.ndarray
    weight: np.ndarray
    """Of its batches after the first; 0 in a storm."""
    again: np.ndarray
    """Batches right after the first."""

    def take(self, chosen: np.ndarray) -> Instances:
        """Some of them, by mask or order."""
        return Instances(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @staticmethod
    def concat(parts: list[Instances]) -> Instances:
        """All of them, one part after another."""
        names = Instances.__dataclass_fields__
        return Instances(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def least_starts(spec: KafkaSpec, storm: StormSpec) -> int:
    """Starts of a storm that break the bound on each broker, whatever else a trace has room for."""
    at_once = int(SAMPLES * spec.bound(storm.user)) + 1  # the burst, and one that overdraws it
    return 2 * spec.brokers * at_once


def build_users(fleet: Fleet, spec: KafkaSpec) -> Users:
    """The users of the cluster with their topics."""
    names, texts = list(spec.users), fleet.texts
    topics = np.array([user.topics for user in spec.users.values()])
    topic_names = [
        f"{name}.{WORDS[t % len(WORDS)]}" + ("" if t < len(WORDS) else f"-{t}")
        for name, user in spec.users.items()
        for t in range(user.topics)
    ]
    return Users(
        names,
        texts.add_all([f"User:{name}" for name in names]),
        np.cumsum(topics) - topics,
        topics,
        topic_names,
        texts.add_all(topic_names),
    )


def build_instances(
    fleet: Fleet, spec: KafkaSpec, records: float, rng: np.random.Generator
) -> Instances:
    """Every start of a producer; how often the storm starts its own follows from `records`."""
    end = fleet.scenario.active_s * SECOND
    parts = [
        _steady(fleet, number, name, user, end, rng)
        for number, (name, user) in enumerate(spec.users.items())
        if user.producers
    ]
    if spec.storm is not None:
        parts.append(_storm(fleet, spec, spec.storm, records, rng))
    instances = Instances.concat(parts)
    instances = instances.take(np.argsort(instances.assigned_ns, kind="stable"))
    instances.broker[:] = rng.integers(0, spec.brokers, instances.user.size)
    given = running_number(
        instances.broker, np.zeros(spec.brokers, np.int64), np.arange(instances.user.size)
    )
    block = given // BLOCK * spec.brokers + instances.broker
    instances.id[:] = FIRST_ID + block * BLOCK + given % BLOCK
    return instances


def _steady(
    fleet: Fleet, number: int, name: str, user: UserSpec, end: int, rng: np.random.Generator
) -> Instances:
    """A user's producers; now and then one of them, in turn, starts anew."""
    starts = [[int(at)] for at in UP_NS + rng.integers(0, SECOND, user.producers)]
    ends: list[list[int]] = [[] for _ in starts]
    room = end - 20 * SECOND
    for i, gone in enumerate(np.sort(rng.integers(10 * SECOND, room, user.restarts)).tolist()):
        slot = i % user.producers
        back = gone + int(rng.integers(*AWAY))
        if gone > starts[slot][-1] + SECOND:
            ends[slot].append(gone)
            starts[slot].append(back)
    slots = np.repeat(np.arange(user.producers), [len(own) for own in starts])
    assigned = np.array([at for own in starts for at in own])
    until = np.array([at for own in ends for at in [*own, end]])
    clients = fleet.texts.add_all([f"{name}-{i}" for i in range(user.producers)])
    return _instances(
        number,
        clients[slots],
        assigned,
        until,
        np.full(slots.size, user.weight / user.producers),
        rng,
    )


def _storm(
    fleet: Fleet, spec: KafkaSpec, storm: StormSpec, records: float, rng: np.random.Generator
) -> Instances:
    """A job that crashes at once and is started again, and again."""
    each = 2 + storm.again
    starts = max(ceil(records * storm.share / each), least_starts(spec, storm))
    begin, end = (int(s * SECOND) for s in (storm.at_s, storm.at_s + storm.for_s))
    last = end - TO_FIRST_BATCH[1] - SECOND // 10
    assigned = np.linspace(begin, last, starts, endpoint=False).astype(np.int64)
    assigned += rng.integers(0, max((last - begin) // starts, 1), starts)
    number = list(spec.users).index(storm.user)
    clients = np.full(starts, fleet.texts.add(f"{storm.user}-0"))
    found = _instances(number, clients, assigned, assigned, np.zeros(starts), rng)
    found.again[:] = rng.random(starts) < storm.again
    return found


def _instances(
    user: int,
    client: np.ndarray,
    assigned: np.ndarray,
    until: np.ndarray,
    weight: np.ndarray,
    rng: np.random.Generator,
) -> Instances:
    n, none = client.size, np.zeros(client.size, dtype=np.int64)
    first = assigned + rng.integers(*TO_FIRST_BATCH, n)
    return Instances(
        np.full(n, user),
        client,
        none,
        assigned,
        none.copy(),
        first,
        np.maximum(until, first),
        weight,
        none.copy(),
    )
