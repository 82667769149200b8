"""A trace in a real Kafka broker: nothing lost, one broker's records in one partition, in order."""

from __future__ import annotations

from collections import defaultdict

import pytest
from confluent_kafka import Consumer

from app.demo.generator.scenario import load_scenario
from app.demo.generator.trace import plan_trace
from app.demo.generator.write import write_kafka
from tests.support.servers.fixtures import kafka as kafka
from tests.support.servers.kafka import Kafka
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka


def test_records_are_keyed_by_broker(kafka: Kafka) -> None:
    small = plan_trace(load_scenario("small"), 20_000, 7)
    slices = list(small.slices())
    written = write_kafka(small, kafka.servers, "generated")
    consumer = Consumer(
        {"bootstrap.servers": kafka.servers, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["generated"])
    partitions: dict[bytes, set[int]] = defaultdict(set)
    lines: dict[bytes, list[bytes]] = defaultdict(list)
    read = 0
    while read < written.events:
        messages = consumer.consume(min(10_000, written.events - read), timeout=PATIENCE_S)
        assert messages, f"{read} of {written.events} records"
        for message in messages:
            assert message.error() is None
            partitions[message.key()].add(message.partition())
            lines[message.key()].append(message.value())
            read += 1
    consumer.close()
    expected: dict[bytes, list[bytes]] = defaultdict(list)
    names = [name.encode() for name in (*small.fleet.brokers, "*")]
    for part in slices:
        for line, broker in zip(part.lines(), part.brokers.tolist(), strict=True):
            expected[names[broker]].append(line)
    assert lines == expected
    assert all(len(own) == 1 for own in partitions.values())
