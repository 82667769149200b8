"""Converts Kafka's producer states to records and rows.

An id with its epoch is reported once per partition, by the first poll that finds it there. States
that the first poll of a partition finds are older than the polls and are not reported, unless the
partition itself is newer than the poll before. Missing answers are not guessed: a partition without
an answer keeps its states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

from pydantic import PlainSerializer, PlainValidator

from app.sources.kafka.offsets import Place
from app.sources.poll_records import Record, common, plain

FEED = "kafka_producers"
UNKNOWN = "unknown"
"""The principal of an id without a known owner."""
NEW = "produce_batch"
MAPPING = "producer_id_assigned"

Row = dict[str, Any]


class IdState(NamedTuple):
    """The state that a leader holds of one producer id on one partition."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int
    """Timestamp of the last batch (ms since the epoch); -1 if there is none."""
    transaction_start: int | None = None
    """First offset of the transaction that is open there."""


class IdOwner(NamedTuple):
    """Principal and client id of an id."""

    principal: str = UNKNOWN
    client_id: str | None = None

    @property
    def user(self) -> str:
        """The name in the principal, as the job on producer ids has it."""
        before, colon, after = self.principal.partition(":")
        return after if colon else before


OwnerOf = Callable[[int, str], IdOwner]
"""The owner of an id on a topic; principal UNKNOWN where nothing names it."""


@dataclass
class ProducerAnswers:
    """The answers to one poll; what is missing was not answered."""

    polled_ms: int = 0
    names: frozenset[str] = frozenset()
    """All topics of the cluster."""
    leaders: dict[str, dict[int, str | None]] = field(default_factory=dict)
    """By polled topic and partition the id of the leading broker; None without a leader."""
    states: dict[Place, list[IdState]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    """What was not answered."""


class KeptId(NamedTuple):
    """What is remembered of one id on one partition."""

    epoch: int
    owner: IdOwner


@dataclass(frozen=True)
class KeptPartition:
    """What is remembered of one partition."""

    leader: str | None = None
    ids: Mapping[int, KeptId] | None = None
    """By producer id; None for ids that are older than the polls and not yet answered."""


@dataclass(frozen=True)
class KnownTopic:
    """What earlier polls had of a topic."""

    parts: Mapping[int, KeptPartition] | None = None
    """By partition; None: the topic exists and was not polled."""
    live: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """By broker and user, the ids and states of its newest row in the table."""

    def as_json(self) -> dict[str, Any]:
        """The same as plain JSON, every owner once."""
        owners: dict[IdOwner, int] = {}
        parts = (
            None
            if self.parts is None
            else {
                str(n): [
                    part.leader,
                    None
                    if part.ids is None
                    else [
                        [pid, kept.epoch, owners.setdefault(kept.owner, len(owners))]
                        for pid, kept in part.ids.items()
                    ],
                ]
                for n, part in self.parts.items()
            }
        )
        live = [[*key, *counts] for key, counts in self.live.items()]
        return {"parts": parts, "owners": [list(owner) for owner in owners], "live": live}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> KnownTopic:
        """The opposite of `as_json`; a ValueError for what is none."""
        try:
            return cls._from_json(value)
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(repr(error)) from None

    @classmethod
    def _from_json(cls, value: dict[str, Any]) -> KnownTopic:
        owners = [IdOwner(str(principal), client) for principal, client in value["owners"]]
        parts = (
            None
            if value["parts"] is None
            else {
                int(n): KeptPartition(
                    leader,
                    None
                    if ids is None
                    else {int(pid): KeptId(int(epoch), owners[owner]) for pid, epoch, owner in ids},
                )
                for n, (leader, ids) in value["parts"].items()
            }
        )
        live = {(str(b), str(u)): (int(ids), int(states)) for b, u, ids, states in value["live"]}
        return cls(parts, live)


InMemory = Annotated[
    KnownTopic, PlainValidator(KnownTopic.from_json), PlainSerializer(KnownTopic.as_json)
]
"""The type in the memory of the spool."""


@dataclass(frozen=True)
class ProducerRules:
    """How answers are mapped; the settings decide it."""

    cluster: str
    bytes_per_state: int
    """Heap that a leader needs for one id on one partition."""
    wants_topic: Callable[[str], bool] = lambda _: True
    tick_ms: int = 0
    """For this time after the newest new id each poll has a record, which moves the clocks past it.
    """


@dataclass
class MappedProducers:
    """The result of one poll."""

    records: list[Record] = field(default_factory=list)
    """In the order of their times, without `seq`."""
    rows: list[Row] = field(default_factory=list)
    """Of the table `producer_id_live`, without `number`: what differs from the poll before, or
    all."""
    known: dict[str, KnownTopic] = field(default_factory=dict)
    """The state that the next poll is compared with."""
    last: Record | None = None
    """The newest record of a new id so far."""
    skipped: set[Place] = field(default_factory=set)
    """Partitions that this poll leaves out."""
    gone: set[str] = field(default_factory=set)
    """Topics that are no longer there, or no longer chosen."""
    ids: int = 0
    """Live producer ids of the cluster."""
    unknown: int = 0
    """Those of them without an owner."""


def map_answers(
    answers: ProducerAnswers,
    before: Mapping[str, KnownTopic],
    since_ms: int | None,
    last: Record | None,
    rules: ProducerRules,
    owner_of: OwnerOf,
    whole: bool = False,
) -> MappedProducers:
    """The records and rows of one poll; `whole`: with rows for what has not changed as well.

    `before` and `last` are the state after the earlier polls, the newest of which was at
    `since_ms`; None: this is the first one.
    """
    mapping = _ProducerMapping(answers, before, since_ms, rules, owner_of, whole)
    for topic in sorted(answers.names | before.keys()):
        mapping.topic(topic)
    return mapping.result(last)


class _ProducerMapping:
    """The mapping of one poll."""

    def __init__(
        self,
        answers: ProducerAnswers,
        before: Mapping[str, KnownTopic],
        since_ms: int | None,
        rules: ProducerRules,
        owner_of: OwnerOf,
        whole: bool,
    ) -> None:
        self._whole = whole
        self._answers = answers
        self._before = before
        self._since_ms = since_ms
        self._rules = rules
        self._owner_of = owner_of
        self._ids: dict[int, bool] = {}
        """By live id whether an owner is known."""
        self._mapped = MappedProducers()

    def topic(self, topic: str) -> None:
        """One topic that exists, or existed at the poll before."""
        before = self._before.get(topic)
        leaders = self._answers.leaders.get(topic)
        if topic not in self._answers.names:
            self._left(topic, before or KnownTopic())
        elif leaders is not None:
            parts = {
                n: self._part(Place(topic, n), leader, before) for n, leader in leaders.items()
            }
            self._keep(topic, parts, before)
        elif not self._rules.wants_topic(topic) or (before is None and self._since_ms is None):
            self._left(topic, before or KnownTopic())
            self._mapped.known[topic] = KnownTopic()
        elif before is not None:
            # Listed, but not described: it is as it was.
            self._mapped.skipped |= {Place(topic, n) for n in before.parts or ()}
            self._keep(topic, before.parts, before)

    def result(self, last: Record | None) -> MappedProducers:
        """What the poll gives, after all topics."""
        mapped = self._mapped
        heap: dict[str, int] = {}
        for known in mapped.known.values():
            for (broker, _), (_, states) in known.live.items():
                heap[broker] = heap.get(broker, 0) + states * self._rules.bytes_per_state
        for row in mapped.rows:
            row["broker_heap_bytes"] = heap.get(row["broker"], 0)
        mapped.records.sort(key=_order)
        mapped.last = mapped.records[-1] if mapped.records else last
        mapped.ids, mapped.unknown = len(self._ids), sum(not k for k in self._ids.values())
        if last is not None and not mapped.records:
            passed_ms = (self._since_ms or 0) - last["ts_wall_ms"]
            if passed_ms < self._rules.tick_ms and self._answers.polled_ms > last["ts_wall_ms"]:
                mapped.records.append(_tick(last, self._answers.polled_ms))
        return mapped

    def _part(self, place: Place, leader: str | None, before: KnownTopic | None) -> KeptPartition:
        """What is remembered of a partition after this poll."""
        old = None if before is None or before.parts is None else before.parts.get(place.partition)
        states = self._answers.states.get(place)
        if old is None:
            old = KeptPartition(leader, {} if self._is_younger(before) else None)
        if states is None:
            self._mapped.skipped.add(place)
            return old
        ids = {}
        for state in states:
            kept = None if old.ids is None else old.ids.get(state.producer_id)
            owner = kept.owner if kept is not None else IdOwner()
            if owner.principal == UNKNOWN:
                owner = self._owner_of(state.producer_id, place.topic)
            ids[state.producer_id] = KeptId(state.epoch, owner)
            if old.ids is not None and (kept is None or kept.epoch != state.epoch):
                self._new(place, leader or old.leader or UNKNOWN, state, owner)
        return KeptPartition(leader or old.leader, ids)

    def _is_younger(self, before: KnownTopic | None) -> bool:
        """Whether a new partition is younger than the poll before: its topic is, or the topic was
        polled without it.
        """
        return self._since_ms is not None and (before is None or before.parts is not None)

    def _new(self, place: Place, leader: str, state: IdState, owner: IdOwner) -> None:
        # Within the time since the poll before: nothing is late, whatever clock stamped it.
        since_ms = self._since_ms or 0
        at_ms = min(max(state.last_ms, since_ms), max(self._answers.polled_ms, since_ms))
        self._mapped.records.append(
            plain(
                {
                    "event_type": NEW,
                    **common(FEED, self._rules.cluster, leader, at_ms),
                    "principal": owner.principal,
                    "client_id": owner.client_id,
                    "topic": place.topic,
                    "partition": place.partition,
                    "producer_id": state.producer_id,
                    "sequence_id": state.last_sequence,
                    "publish_time_ms": state.last_ms if state.last_ms >= 0 else None,
                }
            )
        )

    # Live ids

    def _keep(
        self, topic: str, parts: Mapping[int, KeptPartition] | None, before: KnownTopic | None
    ) -> None:
        if parts is None:
            self._mapped.known[topic] = KnownTopic()
            return
        ids: dict[tuple[str, str], set[int]] = {}
        states: dict[tuple[str, str], int] = {}
        for part in parts.values():
            for pid, kept in (part.ids or {}).items():
                key = part.leader or UNKNOWN, kept.owner.user
                ids.setdefault(key, set()).add(pid)
                states[key] = states.get(key, 0) + 1
                named = kept.owner.principal != UNKNOWN
                self._ids[pid] = self._ids.get(pid, False) or named
        live = {key: (len(ids[key]), states[key]) for key in sorted(ids)}
        self._live(topic, {} if before is None else before.live, live)
        self._mapped.known[topic] = KnownTopic(parts, live)

    def _left(self, topic: str, before: KnownTopic) -> None:
        """A topic that is no longer polled: no id of it is live as far as is known."""
        if before.parts is not None:
            self._mapped.gone.add(topic)
            self._live(topic, before.live, {})

    def _live(
        self,
        topic: str,
        before: Mapping[tuple[str, str], tuple[int, int]],
        now: Mapping[tuple[str, str], tuple[int, int]],
    ) -> None:
        """Rows for what has changed."""
        for broker, user in sorted(before.keys() | now.keys()):
            ids, states = now.get((broker, user), (0, 0))
            if before.get((broker, user)) == (ids, states) and not self._whole:
                continue
            self._mapped.rows.append(
                {
                    "polled_ms": self._answers.polled_ms,
                    "cluster": self._rules.cluster,
                    "broker": broker,
                    "topic": topic,
                    "user": user,
                    "live_ids": ids,
                    "states": states,
                    "heap_bytes": states * self._rules.bytes_per_state,
                }
            )


def _order(record: Record) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("ts_wall_ms", "topic", "partition", "producer_id"))


def _tick(last: Record, polled_ms: int) -> Record:
    """The owner of the newest new id once more, at the time of this poll."""
    kept = ("source_feed", "cluster", "broker", "principal", "client_id", "producer_id")
    return plain(
        {
            "event_type": MAPPING,
            "ts_wall_ms": polled_ms,
            **{name: last.get(name) for name in kept},
        }
    )


def numbered(rows: Iterable[Row], first: int) -> Iterator[Row]:
    """The rows with their numbers."""
    for number, row in enumerate(rows, first):
        yield {**row, "number": number}
