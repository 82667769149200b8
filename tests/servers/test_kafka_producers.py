"""Producer states of a real broker: the ids that producers bring, held against its own log."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourcePatternType,
    ResourceType,
)
from deltalake import DeltaTable

from app import sources
from app.config.kafka_producers import KafkaProducersSettings
from app.errors import UserError
from app.run.service import run
from app.setup.doctor import first_poll
from app.sources.kafka.dump_log import Dump, DumpedBatch
from app.sources.kafka.producers_poll import ProducerPoller
from app.tables.small_files import path_in
from tests.servers.kafka_groups import now_ms
from tests.support.polled import lines
from tests.support.servers import producer_ids
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.logging_kafka import LoggingKafka
from tests.support.servers.process import serving
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.kafka
USERS = ("alice", "bob", "carol")
PROPERTIES = {
    "producer.id.expiration.check.interval.ms": 200,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
Row = dict[str, Any]
Make = Callable[..., "Settings"]


def poller_of(settings: Settings, say: Callable[[str], None] | None = None) -> ProducerPoller:
    poller = sources.poller(settings, settings.feed, say)
    assert isinstance(poller, ProducerPoller)
    return poller


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LoggingKafka]:
    """A broker with users, a request log, ACLs, and a quick look at which ids are too old."""
    folder = tmp_path_factory.mktemp("broker")
    kafka = partial(LoggingKafka, folder, USERS, properties=PROPERTIES)
    with serving(kafka, "Kafka broker") as made:
        send(made, "alice", "first", made_topic(made))  # the coordinator of ids is ready now
        yield made


@pytest.fixture
def topic(broker: LoggingKafka) -> str:
    """A topic of two partitions of this test's own."""
    return made_topic(broker)


@pytest.fixture
def settings(broker: LoggingKafka, topic: str, make_settings: Make) -> Make:
    """Settings of a run that polls the topic of the test; keywords: keys of `producers`."""

    def make(more: Row | None = None, **keys: Any) -> Settings:
        producers = {
            "cluster": "east",
            "topics": [f"^{topic}.*"],
            "timeout_ms": 20_000,
            **keys,
        }
        return make_settings(
            source={
                "format": "kafka_producers",
                "producers": producers,
                "options": {"kafka.bootstrap.servers": broker.servers},
            },
            **(more or {}),
        )

    return make


def made_topic(broker: Kafka, suffix: str = "", name: str = "") -> str:
    name = name or f"orders-{uuid4().hex[:8]}{suffix}"
    broker.create_topic(name, 2)
    return name


def send(broker: LoggingKafka, user: str, client: str, topic: str, messages: int = 4) -> None:
    """One life of an idempotent producer: messages to both partitions, then it ends."""
    failed: list[Any] = []
    producer = Producer(
        {
            **broker.client(user),
            "enable.idempotence": True,
            "client.id": client,
            "log_level": 0,
        }
    )
    for n in range(messages):
        producer.produce(
            topic,
            b"x",
            partition=n % 2,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(30) == 0 and not failed


def pay(broker: LoggingKafka, user: str, topic: str) -> None:
    """A transaction: each start of the producer has the same id and the next epoch."""
    producer = Producer(
        {
            **broker.client(user),
            "transactional.id": f"pay-{topic}",
            "client.id": "pay",
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"x", partition=0)
    producer.commit_transaction(30)


def dumped(broker: LoggingKafka, topic: str) -> dict[tuple[str, int, int, int], list[DumpedBatch]]:
    """By topic, partition, producer id and epoch the batches that kafka-dump-log shows."""
    dump, found = Dump(), {}
    for line in broker.dump(broker.segments(topic)).encode().splitlines():
        one = dump.parse(line)
        if one is not None and one.producer_id >= 0:
            epoch = re.search(rb"producerEpoch: (\d+)", line)
            assert epoch is not None and one.topic is not None and one.partition is not None
            key = one.topic, one.partition, one.producer_id, int(epoch[1])
            found.setdefault(key, []).append(one)
    return found


def last_times(broker: LoggingKafka, topic: str) -> dict[tuple[str, int, int], int]:
    """By topic, partition and producer id the latest time in the log, marks of transactions too."""
    found: dict[tuple[str, int, int], int] = {}
    partition = -1
    for line in broker.dump(broker.segments(topic)).splitlines():
        if line.startswith("Dumping "):
            partition = int(Path(line).parent.name.rpartition("-")[2])
        at = re.search(r"producerId: (\d+) .*CreateTime: (\d+)", line)
        if at is not None:
            key = topic, partition, int(at[1])
            found[key] = max(found.get(key, 0), int(at[2]))
    return found


def table(config: Settings, name: str) -> list[Row]:
    rows: list[Row] = DeltaTable(path_in(config.location, name)).to_pyarrow_table().to_pylist()
    return rows


def live(config: Settings) -> dict[tuple[str, str], tuple[int, int]]:
    """By topic and user the ids and states of the newest rows, those without any left out."""
    newest = {
        (r["topic"], r["user"]): (r["live_ids"], r["states"])
        for r in sorted(table(config, "producer_id_live"), key=lambda r: r["number"])
    }
    return {key: counts for key, counts in newest.items() if counts != (0, 0)}


def polled(poller: ProducerPoller) -> list[Row]:
    """The records of one poll."""
    return lines(poller.poll_once(now_ms()))


def poll(config: Settings) -> list[Row]:
    """The records of a poll between two runs, which the next one reads."""
    with closing(poller_of(config)) as poller:
        return polled(poller)


def asked_again(poller: ProducerPoller, config: Settings) -> dict[tuple[str, str], tuple[int, int]]:
    """What is live after one more poll."""
    polled(poller)
    return live(config)


def test_ids_of_producers_that_restart_in_a_loop_are_those_of_the_log(
    broker: LoggingKafka, topic: str, settings: Make, spark: SparkSession
) -> None:
    config = settings(
        {
            "idle_advance_ms": 200,
            "allowed_lateness_ms": 100,
            "shards": 2,
            "policies": [{"scope": "user", "name": "alice", "limits": {"producer_ids_rate": 0.1}}],
        },
        request_logs=str(broker.request_log),
    )
    for client in ("old-1", "old-2"):
        send(broker, "alice", client, topic)
    pay(broker, "carol", topic)
    before = dumped(broker, topic)
    assert poll(config) == []  # what is there at the first poll is not new

    late = made_topic(broker, name=f"{topic}-late")
    for n in range(6):
        send(broker, "alice", f"loop-{n % 2}", topic)
        send(broker, "bob", "job", late, messages=1)
    assert run(config, available_now=True) == 0
    send(broker, "alice", "loop-2", topic)
    pay(broker, "carol", topic)
    assert run(config, available_now=True) == 0
    time.sleep(0.5)
    poll(config)  # without news: at the next one the clocks go on to this one
    assert run(config, available_now=True) == 0

    log = {**dumped(broker, topic), **dumped(broker, late)}
    expected = {key: batches for key, batches in log.items() if key not in before}
    batches = [r for r in table(config, "events") if r["event_type"] == "produce_batch"]
    assert Counter((r["topic"], r["partition"], r["producer_id"]) for r in batches) == Counter(
        key[:3] for key in expected
    )
    assert len(expected) == 2 * 6 + 6 + 2 + 1
    last_ms = last_times(broker, topic) | last_times(broker, late)
    last_sequence = {
        key[:3]: max(one.base_sequence + one.messages - 1 for one in found)
        for key, found in expected.items()
    }
    for row in batches:
        key = row["topic"], row["partition"], row["producer_id"]
        assert (row["broker"], row["publish_time_ms"], row["ts_wall_ms"], row["sequence_id"]) == (
            "1",
            last_ms[key],
            last_ms[key],
            last_sequence[key],
        )
    assert {(r["principal"], r["client_id"]) for r in batches} == {
        *(("User:alice", f"loop-{n}") for n in range(3)),
        ("User:bob", "job"),
        ("User:carol", "pay"),
    }
    assert table(config, "quarantine") == []

    ids = {(key[0], key[2]) for key in log}
    owner = {r["producer_id"]: r["principal"][5:] for r in batches}
    old = {pid: "carol" if epoch or pid in owner else "alice" for _, _, pid, epoch in before}
    of = {pid: owner.get(pid, old.get(pid)) for _, pid in ids}
    states = {key[:3] for key in log}
    assert live(config) == {
        (name, user): (
            sum(t == name and of[pid] == user for t, pid in ids),
            sum(t == name and of[pid] == user for t, _, pid in states),
        )
        for name, user in {(t, of[pid]) for t, pid in ids}
    }
    decided = {
        (r["producer_id"], r["user"], r["client_id"]): r["verdict"]
        for r in table(config, "producer_id_decisions")
    }
    assert {key[:2] for key in decided} == set(owner.items())
    # Ten windows' tokens and one overshoot: 0.1 per window allows alice two ids.
    alice = [verdict for (_, user, _), verdict in decided.items() if user == "alice"]
    assert Counter(alice)["counted"] == 2 and set(alice) == {"counted", "rejected"}


def test_owners_by_rule_and_by_acl(
    broker: LoggingKafka, topic: str, settings: Make, spark: SparkSession
) -> None:
    ruled, granted = (made_topic(broker, name=f"{topic}-{kind}") for kind in ("ruled", "granted"))
    with AdminClient({"bootstrap.servers": broker.servers}) as admin:
        acl = AclBinding(
            ResourceType.TOPIC,
            granted,
            ResourcePatternType.LITERAL,
            "User:carol",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([acl])[acl].result(PATIENCE_S)
    ruling = [{"topic": "^.*-ruled", "principal": "User:dave"}]
    config = settings({}, owners=ruling, acls=True)
    said: list[str] = []
    with closing(poller_of(config, said.append)) as poller:
        assert polled(poller) == [] and said == []
        for name in (topic, ruled, granted):
            send(broker, "carol", "app", name, messages=1)
        found = polled(poller)
    assert {(r["topic"], r["principal"]) for r in found} == {
        (topic, "unknown"),
        (ruled, "User:dave"),
        (granted, "User:carol"),
    }
    assert poller.last.problems == []
    assert said == [
        "kafka_producers east: 1 of 3 live producer ids have no owner and are counted as unknown; "
        "source.producers.owners, acls and request_logs name owners"
    ]
    assert live(config) == {
        (topic, "unknown"): (1, 1),
        (ruled, "dave"): (1, 1),
        (granted, "carol"): (1, 1),
    }
    assert first_poll(config, config.feed) == (
        "6 partitions, 3 live producer ids, 1 of them without an owner"
    )


def test_ids_that_expire_leave_and_may_come_again(
    broker: LoggingKafka, topic: str, settings: Make, spark: SparkSession
) -> None:
    def expire_after(ms: int) -> None:
        entry = ConfigEntry(
            "producer.id.expiration.ms", str(ms), incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        with AdminClient({"bootstrap.servers": broker.servers}) as admin:
            for future in admin.incremental_alter_configs([resource]).values():
                future.result(PATIENCE_S)

    config = settings()
    with closing(poller_of(config)) as poller:
        assert polled(poller) == []
        producer_ids.produce(broker.servers, topic, 0, [10**9])
        assert [r["producer_id"] for r in polled(poller)] == [10**9]
        assert live(config) == {(topic, "unknown"): (1, 1)}
        expire_after(1000)
        try:
            wait_for(lambda: not asked_again(poller, config))
        finally:
            expire_after(86_400_000)
        producer_ids.produce(broker.servers, topic, 0, [10**9, 10**9 + 1])
        found = [r for r in polled(poller) if r["event_type"] == "produce_batch"]
        assert [r["producer_id"] for r in found] == [10**9, 10**9 + 1]
        assert live(config) == {(topic, "unknown"): (2, 2)}


def test_a_broker_that_is_away_loses_and_repeats_nothing(
    broker: LoggingKafka, topic: str, settings: Make, spark: SparkSession
) -> None:
    config = settings(timeout_ms=2000, interval_ms=2000)
    poller = poller_of(config, lambda _: None)
    assert polled(poller) == []
    send(broker, "alice", "a", topic)
    assert len(polled(poller)) == 2
    send(broker, "bob", "b", topic)
    broker.stop()
    try:
        assert polled(poller) == [] and not poller.last.answered
        assert poller.last.skipped == 2 and poller.last.problems
        poller.close()
        poller = poller_of(config, lambda _: None)  # Weir starts again meanwhile
        assert polled(poller) == [] and not poller.last.answered
    finally:
        broker.start()
    send(broker, "bob", "c", topic)
    found: list[Row] = []
    while len(found) < 4:
        found += [r for r in polled(poller) if r["event_type"] == "produce_batch"]
        assert not poller.last.gone
    assert len({(r["partition"], r["producer_id"]) for r in found}) == len(found) == 4
    assert live(config) == {(topic, "unknown"): (3, 6)}
    poller.close()


def test_a_cluster_that_asks_for_tls_and_a_login(
    kafka: Kafka, make_settings: Make, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = made_topic(kafka)
    kafka.send(name, [{"value": b"x", "partition": 0}])

    def config(password: str) -> Settings:
        monkeypatch.setenv(
            "KAFKA_JAAS",
            (
                "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{USER}" password="{password}";'
            ),
        )
        return make_settings(
            source={
                "format": "kafka_producers",
                "producers": {"topics": name, "timeout_ms": 20_000},
                "options": {
                    "kafka.bootstrap.servers": kafka.secure_servers,
                    "kafka.security.protocol": "SASL_SSL",
                    "kafka.sasl.mechanism": MECHANISM,
                    "kafka.sasl.jaas.config": "${env:KAFKA_JAAS}",
                    "kafka.ssl.truststore.type": "PEM",
                    "kafka.ssl.truststore.location": str(kafka.certificate),
                },
            }
        )

    given = config(PASSWORD)
    sources.check(given.feed, given.location)
    with closing(poller_of(given)) as poller:
        polled(poller)
        assert (poller.last.polled, poller.last.problems) == (2, [])
    assert live(given) == {(name, "unknown"): (1, 1)}
    wrong = config(f"not-{PASSWORD}")
    with pytest.raises(UserError, match="uthentication") as refused:
        sources.check(wrong.feed, wrong.location)
    with closing(poller_of(wrong)) as poller:
        assert polled(poller) == [] and not poller.last.answered
    with pytest.raises(UserError, match="uthentication"):
        first_poll(wrong, wrong.feed)
    said = str(refused.value) + poller.last.text()
    assert "uthentication" in poller.last.text() and PASSWORD not in said


@pytest.mark.slow
def test_the_heap_of_a_state(broker: LoggingKafka, topic: str) -> None:
    """The default of `bytes_per_state` by the broker's own heap, for ids with five batches."""
    if shutil.which("jcmd") is None:
        pytest.skip("no jcmd")

    def heap() -> Counter[str]:
        printed = subprocess.run(
            ["jcmd", str(broker.pid), "GC.class_histogram"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        rows = re.findall(r"^\s*\d+:\s+\d+\s+(\d+)\s+(\S+)", printed, re.MULTILINE)
        return Counter({name: int(size) for size, name in rows})

    log = "org.apache.kafka.storage.internals.log."
    classes = (
        f"{log}ProducerStateEntry",
        f"{log}BatchMetadata",
        "java.util.ArrayDeque",
        "[Ljava.lang.Object;",
        "java.util.HashMap$Node",
        "java.lang.Long",
        "[Ljava.util.HashMap$Node;",
    )
    count = 4000
    producer_ids.produce(broker.servers, topic, 0, [1])
    before = heap()
    for sequence in range(6):
        producer_ids.produce(broker.servers, topic, 0, range(10**10, 10**10 + count), sequence)
    after = heap()
    each = sum(after[name] - before[name] for name in classes) / count
    assert abs(each - KafkaProducersSettings().bytes_per_state) < 8
    assert (after[classes[1]] - before[classes[1]]) // count == 5 * 40
