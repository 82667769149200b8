"""The readers of the cache part of a trace: topics, and one reader per topic and subscription."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.generator.cache_spec import CacheSpec, ReadersSpec
from benchmarks.generator.fleet import WORDS, Fleet
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.trace_rows import NULL

UP_NS = 1500 * MS
"""Cursors are there from then on."""
FIRST_ENTRY_NS = 2 * SECOND
BACK_NS = 200 * MS
"""A broker that is up again has its cursors back after this long."""
TELLS_STOP, TELLS_START = 1, 2
"""What an absence shows of itself: the cursor is inactive; the cursor is there again."""


@dataclass
class CacheTopics:
    """One entry per topic; its readers follow one another."""

    names: list[str]
    text: np.ndarray
    partition: np.ndarray
    broker: np.ndarray
    weight: np.ndarray
    """Share of all entries."""
    first_ledger: np.ndarray
    first_reader: np.ndarray
    readers: int
    """Of each topic."""


@dataclass
class Readers:
    """One entry per topic and subscription. Absences of reader r are those from `first_absence[r]`
    to `first_absence[r + 1]`, in order of time."""

    text: np.ndarray
    topic: np.ndarray
    lag_ns: np.ndarray
    delay_ns: np.ndarray
    """[reader, least and most]"""
    trip_ns: np.ndarray
    """[reader, least and most]: from read to release."""
    speed: np.ndarray
    """From behind, times the topic's rate."""
    first_absence: np.ndarray
    absences: np.ndarray
    """[absence, begin, end and what it shows]"""
    slow_share: np.ndarray
    slow_speed: np.ndarray
    first_stall: np.ndarray
    stalls: np.ndarray
    """[stall, begin and end] of the slow consumers."""


@dataclass(frozen=True)
class CacheFleet:
    """Topics and readers of the cache part."""

    topics: CacheTopics
    readers: Readers


def build_cache_fleet(
    fleet: Fleet, spec: CacheSpec, down: list[tuple[int, int, int]], rng: np.random.Generator
) -> CacheFleet:
    """The cache part of a fleet whose brokers are down at given times."""
    groups = [group for group in spec.readers.values() for _ in range(group.subscriptions)]
    names = [
        name if group.subscriptions == 1 else f"{name}-{i}"
        for name, group in spec.readers.items()
        for i in range(group.subscriptions)
    ]
    topics = _topics(fleet, spec, len(groups), rng)
    return CacheFleet(topics, _readers(fleet, spec, topics, groups, names, down, rng))


def _topics(fleet: Fleet, spec: CacheSpec, readers: int, rng: np.random.Generator) -> CacheTopics:
    n, number = spec.topics, np.arange(spec.topics)
    base = f"persistent://{spec.namespace}/{spec.label}"
    names = [
        f"{base}-partition-{t}" if spec.partitioned else f"{base}-{WORDS[t % len(WORDS)]}-{t:02d}"
        for t in number
    ]
    written = [base] * n if spec.partitioned else names
    weight = (1.0 + number) ** -spec.skew
    allowed = np.array(spec.brokers or range(len(fleet.brokers)))
    return CacheTopics(
        names,
        fleet.texts.add_all(written),
        number if spec.partitioned else np.full(n, NULL),
        allowed[number % allowed.size],
        weight / weight.sum(),
        2_000_000 + rng.integers(0, 900, n) * 1000,
        number * readers,
        readers,
    )


def _readers(
    fleet: Fleet,
    spec: CacheSpec,
    topics: CacheTopics,
    groups: list[ReadersSpec],
    names: list[str],
    down: list[tuple[int, int, int]],
    rng: np.random.Generator,
) -> Readers:
    n, each = len(topics.names), len(groups)
    topic = np.repeat(np.arange(n), each)
    own = groups * n
    absences = [_absences(fleet, topics, r, own, down) for r in range(len(own))]
    stalls = [_stalls(fleet, topics, topic[r], own[r], down) for r in range(len(own))]
    return Readers(
        np.tile(fleet.texts.add_all(names), n),
        topic,
        np.array([int(rng.uniform(*g.lag_ms) * MS) for g in own]),
        _pairs([g.delay_ms for g in own]),
        _pairs([g.round_trip_ms for g in own]),
        np.array([g.speed for g in own]),
        _firsts(absences),
        np.array([a for found in absences for a in found], dtype=np.int64).reshape(-1, 3),
        np.array([0.0 if g.slow is None else g.slow.share for g in own]),
        np.array([1.0 if g.slow is None else g.slow.speed for g in own]),
        _firsts(stalls),
        np.array([s for found in stalls for s in found], dtype=np.int64).reshape(-1, 2),
    )


def _pairs(ranges: list[tuple[float, float]]) -> np.ndarray:
    return (np.array(ranges) * MS).astype(np.int64)


def _firsts(found: list[list[tuple[int, ...]]]) -> np.ndarray:
    return np.cumsum([0, *map(len, found)])


def _absences(
    fleet: Fleet,
    topics: CacheTopics,
    reader: int,
    own: list[ReadersSpec],
    down: list[tuple[int, int, int]],
) -> list[tuple[int, ...]]:
    """When a reader does not read: restarts of its client and of its broker, joined if they meet.

    A group's readers are dealt out to its clients by topic: with as many clients as topics each has
    all subscriptions of one.
    """
    group, each = own[reader], topics.readers
    topic, place = divmod(reader, each)
    first = own.index(group)
    number = topic * group.subscriptions + place - first
    found = [(d, u + BACK_NS, TELLS_START) for b, d, u in down if b == topics.broker[topic]]
    restarts = group.restarts
    dealt = len(topics.names) * group.subscriptions
    if restarts is not None:
        for turn in range(restarts.rounds):
            place = turn * restarts.clients + number * restarts.clients // dealt
            begin = int((restarts.at_s + place * restarts.every_s) * SECOND)
            found.append((begin, begin + int(restarts.away_s * SECOND), TELLS_STOP | TELLS_START))
    joined: list[tuple[int, ...]] = []
    for begin, end, shows in sorted(found):
        if joined and begin <= joined[-1][1]:
            last = joined.pop()
            joined.append((last[0], max(last[1], end), last[2] | shows))
        else:
            joined.append((begin, end, shows))
    return [a for a in joined if a[0] < fleet.scenario.duration_s * SECOND]


def _stalls(
    fleet: Fleet,
    topics: CacheTopics,
    topic: int,
    group: ReadersSpec,
    down: list[tuple[int, int, int]],
) -> list[tuple[int, ...]]:
    """When the slow consumer of a reader takes nothing."""
    slow = group.slow
    if slow is None:
        return []
    starts = np.arange(slow.at_s, fleet.scenario.active_s, slow.every_s)
    found = [(int(s * SECOND), int((s + slow.stall_s) * SECOND)) for s in starts]
    found += [(d, u + BACK_NS) for b, d, u in down if b == topics.broker[topic]]
    return [*sorted(found)]
