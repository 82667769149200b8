"""The cache part of a trace: entries that are added, and what every reader does with them.

Reads are worked out slice by slice when their entries are added, which may be long before they
happen; until then they wait in a compact form.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.generator.cache_fleet import BACK_NS, FIRST_ENTRY_NS, CacheFleet, build_cache_fleet
from benchmarks.generator.cache_reads import (
    ADDED,
    AT,
    BYTES,
    COLUMNS,
    DELETED,
    ENTRY,
    INVALIDATED,
    KIND,
    LEDGER,
    PER_ENTRY,
    PER_READ,
    QUEUED,
    READ,
    RELEASED,
    STARTED,
    STOPPED,
    WHO,
    steps_of,
)
from benchmarks.generator.cache_spec import CacheSpec
from benchmarks.generator.fleet import NEVER, Fleet
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.streams import CONTRACT, stream_of
from benchmarks.generator.trace_rows import PLACE, make_rows

MIB = 1_048_576
KINDS = (
    "entry_added",
    "entry_read",
    "entry_released",
    "replay_queued",
    "cursor_state",
    "cursor_state",
    "ledger_deleted",
    "entry_invalidated",
)
OF_TOPIC = (ADDED, DELETED, INVALIDATED)
LEAST_PER_READER = 12
"""Records of each reader that a trace has room for, however short it is."""


@dataclass(frozen=True)
class Cache:
    """The cache part of a trace; the same each time it is read."""

    fleet: Fleet
    spec: CacheSpec
    seed: int
    readers: CacheFleet
    down: list[tuple[int, int, int]]
    entries: float
    records: int
    """How many there are of it."""
    least: int
    """Records that there are in however short a trace."""
    planted: Counter[str]
    """Records by kind."""

    @property
    def entries_per_s(self) -> float:
        """Of all topics together, while entries are added."""
        return self.entries / (self.fleet.scenario.active_s - FIRST_ENTRY_NS / SECOND)

    @property
    def max_bytes(self) -> int | None:
        """The size of the published run's cache at this trace's rate."""
        scale = self.spec.scale
        if scale is None:
            return None
        return int(scale.cache_mb * MIB * self.entries_per_s / scale.entries_per_s)


def plan_cache(
    fleet: Fleet, spec: CacheSpec, events: float, seed: int, down: list[tuple[int, int, int]]
) -> Cache:
    """The cache part of a trace of so many events in all, on brokers that are down at times."""
    readers = build_cache_fleet(fleet, spec, down, np.random.default_rng([seed, 9]))
    each = readers.topics.readers
    least = LEAST_PER_READER * readers.readers.topic.size
    wanted = max(events * spec.share, least)
    entries, planted = wanted / (1 + 2 * each), Counter[str]()
    for _ in range(4):
        cache = Cache(fleet, spec, seed, readers, down, entries, 0, least, planted)
        planted = _count(cache)
        records = sum(planted.values())
        if abs(records - wanted) < max(wanted / 1000, 5):
            break
        entries *= wanted / max(records, 1)
    return Cache(fleet, spec, seed, readers, down, cache.entries, records, least, planted)


def _count(cache: Cache) -> Counter[str]:
    """Records by kind."""
    found = np.zeros(len(KINDS), dtype=np.int64)
    step, end = cache.fleet.scenario.slice_s * SECOND, cache.fleet.scenario.duration_s * SECOND
    reads = CacheReads(cache)
    for begin in range(0, end, step):
        for steps in reads.new_steps(begin, begin + step):
            kept = steps[(steps[:, AT] < end) & reads.is_up(steps)]
            found += np.bincount(kept[:, KIND], minlength=len(KINDS))
    planted: Counter[str] = Counter()
    for name, n in zip(KINDS, found.tolist(), strict=True):
        planted[name] += n
    return planted


class CacheReads:
    """The records of the cache part, slice after slice: readers go on where they were."""

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        topics, readers = cache.readers.topics, cache.readers.readers
        n, r = len(topics.names), readers.topic.size
        self._ledger = topics.first_ledger.copy()
        ups = {b: u for b, _, u in reversed(cache.down)}
        length = int(cache.spec.ledger_s * SECOND)
        self._topic_state = (
            self._ledger,
            np.zeros(n, dtype=np.int64),
            length,
            topics.first_reader,
            topics.readers,
            int(cache.spec.retained_s * SECOND),
            FIRST_ENTRY_NS + length * (1 + np.arange(n)) // n,
            np.array([ups.get(int(b), NEVER) for b in topics.broker], dtype=np.int64),
        )
        rate = np.maximum(cache.entries_per_s * topics.weight[readers.topic], 1e-6)

        def none() -> np.ndarray:
            return np.zeros(r, dtype=np.int64)

        def step(speed: np.ndarray) -> np.ndarray:
            found: np.ndarray = (SECOND / (rate * speed)).astype(np.int64)
            return found

        self._reader_state = (
            none(),
            step(readers.speed),
            readers.lag_ns,
            readers.delay_ns,
            readers.trip_ns,
            readers.first_absence,
            readers.absences,
            none(),
            readers.slow_share,
            step(np.maximum(readers.slow_share, 1e-3) * readers.slow_speed),
            none(),
            readers.first_stall,
            readers.stalls,
            none(),
            none(),
            none(),
            int(cache.spec.cursors_s * SECOND),
        )
        self._waiting = np.empty((0, COLUMNS), dtype=np.int64)
        self._owed = 0.0

    def rows(self, begin: int, end: int) -> list[np.ndarray]:
        """The records of [begin, end) ns; in the last slice none are left over."""
        steps = np.concatenate([self._waiting, *self.new_steps(begin, end)])
        later = steps[:, AT] >= end
        self._waiting = steps[later]
        return [self._written(steps[~later])]

    def is_up(self, steps: np.ndarray) -> np.ndarray:
        """Which steps happen while their broker runs."""
        broker = self._cache.readers.topics.broker[self._topic_of(steps)]
        up = np.ones(len(steps), dtype=bool)
        for own, down, back in self._cache.down:
            up &= (broker != own) | (steps[:, AT] < down) | (steps[:, AT] >= back)
        return up

    def new_steps(self, begin: int, end: int) -> Iterator[np.ndarray]:
        """What the entries of [begin, end) ns bring, then or later."""
        cache, topics = self._cache, self._cache.readers.topics
        rng = np.random.default_rng([cache.seed, 10, begin // SECOND])
        active = cache.fleet.scenario.active_s * SECOND
        since, until = max(begin, FIRST_ENTRY_NS), min(end, active)
        if since >= until:
            return
        self._owed += cache.entries * (until - since) / (active - FIRST_ENTRY_NS)
        n = int(self._owed + 1e-6)
        self._owed -= n
        at = np.sort(rng.integers(since, until, n))
        topic = rng.choice(len(topics.names), n, p=topics.weight)
        for broker, down, back in cache.down:
            own = (topics.broker[topic] == broker) & (at >= down) & (at < back + 2 * BACK_NS)
            at, topic = at[~own], topic[~own]
        low, high = np.log(cache.spec.entry_bytes)
        sizes = np.round(np.exp(rng.uniform(low, high, at.size))).astype(np.int64)
        draws = rng.random((at.size * topics.readers, 3))
        room = at.size * (PER_ENTRY + PER_READ * topics.readers)
        room += self._cache.readers.readers.absences.shape[0]
        out = np.empty((room, COLUMNS), dtype=np.int64)
        used = steps_of(at, topic, sizes, draws, self._topic_state, self._reader_state, begin, out)
        yield out[:used]

    def _topic_of(self, steps: np.ndarray) -> np.ndarray:
        who, kind = steps[:, WHO], steps[:, KIND]
        of_topic = np.isin(kind, OF_TOPIC)
        reader = np.where(of_topic, 0, who)
        found: np.ndarray = np.where(of_topic, who, self._cache.readers.readers.topic[reader])
        return found

    def _written(self, steps: np.ndarray) -> np.ndarray:
        """Steps as rows."""
        cache, texts = self._cache, self._cache.fleet.texts
        topics, kind = cache.readers.topics, steps[:, KIND]
        topic, at = self._topic_of(steps), steps[:, AT]
        rows = make_rows(
            len(steps),
            event_type=texts.add_all(list(KINDS))[kind],
            at_ns=at,
            fixed=1,
            stream=stream_of(cache.fleet, CONTRACT, topics.broker[topic]),
            topic=topics.text[topic],
            partition=topics.partition[topic],
        )

        def put(chosen: np.ndarray, name: str, values: object) -> None:
            rows[chosen, PLACE[name]] = values

        of_reader = np.flatnonzero(~np.isin(kind, (*OF_TOPIC, RELEASED)))
        put(of_reader, "subscription", cache.readers.readers.text[steps[of_reader, WHO]])
        placed = np.flatnonzero(~np.isin(kind, (STOPPED, STARTED)))
        put(placed, "ledger_id", steps[placed, LEDGER])
        entry = np.flatnonzero(np.isin(kind, (ADDED, READ, RELEASED, QUEUED)))
        put(entry, "entry_id", steps[entry, ENTRY])
        sized = np.flatnonzero(np.isin(kind, (ADDED, READ)))
        put(sized, "entry_bytes", steps[sized, BYTES])
        added = np.flatnonzero(kind == ADDED)
        wall = cache.fleet.scenario.start_ms + at[added] // MS
        put(added, "publish_time_ms", wall - 2 - steps[added, ENTRY] % 5)
        put(added, "broker_time_ms", wall)
        cursor = np.flatnonzero(np.isin(kind, (STOPPED, STARTED)))
        put(cursor, "mark_delete", steps[cursor, LEDGER])
        put(cursor, "mark_delete_entry", steps[cursor, ENTRY] - 1)
        flags = np.array([texts.add_raw(b"false"), texts.add_raw(b"true")])
        started = kind[cursor] == STARTED
        put(cursor, "active", flags[started.astype(np.int64)])
        put(cursor[started], "read_pos", steps[cursor[started], LEDGER])
        put(cursor[started], "read_pos_entry", steps[cursor[started], ENTRY])
        return rows
