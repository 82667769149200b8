"""What a real Kafka has that is no unread record, and groups that have no offset: no false age, and
no poll that fails for one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition

from app.sources.kafka.groups_poll import GroupPoller
from tests.reference.backlog import judge
from tests.servers.kafka_groups import (
    AGED_MS,
    PRECISE,
    Cluster,
    cluster,
    newest,
    now_ms,
    records,
)
from tests.support.polled import of_kind
from tests.support.servers.kafka import Kafka, run_class
from tests.support.waiting import PATIENCE_S

__all__ = ["cluster"]
pytestmark = pytest.mark.kafka
EMPTY_ID = """
import java.util.*; import org.apache.kafka.clients.admin.*; import org.apache.kafka.common.*;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
public class EmptyId { public static void main(String[] a) throws Exception {
  try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", a[0]))) {
    admin.alterConsumerGroupOffsets("", Map.of(new TopicPartition(a[1], 0),
      new OffsetAndMetadata(1))).all().get();
    if (a.length > 2) admin.deleteConsumerGroups(List.of("")).all().get();
  }
}}
"""


def transactional(cluster: Cluster, name: str, commits: bool, count: int = 3) -> None:
    producer = Producer({"bootstrap.servers": cluster.kafka.servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    for i in range(count):
        producer.produce(cluster.topic, value=b"m%d" % i, partition=0)
    producer.flush()
    producer.commit_transaction(30) if commits else producer.abort_transaction(30)


def test_markers_and_aborted_records_are_not_unread(cluster: Cluster, tmp_path: Path) -> None:
    transactional(cluster, f"t-{cluster.name}", commits=True)
    cluster.commit("all", 3)
    poller = GroupPoller(cluster.settings(), tmp_path)
    found = records(poller.poll_once(now_ms()))
    assert of_kind(found, "cursor_state", "mark_delete", "unread", "publish_time_ms") == [
        ("0:2", 0, None)
    ]
    transactional(cluster, f"t-{cluster.name}", commits=False)
    found += records(poller.poll_once(now_ms()))
    row = newest(found)["all", 0]
    assert {c: row[c] for c in ("lag", "lag_records", "age_s", "age_state", "time_to_loss_s")} == {
        "lag": 5,
        "lag_records": 0,
        "age_s": None,
        "age_state": "nothing_unread",
        "time_to_loss_s": None,
    }
    # A record behind them is unread.
    cluster.produce(0, 2, now_ms() - 5000)
    found += records(poller.poll_once(now_ms()))
    row = newest(found)["all", 0]
    assert (row["lag"], row["lag_records"], row["age_state"]) == (7, 2, "known")
    # The log is emptied: of all that lay between, the records are lost, and nothing more.
    (done,) = cluster.admin.delete_records([TopicPartition(cluster.topic, 0, 10)]).values()
    assert done.result(PATIENCE_S).low_watermark == 10
    found += records(poller.poll_once(now_ms()))
    found += records(poller.poll_once(now_ms() + 1))
    lost = judge(found, PRECISE)["lost_messages"]
    assert [(r["from_offset"], r["to_offset"], r["offsets"]) for r in lost] == [(8, 10, 2)]
    assert newest(found)["all", 0]["age_state"] == "nothing_unread"


def test_groups_without_an_offset(cluster: Cluster, kafka: Kafka, tmp_path: Path) -> None:
    """One commit under the empty group id, an unknown name, and a partition without an offset."""
    cluster.produce(0, 30, now_ms() - AGED_MS)
    cluster.produce(1, 9, now_ms() - AGED_MS)
    cluster.commit("g", 30)
    words = (kafka.servers, cluster.topic)
    run_class(tmp_path, "EmptyId", EMPTY_ID, *words)
    said: list[str] = []
    names = [f"^.*-{cluster.name}", "^$", f"typo-{cluster.name}"]
    poller = GroupPoller(cluster.settings(groups=names), tmp_path / "spool", said.append)
    try:
        found = records(poller.poll_once(now_ms()))
        assert poller.last.problems == []
        states: Any = of_kind(
            found, "group_state", "topic", "partition", "subscription", "group_state"
        )
        assert sorted(states, key=str) == sorted(
            [
                (cluster.topic, 1, cluster.group("g"), "no_offset"),
                (None, None, '""', "empty_id"),
                (None, None, f"typo-{cluster.name}", "unknown_group"),
                (None, None, cluster.group("g"), "empty"),
            ],
            key=str,
        )
        assert "(empty_id)" in said[0] and "(unknown_group)" in said[0]
        row = newest(found, "group_states")["g", 1]
        assert (row["state"], row["unread"]) == ("no_offset", 9)
    finally:
        run_class(tmp_path, "EmptyId", EMPTY_ID, *words, "delete")
