"""Polls the consumer groups of a Kafka cluster at an interval, into a spool folder."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from app.config.kafka_groups import WHERE, KafkaGroupsSettings
from app.errors import NotNow, UserError
from app.jvm import may_start
from app.sources.kafka.groups_client import GroupsClient
from app.sources.kafka.knocking import answering
from app.sources.kafka.offsets import (
    CONSUMER,
    CONSUMERS,
    DEAD,
    EMPTIED,
    FEED,
    KNOWN,
    NAMELESS,
    NO_MEMBER,
    REBALANCING,
    SHARE,
    STABLE,
    STREAMS,
    GroupConsumer,
    KnownPartition,
    LogPosition,
    OffsetAnswers,
    OffsetRules,
    Oldest,
    Place,
    map_answers,
)
from app.sources.kafka.transactions import Waiting
from app.sources.lasting import SHOWN
from app.sources.poll_records import Record
from app.sources.polling import Begun, Polling, Report, Unanswered, noted
from app.sources.ports import Unreachable
from app.sources.turns import Turns
from state.engine.globs import TOPICS, matching

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.config.source import SourceSettings

NOBODY = "weir"
"""The group whose state is written where only the time counts: the reader's, which commits nothing.
"""
STATES = "states"
"""States of whole groups, in the memory of the spool."""
WAITING = "waiting"
"""Groups that a transaction holds, in the memory of the spool."""
HINT = "options and timeout_ms decide this"
RIGHTS = "the user of options needs more rights; groups, topics and retention_as_quota ask for less"


class Ticks(NamedTuple):
    """When a poll is followed by a record that makes the job check its answers."""

    check_ms: int
    """Checks are at multiples of this time."""
    after_ms: int
    """So long after a check a record of any key moves all clocks past it."""


class GroupPoller(Polling[KafkaGroupsSettings, GroupsClient]):
    """Polls at the check interval, all topics together; one file per poll."""

    feed, where, what, kept = FEED, WHERE, "partitions", KnownPartition

    def __init__(
        self,
        settings: KafkaGroupsSettings,
        spool_folder: Path | str,
        say: Callable[[str], None] | None = None,
        has_quota: Callable[[str], bool] = lambda _: False,
        client: GroupsClient | None = None,
        ticks: Ticks | None = None,
    ) -> None:
        """`has_quota` tells the topics whose backlog quota is configured."""
        super().__init__(
            settings, spool_folder, say, lambda stop: client or GroupsClient(settings, stop)
        )
        self._rules = OffsetRules(
            settings.cluster,
            settings.broker,
            settings.wants_topic,
            settings.wants_group,
            settings.bytes_per_message,
            settings.retention_as_quota,
            has_quota,
        )
        self._since: dict[LogPosition, int] = {}
        """By position the poll that had it first."""
        self._oldest: dict[LogPosition, tuple[str | None, int, Oldest]] = {}
        """By position the topic's id, the end of the log then, and what was read."""
        self._turns = Turns()
        """Of partitions."""
        self._new: dict[str, str] = {}
        """The states of whole groups that the last poll has found."""
        self._ticks = ticks
        self._unchecked_ms: int | None = None
        """The time of the newest poll until a later record moves the clocks past its check."""
        self._waiting = Waiting(self._client)
        self._ends: dict[Place, int] = {}
        """Ends of the logs at the poll before."""
        self._consumers: dict[str, Mapping[Place, GroupConsumer]] = {}
        """By group that lags the newest answer about its consumers."""

    def check(self) -> None:
        """UserError for a cluster that does not answer or refuses this user; writes nothing."""
        servers = self._settings.client_options()["bootstrap.servers"]
        try:
            answers = self._client.ask(
                (), (), self._client.deadline_in(2 * self._settings.timeout_ms / 1000)
            )
        except Unanswered as error:
            raise NotNow(f"{WHERE}: {servers}: {error}\n{HINT}") from None
        some = bool(answers.logs and (answers.committed or answers.states))
        if self._settings.retention_as_quota:
            some = some and bool(answers.settings)
        if answers.refused and not some:  # what one group or topic refuses, the polls report
            raise UserError(f"{WHERE}: {servers}: {answers.refused[0]}\n{RIGHTS}")

    def _poll(self, begun: Begun, report: Report) -> Iterable[Record]:
        memory = self.spool.memory
        before = {Place.of_text(text): known for text, known in memory.topics.items()}
        answers = self._client.ask(
            {place.topic for place in before},
            {group for known in before.values() for group in known.groups},
            begun.deadline,
        )
        memory.extra[WAITING] = self._waiting.poll(
            answers, memory.extra.get(WAITING, []), memory.last_poll_ms, begun.deadline
        )
        self._assigned(answers, begun.deadline)
        if self._settings.publish_times:
            self._read(answers, begun.deadline)
        answers.polled_ms = begun.clock_ms()
        states = memory.extra.get(STATES, {})
        mapped = map_answers(answers, before, memory.policies, self._rules, states)
        memory.topics = {place.text: known for place, known in mapped.known.items()}
        memory.policies = mapped.policies
        memory.extra[STATES] = mapped.groups
        memory.last_poll_ms = max(memory.last_poll_ms, answers.polled_ms)
        self._unchecked_ms = memory.last_poll_ms
        self._new = {g: s for g, s in mapped.groups.items() if states.get(g) != s}
        polled = len(mapped.known.keys() - mapped.skipped)
        report.count(polled, mapped.skipped, mapped.gone, answers.problems)
        report.lack("topic ", answers.absent)
        report.problems += mapped.problems
        return chain(mapped.changes, mapped.states)

    def _tick_ms(self) -> int | None:
        if self._ticks is None or self._unchecked_ms is None:
            return None
        check_ms, after_ms = self._ticks
        return (self._unchecked_ms // check_ms + 1) * check_ms + after_ms

    def _tick(self, now_ms: int) -> None:
        """State again what is stated of a group that has no offsets: as a rule, nothing."""
        self._unchecked_ms = None
        if self.spool.hold():
            state = self.spool.memory.extra.get(STATES, {}).get(NOBODY, KNOWN)
            record = self._rules.whole_group(NOBODY, state, now_ms)
            self._commit(Begun(now_ms, time.monotonic(), 0), [record], ends=False)

    def _assigned(self, answers: OffsetAnswers, deadline: float) -> None:
        """Add the consumers of partitions in which records of an earlier poll wait, or that no member
        has them, and the epochs of groups that rebalance."""
        states = answers.consumers
        waiting = [
            (group, place)
            for group, offsets in answers.committed.items()
            if states.get(group) != DEAD
            for place, offset in offsets.items()
            if place in answers.logs and offset < self._ends.get(place, 0)
        ]
        self._ends = {place: log.end for place, log in answers.logs.items()}
        types = answers.types
        groups = {g for g, _ in waiting if types.get(g) != STREAMS and states.get(g) != EMPTIED}
        self._consumers = {g: places for g, places in self._consumers.items() if g in groups}
        groups |= {
            group
            for group, state in states.items()
            if state == REBALANCING and types.get(group) == CONSUMER
        }
        if groups:
            share_groups = {group for group in groups if types.get(group) == SHARE}
            with noted(answers.problems, "consumers of groups: "):
                answers.members, problems = self._client.members(groups, share_groups, deadline)
                answers.problems += problems
        self._consumers |= {g: members.assigned for g, members in answers.members.items()}
        nobody = {g for g, state in states.items() if state == EMPTIED}
        nobody |= {g for g in self._consumers if states.get(g) == STABLE}
        for group, place in waiting:
            consumer = self._consumers.get(group, {}).get(place)
            if consumer is not None or group in nobody:
                answers.assigned[group, place] = consumer or NO_MEMBER

    def _read(self, answers: OffsetAnswers, deadline: float) -> None:
        """Add the records at the groups' positions, read where they are not known yet."""
        wanted = answers.positions()
        kept = self._standing(answers, wanted)
        self._since = {p: self._since.get(p, self._turns.polls) for p in wanted}

        def turn(position: LogPosition) -> tuple[int, int, LogPosition]:
            """The oldest positions first; of those, the partitions that were read longest ago."""
            return self._since[position], self._turns.of(position.place), position

        # Compaction may have removed what was read.
        most = self._settings.publish_reads
        new = heapq.nsmallest(most, wanted - kept.keys(), key=turn)
        if len(new) < most:
            again = (position for position in kept if _is_compacted(answers, position.place))
            new += heapq.nsmallest(most - len(new), again, key=turn)
        deadline = min(deadline, time.monotonic() + self._settings.timeout_ms / 1000)
        with noted(answers.problems, "oldest messages: "), suppress(Unanswered):
            answers.read = self._client.read(new, answers.logs, deadline, answers.problems)
        for position, oldest in answers.read.items():
            place = position.place
            kept[position] = (answers.topics[place.topic].id, answers.logs[place].end, oldest)
        there = [Place(name, n) for name, topic in answers.topics.items() for n in topic.partitions]
        self._turns.end([position.place for position in answers.read], there)
        self._oldest = kept
        answers.oldest = {
            position: oldest._replace(
                whole=oldest.whole and end == answers.logs[position.place].end
            )
            for position, (_, end, oldest) in kept.items()
        }

    def _standing(
        self, answers: OffsetAnswers, wanted: set[LogPosition]
    ) -> dict[LogPosition, tuple[str | None, int, Oldest]]:
        """What was read before and still stands at positions."""
        kept = {}
        for position in wanted & self._oldest.keys():
            topic_id, end, oldest = self._oldest[position]
            place = position.place
            same = topic_id == answers.topics[place.topic].id and answers.logs[place].end >= end
            # Where only marks of transactions were found, there may be a record by now; one of an open
            # transaction may be aborted.
            stands = oldest.messages and not oldest.blocked
            if same and (stands or answers.logs[place].end == end):
                kept[position] = self._oldest[position]
        return kept

    def _ended(self, report: Report) -> None:
        """Groups that have no offset at all are said once each."""
        new = sorted((g, s) for g, s in self._new.items() if s not in CONSUMERS)
        shown = ", ".join(f"{g or NAMELESS} ({s})" for g, s in new[:SHOWN])
        more = f" and {len(new) - SHOWN} more" if len(new) > SHOWN else ""
        if new:
            self._say(f"{self.title}: groups without an offset: {shown}{more}")


def _is_compacted(answers: OffsetAnswers, place: Place) -> bool:
    """Whether a topic may be compacted: by its settings, or if they are not known."""
    settings = answers.settings.get(place.topic)
    return settings is None or "compact" in (settings.get("cleanup.policy") or "")


def own_quotas(policies: Sequence[Mapping[str, Any]]) -> Callable[[str], bool]:
    """Whether a topic has a configured backlog quota, by its name or by a pattern."""
    named = [(p["scope"], p["name"]) for p in policies if "backlog_quota" in p["limits"]]
    names = {name for scope, name in named if scope == "topic"}
    patterns = [source for source in named if source[0] == TOPICS]
    return lambda topic: topic in names or bool(patterns and matching(patterns, "topic", topic))


def check(feed: SourceSettings, folder: Path) -> None:
    """UserError for a cluster that does not answer, or that denies the user a required right."""
    try:
        answering(feed.polled.client_options())
    except Unreachable as error:
        raise error.of_user(f"{WHERE}: {error}\n{HINT}") from None
    if may_start():  # else the driver asks, which has a JVM
        with closing(GroupPoller(feed.polled, folder)) as asked:
            asked.check()


def poller(
    settings: Settings, feed: SourceSettings, folder: Path, say: Callable[[str], None] | None
) -> GroupPoller:
    """The poller of a feed."""
    # A check is made when the clock of its key passes it.
    check_ms = settings.job_params("backlog")["backlogQuotaCheckIntervalInSeconds"] * 1000
    ticks = Ticks(check_ms, settings.idle_advance_ms + settings.allowed_lateness_ms)
    own = own_quotas(settings.policy_dicts())
    return GroupPoller(feed.polled, folder, say, own, ticks=ticks)
