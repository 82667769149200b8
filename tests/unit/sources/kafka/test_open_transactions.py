"""Transactions that stay open: what polls find, what coordinators answer, and the rows of it."""

from __future__ import annotations

from typing import Any

from app.sources.kafka.open_transactions import Kept, PolledTransactions, poll
from app.sources.kafka.producer_states import IdOwner, IdState
from app.sources.kafka.transactions import Coordinated
from tests.unit.sources.kafka.answers import AT, P0, P1

MINUTE = 60_000
OPEN = IdState(7, 3, 2, AT - MINUTE, 40)
OTHERS = (IdState(5, 0, 9, AT, None), IdState(8, 0, 0, AT, 44))
KNOWN = Coordinated("payments-1", 7, 3, "Ongoing", 60_000, AT - MINUTE, frozenset({P0}))
Json = dict[str, Any]


class Polls:
    """Polls of one cluster, each a minute after the one before."""

    def __init__(self) -> None:
        self.kept: Kept = {}
        self.number = -1
        self.asked: list[set[int]] = []
        self.answer: dict[int, Coordinated] | None = {7: KNOWN}

    def poll(self, states: Any, topics: frozenset[str] = frozenset({"orders"}), **more: Any) -> Any:
        self.number += 1

        def ask(ids: set[int]) -> dict[int, Coordinated] | None:
            self.asked.append(ids)
            return self.answer

        owners = {7: IdOwner("User:pay")}
        polled: PolledTransactions = poll(
            states,
            self.kept,
            topics,
            AT + self.number * MINUTE,
            "east",
            ask,
            lambda pid, _: owners.get(pid, IdOwner()),
            **more,
        )
        self.kept = polled.kept
        return [(r["producer_id"], r["state"], r["transactional_id"]) for r in polled.rows]


def test_a_transaction_has_a_row_from_the_second_poll_on() -> None:
    polls = Polls()
    assert polls.poll({P0: [OPEN, *OTHERS]}) == [] and polls.asked == []
    assert polls.poll({P0: [OPEN]}) == [(7, "Ongoing", "payments-1")]
    assert polls.asked == [{7}], "the other one has ended since"
    polls.answer = None
    assert polls.poll({P0: [OPEN]}) == []
    assert polls.poll({P0: [OPEN]}, whole=True) == [(7, "Ongoing", "payments-1")]
    assert polls.poll({P0: [OPEN._replace(transaction_start=50)]}) == [(7, "ended", "payments-1")]
    assert polls.poll({P0: []}) == [], "one that came and went has no row"


def test_the_columns_of_a_row() -> None:
    polls = Polls()
    polls.poll({P0: [OPEN]})
    found = poll(
        {P0: [OPEN]},
        polls.kept,
        frozenset({"orders"}),
        AT,
        "east",
        lambda _: {7: KNOWN},
        lambda *_: IdOwner("User:pay"),
    )
    assert found.rows == [
        {
            "polled_ms": AT,
            "cluster": "east",
            "topic": "orders",
            "partition": 0,
            "user": "pay",
            "transactional_id": "payments-1",
            "producer_id": 7,
            "state": "Ongoing",
            "start_offset": 40,
            "start_ms": AT - MINUTE,
            "timeout_ms": 60_000,
            "last_ms": AT - MINUTE,
        }
    ]


def test_a_transaction_hangs_a_minute_after_its_timeout() -> None:
    polls = Polls()
    polls.answer = {7: KNOWN._replace(start_ms=AT)}
    polls.poll({P0: [OPEN]})
    assert [polls.poll({P0: [OPEN]}) for _ in range(3)] == [
        [(7, "Ongoing", "payments-1")],
        [],
        [(7, "hanging", "payments-1")],
    ]


def test_one_that_no_coordinator_knows_hangs_15_minutes_after_its_last_batch() -> None:
    """Nor does a coordinator know it that has its producer on other partitions."""
    for answer in ({}, {7: KNOWN._replace(partitions=frozenset({P1}))}):
        polls = Polls()
        polls.answer = answer
        state = OPEN._replace(last_ms=AT)
        rows = [polls.poll({P0: [state]}) for _ in range(17)]
        assert rows[1] == [(7, "uncoordinated", None)] and rows[16] == [(7, "hanging", None)]
        assert not any(rows[2:16])
        timeless = Polls()
        timeless.answer = answer
        rows = [timeless.poll({P0: [state._replace(last_ms=-1)]}) for _ in range(20)]
        assert [each for each in rows if each] == [[(7, "uncoordinated", None)]]


def test_missing_answers_are_not_guessed() -> None:
    """Of coordinators, of a leader; a topic that is gone has none any more."""
    polls = Polls()
    polls.answer = None
    polls.poll({P0: [OPEN]})
    assert polls.poll({P0: [OPEN]}) == []
    polls.answer = {7: KNOWN}
    assert polls.poll({}) == [] and polls.kept
    assert polls.poll({P0: [OPEN]}) == [(7, "hanging", "payments-1")]
    polls.answer = None
    assert polls.poll({P0: [OPEN]}) == [] and polls.kept
    assert polls.poll({}, topics=frozenset()) == [(7, "ended", "payments-1")]
    assert polls.kept == {}
