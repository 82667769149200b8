"""Converts Kafka's answers about groups and logs to records of the event contract.

A partition is a topic with one ledger, number 0, that is always open. A group's committed offset is
the next one that it reads, so its cursor is one before it. Missing answers are not guessed: a group
or a partition counts as deleted only if the answer that should have it is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from app.sources import poll_records
from app.sources.poll_records import Record, plain, policy_key, policy_record, policy_text
from state.policies import problem

FEED = "kafka_groups"

LEDGER = 0
EVICTS = "consumer_backlog_eviction"
"""Policy of a quota derived from a retention: Kafka deletes, and blocks no producer."""
RETENTION = ("cleanup.policy", "retention.ms", "retention.bytes")
"""Settings of a topic that are requested."""
LONGEST_S = 10**9
"""A retention above this is none: Long.MAX_VALUE ms are 292 million years."""
NO_OFFSET, UNKNOWN, EMPTY, KNOWN = ("no_offset", "unknown_group", "empty_id", "known")
"""States of a group without an offset, and the one that ends a state of a whole group."""
STABLE, REBALANCING, EMPTIED, DEAD = CONSUMERS = ("stable", "rebalancing", "empty", "dead")
"""What the consumers of a group do: all have their partitions, some are about to get theirs, there
are none, or the group is about to be removed."""
SHARE, STREAMS, CONSUMER = "share", "streams", "consumer"
"""Types of groups, which brokers name since 3.8."""
OPEN_TRANSACTION, PENDING_OFFSETS = "open_transaction", "pending_offsets"
"""States of a group whose offset is the last stable one of a partition, and of one whose next offset is in a
transaction that has not ended."""
NAMELESS = '""'
"""How the group with the empty id is shown."""
MOST_READ = 64
"""Largest number of reads in the mean size of a partition."""
_MOST = 2**63 - 1


class Place(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    @property
    def text(self) -> str:
        """Its name in the memory and in messages: no topic's name has a slash."""
        return f"{self.topic}/{self.partition}"

    def __str__(self) -> str:
        return self.text

    @classmethod
    def of_text(cls, text: str) -> Place:
        """The opposite of `text`."""
        topic, _, partition = text.rpartition("/")
        return cls(topic, int(partition))


class KafkaTopic(NamedTuple):
    """A topic as it exists now; a topic that is created again has another id."""

    id: str | None
    partitions: tuple[int, ...]
    leaderless: tuple[int, ...] = ()
    """Those of them that no broker leads."""


class Log(NamedTuple):
    """First offset that a partition still has, and the one that the next record will get."""

    start: int
    end: int


class Oldest(NamedTuple):
    """The first record's time at a position, and how much was read from there."""

    time_ms: int | None = None
    messages: int = 0
    size: int = 0
    whole: bool = False
    """Whether the read came to the end of the log, so that `messages` is all there is."""
    blocked: bool = False
    """Whether a transaction is open in it: some of it is unread to readers of uncommitted records, and
    to others once the transaction is committed."""


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition; None for what is not known."""

    producer_id: int | None = None
    transactional_id: str | None = None
    """None also if no coordinator knows a transaction of that producer there."""
    start_ms: int | None = None
    holds: str = OPEN_TRANSACTION
    """The state of the groups that wait for it."""


class GroupConsumer(NamedTuple):
    """A member of a group."""

    client_id: str
    host: str


NO_MEMBER = GroupConsumer("", "")
"""Of a partition that no member of a group has."""


class GroupMembers(NamedTuple):
    """What a coordinator knows of the members of a group."""

    assigned: Mapping[Place, GroupConsumer]
    """Of a share group the first of the members that have a partition."""
    epoch: int | None = None
    """None for classic groups, as the next."""
    assignment_epoch: int | None = None


class LogPosition(NamedTuple):
    """A place in a partition's log."""

    place: Place
    offset: int


@dataclass
class OffsetAnswers:
    """The answers to one poll; what is missing was not answered."""

    polled_ms: int = 0
    topics: dict[str, KafkaTopic] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Topics of earlier polls that no longer exist in Kafka."""
    absent: set[str] = field(default_factory=set)
    """Topics that the settings name and Kafka lacks."""
    committed: dict[str, dict[Place, int]] = field(default_factory=dict)
    """By group its offsets, of a share group its start offsets; empty for a group that has none, or
    is gone."""
    share_lags: dict[tuple[str, Place], int] = field(default_factory=dict)
    """By share group and partition the records that it has not acknowledged, as brokers count."""
    types: dict[str, str] = field(default_factory=dict)
    """By group its type."""
    members: dict[str, GroupMembers] = field(default_factory=dict)
    """Of the groups that were asked for."""
    states: dict[str, str] = field(default_factory=dict)
    """By group, as a whole, its state if it has no offset at all."""
    consumers: dict[str, str] = field(default_factory=dict)
    """By group what its consumers do: one of CONSUMERS."""
    listed: bool = False
    """Whether the list of groups is complete, so that `states` and `consumers` are."""
    logs: dict[Place, Log] = field(default_factory=dict)
    waits: dict[tuple[str, Place], OpenTransaction] = field(default_factory=dict)
    """By group and partition the transaction that holds it since an earlier poll."""
    assigned: dict[tuple[str, Place], GroupConsumer] = field(default_factory=dict)
    """By group and partition the consumer that has it, where records of an earlier poll wait."""
    settings: dict[str, dict[str, str | None]] = field(default_factory=dict)
    """By topic the settings of RETENTION."""
    oldest: dict[LogPosition, Oldest] = field(default_factory=dict)
    """What is known of positions at which groups continue."""
    read: dict[LogPosition, Oldest] = field(default_factory=dict)
    """Those of them that were read in this poll."""
    problems: list[str] = field(default_factory=list)
    """What was not answered."""
    refused: list[str] = field(default_factory=list)
    """Those of `problems` that this user is not allowed to read."""

    def positions(self) -> set[LogPosition]:
        """The positions of the oldest records that groups have not read."""
        return {
            LogPosition(place, max(offset, self.logs[place].start))
            for offsets in self.committed.values()
            for place, offset in offsets.items()
            if place in self.logs and max(offset, self.logs[place].start) < self.logs[place].end
        }


@dataclass(frozen=True)
class KnownPartition:
    """State of a partition after earlier polls."""

    topic_id: str | None = None
    groups: tuple[str, ...] = ()
    mean: float | None = None
    """Bytes of a message, by those that were read."""
    reads: int = 0
    without: tuple[str, ...] = ()
    """Those of `groups` that have no offset here, but elsewhere in the topic."""


@dataclass(frozen=True)
class OffsetRules:
    """How answers are mapped; the settings decide it."""

    cluster: str
    broker: str
    wants_topic: Callable[[str], bool] = lambda _: True
    wants_group: Callable[[str], bool] = lambda _: True
    bytes_per_message: int | None = None
    """Replaces the mean of those that were read."""
    retention_as_quota: bool = True
    has_quota: Callable[[str], bool] = lambda _: False
    """Whether the backlog quota of a topic is configured: it is not overridden."""

    def common(self, at_ms: int) -> Record:
        """What all records of a time have in common."""
        return poll_records.common(FEED, self.cluster, self.broker, at_ms)

    def whole_group(self, group: str, state: str, at_ms: int, **columns: Any) -> Record:
        """The state of a group as a whole."""
        about = {"subscription": group or NAMELESS, "group_state": state, **columns}
        return plain({"event_type": "group_state", **self.common(at_ms), **about})


@dataclass
class MappedOffsets:
    """The result of one poll."""

    changes: list[Record] = field(default_factory=list)
    """Policies, then deletions."""
    states: Iterable[Record] = ()
    """What was answered, made as it is read, once. As `changes`, of one time and without `seq`."""
    known: dict[Place, KnownPartition] = field(default_factory=dict)
    """The state that the next poll is compared with."""
    policies: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The limits that hold after this poll, by scope and name."""
    gone: set[Place] = field(default_factory=set)
    skipped: set[Place] = field(default_factory=set)
    """Partitions that this poll leaves out."""
    groups: dict[str, str] = field(default_factory=dict)
    """States of whole groups after this poll."""
    problems: list[str] = field(default_factory=list)


def map_answers(
    answers: OffsetAnswers,
    before: Mapping[Place, KnownPartition],
    policies: Mapping[str, dict[str, Any]],
    rules: OffsetRules,
    states: Mapping[str, str] | None = None,
) -> MappedOffsets:
    """The records of one poll; `before`, `policies` and `states` are those of earlier polls."""
    mapping = _OffsetMapping(answers, before, rules)
    mapping.policies(policies)
    mapping.partitions()
    mapped = mapping.mapped
    mapped.states = chain(mapping.states(), mapping.whole_groups(states or {}))
    return mapped


class _OffsetMapping:
    """The mapping of one poll."""

    def __init__(
        self, answers: OffsetAnswers, before: Mapping[Place, KnownPartition], rules: OffsetRules
    ) -> None:
        self._answers = answers
        self._before = before
        self._rules = rules
        self._of_all = rules.common(answers.polled_ms)
        self._read = _by_place(answers.read)
        self._oldest = _by_place(answers.oldest)
        self._reads = {
            group: {place.topic for place in offsets}
            for group, offsets in answers.committed.items()
        }
        """By group the topics in which it has offsets."""
        self._readers: dict[str, list[str]] = {}
        """By topic the groups that have offsets in it."""
        for group, topics in self._reads.items():
            for topic in topics:
                self._readers.setdefault(topic, []).append(group)
        means: dict[str, list[float]] = {}
        for place, known in before.items():
            if known.mean is not None:
                means.setdefault(place.topic, []).append(known.mean)
        self._likely = {topic: sum(each) / len(each) for topic, each in means.items()}
        """By topic bytes of a message in a partition that was never read."""
        self.mapped = MappedOffsets()

    # Policies

    def policies(self, before: Mapping[str, dict[str, Any]]) -> None:
        """Retentions that differ from those of the poll before."""
        found = self.mapped.policies = dict(before)
        names = {key.partition(" ")[2] for key in before} | set(self._answers.settings)
        for name in sorted(names):
            limits = self._limits(name)
            key = policy_key("topic", name)
            if limits is None or limits == before.get(key, {}):
                continue
            document = {"scope": "topic", "name": name, "limits": limits}
            wrong = problem(document)
            if wrong is not None:
                self.mapped.problems.append(f"{name}: {wrong}")
                continue
            if limits:
                found[key] = limits
            else:
                del found[key]
            at_ms, text = self._answers.polled_ms, policy_text(document)
            self.mapped.changes.append(policy_record(FEED, self._rules.cluster, at_ms, text))

    def _limits(self, topic: str) -> dict[str, Any] | None:
        """The limits of a topic; empty where they are no longer recorded, None if unknown."""
        rules = self._rules
        recorded = rules.retention_as_quota and not rules.has_quota(topic)
        if not recorded or topic in self._answers.gone or not rules.wants_topic(topic):
            return {}
        settings = self._answers.settings.get(topic)
        if settings is None:
            return None
        try:
            return limits_of(settings)
        except ValueError as error:
            self.mapped.problems.append(f"{topic}: {error}")
            return None

    # Partitions

    def partitions(self) -> None:
        """The answers about partitions, and the partitions that are gone."""
        topics = self._answers.topics
        there = {Place(name, n) for name, topic in topics.items() for n in topic.partitions}
        for place in sorted(there | set(self._before)):
            known = self._before.get(place)
            if known is not None and self._is_gone(place, known):
                # The next poll records what was created again: in the same poll, offsets that
                # are equal by chance would pass for the earlier ones, with their times.
                self._gone(place, known)
                continue
            log = self._answers.logs.get(place)
            if log is not None and place in there:
                self._partition(place, known or KnownPartition())
                continue
            if known is not None:
                self.mapped.known[place] = known
            if known is not None or place in there:
                self.mapped.skipped.add(place)

    def _is_gone(self, place: Place, known: KnownPartition) -> bool:
        if not self._rules.wants_topic(place.topic) or place.topic in self._answers.gone:
            return True
        topic = self._answers.topics.get(place.topic)
        if topic is None:
            return False
        anew = None not in (topic.id, known.topic_id) and topic.id != known.topic_id
        return anew or place.partition not in topic.partitions

    def _gone(self, place: Place, known: KnownPartition) -> None:
        self.mapped.gone.add(place)
        self._deletion("ledger_deleted", place, ledger_id=LEDGER)
        for group in known.groups:
            self._deletion("cursor_deleted", place, subscription=group)

    def _partition(self, place: Place, known: KnownPartition) -> None:
        committed = self._answers.committed
        groups, without = [], []
        for group in sorted({*known.groups, *self._readers.get(place.topic, ())}):
            had = group in known.groups and group not in known.without
            if not self._rules.wants_group(group):
                if group in known.groups:
                    self._deletion("cursor_deleted", place, subscription=group, unread=0)
            elif group not in committed:
                groups += [group] * (group in known.groups)
                without += [group] * (group in known.without)
            elif place in committed[group]:
                groups.append(group)
            elif had or (group in known.groups and place.topic not in self._reads[group]):
                # An offset that is gone is one poll's news; the next one states its absence.
                self._deletion("cursor_deleted", place, subscription=group)
            elif place.topic in self._reads[group] and not self._shares(group):
                groups.append(group)
                without.append(group)
        self.mapped.known[place] = KnownPartition(
            self._answers.topics[place.topic].id,
            tuple(groups),
            *self._mean(place, known),
            tuple(without),
        )

    def _type(self, group: str) -> Record:
        kind = self._answers.types.get(group)
        return {} if kind is None else {"group_type": kind}

    def _shares(self, group: str) -> bool:
        """Whether this is a share group: it has a start offset once a record is acknowledged."""
        return self._answers.types.get(group) == SHARE

    def states(self) -> Iterator[Record]:
        """The states of the partitions that were answered, and of their groups."""
        committed = self._answers.committed
        for place, known in self.mapped.known.items():
            if place in self.mapped.skipped:
                continue
            log = self._answers.logs[place]
            size = self._rules.bytes_per_message
            if size is None:
                mean = known.mean
                size = round(self._likely.get(place.topic, 0.0) if mean is None else mean)
            common = {**self._of_all, "topic": place.topic, "partition": place.partition}
            # Whole bytes per message: what is left over of a division would count as unread.
            yield {
                "event_type": "ledger_state",
                **common,
                "ledger_id": LEDGER,
                "ledger_entries": log.end,
                "ledger_bytes": min(size * log.end, _MOST),
                "log_start": log.start,
            }
            for group in known.groups:
                if group not in committed:
                    continue
                offset = committed[group].get(place)
                if offset is not None:
                    yield self._cursor(common, place, log, group, offset)
                    yield from self._waits(common, place, group)
                else:
                    yield {
                        "event_type": "group_state",
                        **common,
                        "subscription": group,
                        "group_state": NO_OFFSET,
                        **self._type(group),
                    }

    def whole_groups(self, before: Mapping[str, str]) -> list[Record]:
        """States of groups: that they have no offset anywhere, else what their consumers do; those
        that are over are ended once."""
        found = {**self._answers.consumers, **self._answers.states}
        over = {group: KNOWN for group in before if self._answers.listed and group not in found}
        self.mapped.groups = {g: s for g, s in {**before, **found}.items() if g not in over}
        answers, nobody = self._answers, GroupMembers({})
        return [
            self._rules.whole_group(
                group,
                state,
                answers.polled_ms,
                group_type=answers.types.get(group),
                group_epoch=answers.members.get(group, nobody).epoch,
                assignment_epoch=answers.members.get(group, nobody).assignment_epoch,
            )
            for group, state in sorted({**over, **found}.items())
        ]

    def _cursor(self, common: Record, place: Place, log: Log, group: str, offset: int) -> Record:
        record = {
            "event_type": "cursor_state",
            **common,
            "subscription": group,
            "durable": True,
            "mark_delete": f"{LEDGER}:{offset - 1}",
        }
        first = max(offset, log.start)
        oldest = self._oldest.get(place, {}).get(first) if first < log.end else None
        if oldest is not None:
            if oldest.time_ms is not None:
                record["publish_time_ms"] = oldest.time_ms
            if oldest.whole:
                record["unread"] = oldest.messages
        lag = self._answers.share_lags.get((group, place))
        if lag is not None:
            record["unread"] = min(lag, record.get("unread", lag))
        record |= self._type(group)
        consumer = self._answers.assigned.get((group, place))
        if consumer is not None:
            record |= {"client_id": consumer.client_id, "client_host": consumer.host}
        return record

    def _waits(self, common: Record, place: Place, group: str) -> Iterator[Record]:
        """The state of a group that an open transaction holds."""
        waits = self._answers.waits.get((group, place))
        if waits is not None:
            yield plain(
                {
                    "event_type": "group_state",
                    **common,
                    "subscription": group,
                    "group_state": waits.holds,
                    "producer_id": waits.producer_id,
                    "producer_name": waits.transactional_id,
                    "publish_time_ms": waits.start_ms,
                }
            )

    def _mean(self, place: Place, known: KnownPartition) -> tuple[float | None, int]:
        """Bytes of a message after this poll's reads, and the number of reads it is the mean of."""
        mean, reads = known.mean, known.reads
        # What was read before counts where its mean is not known, so for a topic made anew.
        found_here = self._oldest if mean is None else self._read
        for found in found_here.get(place, {}).values():
            if not found.messages:
                continue
            reads = min(reads + 1, MOST_READ)
            read = found.size / found.messages
            mean = read if mean is None else mean + (read - mean) / reads
        return mean, reads

    # Records

    def _deletion(self, kind: str, place: Place, **columns: Any) -> None:
        at = {"topic": place.topic, "partition": place.partition}
        self.mapped.changes.append({"event_type": kind, **self._of_all, **at, **columns})


def _by_place(found: Mapping[LogPosition, Oldest]) -> dict[Place, dict[int, Oldest]]:
    """What was read, by partition and offset."""
    places: dict[Place, dict[int, Oldest]] = {}
    for (place, offset), oldest in sorted(found.items()):
        places.setdefault(place, {})[offset] = oldest
    return places


def limits_of(settings: Mapping[str, str | None]) -> dict[str, Any]:
    """A topic's retention as a backlog quota; a ValueError for invalid settings.

    A topic that is only compacted deletes nothing by age or size.
    """
    cleanup = (settings.get("cleanup.policy") or "").replace(" ", "").split(",")
    quotas = {}
    if "delete" in cleanup:
        age, size = (_number(settings, name) for name in ("retention.ms", "retention.bytes"))
        if age is not None and age // 1000 <= LONGEST_S:
            # A limit of 0 s would be none.
            quotas["message_age"] = {"limitTime": max(age // 1000, 1), "policy": EVICTS}
        if size is not None:
            quotas["destination_storage"] = {"limitSize": size, "policy": EVICTS}
    return {"backlog_quota": quotas} if quotas else {}


def _number(settings: Mapping[str, str | None], name: str) -> int | None:
    """A limit; None where it is off."""
    value = settings.get(name)
    try:
        number = int(value or "")
    except ValueError:
        raise ValueError(f"{name}: {value!r} is not a number") from None
    return number if number >= 0 else None
