"""A night of the owner of three Kafka clusters, one of which asks for a login and one of which is of an
older release: groups that lag, a retention that deletes what they have not read, an Alertmanager, and
an evaluator that is killed, first alone and then with the run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from app.cli import main
from tests.crash.service import Service
from tests.servers.kafka_life import Life
from tests.support.servers.alertmanager import Alertmanager
from tests.support.servers.kafka import MECHANISM, PASSWORD, USER, Kafka
from tests.support.servers.process import serving
from tests.support.waiting import wait_for
from tests.unit.show.alerts.receiver import Receiver, receiving

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
RELEASES = {"east": "4.1.0", "west": "3.9.1", "south": "4.1.0"}
LOGIN = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required"
    f' username="{USER}" password="{PASSWORD}";'
)
OFTEN = {"log.retention.check.interval.ms": 1000}
HOURS_MS, MINUTE_MS = str(2 * 3_600_000), "60000"
LOST, WATCHDOG, EVALUATOR = "group-lost-messages", "weir-watchdog", "side_processes alerts"
Place = tuple[str, str, int]
"""A cluster, a group and a partition."""
SECONDS = 300
"""For what a run does, its start included."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where Alertmanager sends what it was told."""
    with receiving() as found:
        yield found


@pytest.fixture
def manager(tmp_path: Path, receiver: Receiver) -> Iterator[Alertmanager]:
    with serving(lambda: Alertmanager(tmp_path, receiver.url), "Alertmanager") as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[dict[str, Life]]:
    """In each cluster a topic of two partitions, whose records are an hour old and kept for two; a
    group that has read five of forty records, and one that has read all."""
    with ExitStack() as stack:
        made = {}
        for name, version in RELEASES.items():
            make = partial(Kafka, tmp_path / name, OFTEN, version)
            broker = stack.enter_context(serving(make, f"Kafka {version}"))
            life = made[name] = Life(broker, tmp_path / name)
            stack.enter_context(life.admin)
            life.topic("orders", 2, retention_ms=HOURS_MS)
            life.send("orders", 40, age_s=3600)
            life.send("orders", 10, partition=1, age_s=3600)
            for group, read in (("slow", 5), ("quick", 40)):
                life.commit(group, "orders", read)
                life.commit(group, "orders", 10, partition=1)
        yield made


def configured(fleet: dict[str, Life], manager: Alertmanager, folder: Path) -> Path:
    """The README's configuration, with a login for the cluster that asks for one."""
    login = {
        "kafka.bootstrap.servers": fleet["south"].kafka.secure_servers,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": MECHANISM,
        "kafka.sasl.jaas.config": "${env:KAFKA_LOGIN}",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(fleet["south"].kafka.certificate),
        "kafka.ssl.endpoint.identification.algorithm": "",
    }
    feeds = [
        {
            "cluster": name,
            "format": ["kafka_groups", "kafka_producers", "kafka_quotas"],
            "options": login
            if name == "south"
            else {"kafka.bootstrap.servers": life.kafka.servers},
            "groups": {"interval_ms": 2000, "timeout_ms": 30_000},
            "producers": {"timeout_ms": 30_000},
            "quotas": {"timeout_ms": 30_000},
        }
        for name, life in fleet.items()
    ]
    sink = {
        "type": "alertmanager",
        "url": manager.url,
        "resend_ms": 1000,
        "watchdog_ms": 10_000,
        "labels": {"team": "night"},
    }
    document = {
        "warehouse": str(folder / "warehouse"),
        "source": feeds,
        "alerts": {"interval_ms": 1000, "sinks": [sink]},
    }
    config = folder / "weir.yaml"
    config.write_text(yaml.safe_dump(document), "utf-8")
    return config


def named(alerts: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    """How often each is there."""
    names = ("alertname", "cluster", "group", "topic")
    return Counter(tuple(each["labels"].get(name, "") for name in names) for each in alerts)


def test_a_night_with_three_clusters(
    fleet: dict[str, Life],
    manager: Alertmanager,
    receiver: Receiver,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KAFKA_LOGIN", LOGIN)
    config = configured(fleet, manager, tmp_path)

    def asked(*words: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([*words, "--config", str(config)]) == code, capsys.readouterr()
        out = capsys.readouterr().out
        return json.loads(out) if "--json" in words else out

    def found(question: str, value: str) -> dict[Place, int]:
        """By cluster, group and partition; nothing as long as there is no table."""
        capsys.readouterr()
        if main(["query", question, "--json", "--config", str(config)]):
            return {}
        rows = json.loads(capsys.readouterr().out)
        return {(r["cluster"], r["group"], r["partition"]): r[value] for r in rows}

    def lost() -> dict[Place, int]:
        return found("group-losses", "offsets")

    def answers() -> bool:
        capsys.readouterr()
        code = main(["validate", "--connect", "--json", "--config", str(config)])
        connected = json.loads(capsys.readouterr().out)["connect"]
        return code == 0 and len(connected) > 2 * len(RELEASES) and all(c["ok"] for c in connected)

    wait_for(answers, SECONDS)
    with closing(Service(config)) as run:
        behind = {(name, "slow", 0): 35 for name in RELEASES}
        wait_for(lambda: found("lag", "lag").items() >= behind.items(), SECONDS)
        lags = found("lag", "lag")
        for name, life in fleet.items():
            of_broker = {(name, g, p): lag for (g, _, p), lag in life.lags().items() if lag}
            ours = {place: lag for place, lag in lags.items() if lag and place[0] == name}
            assert ours == of_broker
        assert lost() == {}

        for name in ("east", "south"):
            fleet[name].change("orders", retention_ms=MINUTE_MS)
        gone = {(name, "slow", 0): 35 for name in ("east", "south")}
        wait_for(lambda: lost() == gone, SECONDS)
        expected = {(LOST, name, "slow", "orders") for name in ("east", "south")}
        wait_for(lambda: expected <= named(receiver.notified("firing")).keys(), SECONDS)
        wait_for(lambda: receiver.notified("firing", WATCHDOG), SECONDS)

        (first,) = evaluators(run)
        first.kill()
        wait_for(lambda: evaluators(run) not in ([], [first]), SECONDS)
        told = len(receiver.notified("firing", WATCHDOG))
        resolved = len(receiver.notified("resolved", WATCHDOG))
        run.kill()
    before = named(receiver.notified("resolved"))
    wait_for(lambda: len(receiver.notified("resolved", WATCHDOG)) > resolved, SECONDS)
    assert {key[0] for key in named(receiver.notified("resolved")) - before} == {WATCHDOG}
    assert expected <= named(manager.alerts()).keys()

    with closing(Service(config)) as run:
        wait_for(lambda: len(receiver.notified("firing", WATCHDOG)) > told, SECONDS)
        run.wait_for_batches(2, next(iter(queries(config))))
        run.terminate()
        run.end_well()
    assert named(receiver.notified("firing", LOST)) == Counter(expected)
    assert receiver.notified("resolved", LOST) == []
    assert lost() == gone

    page = tmp_path / "report.html"
    asked("report", "--out", str(page))
    text = page.read_text("utf-8")
    assert all(name in text for name in (*RELEASES, "slow"))
    assert {row["cluster"] for row in asked("query", "fleet", "--json")} == {*RELEASES}
    assert LOST in asked("alerts", "check", code=1)
    assert PASSWORD not in text + run.said + config.read_text("utf-8")


def evaluators(run: Service) -> list[psutil.Process]:
    """The process of the alert rules, once it is there."""
    return run.processes(EVALUATOR)


def queries(config: Path) -> list[str]:
    """The queries of its warehouse."""
    return [path.name for path in (config.parent / "warehouse/_weir/checkpoints").iterdir()]
