"""`alerts check` on a warehouse: what fires, what is kept, what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from app.errors import UserError
from app.read.relations import Warehouse
from app.show import alerts
from app.show.alerts import evaluation
from tests.support.throttle_rows import OTHER, START_MS, TOPIC, window, write, write_windows

LABELS = {"broker": "b1", "cluster": "east", "limiter": "topic", "entity": TOPIC}
OVER = {"culprit_times": 9, "limited_times": 9, "culprit_ns": 10**9, "messages": 9000}
QUIET = {"topic": OTHER}
ROOT = Path(__file__).resolve().parents[4]


def rule(**changes):
    base = {
        "name": "r",
        "severity": "critical",
        "for": 0,
        "summary": "{topic} {value:.0f}",
        "sql": "SELECT topic, window_start_ms AS start_ms, ts_wall_ms AS end_ms, 1 AS value"
        " FROM topic_throttle_stats",
        "now": "SELECT max(ts_wall_ms) FROM topic_throttle_stats",
    }
    return {**base, **changes}


def rules_of(tmp_path, *rules):
    folder = tmp_path / "rules"
    folder.mkdir()
    # JSON is YAML.
    (folder / "rules.yaml").write_text(json.dumps(rules))
    return folder


def answer(capsys):
    return json.loads(capsys.readouterr().out)


def kept(warehouse):
    rows = Warehouse(warehouse).open("alerts").to_pyarrow_table().to_pylist()
    return sorted(
        (row["at_ms"] - START_MS, row["state"], dict(row["labels"])["entity"]) for row in rows
    )


def test_a_topic_over_its_limit_for_a_minute_fires_and_is_resolved_when_it_stops(
    make_settings, tmp_warehouse, capsys
):
    settings = make_settings()
    write_windows(tmp_warehouse, [window(0, **OVER), window(0, **QUIET)])
    assert alerts.check(settings, as_json=True) == 1
    (row,) = answer(capsys)["firing"]
    checked = row.pop("checked_ms")
    assert checked > START_MS
    assert row == {
        "alert": "publish-limit",
        "labels": LABELS,
        "state": "firing",
        "at_ms": START_MS,
        "since_ms": START_MS,
        "value": 1.5,
        "severity": "warning",
        "summary": f"topic {TOPIC} on b1 (east) publishes at its limit or is held back by it, since"
        " 2023-11-14T22:14:00Z; lately 150 of 100 messages per s",
        "runbook": "app/jobs/rate_limits/runbooks/publish-limit.md",
        "number": None,
    }
    assert alerts.check(settings) == 1, "the same data fires as before"
    assert kept(tmp_warehouse) == [(0, "firing", TOPIC)]
    write_windows(tmp_warehouse, [window(1)])
    capsys.readouterr()
    assert alerts.check(settings) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("resolved  publish-limit at 2023")
    recorded = [(0, "firing", TOPIC), (60_000, "resolved", TOPIC)]
    assert kept(tmp_warehouse) == recorded
    assert alerts.check(settings, at_ms=START_MS + 60_000) == 1, "as it stood then"
    assert kept(tmp_warehouse) == recorded, "a look back records nothing"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({**OVER, "messages": 6000}, 1),
        ({**OVER, "messages": 5999}, 0),
        ({**OVER, "messages": 10, "culprit_ns": 30_000_000_000}, 1),
        ({**OVER, "messages": 10, "culprit_ns": 29_999_999_999}, 0),
        ({**OVER, "limit_msgs": None, "limit_bytes": 100.0}, 1),
        ({**OVER, "limit_msgs": None, "culprit_ns": 10**12}, 0),
        ({**OVER, "culprit_ns": 0}, 1),
        ({**OVER, "culprit_ns": 0, "messages": 5999}, 0),
    ],
)
def test_over_the_limit_means_the_whole_minute_or_held_back_for_half_of_it(
    make_settings, tmp_warehouse, changes, code
):
    write_windows(tmp_warehouse, [window(0, **changes)])
    assert alerts.check(make_settings()) == code


def test_a_broker_one_window_behind_the_newest_is_not_taken_for_quiet(make_settings, tmp_warehouse):
    write_windows(
        tmp_warehouse,
        [
            window(0, **OVER),
            window(1, **QUIET, broker="b2"),
        ],
    )
    assert alerts.check(make_settings()) == 1
    write_windows(tmp_warehouse, [window(2, **QUIET, broker="b2")])
    assert alerts.check(make_settings()) == 0


def test_the_owner_of_what_an_alert_is_about_is_printed(make_settings, tmp_warehouse, capsys):
    write_windows(tmp_warehouse, [window(0, **OVER)])
    owner = {"team": "shop", "contact": "#shop-oncall"}
    settings = make_settings(owners=[{"topic": "acme/orders/created", **owner}])
    assert alerts.check(settings) == 1
    shown = capsys.readouterr().out
    assert "\n          owner: shop, #shop-oncall\n          what to do: " in shown
    assert alerts.check(settings, as_json=True) == 1
    assert answer(capsys)["firing"][0]["owner"] == owner
    assert alerts.check(make_settings()) == 1
    assert "owner" not in capsys.readouterr().out


def test_nothing_fires_on_tables_without_rows(make_settings, tmp_path, capsys):
    (tmp_path / "_weir").mkdir()
    with pytest.raises(UserError, match="nothing was checked, since the tables that the rules"):
        alerts.check(make_settings(warehouse=str(tmp_path)))
    write(tmp_path, "topic_throttle_stats", [window(0)])
    assert alerts.check(make_settings(warehouse=str(tmp_path))) == 0
    assert re.fullmatch(
        r"\d+ rules checked, 0 firing; the tables of \d+ have no rows yet\n",
        capsys.readouterr().out,
    )
    assert not (tmp_path / "alerts").exists()


def test_a_folder_that_holds_a_warehouse_is_not_taken_for_one(make_settings, tmp_path):
    (tmp_path / "events").mkdir()  # as the demo's folder has it: events in JSON, and no table
    (tmp_path / "warehouse" / "_weir").mkdir(parents=True)
    with pytest.raises(UserError, match=r"has no Weir tables\n.*/warehouse has: name it with --w"):
        alerts.check(make_settings(warehouse=str(tmp_path)))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"sql": "SELECT topik FROM topic_throttle_stats"},
            'alert rule broken: .*"topik" not found',
        ),
        ({"sql": "SELECT 1 AS start_ms, 2 AS end_ms"}, "alert rule broken: sql gives no value"),
        ({"sql": "DROP TABLE alerts"}, "alert rule broken: allowed is one statement that reads"),
        ({"now": "SELECT"}, "alert rule broken: "),
        ({"summary": "{owner}"}, "alert rule broken: summary: 'owner' cannot be filled in"),
        ({"summary": "{topic.x}"}, "alert rule broken: summary: .* no attribute 'x' cannot be"),
        ({"summary": "{value[x]}"}, "alert rule broken: summary: .* not subscriptable cannot be"),
        ({"summary": "{topic[x]}"}, "alert rule broken: summary: string indices .* cannot be"),
    ],
)
def test_a_broken_rule_is_named_and_does_not_hide_another(
    make_settings, tmp_warehouse, tmp_path, capsys, changes, message
):
    write(tmp_warehouse, "topic_throttle_stats", [window(0)])
    broken = rule(name="broken", **changes)
    quiet = rule(name="quiet", **{"for": "1h"})
    folder = rules_of(tmp_path, broken, quiet)

    def of(folder):
        return make_settings(alerts={"rule_files": [str(folder)]})

    with pytest.raises(UserError, match=message):
        alerts.check(of(folder))
    (folder / "more.yaml").write_text(json.dumps([rule(name="loud")]))
    capsys.readouterr()
    assert alerts.check(of(folder)) == 1
    shown = capsys.readouterr()
    assert f"firing    loud (critical): {TOPIC} 1" in shown.out
    assert "alert rule broken" in shown.err


def test_a_rule_that_meets_anything_does_not_hide_another(
    make_settings, tmp_warehouse, tmp_path, capsys, monkeypatch
):
    write(tmp_warehouse, "topic_throttle_stats", [window(0)])
    folder = rules_of(tmp_path, rule(name="broken"), rule(name="loud"))
    real = evaluation.evaluate

    def evaluated(connection, one, *more):
        if one.name == "broken":
            raise OverflowError("int too large\nto convert")
        return real(connection, one, *more)

    monkeypatch.setattr(evaluation, "evaluate", evaluated)
    assert alerts.check(make_settings(alerts={"rule_files": [str(folder)]})) == 1
    shown = capsys.readouterr()
    assert f"firing    loud (critical): {TOPIC} 1" in shown.out
    assert "alert rule broken: OverflowError: int too large" in shown.err


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (
            [rule(sevrity=1)],
            r"rules.yaml: \[0\] \(r\): sevrity: unknown key \(did you mean severity",
        ),
        (
            [rule(x=1)],
            r"x: unknown key \(allowed: name, sql, now, for, severity, summary, runbook,",
        ),
        (
            [rule(**{"for": -1})],
            r"rules.yaml: \[0\] \(r\): for: -1 has no unit \(allowed: such as 90s",
        ),
        (
            [rule(**{"for": 60})],
            r"rules.yaml: \[0\] \(r\): for: 60 has no unit \(allowed: such as 90s",
        ),
        ([rule(**{"for": "5 min"})], r"for: '5 min' is not a duration \(allowed: such as 90s, 5m,"),
        ([rule(severity="page")], r"severity: 'page' is not supported \(allowed: critical, w"),
        ([rule(name="a b")], r"name: 'a b' is not a name \(allowed: a letter"),
        ([rule(limit=0)], "limit: 0 is below 1"),
        ([rule(limit=0), rule(labels=[""])], "1 more mistake: "),
        ([rule(), rule()], "rules.yaml: name: r is used more than once"),
        (["rule"], r"rules.yaml: \[0\]: 'rule' is not a mapping"),
        ([rule(finding={"do": "x"})], r"\(r\): finding.says: "),
        (
            [rule(finding={"says": "x", "tells": "y"})],
            r"rules.yaml: \[0\] \(r\): finding.tells: unknown key \(allowed: sql, question, says,",
        ),
        (
            [rule(finding={"says": "{topic:shrt}"})],
            r"finding.says: \{topic:shrt\} has no such format \(allowed: about, capital, clock,",
        ),
        (
            [rule(finding={"says": "{topic.name}"})],
            r"finding.says: \{topic.name\} is not a column \(allowed: its name in braces\)",
        ),
        ([rule(finding={"says": "{topic"})], "finding.says: expected '}' before end of string"),
        (
            [rule(finding={"says": "x", "do": "y", "because": "z", "urgency": "soon"})],
            r"finding.urgency: 'soon' is not supported \(allowed: deadline, loss, others, own",
        ),
        ([rule(finding={"says": "x", "do": "y"})], "finding.do: needs because"),
        (
            [rule(finding={"says": "x", "more": "{topic}"})],
            r"finding.more: \{topic\} is not known there \(allowed: more, was, are\)",
        ),
        (
            [rule(labels=None, finding={"says": "x"})],
            "finding.sql: is needed where the rule has no",
        ),
        (
            [rule(finding={"says": "x", "question": "throttled-client"})],
            r"finding.question: throttled-client is no ready question\n.*throttled-clients",
        ),
        ([rule(prometheus=[{"expr": "up == 0"}])], r"prometheus\[0\].summary: "),
    ],
)
def test_a_mistake_in_a_rule_file_names_file_and_key(tmp_path, make_settings, rules, message):
    with pytest.raises(UserError, match=message):
        alerts.rules(make_settings(alerts={"rule_files": [str(rules_of(tmp_path, *rules))]}))


def test_the_shipped_rules_are_listed_and_their_runbooks_exist(make_settings, capsys):
    assert alerts.rules(make_settings(), as_json=True) == 0
    listed = answer(capsys)
    files = [*ROOT.glob("configs/alerts/*.yaml"), *ROOT.glob("app/jobs/*/alerts/*.yaml")]
    assert sorted(row["name"] for row in listed) == sorted(file.stem for file in files)
    assert all((ROOT / row["runbook"]).is_file() for row in listed)
