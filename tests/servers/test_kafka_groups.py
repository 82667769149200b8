"""Polls of a real Kafka broker, held against its own figures, and judged by the reference."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from app.cli import main
from app.errors import UserError
from app.run.service import run
from app.sources.kafka.groups_poll import GroupPoller
from app.terminal.moments import moment_ms
from tests.reference.backlog import judge
from tests.servers.kafka_groups import (
    AGED_MS,
    PRECISE,
    Cluster,
    Json,
    cluster,
    now_ms,
    records,
)
from tests.support.backlog_views import stored
from tests.support.polled import of_kind
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.logging_kafka import LoggingKafka
from tests.support.servers.process import serving
from tests.support.waiting import PATIENCE_S, wait_for

__all__ = ["cluster"]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.kafka


def cursors(found: list[Json]) -> dict[tuple[str, int], tuple[str, int | None]]:
    """By group and partition the position, and the time of the oldest unread message."""
    return {
        (group.partition("-")[0], partition): (place, at)
        for group, partition, place, at in of_kind(
            found, "cursor_state", "subscription", "partition", "mark_delete", "publish_time_ms"
        )
    }


def rows(found: list[Json], table: str, partition: int) -> list[Json]:
    """Rows of a table at the first check after the newest poll."""
    at = max(record["ts_wall_ms"] for record in found)
    judged = judge(found, {**PRECISE, "check_rows": "all"}, until_ms=at + 1002)[table]
    of_partition = [r for r in judged if r["partition"] == partition]
    last = max(r["pass_ms"] for r in of_partition)
    assert last >= at
    return [r for r in of_partition if r["pass_ms"] == last]


def test_a_cluster_that_asks_for_tls_and_a_login(
    cluster: Cluster, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    cluster.produce(0, 40, now_ms() - AGED_MS)
    cluster.commit("slow", 5, 0)
    options = {
        "bootstrap.servers": cluster.kafka.secure_servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(cluster.kafka.certificate),
    }
    poller = GroupPoller(cluster.settings(options=options), tmp_path)
    assert cursors(records(poller.poll_once(now_ms())))["slow", 0][0] == "0:4"
    wrong = {**options, "sasl.password": f"not-{PASSWORD}"}
    with pytest.raises(UserError) as refused:
        GroupPoller(cluster.settings(options=wrong, timeout_ms=5000), tmp_path / "wrong").check()
    assert "uthentication" in str(refused.value)
    assert PASSWORD not in str(refused.value) + "".join(capfd.readouterr())


def test_a_life_of_groups(cluster: Cluster, tmp_path: Path) -> None:
    base = now_ms() - AGED_MS
    cluster.produce(0, 40, base)
    cluster.produce(1, 10, base)
    cluster.commit("slow", 5, 4)
    cluster.commit("fast", 38, 10)
    poller = GroupPoller(cluster.settings(), tmp_path)
    poller.check()
    first = records(poller.poll_once(now_ms()))
    assert poller.last.problems == []
    assert [r["event_type"] for r in first] == [
        "policy",
        *["ledger_state", "cursor_state", "cursor_state"] * 2,
        "group_state",
        "group_state",
    ]
    assert {state for (state,) in of_kind(first, "group_state", "group_state")} == {"empty"}
    assert of_kind(
        first, "ledger_state", "topic", "partition", "log_start", "ledger_entries", "ledger_bytes"
    ) == [(cluster.topic, 0, 0, 40, 4000), (cluster.topic, 1, 0, 10, 1000)]
    assert cursors(first) == {
        ("slow", 0): ("0:4", base + 5000),
        ("fast", 0): ("0:37", base + 38_000),
        ("slow", 1): ("0:3", base + 4000),
        ("fast", 1): ("0:9", None),
    }
    ((text,),) = of_kind(first, "policy", "policy_json")
    assert json.loads(text) == {
        "scope": "topic",
        "name": cluster.topic,
        "limits": {
            "backlog_quota": {
                "message_age": {"limitTime": 604_800, "policy": "consumer_backlog_eviction"}
            }
        },
    }
    # What the job makes of it: lag, the oldest group, its age, and the time until Kafka deletes.
    (check,) = [r for r in rows(first, "group_lag", 0) if r["group"] == cluster.group("slow")]
    assert (check["topic"], check["committed"]) == (cluster.topic, 5)
    assert (check["age_state"], check["oldest_timestamp_ms"]) == ("known", base + 5000)
    assert check["age_s"] == (check["pass_ms"] - base - 5000) // 1000 >= AGED_MS // 1000 - 5
    assert check["limit_s"] == 604_800
    assert check["time_to_loss_s"] == 604_800 - check["age_s"], "from the first check on"
    lag = {
        (r["group"].partition("-")[0], p): (r["lag"], r["lag_records"], r["lag_bytes"])
        for p in (0, 1)
        for r in rows(first, "group_lag", p)
    }
    assert lag == {
        ("slow", 0): (35, None, 3500),
        ("fast", 0): (2, 2, 200),
        ("slow", 1): (6, 6, 600),
        ("fast", 1): (0, 0, 0),
    }

    # More comes, one group moves on.
    cluster.produce(0, 10, base + 60_000)
    cluster.commit("fast", 45, 10)
    second = records(poller.poll_once(now_ms()))
    assert of_kind(second, "policy") == []
    assert of_kind(second, "ledger_state", "ledger_entries", "ledger_bytes") == [
        (50, 5000),
        (10, 1000),
    ]
    assert cursors(second) == {
        ("slow", 0): ("0:4", base + 5000),
        ("fast", 0): ("0:44", base + 65_000),
        ("slow", 1): ("0:3", base + 4000),
        ("fast", 1): ("0:9", None),
    }
    assert second[0]["seq"] == first[-1]["seq"] + 2, "the number between is the poll's"
    so_far = [*first, *second]
    assert {r["lag"] for r in rows(so_far, "group_lag", 0)} == {45, 5}

    # Retention deletes below a committed offset while Weir is down, and a shorter one is set.
    poller.close()
    (deleted,) = cluster.admin.delete_records([TopicPartition(cluster.topic, 0, 20)]).values()
    assert deleted.result(PATIENCE_S).low_watermark == 20
    resource = ConfigResource(
        ConfigResource.Type.TOPIC,
        cluster.topic,
        incremental_configs=[
            ConfigEntry(
                "retention.ms", str(2 * AGED_MS), incremental_operation=AlterConfigOpType.SET
            ),
            ConfigEntry("retention.bytes", "4000", incremental_operation=AlterConfigOpType.SET),
        ],
    )
    for future in cluster.admin.incremental_alter_configs([resource]).values():
        future.result(PATIENCE_S)
    poller = GroupPoller(cluster.settings(), tmp_path)
    third = records(poller.poll_once(now_ms()))
    lost = judge([*so_far, *third], PRECISE)["lost_messages"]
    assert [
        (
            r["group"],
            r["topic"],
            r["partition"],
            r["from_offset"],
            r["to_offset"],
            r["offsets"],
            r["first_sight"],
        )
        for r in lost
    ] == [(cluster.group("slow"), cluster.topic, 0, 5, 20, 15, False)]
    assert cursors(third)["slow", 0] == ("0:4", base + 20_000)
    assert of_kind(third, "ledger_state", "ledger_entries", "ledger_bytes")[0] == (50, 5000)
    so_far += third
    check = rows(so_far, "group_lag", 0)[-1]
    assert (check["group"], check["limit_s"], check["limit_bytes"]) == (
        cluster.group("slow"),
        2 * AGED_MS // 1000,
        4000,
    )
    assert (check["lag"], check["lag_bytes"]) == (45, 3000), "Kafka's number; bytes that are there"

    # The slow group is deleted.
    (done,) = cluster.admin.delete_consumer_groups([cluster.group("slow")]).values()
    done.result(PATIENCE_S)
    fourth = records(poller.poll_once(now_ms()))
    assert of_kind(fourth, "cursor_deleted", "subscription", "partition") == [
        (cluster.group("slow"), 0),
        (cluster.group("slow"), 1),
    ]
    assert {group for group, _ in cursors(fourth)} == {"fast"}
    assert of_kind(fourth, "group_state", "subscription", "group_state") == [
        (cluster.group("fast"), "empty"),
        (cluster.group("slow"), "known"),
    ]
    so_far += fourth
    fast, slow = rows(so_far, "group_lag", 0)
    assert (fast["group"], fast["lag"], fast["lag_bytes"]) == (cluster.group("fast"), 5, 500)
    assert fast["oldest_timestamp_ms"] == base + 65_000
    assert (slow["state"], slow["lag"]) == ("offsets_expired", None)
    (expired,) = [r for r in rows(so_far, "group_states", 0) if r["group"] == cluster.group("slow")]
    assert (expired["state"], expired["unread"]) == ("offsets_expired", 30)

    # The topic is deleted and made anew: nothing of the old one stays.
    cluster.admin.delete_topics([cluster.topic])[cluster.topic].result(PATIENCE_S)
    wait_for(lambda: cluster.topic not in cluster.admin.list_topics(timeout=PATIENCE_S).topics)
    wait_for(lambda: cluster.committed("fast") == [])
    fifth = records(poller.poll_once(now_ms()))
    assert [r["event_type"] for r in fifth] == [
        "policy",
        *["ledger_deleted", "cursor_deleted"] * 2,
        "group_state",
    ]
    assert of_kind(fifth, "group_state", "subscription", "topic", "group_state") == [
        (cluster.group("fast"), None, "no_offset")
    ]
    ((text,),) = of_kind(fifth, "policy", "policy_json")
    assert json.loads(text)["limits"] == {}
    cluster.kafka.create_topic(cluster.topic, 1)
    wait_for(lambda: cluster.topic in cluster.admin.list_topics(timeout=PATIENCE_S).topics)
    sixth = records(poller.poll_once(now_ms()))
    assert of_kind(sixth, "ledger_state", "partition", "ledger_entries") == [(0, 0)]
    assert of_kind(sixth, "cursor_state", "subscription") == []


def test_a_topic_made_anew_between_two_polls(cluster: Cluster, tmp_path: Path) -> None:
    cluster.produce(0, 5, now_ms() - AGED_MS)
    cluster.commit("g", 3)
    poller = GroupPoller(cluster.settings(retention_as_quota=False), tmp_path)
    first = records(poller.poll_once(now_ms()))
    assert of_kind(first, "policy") == []
    cluster.admin.delete_topics([cluster.topic])[cluster.topic].result(PATIENCE_S)
    wait_for(lambda: cluster.topic not in cluster.admin.list_topics(timeout=PATIENCE_S).topics)
    cluster.kafka.create_topic(cluster.topic, 1)
    at = now_ms() - 5000
    cluster.produce(0, 5, at)
    cluster.commit("g", 3)
    second = records(poller.poll_once(now_ms()))
    assert [r["event_type"] for r in second] == [
        "ledger_deleted",
        "cursor_deleted",
        "ledger_deleted",
        "cursor_deleted",
        "group_state",
    ]
    time.sleep(1)  # the interval of the checks
    third = records(poller.poll_once(now_ms()))
    assert [r["event_type"] for r in third] == ["ledger_state", "cursor_state", "group_state"]
    assert cursors(third) == {("g", 0): ("0:2", at + 3000)}
    (check,) = rows([*first, *second, *third], "group_lag", 0)
    assert check["oldest_timestamp_ms"] == at + 3000, "not that of the old topic"
    polled = [*first, *second, *third]
    until_ms = max(r["ts_wall_ms"] for r in polled) + 2002
    states = judge(polled, PRECISE, until_ms=until_ms)["group_states"]
    assert [r["partition"] for r in states if r["state"] == "gone"] == [0, 1]
    assert {r["state"] for r in states if r["topic"]} <= {"gone", "no_offset"}


def test_messages_of_other_kinds(cluster: Cluster, tmp_path: Path) -> None:
    """Headers and keys have a size; what nobody commits has no cursor; all topics are polled."""
    at = now_ms() - AGED_MS
    cluster.kafka.send(
        cluster.topic,
        [
            {"value": None, "key": b"k" * 10, "partition": 0, "timestamp": at},
            {
                "value": b"v" * 20,
                "headers": {"name": b"0" * 6},
                "partition": 0,
                "timestamp": at + 1,
            },
        ],
    )
    cluster.commit("g", 0)
    poller = GroupPoller(cluster.settings(topics=[], groups=[], publish_reads=1000), tmp_path)
    found = records(poller.poll_once(now_ms()))
    topics = {r["topic"] for r in found if "topic" in r}
    assert cluster.topic in topics and not any(name.startswith("__") for name in topics)
    mine = [r for r in found if r.get("topic") == cluster.topic]
    assert cursors(mine) == {("g", 0): ("0:-1", at)}
    assert of_kind(mine, "ledger_state", "ledger_entries", "ledger_bytes") == [(2, 40), (0, 0)]
    assert all(group for (group,) in of_kind(found, "cursor_state", "subscription"))


def test_a_broker_that_is_away_deletes_nothing(
    cluster: Cluster, kafka: Kafka, tmp_path: Path
) -> None:
    cluster.produce(0, 5, now_ms() - AGED_MS)
    cluster.commit("g", 3, 0)
    poller = GroupPoller(cluster.settings(timeout_ms=3000), tmp_path)
    poller.poll_once(now_ms())  # from the next one on members are asked for
    before = records(poller.poll_once(now_ms()))
    kafka.stop()
    try:
        assert records(poller.poll_once(now_ms())) == []
        assert not poller.last.answered
        assert poller.last.skipped == 2 and poller.last.problems
    finally:
        kafka.start()
    while not poller.last.answered or poller.last.problems:
        time.sleep(0.5)
        poller.poll_once(now_ms())
        assert poller.last.gone == 0
    files = sorted(poller.records.iterdir())
    assert not [r for file in files for r in records(file) if "deleted" in r["event_type"]]
    last = records(files[-1])
    plain = [{**r, "seq": 0, "ts_wall_ms": 0} for r in last]
    assert plain == [
        {**r, "seq": 0, "ts_wall_ms": 0} for r in before if r["event_type"] != "policy"
    ]


def test_a_user_with_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = partial(LoggingKafka, tmp_path / "broker", ["weir"])
    with serving(made, "Kafka broker") as broker:
        cluster = Cluster(broker)
        broker.create_topic(cluster.topic)
        cluster.produce(0, 3, now_ms() - AGED_MS)
        cluster.commit("g", 1)
        options = broker.client("weir")
        monkeypatch.setenv("KG_PASSWORD", options["sasl.password"])
        options["sasl.password"] = "${env:KG_PASSWORD}"
        settings = cluster.settings(options=options, timeout_ms=5000)
        poller = GroupPoller(settings, tmp_path / "spool")
        poller.check()
        found = records(poller.poll_once(now_ms()))
        assert (poller.last.problems, len(cursors(found))) == ([], 1)
        assert all(at for _, at in cursors(found).values())
        monkeypatch.setenv("KG_PASSWORD", "wrong-one")
        with pytest.raises(UserError, match="uthentication failed") as error:
            GroupPoller(settings, tmp_path / "other").check()
        assert "wrong-one" not in str(error.value)


def test_groups_through_the_service(
    cluster: Cluster,
    spark: SparkSession,
    make_settings: Callable[..., Settings],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Age, owner, time to loss and forecast in the tables and views of a run on the feed itself."""
    base = now_ms() - AGED_MS
    cluster.produce(0, 40, base)
    cluster.produce(1, 10, base - 30_000)
    cluster.commit("slow", 5, 4)
    cluster.commit("fast", 38, 10)
    config = make_settings(
        source={
            "format": "kafka_groups",
            "groups": cluster.settings().model_dump(exclude_unset=True),
        },
        policies=[{"scope": "broker", "name": "*", "limits": PRECISE}],
        shards=2,
    )
    assert run(config, available_now=True) == 0
    time.sleep(3)  # the interval of the checks is one second, and a forecast needs three
    assert run(config, available_now=True) == 0
    day_s = 86_400
    oldest = {("slow", 0): base + 5000, ("slow", 1): base - 26_000, ("fast", 0): base + 38_000}
    lags = stored(config, ("group_lag", "backlog_checks"))
    assert lags["backlog_checks"] == [], "no row of Kafka speaks of a subscription"
    checks = [r for r in lags["group_lag"] if r["lag"]]
    assert len({r["pass_ms"] for r in checks}) >= 3
    for r in checks:
        at = oldest[r["group"].partition("-")[0], r["partition"]]
        age_s = (r["pass_ms"] - at) // 1000
        assert {
            k: r[k]
            for k in (
                "topic",
                "state",
                "age_state",
                "age_s",
                "limit_s",
                "time_usage",
                "time_to_loss_s",
            )
        } == {
            "topic": cluster.topic,
            "state": "committed",
            "age_state": "known",
            "age_s": age_s,
            "limit_s": 7 * day_s,
            "time_usage": age_s / (7 * day_s),
            "time_to_loss_s": 7 * day_s - age_s,
        }
    assert {(r["group"].partition("-")[0], r["partition"]): r["lag"] for r in checks} == {
        ("slow", 0): 35,
        ("slow", 1): 6,
        ("fast", 0): 2,
    }
    capsys.readouterr()
    assert main(["forecast", "--json", "--warehouse", config.warehouse]) == 0
    checks.sort(key=lambda r: r["pass_ms"])
    last = {(r["group"], r["partition"]): r["pass_ms"] + 1000 * r["time_to_loss_s"] for r in checks}
    assert [
        (
            (row["group_or_subscription"], row["partition"]),
            row["kind"],
            row["limit"],
            row["predicted"],
            moment_ms(row["breach"], "breach"),
        )
        for row in json.loads(capsys.readouterr().out)
    ] == [
        (key, "retention_age", 7 * day_s, None, at_ms)
        for key, at_ms in sorted(last.items(), key=lambda item: item[1])
    ]
