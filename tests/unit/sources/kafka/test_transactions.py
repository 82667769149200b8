"""Groups at the last stable offset, poll by poll, and what leaders and coordinators say of it. A real
cluster answers in tests/servers/test_kafka_transactions.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.kafka_client import Answered, RequestError
from app.sources.kafka.offsets import Log, OpenTransaction, Place
from app.sources.kafka.transactions import open_at
from app.sources.polling import Unanswered
from tests.unit.sources.kafka.answers import AT, P0, P1, answers
from tests.unit.sources.kafka.poll import Scripted, lines, poller

PAYMENTS = OpenTransaction(7, "payments-1", AT - 5000)
MINUTE = 60_000


def waits(one: GroupPoller, number: int) -> list[tuple[Any, ...]]:
    """The states of a poll that name a transaction."""
    columns = (
        "subscription",
        "partition",
        "producer_id",
        "producer_name",
        "publish_time_ms",
    )
    return [
        tuple(record.get(c) for c in columns)
        for record in lines(one.poll_once(AT + number * MINUTE))
        if record.get("group_state") == "open_transaction"
    ]


def test_a_group_waits_from_the_second_poll_on(tmp_path: Path) -> None:
    """Its transaction is asked for once, and remembered by another process."""
    client = Scripted()
    client.now = answers()
    client.stable_now, client.open_now = {P0: 40}, {P0: PAYMENTS}
    one = poller(tmp_path, client)
    named = [("slow", 0, 7, "payments-1", AT - 5000)]
    assert waits(one, 0) == [] and client.stable_asked == []
    assert waits(one, 1) == named
    assert (client.stable_asked, client.open_asked) == ([{P0}], [{P0: 40}])
    one.close()
    two = poller(tmp_path, client)
    assert waits(two, 2) == named and len(client.open_asked) == 1
    # What is not answered is not guessed: the state stays.
    client.stable_now = Unanswered("no answer in time")
    assert waits(two, 3) == named
    assert two.last.problems == ["last stable offsets: no answer in time"]
    client.stable_now = {P0: 60}
    assert waits(two, 4) == []
    assert two.spool.memory.extra["open_transactions"] == {}


def test_a_group_waits_at_the_last_stable_offset_alone(tmp_path: Path) -> None:
    """Not below it, not where it moves, not at the end of the log."""
    client = Scripted()
    one = poller(tmp_path, client)
    for number, (committed, stable) in enumerate(((40, 40), (41, 41), (41, 45), (45, 45))):
        client.now = answers(committed={"slow": {P0: committed, P1: 50}})
        client.stable_now = {P0: stable, P1: 50}
        assert waits(one, number) == []
    assert client.stable_asked == [{P0}]
    client.now = answers(committed={"slow": {P0: 45}}, logs={P0: Log(10, 45)})
    assert waits(one, 4) == [] and len(client.stable_asked) == 1


def test_a_transaction_that_nobody_names_is_asked_for_again(tmp_path: Path) -> None:
    client = Scripted()
    client.now = answers()
    client.stable_now, client.open_now = {P0: 40}, Unanswered("refused")
    one = poller(tmp_path, client)
    waits(one, 0)
    assert waits(one, 1) == [("slow", 0, None, None, None)]
    assert one.last.problems == ["open transactions: refused"]
    client.open_now = {P0: OpenTransaction(7)}
    assert waits(one, 2) == [("slow", 0, 7, None, None)]
    client.open_now = {P0: PAYMENTS}
    assert waits(one, 3) == [("slow", 0, 7, None, None)], "its id is settled"


class Cluster:
    """A leader with two producers, and a coordinator that knows one of them."""

    def __init__(self, partitions: list[list[Any]]) -> None:
        self.partitions = partitions
        self.ids: list[set[int]] = []

    def _reply(self, values: list[Any], errors: dict[int, RequestError] | None = None) -> Any:
        class Reply:
            def result(self, deadline: float) -> Answered:
                return Answered(values, errors or {})

        return Reply()

    def producers(self, places: list[Place], deadline: float) -> Any:
        states = [[5, 0, 9, AT, None], [7, 3, 2, AT, 40], [8, 0, 0, AT, 44]]
        denied = RequestError(("TopicAuthorizationException",), "denied")
        late = {n: denied for n, place in enumerate(places) if place.topic == "dark"}
        return self._reply([None if n in late else states for n in range(len(places))], late)

    def transactions(self, ids: set[int], deadline: float) -> list[tuple[str, int, str]]:
        self.ids.append(ids)
        return [("payments-1", 7, "Ongoing")]

    def described(self, names: list[str], deadline: float) -> Any:
        return self._reply([[7, 3, "Ongoing", 60_000, AT - 5000, self.partitions] for _ in names])


@pytest.mark.parametrize(
    ("partitions", "found"),
    [([["orders", 0], ["orders", 1]], PAYMENTS), ([["orders", 1]], OpenTransaction(7))],
)
def test_the_transaction_at_an_offset(partitions: list[list[Any]], found: OpenTransaction) -> None:
    """A coordinator that knows the producer, and not that it writes there, names nothing."""
    cluster: Any = Cluster(partitions)
    problems: list[str] = []
    assert open_at(cluster, {P0: 40, Place("dark", 0): 9}, 0, problems) == {P0: found}
    assert (cluster.ids, problems) == ([{7}], ["producers of dark/0: denied"])


def test_nothing_is_asked_of_coordinators_where_no_transaction_begins(tmp_path: Path) -> None:
    cluster: Any = Cluster([])
    assert open_at(cluster, {P0: 41}, 0, []) == {} and cluster.ids == []
