"""The request log of real brokers: sizes byte for byte, and whom their quotas throttle."""

from __future__ import annotations

import base64
import json
import re
import shutil
import threading
import time
import zipfile
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from app import sources
from app.config.source import KafkaLogsSettings
from app.run.service import run
from app.show.reconcile.comparing import one_round
from app.sources.kafka import broker_logs, client_requests
from app.sources.kafka.client_requests import FETCH, PRODUCE
from tests.servers.kafka_releases import NEWEST, OLDER
from tests.support import backlog_views
from tests.support.servers import feeds
from tests.support.servers.kafka import jars
from tests.support.servers.logging_kafka import LoggingKafka
from tests.support.servers.process import Missing, serving
from tests.support.servers.raw_kafka import Entity, Exchange, RawClient, Topic
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.kafka
Row = dict[str, Any]

# -- sizes -----------------------------------------------------------------------------------

VERSIONS = {NEWEST: (range(3, 14), range(4, 19)), OLDER: (range(3, 12), range(4, 18))}
"""Of PRODUCE and FETCH, by release."""
TAGGED = {"nodeEndpoints", "currentLeader", "divergingEpoch"}
"""Fields of an answer to a FETCH, which it has at times; `snapshotId` only goes to controllers."""
CLIENTS = (b"app", None, b"", "zähler-\U0001f600".encode(), b"n" * 300)


@pytest.mark.parametrize("release", (NEWEST, OLDER))
def test_sizes_are_those_on_the_wire(release: str, tmp_path: Path) -> None:
    try:
        rack = {"broker.rack": "zähler"}
        broker = LoggingKafka(tmp_path, ["alice"], properties=rack, version=release)
        broker.start()
    except (Missing, OSError) as error:
        pytest.skip(f"no Kafka broker {release}: {error}")
    try:
        sent = exchanged(broker, *VERSIONS[release])
        time.sleep(1)  # the last lines
    finally:
        broker.stop()
    found: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    log = broker.request_log.read_text("utf-8")
    assert all(field in log for field in [*TAGGED, '"abortedTransactions":[{'])
    for row in requests_of(broker.request_log):
        client = row["api"], row["client_id"].encode()
        if client in sent:
            found[client].append(row["charged_bytes"])
    assert {client: sorted(sizes) for client, sizes in found.items()} == {
        client: sorted(sizes) for client, sizes in sent.items()
    }


def test_the_size_knows_every_version_and_field_of_the_newest_release() -> None:
    try:
        (jar,) = jars(NEWEST).glob("kafka-clients-*.jar")
    except (Missing, OSError) as error:
        pytest.skip(f"no jars of Kafka {NEWEST}: {error}")
    found = {}
    for api, name in ((PRODUCE, "ProduceRequest"), (FETCH, "FetchResponse")):
        text = zipfile.Path(jar, f"common/message/{name}.json").read_text("utf-8")
        schema = json.loads(re.sub(r"^ *//.*", "", text, flags=re.M))
        assert int(schema["validVersions"].split("-")[1]) == client_requests.NEWEST[api]
        found[api] = {f["name"] for f in every(schema["fields"]) if "taggedVersions" in f}
    expected = {name[0].upper() + name[1:] for name in TAGGED} | {"SnapshotId"}
    assert found == {PRODUCE: set(), FETCH: expected}


def every(fields: list[Row]) -> Iterator[Row]:
    """Fields, and those within them."""
    for field in fields:
        yield field
        yield from every(field.get("fields", []))


def exchanged(
    broker: LoggingKafka, produces: range, fetches: range
) -> dict[tuple[str, bytes], list[int]]:
    """Bytes by API and client as the socket has them, of every version. No client id is an empty one."""
    for topic, partitions in (("orders", 3), ("paid", 150)):
        broker.create_topic(topic, partitions)
    orders, paid = (topic_id(broker, name) for name in ("orders", "paid"))
    broker.send("orders", [{"value": b"x" * 300, "partition": 0}] * 5)
    records = broker.segments("orders")[0].read_bytes()
    one = [Topic("orders", orders, {0: records})]
    several = [
        Topic("orders", orders, {0: records, 1: records}),
        Topic("paid", paid, dict.fromkeys(range(150), records)),
    ]
    fetched = [
        [Topic("orders", orders, {0: 0, 1: 0}), Topic("paid", paid, dict.fromkeys(range(140), 0))],
        [Topic("orders", orders, {2: 50, 7: 0}), Topic("gone", UUID(int=5), {0: 0})],
        [],
    ]
    aborted(broker.servers, "orders")
    broker.restart()  # and the epoch of its leaders is no longer 0
    for name, partitions in (("orders", 3), ("paid", 150)):
        broker.produce_to(name, [(n, b"led again") for n in range(partitions)])
    found: dict[tuple[str, bytes], list[int]] = defaultdict(list)
    for given in CLIENTS:
        name = given or b""
        with closing(RawClient(broker.servers, given)) as client:
            for version in produces:
                sent: list[Exchange] = [client.produce(version, one, acks) for acks in (1, -1, 0)]
                sent += [client.produce(version, several), client.produce(version, one, -1, "tä")]
                found["PRODUCE", name] += [len(each.sent) for each in sent]
            for version in fetches:
                answers = [client.fetch(version, topics) for topics in fetched]
                beyond = [Topic("orders", orders, {0: 50, 1: 50}), Topic("paid", paid, {3: 50})]
                answers.append(client.fetch(version, beyond, fetched_epoch=0))
                answers.append(client.fetch(version, beyond, leader_epoch=0))
                # The last byte of a flexible header is not charged.
                found["FETCH", name] += [len(each.received) - (version >= 12) for each in answers]
    return found


def aborted(servers: str, topic: str) -> None:
    """Send a transaction to the first partition, and abort it."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t"})
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.flush(20)
    producer.abort_transaction(20)


def topic_id(broker: LoggingKafka, name: str) -> UUID:
    with AdminClient({"bootstrap.servers": broker.servers}) as admin:
        (told,) = admin.describe_topics(TopicCollection([name])).values()
        text = str(told.result(PATIENCE_S).topic_id)
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def requests_of(file: Path) -> list[Row]:
    given = iter([pa.record_batch({"path": [file.as_uri()]})])
    batches = list(broker_logs.unpack(given, str(file.parent), KafkaLogsSettings(), True))
    assert all("value" not in batch.schema.names for batch in batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [row for row in rows if row["event_type"] == "client_request"]


FILTER = """
appender.requests.filter.clients.type = RegexFilter
appender.requests.filter.clients.regex = .*"principal":"User:(alice|carol)".*
appender.requests.filter.clients.onMatch = ACCEPT
appender.requests.filter.clients.onMismatch = DENY
"""


def test_the_log_is_switched_on_and_off_while_the_broker_runs(tmp_path: Path) -> None:
    try:
        broker = LoggingKafka(tmp_path, ["alice", "bob"], level="WARN")
        with (tmp_path / "log4j2.properties").open("a") as config:
            config.write(FILTER)
        broker.start()
    except (Missing, OSError) as error:
        pytest.skip(f"no Kafka broker: {error}")
    logger = "kafka.request.logger"

    def send(count: int) -> None:
        for user in ("alice", "bob"):
            producer = Producer({**broker.client(user), "log_level": 2})
            for _ in range(count):
                producer.produce("orders", b"x")
                producer.flush(20)

    try:
        broker.create_topic("orders")
        send(5)
        broker.log(logger, "DEBUG")
        send(3)
        broker.log(logger, None)
        send(2)
        time.sleep(1)
    finally:
        broker.stop()
    found = [row for row in requests_of(broker.request_log) if row["api"] == "PRODUCE"]
    assert [row["principal"] for row in found] == ["User:alice"] * 3


# -- throttle times --------------------------------------------------------------------------

DEFAULT = None
USERS = ("alice", "bob", "carol", "dave", "erin", "frank")
LIMITS: tuple[tuple[Entity, dict[str, float | None]], ...] = (
    ({"user": "alice", "client-id": "app"}, {"producer_byte_rate": 20_000}),
    ({"user": "alice", "client-id": DEFAULT}, {"producer_byte_rate": 30_000}),
    ({"user": "bob"}, {"producer_byte_rate": 40_000}),
    ({"user": DEFAULT, "client-id": "known"}, {"producer_byte_rate": 25_000}),
    ({"user": DEFAULT, "client-id": DEFAULT}, {"producer_byte_rate": 15_000}),
    ({"user": DEFAULT}, {"consumer_byte_rate": 60_000}),
    ({"client-id": "busy"}, {"request_percentage": 0.3}),
    ({"client-id": DEFAULT}, {"request_percentage": 50}),
    ({"user": "alice"}, {"controller_mutation_rate": 1}),
)
"""Every type and each of the eight levels."""
LEVELS = {
    "user_client",
    "user_default_client",
    "user",
    "default_user_client",
    "default_user_default_client",
    "default_user",
    "client",
    "default_client",
}
PRODUCERS = (
    # user, client, bytes per s, bytes of a message, topic, further options
    ("alice", "app", 200_000, 2000, "orders", {}),
    ("alice", "other", 36_000, 2000, "orders", {}),
    ("bob", "one", 15_000, 150, "payments", {}),
    ("bob", "two", 20_000, 2000, "orders", {"acks": -1}),
    ("carol", "known", 250_000, 2000, "payments", {}),
    ("carol", "x", 18_000, 2000, "orders", {}),
    ("dave", "zero", 30_000, 2000, "payments", {"acks": 0}),
    ("frank", "busy", 20_000, 50, "payments", {}),
)
FORWARDED = "CREATE_TOPICS"
"""The broker answers the throttle time of the controller, which has the request in a line of its
own."""
MS = 3
"""Times of the log and of the charge may lie so far apart."""


class Change(NamedTuple):
    """A change of a limit, between these times (ms)."""

    begin_ms: float
    end_ms: float


class Day(NamedTuple):
    settings: Settings
    changes: list[Change]


@pytest.fixture
def cluster(
    tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[LoggingKafka, LoggingKafka]]:
    """Two brokers; the parameter is the layout of times in their logs."""
    made: list[LoggingKafka] = []
    try:
        for name in ("1", "2"):
            made.append(LoggingKafka(tmp_path / name, USERS, joins=next(iter(made), None)))
            config = tmp_path / name / "log4j2.properties"
            config.write_text(config.read_text().replace("[%d]", f"[{request.param}]"))
            made[-1].start()
        yield made[0], made[1]
    except (Missing, OSError) as error:
        pytest.skip(f"no Kafka brokers: {error}")
    finally:
        for broker in reversed(made):
            broker.stop()


OF_THE_LOG = ("order within milliseconds", "edge of a sample")
"""Differences that grow with the load of the machine: the log has whole milliseconds."""
MILLISECONDS, MICROSECONDS = "%d", "%d{DEFAULT_MICROS}"


@pytest.mark.parametrize(
    ("seconds", "apart", "cluster"),
    [
        pytest.param(20, OF_THE_LOG, MILLISECONDS, id="short"),
        pytest.param(300, (), MICROSECONDS, marks=pytest.mark.slow, id="five-minutes"),
    ],
    indirect=["cluster"],
)
def test_whom_quotas_throttle(
    seconds: int,
    apart: tuple[str, ...],
    cluster: tuple[LoggingKafka, LoggingKafka],
    tmp_path: Path,
    spark: SparkSession,
    make_settings: Callable[..., Settings],
) -> None:
    day = lived(seconds, cluster, tmp_path / "logs", make_settings)
    assert run(day.settings, available_now=True, drain=True) == 0
    tables = backlog_views.stored(
        day.settings, ["client_quota_verdicts", "client_quota_stats", "client_usage", "quarantine"]
    )
    verdicts = tables["client_quota_verdicts"]
    assert tables["quarantine"] == []
    assert {row["broker"] for row in verdicts} == {"1", "2"}
    assert {row["bound_level"] for row in verdicts if row["bound"]} == LEVELS
    throttled = [row for row in verdicts if row["throttle_ms"]]
    assert {row["quota_type"] for row in throttled} >= {"produce", "fetch", "controller_mutation"}
    topics = {row["topic"] for row in tables["client_usage"] if row["api"] == "FETCH"}
    assert topics <= {"history", "__cluster_metadata", None}  # names, not ids
    differences = Differences(verdicts, day.changes)
    reasons = differences.named()
    print(sum(reasons.values()), "of", len(verdicts), reasons)
    assert differences.unexplained() == []
    judged = [row for row in verdicts if not is_forwarded(row)]
    differ = sum(differs(row) for row in judged) - sum(reasons[name] for name in apart)
    assert differ <= 0.02 * len(judged), (differ, len(judged), reasons)
    assert differences.in_throttle_time() == []
    assert_reconciled(day.settings, ["agreeing", *([] if apart else ["throttle_ms"])])


def assert_reconciled(settings: Settings, kinds: Sequence[str]) -> None:
    """What brokers answered is what was computed, but for what is explained; a limit that was changed
    is no longer that of the file."""
    rows = one_round(settings).rows
    (limit,) = [row for row in rows if row["broker"] == "*" and row["reason"] is None]
    shown = ("user", "measure", "broker_value", "weir_value")
    assert [limit[name] for name in shown] == ["bob", "producer_byte_rate", 20_000, 40_000]
    for kind in kinds:
        found = [r for r in rows if r["measure"].endswith(kind) and r["reason"] is None]
        assert {row["broker"] for row in found} == {"1", "2"}
        beyond = sum(max(abs(row["difference"]) - row["bound"], 0) for row in found)
        total = sum(row["broker_value"] for row in found)
        print(kind, total, sum(row["weir_value"] for row in found), beyond)
        assert beyond <= 0.02 * total


def lived(
    seconds: int,
    cluster: tuple[LoggingKafka, LoggingKafka],
    logs: Path,
    make_settings: Callable[..., Settings],
) -> Day:
    """Clients of all kinds, a limit that is changed and one that is removed meanwhile."""
    first = cluster[0]
    for topic in ("orders", "payments", "history"):
        first.create_topic(topic, 2)
    batches = Producer({"bootstrap.servers": first.servers, "batch.num.messages": 4})
    for n in range(1200):
        batches.produce("history", bytes(2000), partition=n % 2)
    assert batches.flush(PATIENCE_S) == 0
    settings = make_settings(
        source=[
            {
                "format": "kafka_logs",
                "cluster": "east",
                "path": str(logs),
                "logs": {"broker": "<folder>"},
            },
            {
                "format": "kafka_quotas",
                "cluster": "east",
                "options": {"kafka.bootstrap.servers": first.servers},
            },
        ],
        queries=[["client_quotas"]],
        stats_window_ms=2000,
        policies=[{"scope": "user", "name": "bob", "limits": {"producer_byte_rate": 40_000}}],
        client_quotas={"extra_outputs": ["client_quota_verdicts"]},
    )
    quotas = next(feed for feed in settings.polled)
    poller = sources.poller(settings, quotas)
    changes: list[Change] = []
    with closing(RawClient(first.servers, b"admin")) as admin, closing(poller):

        def limit(entity: Entity, limits: dict[str, float | None]) -> None:
            begin = time.time() * 1000
            assert admin.limit(entity, limits) == ""
            while not poller.last.records:  # brokers learn of it after the answer
                time.sleep(0.02)
                poller.poll_once(int(time.time() * 1000))
            poller.last.records = 0
            changes.append(Change(begin, time.time() * 1000))

        for entity, limits in LIMITS:
            limit(entity, limits)
        time.sleep(1)
        clients = Clients(first, time.monotonic() + seconds, PRODUCERS)
        clients.start()
        time.sleep(0.4 * seconds)
        limit({"user": "bob"}, {"producer_byte_rate": 20_000})
        time.sleep(0.2 * seconds)
        limit({"user": DEFAULT, "client-id": DEFAULT}, {"producer_byte_rate": None})
        clients.join()
    time.sleep(1)  # the last lines
    for name, broker in zip(("1", "2"), cluster, strict=True):
        (logs / name).mkdir(parents=True)
        shutil.copy(broker.request_log, logs / name / "kafka-request.log")
    return Day(settings, changes)


class Clients:
    """Producers, consumers and one that creates topics, each in its thread."""

    def __init__(
        self, broker: LoggingKafka, end: float, producers: Sequence[Any], others: bool = True
    ) -> None:
        self._broker, self._end = broker, end
        reading = (("dave", "reader", 200_000), ("erin", "watcher", 20_000)) if others else ()
        self._threads = [
            *(threading.Thread(target=self._produce, args=each) for each in producers),
            *(threading.Thread(target=self._consume, args=each) for each in reading),
            *([threading.Thread(target=self._create)] if others else []),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _options(self, user: str, client: str) -> dict[str, Any]:
        return {**self._broker.client(user), "client.id": client, "log_level": 2}

    def _produce(
        self, user: str, client: str, rate: int, size: int, topic: str, more: dict[str, Any]
    ) -> None:
        bounded = {"linger.ms": 0, "queue.buffering.max.messages": 20, "acks": 1}
        producer = Producer({**self._options(user, client), **bounded, **more})
        due = time.monotonic()
        while time.monotonic() < self._end:
            with suppress(BufferError):
                producer.produce(topic, bytes(size))
            producer.poll(0)
            due = max(due + size / rate, time.monotonic() - 1)
            time.sleep(max(0.0, due - time.monotonic()))
        producer.flush(20)

    def _consume(self, user: str, client: str, most: int) -> None:
        sizes = ("fetch.message.max.bytes", "fetch.max.bytes", "message.max.bytes")
        options = {"group.id": client, "auto.offset.reset": "earliest"} | dict.fromkeys(sizes, most)
        consumer = Consumer({**self._options(user, client), **options})
        consumer.subscribe(["history"])
        while time.monotonic() < self._end:
            consumer.poll(0.2)
        consumer.close()

    def _create(self) -> None:
        with AdminClient(self._options("alice", "maker")) as admin:
            number = 0
            while time.monotonic() < self._end:
                number += 1
                (made,) = admin.create_topics([NewTopic(f"made-{number}", 3, 1)]).values()
                with suppress(KafkaException):
                    made.result(PATIENCE_S)
                time.sleep(0.3)


def differs(row: Row) -> bool:
    """Whether only one of Weir and the broker throttles."""
    return (row["throttle_ms"] > 0) != ((row["observed_throttle_ms"] or 0) > 0)


def is_forwarded(row: Row) -> bool:
    return bool(row["api"] == FORWARDED and row["quota_type"] != "controller_mutation")


class Differences:
    """Why throttled-or-not differs, request by request."""

    def __init__(self, verdicts: list[Row], changes: list[Change]) -> None:
        self._verdicts, self._changes = verdicts, changes
        self._charged: dict[tuple[Any, ...], list[tuple[int, float]]] = defaultdict(list)
        for row in verdicts:
            if row["charged"] is not None:
                self._charged[self._sensor(row)].append((row["ts_wall_ms"], row["charged"]))
        for charged in self._charged.values():
            charged.sort()

    def named(self) -> Counter[str]:
        return Counter(self._name(row) for row in self._verdicts if differs(row))

    def unexplained(self) -> list[Row]:
        """Rows without a name."""
        return [row for row in self._verdicts if differs(row) and not self._name(row)]

    def in_throttle_time(self) -> list[Row]:
        """Rows of bytes that both throttle, for times that lie further apart than is explained."""
        both = (
            row
            for row in self._verdicts
            if row["quota_type"] in ("produce", "fetch")
            and row["throttle_ms"]
            and row["observed_throttle_ms"]
            and not self._is_changing(row)
        )
        return [
            row
            for row in both
            if not self._of_the_log(
                row, row["bound"] * (1 + row["observed_throttle_ms"] / row["window_ms"])
            )
        ]

    def _is_changing(self, row: Row) -> bool:
        at = row["ts_wall_ms"]
        return any(c.begin_ms - MS <= at <= c.end_ms + MS for c in self._changes)

    @staticmethod
    def _sensor(row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in ("broker", "quota_type", "user", "client"))

    def _name(self, row: Row) -> str:
        observed = row["observed_throttle_ms"] or 0
        if is_forwarded(row):
            return "forwarded"
        if self._is_changing(row):
            return "limit being changed"
        if row["quota_type"] is None:
            return ""
        if row["quota_type"] == "request" and observed:
            # The time of network threads is in the broker's rate alone, as far as no throttle time told.
            measured = row["bound"] * (1 + observed / row["window_ms"])
            if row["rate"] < measured:
                return "network threads"
        return self._of_the_log(row, row["bound"])

    def _of_the_log(self, row: Row, rate: float) -> str:
        """Why the broker's rate may be this one, for all that a log with milliseconds tells; empty if
        it may not."""
        beyond = abs(row["rate"] - rate) * row["window_ms"] / 1000
        near = self._sum(row, MS)
        if beyond <= near:
            return "order within milliseconds"
        # A sample that a request opens or not, and one that has just expired or not.
        return "edge of a sample" if beyond <= near + self._largest_sample(row) else ""

    def _between(self, row: Row, begin_ms: int, end_ms: int) -> list[tuple[int, float]]:
        """Charges of the row's sensor between two times after the row's, both included."""
        at, charged = row["ts_wall_ms"], self._charged[self._sensor(row)]
        first = bisect_left(charged, (at + begin_ms,))
        return charged[first : bisect_left(charged, (at + end_ms + 1,))]

    def _sum(self, row: Row, ms: int) -> float:
        return sum(value for _, value in self._between(row, -ms, ms))

    def _largest_sample(self, row: Row) -> float:
        """Most that the sensor was charged in a sample of the request's rate."""
        at, samples = row["ts_wall_ms"], defaultdict[int, float](float)
        for when, value in self._between(row, -12_000 - MS, 0):
            for first in ((at - when) // 500, (at - when) // 500 - 1):
                samples[first] += value
        return max(samples.values(), default=0.0)


# -- rates -----------------------------------------------------------------------------------

SAMPLES, WINDOW_MS = 2, 5000
"""Of the broker's rates, each of a second, so that a rate is of a short part of a window."""
STEADY: Sequence[Any] = (
    ("alice", "app", 60_000, 2000, "orders", {}),  # is held at her limit
    ("bob", "one", 40_000, 2000, "orders", {}),
    ("bob", "two", 10_000, 500, "orders", {}),  # shares the limit of bob
)
BOUNDS = {"alice": 30_000.0, "bob": 1e9}


def test_measured_rates_are_those_of_the_requests(
    tmp_path: Path, spark: SparkSession, make_settings: Callable[..., Settings]
) -> None:
    records = tmp_path / "records"
    properties = {
        "quota.window.num": SAMPLES,
        "metric.reporters": "weir.kafka.ClientQuotaReporter",
        "weir.directory": records,
        "weir.file.ms": 500,
        "weir.interval.ms": 250,
        "weir.cluster": "east",
    }

    def made() -> LoggingKafka:
        reporter = feeds.built("kafka", "*.jar", feeds.KAFKA_VERSION, feeds.KAFKA_VERSION)
        return LoggingKafka(tmp_path / "broker", USERS, properties=properties, plugins=[reporter])

    with serving(made, "Kafka broker with the reporter") as broker:
        broker.create_topic("orders", 2)
        with closing(RawClient(broker.servers, b"admin")) as admin:
            for user, bound in BOUNDS.items():
                assert admin.limit({"user": user}, {"producer_byte_rate": bound}) == ""
        time.sleep(1)
        clients = Clients(broker, time.monotonic() + 4.4 * WINDOW_MS / 1000, STEADY, others=False)
        clients.start()
        clients.join()
        time.sleep(1)  # the last lines
    of_log = [{**row, "cluster": "east", "broker": "1"} for row in requests_of(broker.request_log)]
    ends = {"source_partition", "source_offset"}
    lines = [
        json.dumps({k: v for k, v in row.items() if v is not None and k not in ends})
        for row in of_log
    ]
    (records / "requests.ndjson").write_text("\n".join(lines))
    settings = make_settings(
        source={"format": "files", "path": str(records)},
        queries=[["client_quotas"]],
        stats_window_ms=WINDOW_MS,
        policies=[
            {"scope": "user", "name": user, "limits": {"producer_byte_rate": bound}}
            for user, bound in BOUNDS.items()
        ],
        client_quotas={"quota_window_num": SAMPLES},
    )
    assert run(settings, available_now=True, drain=True) == 0
    assert backlog_views.stored(settings, ["quarantine"])["quarantine"] == []
    rows = [r for r in one_round(settings).rows if r["measure"].startswith("produce_rate_")]
    compared = [row for row in rows if row["reason"] is None]
    assert len({row["window_start_ms"] for row in compared}) >= 2
    assert {row["user"] for row in compared} == set(BOUNDS)
    assert [row for row in compared if abs(row["difference"]) > row["bound"]] == []
    # A client differs by no more than its rate changed from second to second: in the windows after
    # that in which it began by little, where the machine let it be steady.
    of_bob = [r for r in compared if (r["user"], r["measure"]) == ("bob", "produce_rate_avg")]
    _, *later = sorted(of_bob, key=lambda row: row["window_start_ms"])
    assert later
    for row in later:
        begin = row["window_start_ms"] - SAMPLES * 1000
        sent = Counter[int]()
        for each in of_log:
            if each["principal"] == "User:bob" and each["api"] == "PRODUCE":
                sent[(each["ts_wall_ms"] - begin) // 1000] += each["charged_bytes"]
        seconds = [sent[n] for n in range((WINDOW_MS + SAMPLES * 1000) // 1000)]
        changed = max(seconds) - min(seconds)
        assert abs(row["difference"]) <= 0.1 * row["broker_value"] + changed, (row, seconds)
