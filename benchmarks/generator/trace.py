"""A whole trace: planned once, written slice by slice, so that memory does not grow with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Protocol

import numpy as np

from app.errors import UserError
from app.plain_text import lines_of
from benchmarks.generator.backlog_spec import BacklogSpec
from benchmarks.generator.backlog_trace import BacklogTrace, plan_backlog
from benchmarks.generator.cache_spec import CacheSpec
from benchmarks.generator.cache_trace import Cache, CacheReads, plan_cache
from benchmarks.generator.disorder import arrivals
from benchmarks.generator.fleet import NEVER, Fleet, build_fleet
from benchmarks.generator.incidents import plan_incidents
from benchmarks.generator.json_lines import write_lines
from benchmarks.generator.kafka_trace import Batches, KafkaTrace, plan_kafka
from benchmarks.generator.large_trace import Large, plan_large
from benchmarks.generator.lifecycle import lifecycle
from benchmarks.generator.limits import Policy, PublishLimits, build_limits
from benchmarks.generator.malformed import TEMPLATES, Malformed, spoil_clocks
from benchmarks.generator.plan import SECOND, IncidentPlan, Publishes, held_back
from benchmarks.generator.polls import poll, polls_at, records_per_poll
from benchmarks.generator.scenario import KafkaSpec, Scenario
from benchmarks.generator.streams import Clocks
from benchmarks.generator.trace_rows import NULL, PLACE, no_rows
from benchmarks.generator.traffic import (
    Storage,
    heartbeats,
    normal_publishes,
    records_per_publish,
    rows_of,
    slice_counts,
)
from state.jobs import DECLARED

ROUNDING = 20
"""Records by which a part may miss its share."""
AT, ARRIVES, STREAM = PLACE["at_ns"], PLACE["arrives_ns"], PLACE["stream"]


@dataclass(frozen=True)
class ArrivalSlice:
    """The records that arrive in one slice of time, in order of arrival."""

    name: str
    wall_ms: int
    """End of the slice (ms since the epoch)."""
    data: np.ndarray
    """The bytes of all lines."""
    ends: np.ndarray
    """Where each line ends, newline included."""
    brokers: np.ndarray
    """Broker of each line, as a number of `Fleet.keys`."""
    malformed: np.ndarray
    """Which lines were made to break the contract."""
    planted: Counter[str]
    """How many records of it break which rule of the contract, by code."""

    def lines(self) -> list[bytes]:
        """The lines one by one, without newline."""
        return lines_of(self.data.tobytes())


@dataclass(frozen=True)
class Trace:
    """The trace of a scenario, a number of events and a seed; the same each time it is read."""

    scenario: Scenario
    events: int
    seed: int
    fleet: Fleet
    limits: PublishLimits
    plan: IncidentPlan
    publishes: int
    """Normal publishes, besides those of incidents."""
    large: Large | None = None
    """Large messages, if the scenario has any."""
    kafka: KafkaTrace | None = None
    """The Kafka cluster, if the scenario has one."""
    cache: Cache | None = None
    """Reads of entries, if the scenario has any."""
    backlog: BacklogTrace | None = None
    """Topics with a backlog, if the scenario has any."""

    @property
    def policies(self) -> list[Policy]:
        """The limits that hold from the start, as policy documents of the configuration."""
        parts = (self.kafka, self.backlog)
        return self.limits.policies + [d for p in parts if p is not None for d in p.policies]

    @property
    def jobs(self) -> list[str]:
        """What runs on it: the jobs of every run, and those that need records that few traces have."""
        logged = self.kafka is not None and self.kafka.requests is not None
        return [
            name
            for name, job in DECLARED.items()
            if job.by_default or (logged and "client_request" in job.fed_by)
        ]

    def slices(self) -> Iterator[ArrivalSlice]:
        """Its records, slice by slice."""
        return _slices(self)


def plan_trace(scenario: Scenario, events: int, seed: int) -> Trace:
    """Plans a trace of about `events` records; too few for the scenario is a UserError."""
    fleet = build_fleet(scenario, seed)
    per_publish = records_per_publish(fleet)
    # Limits need the rate, and the rate needs to know what incidents take: their number of records
    # does not depend on limits, only their sizes do.
    draft = plan_incidents(fleet, build_limits(fleet, 1.0))
    fixed = _fixed_records(fleet, draft, per_publish, seed)
    spec = scenario.large
    share = 1 + scenario.disorder.malformed + scenario.disorder.repeated
    rest = 1.0 if spec is None else 1 - spec.share
    total = events / share
    kafka = None if scenario.kafka is None else plan_kafka(fleet, scenario.kafka, total, seed)
    cache = (
        None
        if scenario.cache is None
        else plan_cache(fleet, scenario.cache, total, seed, draft.down)
    )
    backlog = (
        None if scenario.backlog is None else plan_backlog(fleet, scenario.backlog, total, seed)
    )
    parts: list[_TracePart] = [p for p in (kafka, cache, backlog) if p is not None]
    per_publish_held = per_publish * (1 - _held_share(fleet, draft))
    taken = fixed + sum(part.records for part in parts)
    publishes = round((total * rest - taken) / per_publish_held)
    if publishes < scenario.active_s:
        needed = fixed + scenario.active_s * per_publish + ROUNDING * len(parts)
        least = _least(needed, rest, parts)
        raise UserError(f"--events {events}: this scenario needs at least {round(least * share)}")
    limits = build_limits(fleet, publishes / scenario.active_s)
    large = None if spec is None else plan_large(fleet, spec, total * spec.share, seed)
    return Trace(
        scenario,
        events,
        seed,
        fleet,
        limits,
        plan_incidents(fleet, limits),
        publishes,
        large,
        kafka,
        cache,
        backlog,
    )


class _TracePart(Protocol):
    """What all parts beside the fleet have; each takes its share, but never less than it needs."""

    @property
    def least(self) -> int:
        """Records that there are in however short a trace."""

    @property
    def records(self) -> int:
        """How many there are of it."""

    @property
    def spec(self) -> KafkaSpec | CacheSpec | BacklogSpec:
        """Its part of the scenario."""


def _least(needed: float, rest: float, parts: list[_TracePart]) -> float:
    """The fewest records in which the fleet has those it needs beside the parts."""
    found = 0.0
    for short in product((False, True), repeat=len(parts)):
        least = sum(p.least for p, is_short in zip(parts, short, strict=True) if is_short)
        shares = sum(p.spec.share for p, is_short in zip(parts, short, strict=True) if not is_short)
        if shares < rest:
            found = max(found, (needed + least) / (rest - shares))
    return found


def _fixed_records(fleet: Fleet, plan: IncidentPlan, per_publish: float, seed: int) -> float:
    """Records that there are whatever the rate."""
    scenario = fleet.scenario
    beats = 2 * len(fleet.brokers) * scenario.quiet_s
    polled = len(polls_at(fleet)) * records_per_poll(fleet)
    return (
        len(lifecycle(fleet, plan, seed))
        + len(plan.rows)
        + polled
        + (len(plan.publishes) + beats) * per_publish
    )


def _held_share(fleet: Fleet, plan: IncidentPlan) -> float:
    """Part of the normal publishes that the incidents hold back, by their rates."""
    known, active = fleet.producers, fleet.scenario.active_s * SECOND
    weight = np.diff(known.share, prepend=0.0)
    by_connection = np.bincount(known.connection, weight, fleet.connections.broker.size)
    held = sum((until - since - SECOND // 2) * by_connection[c] for c, since, until in plan.holds)
    muted = sum((until - since) * fleet.topics.weight[t] for t, since, until in plan.mutes)
    return min(0.5, float(held + muted) / active)


def _slices(trace: Trace) -> Iterator[ArrivalSlice]:
    scenario, fleet, plan = trace.scenario, trace.fleet, trace.plan
    clocks, storage = Clocks(fleet), Storage(fleet)
    total = max(round(trace.events * scenario.disorder.malformed), len(TEMPLATES))
    if scenario.disorder.malformed == 0:
        total = 0
    malformed = Malformed(fleet, total, np.random.default_rng([trace.seed, 3]))
    large = trace.large
    backlog = trace.backlog
    batches = None if trace.kafka is None else Batches(trace.kafka)
    reads = None if trace.cache is None else CacheReads(trace.cache)
    once = np.concatenate(
        [
            lifecycle(fleet, plan, trace.seed),
            *plan.rows,
            *([] if large is None else [large.once()]),
            *([] if backlog is None else [backlog.once()]),
        ]
    )
    scheduled, polls = plan.scheduled(), set(polls_at(fleet).tolist())
    waiting = scheduled.take(np.zeros(0, dtype=np.int64))
    to_come, under_way = no_rows(), no_rows()
    counts = slice_counts(fleet, trace.publishes)
    for number, count in enumerate(counts.tolist()):
        rng = np.random.default_rng([trace.seed, 4, number])
        begin, end = number * scenario.slice_s * SECOND, (number + 1) * scenario.slice_s * SECOND
        last = number == len(counts) - 1
        first, after = np.searchsorted(scheduled.at_ns, [begin, end])
        new = _undisturbed(trace, count, begin, end, rng)
        publishes = Publishes.concat([waiting, new, scheduled.take(np.arange(first, after))])
        publishes = publishes.take(np.argsort(publishes.at_ns, kind="stable"))
        due = np.searchsorted(publishes.at_ns, NEVER if last else end)
        waiting = publishes.take(np.arange(due, publishes.at_ns.size))
        blocks = poll(fleet, begin, storage) if begin in polls else []
        blocks += rows_of(fleet, publishes.take(np.arange(due)), storage, rng)
        blocks += [] if large is None else large.rows(begin, end)
        for part in (batches, reads, backlog):
            blocks += [] if part is None else part.rows(begin, end)
        blocks += [once[(once[:, AT] >= begin) & (once[:, AT] < end)], to_come]
        rows = _running(fleet, plan, np.concatenate(blocks))
        later = rows[:, AT] >= (NEVER if last else end)
        bad, templates = malformed.rows(begin, end)
        to_come, rows = rows[later], np.concatenate([rows[~later], bad])
        clocks.stamp(rows)
        planted = Counter(t.code for t in templates)
        rows = arrivals(scenario, rows, len(bad), rng, planted)
        spoil_clocks(rows[len(rows) - len(bad) :], templates)
        rows = np.concatenate([under_way, rows])
        arrived = rows[:, ARRIVES] < (NEVER if last else end)
        under_way, rows = rows[~arrived], rows[arrived]
        yield _written(trace, number, end, rows, planted)


def _undisturbed(
    trace: Trace, count: int, begin: int, end: int, rng: np.random.Generator
) -> Publishes:
    """Normal traffic of a slice, less what the incidents hold back."""
    fleet, plan = trace.fleet, trace.plan
    new = Publishes.concat(
        [normal_publishes(fleet, count, begin, end, rng), heartbeats(fleet, begin, end, rng)]
    )
    known = fleet.producers
    return held_back(
        new,
        plan.holds,
        plan.mutes,
        known.connection[new.producer],
        known.topic[new.producer],
        begin,
        end,
    )


def _running(fleet: Fleet, plan: IncidentPlan, rows: np.ndarray) -> np.ndarray:
    """Rows without those that a broker would have reported while it was down."""
    for broker, down, up in plan.down:
        silent = (rows[:, AT] >= down) & (rows[:, AT] < up)
        silent &= rows[:, STREAM] % len(fleet.keys) == broker
        rows = rows[~silent]
    return rows


def _written(
    trace: Trace, number: int, end: int, rows: np.ndarray, planted: Counter[str]
) -> ArrivalSlice:
    order = np.argsort(rows[:, ARRIVES], kind="stable")
    data, ends = write_lines(rows, order, trace.fleet.texts)
    brokers = rows[order, STREAM] % len(trace.fleet.keys)
    return ArrivalSlice(
        f"events-{number:05d}.jsonl",
        trace.scenario.start_ms + end // 1_000_000,
        data,
        ends,
        brokers,
        rows[order, PLACE["tail"]] != NULL,
        planted,
    )
