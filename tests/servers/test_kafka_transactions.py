"""Transactions that stay open on a real broker: the groups that wait for them, and who is named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from deltalake import DeltaTable

from app import sources
from app.sources.kafka.groups_poll import GroupPoller
from app.tables.small_files import path_in
from tests.reference.backlog import judge
from tests.servers.kafka_groups import PRECISE, Cluster, Json, now_ms, records
from tests.servers.kafka_releases import release, released
from tests.support.servers import producer_ids
from tests.support.servers.kafka import run_class
from tests.support.waiting import wait_for

__all__ = ["release", "released"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.kafka
ABORT = """
import java.util.*; import org.apache.kafka.clients.admin.*; import org.apache.kafka.common.*;
public class Abort { public static void main(String[] a) throws Exception {
  try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", a[0]))) {
    TopicPartition p = new TopicPartition(a[1], Integer.parseInt(a[2]));
    for (ProducerState s : admin.describeProducers(List.of(p)).partitionResult(p).get().activeProducers())
      if (s.currentTransactionStartOffset().orElse(-1L) == Long.parseLong(a[3]))
        admin.abortTransaction(new AbortTransactionSpec(p, s.producerId(), (short) s.producerEpoch(),
          s.coordinatorEpoch().orElse(0))).all().get();
  }
}}
"""
"""What kafka-transactions.sh does, which is in none of the broker's jars."""


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


def test_a_group_waits_for_an_open_transaction(
    released: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    released.produce(0, 5, now_ms())
    released.commit("reader", 5, 0)
    released.commit("behind", 2, 0)
    name = f"payments-{released.name}"
    poller = GroupPoller(released.settings(), tmp_path)
    with closing(poller):
        begun = now_ms()

        def poll() -> list[Json]:
            """A poll ten seconds after the one before, by the clock of its records."""
            found.extend(records(poller.poll_once(now_ms() + 10_000 * len(found))))
            assert poller.last.problems == []
            return states(found)

        found: list[Json] = []
        with open_transaction(released, name):
            assert poll() == []
            (row,) = poll()
            assert (row["group"], row["state"]) == (released.group("reader"), "open_transaction")
            assert (row["committed"], row["log_end"], row["unread"]) == (5, 8, 3)
            assert row["transactional_id"] == name and row["producer_id"] >= 0
            assert begun - 1000 <= row["transaction_start_ms"] <= now_ms()
            # A group that reads uncommitted data goes on, and waits for nothing.
            released.commit("reader", 7, 0)
            assert [r["state"] for r in poll()] == ["open_transaction", "committed"]
            released.commit("reader", 5, 0)
            poll()
            assert poll()[-1]["transactional_id"] == name
        wait_for(lambda: poll()[-1]["state"] == "committed")


def test_a_groups_next_offset_is_in_a_transaction(
    released: Cluster, tmp_path: Path, spark: SparkSession
) -> None:
    """Its lag grows until that ends, and another group of the topic waits for nothing."""
    released.produce(0, 5, now_ms())
    released.commit("moves", 1, 0)
    released.commit("still", 2, 0)
    name, found = f"moves-{released.name}", list[Json]()
    config = {"bootstrap.servers": released.kafka.servers, "group.id": released.group("moves")}
    producer = Producer(
        {"bootstrap.servers": config["bootstrap.servers"], "transactional.id": name}
    )
    with closing(GroupPoller(released.settings(), tmp_path)) as poller:

        def poll() -> list[Json]:
            found.extend(records(poller.poll_once(now_ms() + 10_000 * len(found))))
            assert poller.last.problems == []
            return states(found)

        with closing(Consumer(config)) as member:
            producer.init_transactions(30)
            producer.begin_transaction()
            producer.send_offsets_to_transaction(
                [TopicPartition(released.topic, 0, 4)], member.consumer_group_metadata(), 30
            )
            assert poll() == []
            (row,) = poll()
            assert (row["group"], row["state"]) == (released.group("moves"), "pending_offsets")
            assert (row["committed"], row["log_end"]) == (1, 5)
            assert row["transactional_id"] == name and row["producer_id"] >= 0
            producer.commit_transaction(30)
        wait_for(lambda: poll()[-1]["state"] == "committed")


def test_a_transaction_that_hangs(
    released: Cluster, tmp_path: Path, spark: SparkSession, make_settings: Callable[..., Settings]
) -> None:
    """Beside one that its producer ends: by their rows, until Kafka's own remedy has ended both."""
    made, servers = released, released.kafka.servers
    name = f"payments-{made.name}"
    config = make_settings(
        source={
            "format": "kafka_producers",
            "options": {"kafka.bootstrap.servers": servers},
            "producers": {
                "topics": [made.topic],
                "timeout_ms": 20_000,
                "owners": [{"topic": made.topic, "principal": "User:pay"}],
            },
        }
    )

    def rows() -> list[Json]:
        table = DeltaTable(path_in(config.location, "open_transactions")).to_pyarrow_table()
        return sorted(table.to_pylist(), key=lambda row: row["number"])

    made.produce(1, 1, now_ms())  # its leader is ready now
    old_ms = now_ms() - 1_200_000
    producer_ids.produce(servers, made.topic, 1, [10**9], 0, old_ms, f"ghost-{made.name}")
    poller = sources.poller(config, config.feed, lambda _: None)
    with closing(poller):
        with open_transaction(made, name):
            poller.poll_once(now_ms())
            assert rows() == []
            poller.poll_once(now_ms())
            assert poller.last.problems == []
            ongoing, hanging = sorted(rows(), key=lambda row: row["partition"])
            assert (ongoing["state"], ongoing["transactional_id"]) == ("Ongoing", name)
            assert (ongoing["user"], ongoing["timeout_ms"]) == ("pay", 600_000)
            assert old_ms < ongoing["start_ms"] <= now_ms()
            assert (hanging["state"], hanging["producer_id"]) == ("hanging", 10**9)
            assert hanging["transactional_id"] is None and hanging["last_ms"] == old_ms
        run_class(tmp_path, "Abort", ABORT, servers, made.topic, "1", str(hanging["start_offset"]))
        poller.poll_once(now_ms())
        assert [row["state"] for row in rows()[2:]] == ["ended", "ended"]
