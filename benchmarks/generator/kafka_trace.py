"""The Kafka cluster of a trace: producer ids that are assigned, and batches that carry them.

First batches are planned with the trace, since each brings a new id; the batches in between are
drawn slice by slice. Feeds are those of Kafka: the request log has the owner of each id,
dumped log batches carry it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.generator.client_trace import LEAST, ClientRequests, plan_requests
from benchmarks.generator.fleet import Fleet
from benchmarks.generator.kafka_fleet import (
    Instances,
    Users,
    build_instances,
    build_users,
    least_starts,
)
from benchmarks.generator.limits import Policy
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.scenario import KafkaSpec
from benchmarks.generator.streams import DUMP_LOG, REQUEST_LOG, kafka_stream_of
from benchmarks.generator.trace_rows import make_rows

DEFAULT_USER = "<default>"
BATCH_HEADER_BYTES = 61
MESSAGE_BYTES = (120, 900)
MEAN_BATCH = 20
LEAST_PER_START = 2


@dataclass(frozen=True)
class Planned:
    """Batches that are there at any rate, in order of time."""

    at_ns: np.ndarray
    instance: np.ndarray


@dataclass(frozen=True)
class KafkaTrace:
    """The Kafka cluster of a trace; the same each time it is read."""

    fleet: Fleet
    spec: KafkaSpec
    seed: int
    users: Users
    instances: Instances
    planned: Planned
    batches: int
    """Of running producers, besides those planned."""
    least: int
    """Records that there are in however short a trace."""
    requests: ClientRequests | None = None
    """Of clients whose requests are logged, if the scenario has any."""

    @property
    def records(self) -> int:
        """How many there are of it."""
        requests = 0 if self.requests is None else self.requests.count
        return self.instances.id.size + self.planned.at_ns.size + self.batches + requests

    @property
    def policies(self) -> list[Policy]:
        """Bounds on new producer ids, one for everybody and those of some users, and client quotas."""
        bounds = {DEFAULT_USER: self.spec.producer_ids_rate} | {
            name: user.producer_ids_rate
            for name, user in self.spec.users.items()
            if user.producer_ids_rate is not None
        }
        documents = [(name, {"producer_ids_rate": bound}) for name, bound in bounds.items()]
        if self.spec.clients is not None:
            documents += [(name, user.limits) for name, user in self.spec.clients.users.items()]
        return [
            {"scope": "user", "name": name, "limits": {key: _plain(n) for key, n in limits.items()}}
            for name, limits in documents
            if limits
        ]


def plan_kafka(fleet: Fleet, spec: KafkaSpec, events: float, seed: int) -> KafkaTrace:
    """The Kafka part of a trace of so many events in all."""
    rng, records = np.random.default_rng([seed, 7]), events * spec.share
    users = build_users(fleet, spec)
    instances = build_instances(fleet, spec, records, rng)
    planned = _planned(instances, rng)
    fixed = least = instances.id.size + planned.at_ns.size
    requests = None
    if spec.clients is not None:
        asked = records * spec.clients.share
        requests = plan_requests(fleet, spec.clients, spec.brokers, asked, seed)
        fixed += requests.count
        least += LEAST
    if spec.storm is not None:
        own = int((instances.user == users.names.index(spec.storm.user)).sum())
        fewer = own - least_starts(spec, spec.storm)
        least -= round(fewer * (LEAST_PER_START + spec.storm.again))
    return KafkaTrace(
        fleet,
        spec,
        seed,
        users,
        instances,
        planned,
        max(0, round(records - fixed)),
        least,
        requests,
    )


def _planned(instances: Instances, rng: np.random.Generator) -> Planned:
    """The first batch of every instance, and what a crashing one still sends."""
    again = np.repeat(np.arange(instances.id.size), instances.again)
    at = np.concatenate(
        [
            instances.first_ns,
            instances.first_ns[again] + rng.integers(2 * MS, 50 * MS, again.size),
        ]
    )
    order = np.argsort(at, kind="stable")
    return Planned(at[order], np.concatenate([np.arange(instances.id.size), again])[order])


def _plain(bound: float) -> float | int:
    """A bound as an operator writes it."""
    return int(bound) if bound == int(bound) else bound


class Batches:
    """The records of a Kafka cluster, slice after slice: offsets and sequences go on."""

    def __init__(self, kafka: KafkaTrace) -> None:
        self._kafka = kafka
        spec, users = kafka.spec, kafka.users
        places = int(users.topics.max()) * spec.partitions
        self._offsets = np.zeros(len(users.topic_names) * spec.partitions, dtype=np.int64)
        self._sequences = np.zeros(kafka.instances.id.size * places, dtype=np.int64)
        self._places = places
        self._running = np.flatnonzero(kafka.instances.weight > 0)
        total = self._share(0, kafka.fleet.scenario.duration_s * SECOND).sum()
        self._per_share = kafka.batches / total if total else 0.0
        self._owed = 0.0

    def rows(self, begin: int, end: int) -> list[np.ndarray]:
        """The records of [begin, end) ns: one block of rows per kind."""
        kafka, rng = self._kafka, np.random.default_rng([self._kafka.seed, 8, begin // SECOND])
        first, last = np.searchsorted(kafka.planned.at_ns, [begin, end])
        drawn_at, drawn = self._drawn(begin, end, rng)
        at = np.concatenate([kafka.planned.at_ns[first:last], drawn_at])
        instance = np.concatenate([kafka.planned.instance[first:last], drawn])
        order = np.argsort(at, kind="stable")
        requests = [] if kafka.requests is None else [kafka.requests.between(begin, end)]
        produced = self._produced(at[order], instance[order], rng)
        return [self._assigned(begin, end), produced, *requests]

    def _share(self, begin: int, end: int) -> np.ndarray:
        """Of each running producer: its weight times how long it is there in [begin, end) ns."""
        known, own = self._kafka.instances, self._running
        there = np.minimum(known.end_ns[own], end) - np.maximum(known.first_ns[own] + MS, begin)
        share: np.ndarray = np.maximum(there, 0) * known.weight[own]
        return share

    def _drawn(
        self, begin: int, end: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Times and instances of the batches between, each while its producer is there."""
        known = self._kafka.instances
        share = np.cumsum(self._share(begin, end))
        self._owed += share[-1] * self._per_share
        count = int(self._owed + 1e-6)
        self._owed -= count
        place = np.searchsorted(share, rng.random(count) * share[-1], side="right")
        chosen = self._running[np.minimum(place, share.size - 1)]
        since = np.maximum(known.first_ns[chosen] + MS, begin)
        until = np.minimum(known.end_ns[chosen], end)
        return since + (rng.random(count) * (until - since)).astype(np.int64), chosen

    def _assigned(self, begin: int, end: int) -> np.ndarray:
        kafka, known = self._kafka, self._kafka.instances
        own = np.arange(*np.searchsorted(known.assigned_ns, [begin, end]))
        return make_rows(
            own.size,
            event_type=kafka.fleet.texts.add("producer_id_assigned"),
            fixed=1,
            at_ns=known.assigned_ns[own],
            producer_id=known.id[own],
            stream=kafka_stream_of(kafka.fleet, REQUEST_LOG, known.broker[own]),
            **self._who(own),
        )

    def _who(self, instance: np.ndarray) -> dict[str, Any]:
        known = self._kafka.instances
        return {
            "principal": self._kafka.users.principal[known.user[instance]],
            "client_id": known.client[instance],
        }

    def _produced(
        self, at: np.ndarray, instance: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Batches in order of time; the leader of a partition reports them."""
        kafka, n = self._kafka, at.size
        spec, users = kafka.spec, kafka.users
        user = kafka.instances.user[instance]
        own = rng.integers(0, users.topics[user])
        topic, partition = users.first_topic[user] + own, rng.integers(0, spec.partitions, n)
        messages = rng.geometric(1 / MEAN_BATCH, n)
        place = instance * self._places + own * spec.partitions + partition
        return make_rows(
            n,
            event_type=kafka.fleet.texts.add("produce_batch"),
            at_ns=at,
            fixed=1,
            stream=kafka_stream_of(kafka.fleet, DUMP_LOG, (topic + partition) % spec.brokers),
            topic=users.topic_text[topic],
            partition=partition,
            producer_id=kafka.instances.id[instance],
            sequence_id=running_total(place, messages, self._sequences),
            entry_id=running_total(topic * spec.partitions + partition, messages, self._offsets),
            entry_bytes=BATCH_HEADER_BYTES + messages * rng.integers(*MESSAGE_BYTES, n),
            num_messages=messages,
            **self._who(instance),
        )


def running_total(group: np.ndarray, amount: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """For each row the total of its group before it; the totals go on from there."""
    order = np.argsort(group, kind="stable")
    own, before = group[order], np.cumsum(amount[order]) - amount[order]
    new = np.append(True, own[1:] != own[:-1])[: own.size]
    first = np.flatnonzero(new)
    out = np.empty(group.size, dtype=np.int64)
    out[order] = before - before[first][np.cumsum(new) - 1] + totals[own]
    np.add.at(totals, group, amount)
    return out
