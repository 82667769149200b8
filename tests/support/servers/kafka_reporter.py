"""The metrics reporter of `feeds/kafka` in a broker: its records, and clients that send."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.support.servers import feeds, pulsar_plugin
from tests.support.servers.sasl_kafka import SaslKafka

Json = dict[str, Any]
REPORTER = "weir.kafka.ClientQuotaReporter"
ALICE, BOB, APP = "alice", "bob$1", "app, 1"
"""`$` is encoded in the tags of metrics."""
TOPIC = "orders"


class Broker(SaslKafka):
    """A broker that can load the reporter."""

    def __init__(self, folder: Path, version: str, properties: dict[str, object]) -> None:
        reporter = feeds.built("kafka", "*.jar", feeds.KAFKA_VERSION, feeds.KAFKA_VERSION)
        super().__init__(folder, [ALICE, BOB], properties, version, [reporter])

    def producer(self, user: str, client_id: str) -> Producer:
        return Producer({**self.client(user), "client.id": client_id, "log_level": 2})


def read(folder: Path, kind: str = "client_rate") -> list[Json]:
    """The records of a kind in all files that are shown."""
    return pulsar_plugin.records(folder, kind)


def of(records: list[Json], quota_type: str, user: str, client_id: str = "") -> list[Json]:
    """Those of a sensor."""
    entity = (quota_type, user, client_id)
    return [r for r in records if (r["quota_type"], r["principal"], r["client_id"]) == entity]


def send(producer: Producer, seconds: float, every_s: float) -> int:
    """Messages of 1,000 bytes, each a request; how many there were."""
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        producer.produce(TOPIC, b"x" * 1000)
        producer.flush(20)
        count += 1
        time.sleep(every_s)
    return count


@contextmanager
def sending(broker: Broker, *client_ids: str) -> Iterator[list[int]]:
    """Clients that send meanwhile, and how many messages of each the broker has taken."""
    sent, stopping = [0] * len(client_ids), threading.Event()

    def go_on(number: int) -> None:
        producer = broker.producer(BOB, client_ids[number])
        while not stopping.is_set():
            sent[number] += send(producer, 0.1, 0.05)

    threads = [threading.Thread(target=go_on, args=(n,)) for n in range(len(client_ids))]
    for thread in threads:
        thread.start()
    try:
        yield sent
    finally:
        stopping.set()
        for thread in threads:
            thread.join()
