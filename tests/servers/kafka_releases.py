"""Real brokers of the newest release and of the last one before Kafka 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.servers.kafka_groups import Cluster, standing
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import serving

NEWEST, OLDER = "4.4.0", "3.9.2"


class Release(NamedTuple):
    """A broker and its release."""

    kafka: Kafka
    version: str


@pytest.fixture(scope="module", params=(NEWEST, OLDER))
def release(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Release]:
    """A broker of each release, which takes batches of any transaction."""
    lenient = {
        "transaction.partition.verification.enable": "false",
        "group.streams.initial.rebalance.delay.ms": 0,
    }
    folder = tmp_path_factory.mktemp("broker")
    version = request.param
    with serving(lambda: Kafka(folder, lenient, version=version), f"Kafka {version}") as kafka:
        yield Release(kafka, version)


@pytest.fixture
def released(release: Release) -> Iterator[Cluster]:
    """The broker with a topic of two partitions."""
    with standing(release.kafka) as cluster:
        yield cluster
