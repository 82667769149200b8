"""The consumers of partitions that lag: who is asked for, and in which records they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.offsets import GroupConsumer, Log
from app.sources.polling import Unanswered
from tests.unit.sources.kafka.answers import AT, P0, P1, answers
from tests.unit.sources.kafka.poll import Scripted, lines, poller

MINUTE = 60_000
ONE = GroupConsumer("billing-1", "10.0.0.7")


def assigned(one: GroupPoller, number: int) -> dict[tuple[str, int], tuple[str, str]]:
    """By group and partition client id and host of the records of a poll."""
    return {
        (r["subscription"], r["partition"]): (r["client_id"], r["client_host"])
        for r in lines(one.poll_once(AT + number * MINUTE))
        if r["event_type"] == "cursor_state" and "client_id" in r
    }


def test_only_records_that_an_earlier_poll_has_seen_name_a_consumer(tmp_path: Path) -> None:
    """`slow` has not read what the log had a minute ago; `fast` is behind what came since."""
    client = Scripted()
    client.consumers_now = {"slow": {P0: ONE, P1: ONE}, "fast": {P0: ONE}}
    client.now = answers()
    one = poller(tmp_path, client)
    assert assigned(one, 0) == {} and client.consumers_asked == []
    client.now = answers(logs={P0: Log(10, 150), P1: Log(0, 90)})
    assert assigned(one, 1) == {("slow", 0): ("billing-1", "10.0.0.7")}
    assert client.consumers_asked == [{"slow"}]
    # What is not answered stays; an assignment that has moved on does not.
    client.now, client.consumers_now = answers(logs={P0: Log(10, 150)}), Unanswered("late")
    assert assigned(one, 2)["slow", 0] == ("billing-1", "10.0.0.7")
    assert one.last.problems == ["consumers of groups: late"]
    client.now, client.consumers_now = answers(), {"slow": {}}
    assert ("slow", 0) not in assigned(one, 3)  # of an unknown state


def test_a_group_of_the_consumer_protocol_that_rebalances_has_its_epochs(tmp_path: Path) -> None:
    client = Scripted()
    client.consumers_now, client.epochs = {"slow": {P0: ONE}}, {"slow": (5, 4)}
    of_all = {"listed": True, "consumers": {"slow": "rebalancing", "fast": "rebalancing"}}
    client.now = answers(types={"slow": "consumer", "fast": "classic"}, **of_all)
    found = [r for r in lines(poller(tmp_path, client).poll_once(AT)) if "topic" not in r]
    columns = ("subscription", "group_state", "group_type", "group_epoch", "assignment_epoch")
    assert [
        tuple(r.get(c) for c in columns) for r in found if r["event_type"] == "group_state"
    ] == [("fast", "rebalancing", "classic", None, None), ("slow", "rebalancing", "consumer", 5, 4)]
    assert client.consumers_asked == [{"slow"}]


def test_a_group_without_consumers_is_not_asked(tmp_path: Path) -> None:
    client = Scripted()
    client.now = answers(consumers={"slow": "empty"}, listed=True)
    one = poller(tmp_path, client)
    assert assigned(one, 0) == {}
    assert assigned(one, 1) == {("slow", 0): ("", "")}
    assert client.consumers_asked == []


@pytest.mark.parametrize(
    ("state", "members", "named"),
    [
        ("stable", {P1: ONE}, ("", "")),  # it has left the topic, or has fewer members
        ("stable", {}, ("", "")),
        ("rebalancing", {}, None),  # one is about to get it
        ("stable", None, None),  # not answered
    ],
)
def test_a_partition_that_no_member_has(
    state: str, members: dict[Any, Any] | None, named: tuple[str, str] | None, tmp_path: Path
) -> None:
    """Records wait, and the group has other partitions (themoah/klag#92)."""
    client = Scripted()
    client.now = answers(consumers={"slow": state, "fast": "stable"}, listed=True)
    client.consumers_now = Unanswered("late") if members is None else {"slow": members}
    one = poller(tmp_path, client)
    assert assigned(one, 0) == {}
    assert assigned(one, 1).get(("slow", 0)) == named
