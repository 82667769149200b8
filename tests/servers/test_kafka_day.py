"""All of a Kafka cluster's situations at once, with Weir beside as README configures it: what is wrong is
said by its cause, and nothing else is."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.config.settings import load_settings
from app.show.reconcile.spans import differs
from tests.servers.kafka_day import BROKER, GHOSTS, ODD, RELEASE, Day, exporter
from tests.servers.kafka_life import LATE_S, weir
from tests.support.backlog_views import stored
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.process import Server, serving
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
SECONDS = 600
FOR_S = {"group-open-transaction": 300, "client-throttled": 120}
"""How long a condition lasts before it fires."""


@pytest.fixture
def day(tmp_path: Path) -> Iterator[tuple[Day, str]]:
    option, rules, address = exporter(tmp_path)
    made = Kafka(tmp_path / "kafka", BROKER, version=RELEASE, options=[option])
    with serving(lambda: made, "Kafka broker") as kafka:
        lived = Day(kafka, tmp_path, rules)
        with lived.admin:
            lived.begin()
            yield lived, address


def configured(day: Day, address: str) -> Path:
    """README's configuration of one cluster, with a login and more frequent checks."""
    options = {
        "kafka.bootstrap.servers": day.kafka.secure_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{USER}" password="{PASSWORD}";',
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(day.kafka.certificate),
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    document = {
        "warehouse": str(day.folder / "warehouse"),
        "partitions": 2,
        "alerts": {"interval_ms": 5000},
        "reconcile": {},
        "quality": {"interval_ms": 120_000},
        "policies": [
            {"scope": "broker", "name": "*", "limits": {"backlogQuotaCheckIntervalInSeconds": 10}}
        ],
        "source": [
            {
                "cluster": "east",
                "format": ["kafka_groups", "kafka_producers", "kafka_quotas"],
                "options": options,
                "groups": {"interval_ms": 10_000, "timeout_ms": 30_000},
                "quotas": {"exporters": {"1": address}},
            }
        ],
    }
    file = day.folder / "weir.yaml"
    file.write_text(yaml.safe_dump(document), "utf-8")
    return file


def test_every_situation_is_told_by_its_cause(day: tuple[Day, str]) -> None:
    lived, address = day
    file = configured(lived, address)
    config = load_settings(file)
    command = [sys.executable, "-m", "app.cli", "run", "--config", str(file)]
    run = Server(command, lived.folder / "run.log", patience_s=120)

    def query(*words: str) -> list[dict[str, Any]]:
        done = weir(file, "query", *words, "--json")
        assert done.returncode == 0, done.stderr
        rows: list[dict[str, Any]] = json.loads(done.stdout)
        return rows

    try:
        lived.live()
        run.start(lambda log: "started: " in log, timeout_s=400)
        wait_for(lived.polls.exists, 180)
        lived.polled(3)
        wait_for(
            lambda: any("kraft-3_0_0" in str(row["last_problem"]) for row in query("fleet")), 120
        )
        lived.dawn(weir(file, "validate", "--connect").stdout)
        begun = time.monotonic()
        for share, happens in ((0.58, lived.morning), (0.6, lived.noon), (0.7, lived.evening)):
            time.sleep(max(begun + share * SECONDS - time.monotonic(), 0))
            happens()
        time.sleep(max(begun + SECONDS - time.monotonic(), 0))
        ended = time.monotonic()
        # The run compares as well, at its own times; a command says then to wait for its end.
        while "wait for its end" in (compared := weir(file, "reconcile")).stderr:
            time.sleep(1)
        connected = weir(file, "validate", "--connect")
    finally:
        run.stop()
        lived.rest()

    # What is due has fired, and nothing else has.
    tables = stored(config, ["alerts", "quarantine", "reconciliation", "quality_results"])
    fired, texts = set(), {}
    for row in sorted(tables["alerts"], key=lambda r: r["number"]):
        of = dict(row["labels"])
        who = of.get("group") or of.get("producer") or of.get("client") or of.get("user") or ""
        about = row["alert"], who, of.get("topic") or of.get("quota_type") or ""
        texts[about] = row["summary"]
        print(row["at_ms"], row["state"], row["severity"], row["alert"], row["summary"])
        fired |= {about} if row["state"] == "firing" else set()
    due = {a for a, at in lived.alerts.items() if at + FOR_S.get(a[0], 0) + LATE_S < ended}
    assert due == lived.alerts.keys() == fired
    eos = texts["group-open-transaction", "eos-g", "eos"]
    assert "next offsets" in eos and "transaction eos-1 is open" in eos
    hung = texts["group-open-transaction", "waits", "hung"]
    assert f"a transaction of producer id {GHOSTS['hung']}" in hung
    assert "10000 (user)" in texts["client-throttled", "etl", "produce"]
    assert tables["quarantine"] == []
    assert [row for row in tables["quality_results"] if not row["success"]] == []
    assert [row for row in tables["reconciliation"] if differs(row)] == []
    assert compared.returncode == 0 and "0 differ" in compared.stdout, compared
    assert "measured clients" in connected.stdout and "WARN" not in connected.stdout, connected

    # Each question names the cause.
    lag = {(row["group"], row["topic"]): row for row in query("lag")}
    found = {key[0]: (row["state"], row["consumers"], row["trend"]) for key, row in lag.items()}
    assert {key: found[key] for key in ("eos-g", "waits", "night-g", "calm")} == {
        "eos-g": ("pending_offsets", "empty", "has no member"),
        "waits": ("open_transaction", "empty", "has no member"),
        "night-g": ("committed", "empty", "has no member"),
        "calm": ("committed", "empty", "nothing unread"),
    }
    left = lag["mover", "left"]
    assert (left["consumers"], left["trend"]) == ("stable", "has no member")
    assert lag["mover", "kept"]["lag"] < 20
    assert lag["loop-g", "loop"]["rebalances"] > 3
    assert {group: row["lost"] for (group, _), row in lag.items() if row["lost"]} == {"rc": 11}
    assert [(r["group"], r["offsets"]) for r in query("group-losses")] == [("rc", 11)]
    assert lag["moved-g", "moved"]["log_start"] == 10
    throttled = [(r["quota_type"], r["user"] or r["client"]) for r in query("throttled-clients")]
    assert sorted(throttled) == [("fetch", "scan"), ("produce", "etl"), ("request", "busy")]
    busy = f"client = 'busy' AND window_start_ms > {lived.unlimited_ms} AND throttled > 0"
    assert query(f"FROM client_quota_stats SELECT * WHERE {busy}") == []
    idle = {(row["user"] or row["client"], row["bound"]) for row in query("idle-quotas")}
    assert {("\\<default>", 777), ("\\<default>", 1000)} <= idle
    assert all(row["bytes"] is None or row["bytes"] < 1e9 for row in query("unlimited-clients"))
    measured = query("SELECT DISTINCT client_id FROM events WHERE event_type = 'client_rate'")
    assert {row["client_id"] for row in measured} >= {*ODD}

    # So do the sentences about one of them, and the page.
    for words, said in (
        (("group", "eos-g"), "transaction eos-1 of producer id"),
        (("group", "waits"), "last stable offset"),
        (("group", "rc"), "none of it is a record"),
        (("group", "mover"), "No member of the group has the partition"),
        (("group", "night-g"), "No member of the group has the partition"),
        (("group", "loop-g"), "new rebalances"),
        (("client", "etl", "etl-load"), "Which clients share the produce quota of user etl is not"),
        (("client", "ANONYMOUS", "scan"), "The metrics of 1 show that it throttles"),
        (("client", "ANONYMOUS", "busy"), "No request quota holds for client busy"),
    ):
        done = weir(file, "explain", *words)
        assert said in " ".join(done.stdout.split()), done
    page = weir(file, "report", "--json")
    assert page.returncode == 0, page.stderr
    remedies = {action["remedy"] for action in json.loads(page.stdout)["actions"]}
    assert remedies == {
        "Start consumers of group rc for topic trimmed: no member has it",
        "End the transaction eos-1",
        f"End the transaction of producer id {GHOSTS['hung']}",
        "Give user etl another produce quota, or find out why it exceeds it",
        "Give client busy another request quota, or find out why it exceeds it",
        "Give client scan another fetch quota, or find out why it exceeds it",
    }
    log = run.log.read_text("utf-8")
    assert "ERROR" not in log and "Traceback" not in log
