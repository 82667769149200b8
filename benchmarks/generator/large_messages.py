"""Which large messages there are, and when: drawn by kind of fate, then put on a timeline.

A producer sends one message after another, so a busy topic has as many messages in progress as
producers. Contexts that linger in a consumer (a message that is never finished, a consumer that
another one took over from) are at least `APART` apart per topic: with at most six producers they
stay within what a consumer keeps, so that only a crowd evicts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.generator.json_lines import running_number
from benchmarks.generator.large_fleet import BUSY, CROWDED, HANDOVER, SHARED, LargeFleet
from benchmarks.generator.large_scripts import (
    ACK_NEXT,
    CLOSED,
    COMPLETE,
    FATES,
    LOST_CHUNK,
    NAMES,
    NEEDS_THREE,
    NEVER_FINISHED,
    OVERSIZED,
    UNDERSIZED,
    ChunkRun,
    Script,
    Whole,
)
from benchmarks.generator.plan import MS, SECOND
from benchmarks.generator.scenario import LargeSpec, Scenario

FIRST_CHUNK_NS = 3 * SECOND
APART = 45 * SECOND
LONGEST_NS = 15 * SECOND
"""A message takes at most this long, a quarter of the default expiry."""
UTILISATION = 0.9
CHUNK_HEADER_BYTES = 90
_PADDED = 40 * MS
"""Before a hand-over, plain messages are out of the way this long."""


@dataclass
class Messages:
    """One entry per large message."""

    topic: np.ndarray
    producer: np.ndarray
    kind: np.ndarray
    chunks: np.ndarray
    k: np.ndarray
    j: np.ndarray
    sub: np.ndarray
    """The subscription that a fate of one subscription is planted in."""
    chunk_bytes: np.ndarray
    bytes: np.ndarray
    declared: np.ndarray
    episode: np.ndarray
    """The crowd that it belongs to, -1 without."""
    place: np.ndarray
    """Its number in the crowd, or on its topic."""
    start_ns: np.ndarray
    step_ns: np.ndarray
    sequence: np.ndarray
    begins: np.ndarray
    """Where its payload begins in the bytes of the trace."""
    lag_ms: np.ndarray
    """From its client's publish time to the publish request."""

    def take(self, chosen: np.ndarray) -> Messages:
        """Some of them, by mask or order."""
        return Messages(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def script_of(messages: Messages, kind: int, own: np.ndarray) -> Script:
    """The script of messages of one kind."""
    return FATES[NAMES[kind]](messages.chunks[own], messages.k[own], messages.j[own])


def length(parts: tuple[ChunkRun, ...], n: int) -> np.ndarray:
    """How many chunks the parts of a script have, by message."""
    total = np.zeros(n, dtype=np.int64)
    for part in parts:
        total += np.asarray(part.end - part.first, np.int64)
    return total


def draw_messages(
    scenario: Scenario,
    spec: LargeSpec,
    fleet: LargeFleet,
    records: float,
    rng: np.random.Generator,
) -> Messages:
    """Messages for about so many records, with their times."""
    count = int(records / (4 * spec.chunks[0])) + 1
    messages = _draw(spec, fleet, min(count, 2000), rng)
    sizes = _records(spec, fleet, messages)
    while sizes.sum() < records:
        mean = sizes.mean()
        more = int((records - sizes.sum()) / mean * 1.05) + 20
        messages = _draw(spec, fleet, messages.topic.size + more, rng)
        sizes = _records(spec, fleet, messages)
    keep = int(np.searchsorted(np.cumsum(sizes), records)) + 1
    messages = messages.take(np.arange(min(keep, sizes.size)))
    _schedule(scenario, spec, fleet, messages, rng)
    messages = messages.take(np.argsort(messages.start_ns, kind="stable"))
    _thin_out(fleet, messages)
    _number(fleet, messages)
    return messages


def _draw(spec: LargeSpec, fleet: LargeFleet, n: int, rng: np.random.Generator) -> Messages:
    busy_share = 1 - spec.crowded_share - spec.handover_share
    role = rng.choice(
        [BUSY, CROWDED, HANDOVER], n, p=[busy_share, spec.crowded_share, spec.handover_share]
    )
    if spec.crowded_share > 0:
        role[: spec.crowd[1]] = CROWDED  # one whole crowd, however short the trace
    topic, producer = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    episode, place = np.full(n, -1), np.full(n, -1)
    lanes = np.flatnonzero(_lane_mask(fleet))
    busy = np.flatnonzero(role == BUSY)
    producer[busy] = lanes[rng.integers(0, lanes.size, busy.size)]
    alone = np.flatnonzero(role == HANDOVER)
    if alone.size:
        owners = np.flatnonzero(fleet.topics.role == HANDOVER)
        producer[alone] = fleet.topics.first_producer[owners[np.arange(alone.size) % owners.size]]
    topic[:] = fleet.producers.topic[producer]
    crowd = np.flatnonzero(role == CROWDED)
    if crowd.size:
        _crowds(spec, fleet, crowd, (topic, producer, episode, place), rng)
    kind = _kinds(spec, busy, alone, n, rng)
    if spec.gathered:
        _gather(fleet, lanes, kind, topic, producer)
    chunks = _log_uniform(spec.chunks, n, rng)
    chunks[np.isin(kind, NEEDS_THREE)] = np.maximum(chunks[np.isin(kind, NEEDS_THREE)], 3)
    least = np.isin(kind, NEEDS_THREE).astype(np.int64)
    k = rng.integers(least, chunks - 1)
    j = rng.integers(1, np.maximum(k, 1) + 1)
    turn = running_number(topic, np.zeros(fleet.topics.role.size, np.int64), np.arange(n))
    sub = fleet.topics.first_sub[topic] + turn % fleet.topics.subs[topic]
    if spec.gathered:
        sub[kind == LOST_CHUNK] = fleet.topics.first_sub[topic[kind == LOST_CHUNK]]
    # A shared subscription that has not got a first chunk gets nothing more: another chunk is lost.
    headless = (kind == LOST_CHUNK) & (k == 0) & (fleet.subs.type[sub] == SHARED)
    k[headless] = 1
    kind[headless & (chunks == 2)] = COMPLETE
    size = _log_uniform(spec.chunk_bytes, n, rng)
    total = size * (chunks - 1) + rng.integers(1, size + 1)
    declared = total.copy()
    wrong = rng.integers(1, np.maximum(total // 2, 2))
    declared[kind == OVERSIZED] -= wrong[kind == OVERSIZED]
    declared[kind == UNDERSIZED] += wrong[kind == UNDERSIZED]
    none = np.zeros(n, dtype=np.int64)
    return Messages(
        topic,
        producer,
        kind,
        chunks,
        k,
        j,
        sub,
        size,
        total,
        declared,
        episode,
        place,
        none,
        none.copy(),
        none.copy(),
        none.copy(),
        rng.integers(1, 15, n),
    )


def _gather(
    fleet: LargeFleet, lanes: np.ndarray, kind: np.ndarray, topic: np.ndarray, producer: np.ndarray
) -> None:
    """One producer is the only one to die, one subscription the only one to miss chunks."""
    lane_topic = fleet.producers.topic[lanes]
    last = lanes[lane_topic == lane_topic[-1]]
    lost = kind == LOST_CHUNK
    producer[kind == NEVER_FINISHED] = lanes[0]
    producer[lost] = last[np.arange(lost.sum()) % last.size]
    moved = lost | (kind == NEVER_FINISHED)
    topic[moved] = fleet.producers.topic[producer[moved]]


def _lane_mask(fleet: LargeFleet) -> np.ndarray:
    """The producers of large messages on busy topics."""
    topic = fleet.producers.topic
    number = np.arange(topic.size) - fleet.topics.first_producer[topic]
    large: np.ndarray = (number < fleet.topics.producers[topic]) & (
        fleet.topics.role[topic] == BUSY
    )
    return large


def _crowds(
    spec: LargeSpec,
    fleet: LargeFleet,
    crowd: np.ndarray,
    columns: tuple[np.ndarray, ...],
    rng: np.random.Generator,
) -> None:
    """Messages of crowds, one crowd after another, on the crowded topics in turn."""
    topic, producer, episode, place = columns
    sizes = rng.integers(spec.crowd[0], spec.crowd[1] + 1, crowd.size // spec.crowd[0] + 1)
    own = np.repeat(np.arange(sizes.size), sizes)[: crowd.size]
    episode[crowd] = own
    place[crowd] = (np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes))[
        : crowd.size
    ]
    topics = np.flatnonzero(fleet.topics.role == CROWDED)
    topic[crowd] = topics[own % topics.size]
    producer[crowd] = fleet.topics.first_producer[topic[crowd]] + place[crowd]


def _kinds(
    spec: LargeSpec, busy: np.ndarray, alone: np.ndarray, n: int, rng: np.random.Generator
) -> np.ndarray:
    """Every kind that has a share once, then by chance; what closes consumers has its topics."""
    kind = np.full(n, COMPLETE)
    shares = {name: share for name, share in spec.fates.items() if share > 0}
    closed = shares.pop("consumer_closed", 0.0)
    planted = np.array([NAMES.index(name) for name in shares], dtype=np.int64)
    weights = np.array([*shares.values(), max(0.0, 1 - sum(shares.values()))])
    kind[busy] = rng.choice(np.append(planted, COMPLETE), busy.size, p=weights)
    once = busy[: planted.size]
    kind[once] = planted[: once.size]
    own = rng.random(alone.size) < closed
    own[: 1 if closed else 0] = True
    kind[alone[own]] = CLOSED
    return kind


def _log_uniform(pair: tuple[int, int], n: int, rng: np.random.Generator) -> np.ndarray:
    low, high = pair
    values = np.exp(rng.uniform(np.log(low), np.log(high + 1), n)).astype(np.int64)
    return np.clip(values, low, high)


def _records(spec: LargeSpec, fleet: LargeFleet, messages: Messages) -> np.ndarray:
    """Records that each message gives, its share of plain messages included."""
    subs = fleet.topics.subs[messages.topic]
    sizes = np.zeros(subs.size)
    for kind in np.unique(messages.kind):
        own = np.flatnonzero(messages.kind == kind)
        script, n = script_of(messages, int(kind), own), own.size
        planted = subs[own] if script.everywhere else 1
        sent = length(script.sends, n)
        sizes[own] = (
            2 * sent
            + planted * (length(script.seen, n) + length(script.acks, n))
            + (subs[own] - planted) * 2 * messages.chunks[own]
            + spec.plain * sent * (2 + 2 * subs[own])
        )
    return sizes


# -- times -----------------------------------------------------------------------------------


def _schedule(
    scenario: Scenario,
    spec: LargeSpec,
    fleet: LargeFleet,
    messages: Messages,
    rng: np.random.Generator,
) -> None:
    """Gives every message its start and the time of a step."""
    steps = np.zeros(messages.topic.size, dtype=np.int64)
    for kind in np.unique(messages.kind):
        own = np.flatnonzero(messages.kind == kind)
        needed: Whole = script_of(messages, int(kind), own).steps
        steps[own] = np.maximum(needed, messages.chunks[own] + ACK_NEXT)
    begin, end = FIRST_CHUNK_NS, (scenario.active_s - 1) * SECOND
    lonely = np.flatnonzero(messages.episode < 0)
    for lane in np.unique(messages.producer[lonely]):
        own = lonely[messages.producer[lonely] == lane]
        step = rng.uniform(*spec.step_ms, own.size) * MS
        messages.start_ns[own], messages.step_ns[own] = _lane(steps[own], step, begin, end, rng)
    crowded = np.flatnonzero(messages.episode >= 0)
    for topic in np.unique(messages.topic[crowded]):
        own = crowded[messages.topic[crowded] == topic]
        _schedule_crowds(spec, messages, own, steps, (begin, end), rng)


def _lane(
    steps: np.ndarray, step: np.ndarray, begin: int, end: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Starts and steps (ns) of things that follow one another, with pauses at random."""
    step = np.minimum(step, LONGEST_NS / steps)
    room = end - begin
    step *= min(1.0, UTILISATION * room / float((steps * step).sum()))
    step = np.maximum(step, 1).astype(np.int64)
    taken = steps * step
    pauses = np.sort(rng.uniform(0, max(room - int(taken.sum()), 1), steps.size))
    return begin + np.cumsum(taken) - taken + pauses.astype(np.int64), step


def _schedule_crowds(
    spec: LargeSpec,
    messages: Messages,
    own: np.ndarray,
    steps: np.ndarray,
    between: tuple[int, int],
    rng: np.random.Generator,
) -> None:
    """All messages of a crowd begin before any goes on: one step of theirs is a round of all."""
    _, first, number, size = np.unique(
        messages.episode[own], return_index=True, return_inverse=True, return_counts=True
    )
    longest = np.zeros(first.size, dtype=np.int64)
    np.maximum.at(longest, number, steps[own])
    turns = size + 2
    step = rng.uniform(*spec.step_ms, first.size) * MS / 4
    start, step_ns = _lane((longest + 1) * turns, step, *between, rng)
    messages.start_ns[own] = start[number] + messages.place[own] * step_ns[number]
    messages.step_ns[own] = step_ns[number] * turns[number]


def _thin_out(fleet: LargeFleet, messages: Messages) -> None:
    """Makes complete what would leave contexts too soon after another one on its topic.

    What is left meets the subscriptions of its topic in turn.
    """
    last: dict[int, int] = {}
    turn = 0
    for i in np.flatnonzero(np.isin(messages.kind, (NEVER_FINISHED, CLOSED))).tolist():
        topic, start = int(messages.topic[i]), int(messages.start_ns[i])
        if start - last.get(topic, -APART) < APART:
            messages.kind[i] = COMPLETE
        else:
            last[topic] = start
            messages.sub[i] = fleet.topics.first_sub[topic] + turn % fleet.topics.subs[topic]
            turn += int(messages.kind[i] == CLOSED)


def _number(fleet: LargeFleet, messages: Messages) -> None:
    """Sequence ids by producer and places on their topic, both in order of start."""
    n = np.arange(messages.topic.size)
    messages.sequence[:] = running_number(
        messages.producer, np.zeros(fleet.producers.topic.size, np.int64), n
    )
    place = running_number(messages.topic, np.zeros(fleet.topics.role.size, np.int64), n)
    messages.place[:] = np.where(messages.episode < 0, place, messages.place)


# -- plain messages --------------------------------------------------------------------------


@dataclass
class PlainMessages:
    """Plain messages between the chunks, one entry each, in order of time."""

    topic: np.ndarray
    at_ns: np.ndarray
    bytes: np.ndarray
    sequence: np.ndarray
    lag_ms: np.ndarray


def draw_plain(
    scenario: Scenario,
    spec: LargeSpec,
    fleet: LargeFleet,
    messages: Messages,
    sent: np.ndarray,
    records: float,
    rng: np.random.Generator,
) -> PlainMessages:
    """About `spec.plain` for every chunk sent on a topic (`sent`), never while a consumer is away.

    Their number makes up for messages that gave more or fewer than `records` records leave room
    for.
    """
    by_chunk = float((sent * (2 + 2 * fleet.topics.subs)).sum())
    share = float(np.clip(records / by_chunk, 0, 2 * spec.plain))
    topic = np.repeat(np.arange(sent.size), np.round(share * sent).astype(np.int64))
    end = (scenario.active_s - 1) * SECOND
    at = rng.integers(FIRST_CHUNK_NS, end, topic.size)
    for i in np.flatnonzero(messages.kind == CLOSED).tolist():
        begins = messages.start_ns[i] - _PADDED
        steps = script_of(messages, CLOSED, np.array([i])).steps
        ends = messages.start_ns[i] + int(np.max(steps)) * messages.step_ns[i]
        inside = (topic == messages.topic[i]) & (at > begins) & (at < ends)
        at[inside] = begins
    order = np.argsort(at, kind="stable")
    topic, at = topic[order], at[order]
    number = running_number(topic, np.zeros(sent.size, np.int64), np.arange(topic.size))
    low, high = scenario.traffic.message_bytes
    return PlainMessages(
        topic, at, rng.integers(low, high + 1, topic.size), number, rng.integers(1, 15, topic.size)
    )
