"""Share groups (KIP-932) and groups of Kafka Streams (KIP-1071) on a real broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.sources.kafka.groups_poll import GroupPoller
from tests.servers.kafka_groups import Cluster, Json, newest, now_ms, records
from tests.servers.kafka_releases import NEWEST, release, released
from tests.support.polled import of_kind
from tests.support.servers import ivy
from tests.support.servers.kafka import jars
from tests.support.servers.process import java
from tests.support.waiting import wait_for

__all__ = ["release", "released"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
CONSUMER = """
import java.time.Duration; import java.util.*;
import org.apache.kafka.clients.admin.*; import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.common.config.ConfigResource;
public class ShareMember { public static void main(String[] a) throws Exception {
  String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
  ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, a[2]);
  try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", a[0]))) {
    ConfigEntry begin = new ConfigEntry("share.auto.offset.reset", "earliest");
    admin.incrementalAlterConfigs(Map.of(group,
      List.of(new AlterConfigOp(begin, AlterConfigOp.OpType.SET)))).all().get();
  }
  Deque<Long> accepted = new ArrayDeque<>();
  for (String offset : a[3].split(",")) accepted.add(Long.valueOf(offset));
  try (ShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(Map.of(
      "bootstrap.servers", a[0], "group.id", a[2], "client.id", "worker-1",
      "share.acknowledgement.mode", "explicit",
      "key.deserializer", bytes, "value.deserializer", bytes))) {
    consumer.subscribe(List.of(a[1]));
    while (!accepted.isEmpty()) { // one by one: the start offset is stored with the next of them
      boolean took = false;
      for (ConsumerRecord<byte[], byte[]> each : consumer.poll(Duration.ofMillis(200))) {
        boolean takes = !took && each.offset() == accepted.peek();
        consumer.acknowledge(each, takes ? AcknowledgeType.ACCEPT : AcknowledgeType.RELEASE);
        took |= takes;
      }
      consumer.commitSync();
      if (took) accepted.remove();
    }
    System.out.println("acknowledged");
    System.in.read();
  }
}}
"""


STREAMS = """
import java.util.*; import org.apache.kafka.common.serialization.Serdes; import org.apache.kafka.streams.*;
public class App { public static void main(String[] a) throws Exception {
  Properties p = new Properties();
  p.put("bootstrap.servers", a[0]); p.put("application.id", a[2]); p.put("state.dir", a[3]);
  p.put("group.protocol", "streams"); p.put("auto.offset.reset", "earliest");
  p.put("commit.interval.ms", "100");
  p.put("default.key.serde", Serdes.ByteArraySerde.class);
  p.put("default.value.serde", Serdes.ByteArraySerde.class);
  StreamsBuilder builder = new StreamsBuilder();
  builder.stream(a[1]).foreach((key, value) -> System.out.println("processed"));
  try (KafkaStreams streams = new KafkaStreams(builder.build(), p)) {
    streams.start();
    System.in.read();
  }
}}
"""
OF_STREAMS = f"""\
<dependency org="org.apache.kafka" name="kafka-streams" rev="{NEWEST}" transitive="false"/>
"""


@contextmanager
def member(cluster: Cluster, folder: Path, *offsets: int) -> Iterator[None]:
    """A member of the share group `jobs`, which has acknowledged some offsets of partition 0."""
    words = [cluster.kafka.servers, cluster.topic, cluster.group("jobs")]
    with program(folder / "ShareMember.java", CONSUMER, [*words, ",".join(map(str, offsets))]):
        yield


@contextmanager
def program(source: Path, text: str, words: list[str], *libraries: Path) -> Iterator[None]:
    """Runs a program that prints a line when it is so far, and ends with its input."""
    source.write_text(text, "utf-8")
    path = ":".join(f"{folder}/*" for folder in (jars(NEWEST), *libraries))
    with subprocess.Popen(
        [*java(path, str(source), QUIET), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin and process.stdout
        assert process.stdout.readline()
        yield
        process.stdin.close()
        assert process.wait(60) == 0


def shown(found: list[Json]) -> list[tuple[object, ...]]:
    columns = ("partition", "mark_delete", "unread", "group_type", "client_id")
    return of_kind(found, "cursor_state", *columns)


@pytest.mark.parametrize("release", [NEWEST], indirect=True)
def test_a_share_group_has_start_offsets_and_the_lag_of_the_broker(
    released: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    """Of ten records 0, 1 and 4 are acknowledged: the start offset is 2 and seven are left."""
    at_ms = now_ms() - 60_000
    released.produce(0, 10, at_ms)
    poller = GroupPoller(released.settings(), tmp_path / "spool")
    with closing(poller):
        with member(released, tmp_path, 0, 1, 4):
            found = records(poller.poll_once(now_ms()))
            assert poller.last.problems == []
            assert shown(found) == [(0, "0:1", 7, "share", None)]
            assert of_kind(found, "cursor_state", "publish_time_ms")[0] == (at_ms + 2000,)
            assert of_kind(found, "group_state", "group_state", "group_type") == [
                ("stable", "share")
            ]
            found += records(poller.poll_once(now_ms()))
            assert shown(found)[1] == (0, "0:1", 7, "share", "worker-1")
            ((epoch, target),) = of_kind(
                found[-1:], "group_state", "group_epoch", "assignment_epoch"
            )
            assert epoch == target >= 1
        found += records(poller.poll_once(now_ms()))
        assert of_kind(found[-1:], "group_state", "group_state") == [("empty",)]
        row = newest(found)["jobs", 0]
        kept = ("state", "committed", "log_end", "lag", "lag_records", "age_state", "group_type")
        assert tuple(row[name] for name in kept) == (*("committed", 2, 10, 8, 7, "known", "share"),)
        assert newest(found, "group_states")["jobs", None]["group_type"] == "share"


@pytest.mark.parametrize("release", [NEWEST], indirect=True)
def test_a_share_group_that_is_deleted_is_gone(
    released: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    released.produce(0, 3, now_ms())
    with member(released, tmp_path, 0):
        pass
    name = released.group("jobs")
    poller = GroupPoller(released.settings(groups=[name]), tmp_path / "spool")
    with closing(poller):
        assert of_kind(records(poller.poll_once(now_ms())), "group_state", "group_state") == [
            ("empty",)
        ]
        (done,) = released.admin.delete_consumer_groups([name]).values()
        assert done.exception(20) is None
        wait_for(lambda: not shown(records(poller.poll_once(now_ms()))))
        assert poller.last.problems == []
        found = records(poller.poll_once(now_ms()))
        assert of_kind(found, "group_state", "subscription", "group_state") == [
            (name, "unknown_group")
        ]


@pytest.mark.parametrize("release", [NEWEST], indirect=True)
def test_a_group_of_kafka_streams_has_offsets_and_a_state(
    released: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    released.produce(0, 3, now_ms())
    words = [released.kafka.servers, released.topic, released.group("app"), str(tmp_path / "state")]
    streams = ivy.jars(f"kafka-streams-{NEWEST}", OF_STREAMS)
    poller = GroupPoller(released.settings(), tmp_path / "spool")
    with closing(poller), program(tmp_path / "App.java", STREAMS, words, streams):
        wait_for(lambda: (0, "0:2") in committed(records(poller.poll_once(now_ms()))))
        released.produce(0, 500, now_ms())
        found = [records(poller.poll_once(now_ms())) for _ in range(2)]
        assert poller.last.problems == []
        whole = [r for r in found[-1] if r["event_type"] == "group_state" and "topic" not in r]
        assert [(r["group_state"], r["group_type"]) for r in whole] == [("stable", "streams")]


def committed(found: list[Json]) -> list[tuple[object, ...]]:
    return of_kind(found, "cursor_state", "partition", "mark_delete")
