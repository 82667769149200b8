"""Groups at the last stable offset, poll by poll, and what leaders and coordinators say of it. A real
cluster answers in tests/servers/test_kafka_transactions.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.kafka_client import Answered, RequestError
from app.sources.kafka.offsets import Log, OpenTransaction, Place
from app.sources.kafka.transactions import coordinated, held, offsets_partition, open_at
from app.sources.polling import Unanswered
from tests.reference.words import words
from tests.unit.sources.kafka.answers import AT, P0, P1, answers
from tests.unit.sources.kafka.poll import Scripted, lines, poller

PAYMENTS = OpenTransaction(7, "payments-1", AT - 5000)
MINUTE = 60_000


def waits(one: GroupPoller, number: int) -> list[tuple[Any, ...]]:
    """The states of a poll that name a transaction."""
    columns = words("subscription partition producer_id producer_name publish_time_ms")
    return [
        tuple(record.get(c) for c in columns)
        for record in lines(one.poll_once(AT + number * MINUTE))
        if record.get("group_state") in ("open_transaction", "pending_offsets")
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
    assert two.spool.memory.extra["waiting"] == []


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


def test_a_group_whose_next_offset_is_in_a_transaction(tmp_path: Path) -> None:
    """From the second poll on, in another process, too; what is not answered leaves it so; once the
    transaction has ended, or the group moves, it is over."""
    client = Scripted()
    client.now = answers()
    client.held_now = {("slow", P0): PAYMENTS._replace(holds="pending_offsets")}
    one = poller(tmp_path, client)
    named = [("slow", 0, 7, "payments-1", AT - 5000)]
    assert waits(one, 0) == [] and client.held_asked == []
    assert waits(one, 1) == named
    ((places, since_ms),) = client.held_asked  # of the first poll, with the time that it took
    assert places == {("slow", P0)} and AT <= since_ms < AT + MINUTE
    one.close()
    two = poller(tmp_path, client)
    assert waits(two, 2) == named
    client.held_now = Unanswered("no answer in time")
    assert waits(two, 3) == named
    assert two.last.problems == ["pending offsets: no answer in time"]
    client.now = answers(committed={"slow": {P0: 42, P1: 50}})
    assert waits(two, 4) == []
    client.held_now = {}
    assert waits(two, 5) == []


@pytest.mark.parametrize("group", ["slow", "payments", "", "zahlung-ü", "AaAa", "a" * 249])
def test_the_partition_of_a_groups_offsets(group: str) -> None:
    """As java.lang.String's hash code, by its definition."""
    number = sum(ord(each) * 31 ** (len(group) - 1 - n) for n, each in enumerate(group)) % 2**32
    signed = number - 2**32 if number >= 2**31 else number
    assert offsets_partition(group, 50) == (0 if signed == -(2**31) else abs(signed)) % 50


class Cluster:
    """A leader with two producers, and a coordinator that knows one of them."""

    def __init__(self, *partitions: list[list[Any]]) -> None:
        """Each transaction has written to some partitions."""
        self.partitions = partitions
        self.ids: list[set[int]] = []
        self.asked: dict[str, list[Place]] = {}
        self.settled_now: dict[str, dict[str, dict[str, int]] | None] = {}
        self.missing: list[str] = []
        self.undescribed = 0

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

    def transactions(
        self, ids: set[int], deadline: float, states: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        self.ids.append(ids)
        return [f"payments-{n}" for n in range(1, len(self.partitions) + 1)], self.missing[:]

    def described(self, names: list[str], deadline: float) -> Any:
        numbers = [int(name.rpartition("-")[2]) for name in names]
        return self._reply(
            [
                [n + 6, 3, "Ongoing", 60_000, AT - 5000, self.partitions[n - 1]]
                if n != self.undescribed
                else None
                for n in numbers
            ],
            {
                at: RequestError(("TimeoutException",), "timed out")
                for at, n in enumerate(numbers)
                if n == self.undescribed
            },
        )

    def topics(self, names: list[str], deadline: float) -> Any:
        class Reply:
            def only(self, what: str, deadline: float) -> Any:
                return ["id", [[n, "1"] for n in range(50)]]

        return Reply()

    def settled(self, stood: dict[str, list[Place]], deadline: float) -> Any:
        self.asked = stood
        late = RequestError((), "no answer in time")
        unanswered = {n: late for n, group in enumerate(stood) if self.settled_now[group] is None}
        return self._reply([self.settled_now[group] for group in stood], unanswered)


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


OFFSETS = ["__consumer_offsets", offsets_partition("slow", 50)]
ELSEWHERE = ["__consumer_offsets", (OFFSETS[1] + 1) % 50]  # type: ignore[operator]
STOOD = [("slow", P0), ("slow", P1), ("other", P0)]


@pytest.mark.parametrize(
    ("transactions", "since", "settled", "found"),
    [
        ([[["out", 0], OFFSETS]], AT, {"orders": {"1": 5}}, {("slow", P0): "payments-1"}),
        ([[["out", 0], OFFSETS], [ELSEWHERE]], AT, {}, dict.fromkeys(STOOD[:2], "payments-1")),
        ([[OFFSETS], [["out", 0], OFFSETS]], AT, {"orders": {"0": 4}}, {("slow", P1): None}),
        ([[OFFSETS]], AT, {"orders": {"0": 4, "1": 5}}, {}),
        ([[OFFSETS]], AT, None, {}),
        ([[OFFSETS]], AT - 6000, {}, {}),
        ([[["out", 0]]], AT, {}, {}),
        ([], AT, {}, {}),
    ],
)
def test_the_transaction_that_has_offsets(
    transactions: list[Any], since: int, settled: Any, found: dict[Any, str | None]
) -> None:
    """Only what the group's own coordinator has not settled; the name only where one may be it; only
    one that was open at the poll before."""
    cluster: Any = Cluster(*transactions)
    cluster.settled_now = {"slow": settled}
    waits = held(cluster, STOOD, {}, since, 0, [])
    assert {key: each.transactional_id for key, each in waits.items()} == found
    assert all(each.holds == "pending_offsets" for each in waits.values())
    assert cluster.asked.keys() <= {"slow"}


LISTS = "the list of transactions: "
BEFORE = {("slow", P1): PAYMENTS._replace(holds="pending_offsets")}


@pytest.mark.parametrize(
    ("missing", "undescribed", "settled", "problems"),
    [
        ([], 0, {"orders": {"0": 4, "1": 5}}, []),
        ([f"{LISTS}UnsupportedVersionException: no"], 0, {"orders": {"0": 4, "1": 5}}, []),
        ([f"{LISTS}timed out"], 0, {"orders": {"0": 4, "1": 5}}, [f"{LISTS}timed out"]),
        ([], 2, {"orders": {"0": 4, "1": 5}}, ["transaction payments-2: timed out"]),
        ([], 0, None, ["group slow: no answer in time"]),
    ],
)
def test_what_a_coordinator_does_not_answer_costs_its_own_groups(
    missing: list[str], undescribed: int, settled: Any, problems: list[str]
) -> None:
    """What was pending stays so; what others answer is taken; brokers before 3.0 list nothing."""
    cluster: Any = Cluster([OFFSETS], [["out", 0]])
    cluster.missing, cluster.undescribed, cluster.settled_now = (
        missing,
        undescribed,
        {"slow": settled},
    )
    said: list[str] = []
    assert held(cluster, STOOD, BEFORE, AT, 0, said) == (BEFORE if problems else {})
    assert said == problems
    cluster.settled_now = {"slow": {"orders": {"1": 5}}}
    assert ("slow", P0) in held(cluster, STOOD, {}, AT, 0, [])


def test_open_transactions_that_are_left_out_are_counted() -> None:
    cluster: Any = Cluster(*[[["out", 0]]] * 1503)
    said: list[str] = []
    assert held(cluster, STOOD, BEFORE, AT, 0, said) == {}
    assert said == ["pending offsets: 1,003 of 1,503 open transactions are left out"]


def test_a_producer_whose_coordinator_does_not_answer_is_nobodys_no_more_than_before() -> None:
    """Else it would look like a transaction that hangs."""
    cluster: Any = Cluster([["orders", 0]])
    for cluster.missing, cluster.undescribed in (([f"{LISTS}timed out"], 0), ([], 1)):
        with pytest.raises(Unanswered, match="timed out"):
            coordinated(cluster, {7}, 0)
    cluster.missing, cluster.undescribed = [], 0
    assert coordinated(cluster, {7}, 0)[7].transactional_id == "payments-1"
