"""Normal traffic: publishes, and the records that follow from each.

An entry is added 1 to 20 ms after its publish, dispatched to each subscription, and acknowledged.
"""

from __future__ import annotations

import numpy as np

from benchmarks.generator.fleet import Fleet
from benchmarks.generator.json_lines import running_number
from benchmarks.generator.lifecycle import FIRST_PUBLISH_NS
from benchmarks.generator.plan import MS, SECOND, Publishes
from benchmarks.generator.streams import INTERCEPTOR, stream_of
from benchmarks.generator.trace_rows import NULL, PLACE, make_rows

HEADER_BYTES = 60
ACK_EVERY = 10
"""A cumulative subscription acknowledges every tenth entry."""


def records_per_publish(fleet: Fleet) -> float:
    """How many records one normal publish gives, on average."""
    known, weight = fleet.subscriptions, fleet.topics.weight
    per_subscription = 1 + np.where(known.cumulative, 1 / ACK_EVERY, 1)
    return 2 + float((weight[known.topic] * per_subscription).sum())


def slice_counts(fleet: Fleet, publishes: int) -> np.ndarray:
    """Normal publishes of each slice: the fleet's rate swings, and is nothing in the quiet end."""
    scenario = fleet.scenario
    edges = np.arange(0, scenario.duration_s + scenario.slice_s, scenario.slice_s)
    edges = np.clip(edges, FIRST_PUBLISH_NS / SECOND, scenario.active_s)
    turn = 2 * np.pi / 300  # one swing in five minutes
    total = edges - scenario.traffic.wave / turn * np.cos(turn * edges)
    share = (total - total[0]) / (total[-1] - total[0])
    return np.diff(np.round(share * publishes).astype(np.int64))


def normal_publishes(
    fleet: Fleet, count: int, begin: int, end: int, rng: np.random.Generator
) -> Publishes:
    """`count` publishes in [begin, end) ns, in order of time."""
    end = min(end, fleet.scenario.active_s * SECOND)
    begin = min(max(begin, FIRST_PUBLISH_NS), end)
    at = np.sort(rng.integers(begin, max(end, begin + 1), count))
    share = fleet.producers.share
    producer = np.searchsorted(share, rng.random(count) * share[-1], side="right")
    return _publishes(fleet, at, np.minimum(producer, share.size - 1), rng)


def heartbeats(fleet: Fleet, begin: int, end: int, rng: np.random.Generator) -> Publishes:
    """The trickle of the quiet end: each broker gets two publishes a second, from any topic."""
    begin = max(begin, fleet.scenario.active_s * SECOND)
    if begin >= end:
        return _publishes(fleet, np.empty(0, np.int64), np.empty(0, np.int64), rng)
    times = np.arange(begin, end, SECOND // 2)
    brokers = len(fleet.brokers)
    at = (times[:, None] + rng.integers(0, SECOND // 4, (times.size, brokers))).ravel()
    own = [np.flatnonzero(fleet.topics.broker == b) for b in range(brokers)]
    producer = np.stack([rng.choice(o, times.size) for o in own], axis=1).ravel()
    return _publishes(fleet, at, producer, rng)


def _publishes(
    fleet: Fleet, at: np.ndarray, producer: np.ndarray, rng: np.random.Generator
) -> Publishes:
    traffic, n = fleet.scenario.traffic, at.size
    messages = np.minimum(rng.geometric(1 / traffic.mean_batch, n), traffic.max_batch)
    size = fleet.topics.message_bytes[fleet.producers.topic[producer]]
    return Publishes(
        at,
        producer,
        messages,
        HEADER_BYTES + messages * size - rng.integers(0, size // 4 + 1),
        rng.integers(MS, 20 * MS, n),
        np.zeros(n, dtype=np.int64),
    )


class Storage:
    """Ledgers and sequence numbers of the fleet, as publishes move them on."""

    def __init__(self, fleet: Fleet) -> None:
        topics = len(fleet.topics.names)
        self.ledger = fleet.topics.first_ledger.copy()
        self.entries = np.zeros(topics, dtype=np.int64)
        self.bytes = np.zeros(topics, dtype=np.int64)
        self.sequence = np.zeros(fleet.producers.topic.size, dtype=np.int64)

    def next_ledger(self, topics: np.ndarray) -> None:
        """Closes the open ledger of some topics and opens the next one."""
        self.ledger[topics] += 1
        self.entries[topics] = 0
        self.bytes[topics] = 0


def rows_of(
    fleet: Fleet, publishes: Publishes, storage: Storage, rng: np.random.Generator
) -> list[np.ndarray]:
    """The records of publishes given in order of time: one block of rows per kind."""
    texts, known = fleet.texts, fleet.producers
    n, order = publishes.at_ns.size, np.arange(publishes.at_ns.size)
    topic = known.topic[publishes.producer]
    connection = fleet.connection_text(known.connection[publishes.producer], publishes.at_ns)
    stored = publishes.at_ns + publishes.stored_after_ns
    published = fleet.scenario.start_ms + publishes.at_ns // MS - rng.integers(1, 15, n)
    publish = make_rows(
        n,
        event_type=texts.add("publish"),
        at_ns=publishes.at_ns,
        fixed=publishes.fixed,
        stream=stream_of(fleet, INTERCEPTOR, fleet.topics.broker[topic]),
        cnx_id=connection,
        topic=fleet.topics.text[topic],
        partition=fleet.topics.partition[topic],
        producer_id=known.id[publishes.producer],
        producer_name=known.text[publishes.producer],
        sequence_id=running_number(publishes.producer, storage.sequence, order),
        entry_bytes=publishes.bytes,
        num_messages=publishes.messages,
        publish_time_ms=published,
    )
    entry_id = running_number(topic, storage.entries, order)
    np.add.at(storage.bytes, topic, publishes.bytes)
    added = publish.copy()
    for name, values in {
        "event_type": texts.add("entry_added"),
        "at_ns": stored,
        "producer_id": NULL,
        "ledger_id": storage.ledger[topic],
        "entry_id": entry_id,
        "broker_time_ms": fleet.scenario.start_ms + stored // MS,
    }.items():
        added[:, PLACE[name]] = values
    blocks = [publish, added]
    second = fleet.subscriptions.second[topic]
    for chosen, subscription in (
        (np.ones(n, dtype=bool), topic),
        (second >= 0, second[second >= 0]),
    ):
        blocks += _deliveries(fleet, added[chosen], subscription, rng)
    return blocks


def _deliveries(
    fleet: Fleet, added: np.ndarray, subscription: np.ndarray, rng: np.random.Generator
) -> list[np.ndarray]:
    """Each stored entry goes to one consumer, which acknowledges it or everything up to it."""
    texts, known = fleet.texts, fleet.subscriptions
    dispatch = added.copy()
    dispatch[:, PLACE["event_type"]] = texts.add("dispatch")
    dispatch[:, PLACE["at_ns"]] += rng.integers(MS, 30 * MS, subscription.size)
    dispatch[:, PLACE["cnx_id"]] = NULL
    dispatch[:, PLACE["fixed"]] = 0
    dispatch[:, PLACE["subscription"]] = known.text[subscription]
    dispatch[:, PLACE["sub_type"]] = known.type[subscription]
    dispatch[:, PLACE["consumer"]] = known.consumer[subscription]
    cumulative = known.cumulative[subscription]
    acked = ~cumulative | (added[:, PLACE["entry_id"]] % ACK_EVERY == ACK_EVERY - 1)
    ack = dispatch[acked]
    ack[:, PLACE["event_type"]] = texts.add("ack")
    ack[:, PLACE["at_ns"]] += rng.integers(5 * MS, 500 * MS, ack.shape[0])
    for name in (
        "sequence_id",
        "entry_bytes",
        "num_messages",
        "publish_time_ms",
        "broker_time_ms",
        "sub_type",
    ):
        ack[:, PLACE[name]] = NULL
    flags = np.array([NULL, texts.add_raw(b"true")])
    ack[:, PLACE["ack_cumulative"]] = flags[cumulative[acked].astype(np.int64)]
    return [dispatch, ack]
