"""The metrics reporter in real brokers: what it writes of their clients, and that it can be
switched and changed while they run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.support.servers import feeds
from tests.support.servers.kafka import VERSION
from tests.support.servers.kafka_reporter import (
    ALICE,
    APP,
    BOB,
    REPORTER,
    TOPIC,
    Broker,
    Json,
    of,
    read,
    send,
    sending,
)
from tests.support.servers.process import serving
from tests.support.waiting import wait_for

pytestmark = pytest.mark.kafka

LIMIT, HIGH = 20_000, 10**12
RATES = "rates"


@pytest.fixture(
    params=[VERSION, *(pytest.param(v, marks=pytest.mark.slow) for v in ("3.9.2", "4.4.0"))]
)
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Broker]:
    files = {
        "metric.reporters": REPORTER,
        "weir.directory": tmp_path / "rates",
        "weir.file.ms": 300,
        "weir.cluster": "east",
    }
    made = partial(Broker, tmp_path / "broker", request.param, files)
    with serving(made, "Kafka broker with the reporter") as started:
        started.create_topic(TOPIC)
        yield started


def test_rates_bounds_and_throttle_times_of_clients(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "rates"
    limits = {"producer_byte_rate": LIMIT, "request_percentage": 1000}
    assert broker.limit({"user": ALICE}, limits) == ""
    anybody = {"producer_byte_rate": HIGH, "consumer_byte_rate": HIGH}
    assert broker.limit({"user": None, "client-id": None}, anybody) == ""
    one = broker.producer(BOB, APP)
    sent = send(one, 5, 0.1)
    send(broker.producer(ALICE, APP), 6, 0)
    one.produce(TOPIC, b"")  # later
    with closing(reader(broker)) as consumer:
        wait_for(lambda: consumer.poll(1) is not None)
        wait_for(lambda: of(read(folder), "fetch", BOB, "reader"))
    rates = read(folder)
    limited = of(rates, "produce", ALICE)
    assert {r["bound_milli"] for r in limited} == {LIMIT * 1000}
    assert max(r["value_milli"] for r in limited) > LIMIT * 1000
    assert max(r.get("throttle_avg_milli", 0) for r in limited) > 100_000
    beside = of(rates, "produce", BOB, APP)
    assert {r["bound_milli"] for r in beside} == {HIGH * 1000}
    # The first window of a sensor is ten seconds; a request has 1,000 bytes and its headers.
    assert 100 * sent < max(r["value_milli"] for r in beside) / 1000 < 115 * sent
    assert not any("throttle_avg_milli" in r for r in beside)
    times = of(rates, "request", ALICE)
    assert {r["bound_milli"] for r in times} == {1_000_000}
    assert 0 < max(r["value_milli"] for r in times) < 1_000_000
    assert not any("bound_milli" in r for r in of(rates, "request", BOB))  # no limit
    (exempt, *_) = [r for r in rates if r.get("exempt")]
    assert (exempt["quota_type"], exempt["principal"], exempt["value_milli"]) == ("request", "", 0)
    assert {(r["cluster"], r["broker"], r["source_feed"]) for r in rates} == {
        ("east", "1", "kafka_reporter")
    }
    seqs = [r["seq"] for r in rates]
    assert seqs == sorted(set(seqs))
    steps = sorted({r["ts_wall_ms"] for r in limited})
    assert 800 < (steps[-1] - steps[0]) / (len(steps) - 1) < 1200
    (begin,) = read(folder, "broker_started")
    assert begin["plugin_version"] == feeds.KAFKA_VERSION and begin["seq"] < seqs[0]
    assert read(folder, "gap") == []


def reader(broker: Broker) -> Consumer:
    """A consumer of the topic."""
    consumer = Consumer(
        {
            **broker.client(BOB),
            "client.id": "reader",
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def test_it_is_switched_and_changed_while_the_broker_runs(broker: Broker, tmp_path: Path) -> None:
    folder = tmp_path / "rates"
    for limit in (1_000_000, 2_000_000):  # the first one makes Kafka measure
        assert broker.limit({"client-id": None}, {"producer_byte_rate": limit}) == ""
    with sending(broker, "app-1", "job") as sent:
        wait_for(lambda: clients(read(folder)) == {"app-1", "job"})
        assert broker.change({"metric.reporters": ""}) == ""
        wait_for(lambda: not list(folder.glob(".*.open")))
        ended = len(read(folder))
        broker.create_topic(RATES)
        time.sleep(2.5)  # a record is missing if two intervals have passed
        to_topic = {
            "metric.reporters": REPORTER,
            "weir.sink": "kafka",
            "weir.topic": RATES,
            "weir.kafka.bootstrap.servers": broker.servers,
            "weir.clients": "^app",
        }
        assert broker.change(to_topic) == ""
        gap, *rates = consumed(broker, 5)
        assert (gap["event_type"], gap["gap_from_wall_ms"]) == (
            "gap",
            read(folder)[-1]["ts_wall_ms"],
        )
        assert {(r["client_id"], r["bound_milli"]) for r in of_type(rates)} == {
            ("app-1", 2_000_000_000)
        }
        assert len(read(folder)) == ended
        refused = broker.change({"weir.interval.ms": 5})
        assert "Invalid value 5 for configuration weir.interval.ms: Value must be at least" in (
            refused
        )
        # A sink that cannot be: the broker goes on, and what is missing is said afterwards.
        nowhere = {"weir.kafka.bootstrap.servers": "127.0.0.1:1", "weir.buffer.records": 4}
        assert broker.change(nowhere) == ""
        before = list(sent)
        time.sleep(3)
        assert broker.change({"weir.sink": "files", "weir.clients": "job"}) == ""
        wait_for(lambda: clients(read(folder)[ended:]) == {"job"})
        assert all(after > count + 20 for count, after in zip(before, sent, strict=True))
        assert read(folder, "gap")[-1]["gap_from_wall_ms"] >= rates[-1]["ts_wall_ms"]


def consumed(broker: Broker, count: int) -> list[Json]:
    """The first records of the topic that the reporter writes to."""
    options = {"bootstrap.servers": broker.servers, "group.id": "w", "log_level": 2}
    records: list[Json] = []
    with closing(Consumer({**options, "auto.offset.reset": "earliest"})) as consumer:
        consumer.subscribe([RATES])
        while len(records) < count:
            message = consumer.poll(20)
            assert message is not None and message.error() is None and message.key() == b"1"
            records.append(json.loads(message.value()))
    return records


def of_type(records: list[Json], quota_type: str = "produce") -> list[Json]:
    """Those of the sensors of a type."""
    return [r for r in records if r.get("quota_type") == quota_type]


def clients(records: list[Json]) -> set[str]:
    """The client ids of produce sensors."""
    return {r["client_id"] for r in of_type(records)}
