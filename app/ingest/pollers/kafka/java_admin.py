"""The admin client in the JVM of Spark's driver, for requests that librdkafka lacks.

The Kafka connector includes kafka-clients, whose Admin describes producers (KIP-664). An answer
crosses to Python as one text, in the format of its classes' `toString`: a call of the gateway takes
a fifth of a millisecond, and a broker can hold a hundred thousand states. The parsed items are
counted, so another format is an error and never a smaller number.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from app.config.base import MASK, SECRET
from app.errors import UserError
from app.ingest.pollers.kafka.offsets import Place
from app.ingest.pollers.kafka.producer_owners import Grant
from app.ingest.pollers.kafka.producer_states import State
from app.ingest.pollers.polling import Unanswered

SLICE_S = 0.05
"""The time between two looks at an answer that is awaited."""
CLOSE_MS = 2000
_NAME = r"[A-Za-z0-9._-]+"
_TOPIC = re.compile(
    rf"\(name=({_NAME}), internal=|"
    r"\(partition=(\d+), leader=(?:none|null|\S+ \(id: (-?\d+) rack: .*?\)), replicas="
)
_STATE = re.compile(
    rf"({_NAME})-(\d+)=PartitionProducerState\(|"
    r"ProducerState\(producerId=(-?\d+), producerEpoch=(-?\d+), lastSequence=(-?\d+), "
    r"lastTimestamp=(-?\d+), "
)
_GRANT = re.compile(
    r"resourceType=TOPIC, name=(.*?), patternType=(\w+)\), entry=\(principal=(.*?), host=[^,]*, "
    r"operation=(\w+), permissionType=(\w+)\)\)"
)


class JavaAdmin:
    """Requests to one cluster; every wait ends at a deadline or when `stopping` is set."""

    def __init__(
        self,
        options: Mapping[str, str],
        timeout_ms: int,
        stopping: threading.Event | None = None,
        jvm: Callable[[], Any] | None = None,
    ) -> None:
        """`options` are the client's own, secrets put in; `jvm` gives the gateway's view."""
        self._options = dict(options)
        self._timeout_ms = timeout_ms
        self._stopping = stopping or threading.Event()
        self._view = jvm or driver_jvm
        self._admin: Any = None

    def names(self, deadline: float) -> frozenset[str]:
        """All topics of the cluster, internal ones included."""
        admin = self._connected()
        options = self._of("ListTopicsOptions").listInternal(True)
        found = self._wait(
            admin.listTopics(self._limited(options, deadline)).names(), deadline, "list of topics"
        )
        return frozenset(re.findall(_NAME, found.toString()))

    def leaders(
        self, topics: Iterable[str], deadline: float, problems: list[str]
    ) -> dict[str, dict[int, str | None]]:
        """By topic and partition the id of the leading broker; what is missing is in `problems`."""
        wanted = sorted(topics)
        if not wanted:
            return {}
        options = self._limited(self._of("DescribeTopicsOptions"), deadline)
        result = self._connected().describeTopics(self._list(wanted), options)
        try:
            texts = [self._wait(result.allTopicNames(), deadline, "topics").toString()]
        except Unanswered:
            texts, values = [], result.topicNameValues()
            for name in wanted:
                try:
                    texts.append(self._wait(values.get(name), deadline, name).toString())
                except Unanswered as error:
                    problems.append(f"topic {error}")
        return parse_leaders(texts)

    def states(
        self, places: Sequence[Place], deadline: float, problems: list[str]
    ) -> dict[Place, list[State]]:
        """By partition the states of its leader; what is missing is in `problems`."""
        if not places:
            return {}
        view = self._view()
        asked = [view.org.apache.kafka.common.TopicPartition(*place) for place in places]
        options = self._limited(self._of("DescribeProducersOptions"), deadline)
        result = self._connected().describeProducers(self._list(asked), options)
        try:
            return parse_states(self._wait(result.all(), deadline, "producers").toString(), places)
        except Unanswered:
            found: dict[Place, list[State]] = {}
            for place, partition in zip(places, asked, strict=True):
                try:
                    answer = self._wait(result.partitionResult(partition), deadline, place.text)
                    text = f"{place.topic}-{place.partition}={answer.toString()}"
                    found |= parse_states(text, [place])
                except Unanswered as error:
                    problems.append(f"partition {error}")
            return found

    def grants(self, deadline: float) -> list[Grant]:
        """Who may write to which topics, by the cluster's ACLs."""
        view = self._view()
        common = view.org.apache.kafka.common
        resource = common.resource.ResourcePatternFilter(
            common.resource.ResourceType.TOPIC, None, common.resource.PatternType.ANY
        )
        entry = common.acl.AccessControlEntryFilter(
            None, None, common.acl.AclOperation.ANY, common.acl.AclPermissionType.ALLOW
        )
        result = self._connected().describeAcls(
            common.acl.AclBindingFilter(resource, entry),
            self._limited(self._of("DescribeAclsOptions"), deadline),
        )
        found = self._wait(result.values(), deadline, "ACLs")
        return parse_grants(found.toString(), found.size())

    def close(self) -> None:
        """End the client and its threads."""
        if self._admin is not None:
            admin, self._admin = self._admin, None
            admin.close(self._view().java.time.Duration.ofMillis(CLOSE_MS))

    # Java

    def _connected(self) -> Any:
        if self._stopping.is_set():
            raise Unanswered("stopping")
        if self._admin is None:
            from py4j.protocol import Py4JJavaError

            view = self._view()
            properties = view.java.util.Properties()
            for key, value in {"client.id": "weir", **self._options}.items():
                properties.setProperty(key, value)
            try:
                self._admin = view.org.apache.kafka.clients.admin.Admin.create(properties)
            except Py4JJavaError as error:
                raise UserError(
                    f"source.options: Kafka's client refuses them: {self._reason(error)}\n"
                    "the kafka.* options are those of Kafka's admin client"
                ) from None
        return self._admin

    def _of(self, name: str) -> Any:
        """A new object of a class of the admin client."""
        return getattr(self._view().org.apache.kafka.clients.admin, name)()

    def _limited(self, options: Any, deadline: float) -> Any:
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            raise Unanswered("no time left in this poll")
        return options.timeoutMs(min(left_ms, self._timeout_ms))

    def _list(self, items: Iterable[Any]) -> Any:
        found = self._view().java.util.ArrayList()
        for item in items:
            found.add(item)
        return found

    def _wait(self, future: Any, deadline: float, what: str) -> Any:
        """The value of a future; Unanswered for a failure, and where it does not come in time."""
        from py4j.protocol import Py4JJavaError

        pause = SLICE_S / 10
        while not future.isDone():
            # The client itself ends a request at its time limit; this is for one that it forgets.
            if time.monotonic() > deadline + 1:
                raise Unanswered(f"{what}: no answer in time")
            if self._stopping.wait(pause):
                raise Unanswered("stopping")
            pause = min(2 * pause, SLICE_S)
        try:
            return future.get()
        except Py4JJavaError as error:
            raise Unanswered(f"{what}: {self._reason(error)}") from None

    def _reason(self, error: Any) -> str:
        """The cause of a Java exception on one line, without a secret of the options."""
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        name = cause.getClass().getSimpleName()
        text = " ".join(f"{name}: {cause.getMessage()}".split())
        for key, value in self._options.items():
            if SECRET.search(key) and value:
                text = text.replace(value, MASK)
        return text[:200]


def driver_jvm() -> Any:
    """The gateway's view of the JVM of this process' Spark session."""
    from pyspark import SparkContext

    view = SparkContext._jvm
    if view is None:
        raise UserError(
            "source.format: kafka_producers asks Kafka from the JVM of a Spark session, and there"
            " is none\nstart it with ./spark-submit.sh run"
        )
    return view


def parse_leaders(texts: Iterable[str]) -> dict[str, dict[int, str | None]]:
    """The leaders in the descriptions of topics."""
    found: dict[str, dict[int, str | None]] = {}
    for text in texts:
        partitions: dict[int, str | None] = {}
        for name, partition, leader in _TOPIC.findall(text):
            if name:
                partitions = found.setdefault(name, {})
            else:
                partitions[int(partition)] = leader or None
        _require(text.count("(partition="), sum(1 for each in _TOPIC.findall(text) if each[1]))
    return found


def parse_states(text: str, places: Sequence[Place]) -> dict[Place, list[State]]:
    """The states in descriptions of the producers of some partitions."""
    found: dict[Place, list[State]] = {}
    states: list[State] = []
    count = 0
    for topic, partition, *values in _STATE.findall(text):
        if topic:
            states = found.setdefault(Place(topic, int(partition)), [])
        else:
            states.append(State(*map(int, values)))
            count += 1
    _require(text.count("producerId="), count)
    _require(len(places), len(found))
    return found


def parse_grants(text: str, size: int) -> list[Grant]:
    """The permissions to write in the ACLs of topics; deny rules are not asked for."""
    found = [Grant(*each) for each in _GRANT.findall(text)]
    _require(size, len(found))
    return [each for each in found if each.operation in ("WRITE", "ALL")]


def _require(there: int, parsed: int) -> None:
    if there != parsed:
        raise Unanswered(f"kafka-clients prints {there} parts of an answer, {parsed} were parsed")
