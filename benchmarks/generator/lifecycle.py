"""Brokers start, connections open and close, producers and consumers come and go."""

from __future__ import annotations

import numpy as np

from benchmarks.generator.fleet import NEVER, Fleet
from benchmarks.generator.plan import MS, SECOND, IncidentPlan
from benchmarks.generator.streams import INTERCEPTOR, stream_of
from benchmarks.generator.trace_rows import make_rows

FIRST_PUBLISH_NS = 2 * SECOND


def lifecycle(fleet: Fleet, plan: IncidentPlan, seed: int) -> np.ndarray:
    """All such records of the trace, in no order."""
    rng = np.random.default_rng([seed, 2])
    every = np.arange(len(fleet.brokers))
    parts = [_started(fleet, every, 0)]
    connections = np.arange(fleet.connections.broker.size)
    parts.append(_opened(fleet, connections, 10 * MS, rng))
    parts.append(_consumers(fleet, rng))
    for broker, _, up in plan.down:
        parts.append(_started(fleet, np.array([broker]), up))
    restarts = fleet.restarts_ns[fleet.connections.broker]
    for connection in np.flatnonzero(fleet.connections.reopens_ns < NEVER):
        opens = int(fleet.connections.reopens_ns[connection])
        if opens != restarts[connection]:  # a broker that goes down reports no closing
            parts.append(_closed(fleet, np.array([connection]), opens - SECOND))
        parts.append(_opened(fleet, np.array([connection]), opens + 10 * MS, rng))
    return np.concatenate(parts)


def _started(fleet: Fleet, brokers: np.ndarray, at: int) -> np.ndarray:
    return make_rows(
        brokers.size,
        event_type=fleet.texts.add("broker_started"),
        at_ns=at,
        fixed=1,
        stream=stream_of(fleet, INTERCEPTOR, brokers),
    )


def _opened(fleet: Fleet, connections: np.ndarray, at: int, rng: np.random.Generator) -> np.ndarray:
    """Connections open within 200 ms, their producers are created within the 400 ms after."""
    known = fleet.connections
    opens = at + rng.integers(0, 200 * MS, connections.size)
    opened = make_rows(
        connections.size,
        event_type=fleet.texts.add("connection_opened"),
        at_ns=opens,
        fixed=1,
        stream=stream_of(fleet, INTERCEPTOR, known.broker[connections]),
        cnx_id=fleet.connection_text(connections, opens),
        supports_throttle=known.supports_throttle[connections],
        io_thread=known.io_thread[connections],
        principal=known.principal[connections],
        client_id=known.client[connections],
    )
    own = np.flatnonzero(np.isin(fleet.producers.connection, connections))
    created = _producer_rows(
        fleet, own, "producer_created", at + 200 * MS + rng.integers(0, 400 * MS, own.size)
    )
    return np.concatenate([opened, created])


def _closed(fleet: Fleet, connections: np.ndarray, at: int) -> np.ndarray:
    own = np.flatnonzero(np.isin(fleet.producers.connection, connections))
    closed = make_rows(
        connections.size,
        event_type=fleet.texts.add("connection_closed"),
        fixed=1,
        at_ns=at + own.size * MS + MS,
        stream=stream_of(fleet, INTERCEPTOR, fleet.connections.broker[connections]),
        cnx_id=fleet.connection_text(connections, np.array([at])),
    )
    producers = _producer_rows(fleet, own, "producer_closed", at + np.arange(own.size) * MS)
    return np.concatenate([producers, closed])


def _producer_rows(fleet: Fleet, producers: np.ndarray, kind: str, at: np.ndarray) -> np.ndarray:
    topic = fleet.producers.topic[producers]
    connection = fleet.producers.connection[producers]
    return make_rows(
        producers.size,
        event_type=fleet.texts.add(kind),
        at_ns=at,
        fixed=1,
        stream=stream_of(fleet, INTERCEPTOR, fleet.topics.broker[topic]),
        cnx_id=fleet.connection_text(connection, at),
        topic=fleet.topics.text[topic],
        partition=fleet.topics.partition[topic],
        producer_id=fleet.producers.id[producers],
        producer_name=fleet.producers.text[producers],
    )


def _consumers(fleet: Fleet, rng: np.random.Generator) -> np.ndarray:
    known = fleet.subscriptions
    return make_rows(
        known.topic.size,
        event_type=fleet.texts.add("consumer_created"),
        fixed=1,
        at_ns=10 * MS + rng.integers(0, FIRST_PUBLISH_NS - 20 * MS, known.topic.size),
        stream=stream_of(fleet, INTERCEPTOR, fleet.topics.broker[known.topic]),
        topic=fleet.topics.text[known.topic],
        partition=fleet.topics.partition[known.topic],
        subscription=known.text,
        sub_type=known.type,
        consumer=known.consumer,
    )
