"""The shipped rules, scrape example and dashboards: valid, tested, and about metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from app.config.alerts import AlertSettings
from app.show.alerts.rule_files import rules_of
from app.show.metrics.catalogue import METRICS
from tests.servers.prometheus_rules import DASHBOARDS, ROOT, expressions, rules
from tests.support.servers.prometheus import RULES

NAME = re.compile(r"\b(?:weir|pulsar|kafka)_\w+|\b\w+:\w+(?::\w+)?(?=[\s{)\[]|$)")

BASE = (
    '{{ with query "last_over_time(weir_alerts_info[1d])" }}'
    '{{ . | first | label "runbook_base" }}/{{ end }}'
)
"""In front of the path of each runbook: its base, where an exporter knows it."""

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is missing (Debian: prometheus)"
)


@needs_promtool
@pytest.mark.parametrize(
    "words",
    [
        ["check", "rules", "--lint=all", "--lint-fatal", str(RULES)],
        ["check", "config", str(RULES.parent / "prometheus.yml")],
        ["test", "rules", str(Path(__file__).with_name("rules_test.yml"))],
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_promtool_finds_nothing_wrong(words: list[str]) -> None:
    done = subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alerting_rule_has_a_unit_test() -> None:
    tests = yaml.safe_load(Path(__file__).with_name("rules_test.yml").read_text())["tests"]
    tested = {
        one["alertname"] for test in tests for one in test["alert_rule_test"] if one["exp_alerts"]
    } | {"chunk-messages-lost"}  # by an expression: its value is odd
    assert tested == {rule["alert"] for rule in rules() if "alert" in rule}


def test_every_rule_of_the_tables_has_one_for_prometheus() -> None:
    names = {rule["alert"] for rule in rules() if "alert" in rule}
    of_tables = {rule.name for rule in rules_of(AlertSettings())}
    without = {"hanging-transaction"}  # no metric has single transactions
    assert without <= of_tables
    assert names == (of_tables - without) | {
        "weir-exporter-down",
        "query-lags",
        "run-restarts",
    }


def test_every_alerting_rule_is_tested_beside_entities_for_which_it_does_not_fire() -> None:
    """A rule that aggregates too much is silenced, or set off, by what stands beside."""
    recorded = {str(rule["record"]): str(rule["expr"]) for rule in rules() if "record" in rule}
    tests = yaml.safe_load(Path(__file__).with_name("rules_test.yml").read_text())["tests"]
    alone = []
    for rule in rules():
        if "alert" not in rule or rule["alert"] == "chunk-messages-lost":  # by an expression
            continue
        used = names(str(rule["expr"]))
        used |= {name for one in used & recorded.keys() for name in names(recorded[one])}
        found = False
        for test in tests:
            series = [one["series"] for one in test["input_series"]]
            beside = max(
                sum(re.match(rf"{name}\b", text) is not None for text in series) for name in used
            )
            firing = [
                len(one["exp_alerts"])
                for one in test["alert_rule_test"]
                if one["alertname"] == rule["alert"]
            ]
            found = found or any(0 < count < beside for count in firing)
        if not found:
            alone.append(rule["alert"])
    assert alone == []


def test_alerts_have_the_runbook_and_severity_of_the_rule_of_their_name() -> None:
    shipped = {rule.name: rule for rule in rules_of(AlertSettings())}
    both = 0
    for rule in rules():
        if "alert" not in rule:
            continue
        name, labels, notes = rule["alert"], rule["labels"], rule["annotations"]
        assert isinstance(labels, dict) and isinstance(notes, dict)
        assert str(notes["runbook"]).endswith(f"/runbooks/{name}.md")
        base, end, path = str(notes["runbook"]).rpartition("{{ end }}")
        assert base + end == BASE
        assert (ROOT / path).exists()
        if name in shipped:
            both += 1
            assert path == shipped[str(name)].runbook
            of_rows = re.findall("'(critical|warning|info)'", shipped[str(name)].sql)
            assert labels["severity"] in {shipped[str(name)].severity, *of_rows}
    assert both >= 7


def test_rules_and_dashboards_ask_for_what_is_exported_or_recorded() -> None:
    recorded = {str(rule["record"]) for rule in rules() if "record" in rule}
    used = {name for page in DASHBOARDS for text in expressions(page) for name in names(text)}
    used |= {name for rule in rules() for name in names(str(rule["expr"]))}
    assert len(used) > 40
    assert used <= {*METRICS, *recorded}


def test_dashboards_show_shadows_and_forecasts() -> None:
    shown = {name for page in DASHBOARDS for text in expressions(page) for name in names(text)}
    assert shown >= {
        "weir_shadow_effects_total",
        "weir_forecast_limits",
        "weir_forecast_predicted_ratio",
        "weir_forecast_breach_timestamp_seconds",
        "weir_forecast_error_ratio",
        "weir_forecast_known_timestamp_seconds",
    }


def names(expression: str) -> set[str]:
    """The metrics of an expression; label names and values are taken out before."""
    bare = re.sub(r"\{[^}]*\}|\b(?:by|on|group_left) \([^)]*\)|\"[^\"]*\"", "", expression)
    return set(NAME.findall(bare))


@pytest.mark.parametrize("page", DASHBOARDS, ids=lambda page: page.stem)
def test_a_dashboard_can_be_imported(page: Path) -> None:
    document = json.loads(page.read_text())
    assert document["uid"] == f"weir-{page.stem}" and document["schemaVersion"] >= 36
    variables = {variable["name"] for variable in document["templating"]["list"]}
    ids, places = [], []
    for panel in document["panels"]:
        ids.append(panel["id"])
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        places += [
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        ]
        assert panel["title"] and panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            used = set(re.findall(r"\$(\w+)", target["expr"])) - {"__rate_interval"}
            assert used <= variables
    assert len(ids) == len(set(ids)) and len(places) == len(set(places)), "panels overlap"
    assert {p.stem for p in DASHBOARDS} == {"fleet", "kafka", "tenant", "topic", "engine"}
