"""What tests share of kafka groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from app.config.kafka_groups import KafkaGroupsSettings
from tests.reference.backlog import judge
from tests.support.polled import lines
from tests.support.servers.kafka import Kafka
from tests.support.waiting import PATIENCE_S, wait_for

AGED_MS = 3_600_000
Json = dict[str, Any]
PRECISE = {"preciseTimeBasedBacklogQuotaCheck": True, "backlogQuotaCheckIntervalInSeconds": 1}


class Cluster:
    """What tests do to the broker."""

    def __init__(self, kafka: Kafka) -> None:
        self.kafka = kafka
        self.admin = AdminClient({"bootstrap.servers": kafka.servers, "log_level": 0})
        self.name = uuid4().hex[:8]
        self.topic = f"orders-{self.name}"

    def group(self, name: str) -> str:
        """A name that no other test has."""
        return f"{name}-{self.name}"

    def produce(self, partition: int, count: int, at_ms: int, size: int = 100) -> None:
        """Messages of one size, a second apart, the first one at a time."""
        self.kafka.send(
            self.topic,
            [
                {"value": b"x" * size, "partition": partition, "timestamp": at_ms + 1000 * i}
                for i in range(count)
            ],
        )

    def commit(self, group: str, *offsets: int) -> None:
        """Commit offsets of partitions 0, 1, … for a group without members."""
        places = [TopicPartition(self.topic, i, offset) for i, offset in enumerate(offsets)]

        def committed() -> bool:
            request = [ConsumerGroupTopicPartitions(self.group(group), places)]
            (done,) = self.admin.alter_consumer_group_offsets(request).values()
            try:
                return all(each.error is None for each in done.result(PATIENCE_S).topic_partitions)
            except (KafkaException, TimeoutError):
                return False

        wait_for(committed)

    def committed(self, group: str) -> list[TopicPartition]:
        """The offsets of a group; the broker removes those of a deleted topic by and by."""
        request = [ConsumerGroupTopicPartitions(self.group(group))]
        (found,) = self.admin.list_consumer_group_offsets(request).values()
        return [each for each in found.result(PATIENCE_S).topic_partitions if each.offset >= 0]

    def settings(self, **keys: Any) -> KafkaGroupsSettings:
        return KafkaGroupsSettings.model_validate(
            {
                "cluster": "east",
                "broker": "k1",
                "options": {"bootstrap.servers": self.kafka.servers},
                "groups": f"^.*-{self.name}",
                "topics": [self.topic],
                "timeout_ms": 20_000,
                **keys,
            }
        )


@contextmanager
def standing(kafka: Kafka) -> Iterator[Cluster]:
    """A broker with a topic of two partitions."""
    made = Cluster(kafka)
    with made.admin:
        kafka.create_topic(made.topic, 2)
        wait_for(lambda: made.topic in made.admin.list_topics(timeout=PATIENCE_S).topics)
        yield made


@pytest.fixture
def cluster(kafka: Kafka) -> Iterator[Cluster]:
    """The broker with a topic of two partitions and groups that stand in it."""
    with standing(kafka) as made:
        yield made


def now_ms() -> int:
    return int(time.time() * 1000)


def records(path: Path | None) -> list[Json]:
    """The records of a poll, all of one time; the last one in its file is of the poll itself."""
    found = lines(path)
    assert len({record["ts_wall_ms"] for record in found}) <= 1
    return found


def newest(found: list[Json], table: str = "group_lag") -> dict[tuple[str, int], Json]:
    """The last row of each group and partition, up to a second after the polls."""
    at = max(record["ts_wall_ms"] for record in found)
    rows = judge(found, {**PRECISE, "check_rows": "all"}, until_ms=at + 1002)[table]
    return {(r["group"].partition("-")[0], r["partition"]): r for r in rows}
