"""A real broker: nothing lost and nothing twice, whatever happens to it or to the run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from app import sources
from app.config.settings import Settings
from app.errors import LastingError, UserError
from app.run.service import run
from app.run.source_watch import SourceWatch
from app.tables import manifest
from tests.servers.live import (
    APART_MS,
    PARTITIONS,
    Lines,
    MakeSettings,
    has_records,
    offsets,
    policies,
    rows_in,
    running,
)
from tests.support.servers.kafka import Kafka
from tests.support.traces import all_rows, identities
from tests.support.waiting import PATIENCE_S, wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
MOST = 2**63 - 1


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic of the test's own."""
    name = f"events-{uuid4().hex}"
    kafka.create_topic(name, PARTITIONS)
    return name


def kafka_settings(make: MakeSettings, kafka: Kafka, topic: str, **more: object) -> Settings:
    """Settings that read the topic, some hundred records in a batch and partition."""
    options = {
        "kafka.bootstrap.servers": kafka.servers,
        "subscribe": topic,
        "maxOffsetsPerTrigger": 6_000,
        # A broker that is away is noticed, and found again, within seconds.
        "kafka.default.api.timeout.ms": 5_000,
        "kafka.request.timeout.ms": 4_000,
        "kafka.reconnect.backoff.max.ms": 500,
        "kafkaConsumer.pollTimeoutMs": 10_000,
    }
    return make(source={"format": "kafka", "options": options}, policies=policies(), **more)


def produce(kafka: Kafka, topic: str, records: Lines) -> None:
    """Send the records in their order, those of a broker into one partition."""
    kafka.produce_to(topic, ((broker % PARTITIONS, line) for broker, line in records))


def test_a_broker_that_goes_away_and_comes_back_loses_and_doubles_nothing(
    kafka: Kafka,
    topic: str,
    spark: SparkSession,
    make_settings: MakeSettings,
    lines: Lines,
    reference: dict[str, list[tuple[object, ...]]],
) -> None:
    settings = kafka_settings(make_settings, kafka, topic, idle_advance_ms=APART_MS)
    third = len(lines) // 3
    with running(spark, settings):
        produce(kafka, topic, lines[:third])
        wait_for(lambda: rows_in(settings) > 0)
        kafka.stop()  # batches are under way
        time.sleep(12)  # longer than every time-out of the clients
        kafka.start()
        produce(kafka, topic, lines[third : 2 * third])
        wait_for(lambda: rows_in(settings) > third)
    # Between two runs: the second goes on where the first was stopped.
    produce(kafka, topic, lines[2 * third :])
    assert run(settings, available_now=True) == 0

    assert identities(settings.warehouse) == offsets(kafka, topic)
    assert all_rows(settings.warehouse) == reference


def test_another_warehouse_has_the_newest_records_while_others_wait_to_be_caught_up(
    kafka: Kafka,
    topic: str,
    spark: SparkSession,
    make_settings: MakeSettings,
    lines: Lines,
    tmp_path: Path,
) -> None:
    """As docs/operations.md describes it: `startingOffsets: latest`."""
    all_of_it = kafka_settings(make_settings, kafka, topic, idle_advance_ms=APART_MS)
    newest = kafka_settings(
        make_settings,
        kafka,
        topic,
        idle_advance_ms=APART_MS,
        warehouse=str(tmp_path / "newest"),
    )
    newest.feed.options["startingOffsets"] = "latest"
    old, new = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    produce(kafka, topic, old)
    waiting = offsets(kafka, topic)
    with running(spark, newest):
        place = Path(newest.warehouse, "_weir", "checkpoints", "govern", "sources", "0", "0")
        wait_for(place.exists)
        produce(kafka, topic, new)
        expected = sorted(set(offsets(kafka, topic)) - set(waiting))
        wait_for(lambda: has_records(newest, len(expected)))
        wait_for(lambda: identities(newest.warehouse) == expected)
    assert run(all_of_it, available_now=True) == 0
    assert identities(all_of_it.warehouse) == offsets(kafka, topic)


def test_a_timestamp_that_spark_cannot_read_is_named_with_its_place_and_the_remedy(
    kafka: Kafka, make_settings: MakeSettings, lines: Lines
) -> None:
    """Brokers before 4.0 take any timestamp of a producer, and others may be configured to."""
    topic = f"events-{uuid4().hex}"
    kafka.create_topic(topic, 2, {"message.timestamp.after.max.ms": str(MOST)})
    kafka.send(
        topic,
        (
            {"value": line, "partition": 1, **({"timestamp": MOST} if i == 7 else {})}
            for i, (_, line) in enumerate(lines[:20])
        ),
    )
    settings = kafka_settings(make_settings, kafka, topic)
    with pytest.raises(UserError) as refused:
        run(settings, available_now=True)
    problem, remedy, place = str(refused.value).splitlines()
    assert "a record of Kafka has a timestamp beyond the year 294247" in problem
    assert place == f"it is {topic}, partition 1, offset 7: {MOST} ms"
    # the remedy, as it is said
    assert "kafka-delete-records.sh" in remedy
    assert "source.options.failOnDataLoss false" in remedy
    with AdminClient({"bootstrap.servers": kafka.servers}) as admin:
        (done,) = admin.delete_records([TopicPartition(topic, 1, 8)]).values()
        done.result(PATIENCE_S)
    settings.feed.options["failOnDataLoss"] = "false"
    assert run(settings, available_now=True) == 0
    assert identities(settings.warehouse) == [(str(1), offset) for offset in range(8, 20)]


def test_partitions_of_other_brokers_may_be_read_ten_minutes_apart(
    kafka: Kafka,
    topic: str,
    make_settings: MakeSettings,
    lines: Lines,
    reference: dict[str, list[tuple[object, ...]]],
) -> None:
    settings = kafka_settings(make_settings, kafka, topic)
    first, second = ([r for r in lines if r[0] % PARTITIONS == p] for p in range(PARTITIONS))

    produce(kafka, topic, first)  # ten minutes ahead of the other partition
    run(settings, available_now=True)
    produce(kafka, topic, second)
    run(settings, available_now=True)
    found = all_rows(settings.warehouse)
    assert [row for row in found["quarantine"] if row[0] == "TOO_LATE"] == []
    assert identities(settings.warehouse) == offsets(kafka, topic)
    assert found["events"] == reference["events"]


def test_an_unreachable_kafka_and_a_missing_topic_are_refused_in_two_lines(
    kafka: Kafka, make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEIR_TEST_JAAS", 'org.x.Login required username="u" password="hush";')
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "events"}
    login = {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "${env:WEIR_TEST_JAAS}",
    }
    for more in ({}, login):
        settings = make_settings(source={"format": "kafka", "options": {**options, **more}})
        with pytest.raises(UserError) as refused:
            run(settings)
        assert str(refused.value).startswith("Kafka does not answer at 127.0.0.1:1: ")
        assert len(str(refused.value).splitlines()) == 2
        assert "hush" not in str(refused.value) + repr(settings) + str(settings.display())

    kafka.create_topic(other := f"there-{uuid4().hex}")
    options = {"kafka.bootstrap.servers": kafka.servers, "subscribe": "not-there"}
    with pytest.raises(UserError) as refused:
        run(make_settings(source={"format": "kafka", "options": options}))
    first, second = str(refused.value).splitlines()
    assert first == f"source.options: topic not-there does not exist at {kafka.servers}"
    assert second.startswith("topics there: ") and (other in second or "…" in second)


def test_a_topic_that_was_created_again_is_refused_unless_data_may_be_lost(
    kafka: Kafka, topic: str, make_settings: MakeSettings
) -> None:
    settings = kafka_settings(make_settings, kafka, topic)
    sources.check(settings.feed, settings.location)
    manifest.claim(settings.location, 2, settings.shards)
    sources.claim(settings)
    there = manifest.load(settings.location)
    assert there is not None and there.topics is not None
    (first,) = there.topics.items()
    sources.check(settings.feed, settings.location)

    with AdminClient({"bootstrap.servers": kafka.servers}) as admin:
        admin.delete_topics([topic])[topic].result(PATIENCE_S)
        wait_for(lambda: topic not in admin.list_topics(timeout=PATIENCE_S).topics)
    kafka.create_topic(topic, PARTITIONS)

    with pytest.raises(UserError) as refused:
        sources.check(settings.feed, settings.location)
    told, remedy = str(refused.value).splitlines()
    assert told.startswith(
        f"source.options: topic {topic} was deleted and created again since this warehouse has "
        f"read it (id {first[1]}, now "
    )
    assert remedy.startswith("take a new warehouse: ")
    now_s, warned = [0.0], list[str]()
    watch = SourceWatch(settings, warned.append, warned.append, clock=lambda: now_s[0])
    with pytest.raises(LastingError, match="created again"):  # a run does not wait for it
        for now_s[0] in (1.0, 20.0, 21.0):
            watch.look([])
            if watch._question is not None:
                watch._question.join(30)
    assert warned == []

    options = {**settings.feed.options, "failOnDataLoss": "false"}
    loose = make_settings(source={"format": "kafka", "options": options})
    sources.check(loose.feed, loose.location)
    sources.claim(loose)
    sources.check(settings.feed, settings.location)  # the new topic is the warehouse's from now on
    there = manifest.load(settings.location)
    assert there is not None and there.topics != dict([first])
