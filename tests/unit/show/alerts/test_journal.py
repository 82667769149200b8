"""The table `alerts`: a change is written once, whoever finds it and however often."""

from __future__ import annotations

import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor

import deltalake
import pyarrow as pa
import pytest

from app.errors import UserError
from app.read.relations import Warehouse
from app.show.alerts.journal import Journal
from app.tables.definitions import TABLES
from tests.support.sinks import BUSY, RULE, evaluator_of, minutes
from tests.support.throttle_rows import OTHER, START_MS, TOPIC, window, write
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def evaluator(make_settings):
    def make(**changes):
        return evaluator_of(
            make_settings(alerts={"rules": [{**RULE, **changes}], "rule_files": []})
        )

    return make


def go(evaluator):
    return evaluator.round(threading.Event())


def kept(warehouse):
    rows = Warehouse(warehouse).open("alerts").to_pyarrow_table().to_pylist()
    rows.sort(key=lambda row: row["number"])
    return [
        (row["number"], row["state"], dict(row["labels"])["topic"], row["at_ms"] - START_MS)
        for row in rows
    ]


def test_two_that_worked_from_the_same_state_write_a_change_once(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    go(evaluator())
    minutes(tmp_warehouse, 1)
    first, second = evaluator(), evaluator()
    for one in (first, second):
        one.journal.load()
    evaluated = [one.evaluate() for one in (first, second)]
    written = [
        one.journal.record(found.evaluated)[0]
        for one, found in zip((first, second), evaluated, strict=True)
    ]
    assert [len(rows) for rows in written] == [1, 0]
    assert kept(tmp_warehouse) == [
        (1, "pending", TOPIC, 0),
        (2, "firing", TOPIC, 60_000),
        (3, "resolved", TOPIC, 60_000),
    ]


def test_the_second_append_to_one_version_is_refused(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    first, second = evaluator(), evaluator()
    go(first)
    minutes(tmp_warehouse, 1)
    second.journal.load()
    rows, _ = second.journal.new_rows(second.evaluate().evaluated)
    assert go(first).changes and rows
    assert not second.journal.append(rows)
    assert len(kept(tmp_warehouse)) == 3


def test_many_at_once_write_every_change_once(evaluator, tmp_warehouse):
    topics = [f"t{i}" for i in range(5)]
    for topic in topics:
        minutes(tmp_warehouse, 0, topic=topic, **BUSY)
    with ThreadPoolExecutor(4) as pool:
        rounds = list(pool.map(go, [evaluator() for _ in range(4)]))
    assert sorted(len(found.changes) for found in rounds) == [0, 0, 0, 10]
    assert [number for number, *_ in kept(tmp_warehouse)] == list(range(1, 11))
    assert all(len(found.firing) == 5 for found in rounds)


def test_a_round_after_a_crash_goes_on_from_what_was_written(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    one = evaluator()
    one.journal.load()
    one.journal.record(one.evaluate().evaluated)  # and the process dies before it delivers
    assert go(evaluator()).changes == []
    assert len(kept(tmp_warehouse)) == 2


def test_a_long_lived_evaluator_sees_what_others_wrote(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    first, second = evaluator(), evaluator()
    go(first)
    minutes(tmp_warehouse, 1)
    go(second)
    assert go(first).changes == []
    minutes(tmp_warehouse, 0, topic=OTHER, **BUSY)
    assert [row["number"] for row in go(first).changes] == [4, 5, 6]


def test_an_alert_whose_rows_are_gone_is_resolved_with_its_last_words(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, 1, **BUSY)
    go(evaluator())
    quiet = pa.Table.from_pylist([window(1)], schema=TABLES["topic_throttle_stats"].schema)
    deltalake.write_deltalake(f"{tmp_warehouse}/topic_throttle_stats", quiet, mode="overwrite")
    (row,) = go(evaluator()).changes
    assert (row["state"], row["at_ms"], row["summary"]) == (
        "resolved",
        START_MS + 120_000,
        f"{TOPIC} sent 6000 of 100",
    )


def test_a_table_of_an_older_weir_takes_in_the_number(evaluator, tmp_warehouse):
    old = pa.schema([f for f in TABLES["alerts"].schema if f.name != "number"])
    row = {
        "alert": "busy",
        "labels": [("cluster", "east"), ("topic", TOPIC)],
        "state": "firing",
        "at_ms": START_MS - 60_000,
        "since_ms": START_MS - 120_000,
        "value": 6000.0,
        "severity": "critical",
        "summary": "earlier",
        "runbook": "",
        "checked_ms": START_MS,
    }
    minutes(tmp_warehouse, 0)
    deltalake.write_deltalake(f"{tmp_warehouse}/alerts", pa.Table.from_pylist([row], schema=old))
    (change,) = go(evaluator()).changes
    assert (change["state"], change["number"], change["summary"]) == ("resolved", 1, "earlier")
    assert go(evaluator()).changes == []


def test_tables_made_anew_begin_anew(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    one = evaluator()
    go(one)
    shutil.rmtree(f"{tmp_warehouse}/alerts")
    assert [row["number"] for row in go(one).changes] == [1, 2]


def test_a_newer_table_is_refused_by_name(evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    deltalake.write_deltalake(
        f"{tmp_warehouse}/alerts",
        TABLES["alerts"].schema.empty_table(),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    with pytest.raises(UserError, match="alerts: cannot be read: it uses deletionVectors"):
        go(evaluator())


def test_a_missing_warehouse_is_reported(evaluator):
    with pytest.raises(UserError, match=r"warehouse: .* does not exist"):
        go(evaluator())


def test_alerts_beyond_the_limit_of_a_rule_are_counted(evaluator, tmp_warehouse):
    for topic in ("a", "b", "c"):
        minutes(tmp_warehouse, 0, topic=topic, **BUSY)
    found = go(evaluator(limit=2))
    assert [dict(row["labels"])["topic"] for row in found.firing] == ["a", "b"]
    assert found.left_out == {"busy": 1}
    assert found.notes() == ["alert rule busy: 1 alerts suppressed by its limit"]


def test_rules_look_back_so_far_and_a_long_alert_keeps_its_beginning(make_settings, tmp_warehouse):
    def round_with(lookback_ms):
        rules = {"rules": [RULE], "rule_files": [], "lookback_ms": lookback_ms}
        return go(evaluator_of(make_settings(alerts=rules)))

    for minute in range(10):
        minutes(tmp_warehouse, minute, **BUSY)
        found = round_with(180_000)
    assert [row["since_ms"] - START_MS for row in found.firing] == [0]
    assert [state for _, state, *_ in kept(tmp_warehouse)] == ["pending", "firing"]
    minutes(tmp_warehouse, 10)
    (row,) = round_with(180_000).changes
    assert (row["state"], row["since_ms"], row["at_ms"]) == (
        "resolved",
        START_MS,
        START_MS + 600_000,
    )
    (error,) = round_with(100_000).broken
    assert error.startswith(
        "alert rule busy: for: 60000 ms is more than half of alerts.lookback_ms"
    )


def test_a_rule_of_many_alerts_has_those_that_began_first(make_settings, tmp_warehouse):
    """150,000 rows: a thousand topics, paused in each of 150 minutes; the later the topic, the
    later it began. The tables end with the last minute, in which half of them have ended."""
    write(tmp_warehouse, "topic_throttle_stats", [window(0)])
    sql = (
        "SELECT printf('t%04d', t.i) AS topic, (m.j + t.i % 500) * 60000 AS start_ms,"
        " (m.j + t.i % 500 + 1) * 60000 AS end_ms, m.j AS value"
        " FROM range(1000) AS t(i), range(150) AS m(j)"
    )
    rule = {
        "name": "many",
        "sql": sql,
        "now": "SELECT 400 * 60000",
        "severity": "warning",
        "summary": "{topic}",
        "labels": ["topic"],
        "limit": 10,
    }
    settings = make_settings(alerts={"rules": [rule], "rule_files": []})
    found = go(evaluator_of(settings))
    assert found.broken == []
    # of those that hold at minute 400 the topics 250 and 750 began first, 399 and 899 last
    began_first = [f"t{250 + i:04}" for i in range(5)] + [f"t{750 + i:04}" for i in range(5)]
    assert sorted(row["summary"] for row in found.firing) == sorted(began_first)
    values = {row["summary"]: row["value"] for row in found.firing}
    assert (values["t0250"], values["t0254"]) == (149, 145)
    assert found.left_out == {"many": 300 - 10}
    assert go(evaluator_of(settings)).changes == [], "the same alerts the next time"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sql": RULE["sql"].replace("messages AS value", "'x' AS value")}, "which is no number"),
        (
            {
                "sql": RULE["sql"].replace("cluster, topic", "cluster, topic, 1 AS severity"),
                "labels": None,
            },
            r"sql gives 1 as severity \(allowed: info, warning, critical\)",
        ),
        (
            {"labels": ["owner"]},
            r"labels: owner is no column of sql \(allowed: cluster, topic, limit",
        ),
        (
            {"now": "throttle_events"},
            r"now: throttle_events is no table of windows \(allowed: topic_",
        ),
        (
            {
                "sql": "SELECT i AS start_ms, i AS end_ms, 1 AS value FROM range(100001) t(i)",
                "labels": [],
            },
            "more than 100,000 rows",
        ),
        (
            {
                "sql": "SELECT count(*) AS start_ms, 1 AS end_ms, 1 AS value FROM range(100000) a(i),"
                " range(100000) b(j) WHERE (i * j) % 7 = 3",
                "labels": [],
            },
            r"took longer than alerts.query_timeout_ms \(1000 ms\)",
        ),
        (
            {
                "sql": "SELECT 1 AS start_ms, 2 AS end_ms, 1 AS value FROM read_text('/etc/hostname')",
                "labels": [],
            },
            "the table function read_text is not allowed",
        ),
        (
            {"sql": "SELECT 1 AS start_ms, 2 AS end_ms, getenv('HOME') AS value", "labels": []},
            "alert rule busy: ",
        ),
    ],
)
def test_what_is_wrong_with_a_rule_is_said(make_settings, tmp_warehouse, changes, message):
    write(tmp_warehouse, "topic_throttle_stats", [window(0, **BUSY)])
    rules = [{**RULE, **changes}, {**RULE, "name": "sound"}]
    endless = "query_timeout_ms" in message
    timeout_ms = 1000 if endless else 1000 * PATIENCE_S
    alerts = {"rules": rules, "rule_files": [], "query_timeout_ms": timeout_ms}
    found = go(evaluator_of(make_settings(alerts=alerts)))
    (error,) = found.broken
    assert error.startswith("alert rule busy: ")
    assert re.search(message, error), error
    assert [row["alert"] for row in found.firing] == ["sound"]


def test_the_journal_of_a_warehouse_without_alerts_is_empty(tmp_warehouse):
    minutes(tmp_warehouse, 0)
    journal = Journal(Warehouse(tmp_warehouse))
    journal.load()
    assert (journal.newest, journal.number, journal.after(0)) == ({}, 0, [])
