"""Throttle commands in a real topic: those of the table, and a repetition is one to the byte."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from deltalake import DeltaTable

from app.config.settings import Settings
from app.engine import throttle_publisher
from app.engine.throttle_publisher import ThrottleFeed, messages
from app.errors import UserError
from app.run.failures import QueryFailed
from app.run.service import run
from app.tables.commit import Writer
from tests.support import records
from tests.support.servers.kafka import Kafka
from tests.support.throttle_command import decode_command
from tests.support.throttle_publisher import command
from tests.support.throttle_rows import START_MS, frame
from tests.support.waiting import PATIENCE_S
from udfs.wire import ThrottleCommand

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

PARTITIONS = 2
START_NS = 2**53 + 1
MakeSettings = Callable[..., Settings]
Parts = tuple[bytes, bytes, tuple[tuple[str, bytes], ...]]


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic of the test's own."""
    name = f"commands-{uuid4().hex}"
    kafka.create_topic(name, PARTITIONS)
    return name


def feed_settings(make: MakeSettings, kafka: Kafka, topic: str, **more: Any) -> Settings:
    """Settings with the feed on."""
    options = {"kafka.bootstrap.servers": kafka.servers, "kafka.max.block.ms": 4_000}
    return make(
        rate_limits={"protocol": "pip385", "receipt_model": "supported"},
        throttle_feed={"topic": topic, "options": options},
        **more,
    )


def read(kafka: Kafka, topic: str) -> list[Message]:
    """Every record of a topic, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.servers,
            "group.id": "none",
            "enable.auto.commit": False,
        }
    )
    found: list[Message] = []
    try:
        for number in range(PARTITIONS):
            place = TopicPartition(topic, number, 0)
            end = consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[1]
            consumer.assign([place])
            own: list[Message] = []
            while len(own) < end:
                batch = consumer.consume(end - len(own), timeout=PATIENCE_S)
                assert batch, f"{len(own)} of {end} records"
                own += batch
            found += own
    finally:
        consumer.close()
    assert all(message.error() is None for message in found)
    return found


def parts(message: Message) -> Parts:
    """Key, value and headers of a record."""
    return message.key(), message.value(), tuple(message.headers())


def expected(rows: pa.Table) -> list[Parts]:
    """What the topic should hold of rows of producer_throttle, sorted."""
    return sorted(
        (r["key"], r["value"], tuple((h["key"], h["value"]) for h in r["headers"]))
        for r in messages(rows).to_pylist()
    )


def test_a_batch_that_is_published_twice_has_the_same_records_twice(
    kafka: Kafka, topic: str, spark: SparkSession, make_settings: MakeSettings
) -> None:
    settings = feed_settings(make_settings, kafka, topic)
    assert settings.throttle_feed is not None
    rows = [
        command(ts_mono_ns=START_NS + n // 3, row_no=n % 3, request_id=n + 1, pause_ms=n)
        for n in range(50)
    ]
    table = frame("producer_throttle", [*reversed(rows), command(exception="TimeoutException")])
    feed = ThrottleFeed(spark, settings.throttle_feed)
    feed.publish(table)
    first = read(kafka, topic)
    feed.publish(table)
    both = read(kafka, topic)

    assert sorted(map(parts, first)) == expected(table)
    assert sorted(map(parts, both)) == sorted(expected(table) * 2)
    for number in range(PARTITIONS):  # a repetition stands where the first is, in the same order
        own = [parts(m) for m in both if m.partition() == number]
        assert own[: len(own) // 2] == own[len(own) // 2 :]
        requests = [json.loads(value)["request_id"] for _, value, _ in own[: len(own) // 2]]
        assert requests == sorted(requests)
        assert requests
    for message in first:
        value = json.loads(message.value())
        assert decode_command(dict(message.headers())["command"]) == ThrottleCommand(
            value["request_id"], value["producer_id"], value["reason"], value["pause_ms"]
        )


def record(kind: str, at_ms: int, seq: int, **columns: Any) -> str:
    """A record of broker b1 as a line."""
    at = START_MS + at_ms, START_NS + at_ms * 1_000_000
    return json.dumps(records.record(kind, *at, **{"seq": seq, "cnx_id": "c1", **columns}))


def throttled(make: MakeSettings, kafka: Kafka, topic: str, folder: Path) -> Settings:
    """Settings with the feed on, over two batches of records of a topic above its limit."""
    name = "persistent://t/ns/a"
    lines = [record("connection_opened", 0, 0, supports_throttle=True, io_thread=1)]
    lines += [
        record(
            "publish",
            200 * n,
            n,
            topic=name,
            producer_id=7,
            producer_name="p7",
            num_messages=1,
            entry_bytes=10,
        )
        for n in range(1, 31)
    ]
    (folder / "in").mkdir()
    for n, part in enumerate((lines[:16], lines[16:])):  # two batches
        path = folder / "in" / f"{n}.jsonl"
        path.write_text("\n".join(part), encoding="utf-8")
        os.utime(path, (START_MS // 1000 + n,) * 2)
    return feed_settings(
        make,
        kafka,
        topic,
        source={
            "format": "files",
            "path": str(folder / "in"),
            "options": {"maxFilesPerTrigger": 1},
        },
        policies=[{"scope": "topic", "name": name, "limits": {"publishRateInMsgs": 2}}],
    )


def committed(settings: Settings) -> pa.Table:
    """The rows of producer_throttle."""
    return DeltaTable(f"{settings.warehouse}/producer_throttle").to_pyarrow_table()


def test_the_commands_of_a_run_are_those_of_its_table(
    kafka: Kafka, topic: str, spark: SparkSession, make_settings: MakeSettings, tmp_path: Path
) -> None:
    settings = throttled(make_settings, kafka, topic, tmp_path)
    assert run(settings, available_now=True) == 0

    table = committed(settings)
    rows = table.to_pylist()
    assert len(rows) > 5
    assert {r["exception"] for r in rows} == {None}
    found = read(kafka, topic)
    assert sorted(map(parts, found)) == expected(table)
    values = sorted((json.loads(m.value()) for m in found), key=lambda v: v["ts_mono_ns"])
    for value, row in zip(values, sorted(rows, key=lambda r: r["ts_mono_ns"]), strict=True):
        assert value["reason_number"] == 0
        assert {k: row[k] for k in value if k != "reason_number"} == {
            k: v for k, v in value.items() if k != "reason_number"
        }


def test_a_batch_that_fails_after_its_commands_sends_the_same_bytes_again(
    kafka: Kafka,
    topic: str,
    spark: SparkSession,
    make_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = throttled(make_settings, kafka, topic, tmp_path)
    append = Writer.append

    def fails(self: Writer, name: str, rows: pa.Table, batch: int) -> None:
        if name == throttle_publisher.COMMANDS:
            raise RuntimeError("the tables are away")
        append(self, name, rows, batch)

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append", fails)
        with pytest.raises(QueryFailed, match="the tables are away"):
            run(settings, available_now=True)
    sent = [parts(m) for m in read(kafka, topic)]
    assert sent
    assert committed(settings).num_rows == 0
    assert run(settings, available_now=True) == 0

    told = expected(committed(settings))
    assert len(told) > len(sent)  # the second batch has commands, too
    assert Counter(parts(m) for m in read(kafka, topic)) == Counter(told) + Counter(sent)
    assert set(sent) <= set(told)
    assert len({key for key, _, _ in told}) == len(told)


def test_a_topic_that_is_gone_during_a_run_is_said_in_two_lines_and_nothing_is_committed(
    kafka: Kafka,
    spark: SparkSession,
    make_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        throttle_publisher, "check", lambda settings: None
    )  # it was there at the start
    settings = throttled(make_settings, kafka, f"gone-{uuid4().hex}", tmp_path)
    with pytest.raises(UserError) as refused:
        run(settings, available_now=True)
    assert str(refused.value).splitlines() == [
        "query govern: the topic of throttle_feed is gone",
        "create it again and start again: the run continues with the batch that could not be sent",
    ]
    assert committed(settings).num_rows == 0


def test_a_feed_that_cannot_be_written_is_refused_in_two_lines(
    kafka: Kafka, make_settings: MakeSettings, tmp_path: Path
) -> None:
    source = {"format": "files", "path": str(tmp_path)}
    (tmp_path / "a.jsonl").write_text("", encoding="utf-8")
    settings = feed_settings(make_settings, kafka, "not-there", source=source)
    with pytest.raises(UserError) as refused:
        run(settings)
    first, second = str(refused.value).splitlines()
    assert first == f"throttle_feed.topic: topic not-there does not exist at {kafka.servers}"
    assert second.startswith("create it before the start")
