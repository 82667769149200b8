"""A day of a Kafka cluster in minutes, with what the three polled feeds see at once."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import confluent_kafka as client
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.servers.kafka_groups import now_ms
from tests.servers.kafka_life import Life
from tests.support.servers import ivy, producer_ids
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.process import free_ports
from tests.support.servers.raw_kafka import Entity
from tests.support.waiting import PATIENCE_S

RELEASE = "4.4.0"
BROKER = {
    "transaction.max.timeout.ms": 3_600_000,
    "transaction.partition.verification.enable": "false",  # it takes batches of any transaction
}
JMX = (
    '<dependency org="io.prometheus.jmx" name="jmx_prometheus_javaagent" rev="1.0.1"'
    ' conf="default->default"/>\n'
)
HEAD = "lowercaseOutputName: true\nrules:\n"
EXAMPLE = """\
- pattern: kafka.server<type=(.+)><>([a-z-]+)-total
  name: kafka_server_$1_$2_total
  type: COUNTER
- pattern: kafka.server<type=(.+)><>([a-z-]+)
  name: kafka_server_$1_$2
  type: GAUGE
"""
"""The rules of the example for Kafka 4 (`kafka-kraft-3_0_0.yml`) that take what quotas measure."""
ODD = ("ingest\x0bv2", "ingest\x0cv3", "a=b,c=d", 'the "quoted" \\ one', "two\nlines")
"""Client ids that brokers take."""
LIMITS: tuple[tuple[Entity, dict[str, float | None]], ...] = (
    ({"client-id": "<default>"}, {"consumer_byte_rate": 777}),
    ({"user": "<default>"}, {"producer_byte_rate": 1000}),
    ({"client-id": None}, {"producer_byte_rate": 5e6, "consumer_byte_rate": 5e7}),
    ({"client-id": "scan"}, {"consumer_byte_rate": 50_000}),
    ({"client-id": "busy"}, {"request_percentage": 0.1}),
    ({"user": "etl"}, {"producer_byte_rate": 10_000}),
    ({"user": USER}, {"consumer_byte_rate": 400_000}),
)
GHOSTS = {"hung": 10**9, "trimmed": 10**9 + 1}
"""By topic the producer id of a transaction that no coordinator knows."""


def exporter(folder: Path) -> tuple[str, Path, str]:
    """An option of a JVM with an exporter, the file of its rules, which it follows, and its address."""
    jar = next(ivy.jars("jmx-exporter-1.0.1", JMX).glob("*.jar"))
    rules, (port,) = folder / "rules.yml", free_ports(1)
    rules.write_text(HEAD + EXAMPLE, "utf-8")
    return f"-javaagent:{jar}={port}:{rules}", rules, f"http://127.0.0.1:{port}/metrics"


class Day(Life):
    """A cluster in which everything happens at once; `alerts` are by rule, whom and where."""

    def __init__(self, kafka: Kafka, folder: Path, rules: Path) -> None:
        """`rules` are those of the exporter."""
        super().__init__(kafka, folder)
        self._rules = rules
        self.polls = folder / "warehouse" / "_weir" / "polls" / "kafka_groups.east" / "polls"
        self._stack = ExitStack()
        self._over = threading.Event()
        self._failed: list[str] = []
        self.unlimited_ms = 0
        """When the last limit of request time was removed."""

    def settings(self, name: str, more: Mapping[str, Any], secure: bool = False) -> dict[str, Any]:
        """Of a client."""
        login = {
            "bootstrap.servers": self.kafka.secure_servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": "etl",
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self.kafka.certificate),
            "ssl.endpoint.identification.algorithm": "none",
        }
        plain = {"bootstrap.servers": self.kafka.servers}
        return {**(login if secure else plain), "client.id": name, "log_level": 0, **more}

    def limit(self, entity: Entity, **limits: float | None) -> None:
        assert self.kafka.limit(entity, limits) == ""

    def begin(self) -> None:
        """What stands when Weir is started."""
        for name in (
            *("orders", "quiet", "eos", "left", "kept", "night", "loop", "moved", "bulk"),
            *GHOSTS,
        ):
            self.topic(name)
        for entity, limits in LIMITS:
            self.limit(entity, **limits)
        for value in (-1, 0, math.nan):  # earlier brokers took them
            with pytest.raises(AssertionError, match="must be"):
                self.limit({"client-id": "free"}, producer_byte_rate=value)
        secret = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        made = UserScramCredentialUpsertion("etl", secret, password=PASSWORD.encode())
        self.admin.alter_user_scram_credentials([made])["etl"].result(PATIENCE_S)
        # The marker of its only transaction is removed before the first poll.
        self.transaction("quiet", 3, "commit")
        self.delete_below("quiet", 4)
        del self.starts["quiet", 0]
        self.commit("calm", "quiet", 3)
        for topic, pid in GHOSTS.items():
            self.send(topic, 5)
            producer_ids.produce(
                self.kafka.servers, topic, 0, [pid], 0, now_ms() - 1_200_000, f"ghost-{pid}"
            )
            self.send(topic, 10)
            self.expect("hanging-transaction", str(pid), topic)
        self.commit("waits", "hung", 5)
        self.commit("rc", "trimmed", 5)
        self.expect("group-open-transaction", "waits", "hung")
        self.expect("group-open-transaction", "rc", "trimmed")  # until retention has taken it
        for topic, offset in (("eos", 5), ("night", 10), ("moved", 20), ("loop", 3)):
            self.send(topic, 30)
            self.commit(f"{topic}-g", topic, offset)
        self.kafka.send("bulk", [{"value": b"x" * 10_000}] * 500)
        producer = Producer(
            self.settings("eos", {"transactional.id": "eos-1", "transaction.timeout.ms": 3_000_000})
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        member = self._stack.enter_context(
            closing(client.Consumer(self.settings("eos", {"group.id": "eos-g"})))
        )
        producer.send_offsets_to_transaction(
            [TopicPartition("eos", 0, 25)], member.consumer_group_metadata(), 30
        )
        self._stack.callback(producer.abort_transaction, 30)
        self.expect("group-open-transaction", "eos-g", "eos")
        self.expect("client-throttled", "scan", "fetch")
        self.expect("client-throttled", "busy", "request")
        self.expect("client-throttled", "etl", "produce")

    def live(self) -> None:
        """Clients that work until the end of the day."""
        for odd in ODD:
            self._work(self._produces, odd, "orders", 100, 5)
        for name in ("etl-load", "etl-scan"):
            self._work(self._produces, name, "orders", 1000, 20, True)
        self._work(self._produces, "busy", "orders", 10, 1000)
        for topic in ("left", "kept", "loop", "eos", "night"):
            self._work(self._produces, "app", topic, 100, 2)
        for work in (self._scan, self._leave, self._loop_steady, self._loop_crash):
            self._work(work)

    def rest(self) -> None:
        """The clients stop."""
        self._over.set()
        self._stack.close()
        assert not self._failed, self._failed

    def _work(self, work: Callable[..., None], *given: object) -> None:
        def run() -> None:
            try:
                work(*given)
            except Exception as error:  # noqa: BLE001  it is raised again at the end
                self._failed.append(f"{work.__name__}{given}: {error!r}")

        thread = threading.Thread(target=run)
        thread.start()
        self._stack.callback(thread.join, 60)

    def _produces(self, name: str, topic: str, size: int, per_s: int, secure: bool = False) -> None:
        producer = Producer(self.settings(name, {"linger.ms": 0}, secure))
        while not self._over.wait(1 / per_s):
            producer.produce(topic, b"x" * size)
            if per_s > 100:
                producer.flush(10)  # a request each
            elif len(producer) > 200:
                producer.poll(1)  # it is throttled
        producer.purge()
        producer.flush(10)

    def _scan(self) -> None:
        """Reads a log from the beginning again and again."""
        limits = {"max.partition.fetch.bytes": 100_000, "queued.max.messages.kbytes": 200}
        settings = self.settings(
            "scan", {"group.id": "scan", "enable.auto.commit": False, **limits}
        )
        with closing(client.Consumer(settings)) as reader:
            start = TopicPartition("bulk", 0, 0)
            reader.assign([start])
            while not self._over.is_set():
                message = reader.poll(0.5)
                if message is not None and message.offset() == 499:
                    reader.seek(start)

    def _group(self, name: str, group: str) -> client.Consumer:
        often = {"heartbeat.interval.ms": 1000, "enable.auto.commit": False}
        settings = {"group.id": group, "auto.offset.reset": "earliest", **often}
        return client.Consumer(self.settings(name, settings))

    def _leave(self) -> None:
        """A member that reads two topics, and one of them no more."""
        with closing(self._group("mover", "mover")) as member:
            member.subscribe(["left", "kept"])
            read = set()
            while not self._over.is_set():
                message = member.poll(0.5)
                if message is not None and message.error() is None:
                    member.commit(message=message, asynchronous=False)
                    read.add(message.topic())
                if read == {"left", "kept"}:
                    member.subscribe(["kept"])
                    read = {"all"}

    def _loop_steady(self) -> None:
        with closing(self._group("loop-steady", "loop-g")) as member:
            member.subscribe(["loop"])
            while not self._over.is_set():
                member.poll(0.2)

    def _loop_crash(self) -> None:
        """A member that joins again and again, and commits nothing."""
        while not self._over.wait(1):
            with closing(self._group("loop-crash", "loop-g")) as member:
                member.subscribe(["loop"])
                until_s = time.monotonic() + 3
                while time.monotonic() < until_s and not self._over.is_set():
                    member.poll(0.2)

    # What happens in it

    def dawn(self, printed: str) -> None:
        """The rules that Weir has printed are put before those of the exporter."""
        rules = printed[printed.index("- pattern:") :]
        self._rules.write_text(f"{HEAD}{rules.rstrip()}\n{EXAMPLE}", "utf-8")

    def morning(self) -> None:
        """Retention takes what a hanging transaction has held back, and what all have read."""
        self.delete_below("trimmed", 12)
        self.delete_below("moved", 10)

    def noon(self) -> None:
        """The last limit of a kind goes."""
        self.limit({"client-id": "busy"}, request_percentage=None)
        self.unlimited_ms = now_ms()

    def evening(self) -> None:
        """What is left of it goes, too."""
        self.delete_below("trimmed", 16)
