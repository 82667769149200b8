"""The plug-in in a real broker when something goes wrong, and its other sinks."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import pulsar as client
import pytest
from confluent_kafka import Consumer

from tests.support.servers import pulsar_plugin
from tests.support.servers.kafka import Kafka
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.pulsar_plugin import connected, records
from tests.support.waiting import wait_for

Json = dict[str, Any]
pytestmark = pytest.mark.slow
FEED = "public/default/weir-feed"


def publish(producer: client.Producer, count: int) -> None:
    for _ in range(count):
        producer.send_async(b"x" * 100, None)
    producer.flush()


def in_order(found: list[Json]) -> bool:
    """Whether numbers rise, and holes in them are exactly what the gaps behind them tell."""
    for before, after in pairwise(found):
        hole = after["seq"] - before["seq"] - 1
        if hole != (after.get("dropped") or 0) or after["ts_mono_ns"] < before["ts_mono_ns"]:
            return False
    return True


def test_a_topic_is_unloaded_and_a_broker_is_killed(pulsar: Pulsar, tmp_path: Path) -> None:
    topic = f"persistent://public/default/t{uuid4().hex}"
    pulsar_plugin.start(pulsar, tmp_path)
    with connected(pulsar) as one:
        producer = one.create_producer(topic)
        one.subscribe(topic, "s")
        publish(producer, 10)
        wait_for(lambda: records(tmp_path, "ledger_state"))
        pulsar.ask("PUT", topic.replace("://", "/") + "/unload")
        publish(producer, 10)
        wait_for(lambda: len(records(tmp_path, "entry_added")) == 20)
        wait_for(lambda: len(records(tmp_path, "ledger_state", "cursor_state")) >= 4)
        # The producer left and came back; nothing was deleted but what the cache had.
        kinds = [r["event_type"] for r in records(tmp_path, "producer_created", "producer_closed")]
        assert kinds == ["producer_created", "producer_closed", "producer_created"]
        assert len(records(tmp_path, "consumer_created")) == 2
        assert len(records(tmp_path, "entry_invalidated")) == 1
        assert records(tmp_path, "ledger_deleted", "cursor_deleted", "gap") == []
        assert in_order(records(tmp_path))
        before = len(records(tmp_path))
        publish(producer, 10)
        pulsar.kill()
    pulsar.start()
    with connected(pulsar) as one:
        publish(one.create_producer(topic), 1)
        wait_for(lambda: any(r["event_type"] == "entry_added" for r in records(tmp_path)[-5:]))
    found = records(tmp_path)
    # What the open file had is kept, then the run begins anew and says what it cannot know.
    starts = [i for i, r in enumerate(found) if r["event_type"] == "broker_started"]
    assert len(starts) == 2 and starts[1] >= before
    old, new = found[: starts[1]], found[starts[1] :]
    assert old[-1]["seq"] < new[0]["seq"]
    (gap,) = [r for r in new if r["event_type"] == "gap"]
    assert gap.keys().isdisjoint({"gap_from_mono_ns", "dropped"})
    assert old[-1]["ts_wall_ms"] - 2000 <= gap["gap_from_wall_ms"] <= new[0]["ts_wall_ms"]
    assert in_order(old) and in_order(new)


def test_a_broker_that_ended_well_has_no_gap(pulsar: Pulsar, tmp_path: Path) -> None:
    topic = f"persistent://public/default/t{uuid4().hex}"
    for _ in range(2):
        pulsar_plugin.start(pulsar, tmp_path)
        with connected(pulsar) as one:
            publish(one.create_producer(topic), 10)
        pulsar.stop()
    found = records(tmp_path)
    assert len([r for r in found if r["event_type"] == "broker_started"]) == 2
    assert len([r for r in found if r["event_type"] == "entry_added"]) == 20
    assert [r for r in found if r["event_type"] == "gap"] == []
    assert list(tmp_path.glob(".*")) == []


def test_kafka_goes_and_comes_back(pulsar: Pulsar, kafka: Kafka, tmp_path: Path) -> None:
    feed = f"weir-{uuid4().hex}"
    kafka.create_topic(feed, 2)
    pulsar_plugin.start(
        pulsar,
        tmp_path,
        weirSink="kafka",
        weirTopic=feed,
        weirBufferEvents="500",
        **{"weirKafka.bootstrap.servers": kafka.servers},
    )
    with connected(pulsar) as one:
        producer = one.create_producer(f"persistent://public/default/t{uuid4().hex}")
        publish(producer, 100)
        wait_for(lambda: len(of_kind(read(kafka, feed), "entry_added")) == 100)
        kafka.stop()
        publish(producer, 1000)
        kafka.start()
        wait_for(lambda: of_kind(read(kafka, feed), "gap"))
        publish(producer, 50)
        wait_for(lambda: read(kafka, feed)[-1]["event_type"] != "gap")
        time.sleep(1)
        found = read(kafka, feed)
    assert in_order(found)
    gaps = of_kind(found, "gap")
    assert sum(gap["dropped"] for gap in gaps) >= 2 * 1000 - 500
    assert all(gap["gap_from_mono_ns"] <= gap["ts_mono_ns"] for gap in gaps)
    assert len(of_kind(found, "entry_added")) >= 150


def of_kind(found: list[Json], kind: str) -> list[Json]:
    return [r for r in found if r["event_type"] == kind]


def read(kafka: Kafka, topic: str) -> list[Json]:
    """All records of a topic, which are in one partition; a repeated one counts once."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": uuid4().hex,
            "log_level": 2,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
        }
    )
    consumer.subscribe([topic])
    found: dict[int, Json] = {}
    partitions = set()
    quiet = 0
    while quiet < 8:
        message = consumer.poll(0.5)
        if message is None or message.error():
            quiet += 1
            continue
        record = json.loads(message.value())
        found.setdefault(record["seq"], record)
        partitions.add(message.partition())
    consumer.close()
    assert len(partitions) <= 1
    return list(found.values())


def test_a_pulsar_topic_that_does_not_record_itself(pulsar: Pulsar, tmp_path: Path) -> None:
    topic = f"persistent://public/default/t{uuid4().hex}"
    pulsar_plugin.start(pulsar, tmp_path, weirSink="pulsar", weirTopic=FEED)
    with connected(pulsar) as one:
        publish(one.create_producer(topic), 200)
        reader = one.create_reader(FEED, client.MessageId.earliest)
        found: list[Json] = []
        while len(of_kind(found, "entry_added")) < 200:
            found.append(json.loads(reader.read_next(20_000).data()))
        time.sleep(2)
        while reader.has_message_available():
            found.append(json.loads(reader.read_next(5_000).data()))
    assert in_order(found)
    topics = {r["topic"] for r in found if "topic" in r}
    assert topic in topics and f"persistent://{FEED}" not in topics
    assert len(of_kind(found, "publish")) == len(of_kind(found, "entry_added")) == 200
