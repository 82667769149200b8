"""A Kafka cluster that lives, for runs beside it: topics, groups and what happens to them."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path

import confluent_kafka as client
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka import admin as requests
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec

from tests.servers.kafka_groups import now_ms
from tests.support.servers.kafka import Kafka, run_class
from tests.support.waiting import PATIENCE_S, wait_for

HALF = "half"
JAVA = """
import java.util.*; import org.apache.kafka.clients.admin.*; import org.apache.kafka.common.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
public class Commits { public static void main(String[] a) throws Exception {
  try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", a[0]))) {
    admin.alterConsumerGroupOffsets("", Map.of(new TopicPartition("orders", 0),
      new OffsetAndMetadata(1))).all().get();
    admin.deleteConsumerGroupOffsets(a[1], Set.of(new TopicPartition("expired", 0))).all().get();
  }
}}
"""
SET = requests.AlterConfigOpType.SET
Place = tuple[str, int]
LATE_S = 60
"""After this time an alert that is due has fired."""


def weir(file: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command on the warehouse."""
    return subprocess.run(
        [sys.executable, "-m", "app.cli", *words, "--config", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


class Life:
    """A cluster and what happens there: `lost` and `alerts` are what Weir has to find."""

    def __init__(self, kafka: Kafka, folder: Path) -> None:
        self.kafka = kafka
        self.folder = folder
        self.connect()
        self.polls = folder / "warehouse" / "_weir" / "polls" / "kafka_groups.kafka" / "polls"
        self.of_poll: dict[Path, bool] = {}
        """By file whether it is that of a poll: its last record says so."""
        self.offsets: dict[tuple[str, Place], int] = {}
        self.starts: Counter[Place] = Counter()
        self.lost: Counter[tuple[str, str]] = Counter()
        self.alerts: dict[tuple[str, str, str], float] = {}
        self.expired: dict[tuple[str, str, int], int] = {}
        self.held: client.Consumer | None = None
        """A consumer that stays."""

    def connect(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.kafka.servers, "log_level": 0})

    def topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        self.kafka.create_topic(name, partitions)
        if settings:
            self.change(name, **settings)

    def change(self, topic: str, **settings: str) -> None:
        """Change settings of a topic."""
        resource = ConfigResource(
            ConfigResource.Type.TOPIC,
            topic,
            incremental_configs=[
                requests.ConfigEntry(key.replace("_", "."), value, incremental_operation=SET)
                for key, value in settings.items()
            ],
        )
        self.admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def send(self, topic: str, count: int, partition: int = 0, age_s: int = 0) -> None:
        at = now_ms() - 1000 * age_s
        self.kafka.send(
            topic,
            [
                {
                    "value": b"x" * 50,
                    "key": b"k%d" % (i % 5),
                    "partition": partition,
                    "timestamp": at,
                }
                for i in range(count)
            ],
        )

    def transaction(self, topic: str, count: int, end: str) -> Producer:
        producer = Producer(
            {
                "bootstrap.servers": self.kafka.servers,
                "transactional.id": f"{topic}-{end}",
                "transaction.timeout.ms": 1_800_000,
                "log_level": 0,
            }
        )
        marker = self.end(topic) + count
        producer.init_transactions(30)
        producer.begin_transaction()
        for i in range(count):
            producer.produce(topic, value=b"m%d" % i, partition=0)
        producer.flush()
        if end != "open":
            getattr(producer, f"{end}_transaction")(30)
            wait_for(lambda: self.end(topic) > marker)  # it is written after the answer
        return producer

    def ends(self, spec: OffsetSpec | None = None) -> dict[Place, int]:
        """The ends of all logs, as the broker has them; with a `spec`, their beginnings."""
        topics = self.admin.list_topics(timeout=PATIENCE_S).topics
        asked = {
            TopicPartition(name, n): spec or OffsetSpec.latest()
            for name in topics
            if name != "dark" and not name.startswith("__")
            for n in topics[name].partitions
        }
        found = self.admin.list_offsets(asked)
        return {
            (each.topic, each.partition): found[each].result(PATIENCE_S).offset for each in found
        }

    def end(self, topic: str) -> int:
        return self.ends()[topic, 0]

    def commit(self, group: str, topic: str, offset: int, partition: int = 0) -> None:
        def done() -> bool:
            asked = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition, offset)])
            try:
                answer = self.admin.alter_consumer_group_offsets([asked])[group].result(PATIENCE_S)
            except client.KafkaException:
                return False
            return all(each.error is None for each in answer.topic_partitions)

        wait_for(done)  # the coordinator may not be there yet
        place = topic, partition
        if (group, place) not in self.offsets:
            self._lose(group, topic, self.starts[place] - offset)
        self.offsets[group, place] = offset

    def read(self, group: str, topic: str) -> None:
        """A member of a group reads what is committed, to the end."""
        consumer = client.Consumer(
            {
                "bootstrap.servers": self.kafka.servers,
                "group.id": group,
                "log_level": 0,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        while (message := consumer.poll(20)) is not None and message.error() is None:
            consumer.commit(message=message, asynchronous=False)
        consumer.close()

    def delete_below(self, topic: str, offset: int) -> None:
        asked = TopicPartition(topic, 0, offset)
        assert self.admin.delete_records([asked])[asked].result(PATIENCE_S).low_watermark == offset
        self.deleted(topic, offset)

    def deleted(self, topic: str, offset: int) -> None:
        """What a deletion takes from the groups that have not read it."""
        place = topic, 0
        for (group, where), committed in self.offsets.items():
            if where == place:
                self._lose(group, topic, offset - max(committed, self.starts[place]))
        self.starts[place] = offset

    def _lose(self, group: str, topic: str, count: int) -> None:
        if count > 0:
            self.lost[group, topic] += count
            self.expect("group-lost-messages", group, topic)

    def expect(self, rule: str, group: str, topic: str) -> None:
        self.alerts.setdefault((rule, group, topic), time.monotonic())

    def polled(self, more: int = 2) -> None:
        """Wait for polls: the second one from now on has begun after now."""
        before = self.count_polls()
        wait_for(lambda: self.count_polls() >= before + more, 180)

    def count_polls(self) -> int:
        """Polls so far; other files only move the clocks."""
        for file in self.polls.iterdir():
            if file not in self.of_poll:
                last = gzip.decompress(file.read_bytes()).splitlines()[-1]
                self.of_poll[file] = json.loads(last)["event_type"] == "poll"
        return sum(self.of_poll.values())

    def drop(self, *groups: str) -> None:
        for future in self.admin.delete_consumer_groups(list(groups)).values():
            future.result(PATIENCE_S)

    def begin(self) -> None:
        """What stands when Weir is started."""
        for name in ("orders", "emptied", "drained", "anew", "mirrored", "expired", "open"):
            self.topic(name)
        self.topic("wide", 2)
        self.topic(
            "settings",
            cleanup_policy="compact",
            segment_ms="10000",
            min_cleanable_dirty_ratio="0.01",
        )
        self.topic("short", segment_ms="10000", retention_bytes="1")
        self.topic("forever", retention_ms=str(2**63 - 1))
        self.topic("aging", retention_ms="7200000")
        self.send("forever", 20, age_s=40 * 86_400)
        self.send("aging", 20, age_s=6000)
        for topic in ("mirrored", "expired", "anew"):
            self.send(topic, 12)
        self.send("wide", 9)
        self.send("wide", 7, partition=1)
        self.transaction("open", 1, "abort")
        for group, topic, offset in (
            ("f-behind", "forever", 3),
            ("a-behind", "aging", 5),
            ("mirror", "mirrored", 1000),
            ("partial", "wide", 9),
            ("waiting", "open", 0),
            (HALF, "orders", 0),
            (HALF, "expired", 6),
            ("slow", "drained", 0),
            ("quick", "drained", 0),
            ("tail", "short", 0),
            ("again", "anew", 12),
            ("again-behind", "anew", 2),
            ("s-behind", "settings", 0),
        ):
            self.commit(group, topic, offset)
        self.expect("group-near-retention", "a-behind", "aging")
        self.expect("group-ahead", "mirror", "mirrored")
        self.expect("group-without-offset", "partial", "wide")

    def round(self, number: int) -> None:
        """Some hours of the cluster's day."""
        self.transaction("orders", 3, "commit")
        self.commit("reader", "orders", self.end("orders") - 1)
        self.transaction("orders", 2, "abort")
        self.read("live", "orders")
        self.send("settings", 20, age_s=3600 - 60 * number)
        self.commit("s-reader", "settings", self.end("settings"))
        self.send("emptied", 10)
        for group in ("e-one", "e-two"):
            self.commit(group, "emptied", self.end("emptied"))
        self.send("drained", 30)
        self.commit("quick", "drained", self.end("drained"))
        for name, back in ((f"done-{number}", 0), (f"left-{number}", 4)):
            self.commit(name, "expired", self.end("expired") - back)
        for age_s in (3000, 2000):  # each is a segment of its own
            self.send("short", 5, age_s=age_s - 60 * number)
        self.polled()
        # Retention by size takes all segments but the last one.
        wait_for(lambda: self.ends(OffsetSpec.earliest())["short", 0] == self.end("short") - 5)
        self.deleted("short", self.end("short") - 5)
        self.delete_below("emptied", self.end("emptied"))
        slow = self.offsets["slow", ("drained", 0)]
        self.delete_below("drained", slow + 12)
        self.drop(f"done-{number}", f"left-{number}")
        self.expired[f"left-{number}", "expired", 0] = 4
        self.expect("group-without-offset", f"left-{number}", "expired")
        self.admin.delete_topics(["anew"])["anew"].result(PATIENCE_S)
        wait_for(lambda: not self.kafka.has_topic("anew"))
        if number % 2:  # else it is there again at the next poll
            self.polled()
        self.topic("anew")
        self.send("anew", 8)
        self.polled(3)
        self.commit("again", "anew", 8)
        self.commit("again-behind", "anew", 3)
        self.commit(f"new-{number}", "drained", self.end("drained") - 3)
        self.commit(f"restored-{number}", "drained", slow + 7)
        self.commit("slow", "drained", slow + 20)
        self.polled()

    def last(self) -> None:
        """A deletion while every group stands still, one of them with a consumer."""
        held = self.held = client.Consumer(
            {
                "bootstrap.servers": self.kafka.servers,
                "group.id": "live",
                "log_level": 0,
                "enable.auto.commit": False,
            }
        )
        held.subscribe(["orders"])
        wait_for(lambda: held.poll(0.2) is None and bool(held.assignment()))
        self.delete_below("drained", self.offsets["slow", ("drained", 0)] + 5)

    def once(self, unasked: AbstractContextManager[None]) -> None:
        """Commits under the empty id, an offset that is deleted, a folder of logs that is gone; in
        the context of the last nobody asks the broker."""
        run_class(self.folder, "Commits", JAVA, self.kafka.servers, HALF)
        self.expired[HALF, "expired", 0] = 6
        self.expect("group-without-offset", HALF, "expired")

        def led() -> bool:
            partition = (
                self.admin.list_topics("dark", timeout=PATIENCE_S).topics["dark"].partitions[0]
            )
            return bool(partition.leader >= 0)

        with unasked:
            shutil.rmtree(self.folder / "kafka" / "more")
            wait_for(lambda: not led())

    def lags(self) -> dict[tuple[str, str, int], int]:
        """By group and partition the broker's own lag."""
        ends = self.ends()
        groups = [g.group_id for g in self.admin.list_consumer_groups().result(PATIENCE_S).valid]
        found = {}
        for group in filter(None, groups):
            asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            for each in asked[group].result(PATIENCE_S).topic_partitions:
                if each.topic != "dark":
                    place = each.topic, each.partition
                    found[group, *place] = ends[place] - each.offset
        return found
