"""Transactions that stay open on a real broker: the groups that wait for them, and who is named."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from app.sources.kafka.groups_poll import GroupPoller
from tests.reference.backlog import judge
from tests.servers.kafka_groups import PRECISE, Cluster, Json, cluster, now_ms, records, until
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import Missing

__all__ = ["cluster"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka
OLDER = "3.9.2"


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """A broker of the release before the newest major one."""
    try:
        made = Kafka(tmp_path_factory.mktemp("older"), version=OLDER)
        made.start()
    except (Missing, OSError) as error:
        pytest.skip(f"no Kafka broker {OLDER}: {error}")
    try:
        yield made
    finally:
        made.stop()


@contextmanager
def open_transaction(cluster: Cluster, name: str, count: int = 3) -> Iterator[Producer]:
    """A producer in a transaction, which ends committed."""
    producer = Producer(
        {
            "bootstrap.servers": cluster.kafka.servers,
            "transactional.id": name,
            "transaction.timeout.ms": 600_000,
        }
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(count):
        producer.produce(cluster.topic, value=b"m%d" % i, partition=0)
    producer.flush()
    yield producer
    producer.commit_transaction(30)


def states(found: list[Json]) -> list[Json]:
    """Rows of group_states up to a second after the polls."""
    at = max(record["ts_wall_ms"] for record in found)
    return [r for r in judge(found, PRECISE, until_ms=at + 1002)["group_states"] if r["topic"]]


def waits_for_it(cluster: Cluster, folder: Path) -> None:
    cluster.produce(0, 5, now_ms())
    cluster.commit("reader", 5, 0)
    cluster.commit("behind", 2, 0)
    name = f"payments-{cluster.name}"
    poller = GroupPoller(cluster.settings(), folder)
    with closing(poller):
        begun = now_ms()

        def poll() -> list[Json]:
            """A poll ten seconds after the one before, by the clock of its records."""
            found.extend(records(poller.poll_once(now_ms() + 10_000 * len(found))))
            assert poller.last.problems == []
            return states(found)

        found: list[Json] = []
        with open_transaction(cluster, name):
            assert poll() == []
            (row,) = poll()
            assert (row["group"], row["state"]) == (cluster.group("reader"), "open_transaction")
            assert (row["committed"], row["log_end"]) == (5, 8)
            assert row["transactional_id"] == name and row["producer_id"] >= 0
            assert begun - 1000 <= row["transaction_start_ms"] <= now_ms()
            # A group that reads uncommitted data goes on, and waits for nothing.
            cluster.commit("reader", 7, 0)
            assert [r["state"] for r in poll()] == ["open_transaction", "committed"]
            cluster.commit("reader", 5, 0)
            poll()
            assert poll()[-1]["transactional_id"] == name
        until(lambda: poll()[-1]["state"] == "committed")


def test_a_group_waits_for_an_open_transaction(
    cluster: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    waits_for_it(cluster, tmp_path)


def test_the_same_on_a_broker_of_3_9(older: Kafka, tmp_path: Path, spark: SparkSession) -> None:
    made = Cluster(older)
    with made.admin:
        older.create_topic(made.topic, 2)
        waits_for_it(made, tmp_path)
