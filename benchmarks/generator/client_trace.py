"""Requests of Kafka's clients, answered by brokers that throttle as Kafka does.

A client sends its next request when the last one is answered, so one that is throttled sends less.
A broker takes requests in their order, each with one of its request threads; it charges them when
they are handled and answers how long the client is throttled. Its rates are written from Kafka's
`Rate`, apart from Weir's core, which comes to the same throttle times.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import floor
from typing import NamedTuple

import numpy as np

from benchmarks.generator.client_spec import ClientSpec, ClientsSpec
from benchmarks.generator.fleet import Fleet
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.streams import REQUEST_LOG, kafka_stream_of
from benchmarks.generator.trace_rows import NULL, PLACE, make_rows

SAMPLES, SAMPLE_MS = 11, 1000
"""Defaults of `quota.window.num` and `quota.window.size.seconds`."""
HEADER_BYTES = 96
"""Of a request or answer, beside the bytes of its records."""
BATCH_BYTES = 1000
"""Records come in multiples of it, so that few different numbers are written."""
LEAST = 300
"""Requests of the shortest trace."""
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
CHARGED = {"PRODUCE": PRODUCE, "FETCH": FETCH}


@dataclass
class Sensor:
    """A rate over samples of a second: their sum over the time since the oldest, ten seconds at
    least."""

    samples: deque[list[float]] = field(default_factory=deque)
    """Start (ms), last record (ms) and sum of each."""

    def record(self, value: float, now: int) -> None:
        """Add to the newest sample, or to a new one once that has lasted its second."""
        if not self.samples or now - self.samples[-1][0] >= SAMPLE_MS:
            self.samples.append([now, now, 0.0])
        self.samples[-1][1] = now
        self.samples[-1][2] += value

    def throttle_ms(self, bound: float, now: int) -> int:
        """How long a client over the bound (per s) is throttled."""
        while self.samples and now - self.samples[0][1] >= SAMPLES * SAMPLE_MS:
            self.samples.popleft()
        since = int(now - self.samples[0][0]) if self.samples else 0
        span = since + max(SAMPLES - 1 - since // SAMPLE_MS, 0) * SAMPLE_MS
        rate = sum(total for _, _, total in self.samples) / (span / 1000)
        return floor((rate - bound) / bound * span + 0.5) if rate > bound else 0


class Quotas:
    """The client quotas of a broker: limits of users, which all clients of the user share."""

    def __init__(self, limits: dict[str, dict[str, float]]) -> None:
        self._limits = limits
        self._sensors: dict[tuple[str, str], Sensor] = {}

    def charge(self, user: str, api: str, size: int, handler_ns: int, now: int) -> int:
        """The throttle time (ms) of a request. The bytes of a fetch that is throttled are not
        sent."""
        by_bytes = self._charged(user, CHARGED[api], size, now) if api in CHARGED else 0
        by_time = self._charged(user, REQUEST, handler_ns * 100 / SECOND, now)
        throttle = max(by_bytes, min(by_time, SAMPLE_MS))
        if throttle and api == "FETCH":
            self._sensor(user, FETCH).record(-size, now)
        return throttle

    def _charged(self, user: str, limit: str, value: float, now: int) -> int:
        bound = self._limits.get(user, {}).get(limit)
        if bound is None:
            return 0
        self._sensor(user, limit).record(value, now)
        return self._sensor(user, limit).throttle_ms(bound, now)

    def _sensor(self, user: str, limit: str) -> Sensor:
        return self._sensors.setdefault((user, limit), Sensor())


class _Connection(NamedTuple):
    """A connection of a client to a broker; amounts are those of one request."""

    user: str
    client_id: str
    client: ClientSpec
    every_ns: float
    bytes: float
    handler_ns: float
    begin_ns: float
    end_ns: float


class _Answer(NamedTuple):
    """A request that was answered, with the bytes of its records."""

    at_ns: int
    connection: _Connection
    bytes: int
    handler_ns: int
    throttle_ms: int


@dataclass(frozen=True)
class ClientRequests:
    """All requests, in order of time."""

    spec: ClientsSpec
    rows: np.ndarray

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.rows)

    def between(self, begin: int, end: int) -> np.ndarray:
        """The records of [begin, end) ns."""
        first, last = np.searchsorted(self.rows[:, PLACE["at_ns"]], [begin, end])
        found: np.ndarray = self.rows[first:last]
        return found


def plan_requests(
    fleet: Fleet, clients: ClientsSpec, brokers: int, records: float, seed: int
) -> ClientRequests:
    """About so many requests, less what throttled clients do not send. The fewer there are, the more
    each of them carries."""
    seconds = fleet.scenario.active_s
    usual = sum(
        client.requests
        * (client.for_s or seconds - client.at_s)
        * len(client.brokers or range(brokers))
        for user in clients.users.values()
        for client in user.clients.values()
    )
    limits = {name: user.limits for name, user in clients.users.items()}
    blocks = []
    for broker in range(brokers):
        connections = list(_connections(clients, broker, max(records, LEAST) / usual, seconds))
        answers = _answers(
            connections,
            clients.request_threads,
            Quotas(limits),
            fleet.scenario.start_ms,
            np.random.default_rng([seed, 14, broker]),
        )
        blocks.append(_rows(fleet, broker, answers))
    rows = np.concatenate(blocks)
    return ClientRequests(clients, rows[np.argsort(rows[:, PLACE["at_ns"]], kind="stable")])


def _connections(
    clients: ClientsSpec, broker: int, scale: float, seconds: int
) -> Iterator[_Connection]:
    """Those of a broker, with `scale` times the usual requests."""
    for name, user in clients.users.items():
        for client_id, client in user.clients.items():
            if client.brokers and broker not in client.brokers:
                continue
            requests = client.requests * scale
            begin, lasts = client.at_s, client.for_s or seconds - client.at_s
            for _ in range(client.connections):
                yield _Connection(
                    name,
                    client_id,
                    client,
                    client.connections / requests * SECOND,
                    client.bytes / requests,
                    client.threads / requests * SECOND,
                    begin * SECOND,
                    (begin + lasts) * SECOND,
                )


def _answers(
    connections: list[_Connection],
    threads: int,
    quotas: Quotas,
    start_ms: int,
    rng: np.random.Generator,
) -> list[_Answer]:
    """The requests of a broker in the order in which they are handled."""
    # when (ns), which connection, and the handler time of a request that a thread has
    events: list[tuple[int, int, int]] = [
        (int(each.begin_ns + rng.random() * each.every_ns), number, 0)
        for number, each in enumerate(connections)
    ]
    heapify(events)
    sent = [0] * len(connections)
    queue: deque[int] = deque()
    found = []
    while events:
        at, number, handler_ns = heappop(events)
        if not handler_ns:
            sent[number] = at
            queue.append(number)
        else:
            threads += 1
            each = connections[number]
            size = int(each.bytes * _about(each.client.spread, rng) / BATCH_BYTES) * BATCH_BYTES
            charged = size + HEADER_BYTES
            throttle = quotas.charge(
                each.user, each.client.api, charged, handler_ns, start_ms + at // MS
            )
            found.append(_Answer(at, each, size, handler_ns, throttle))
            again = max(
                sent[number] + int(each.every_ns * _about(each.client.spread, rng)),
                at + throttle * MS,
            )
            if again < each.end_ns:
                heappush(events, (again, number, 0))
        while threads and queue:
            threads -= 1
            next_one = queue.popleft()
            each = connections[next_one]
            takes = int(each.handler_ns * _about(each.client.spread, rng)) + 1
            heappush(events, (at + takes, next_one, takes))
    return found


def _about(spread: float, rng: np.random.Generator) -> float:
    """A factor around 1."""
    return 1 + spread * (2 * rng.random() - 1)


def _rows(fleet: Fleet, broker: int, answers: list[_Answer]) -> np.ndarray:
    """The records of a broker's request log."""
    texts = fleet.texts
    of_bytes = [a.connection.client.api in CHARGED for a in answers]
    return make_rows(
        len(answers),
        event_type=texts.add("client_request"),
        fixed=1,
        at_ns=[a.at_ns for a in answers],
        stream=kafka_stream_of(fleet, REQUEST_LOG, np.array(broker)),
        principal=texts.add_all([f"User:{a.connection.user}" for a in answers]),
        client_id=texts.add_all([a.connection.client_id for a in answers]),
        api=texts.add_all([a.connection.client.api for a in answers]),
        charged_bytes=np.where(of_bytes, [a.bytes + HEADER_BYTES for a in answers], NULL),
        handler_time_ns=[a.handler_ns for a in answers],
        throttle_ms=[a.throttle_ms for a in answers],
        topic_bytes=[_topic_bytes(fleet, a) for a in answers],
    )


def _topic_bytes(fleet: Fleet, answer: _Answer) -> int:
    topic = answer.connection.client.topic
    return fleet.texts.add(json.dumps({topic: answer.bytes})) if topic else NULL
