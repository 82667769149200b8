"""A real Prometheus scrapes the exporter, evaluates the rules, and answers every panel."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import load_settings
from app.show.metrics.serve import exporting
from tests.servers.prometheus_rules import DASHBOARDS, expressions, rules
from tests.support.client_quota_rows import stats, usage
from tests.support.servers.process import free_ports
from tests.support.servers.prometheus import Prometheus
from tests.unit.show.metrics.rows import Rows, every, fill, halves, progress

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is missing (Debian: prometheus)"
)
VARIABLES = {"cluster": ".*", "tenant": ".*", "topic": ".*", "__rate_interval": "1m"}
PANELS = [
    pytest.param(expression, id=f"{page.stem}-{number}")
    for page in DASHBOARDS
    for number, expression in enumerate(expressions(page))
]


def clients(minute: int) -> Rows:
    """A minute of a client that a default limit throttles, and of one without a limit; the group of
    the rows has lost its consumers."""
    throttled = {"throttled": 3, "throttle_ms": 3000, "bound_level": "default user"}
    (group,) = [row for row in every()["group_states"] if row["group"] == "g"][:1]
    return {
        "client_quota_stats": [stats(minute, used=1.2, **throttled)],
        "client_usage": [usage(minute, "free", 100 << 20)],
        "group_states": [{**group, "state": "empty", "ts_wall_ms": group["ts_wall_ms"] + minute}],
    }


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that has seen a warehouse grow."""
    folder = tmp_path_factory.mktemp("prometheus")
    warehouse = str(folder / "warehouse")
    first, second = halves()
    fill(warehouse, first, clients(1))
    progress(warehouse, "govern", 3, time.time())
    target = f"127.0.0.1:{free_ports(1)[0]}"
    settings = load_settings(
        None,
        {
            "warehouse": warehouse,
            "metrics": {"listen": target, "refresh_s": 1, "idle_s": 10**9},
        },
    )
    said: list[str] = []
    server = Prometheus(folder, target)
    with exporting(settings, said.append):
        server.start()
        try:
            server.wait(lambda: value(server, "weir_query_batches_total") == 3)
            fill(warehouse, second, clients(2))
            progress(warehouse, "govern", 7, time.time())
            parts = (every(), clients(1), clients(2))
            rows = sum(len(rows) for part in parts for rows in part.values())
            server.wait(lambda: value(server, "sum(weir_table_rows)") == rows)
            server.wait(lambda: value(server, "weir_query_batches_total") == 7)
            # Recorded rates need two scrapes with the new values, and an evaluation after them.
            read_s = time.time() + 2
            ended = "weir_exporter_refresh_timestamp_seconds"
            server.wait(lambda: (value(server, ended) or 0) > read_s)
            yield server
        finally:
            server.stop()
    assert len(said) == 1, said


def value(server: Prometheus, expression: str) -> float | None:
    """The one value of an expression; None while there is none."""
    found = server.query(expression)
    return float(found[0]["value"][1]) if found else None


def test_the_target_is_up_and_every_rule_was_evaluated(prometheus: Prometheus) -> None:
    (target,) = prometheus.get("targets")["activeTargets"]
    assert (target["health"], target["lastError"]) == ("up", "")
    assert value(prometheus, "weir_exporter_up") == 1
    groups = prometheus.get("rules")["groups"]
    health: dict[str, Any] = {r["name"]: r["health"] for g in groups for r in g["rules"]}
    assert set(health) == {str(rule.get("alert") or rule["record"]) for rule in rules()}
    assert set(health.values()) == {"ok"}


def test_values_arrive_as_they_are(prometheus: Prometheus) -> None:
    rows = every()
    assert value(prometheus, "sum(weir_published_messages_total)") == sum(
        row["messages"] for row in rows["topic_throttle_stats"]
    )
    assert value(prometheus, "sum(pulsar_publish_rate_limit_times)") == sum(
        row["limited_times"] for row in rows["topic_throttle_stats"]
    )
    kinds = prometheus.get("metadata")
    assert kinds["weir_published_messages"][0]["type"] == "counter"
    assert kinds["pulsar_publish_rate_limit_times"][0]["type"] == "gauge"


def test_an_alert_comes_from_the_tables(prometheus: Prometheus) -> None:
    prometheus.wait(
        lambda: bool(
            prometheus.query(
                'ALERTS{alertname="backlog-quota", severity="critical", alertstate="firing"}'
            )
        )
    )
    alerts = prometheus.get("alerts")["alerts"]
    (one, *_) = [a for a in alerts if a["labels"]["alertname"] == "backlog-quota"]
    assert one["annotations"]["runbook"] == "app/jobs/backlog/runbooks/backlog-quota.md"


@pytest.mark.parametrize("expression", PANELS)
def test_a_panel_has_something_to_show(expression: str, prometheus: Prometheus) -> None:
    filled = re.sub(r"\$(\w+)", lambda found: VARIABLES[found[1]], expression)
    assert prometheus.query(filled), filled


@pytest.mark.parametrize("page", DASHBOARDS, ids=lambda page: page.stem)
def test_variables_of_dashboards_have_values(page: Path, prometheus: Prometheus) -> None:
    for variable in json.loads(page.read_text())["templating"]["list"]:
        if variable["type"] != "query":
            continue
        found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
        assert found
        values = {row["metric"].get(found[2], "") for row in prometheus.query(found[1])}
        if variable["regex"]:
            pattern = re.compile(variable["regex"].strip("/").replace("\\/", "/"))
            values = {match[1] for text in values if (match := pattern.fullmatch(text))}
        assert values - {""}
