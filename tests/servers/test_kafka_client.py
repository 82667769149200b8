"""The Java client against real brokers, one of which hangs, and against sockets that say nothing."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from app.config.kafka_groups import KafkaGroupsSettings
from app.errors import UserError
from app.jars import KAFKA_CLIENT
from app.sources.kafka import kafka_client
from app.sources.kafka.groups_client import GroupsClient
from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.offsets import LogPosition, Place
from app.sources.kafka.producers_client import ProducersClient
from app.sources.polling import Unanswered
from tests.servers.kafka_groups import AGED_MS, Cluster, now_ms, records
from tests.support.polled import of_kind
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import serving
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
PARTITIONS = 4


class Pair:
    """A cluster of two brokers, with a topic whose partitions they lead in turn, and a group."""

    def __init__(self, folder: Path) -> None:
        # Whoever hangs stays a leader.
        lasting = {"broker.session.timeout.ms": 600_000}
        self.first = Kafka(folder / "first", lasting)
        self.second = Kafka(folder / "second", lasting, joins=self.first)
        self.topic = f"pair-{uuid4().hex[:8]}"

    def start(self) -> None:
        """Start both; the coordinator of all groups is the first."""
        self.first.start()
        cluster = Cluster(self.first)
        self.first.create_topic(cluster.topic)
        cluster.commit("coordinated", 0)
        self.second.start()
        with AdminClient({"bootstrap.servers": self.first.servers}) as admin:
            led = [[1 + n % 2] for n in range(PARTITIONS)]

            def created() -> bool:
                new = NewTopic(self.topic, PARTITIONS, replica_assignment=led)
                return admin.create_topics([new])[self.topic].exception(20) is None

            wait_for(created)
        for n in range(PARTITIONS):
            self.first.send(
                self.topic,
                [{"value": b"x", "partition": n, "timestamp": now_ms() - AGED_MS}] * 10,
            )
        cluster.topic = self.topic
        cluster.commit("g", *range(PARTITIONS))
        self.group = cluster.group("g")

    def stop(self) -> None:
        self.second.stop()
        self.first.stop()

    @contextmanager
    def hanging(self) -> Iterator[None]:
        """The second broker takes requests and answers none."""
        os.kill(self.second.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.second.pid, signal.SIGCONT)

    def settings(self, **keys: Any) -> KafkaGroupsSettings:
        return KafkaGroupsSettings.model_validate(
            {
                "cluster": "east",
                "options": {"bootstrap.servers": self.first.servers},
                "groups": [self.group],
                "topics": [self.topic],
                "timeout_ms": 2000,
                "interval_ms": 6000,
                **keys,
            }
        )


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with serving(lambda: Pair(tmp_path_factory.mktemp("pair")), "Kafka brokers") as made:
        yield made


def test_a_broker_that_hangs_costs_its_own_partitions(
    pair: Pair, tmp_path: Path, spark: SparkSession
) -> None:
    poller = GroupPoller(pair.settings(), tmp_path)
    with closing(poller):
        first: list[dict[str, Any]] = []

        def is_whole() -> bool:  # on a busy machine the first answers take longer than timeout_ms
            first[:] = records(poller.poll_once(now_ms()))
            return not poller.last.problems

        wait_for(is_whole)
        states = of_kind(first, "cursor_state", "partition", "publish_time_ms")
        assert [(n, at is not None) for n, at in states] == [(n, True) for n in range(PARTITIONS)]
        with pair.hanging():
            began = time.monotonic()
            second = records(poller.poll_once(now_ms()))
            assert time.monotonic() - began < 7
        assert [n for (n,) in of_kind(second, "ledger_state", "partition")] == [0, 2]
        assert [n for (n,) in of_kind(second, "cursor_state", "partition")] == [0, 2]
        assert poller.last.skipped == 2
        about = {text.partition(":")[0] for text in poller.last.problems}
        lists = {"the list of groups", "the list of transactions"}  # all brokers are asked for them
        assert about == lists | {f"partition {pair.topic}/{n}" for n in (1, 3)}
        wait_for(lambda: bool(records(poller.poll_once(now_ms()))) and not poller.last.problems)
        assert poller.last.skipped == 0


def test_a_leader_that_hangs_costs_the_producers_of_its_partitions(
    pair: Pair, spark: SparkSession
) -> None:
    client = ProducersClient({"bootstrap.servers": pair.first.servers}, 1500)
    places = [Place(pair.topic, n) for n in range(PARTITIONS)]
    with closing(client):
        problems: list[str] = []
        found = client.states(places, time.monotonic() + 5, problems)
        assert ([len(found[place]) for place in places], problems) == ([1] * PARTITIONS, [])
        with pair.hanging():
            began = time.monotonic()
            some = client.states(places, time.monotonic() + 5, problems)
            assert time.monotonic() - began < 7
        assert some == {place: found[place] for place in places[::2]}
        assert len(problems) == 2


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that accepts connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_one_of_the_servers_that_says_nothing_costs_no_poll(
    kafka: Kafka, mute: str, tmp_path: Path, spark: SparkSession
) -> None:
    cluster = Cluster(kafka)
    with cluster.admin:
        kafka.create_topic(cluster.topic, 2)
        cluster.commit("g", 0, 0)
        for n in range(4):  # the order of the servers is by chance
            options = {"bootstrap.servers": f"{mute},{kafka.servers}"}
            settings = cluster.settings(options=options, timeout_ms=3000)
            with closing(GroupPoller(settings, tmp_path / str(n))) as poller:
                assert len(of_kind(records(poller.poll_once(now_ms())), "ledger_state")) == 2


def test_a_server_that_says_nothing_is_awaited_for_its_time(mute: str, spark: SparkSession) -> None:
    with closing(KafkaClient({"bootstrap.servers": mute}, 500)) as client:
        began = time.monotonic()
        with pytest.raises(Unanswered, match=r"the list of topics: .*: does not answer"):
            client.names(time.monotonic() + 60)
        assert 0.4 < time.monotonic() - began < 2
        with pytest.raises(Unanswered, match="no time left"):
            client.names(time.monotonic())


@pytest.fixture
def ancient() -> Iterator[str]:
    """A broker that has no request but that for the versions of requests, and that as version 0."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer() -> None:
            while server.fileno() >= 0:
                # the client or the test has ended
                with suppress(OSError, struct.error), server.accept()[0] as taken:
                    for _ in range(2):
                        (size,) = struct.unpack(">i", taken.recv(4, socket.MSG_WAITALL))
                        request = taken.recv(size, socket.MSG_WAITALL)
                        _, version, number = struct.unpack(">hhi", request[:8])
                        error = 35 if version else 0  # UNSUPPORTED_VERSION
                        versions = struct.pack(">ihihhh", number, error, 1, 18, 0, 0)
                        taken.sendall(struct.pack(">i", len(versions)) + versions)

        threading.Thread(target=answer, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_of_an_unsupported_release_is_named_with_the_request(
    ancient: str, spark: SparkSession
) -> None:
    with (
        closing(KafkaClient({"bootstrap.servers": ancient}, 2000)) as client,
        pytest.raises(
            Unanswered, match=r"UnsupportedVersionException: .*does not support METADATA"
        ),
    ):
        client.names(time.monotonic() + 20)


def test_records_of_an_open_transaction_are_read_as_blocked(
    kafka: Kafka, spark: SparkSession
) -> None:
    cluster = Cluster(kafka)
    with cluster.admin:
        kafka.create_topic(cluster.topic, 1)
    kafka.send(cluster.topic, [{"value": b"x" * 10, "partition": 0}] * 3)
    producer = Producer({"bootstrap.servers": kafka.servers, "transactional.id": cluster.topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(cluster.topic, b"open", partition=0)
    producer.flush()
    client = GroupsClient(cluster.settings())
    try:
        deadline = time.monotonic() + 20
        answers = client.ask((), (), deadline)
        place = Place(cluster.topic, 0)
        assert answers.logs[place] == (0, 4)
        positions = [LogPosition(place, offset) for offset in (1, 3)]
        found = client.read(positions, answers.logs, deadline, answers.problems)
        assert [
            (one.messages, one.size, one.whole, one.blocked)
            for one in map(found.get, positions)
            if one
        ] == [
            (3, 24, True, True),
            (1, 4, True, True),
        ]
        assert answers.problems == []
    finally:
        client.close()
        producer.abort_transaction(30)


@pytest.mark.parametrize("compression", ["gzip", "lz4", "snappy", "zstd"])
def test_records_of_every_compression_are_read(
    kafka: Kafka, spark: SparkSession, compression: str
) -> None:
    """By the libraries that Spark ships."""
    name = f"{compression}-{uuid4().hex[:8]}"
    kafka.create_topic(name, config={"compression.type": compression})
    kafka.send(name, [{"value": b"x" * 1000, "partition": 0}] * 5)
    with closing(KafkaClient({"bootstrap.servers": kafka.servers}, 10_000)) as client:
        parts = list(client.records([(Place(name, 0), 0, 5)], time.monotonic() + 20, 100))
    assert [size for part in parts for *_, size, _ in part.records] == [1000] * 5
    assert [error for part in parts for error in part.errors] == []


def test_a_missing_jar_is_named_with_the_command_that_fetches_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm: Any = spark._jvm
    properties = jvm.java.lang.System.getProperties()
    compiled = properties.remove("weir.KafkaRequests")
    monkeypatch.setattr(kafka_client, "client_jar", lambda: None)
    try:
        with pytest.raises(UserError) as missing:
            kafka_client.release()
    finally:
        if compiled is not None:
            properties["weir.KafkaRequests"] = compiled
    first, second = str(missing.value).splitlines()
    assert first == "the jar of Kafka's client is missing: org.apache.kafka:kafka-clients:4.4.0"
    assert second.startswith("./spark-submit.sh --prepare fetches it")


def test_the_client_is_of_the_release_that_is_fetched(spark: SparkSession) -> None:
    assert kafka_client.release() == KAFKA_CLIENT.rpartition(":")[2]
    jvm: Any = spark._jvm
    connectors = jvm.org.apache.kafka.common.utils.AppInfoParser.getVersion()
    assert connectors.startswith("3.9.")


BESIDE = """
import sys, time
from app.jvm import driver_jvm
from app.sources.kafka.kafka_client import KafkaClient
client = KafkaClient({"bootstrap.servers": sys.argv[1]}, 5000)
assert sys.argv[2] in client.names(time.monotonic() + 30)
client.close()
print(driver_jvm().java.lang.ProcessHandle.current().pid())
"""


def test_a_process_beside_a_run_uses_its_jvm(kafka: Kafka, spark: SparkSession) -> None:
    """As rounds of `reconcile` do, which inherit the environment of a run under spark-submit."""
    kafka.create_topic(name := f"beside-{uuid4().hex[:8]}")
    gateway: Any = spark.sparkContext._gateway
    done = subprocess.run(
        [sys.executable, "-c", BESIDE, kafka.servers, name],
        env={
            **os.environ,
            "PYSPARK_GATEWAY_PORT": str(gateway.java_parameters.port),
            "PYSPARK_GATEWAY_SECRET": gateway.java_parameters.auth_token,
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    jvm: Any = spark.sparkContext._jvm
    assert int(done.stdout) == jvm.java.lang.ProcessHandle.current().pid()
    assert spark.range(3).count() == 3


def test_a_command_starts_its_own_jvm(kafka: Kafka, tmp_path: Path) -> None:
    kafka.create_topic(name := f"alone-{uuid4().hex[:8]}", 3)
    config = tmp_path / "weir.yaml"
    config.write_text(
        f"warehouse: {tmp_path / 'w'}\nalerts: null\nsource:\n  format: kafka\n"
        f'  options: {{kafka.bootstrap.servers: "{kafka.servers}", subscribe: {name}}}\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "app.main", "validate", "--connect", "--config", str(config)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"topic {name} with 3 partitions and 0 records" in done.stdout
    assert "incubator" not in done.stderr
