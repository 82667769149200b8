"""What fails in a poll of Pulsar costs what it is of, and the poll leaves its record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.sources.pulsar import admin_poll
from app.sources.pulsar.admin_client import NotAllowed, Session
from app.sources.pulsar.admin_poll import AdminPoller
from tests.support.polled import records
from tests.support.servers.admin import AdminServer
from tests.unit.sources.pulsar.conftest import MakeAdmin
from tests.unit.sources.pulsar.documents import AT, info, internal, stats


class Strange(Exception):
    """An exception that no boundary names."""


@pytest.mark.parametrize(
    "error",
    [Strange("\ud800\n"), ValueError(), OverflowError("large"), NotAllowed("it may not read it")],
)
def test_a_topic_of_pulsar_that_fails_costs_itself(
    tmp_path: Path,
    server: AdminServer,
    make_admin: MakeAdmin,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    topics = [f"persistent://public/n1/t{n}" for n in range(3)]
    server.answers["persistent/public/n1"] = topics
    for topic in topics:
        server.topic(topic[13:], internal=internal(), info=info(), stats=stats())
    real = admin_poll.map_poll

    def mapped(poll: Any, *more: Any) -> Any:
        if poll["topic"] == topics[1]:
            raise error
        return real(poll, *more)

    monkeypatch.setattr(admin_poll, "map_poll", mapped)
    one = AdminPoller(make_admin(), tmp_path)
    found = records(one.poll_once(AT))
    assert {r["topic"] for r in found[:-1]} == {topics[0], topics[2]}
    assert (found[-1]["dropped"], found[-1]["problem"][:25]) == (1, f"{topics[1]}: "[:25])
    monkeypatch.setattr(admin_poll, "map_poll", real)
    assert records(one.poll_once(AT + 60_000))[-1]["dropped"] == 0
    one.close()


@pytest.mark.parametrize("number", range(4))
def test_an_exception_at_any_request_to_pulsar_leaves_the_record_of_the_poll(
    tmp_path: Path,
    server: AdminServer,
    make_admin: MakeAdmin,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    name = "public/n1/t"
    server.answers["persistent/public/n1"] = [f"persistent://{name}"]
    server.topic(name, internal=internal(), info=info(), stats=stats())
    one = AdminPoller(make_admin(), tmp_path)
    one.poll_once(AT)
    left, real = [number], Session.get

    def get(self: Session, path: str) -> Any:
        left[0] -= 1
        if left[0] == -1:
            raise Strange("\ud800\x1b[2J\u2028two\nlines")
        return real(self, path)

    monkeypatch.setattr(Session, "get", get)
    *_, last = records(one.poll_once(AT + 60_000))
    assert left[0] < 0 and last["problem"].isprintable() and "Strange" in last["problem"]
    assert records(one.poll_once(AT + 120_000))[-1]["dropped"] == 0
    one.close()
