"""The consumers of partitions that lag, of both group protocols, on real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from app.sources.kafka.groups_poll import GroupPoller
from tests.servers.kafka_groups import Cluster, now_ms, records
from tests.servers.kafka_releases import NEWEST, OLDER, release, released
from tests.support.polled import of_kind
from tests.support.waiting import wait_for

__all__ = ["release", "released"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka


@contextmanager
def consumer(cluster: Cluster, client_id: str, protocol: str) -> Iterator[Consumer]:
    """A member of the group `slow`, which reads both partitions."""
    made = Consumer(
        {
            "bootstrap.servers": cluster.kafka.servers,
            "group.id": cluster.group("slow"),
            "client.id": client_id,
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    made.subscribe([cluster.topic])
    try:
        wait_for(lambda: made.poll(0.2) is not None and len(made.assignment()) == 2)
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("release", "protocol"),
    [(NEWEST, "classic"), (NEWEST, "consumer"), (OLDER, "classic")],  # a preview in the older
    indirect=["release"],
)
def test_the_consumer_of_a_partition_that_lags(
    released: Cluster, tmp_path: Path, spark: SparkSession, protocol: str
) -> None:
    released.produce(0, 10, now_ms())
    released.produce(1, 10, now_ms())
    poller = GroupPoller(released.settings(), tmp_path)
    with closing(poller), consumer(released, "billing-1", protocol) as member:
        member.commit(
            offsets=[TopicPartition(released.topic, 0, 2), TopicPartition(released.topic, 1, 10)],
            asynchronous=False,
        )
        first = records(poller.poll_once(now_ms()))
        assert not any("client_id" in record for record in first)
        second = records(poller.poll_once(now_ms()))
        assert poller.last.problems == []
        assert of_kind(second, "cursor_state", "partition", "client_id", "client_host") == [
            (0, "billing-1", "127.0.0.1"),
            (1, None, None),
        ]
        assert of_kind(second, "group_state", "group_state") == [("stable",)]
    third = records(poller.poll_once(now_ms()))
    assert of_kind(third, "group_state", "group_state") == [("empty",)]
    assert of_kind(third, "cursor_state", "partition", "client_id", "client_host") == [
        (0, "", ""),  # no member has the partition
        (1, None, None),
    ]
