"""The admin client in the JVM of Spark's driver, for requests that librdkafka lacks.

The Kafka connector includes kafka-clients, whose Admin describes producers (KIP-664). An answer
crosses to Python as one text, JSON of the fields of its classes by Spark's Jackson: a call of the
gateway takes a fifth of a millisecond, and a broker can hold a hundred thousand states. A field that
is missing is an error and never a smaller number.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from app.config.base import MASK, SECRET
from app.errors import UserError
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_owners import Grant
from app.sources.kafka.producer_states import IdState
from app.sources.polling import Unanswered

SLICE_S = 0.05
"""The time between two looks at an answer that is awaited."""
CLOSE_MS = 2000
OPTIONALS = ("java.util.Optional", "java.util.OptionalInt", "java.util.OptionalLong")
"""Classes of fields that are left out: Jackson writes them only with a module that Spark lacks."""
T = TypeVar("T")


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
        self._mapper: Any = None

    def names(self, deadline: float) -> frozenset[str]:
        """All topics of the cluster, internal ones included."""
        admin = self._connected()
        options = self._of("ListTopicsOptions").listInternal(True)
        result = admin.listTopics(self._limited(options, deadline))
        return self._answer(result.names(), deadline, "list of topics", frozenset)

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
            return self._answer(result.allTopicNames(), deadline, "topics", leaders_by_topic)
        except Unanswered:
            leaders: dict[str, dict[int, str | None]] = {}
            futures = result.topicNameValues()
            for name in wanted:
                try:
                    leaders[name] = self._answer(futures.get(name), deadline, name, leaders_of)
                except Unanswered as error:
                    problems.append(f"topic {error}")
            return leaders

    def states(
        self, places: Sequence[Place], deadline: float, problems: list[str]
    ) -> dict[Place, list[IdState]]:
        """By partition the states of its leader; what is missing is in `problems`."""
        if not places:
            return {}
        view = self._view()
        asked = [view.org.apache.kafka.common.TopicPartition(*place) for place in places]
        options = self._limited(self._of("DescribeProducersOptions"), deadline)
        result = self._connected().describeProducers(self._list(asked), options)
        try:
            return self._answer(
                result.all(),
                deadline,
                "producers",
                lambda by_name: {
                    place: states_of(by_name[f"{place.topic}-{place.partition}"])
                    for place in places
                },
            )
        except Unanswered:
            states: dict[Place, list[IdState]] = {}
            for place, partition in zip(places, asked, strict=True):
                try:
                    future = result.partitionResult(partition)
                    states[place] = self._answer(future, deadline, place.text, states_of)
                except Unanswered as error:
                    problems.append(f"partition {error}")
            return states

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
        return self._answer(result.values(), deadline, "ACLs", grants_of)

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
        listed = self._view().java.util.ArrayList()
        for item in items:
            listed.add(item)
        return listed

    def _answer(self, future: Any, deadline: float, what: str, read: Callable[[Any], T]) -> T:
        """What `read` makes of the value of a future, as JSON; Unanswered for a failure, and where
        it does not come in time.
        """
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
            return read(json.loads(self._json_mapper().writeValueAsString(future.get())))
        except Py4JJavaError as error:
            raise Unanswered(f"{what}: {self._reason(error)}") from None
        except (KeyError, TypeError, ValueError) as error:
            raise Unanswered(f"{what}: kafka-clients answers in another form: {error!r}") from None

    def _json_mapper(self) -> Any:
        """Jackson's mapper, which writes the fields of an object."""
        if self._mapper is None:
            view = self._view()
            visible = view.com.fasterxml.jackson.annotation
            mapper = view.com.fasterxml.jackson.databind.ObjectMapper()
            for accessor, visibility in (("ALL", "NONE"), ("FIELD", "ANY")):
                mapper.setVisibility(
                    visible.PropertyAccessor.valueOf(accessor),
                    visible.JsonAutoDetect.Visibility.valueOf(visibility),
                )
            for name in OPTIONALS:
                mapper.configOverride(view.java.lang.Class.forName(name)).setIsIgnoredType(True)
            self._mapper = mapper
        return self._mapper

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


def leaders_by_topic(topics: Mapping[str, Any]) -> dict[str, dict[int, str | None]]:
    """The leaders in descriptions of topics."""
    return {name: leaders_of(topic) for name, topic in topics.items()}


def leaders_of(topic: Mapping[str, Any]) -> dict[int, str | None]:
    """The id of the leading broker by partition, in the description of a topic."""
    return {
        each["partition"]: None if each["leader"] is None else each["leader"]["idString"]
        for each in topic["partitions"]
    }


def states_of(partition: Mapping[str, Any]) -> list[IdState]:
    """The states in the description of a partition's producers."""
    return [
        IdState(
            each["producerId"], each["producerEpoch"], each["lastSequence"], each["lastTimestamp"]
        )
        for each in partition["activeProducers"]
    ]


def grants_of(bindings: Iterable[Mapping[str, Any]]) -> list[Grant]:
    """The permissions to write in the ACLs of topics; deny rules are not asked for."""
    granted = [
        Grant(
            each["pattern"]["name"],
            each["pattern"]["patternType"],
            each["entry"]["data"]["principal"],
            each["entry"]["data"]["operation"],
            each["entry"]["data"]["permissionType"],
        )
        for each in bindings
    ]
    return [each for each in granted if each.operation in ("WRITE", "ALL")]
