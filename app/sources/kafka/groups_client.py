"""Queries a Kafka cluster for its groups, logs and settings, with a deadline for every wait.

Answers are independent: a missing one is reported, and left out of this poll; what cannot be asked
about one group, topic or partition costs that one alone. The order matters: commits are requested
before the ends of logs, so that no group is ahead of its log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from app.config.base import ENV, MASK, SECRET
from app.config.kafka_groups import WHERE, KafkaGroupsSettings
from app.config.kafka_topics import PATTERN
from app.errors import UserError
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
    KafkaTopic,
    Log,
    LogPosition,
    OffsetAnswers,
    Oldest,
    Place,
)
from app.sources.polling import Unanswered

AT_ONCE = 200
"""Groups, topics or partitions per request or round of requests."""
SLICE_S = 0.2
"""The time for which one call waits for records."""
SAMPLE = 20
"""Records that are read at a position, for the size of the messages there."""
FETCH_BYTES = 64 << 10
_NO_ID = "A" * 22
_GONE = KafkaError.UNKNOWN_TOPIC_OR_PART
_CONSUMERS = {
    ConsumerGroupState.STABLE: STABLE,
    ConsumerGroupState.PREPARING_REBALANCING: REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING: REBALANCING,
    ConsumerGroupState.EMPTY: EMPTIED,
    ConsumerGroupState.DEAD: DEAD,
}
"""Brokers before 2.6 list groups without a state, and librdkafka has no name for newer ones."""
_NO_GROUP = (KafkaError.GROUP_ID_NOT_FOUND,)
_UNANSWERED = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_REFUSED = (
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class GroupsClient:
    """Requests to one cluster, one poll after the other."""

    def __init__(
        self,
        settings: KafkaGroupsSettings,
        admin: Callable[[dict[str, Any]], Any] = AdminClient,
        consumer: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self._settings = settings
        self._make_admin = admin
        self._make_consumer = consumer
        self._admin: Any = None
        self._reasons: list[str] = []
        self.asking: Callable[[list[str]], None] = lambda groups: None
        """Called with the groups whose offsets are requested next."""

    def ask(
        self,
        topics: Collection[str],
        groups: Collection[str],
        deadline: float,
        alone: Collection[str] = (),
        left_out: Collection[str] = (),
    ) -> OffsetAnswers:
        """Everything but records; `topics` and `groups` are those of the polls before. Groups of
        `alone` are requested one by one, those of `left_out` not at all.

        Raises Unanswered if there is no answer at all. Returns before `deadline` (monotonic).
        """
        answers = OffsetAnswers()
        try:
            admin = self._connected()
            wanted = self._settings.wants_topic
            listed = {name for name in self._listed(admin, deadline) if wanted(name)}
            self._topics(
                admin, listed, {name for name in topics if wanted(name)}, answers, deadline
            )
            self._groups(admin, groups, answers, deadline, alone, left_out)
            self._logs(admin, answers, deadline)
            if self._settings.retention_as_quota:
                self._retention(admin, answers, deadline)
        except BaseException:
            self._admin = None  # the next poll begins with a connection of its own
            raise
        return answers

    def read(
        self,
        positions: Sequence[LogPosition],
        logs: Mapping[Place, Log],
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        """The records at positions; one that is missing was not read in time."""
        if not positions:
            return {}
        rounds: list[dict[Place, LogPosition]] = []
        for position in positions:
            free = next((each for each in rounds if position.place not in each), None)
            if free is None:
                free = {}
                rounds.append(free)
            free[position.place] = position
        found: dict[LogPosition, Oldest] = {}
        try:
            consumer = self._make_consumer(
                {
                    "group.id": "weir",
                    **self._options(),
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "queued.min.messages": 1,
                    "fetch.message.max.bytes": FETCH_BYTES,
                    "fetch.wait.max.ms": 100,
                }
            )
        except KafkaException as error:
            raise self._unusable(error) from None
        try:
            for each in rounds:
                _Reading(consumer, each, logs, found, problems, self._brief).run(deadline)
        finally:
            consumer.close()
        return found

    # Steps

    def _listed(self, admin: Any, deadline: float) -> set[str]:
        """Names of all topics."""
        timeout = self._timeout(deadline)
        try:
            found = admin.list_topics(timeout=timeout).topics
            return {name for name, topic in found.items() if topic.error is None}
        except KafkaException as error:
            raise Unanswered(f"the list of topics: {self._brief(error.args[0])}") from None

    def _topics(
        self, admin: Any, listed: set[str], known: set[str], answers: OffsetAnswers, deadline: float
    ) -> None:
        named = {name for name in self._settings.topics if not name.startswith(PATTERN)}
        names = sorted(listed | known | named)

        def describe(some: list[str], timeout: float) -> Any:
            return admin.describe_topics(TopicCollection(some), request_timeout=timeout)

        for name, topic, error in self._each(names, describe, "topic", answers, deadline):
            if error is None:
                id_ = str(topic.topic_id)
                answers.topics[name] = KafkaTopic(
                    None if id_ in ("None", _NO_ID) else id_,
                    tuple(sorted(each.id for each in topic.partitions)),
                    tuple(
                        sorted(
                            each.id
                            for each in topic.partitions
                            if each.leader is None or each.leader.id < 0
                        )
                    ),
                )
            elif error.code() == _GONE and name not in listed:
                (answers.gone if name in known else answers.absent).add(name)
            else:
                self._problem(answers, f"topic {name}", error)

    def _groups(
        self,
        admin: Any,
        known: Collection[str],
        answers: OffsetAnswers,
        deadline: float,
        alone: Collection[str],
        left_out: Collection[str],
    ) -> None:
        wanted = self._settings.wants_group
        named = {name for name in self._settings.groups if not name.startswith(PATTERN)}
        listed: set[str] = set()
        try:
            timeout = self._timeout(deadline)
            found = self._wait(admin.list_consumer_groups(request_timeout=timeout), timeout)
            listed = {group.group_id for group in found.valid if wanted(group.group_id)}
            states = {g.group_id: _CONSUMERS.get(g.state) for g in found.valid}
            answers.consumers = {
                name: state for name, state in states.items() if state and name and wanted(name)
            }
            answers.listed = not found.errors
            for each in found.errors:
                self._problem(answers, "the list of groups", getattr(each, "args", [each])[0])
        except KafkaException as failed:
            self._problem(answers, "the list of groups", failed.args[0])
        if "" in listed:  # the broker takes commits under it; no client asks for them
            answers.states[""] = EMPTY
        names = {name for name in known if wanted(name)} | named | listed
        answers.problems += [
            f"group {name}: its offsets ended the client's process; they are requested again later"
            for name in sorted(names & set(left_out))
        ]
        names -= {"", *left_out}

        def offsets(some: list[str], timeout: float) -> dict[str, Any]:
            return {
                name: admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(name)], request_timeout=timeout
                )[name]
                for name in some
            }

        several, one_by_one = sorted(names - set(alone)), sorted(names & set(alone))
        for some, most in ((several, AT_ONCE), (one_by_one, 1)):
            for name, group, error in self._each(some, offsets, "group", answers, deadline, most):
                if error is None:
                    self._offsets(name, group.topic_partitions or [], answers)
                elif error.code() in _NO_GROUP:
                    answers.committed[name] = {}
                else:
                    self._problem(answers, f"group {name}", error)
        self.asking([])
        self._without_offsets(admin, named, listed, answers, deadline)

    def _offsets(self, group: str, partitions: Iterable[Any], answers: OffsetAnswers) -> None:
        """The offsets of one group."""
        offsets = {}
        for each in partitions:
            place = Place(each.topic, each.partition)
            if each.error is not None:
                self._problem(answers, f"group {group} in {place.text}", each.error)
                answers.unanswered.add((group, place))
            elif each.offset >= 0:
                offsets[place] = int(each.offset)
        answers.committed[group] = offsets

    def _without_offsets(
        self, admin: Any, named: set[str], listed: set[str], answers: OffsetAnswers, deadline: float
    ) -> None:
        """States of groups that have no offset at all, and of those that have none by nature."""
        if not answers.listed:
            return
        failed = {group for group, _ in answers.unanswered}
        for name, offsets in answers.committed.items():
            if not offsets and name not in failed and name in listed:
                answers.states[name] = NO_OFFSET
        lacking = named - listed
        few = len(listed) <= AT_ONCE
        try:
            # Share groups are in no list of consumer groups. The older list describes each group.
            found = admin.list_groups(timeout=self._timeout(deadline)) if few or lacking else []
        except (KafkaException, Unanswered) as error:
            answers.problems.append(f"the list of all groups: {error}")
            answers.listed = False
            return
        others = {group.id for group in found if self._settings.wants_group(group.id)} - listed
        for name in lacking | others:
            if not answers.committed.get(name):
                answers.states[name] = SHARE if name in others else UNKNOWN

    def _logs(self, admin: Any, answers: OffsetAnswers, deadline: float) -> None:
        # A request for many partitions waits for the leader of each.
        leaderless = sorted(
            Place(name, n) for name, topic in answers.topics.items() for n in topic.leaderless
        )
        answers.problems += [f"partition {place.text}: has no leader" for place in leaderless]
        places = sorted(
            {Place(name, n) for name, topic in answers.topics.items() for n in topic.partitions}
            - set(leaderless)
        )
        ends: list[dict[Place, int]] = []
        for spec in (OffsetSpec.earliest(), OffsetSpec.latest()):

            def offsets(some: list[Place], timeout: float, spec: Any = spec) -> dict[Place, Any]:
                asked = {TopicPartition(*place): spec for place in some}
                futures = admin.list_offsets(asked, request_timeout=timeout)
                return {Place(each.topic, each.partition): futures[each] for each in futures}

            ends.append({})
            for place, found, error in self._each(places, offsets, "partition", answers, deadline):
                if error is not None:
                    self._problem(answers, f"partition {place.text}", error)
                elif found.offset >= 0:
                    ends[-1][place] = int(found.offset)
                else:
                    answers.problems.append(f"partition {place.text}: it has no offset")
            places = [place for place in places if place in ends[-1]]
        start, end = ends
        answers.logs = {place: Log(start[place], max(start[place], end[place])) for place in places}

    def _retention(self, admin: Any, answers: OffsetAnswers, deadline: float) -> None:
        def configs(some: list[str], timeout: float) -> dict[str, Any]:
            asked = [ConfigResource(ResourceType.TOPIC, name) for name in some]
            futures = admin.describe_configs(asked, request_timeout=timeout)
            return {resource.name: future for resource, future in futures.items()}

        names = sorted(answers.topics)
        for name, found, error in self._each(names, configs, "settings of", answers, deadline):
            if error is None:
                answers.settings[name] = {
                    key: found[key].value if key in found else None for key in RETENTION
                }
            else:
                self._problem(answers, f"settings of {name}", error)

    # Waiting

    def _each(
        self,
        items: Sequence[K],
        ask: Callable[[list[K], float], Mapping[K, Any]],
        what: str,
        answers: OffsetAnswers,
        deadline: float,
        most: int = AT_ONCE,
    ) -> Iterator[tuple[K, Any, Any]]:
        """Item, answer and error of every request, several at a time."""
        left = iter(items)
        while some := list(islice(left, most)):
            try:
                timeout = self._timeout(deadline)
            except Unanswered as error:
                answers.problems.append(f"{what} {some[0]} and those after it: {error}")
                return
            if what == "group":
                self.asking([str(item) for item in some])
            try:
                futures = ask(some, timeout)
            except (KafkaException, ValueError, TypeError) as error:
                if len(some) > 1:  # which of them it is shows when they are asked one by one
                    yield from self._each(some, ask, what, answers, deadline, 1)
                else:
                    yield some[0], None, _as_kafka_error(error)
                continue
            for item in some:
                try:
                    yield item, self._wait(futures[item], timeout), None
                except KafkaException as error:
                    yield item, None, error.args[0]

    def _wait(self, future: Future[T], seconds: float) -> T:
        """The answer of a request; a KafkaException if there is none."""
        # The client has its own time-out; a moment more lets that arrive first.
        try:
            return future.result(seconds + 1)
        except TimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None

    def _timeout(self, deadline: float) -> float:
        """Seconds for the next request."""
        left = deadline - time.monotonic()
        if left <= 0:
            raise Unanswered("no time left in this poll")
        return min(left, self._settings.timeout_ms / 1000)

    # Connection

    def _connected(self) -> Any:
        if self._admin is None:
            self._reasons.clear()
            try:
                self._admin = self._make_admin(self._options())
            except KafkaException as error:
                raise self._unusable(error) from None
        return self._admin

    def _options(self) -> dict[str, Any]:
        reasons = self._reasons
        return {
            "socket.timeout.ms": self._settings.timeout_ms,
            **self._settings.client_options(),
            "log_level": 0,
            "error_cb": lambda error: reasons.append(error.str()),
        }

    def _unusable(self, error: KafkaException) -> UserError:
        return UserError(
            f"{WHERE}.options: {self._plain(error.args[0].str())}\n"
            "options are those of librdkafka, by its own names"
        )

    def _problem(self, answers: OffsetAnswers, what: str, error: Any) -> None:
        """Record what is missing, and why."""
        text = f"{what}: {self._brief(error)}"
        answers.problems.append(text)
        if error.code() in _REFUSED:
            answers.refused.append(text)

    def _brief(self, error: Any) -> str:
        """An error in a few words, with the cause of an unanswered request."""
        text = error.str()
        if error.code() in _UNANSWERED:
            if self._admin is not None:
                self._admin.poll(0)
            text = self._reasons[-1] if self._reasons else text
        return self._plain(text)

    def _plain(self, text: str) -> str:
        """A text on one line, without a secret that a broker might repeat."""
        options = self._settings.client_options()
        for key, value in options.items():
            if value and (SECRET.search(key) or ENV.search(self._settings.options[key])):
                text = text.replace(value, MASK)
        return " ".join(text.split())[:300]


def _as_kafka_error(error: Exception) -> Any:
    """What the client said of a request that it did not send."""
    first = error.args[0] if error.args else str(error)
    if isinstance(first, KafkaError):
        return first
    return KafkaError(KafkaError._INVALID_ARG, str(first))


class _Reading:
    """One read of several partitions, each from one position."""

    def __init__(
        self,
        consumer: Any,
        wanted: dict[Place, LogPosition],
        logs: Mapping[Place, Log],
        found: dict[LogPosition, Oldest],
        problems: list[str],
        brief: Callable[[Any], str],
    ) -> None:
        self._consumer = consumer
        self._left = dict(wanted)
        self._logs = logs
        self._found = found
        self._problems = problems
        self._brief = brief
        self._so_far = dict.fromkeys(wanted, Oldest())

    def run(self, deadline: float) -> None:
        """Read until every partition has returned enough records, or the time is over."""
        assigned = [
            TopicPartition(*place, position.offset) for place, position in self._left.items()
        ]
        self._consumer.assign(assigned)
        self._consumer.resume(assigned)  # paused by a read before, it would stay so
        while self._left and time.monotonic() < deadline:
            for message in self._consumer.consume(AT_ONCE, SLICE_S):
                self._take(message)
        for place in list(self._left):
            if self._so_far[place].messages:
                self._done(place, whole=False)

    def _take(self, message: Any) -> None:
        if message.topic() is None or message.partition() is None:
            return  # of a broker, not of a partition: others may answer
        place = Place(message.topic(), message.partition())
        position = self._left.get(place)
        if position is None:
            return
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                self._problems.append(f"reading {place.text}: {self._brief(error)}")
                del self._left[place]
            else:
                self._done(place, whole=True)
            return
        kind, at = message.timestamp()
        earlier = self._so_far[place]
        time_ms = at if kind and at >= 0 else None
        size = (
            len(message.key() or b"")
            + len(message.value() or b"")
            + sum(len(name.encode()) + len(value or b"") for name, value in message.headers() or ())
        )
        so_far = Oldest(
            earlier.time_ms if earlier.messages else time_ms,
            earlier.messages + 1,
            earlier.size + size,
        )
        self._so_far[place] = so_far
        last = message.offset() >= self._logs[place].end - 1
        if last or so_far.messages >= SAMPLE or so_far.size >= FETCH_BYTES:
            self._done(place, whole=last)

    def _done(self, place: Place, whole: bool) -> None:
        position = self._left.pop(place)
        self._found[position] = self._so_far[place]._replace(whole=whole)
        self._consumer.pause([TopicPartition(*place)])
