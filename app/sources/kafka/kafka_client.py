"""The client of Kafka: Java's, in the JVM of this process.

It is a later release than that of Spark's connector, in a class loader beside it (app.jars).
`KafkaRequests.java` asks for any number of topics, groups or partitions with one call of the
gateway, which takes a fifth of a millisecond, and answers as one JSON text. A request has an answer
for each thing that it asks about: what fails, or does not come in time, costs itself alone. A broker
gets the requests of a client one after the other, so lists are answered in their order.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import resources
from typing import Any, Literal, NamedTuple, TypeVar

from app.config.base import Polled
from app.config.kafka_topics import PATTERN
from app.errors import UserError
from app.jars import KAFKA_CLIENT, OF_KAFKA_CLIENT, client_jar
from app.jvm import driver_jvm
from app.sources.kafka.knocking import Knock
from app.sources.kafka.offsets import Place
from app.sources.polling import Unanswered
from app.sources.ports import SECONDS, Unreachable, WrongAnswer
from app.terminal.secrets import MASK, SECRET

SLICE_MS = 50
"""The time between two looks at `stopping` while an answer is awaited."""
READ_MS = 200
"""The time for which one call waits for records."""
CLOSE_MS = 2000
ATTEMPTS = 3
GROUPS, PARTITIONS, TOPICS, STATES, CONSUMERS = 500, 10_000, 500, 200, 100
"""Most groups, partitions, topics, partitions with producers and groups with consumers of one
request: what cannot be answered in the time of a poll as a whole is answered in part."""
PROTOCOLS = ("", "consumer", "share", "streams")
"""Of groups that read topics; without one a program only commits."""
FETCH_BYTES = 8 << 20
"""Most bytes of an answer with records, but for one record that is larger."""
REFUSED = (
    "SaslAuthenticationException",
    "SslAuthenticationException",
    "ClusterAuthorizationException",
    "GroupAuthorizationException",
    "TopicAuthorizationException",
)
RIGHTS = {
    "topics": "Describe on Topic",
    "offsets": "Describe on Topic",
    "settings": "DescribeConfigs on Topic",
    "producers": "Read on Topic",
    "committed": "Describe on Group",
    "settled": "Describe on Group",
    "consumers": "Describe on Group",
    "shareConsumers": "Describe on Group",
    "shareOffsets": "Describe on Group",
    "described": "Describe on TransactionalId",
    "quotas": "DescribeConfigs on Cluster",
    "acls": "Describe on Cluster",
}
"""What an ACL must allow, by request; lists leave out what this user may not see."""
DISCONNECTED = "the broker closed the connection, or its answer took longer than timeout_ms"
TOPIC_LIST = "the list of topics"
BY_NAME = "they are those of Kafka's Java client, by its own names"

K = TypeVar("K", str, Place)
Offset = Literal["first", "next", "stable"]
Quota = tuple[dict[str, str | None], dict[str, float]]
_PASSWORD = re.compile(r"""password\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)')""")


class RequestError(NamedTuple):
    """Why there is no answer."""

    names: tuple[str, ...]
    """The classes of the exception and its causes, without their package."""
    text: str

    @property
    def refused(self) -> bool:
        """Whether this user is not allowed to ask."""
        return any(name in REFUSED for name in self.names)

    @property
    def gone(self) -> bool:
        """Whether there is no such topic or group."""
        missing = ("UnknownTopicOrPartitionException", "GroupIdNotFoundException")
        return any(name in missing for name in self.names)


class Answered(NamedTuple):
    """The answers to a request, in the order of what it asks about; None for a missing one."""

    values: list[Any]
    errors: dict[int, RequestError]
    """By the number of a missing answer, why it is missing."""

    def of(
        self, items: Sequence[K], about: str, problems: list[str], refused: list[str] | None = None
    ) -> dict[K, Any]:
        """The answer about each item; what is missing is one of the `problems` about it, and of those
        that are `refused`.
        """
        for number, error in self.errors.items():
            text = f"{about} {items[number]}: {error.text}"
            problems.append(text)
            if error.refused and refused is not None:
                refused.append(text)
        pairs = zip(items, self.values, strict=True)
        return {item: value for item, value in pairs if value is not None}


class KafkaClient:
    """Requests to one cluster; every wait ends at a deadline or when `stopping` is set.

    Deadlines are of the clock `time.monotonic`. Requests raise Unanswered once theirs has passed.
    """

    def __init__(
        self,
        options: Mapping[str, str],
        timeout_ms: int,
        where: str = "source.options",
        stopping: threading.Event | None = None,
        refuses: bool = False,
    ) -> None:
        """`options` are the client's own, secrets put in; errors name them as `where`. A broker has
        `timeout_ms` for an answer; what any of them can answer is then asked of another, ATTEMPTS
        times in all. With `refuses`, options that no client of Kafka has are a UserError.
        """
        self._options = dict(options)
        self._timeout_ms = timeout_ms
        self._where, self._refuses = where, refuses
        self._stopping = stopping or threading.Event()
        self._requests: Any = None
        self._knock = Knock(self._options, min(SECONDS, timeout_ms / 1000))
        self._opened: list[str] = []
        """The servers by which the client has begun."""

    def names(self, deadline: float) -> frozenset[str]:
        """The names of all topics, internal ones included; Unanswered without an answer."""
        request = self._send("names", deadline)
        try:
            return frozenset(request.only(TOPIC_LIST, deadline))
        except Unanswered:
            self.close()  # addresses may have changed: the next request looks them up
            raise

    def topics(self, names: Sequence[str], deadline: float) -> Request:
        """Of each topic its id, and [partition, id of the leader or None] of its partitions."""
        return self._send("topics", deadline, json.dumps(names))

    def groups(self, deadline: float) -> Request:
        """[name, state or None, type or None] of all groups that read topics; [class, …, message] of
        brokers that failed."""
        return self._send("groups", deadline, json.dumps(PROTOCOLS))

    def committed(self, groups: Sequence[str], deadline: float) -> Request:
        """Of each group its offsets by topic and partition."""
        return self._send("committed", deadline, _lists(groups, GROUPS))

    def settled(self, stood: Mapping[str, Sequence[Place]], deadline: float) -> Request:
        """Of each group its offsets by topic and partition, as far as they are in no open
        transaction."""
        return self._send("settled", deadline, json.dumps(list(stood.items())))

    def consumers(self, groups: Sequence[str], deadline: float) -> Request:
        """Of each group the [client id, host, [[topic, partition], …]] of its members, its epoch and
        that of its target assignment, both None for classic groups."""
        return self._send("consumers", deadline, _lists(groups, CONSUMERS))

    def share_consumers(self, groups: Sequence[str], deadline: float) -> Request:
        """The same of share groups, whose members may have the same partitions."""
        return self._send("shareConsumers", deadline, _lists(groups, CONSUMERS))

    def share_offsets(self, groups: Sequence[str], deadline: float) -> Request:
        """Of each share group by topic and partition its start offset and its lag, which is None
        where the coordinator does not count it."""
        return self._send("shareOffsets", deadline, _lists(groups, GROUPS))

    def offsets(self, places: Sequence[Place], which: Offset, deadline: float) -> Request:
        """Of each partition the first offset of its log, the next one, or with `stable` that which
        a reader of committed records comes to."""
        return self._send("offsets", deadline, _lists(places, PARTITIONS), which)

    def settings(self, topics: Sequence[str], keys: Sequence[str], deadline: float) -> Request:
        """Of each topic the values of some of its settings."""
        return self._send("settings", deadline, _lists(topics, TOPICS), json.dumps(keys))

    def producers(self, places: Sequence[Place], deadline: float) -> Request:
        """Of each partition the [id, epoch, last sequence, last timestamp, first offset of the open
        transaction or None] of its producers."""
        return self._send("producers", deadline, _lists(places, STATES))

    def transactions(
        self, ids: Collection[int], deadline: float, states: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """The transactional ids of some producer ids, or without any of all, in some states, or without
        any in all, as far as brokers answer; and why others do not."""
        asked = json.dumps(sorted(ids)), json.dumps(states)
        values, errors = self._send("transactions", deadline, *asked).result(deadline)
        names = sorted(str(name) for listed in values for name, _, _ in listed or ())
        return names, [f"the list of transactions: {error.text}" for error in errors.values()]

    def described(self, transactional_ids: Sequence[str], deadline: float) -> Request:
        """Of each transactional id [producer id, epoch, state, timeout, begin or None, [topic,
        partition], …] of its transaction."""
        return self._send("described", deadline, json.dumps(transactional_ids))

    def acls(self, deadline: float) -> list[list[str]]:
        """[name, type of pattern, principal, operation, permission] of what ACLs of topics allow."""
        found: list[list[str]] = self._send("acls", deadline).only("ACLs", deadline)
        return found

    def quotas(self, deadline: float) -> list[Quota]:
        """Of each entity with limits its names by type, None for a default, and its values by key."""
        found = self._send("quotas", deadline).only("client quotas", deadline)
        return [(names, values) for names, values in found]

    def features(self, deadline: float) -> dict[str, int]:
        """By feature the highest level that a broker supports."""
        levels: dict[str, int] = self._send("features", deadline).only("features", deadline)
        return levels

    def records(
        self,
        positions: Sequence[tuple[Place, int, int]],
        deadline: float,
        records: int,
        size: int = 1 << 40,
        most: int = 1 << 60,
        isolation: str = "read_committed",
    ) -> Iterator[PolledRecords]:
        """What comes of partitions from an offset up to an end until `deadline`: so many records
        of each at most, or so many bytes; no more is asked for once `most` bytes have come of
        all. A partition occurs once."""
        options = {
            "group.id": "weir",
            **self._client_options(),
            "enable.auto.commit": "false",
            "allow.auto.create.topics": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": isolation,
            "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
            "max.partition.fetch.bytes": str(min(size, 1 << 20)),
            "max.poll.records": "10000",
            "fetch.max.bytes": str(min(FETCH_BYTES, most // 4)),
            "fetch.max.wait.ms": "100",
        }
        asked = [[*place, offset, end] for place, offset, end in positions]
        given = json.dumps(options), json.dumps(asked), records, size, most
        reader = self._made_with(_compiled().newInstance(), "reader", *given)
        left = len(asked)
        try:
            while left and not self._stopping.is_set() and time.monotonic() < deadline:
                part = PolledRecords(**json.loads(reader.poll(READ_MS)))
                left = part.left
                errors = [(number, self.error(texts)) for number, texts in part.errors]
                yield part._replace(errors=errors)
        finally:
            reader.close()

    def error(self, texts: Sequence[str], request: str = "") -> RequestError:
        """An exception from the names of its classes and its message, with the right that the request
        lacks."""
        *names, message = texts
        if "DisconnectException" in names:
            message = DISCONNECTED  # Kafka's own tells what it has cancelled
        right = RIGHTS.get(request, "")
        if f"{right.rpartition(' ')[2]}AuthorizationException" in names:
            message = f"{message.rstrip('.')}: the user of options needs {right}"
        text = " ".join(f"{names[-1]}: {message}".split())
        for secret in self._secrets():
            text = text.replace(secret, MASK)
        return RequestError(tuple(names), text[:300])

    def close(self) -> None:
        """End the client and its threads; the next request opens another."""
        if self._requests is not None:
            requests, self._requests, self._opened = self._requests, None, []
            requests.close(CLOSE_MS)

    # Java

    def _send(self, name: str, deadline: float, *arguments: Any) -> Request:
        if self._stopping.is_set():
            raise Unanswered("stopping")
        left_ms = int((deadline - time.monotonic()) * 1000)
        if left_ms <= 0:
            raise Unanswered("no time left in this poll")
        if self._refuses:
            self._refuse_unknown()
        servers = self._servers(f"{TOPIC_LIST}: " if name == "names" else "")
        if self._requests is None:
            requests, self._opened = _compiled().newInstance(), servers
            self._made_with(requests, "open", json.dumps(self._client_options()))
            self._requests = requests
        sent = getattr(self._requests, name)(*arguments, min(left_ms, ATTEMPTS * self._timeout_ms))
        return Request(sent, self, self._stopping, name)

    def _refuse_unknown(self) -> None:
        """UserError for an option that no client of Kafka has."""
        requests = _compiled().newInstance()
        unknown = json.loads(requests.unknown(json.dumps(list(self._options))))
        if unknown:
            raise UserError(
                f"{self._where}: {min(unknown)} is no option of Kafka's client\n{BY_NAME}"
            )
        self._refuses = False

    def _servers(self, asked: str = "") -> list[str]:
        """The servers that a client may have, which have answered as Kafka; Unanswered without any."""
        try:
            found = self._knock.servers()
        except Unreachable as error:
            if self._opened and not isinstance(error, WrongAnswer):
                return self._opened  # the client knows other brokers of the cluster
            self.close()
            raise Unanswered(f"{asked}{error}") from None
        if self._knock.wrong & set(self._opened):
            self.close()
        return found

    def _made_with(self, requests: Any, name: str, *arguments: Any) -> Any:
        from py4j.protocol import Py4JJavaError

        try:
            return getattr(requests, name)(*arguments)
        except Py4JJavaError as error:
            reason = self._reason(error).text
            raise UserError(
                f"{self._where}: Kafka's client refuses them: {reason}\n{BY_NAME}"
            ) from None

    def _reason(self, error: Any) -> RequestError:
        """The last cause of a Java exception."""
        cause = error.java_exception
        while cause.getCause() is not None:
            cause = cause.getCause()
        return self.error([cause.getClass().getSimpleName(), str(cause.getMessage())])

    def _client_options(self) -> dict[str, str]:
        """The options with the limits of time of a poll."""
        limits = {
            "request.timeout.ms": str(self._timeout_ms),
            "default.api.timeout.ms": str(ATTEMPTS * self._timeout_ms),
            # The client looks for answers that are late when something else wakes it: this does.
            "metadata.max.age.ms": str(max(self._timeout_ms // 2, 1)),
            # A broker that hangs would otherwise be taken again for what any of them can answer.
            "reconnect.backoff.ms": "1000",
            "reconnect.backoff.max.ms": "1000",
        }
        servers = {"bootstrap.servers": ",".join(self._servers())}
        return {"client.id": "weir", **limits, **self._options, **servers}

    def _secrets(self) -> Iterator[str]:
        for key, value in self._options.items():
            if SECRET.search(key) and value:
                yield value
                yield from (text for found in _PASSWORD.findall(value) for text in found if text)


class Request:
    """A request that has been sent."""

    def __init__(
        self, sent: Any, client: KafkaClient, stopping: threading.Event, name: str = ""
    ) -> None:
        self._sent, self._client, self._stopping, self._name = sent, client, stopping, name

    def result(self, deadline: float) -> Answered:
        """What has been answered in time; Unanswered if `stopping` is set."""
        # The client itself ends a request at its time limit; this is for one that it forgets.
        while not self._sent.ready(SLICE_MS) and time.monotonic() < deadline + 1:
            if self._stopping.is_set():
                raise Unanswered("stopping")
        document = json.loads(self._sent.json())
        errors = {
            int(number): self._client.error(texts, self._name)
            for number, texts in document["errors"].items()
        }
        missing = RequestError((), "no answer in time")
        for number, value in enumerate(document["values"]):
            if value is None and number not in errors:
                errors[number] = missing
        return Answered(document["values"], errors)

    def only(self, what: str, deadline: float) -> Any:
        """The one answer; Unanswered without it."""
        (value,), errors = self.result(deadline)
        if errors:
            raise Unanswered(f"{what}: {errors[0].text}")
        return value


class PolledRecords(NamedTuple):
    """What has come of partitions, which are named by their number in the request."""

    records: list[tuple[int, int, int | None, int, int]]
    """Number, offset, timestamp, bytes of key and value, bytes of the headers."""
    ended: list[tuple[int, bool]]
    """Partitions of which no more comes, and whether the end of their log was reached."""
    errors: list[tuple[int, Any]]
    """Partitions that cannot be read, and why."""
    left: int
    """Partitions of which more may come."""
    size: int = 0
    """Bytes of the answers since the call before."""


def _lists(items: Collection[Any], most: int) -> str:
    """The items as JSON in lists, each of a request."""
    every = list(items)
    return json.dumps([every[at : at + most] for at in range(0, len(every), most)])


def named(wanted: Collection[str]) -> set[str]:
    """The names among the names and patterns of a section."""
    return {each for each in wanted if not each.startswith(PATTERN)}


def deadline_in(seconds: float) -> float:
    """The end of a time that begins once the JVM and the compiled class are there: the first time
    both take seconds, which belong to no answer of a broker.
    """
    _compiled()
    return time.monotonic() + seconds


def answer_time_ms(settings: Polled, stages: int) -> int:
    """The time that a broker has for an answer in a poll that waits for all brokers `stages` times:
    one that hangs leaves time for the others.
    """
    longest_ms = max(settings.interval_ms, settings.timeout_ms)
    return min(settings.timeout_ms, max(longest_ms // (ATTEMPTS * stages), 1))


def release() -> str:
    """The release of the client; UserError if it cannot be used."""
    return str(_compiled().newInstance().release())


_compiling = threading.Lock()


def _compiled() -> Any:
    """The class KafkaRequests in the JVM, compiled once for all processes that use that."""
    from py4j.protocol import Py4JJavaError

    view, name = driver_jvm(), "weir.KafkaRequests"
    with _compiling:
        kept = view.java.lang.System.getProperties()
        compiled = kept.get(name)
        if compiled is None:
            source = resources.files("app.sources.kafka").joinpath("KafkaRequests.java")
            compiler = view.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(_class_loader(view))
            try:
                compiler.cook(source.read_text(encoding="utf-8"))
            except Py4JJavaError as error:
                raise UserError(
                    f"{KAFKA_CLIENT} does not fit this Spark: {error.java_exception.getMessage()}\n"
                    "run ./spark-submit.sh doctor, which names the jars"
                ) from None
            compiled = kept[name] = compiler.getClassLoader().loadClass(name)
    return compiled


def _class_loader(view: Any) -> Any:
    """A class loader that takes Kafka's classes from the client's jar, and from those of the user
    what belongs to them, such as login modules; the rest is Spark's. UserError without the jar.

    Spark's own loader finds the release of its connector, which has to stay what it is.
    """
    jar = client_jar()
    if jar is None:
        raise UserError(
            f"the jar of Kafka's client is missing: {KAFKA_CLIENT}\n"
            f"./spark-submit.sh --prepare fetches it; a folder of jars that WEIR_JARS names needs a"
            f" copy in {OF_KAFKA_CLIENT}"
        )
    spark = view.java.lang.Thread.currentThread().getContextClassLoader()
    urls = [view.java.io.File(str(jar)).toURI().toURL()]
    if view.java.lang.Class.forName("java.net.URLClassLoader").isInstance(spark):
        urls += [url for url in spark.getURLs() if "kafka-clients" not in url.getPath()]
    array = view.java.lang.reflect.Array.newInstance(urls[0].getClass(), len(urls))
    for number, url in enumerate(urls):
        view.java.lang.reflect.Array.set(array, number, url)
    return view.org.apache.spark.util.ChildFirstURLClassLoader(array, spark)
