"""Notification sinks: each recorded change is delivered, however long a sink was down."""

from __future__ import annotations

import io
import json
import logging
import socket
import threading
import time
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import pytest

from app.config.settings import load_settings
from app.errors import UserError
from app.show.alerts.sinks import TakenChanges
from tests.support.servers.process import free_ports
from tests.support.sinks import BUSY, RULE, evaluator_of, minutes, states
from tests.support.throttle_rows import OTHER, START_MS, TOPIC
from tests.unit.show.alerts.receiver import receiving

SILENT = {"watchdog_ms": None}


@pytest.fixture
def receiver(monkeypatch):
    monkeypatch.setattr("app.show.alerts.sinks.FIRST_PAUSE_S", 0.01)
    with receiving() as found:
        yield found


@pytest.fixture
def evaluator(make_settings):
    """An evaluator of one rule with these sinks."""

    def make(*sinks, rules=(RULE,), **more):
        alerts = {"rules": list(rules), "rule_files": [], "sinks": list(sinks), **more}
        return evaluator_of(make_settings(alerts=alerts))

    return make


def go(evaluator):
    return evaluator.round(threading.Event())


def test_a_webhook_receives_each_change_once(receiver, evaluator, tmp_warehouse, monkeypatch):
    monkeypatch.setenv("HOOK", "s3cret")
    hook = {
        "type": "webhook",
        "url": f"{receiver.url}/hook?a=b",
        "headers": {"Authorization": "Bearer ${env:HOOK}"},
    }
    minutes(tmp_warehouse, 0)
    assert go(evaluator(hook)).undelivered == [] and receiver.posts == []
    minutes(tmp_warehouse, 1, **BUSY)
    go(evaluator(hook))
    go(evaluator(hook))
    ((path, headers, body),) = receiver.posts
    assert path == "/hook?a=b" and headers["Authorization"] == "Bearer s3cret"
    (alert,) = body["alerts"]
    assert {**body, "alerts": []} == {"version": 1, "warehouse": tmp_warehouse, "alerts": []}
    assert alert["checked_ms"] > START_MS
    assert {**alert, "checked_ms": 0} == {
        "checked_ms": 0,
        "alert": "busy",
        "labels": {"cluster": "east", "topic": TOPIC},
        "state": "firing",
        "at_ms": START_MS + 120_000,
        "since_ms": START_MS + 60_000,
        "value": 6000.0,
        "severity": "critical",
        "summary": f"{TOPIC} sent 6000 of 100",
        "runbook": "docs/busy.md",
        "number": 2,
    }
    minutes(tmp_warehouse, 2)
    go(evaluator(hook))
    assert states(receiver) == [("firing", TOPIC), ("resolved", TOPIC)]


def test_what_changed_while_a_sink_was_down_is_sent_later(receiver, evaluator, tmp_warehouse):
    hook = {"type": "webhook", "url": receiver.url, "retries": 1}
    minutes(tmp_warehouse, 0, **BUSY)
    receiver.answers = [503] * 4
    down = go(evaluator(hook)).undelivered
    assert down == [
        f"webhook {receiver.url}: answers with status 503 (not today);"
        " missed changes are sent later"
    ]
    minutes(tmp_warehouse, 1)
    assert len(go(evaluator(hook)).undelivered) == 1 and receiver.attempts == 4
    minutes(tmp_warehouse, 2, **BUSY)
    assert go(evaluator(hook)).undelivered == []
    assert states(receiver) == [("firing", TOPIC), ("resolved", TOPIC), ("firing", TOPIC)]


def test_a_sink_that_is_down_for_a_moment_is_tried_again(receiver, evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    receiver.answers = [500, 429]
    assert go(evaluator({"type": "webhook", "url": receiver.url})).undelivered == []
    assert receiver.attempts == 3 and states(receiver) == [("firing", TOPIC)]


@pytest.mark.parametrize("status", [400, 401, 302, 307])
def test_an_answer_that_no_repetition_mends_is_not_repeated(
    receiver, evaluator, tmp_warehouse, status
):
    minutes(tmp_warehouse, 0, **BUSY)
    receiver.answers = [status]
    (found,) = go(evaluator({"type": "webhook", "url": receiver.url})).undelivered
    assert f"answers with status {status} (not today)" in found and receiver.attempts == 1


@contextmanager
def slowly(beginning):
    """The address of a server that sends this, and then a byte at a time for ever."""
    ended = threading.Event()

    def serve():
        taken, _ = server.accept()
        with taken, suppress(OSError):
            taken.sendall(beginning)
            while not ended.wait(0.02):
                taken.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ended.set()
            thread.join(5)


@pytest.mark.parametrize(
    ("beginning", "errors"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", ["no whole answer in time (0.3 s)"]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", []),
    ],
)
def test_an_answer_that_trickles_in_counts_by_its_status(
    evaluator, tmp_warehouse, beginning, errors
):
    minutes(tmp_warehouse, 0, **BUSY)
    with slowly(beginning) as url:
        begun = time.monotonic()
        found = go(evaluator({"type": "webhook", "url": url, "timeout_ms": 300, "retries": 0}))
        assert time.monotonic() - begun < 10
    assert found.undelivered == [
        f"webhook {url}: {text}; missed changes are sent later" for text in errors
    ]


def test_a_malformed_answer_brings_no_address_into_a_log(evaluator, tmp_warehouse, monkeypatch):
    minutes(tmp_warehouse, 0, **BUSY)
    logged = io.StringIO()
    # Not caplog: it also takes what never gets to the root.
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(logged)])
    with slowly(b"HTTP/1.1 200 OK\r\nno header\r\nContent-Length: 0\r\n\r\n") as url:
        assert go(evaluator({"type": "webhook", "url": f"{url}/hush"})).undelivered == []
    assert "hush" not in logged.getvalue()


def test_a_sink_is_reached_by_the_proxy_of_the_environment(
    receiver, evaluator, tmp_warehouse, monkeypatch
):
    minutes(tmp_warehouse, 0, **BUSY)
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", receiver.url.replace("://", "://me:hu%3Ash@"))
    assert go(evaluator({"type": "webhook", "url": "http://hooks.invalid/x"})).undelivered == []
    ((path, headers, _),) = receiver.posts
    assert path == "http://hooks.invalid/x"
    assert headers["proxy-authorization"] == "Basic bWU6aHU6c2g="
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert go(evaluator({"type": "webhook", "url": f"{receiver.url}/x"})).undelivered == []
    assert receiver.posts[1][0] == "/x"


def test_one_sink_that_is_down_keeps_nothing_from_another(receiver, evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    (port,) = free_ports(1)
    dead = {"type": "webhook", "url": f"http://127.0.0.1:{port}/x", "retries": 0}
    found = go(evaluator(dead, {"type": "webhook", "url": receiver.url}))
    assert found.undelivered == [
        f"webhook http://127.0.0.1:{port}/********: cannot be reached (Connection refused);"
        " missed changes are sent later"
    ]
    assert states(receiver) == [("firing", TOPIC)] and len(found.changes) == 2


def test_a_new_sink_receives_the_firing_alerts_and_no_history(receiver, evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, 2, **BUSY)
    minutes(tmp_warehouse, 1)
    minutes(tmp_warehouse, 0, 1, 2, topic=OTHER, **BUSY)
    minutes(tmp_warehouse, 3)
    assert len(go(evaluator()).changes) == 9
    go(evaluator({"type": "webhook", "url": receiver.url}))
    assert states(receiver) == []
    minutes(tmp_warehouse, 3, topic=OTHER, **BUSY)
    found = go(evaluator({"type": "webhook", "url": receiver.url}))
    assert [(row["state"], dict(row["labels"])["topic"]) for row in found.changes] == [
        ("firing", OTHER)
    ]
    assert states(receiver) == [("firing", OTHER)]


def test_a_new_sink_that_is_down_misses_nothing_that_fired_then(receiver, evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    go(evaluator())
    hook = {"type": "webhook", "url": receiver.url, "retries": 0}
    receiver.answers = [500]
    assert len(go(evaluator(hook)).undelivered) == 1
    minutes(tmp_warehouse, 1)
    go(evaluator(hook))
    assert states(receiver) == [("firing", TOPIC), ("resolved", TOPIC)]


def test_the_owner_of_the_topic_goes_with_the_alert(receiver, make_settings, tmp_warehouse):
    minutes(tmp_warehouse, 0, **BUSY)
    minutes(tmp_warehouse, 0, topic=OTHER, **BUSY)
    owner = {"team": "shop", "contact": "#shop-oncall"}
    go(
        evaluator_of(
            make_settings(
                owners=[{"topic": "acme/orders/created", "cluster": "e*", **owner}],
                alerts={
                    "rules": [RULE],
                    "rule_files": [],
                    "sinks": [
                        {"type": "webhook", "url": f"{receiver.url}/hook"},
                        {"type": "alertmanager", "url": f"{receiver.url}/am", **SILENT},
                    ],
                },
            )
        )
    )
    bodies = {path: body for path, _, body in receiver.posts}
    sent = {a["labels"]["topic"]: a for a in bodies["/hook"]["alerts"]}
    assert sent[TOPIC]["owner"] == owner and "owner" not in sent[OTHER]
    found = {a["labels"]["topic"]: a for a in bodies["/am/api/v2/alerts"]}
    assert found[TOPIC]["labels"]["team"] == "shop" and "team" not in found[OTHER]["labels"]
    assert found[TOPIC]["annotations"]["contact"] == "#shop-oncall"


@pytest.mark.parametrize(
    ("runbook", "base", "told"),
    [
        ("docs/busy.md", None, "docs/busy.md"),
        (
            "docs/busy.md",
            "https://git.example.com/weir/",
            "https://git.example.com/weir/docs/busy.md",
        ),
        ("https://wiki/busy", "https://git.example.com", "https://wiki/busy"),
        ("", "https://git.example.com", ""),
    ],
)
def test_runbooks_are_addresses_where_they_have_a_base(
    receiver, evaluator, tmp_warehouse, runbook, base, told
):
    minutes(tmp_warehouse, 0, **BUSY)
    hook = {"type": "webhook", "url": f"{receiver.url}/hook"}
    manager = {"type": "alertmanager", "url": f"{receiver.url}/am", **SILENT}
    go(evaluator(hook, manager, rules=[{**RULE, "runbook": runbook}], runbook_base=base))
    bodies = {path: body for path, _, body in receiver.posts}
    (sent,) = bodies["/hook"]["alerts"]
    (alert,) = bodies["/am/api/v2/alerts"]
    assert sent["runbook"] == told and alert["annotations"].get("runbook", "") == told


def test_many_changes_are_sent_in_portions(receiver, evaluator, tmp_warehouse, monkeypatch):
    monkeypatch.setattr("app.show.alerts.sinks.MOST_IN_ONE", 2)
    for topic in ("a", "b", "c"):
        minutes(tmp_warehouse, 0, topic=topic, **BUSY)
    hook = {"type": "webhook", "url": receiver.url, "retries": 0}
    receiver.answers = [200, 500]
    assert len(go(evaluator(hook)).undelivered) == 1
    go(evaluator(hook))
    assert [len(body["alerts"]) for body in receiver.bodies()] == [2, 1]
    assert sorted(topic for _, topic in states(receiver)) == ["a", "b", "c"]


def test_alertmanager_hears_again_of_what_fires_and_once_of_what_is_resolved(
    receiver, evaluator, tmp_warehouse
):
    sink = {
        "type": "alertmanager",
        "url": f"{receiver.url}/am/",
        "labels": {"fleet": "f"},
        **SILENT,
    }
    minutes(tmp_warehouse, 0, **BUSY)
    minutes(tmp_warehouse, 0, topic=OTHER, **BUSY)
    one = evaluator(sink)
    go(one)
    go(one)
    assert len(receiver.posts) == 1, "a minute has not passed"
    again = evaluator({**sink, "resend_ms": 1})
    go(again)
    go(again)
    assert [len(body) for body in receiver.bodies()] == [2, 2, 2]
    path, _, body = receiver.posts[0]
    assert path == "/am/api/v2/alerts"
    (alert,) = [a for a in body if a["labels"]["topic"] == TOPIC]
    ends = datetime.fromisoformat(alert.pop("endsAt")).timestamp() * 1000
    assert ends > START_MS + 10**9, "in a while, unless it is heard of again"
    assert alert == {
        "labels": {
            "alertname": "busy",
            "severity": "critical",
            "cluster": "east",
            "topic": TOPIC,
            "fleet": "f",
        },
        "annotations": {
            "summary": f"{TOPIC} sent 6000 of 100",
            "value": "6000",
            "runbook": "docs/busy.md",
        },
        "startsAt": "2023-11-14T22:14:00.000+00:00",
    }
    minutes(tmp_warehouse, 1)
    minutes(tmp_warehouse, 1, topic=OTHER, **BUSY)
    go(one)
    ends = {a["labels"]["topic"]: a["endsAt"] for a in receiver.bodies()[-1]}
    assert ends[TOPIC] == "2023-11-14T22:15:00.000+00:00" and ends[OTHER] > "2024"
    go(evaluator(sink))
    assert [a["labels"]["topic"] for a in receiver.bodies()[-1]] == [OTHER]


def test_alertmanager_keeps_alerts_while_nobody_evaluates_and_is_told_of_that(
    receiver, evaluator, tmp_warehouse
):
    sink = {"type": "alertmanager", "url": receiver.url, "labels": {"fleet": "f"}}
    minutes(tmp_warehouse, 0, **BUSY)
    before = time.time()
    go(evaluator(sink))
    (body,) = receiver.bodies()
    alert, watchdog = body
    life = {
        a["labels"]["alertname"]: datetime.fromisoformat(a["endsAt"]).timestamp() - before
        for a in body
    }
    assert 3600 <= life["busy"] < 3660 and 300 <= life["weir-watchdog"] < 360
    assert watchdog["labels"] == {
        "alertname": "weir-watchdog",
        "severity": "none",
        "warehouse": tmp_warehouse,
        "fleet": "f",
    }
    minutes(tmp_warehouse, 1)
    go(evaluator({**sink, "resend_ms": 1_000_000, "expire_ms": 1}))
    ended, watchdog = receiver.bodies()[-1]
    assert ended["labels"] == alert["labels"] and ended["endsAt"] < "2024"
    assert datetime.fromisoformat(watchdog["endsAt"]).timestamp() - before >= 4000


def test_alertmanager_receives_the_current_value(receiver, evaluator, tmp_warehouse):
    minutes(tmp_warehouse, 0, messages=1060)
    one = evaluator({"type": "alertmanager", "url": receiver.url, "resend_ms": 1, **SILENT})
    go(one)
    minutes(tmp_warehouse, 1, messages=2040)
    (checked,) = go(one).firing
    found = [
        (a["annotations"]["value"], a["annotations"]["summary"], a["startsAt"])
        for (a,) in receiver.bodies()
    ]
    begun = "2023-11-14T22:14:00.000+00:00"
    assert found == [
        ("1060", f"{TOPIC} sent 1060 of 100", begun),
        ("2040", f"{TOPIC} sent 2040 of 100", begun),
    ]
    assert (checked["value"], checked["summary"]) == (2040, found[1][1])


def test_an_alert_that_rises_ends_its_lower_severity_at_alertmanager(
    receiver, evaluator, tmp_warehouse
):
    severity = "if(messages > 2000, 'critical', 'warning') AS severity"
    sql = RULE["sql"].replace("cluster, topic,", f"cluster, topic, {severity},")
    sink = {"type": "alertmanager", "url": receiver.url, **SILENT}
    one = evaluator(sink, rules=[{**RULE, "sql": sql, "severity": "info"}])
    minutes(tmp_warehouse, 0, messages=1060)
    go(one)
    minutes(tmp_warehouse, 1, messages=2040)
    go(one)
    first, second = [
        {a["labels"]["severity"]: a["endsAt"] > "2024" for a in body} for body in receiver.bodies()
    ]
    assert first == {"warning": True}
    assert second == {"critical": True, "warning": False}


def test_one_evaluator_delivers_at_a_time(receiver, evaluator, tmp_warehouse):
    sink = {"type": "webhook", "url": receiver.url}
    minutes(tmp_warehouse, 0, **BUSY)
    first, second = evaluator(sink), evaluator(sink)
    with first.delivery.alone() as alone:
        assert alone
        go(second)
        assert receiver.posts == []
    go(second)
    assert states(receiver) == [("firing", TOPIC)]


def test_only_named_rules_are_evaluated_and_nothing_of_others_is_lost(
    receiver, make_settings, tmp_warehouse
):
    rules = [RULE, {**RULE, "name": "other"}]
    settings = make_settings(
        alerts={
            "rules": rules,
            "rule_files": [],
            "sinks": [{"type": "webhook", "url": receiver.url, "retries": 0}],
        }
    )
    minutes(tmp_warehouse, 0, **BUSY)
    receiver.answers = [500]
    go(evaluator_of(settings))
    go(evaluator_of(settings, ["other"]))
    assert sorted(a["alert"] for b in receiver.bodies() for a in b["alerts"]) == ["busy", "other"]
    with pytest.raises(UserError, match=r"--rule othr: no such rule\ndid you mean other\?"):
        evaluator_of(settings, ["othr"])


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"type": "pager"}, r"sinks\[0\].*'pager'"),
        ({"type": "webhook"}, r"sinks\[0\].webhook.url: field required"),
        ({"type": "webhook", "url": "ftp://x"}, r"url: is not an address \(allowed: http://"),
        ({"type": "webhook", "url": "http://h", "resend_ms": 1}, "resend_ms: unknown key"),
        ({"type": "alertmanager", "url": "http://h", "retries": -1}, "retries: -1 is below 0"),
    ],
)
def test_a_mistake_in_a_sink_names_its_key(sink, message):
    with pytest.raises(UserError, match=message):
        load_settings(None, {"alerts": {"sinks": [sink]}})


def test_secrets_are_neither_shown_nor_written(
    evaluator, make_settings, tmp_warehouse, monkeypatch, capsys
):
    monkeypatch.setenv("HOOK_URL", "http://127.0.0.1:1/services/T0/hush")
    sinks = [
        {
            "type": "webhook",
            "url": "http://127.0.0.1:1/services/hush",
            "headers": {"Authorization": "hush"},
            "retries": 0,
        },
        {"type": "webhook", "url": "${env:HOOK_URL}", "retries": 0},
        {
            "type": "webhook",
            "url": "http://127.0.0.1:1/x",
            "headers": {"X-A": "hush\n"},
            "retries": 0,
        },
    ]
    minutes(tmp_warehouse, 0, **BUSY)
    one = evaluator(*sinks)
    found = go(one).undelivered
    assert len(found) == 3 and "hush" not in str(found)
    settings = make_settings(alerts={"sinks": sinks[:2]})
    assert "hush" not in repr(settings) + str(settings.display())
    monkeypatch.delenv("HOOK_URL")
    assert "the environment variable HOOK_URL is not set" in str(go(one).undelivered)


def test_a_note_moves_on_only(tmp_warehouse, evaluator):
    one = evaluator({"type": "webhook", "url": "http://127.0.0.1:1"})
    (sink,) = one.alerts.http_sinks
    delivery = one.delivery
    assert delivery.note(sink, TakenChanges(7, [2, 5]), 3) == TakenChanges(7, [5])
    assert delivery.note(sink, TakenChanges(7, []), 9) == TakenChanges(9, [])
    (note,) = Path(tmp_warehouse, "_weir", "alerts").glob("*.json")
    assert json.loads(note.read_text()) == {"number": 9, "but": []}
