"""A real Alertmanager is told of an alert, and of its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.show import alerts
from tests.support.servers.alertmanager import Alertmanager
from tests.support.servers.process import serving
from tests.support.sinks import BUSY, RULE, minutes
from tests.support.throttle_rows import OTHER, TOPIC
from tests.support.waiting import wait_for
from tests.unit.show.alerts.receiver import Receiver, receiving

LABELS = {"alertname": "busy", "severity": "critical", "cluster": "east", "fleet": "test"}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Where Alertmanager sends what it was told."""
    with receiving() as found:
        yield found


@pytest.fixture
def manager(tmp_path: Path, receiver: Receiver) -> Iterator[Alertmanager]:
    """An Alertmanager of this test. Skips where it is not installed."""
    with serving(lambda: Alertmanager(tmp_path, receiver.url), "Alertmanager") as server:
        yield server


def notified(
    receiver: Receiver, status: str, times: int = 1, alert: str | None = None
) -> dict[str, Any]:
    """The alert that Alertmanager notified of with this status, once it has so many times."""
    wait_for(lambda: len(receiver.notified(status, alert)) >= times)
    return receiver.notified(status, alert)[times - 1]


def test_an_alert_reaches_alertmanager_and_so_does_its_end(
    manager: Alertmanager,
    receiver: Receiver,
    make_settings: Callable[..., object],
    tmp_warehouse: str,
) -> None:
    sink = {
        "type": "alertmanager",
        "url": manager.url,
        "labels": {"fleet": "test"},
        "watchdog_ms": None,
    }
    settings = make_settings(alerts={"rules": [RULE], "rule_files": [], "sinks": [sink]})
    minutes(tmp_warehouse, 0, **BUSY)
    assert alerts.check(settings) == 1
    (held,) = manager.alerts()
    assert held["labels"] == {**LABELS, "topic": TOPIC}
    assert held["startsAt"] == "2023-11-14T22:14:00.000Z"
    assert held["status"]["state"] in ("unprocessed", "active")
    told = notified(receiver, "firing")
    assert told["annotations"] == {
        "summary": f"{TOPIC} sent 6000 of 100",
        "runbook": "docs/busy.md",
        "value": "6000",
    }
    minutes(tmp_warehouse, 1)
    minutes(tmp_warehouse, 1, topic=OTHER, **BUSY)
    assert alerts.check(settings) == 1
    assert notified(receiver, "resolved")["labels"] == {**LABELS, "topic": TOPIC}
    assert [alert["labels"]["topic"] for alert in manager.alerts()] == [OTHER]


def test_while_nobody_evaluates_alerts_stay_and_the_watchdog_ends(
    manager: Alertmanager,
    receiver: Receiver,
    make_settings: Callable[..., object],
    tmp_warehouse: str,
) -> None:
    sink = {"type": "alertmanager", "url": manager.url, "resend_ms": 500, "watchdog_ms": 1}
    settings = make_settings(
        alerts={"interval_ms": 500, "rules": [RULE], "rule_files": [], "sinks": [sink]}
    )
    minutes(tmp_warehouse, 0, **BUSY)
    assert alerts.check(settings) == 1
    told = [notified(receiver, "firing", alert=name) for name in ("busy", "weir-watchdog")]
    assert [each["labels"]["severity"] for each in told] == ["critical", "none"]
    assert notified(receiver, "resolved")["labels"]["alertname"] == "weir-watchdog"
    assert [alert["labels"]["alertname"] for alert in manager.alerts()] == ["busy"]
    assert alerts.check(settings) == 1
    assert notified(receiver, "resolved", times=2)["labels"]["alertname"] == "weir-watchdog"
    names = [a["labels"]["alertname"] for body in receiver.bodies() for a in body["alerts"]]
    assert names.count("busy") == 1, "nothing is told twice"


def test_an_alertmanager_that_was_away_is_told_what_still_fires(
    manager: Alertmanager,
    receiver: Receiver,
    make_settings: Callable[..., object],
    tmp_warehouse: str,
) -> None:
    sink = {"type": "alertmanager", "url": manager.url, "retries": 0, "watchdog_ms": None}
    settings = make_settings(alerts={"rules": [RULE], "rule_files": [], "sinks": [sink]})
    manager.stop()
    minutes(tmp_warehouse, 0, **BUSY)
    assert alerts.check(settings) == 1
    manager.start()
    assert manager.alerts() == []
    assert alerts.check(settings) == 1
    assert [alert["labels"]["topic"] for alert in manager.alerts()] == [TOPIC]
