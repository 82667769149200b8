"""What the polls of groups take of a broker's network, counted in front of a real one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.sources.kafka.groups_poll import GroupPoller
from tests.conftest import ROOT
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


@pytest.mark.parametrize(
    ("partitions", "records", "most"),
    [(14, 16, 300_000), (14, 60, 1_000_000), (1000, 16, 5_000_000)],
)
def test_bytes_of_polls(
    partitions: int,
    records: int,
    most: int,
    counted: tuple[Kafka, Relay],
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    """Of a group that moves in every partition between two polls, by records of 1 kB in one batch; the
    page has the bounds."""
    kafka, passing = counted
    cluster = Cluster(kafka)
    kafka.create_topic(cluster.topic, partitions)
    place = {"value": b"x" * 1000}
    kafka.send(
        cluster.topic,
        ({**place, "partition": n} for n in range(partitions) for _ in range(records)),
    )
    with closing(GroupPoller(cluster.settings(), tmp_path)) as poller:
        for number in range(3):
            cluster.commit("reads", *[5 * number + 1] * partitions)
            passing.clear()
            poller.poll_once(now_ms())
            assert poller.last.problems == []
    assert 14 * records * 1000 < passing.bytes < most
    page = (ROOT / "docs" / "feeds" / "kafka-groups.md").read_text("utf-8")
    assert f"| {partitions:,} | {records} kB | {most / 1e6:g} MB |" in page
