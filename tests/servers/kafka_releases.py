"""Real brokers of the newest release and of the last one before Kafka 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.servers.kafka_groups import Cluster, until
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import Missing

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
    try:
        made = Kafka(tmp_path_factory.mktemp("broker"), lenient, version=request.param)
        made.start()
    except (Missing, OSError) as error:
        pytest.skip(f"no Kafka broker {request.param}: {error}")
    try:
        yield Release(made, request.param)
    finally:
        made.stop()


@pytest.fixture
def released(release: Release) -> Iterator[Cluster]:
    """The broker with a topic of two partitions."""
    made = Cluster(release.kafka)
    with made.admin:
        release.kafka.create_topic(made.topic, 2)
        until(lambda: made.topic in made.admin.list_topics(timeout=10).topics)
        yield made
