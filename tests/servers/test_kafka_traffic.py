"""What the polls of groups take of a broker's network, counted in front of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.sources.kafka.groups_poll import GroupPoller
from tests.servers.kafka_groups import Cluster, now_ms
from tests.support.servers.counting import Relay, relay
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Kafka, Relay]]:
    """A broker whose clients are led through a relay, and that."""
    folder = tmp_path_factory.mktemp("broker")
    with relay() as passing:
        advertised = f"PLAINTEXT://127.0.0.1:{passing.port}"
        with serving(lambda: Kafka(folder, {"advertised.listeners": advertised}), "Kafka") as kafka:
            passing.broker = int(kafka.servers.rpartition(":")[2])
            yield kafka, passing


@pytest.mark.parametrize(("partitions", "most"), [(14, 1), (1000, 1)])
def test_bytes_of_polls(
    partitions: int,
    most: int,
    counted: tuple[Kafka, Relay],
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    kafka, passing = counted
    cluster = Cluster(kafka)
    kafka.create_topic(cluster.topic, partitions)
    for partition in range(partitions):
        cluster.produce(partition, 200, now_ms(), 1000)

    with closing(GroupPoller(cluster.settings(), tmp_path)) as poller:
        for number in range(6):
            cluster.commit("reads", *[10 * number + 1] * partitions)
            passing.clear()
            poller.poll_once(now_ms())
            assert poller.last.problems == []
            print(number, passing.bytes, passing.requests, passing.sent, passing.answered)
    assert passing.bytes < most
