"""Comparisons beside a run: in a process of their own, at every interval."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event

import pytest

from app.config.settings import Settings
from app.run import side_processes
from app.run.side_processes import one_round, repeating
from app.show.reconcile import reconcile_command
from app.show.reconcile.comparing import ReadingMemory
from app.show.reconcile.scrape import Scrape
from app.tables.run_lock import only_reconciliation
from tests.support.servers.admin import AdminServer, status
from tests.support.waiting import wait_for

METRICS = "\n".join(
    [
        'pulsar_in_messages_total{cluster="east",topic="persistent://a/b/c"} 7',
        'process_start_time_seconds{cluster="east"} 5',
        "",
    ]
)
Make = Callable[..., Settings]


def test_brokers_are_read_at_every_interval(make_settings: Make) -> None:
    reported: list[str] = []
    with AdminServer() as server:
        server.answers["/metrics/"] = status(200, METRICS)
        settings = make_settings(reconcile={"brokers": [server.url], "interval_ms": 1000})
        with repeating("reconcile", settings, reported.append):
            wait_for(lambda: ReadingMemory.load(settings.location, Scrape).number >= 2)
    assert reported == []
    (readings,) = ReadingMemory.load(settings.location, Scrape).scrapes.values()
    assert len(readings) >= 2
    assert all(one.topics == {"persistent://a/b/c": {"messages_in": 7}} for one in readings)


def test_what_prevents_a_reading_is_reported_once(make_settings: Make) -> None:
    reported: list[str] = []
    seen = Event()

    def say(text: str) -> None:
        reported.append(text)
        seen.set()

    with AdminServer() as server:
        server.answers["/metrics/"] = status(401, {"reason": "no"})
        settings = make_settings(reconcile={"brokers": [server.url], "interval_ms": 200})
        with repeating("reconcile", settings, say):
            assert seen.wait(120)
            asked = len(server.asked)
            wait_for(lambda: len(server.asked) > asked + 1)
    assert reported == ["reconcile: reconcile.token: Pulsar refuses metrics/ (401: no)"]


def test_while_another_process_compares_a_round_does_nothing(make_settings: Make) -> None:
    with AdminServer() as server:
        server.answers["/metrics/"] = status(200, METRICS)
        settings = make_settings(reconcile={"brokers": [server.url], "interval_ms": 100})
        with only_reconciliation(settings.location):
            assert one_round("reconcile", settings.model_dump_json(), Event()) == ""
        assert server.asked == []


def test_while_a_round_waits_for_its_time_another_process_may_compare(
    make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared = []

    def another(*_: object) -> None:
        with only_reconciliation(settings.location):
            compared.append(len(server.asked))

    monkeypatch.setattr(reconcile_command, "until_next", another)
    monkeypatch.setattr("os.nice", lambda _: 0)  # of this process
    with AdminServer() as server:
        server.answers["/metrics/"] = status(200, METRICS)
        settings = make_settings(reconcile={"brokers": [server.url], "interval_ms": 60_000})
        side_processes.ROUNDS["reconcile"].work(settings)
        assert compared == [0] and server.asked
