"""Queries a Kafka cluster for its groups, logs and settings, with a deadline for every wait.

Answers are independent: a missing one is reported, and left out of this poll. The order
matters: commits are requested before the ends of logs, so that no group is ahead of its log.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import islice
from typing import Any, TypeVar

from confluent_kafka import (
    Consumer,
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
from app.ingest.pollers.kafka.offsets import RETENTION, Answers, Log, Oldest, Place, Position, Topic
from app.ingest.pollers.polling import Unanswered

AT_ONCE = 200
"""Groups, topics or partitions per request or round of requests."""
SLICE_S = 0.2
"""The time for which one call waits for records."""
SAMPLE = 20
"""Records that are read at a position, for the size of the messages there."""
FETCH_BYTES = 64 << 10
_NO_ID = "A" * 22
_GONE = KafkaError.UNKNOWN_TOPIC_OR_PART
_NO_GROUP = (KafkaError.GROUP_ID_NOT_FOUND,)
_UNANSWERED = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)
_REFUSED = (
    KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
)

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Client:
    """Requests to one cluster, one poll after the other."""

    def __init__(
        self, settings: KafkaGroupsSettings,
        admin: Callable[[dict[str, Any]], Any] = AdminClient,
        consumer: Callable[[dict[str, Any]], Any] = Consumer,
    ) -> None:
        self._settings = settings
        self._make_admin = admin
        self._make_consumer = consumer
        self._admin: Any = None
        self._reasons: list[str] = []

    def ask(
        self, topics: Collection[str], groups: Collection[str], deadline: float,
    ) -> Answers:
        """Everything but records; `topics` and `groups` are those of the polls before.

        Raises Unanswered if there is no answer at all. Returns before `deadline` (monotonic).
        """
        answers = Answers()
        try:
            admin = self._connected()
            wanted = self._settings.wants_topic
            listed = {name for name in self._listed(admin, deadline) if wanted(name)}
            self._topics(admin, listed, {name for name in topics if wanted(name)}, answers,
                         deadline)
            self._groups(admin, groups, answers, deadline)
            self._logs(admin, answers, deadline)
            if self._settings.retention_as_quota:
                self._retention(admin, answers, deadline)
        except BaseException:
            self._admin = None  # the next poll begins with a connection of its own
            raise
        return answers

    def read(
        self, positions: Sequence[Position], logs: Mapping[Place, Log], deadline: float,
        problems: list[str],
    ) -> dict[Position, Oldest]:
        """The records at positions; one that is missing was not read in time."""
        if not positions:
            return {}
        rounds: list[dict[Place, Position]] = []
        for position in positions:
            free = next((each for each in rounds if position.place not in each), None)
            if free is None:
                free = {}
                rounds.append(free)
            free[position.place] = position
        found: dict[Position, Oldest] = {}
        try:
            consumer = self._make_consumer({
                "group.id": "weir", **self._options(),
                "enable.auto.commit": False, "enable.auto.offset.store": False,
                "enable.partition.eof": True, "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted", "queued.min.messages": 1,
                "fetch.message.max.bytes": FETCH_BYTES, "fetch.wait.max.ms": 100,
            })
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
        self, admin: Any, listed: set[str], known: set[str], answers: Answers, deadline: float
    ) -> None:
        named = {name for name in self._settings.topics if not name.startswith(PATTERN)}
        names = sorted(listed | known | named)

        def describe(some: list[str], timeout: float) -> Any:
            return admin.describe_topics(TopicCollection(some), request_timeout=timeout)

        for name, topic, error in self._each(names, describe, "topic", answers, deadline):
            if error is None:
                id_ = str(topic.topic_id)
                answers.topics[name] = Topic(
                    None if id_ in ("None", _NO_ID) else id_,
                    tuple(sorted(each.id for each in topic.partitions)),
                )
            elif error.code() == _GONE and name not in listed:
                (answers.gone if name in known else answers.absent).add(name)
            else:
                self._problem(answers, f"topic {name}", error)

    def _groups(
        self, admin: Any, known: Collection[str], answers: Answers, deadline: float
    ) -> None:
        wanted = self._settings.wants_group
        names = {name for name in known if wanted(name)}
        names |= {name for name in self._settings.groups if not name.startswith(PATTERN)}
        try:
            timeout = self._timeout(deadline)
            found = self._wait(admin.list_consumer_groups(request_timeout=timeout), timeout)
            names |= {group.group_id for group in found.valid if wanted(group.group_id)}
            for each in found.errors:
                self._problem(answers, "the list of groups", getattr(each, "args", [each])[0])
        except KafkaException as failed:
            self._problem(answers, "the list of groups", failed.args[0])

        def offsets(some: list[str], timeout: float) -> dict[str, Any]:
            return {
                name: admin.list_consumer_group_offsets(
                    [ConsumerGroupTopicPartitions(name)], request_timeout=timeout
                )[name] for name in some
            }

        for name, group, error in self._each(
            sorted(names), offsets, "group", answers, deadline
        ):
            if error is None:
                self._offsets(name, group.topic_partitions or [], answers)
            elif error.code() in _NO_GROUP:
                answers.committed[name] = {}
            else:
                self._problem(answers, f"group {name}", error)

    def _offsets(self, group: str, partitions: Iterable[Any], answers: Answers) -> None:
        """The offsets of one group; one with an error leaves the group unanswered."""
        offsets = {}
        for each in partitions:
            if each.error is not None:
                self._problem(answers, f"group {group}", each.error)
                return
            if each.offset >= 0:
                offsets[Place(each.topic, each.partition)] = int(each.offset)
        answers.committed[group] = offsets

    def _logs(self, admin: Any, answers: Answers, deadline: float) -> None:
        places = sorted(
            Place(name, n) for name, topic in answers.topics.items() for n in topic.partitions
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

    def _retention(self, admin: Any, answers: Answers, deadline: float) -> None:
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
        self, items: Sequence[K], ask: Callable[[list[K], float], Mapping[K, Any]], what: str,
        answers: Answers, deadline: float,
    ) -> Iterator[tuple[K, Any, Any]]:
        """Item, answer and error of every request, several at a time."""
        left = iter(items)
        while some := list(islice(left, AT_ONCE)):
            try:
                timeout = self._timeout(deadline)
            except Unanswered as error:
                answers.problems.append(f"{what} {some[0]} and those after it: {error}")
                return
            try:
                futures = ask(some, timeout)
            except KafkaException as error:
                yield from ((item, None, error.args[0]) for item in some)
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
            "socket.timeout.ms": self._settings.timeout_ms, **self._settings.client_options(),
            "log_level": 0, "error_cb": lambda error: reasons.append(error.str()),
        }

    def _unusable(self, error: KafkaException) -> UserError:
        return UserError(
            f"{WHERE}.options: {self._plain(error.args[0].str())}\n"
            "options are those of librdkafka, by its own names"
        )

    def _problem(self, answers: Answers, what: str, error: Any) -> None:
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


class _Reading:
    """One read of several partitions, each from one position."""

    def __init__(
        self, consumer: Any, wanted: dict[Place, Position], logs: Mapping[Place, Log],
        found: dict[Position, Oldest], problems: list[str], brief: Callable[[Any], str],
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
                self._done(place)

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
                self._done(place)
            return
        kind, at = message.timestamp()
        earlier = self._so_far[place]
        time_ms = at if kind and at >= 0 else None
        size = len(message.key() or b"") + len(message.value() or b"") + sum(
            len(name.encode()) + len(value or b"") for name, value in message.headers() or ()
        )
        so_far = Oldest(
            earlier.time_ms if earlier.messages else time_ms, earlier.messages + 1,
            earlier.size + size,
        )
        self._so_far[place] = so_far
        last = message.offset() >= self._logs[place].end - 1
        if last or so_far.messages >= SAMPLE or so_far.size >= FETCH_BYTES:
            self._done(place)

    def _done(self, place: Place) -> None:
        position = self._left.pop(place)
        self._found[position] = self._so_far[place]
        self._consumer.pause([TopicPartition(*place)])
