"""Queries a Kafka cluster for its groups, logs and settings, with a deadline for every wait.

Answers are independent: a missing one is reported, and left out of this poll; what cannot be asked
about one group, topic or partition costs that one alone. The order matters: commits are requested
before the ends of logs, so that no group is ahead of its log. Share groups are requested last: what
they have acknowledged is then that of no shorter log.

A broker that does not answer delays what is asked of all brokers. So the time of a poll is divided:
among the list of groups, the commits with the beginnings of logs, the ends of logs with the settings,
and what follows from these. What was not answered comes first in the next poll.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Container, Mapping, Sequence

from app.config.kafka_groups import WHERE, KafkaGroupsSettings
from app.sources.kafka.kafka_client import (
    KafkaClient,
    Request,
    RequestError,
    answer_time_ms,
    deadline_in,
    named,
)
from app.sources.kafka.offsets import (
    DEAD,
    EMPTIED,
    EMPTY,
    NO_OFFSET,
    REBALANCING,
    RETENTION,
    SHARE,
    STABLE,
    UNKNOWN,
    GroupConsumer,
    GroupMembers,
    KafkaTopic,
    Log,
    LogPosition,
    OffsetAnswers,
    Oldest,
    OpenTransaction,
    Place,
)
from app.sources.kafka.transactions import Held, held, open_at
from app.sources.turns import Turns, share

SAMPLE = 20
"""Records that are read at a position, for the size of the messages there."""
SAMPLE_BYTES = 16 << 10
MOST_DESCRIBED = 500
"""Most groups whose consumers one poll asks for."""
MOST_STABLE = 10_000
"""Most partitions whose last stable offset one poll asks for."""
STAGES = 4
"""Waits of a poll for all brokers."""
_CONSUMERS = {
    "Stable": STABLE,
    "PreparingRebalance": REBALANCING,
    "CompletingRebalance": REBALANCING,
    "Assigning": REBALANCING,
    "Reconciling": REBALANCING,
    "Empty": EMPTIED,
    "Dead": DEAD,
}
"""Brokers before 2.6 list groups without a state."""


class GroupsClient:
    """Requests to one cluster, one poll after the other."""

    def __init__(
        self, settings: KafkaGroupsSettings, stopping: threading.Event | None = None
    ) -> None:
        self._settings = settings
        options, where = settings.client_options(), f"{WHERE}.options"
        answer_ms = answer_time_ms(settings, STAGES)
        self._client = KafkaClient(options, answer_ms, where, stopping, refuses=True)
        self._shared: set[str] = set()
        """Share groups of the polls before."""
        self._turns = {
            kind: Turns()
            for kind in (
                "group",
                "share group",
                "partition",
                "settings of",
                "stable",
                "consumers of",
            )
        }

    def ask(
        self, topics: Collection[str], groups: Collection[str], deadline: float
    ) -> OffsetAnswers:
        """Everything but records; `topics` and `groups` are those of the polls before.

        Raises Unanswered if there is no answer at all. Returns before `deadline` (monotonic).
        """
        answers = OffsetAnswers()
        client = self._client
        ends = share(deadline, STAGES)
        names = client.names(ends)
        listing = client.groups(ends)
        self._topics(client, names, topics, answers, share(deadline, STAGES))
        groups_there = self._listed(listing, answers, ends)
        ends = share(deadline, STAGES - 1)
        places = self._places(answers)
        beginnings = client.offsets(places, "first", ends)
        # One object for each partition, however many groups have offsets in it.
        shared: dict[tuple[str, int], Place] = {place: place for place in places}
        self._committed(client, groups, groups_there, shared, answers, ends)
        start = self._offsets(beginnings, places, answers, ends)
        begun = [place for place in places if place in start]
        share_groups = self._share_groups(answers, groups_there)
        ends = share(deadline, STAGES - 2)
        following = client.offsets(begun, "next", ends)
        if self._settings.retention_as_quota:
            self._retention(client, answers, ends)
        end = self._offsets(following, begun, answers, ends)
        answers.logs = {
            place: Log(start[place], max(start[place], offset)) for place, offset in end.items()
        }
        self._turns["partition"].end(answers.logs, places)
        self._start_offsets(client, share_groups, shared, answers, share(deadline, 2))
        self._without_offset(groups_there, answers)
        return answers

    def read(
        self,
        positions: Sequence[LogPosition],
        logs: Mapping[Place, Log],
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        """The records at positions; one that is missing was not read in time, or in the bytes that a
        poll may take."""
        self._left = self._settings.publish_bytes * self._settings.interval_ms // 60_000
        rounds: list[dict[Place, LogPosition]] = []
        for position in positions:
            free = next((each for each in rounds if position.place not in each), None)
            if free is None:
                free = {}
                rounds.append(free)
            free[position.place] = position
        read: dict[LogPosition, Oldest] = {}
        for each in rounds:
            if time.monotonic() < deadline and self._left > 0:
                read |= self._read(list(each.values()), logs, deadline, problems)
        return read

    def members(
        self, groups: Collection[str], share_groups: Container[str], deadline: float
    ) -> tuple[dict[str, GroupMembers], list[str]]:
        """By group its members, as far as they are answered, and what was not."""
        turns, client = self._turns["consumers of"], self._client
        asked = turns.sorted(groups)[:MOST_DESCRIBED]
        shared = [group for group in asked if group in share_groups]
        others = [group for group in asked if group not in share_groups]
        sent = [
            (names, request(names, deadline))
            for names, request in ((others, client.consumers), (shared, client.share_consumers))
            if names
        ]
        members, problems = dict[str, GroupMembers](), list[str]()
        for names, request in sent:
            described = request.result(deadline).of(names, "consumers of", problems)
            members |= {group: _members(*each) for group, each in described.items()}
        turns.end(members, groups)
        return members, problems

    def stable(
        self, places: Collection[Place], deadline: float, problems: list[str]
    ) -> dict[Place, int]:
        """The last stable offsets of some partitions, as far as they are answered."""
        asked = self._turns["stable"].sorted(places)[:MOST_STABLE]
        answered = self._client.offsets(asked, "stable", deadline).result(deadline)
        offsets = answered.of(asked, "partition", problems)
        self._turns["stable"].end(offsets, places)
        return offsets

    def open_at(
        self, stable: Mapping[Place, int], deadline: float, problems: list[str]
    ) -> dict[Place, OpenTransaction]:
        """By partition the transaction that begins there, as far as it is answered."""
        return open_at(self._client, stable, deadline, problems)

    def held(
        self,
        stood: Collection[Held],
        before: Mapping[Held, OpenTransaction],
        since_ms: int,
        deadline: float,
        problems: list[str],
    ) -> dict[Held, OpenTransaction]:
        """Of groups that stand in partitions those whose next offset is in an open transaction."""
        return held(self._client, stood, before, since_ms, deadline, problems)

    def deadline_in(self, seconds: float) -> float:
        """The end of a time that begins once there is a client."""
        return deadline_in(seconds)

    def close(self) -> None:
        """End the client."""
        self._client.close()

    # Steps

    def _topics(
        self,
        client: KafkaClient,
        names: frozenset[str],
        before: Collection[str],
        answers: OffsetAnswers,
        deadline: float,
    ) -> None:
        wanted = self._settings.wants_topic
        listed = {name for name in names if wanted(name)}
        known = {name for name in before if wanted(name)}
        asked = sorted(listed | known | named(self._settings.topics))
        values, errors = client.topics(asked, deadline).result(deadline)
        for number, name in enumerate(asked):
            error = errors.get(number)
            if error is None:
                topic_id, leaders = values[number]
                answers.topics[name] = KafkaTopic(
                    topic_id,
                    tuple(sorted(partition for partition, _ in leaders)),
                    tuple(sorted(partition for partition, leader in leaders if leader is None)),
                )
            elif error.gone and name not in listed:
                (answers.gone if name in known else answers.absent).add(name)
            else:
                _problem(answers, f"topic {name}", error)

    def _listed(self, request: Request, answers: OffsetAnswers, deadline: float) -> set[str]:
        """The consumer groups of the cluster that are polled, and what their consumers do."""
        (groups, failed), errors = request.result(deadline)
        for error in (*errors.values(), *(self._client.error(texts) for texts in failed or ())):
            _problem(answers, "the list of groups", error)
        answers.listed = not errors and not failed
        wanted = self._settings.wants_group
        groups = [group for group in groups or () if wanted(group[0])]
        states = {name: _CONSUMERS.get(state) for name, state, _ in groups}
        answers.types = {name: kind.lower() for name, _, kind in groups if kind and name}
        answers.consumers = {name: state for name, state in states.items() if state and name}
        if "" in states:  # the broker takes commits under it; no client asks for them
            answers.states[""] = EMPTY
        return set(states)

    def _committed(
        self,
        client: KafkaClient,
        before: Collection[str],
        listed: set[str],
        shared: Mapping[tuple[str, int], Place],
        answers: OffsetAnswers,
        deadline: float,
    ) -> None:
        wanted = self._settings.wants_group
        share_groups = {name for name, kind in answers.types.items() if kind == SHARE}
        turns = self._turns["group"]
        every = {name for name in before if wanted(name)} | named(self._settings.groups) | listed
        asked = turns.sorted(every - share_groups - {""})
        values, errors = client.committed(asked, deadline).result(deadline)
        for number, name in enumerate(asked):
            error = errors.get(number)
            if error is not None and not error.gone:
                _problem(answers, f"group {name}", error)
                continue
            answers.committed[name] = {
                shared.get((topic, int(partition))) or Place(topic, int(partition)): offset
                for topic, offsets in (values[number] or {}).items()
                for partition, offset in offsets.items()
            }
        turns.end(answers.committed, asked)

    def _share_groups(self, answers: OffsetAnswers, listed: set[str]) -> list[str]:
        """Share groups, and those of earlier polls that are not listed."""
        without = {name for name, offsets in answers.committed.items() if not offsets}
        return self._turns["share group"].sorted(
            {name for name, kind in answers.types.items() if kind == SHARE}
            | ((self._shared & without) - listed)
        )

    def _start_offsets(
        self,
        client: KafkaClient,
        groups: list[str],
        shared: Mapping[tuple[str, int], Place],
        answers: OffsetAnswers,
        deadline: float,
    ) -> None:
        """Add the offsets of share groups, after the ends of logs: none of their records that have
        come since counts as acknowledged."""
        answered = set()
        if groups:
            values, errors = client.share_offsets(groups, deadline).result(deadline)
        for number, name in enumerate(groups):
            error = errors.get(number)
            if error is None:
                answered.add(name)
                answers.committed[name] = {}
                if values[number]:
                    answers.types[name] = SHARE
                for topic, offsets in values[number].items():
                    for partition, (start, lag) in offsets.items():
                        place = shared.get((topic, int(partition))) or Place(topic, int(partition))
                        log = answers.logs.get(place)
                        answers.committed[name][place] = min(start, log.end) if log else start
                        if lag is not None:
                            answers.share_lags[name, place] = lag
            elif answers.types.get(name) == SHARE:
                _problem(answers, f"share group {name}", error)
            elif not error.gone:
                del answers.committed[name]  # it may still be there
        self._turns["share group"].end(answered, groups)
        self._shared |= {name for name, kind in answers.types.items() if kind == SHARE}
        self._shared -= {
            n for n, offsets in answers.committed.items() if n in groups and not offsets
        }

    def _without_offset(self, listed: set[str], answers: OffsetAnswers) -> None:
        """Add the states of groups that have no offset at all, if the list of groups is complete."""
        unlisted = [
            name for name, offsets in answers.committed.items() if offsets and name not in listed
        ]
        if answers.listed and unlisted:  # a broker that has just started lists no group yet
            answers.problems.append(f"the list of groups: lacks {unlisted[0]}, which has offsets")
            answers.listed = False
        if answers.listed:
            by_name = named(self._settings.groups)
            for name, offsets in answers.committed.items():
                if not offsets and name in by_name - listed:
                    answers.states[name] = UNKNOWN
                elif not offsets and name in listed and answers.types.get(name) != SHARE:
                    answers.states[name] = NO_OFFSET

    def _places(self, answers: OffsetAnswers) -> list[Place]:
        """The partitions that have a leader, in their turns."""
        # A request for many partitions waits for the leader of each.
        leaderless = sorted(
            Place(name, n) for name, topic in answers.topics.items() for n in topic.leaderless
        )
        answers.problems += [f"partition {place}: has no leader" for place in leaderless]
        every = {Place(name, n) for name, topic in answers.topics.items() for n in topic.partitions}
        return self._turns["partition"].sorted(every - set(leaderless))

    def _offsets(
        self, request: Request, places: list[Place], answers: OffsetAnswers, deadline: float
    ) -> dict[Place, int]:
        found = request.result(deadline).of(places, "partition", answers.problems, answers.refused)
        without = [place for place, value in found.items() if value == -1]
        answers.problems += [f"partition {place}: it has no offset" for place in without]
        return {place: value for place, value in found.items() if value >= 0}

    def _retention(self, client: KafkaClient, answers: OffsetAnswers, deadline: float) -> None:
        names = self._turns["settings of"].sorted(answers.topics)
        answered = client.settings(names, RETENTION, deadline).result(deadline)
        answers.settings = answered.of(names, "settings of", answers.problems, answers.refused)
        self._turns["settings of"].end(answers.settings, names)

    def _read(
        self,
        positions: list[LogPosition],
        logs: Mapping[Place, Log],
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        """The records at positions of different partitions."""
        places = [position.place for position in positions]
        ends = share(deadline, 2)  # a leader that does not answer leaves time for the others
        stable = self._client.offsets(places, "stable", ends).result(ends)
        at = stable.of(places, "reading", problems)
        last = {each: at[each.place] for each in positions if each.place in at}
        wanted = {each: (each.offset, min(last[each], logs[each.place].end)) for each in last}
        read = self._sampled(
            dict.fromkeys(wanted, Oldest()), wanted, "read_committed", deadline, problems
        )
        # Behind the last stable offset nothing is committed yet, and Kafka deletes it all the same.
        behind = {
            each: (max(each.offset, last[each]), logs[each.place].end)
            for each, oldest in read.items()
            if oldest.whole and last[each] < logs[each.place].end
        }
        before = {each: read[each]._replace(whole=False, blocked=True) for each in behind}
        rest = self._sampled(before, behind, "read_uncommitted", deadline, problems)
        return {**read, **before, **rest}

    def _sampled(
        self,
        before: Mapping[LogPosition, Oldest],
        wanted: Mapping[LogPosition, tuple[int, int]],
        isolation: str,
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        """What was read before at positions, and the records from an offset to an end."""
        found, ended = dict(before), set()
        asked, spans = list(wanted), [(each.place, *span) for each, span in wanted.items()]
        sizes = SAMPLE, SAMPLE_BYTES, self._left
        read = self._client.records(spans, deadline, *sizes, isolation)
        for part in read if asked and self._left > 0 else ():
            self._left -= part.size
            for number, _, time_ms, size, headers in part.records:
                earlier = found[asked[number]]
                found[asked[number]] = earlier._replace(
                    time_ms=earlier.time_ms if earlier.messages else time_ms,
                    messages=earlier.messages + 1,
                    size=earlier.size + size + headers,
                )
            for number, whole in part.ended:
                ended.add(asked[number])
                found[asked[number]] = found[asked[number]]._replace(whole=whole)
            for number, error in part.errors:
                problems.append(f"reading {asked[number].place}: {error.text}")
        return {each: oldest for each, oldest in found.items() if each in ended or oldest.messages}


def _members(
    members: list[tuple[str, str, list[tuple[str, int]]]], epoch: int | None, target: int | None
) -> GroupMembers:
    """The members of a group; of several that have a partition the first one by its client id."""
    assigned = {
        Place(*pair): GroupConsumer(client_id, host.removeprefix("/"))
        for client_id, host, pairs in sorted(members, reverse=True)
        for pair in pairs
    }
    return GroupMembers(assigned, epoch, target)


def _problem(answers: OffsetAnswers, what: str, error: RequestError) -> None:
    """Record what is missing, and why."""
    text = f"{what}: {error.text}"
    answers.problems.append(text)
    if error.refused:
        answers.refused.append(text)
