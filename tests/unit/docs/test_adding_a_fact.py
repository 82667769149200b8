"""The steps of docs/adding-a-fact.md: one declaration is alert, finding, action and rule for Prometheus."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.config.alerts import AlertSettings
from app.show.alerts import rule_files
from tests.conftest import ROOT
from tests.pages import prometheus_rules
from tests.support.ready_questions import lag, put

PAGE = (ROOT / "docs" / "adding-a-fact.md").read_text("utf-8")
MINUTE = 60_000
(DECLARED,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """Two groups whose members commit nothing for four minutes, one that reads, one without members."""
    idle = {"client_host": "h", "commit_rate": 0.0}
    rows = [
        *(
            lag("g", minute * MINUTE, 5 + minute, **idle, partition=p)
            for minute in range(5)
            for p in (0, 1)
        ),
        *(lag("h", minute * MINUTE, 2, **idle) for minute in range(5)),
        *(lag("reads", minute * MINUTE, 7, client_host="h") for minute in range(5)),
        *(lag("alone", minute * MINUTE, 7, **{**idle, "client_host": ""}) for minute in range(5)),
    ]
    put(str(tmp_path / "warehouse"), {"group_lag": rows})
    return str(tmp_path / "warehouse")


@pytest.fixture
def declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The first step of the page, beside the rules that are shipped."""
    (where,) = re.findall(r"^`(app/jobs/backlog/alerts/\S+\.yaml)`; ", PAGE, re.M)
    file = tmp_path / Path(where).name
    file.write_text(DECLARED)
    files = [*rule_files.shipped_rules(), file]
    monkeypatch.setattr(rule_files, "shipped_rules", lambda: files)
    rule_files.of_release.cache_clear()
    yield file.stem
    rule_files.of_release.cache_clear()


@pytest.fixture
def ask(warehouse: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def answer(*words: str) -> Any:
        capsys.readouterr()
        assert main([*words, "--warehouse", warehouse, "--json"]) in (0, 1)
        return json.loads(capsys.readouterr().out)

    return answer


SAID = [
    "Group g commits nothing of topic orders in 2 partitions: up to 18 offsets wait.",
    "Group h commits nothing of topic orders in 1 partition: up to 2 offsets wait.",
]


def test_the_declaration_of_the_page_is_told_everywhere(
    declared: str, ask: Callable[..., Any]
) -> None:
    firing = ask("alerts", "check", "--rule", declared)["firing"]
    assert sorted(row["summary"] for row in firing) == [
        f"{group} (east) commits nothing of orders since 2023-11-14T22:14:00Z; {n} offsets wait at most"
        for group, n in (("g", 18), ("h", 2))
    ]
    report = ask("report")
    assert report["sections"]["what-happened"]["sentences"] == SAID
    told = [(row["remedy"], row["reason"], row["runbook"]) for row in report["actions"]]
    assert told == [
        (
            f"Look at the members of group {group}",
            f"they commit nothing of topic orders in {partitions}",
            f"app/jobs/backlog/runbooks/{declared}.md",
        )
        for group, partitions in (("g", "2 partitions"), ("h", "1 partition"))
    ]
    written = yaml.safe_load(prometheus_rules.render())
    (rule,) = [
        each
        for group in written["groups"]
        for each in group["rules"]
        if each.get("alert") == declared
    ]
    assert (rule["for"], rule["labels"]) == ("3m", {"severity": "warning"})
    assert rule["annotations"]["runbook"].endswith(f"app/jobs/backlog/runbooks/{declared}.md")


def test_a_rule_of_a_user_is_told_in_the_report(
    tmp_path: Path, warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where the rules that are evaluated are the user's alone."""
    (tmp_path / "ours.yaml").write_text(DECLARED)
    config = tmp_path / "weir.yaml"
    files = {"alerts": {"rule_files": ["ours.yaml"]}}
    config.write_text(yaml.safe_dump({"warehouse": warehouse, **files}))
    assert main(["report", "--config", str(config), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sections"]["what-happened"]["sentences"] == SAID


def test_a_user_without_a_column_is_told_so_in_the_place_of_the_finding(
    tmp_path: Path, warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours.yaml").write_text(DECLARED.replace("members of group {group}", "{consumers}"))
    config = tmp_path / "weir.yaml"
    files = {"alerts": {"rule_files": ["ours.yaml"]}}
    config.write_text(yaml.safe_dump({"warehouse": warehouse, **files}))
    assert main(["report", "--config", str(config), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sections"]["what-happened"]["sentences"] == [
        "alert rule group-stands-still: finding.do: consumers is no column of its SQL (allowed: cluster,"
        " group, topic, start_ms, end_ms, value, partitions)."
    ]


def test_a_finding_whose_sql_takes_too_long_is_told_so_in_its_place(
    tmp_path: Path, warehouse: str, capsys: pytest.CaptureFixture[str]
) -> None:
    slow = "SELECT 'g' AS group, 'orders' AS topic, 1 AS partitions, sum(a * b) AS value"
    own = yaml.safe_load(DECLARED)
    own[0]["finding"]["sql"] = f"{slow} FROM range(1000000) AS x(a), range(1000000) AS y(b)"
    (tmp_path / "ours.yaml").write_text(yaml.safe_dump(own))
    config = tmp_path / "weir.yaml"
    files = {"alerts": {"rule_files": ["ours.yaml"], "query_timeout_ms": 300}}
    config.write_text(yaml.safe_dump({"warehouse": warehouse, **files}))
    assert main(["report", "--config", str(config), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["sections"]["what-happened"]["sentences"] == [
        "alert rule group-stands-still: finding.sql: took longer than alerts.query_timeout_ms (300 ms)."
    ]


def test_a_rule_of_a_user_in_place_of_a_shipped_one_keeps_its_finding() -> None:
    own = {
        "name": "group-ahead",
        "severity": "info",
        "sql": "SELECT 1",
        "now": "SELECT 1",
        "summary": "x",
    }
    settings = AlertSettings.model_validate({"rules": [own], "rule_files": []})
    rules, shipped = rule_files.told_of(settings), rule_files.told_of(None)
    assert rules.keys() == shipped.keys() and rules["group-ahead"].severity == "info"
    assert rules["group-ahead"].finding == shipped["group-ahead"].finding is not None


def test_the_page_fits_two_screens() -> None:
    assert len(PAGE.splitlines()) <= 90
