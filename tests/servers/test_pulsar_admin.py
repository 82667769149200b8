"""Polls of a real Pulsar broker, held against what the broker's own documents say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.config.pulsar_admin import PulsarAdminSettings
from app.sources.pulsar.admin_poll import AdminPoller
from tests.support.polled import lines, of_kind
from tests.support.servers.pulsar import Pulsar
from tests.support.waiting import wait_for

NAMESPACE = "public/weir"
NAME = f"{NAMESPACE}/t"
TOPIC = f"persistent://{NAME}"
SIZE, AGE_S = 1_000_000, 3600
AWAY = "http://no-such-host.invalid:8080"
Json = dict[str, Any]


@pytest.fixture(scope="module")
def topic(pulsar: Pulsar) -> str:
    """A topic of three ledgers, the last one open, with a slow and a fast subscription."""
    pulsar.run_with()
    pulsar.ask("PUT", f"namespaces/{NAMESPACE}", {})
    quota(pulsar, "destination_storage", {"limitSize": SIZE, "policy": "producer_exception"})
    quota(pulsar, "message_age", {"limitTime": AGE_S, "policy": "producer_request_hold"})
    pulsar.ask("PUT", f"persistent/{NAME}", {})
    pulsar.ask("PUT", f"persistent/{NAME}/subscription/slow")
    pulsar.ask("PUT", f"persistent/{NAME}/subscription/fast")
    pulsar.publish(NAME, [f"message {i} " + "x" * i for i in range(60)])
    pulsar.ask("POST", f"persistent/{NAME}/subscription/slow/skip/7")
    pulsar.ask("POST", f"persistent/{NAME}/subscription/fast/skip_all")
    return TOPIC


def quota(pulsar: Pulsar, kind: str, limits: Json) -> None:
    pulsar.ask("POST", f"namespaces/{NAMESPACE}/backlogQuota?backlogQuotaType={kind}", limits)


def settings(pulsar: Pulsar) -> PulsarAdminSettings:
    return PulsarAdminSettings(
        cluster="standalone",
        url=[pulsar.url],
        namespaces=[NAMESPACE],
        timeout_ms=5000,
        retries=1,
        interval_ms=2000,
    )


def records(path: Path | None, name: str = TOPIC) -> list[Json]:
    """The records of a file, policies and those of one topic; the last one is of the poll itself."""
    return [record for record in lines(path) if record.get("topic") in (None, name)]


def policies(found: list[Json]) -> dict[str, Json]:
    documents = [json.loads(text) for (text,) in of_kind(found, "policy", "policy_json")]
    return {f"{each['scope']} {each['name']}": each["limits"] for each in documents}


def now_ms() -> int:
    return int(time.time() * 1000)


def backlog_bytes(found: list[Json]) -> int:
    """The backlog of the slowest durable cursor, by the averages of the ledgers."""
    ledgers = of_kind(found, "ledger_state", "ledger_id", "ledger_entries", "ledger_bytes")
    positions = [
        tuple(map(int, place.split(":")))
        for place, durable in of_kind(found, "cursor_state", "mark_delete", "durable")
        if durable
    ]
    ledger_id, entry = min(positions)
    left = sum(size for ledger, _, size in ledgers if ledger >= ledger_id)
    for ledger, entries, size in ledgers:
        if ledger == ledger_id and entries:
            left -= size if entry + 1 >= entries else (entry + 1) * (size // entries)
    return left


def test_a_life_of_a_topic(pulsar: Pulsar, topic: str, tmp_path: Path) -> None:
    poller = AdminPoller(settings(pulsar), tmp_path)
    poller.check()
    before = now_ms()
    first = records(poller.poll_once(before))
    assert (poller.last.problems, poller.last.polled) == ([], 1)
    answered = {
        name: pulsar.ask("GET", f"persistent/{NAME}/{path}")
        for name, path in {
            "internal": "internalStats",
            "info": "internal-info",
            "stats": "stats?getEarliestTimeInBacklog=true&subscriptionBacklogSize=true",
        }.items()
    }
    # Ledgers as the broker has them, the open one with its live figures.
    inside, stats = answered["internal"], answered["stats"]
    told = of_kind(
        first, "ledger_state", "ledger_id", "ledger_entries", "ledger_bytes", "ledger_close_ms"
    )
    closed = [x["timestamp"] for x in answered["info"]["ledgers"][:-1]]
    assert [row[0] for row in told] == [x["ledgerId"] for x in inside["ledgers"]]
    assert [row[1] for row in told] == [25, 25, 10]
    assert sum(row[2] for row in told) == inside["totalSize"] == stats["storageSize"]
    assert [row[3] for row in told] == [*closed, None]
    assert all(before - 60_000 < at <= before for at in closed)
    # Cursors, and when the oldest message of the slow one was published.
    ids = [row[0] for row in told]
    assert of_kind(first, "cursor_state", "subscription", "mark_delete", "durable") == [
        (name, inside["cursors"][name]["markDeletePosition"], True) for name in inside["cursors"]
    ]
    positions = dict(of_kind(first, "cursor_state", "subscription", "mark_delete"))
    assert positions == {"slow": f"{ids[0]}:6", "fast": f"{ids[2]}:9"}
    published = dict(of_kind(first, "cursor_state", "subscription", "publish_time_ms"))
    assert published["fast"] is None
    assert published["slow"] == stats["earliestMsgPublishTimeInBacklogs"]
    assert before - 60_000 < published["slow"] <= before
    assert backlog_bytes(first) == stats["backlogSize"]
    assert {record["broker"] for record in first if "topic" in record} == {stats["ownerBroker"]}
    # Limits as they were set, and as the broker says that they are in force.
    limits = policies(first)
    assert limits[f"namespace {NAMESPACE}"] == {
        "backlog_quota": {
            "destination_storage": {"limitSize": SIZE, "policy": "producer_exception"},
            "message_age": {"limitTime": AGE_S, "policy": "producer_request_hold"},
        }
    }
    assert (stats["backlogQuotaLimitSize"], stats["backlogQuotaLimitTime"]) == (SIZE, AGE_S)
    assert limits["broker *"]["backlogQuotaCheckIntervalInSeconds"] == 2
    assert limits["broker *"]["preciseTimeBasedBacklogQuotaCheck"] is False
    assert set(limits) == {f"namespace {NAMESPACE}", "broker *"}
    # Nothing happens, so nothing but states is told, and the same ones.
    second = records(poller.poll_once(now_ms()))
    assert [{**r, "seq": 0, "ts_wall_ms": 0} for r in second] == [
        {**r, "seq": 0, "ts_wall_ms": 0} for r in first if r["event_type"] != "policy"
    ]
    # Weir is down while a subscription goes, the other one catches up and limits change.
    poller.close()
    pulsar.ask("DELETE", f"persistent/{NAME}/subscription/fast")
    pulsar.ask("POST", f"persistent/{NAME}/subscription/slow/skip_all")
    pulsar.ask("DELETE", f"namespaces/{NAMESPACE}/backlogQuota?backlogQuotaType=message_age")
    pulsar.ask(
        "POST",
        f"persistent/{NAME}/publishRate",
        {
            "publishThrottlingRateInMsg": 100,
            "publishThrottlingRateInByte": -1,
        },
    )

    def trimmed() -> bool:  # a broker trims what it knows to be read at that moment
        pulsar.ask("POST", f"persistent/{NAME}/trim")
        return len(pulsar.ask("GET", f"persistent/{NAME}/internalStats")["ledgers"]) == 1

    wait_for(trimmed)
    wait_for(lambda: pulsar.ask("GET", f"persistent/{NAME}/publishRate") is not None)
    poller = AdminPoller(settings(pulsar), tmp_path)
    third = records(poller.poll_once(now_ms()))
    assert of_kind(third, "ledger_deleted", "ledger_id") == [(ids[0],), (ids[1],)]
    assert of_kind(third, "cursor_deleted", "subscription") == [("fast",)]
    assert of_kind(third, "cursor_state", "mark_delete", "publish_time_ms") == [
        (f"{ids[2]}:9", None),
    ]
    assert backlog_bytes(third) == 0
    assert policies(third) == {
        f"namespace {NAMESPACE}": {
            "backlog_quota": {
                "destination_storage": {"limitSize": SIZE, "policy": "producer_exception"},
            }
        },
        f"topic {TOPIC}": {"publishRateInMsgs": 100},
    }
    order = [record["event_type"] for record in third]
    assert order == sorted(
        order,
        key=["policy", "ledger_deleted", "cursor_deleted", "ledger_state", "cursor_state"].index,
    )
    # The topic is deleted; a partitioned one takes its place.
    pulsar.ask("DELETE", f"persistent/{NAME}?force=true")
    pulsar.ask("PUT", f"persistent/{NAMESPACE}/p/partitions", 2)
    pulsar.ask("PUT", f"persistent/{NAMESPACE}/p/subscription/s")
    path = poller.poll_once(now_ms())
    assert poller.last.problems == []
    fourth = records(path)
    assert of_kind(fourth, "ledger_deleted", "ledger_id") == [(ids[2],)]
    assert of_kind(fourth, "cursor_deleted", "subscription") == [("slow",)]
    for i in range(2):
        part = records(path, f"persistent://{NAMESPACE}/p-partition-{i}")
        assert of_kind(part, "cursor_state", "subscription") == [("s",)]


def test_a_broker_that_is_away_deletes_nothing(pulsar: Pulsar, topic: str, tmp_path: Path) -> None:
    name = f"{NAMESPACE}/kept"
    pulsar.ask("PUT", f"persistent/{name}", {})
    pulsar.ask("PUT", f"persistent/{name}/subscription/s")
    pulsar.publish(name, ["a", "b", "c"])
    poller = AdminPoller(settings(pulsar), tmp_path)
    poller.poll_once(now_ms())
    pulsar.stop()
    assert records(poller.poll_once(now_ms())) == [] and not poller.last.answered
    assert poller.last.skipped > 0 and poller.last.polled == poller.last.gone == 0
    pulsar.start()
    after = records(poller.poll_once(now_ms()), f"persistent://{name}")
    assert poller.last.gone == 0
    assert of_kind(after, "cursor_deleted", "subscription") == []
    ((place,),) = of_kind(after, "cursor_state", "mark_delete")
    stats = pulsar.ask("GET", f"persistent/{name}/stats?subscriptionBacklogSize=true")
    assert stats["subscriptions"]["s"]["msgBacklog"] == 3, place
    assert backlog_bytes(after) == stats["backlogSize"]


def unanswered(kind: str, pulsar: Pulsar, folder: Path) -> tuple[Json, str]:
    """Settings of a broker that cannot be polled with them, and what is said of it."""
    secure = pulsar.secure_service_url.split(":")[-1]
    if kind == "bearer":
        (folder / "token").write_text("Bearer abc.def.ghi\n")
        return {"token_file": str(folder / "token")}, "without the word Bearer"
    if kind == "binary":
        return {"url": [pulsar.service_url.replace("pulsar", "http")]}, "of another protocol"
    if kind == "binary over TLS":
        return {"url": [f"http://127.0.0.1:{secure}"]}, "TLS"
    if kind == "https without TLS":
        return {"url": [pulsar.url.replace("http", "https")]}, "TLS"
    if "away" not in pulsar.ask("GET", "clusters"):
        where = {"serviceUrl": AWAY, "brokerServiceUrl": "pulsar://no-such-host.invalid:1"}
        pulsar.ask("PUT", "clusters/away", where)
        pulsar.ask("POST", "clusters/standalone/peers", ["away"])
        pulsar.ask("PUT", "tenants/away", {"allowedClusters": ["standalone", "away"]})
        pulsar.ask("PUT", "namespaces/away/ns", {"replication_clusters": ["away"]})
    is_known = kind == "redirect to a known name"
    said = f"redirected to {AWAY}{', cannot be reached (' if is_known else '/admin/v2/'}"
    urls = [pulsar.url, *([AWAY] if is_known else [])]
    return {"namespaces": [], "topics": ["persistent://away/ns/t"], "url": urls}, said


@pytest.mark.parametrize(
    "kind",
    [
        "bearer",
        "binary",
        "binary over TLS",
        "https without TLS",
        "redirect to a known name",
        "redirect to another name",
    ],
)
@pytest.mark.parametrize("words", [("validate", "--connect"), ("run", "--available-now")])
def test_a_broker_that_cannot_be_polled_is_told_by_its_cause(
    pulsar: Pulsar, kind: str, words: tuple[str, ...], tmp_path: Path, capsys: Any
) -> None:
    pulsar.run_with()
    own, said = unanswered(kind, pulsar, tmp_path)
    admin = {"cluster": "standalone", "url": [pulsar.url], "namespaces": ["public/default"]}
    config = tmp_path / "weir.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(tmp_path / "wh"),
                "metrics": None,
                "source": {
                    "format": "pulsar_admin",
                    "admin": {**admin, "retries": 0, "timeout_ms": 5000, **own},
                },
            }
        )
    )
    code = main([*words, "--config", str(config)])
    out, err = capsys.readouterr()
    print(out, err)
    assert code == 2 and said in out + err and "Traceback" not in err
