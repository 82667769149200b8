"""The mapping of producer states: what is new, when it was, and what is live."""

from __future__ import annotations

from typing import Any

import pytest

from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_states import (
    IdOwner,
    IdState,
    InMemory,
    KnownTopic,
    MappedProducers,
    ProducerAnswers,
    ProducerRules,
    map_answers,
)
from app.tables.json_documents import Document
from tests.unit.sources.pulsar.documents import valid

KEPT: Document[KnownTopic] = Document(InMemory)
AT = 1_800_000_000_000
P0, P1 = Place("orders", 0), Place("orders", 1)
RULES = ProducerRules("east", 100, lambda name: not name.startswith("_"), tick_ms=60_000)
Json = dict[str, Any]


class Named:
    """Owners by producer id."""

    def __init__(self, **owners: str) -> None:
        self.owners = {int(key[1:]): name for key, name in owners.items()}

    def of(self, producer_id: int, topic: str) -> IdOwner:
        name = self.owners.get(producer_id)
        return IdOwner() if name is None else IdOwner(f"User:{name}", f"{name}-app")


class Polls:
    """Polls one after the other, ten seconds apart, through the memory's JSON."""

    def __init__(self, owners: Named | None = None) -> None:
        self.owners = owners or Named()
        self.at: int | None = None
        self.known: dict[str, KnownTopic] = {}
        self.last: Json | None = None

    def poll(
        self,
        states: dict[Place, list[IdState]],
        leaders: dict[Place, str | None] | None = None,
        whole: bool = False,
        **keys: Any,
    ) -> MappedProducers:
        """A poll that has these states; further partitions in `leaders` are not answered."""
        now = AT if self.at is None else self.at + 10_000
        led = {**dict.fromkeys(states, "1"), **(leaders or {})}
        found: dict[str, dict[int, str | None]] = {}
        for place, leader in led.items():
            found.setdefault(place.topic, {})[place.partition] = leader
        answers = ProducerAnswers(
            **{
                "polled_ms": now,
                "names": frozenset(found),
                "leaders": found,
                "states": states,
                **keys,
            }
        )
        mapped = map_answers(answers, self.known, self.at, self.last, RULES, self.owners.of, whole)
        self.at, self.last = now, mapped.last
        self.known = {name: KEPT.of_text(KEPT.text(known)) for name, known in mapped.known.items()}
        assert self.known == mapped.known
        valid([{**record, "seq": n} for n, record in enumerate(mapped.records)])
        return mapped


def state(producer_id: int, at_ms: int = AT, epoch: int = 0, sequence: int = 4) -> IdState:
    return IdState(producer_id, epoch, sequence, at_ms)


def new(mapped: MappedProducers) -> list[tuple[Any, ...]]:
    """What is reported as new: topic, partition, id, time."""
    return [
        (r["topic"], r["partition"], r["producer_id"], r["ts_wall_ms"] - AT)
        for r in mapped.records
        if r["event_type"] == "produce_batch"
    ]


def live(mapped: MappedProducers) -> list[tuple[Any, ...]]:
    return [
        (r["broker"], r["topic"], r["user"], r["live_ids"], r["states"], r["heap_bytes"])
        for r in mapped.rows
    ]


def test_an_id_that_a_poll_finds_anew_is_a_batch_of_its_owner() -> None:
    polls = Polls(Named(p8="alice"))
    assert polls.poll({P0: [state(7)]}).records == []
    assert polls.poll({P0: [state(7), state(8, AT + 4000)]}).records == [
        {
            "event_type": "produce_batch",
            "source_feed": "kafka_producers",
            "cluster": "east",
            "broker": "1",
            "ts_wall_ms": AT + 4000,
            "principal": "User:alice",
            "client_id": "alice-app",
            "topic": "orders",
            "partition": 0,
            "producer_id": 8,
            "sequence_id": 4,
            "publish_time_ms": AT + 4000,
        }
    ]


def test_what_was_there_before_the_first_poll_is_not_new_and_is_live() -> None:
    polls = Polls(Named(p1="alice", p2="alice"))
    first = polls.poll({P0: [state(1), state(2), state(3)], P1: [state(1)]})
    assert (first.records, first.ids, first.unknown) == ([], 3, 1)
    assert live(first) == [
        ("1", "orders", "alice", 2, 3, 300),
        ("1", "orders", "unknown", 1, 1, 100),
    ]
    # It produces to another partition: new there, and the job knows whether it is to the user.
    more = {P0: [state(1), state(2), state(3)], P1: [state(1), state(2, AT + 1)]}
    assert new(polls.poll(more)) == [("orders", 1, 2, 1)]


def test_an_id_is_reported_once_while_it_is_live() -> None:
    polls = Polls()
    polls.poll({P0: []})
    assert new(polls.poll({P0: [state(1, AT + 1)]})) == [("orders", 0, 1, 1)]
    assert new(polls.poll({P0: [state(1, AT + 12_000, sequence=9)]})) == []
    assert live(polls.poll({P0: []})) == [("1", "orders", "unknown", 0, 0, 0)]
    # The broker had let it go, and holds it again.
    assert new(polls.poll({P0: [state(1, AT + 35_000)]})) == [("orders", 0, 1, 35_000)]


def test_another_epoch_is_reported() -> None:
    polls = Polls()
    polls.poll({P0: [state(1)]})
    assert new(polls.poll({P0: [state(1, AT + 5, epoch=1)]})) == [("orders", 0, 1, 5)]
    assert new(polls.poll({P0: [state(1, AT + 5, epoch=1)]})) == []


@pytest.mark.parametrize(
    ("stamped", "taken"),
    [(AT + 3000, 3000), (AT - 3_600_000, 0), (-1, 0), (AT + 3_600_000, 10_000)],
)
def test_times_lie_between_two_polls(stamped: int, taken: int) -> None:
    polls = Polls()
    polls.poll({P0: []})
    done = polls.poll({P0: [state(1, stamped)]})
    assert new(done) == [("orders", 0, 1, taken)]
    assert done.records[0].get("publish_time_ms") == (stamped if stamped >= 0 else None)


def test_records_are_in_the_order_of_their_times() -> None:
    polls = Polls()
    polls.poll({P0: [], P1: []})
    done = polls.poll({P0: [state(2, AT + 9), state(1, AT + 7)], P1: [state(1, AT + 8)]})
    assert [at for *_, at in new(done)] == [7, 8, 9]


def test_a_partition_without_an_answer_is_as_it_was() -> None:
    polls = Polls()
    polls.poll({P0: [state(1)], P1: [state(1)]})
    away = polls.poll({P1: [state(1)]}, {P0: None})
    assert (away.records, away.rows, away.skipped) == ([], [], {P0})
    assert new(polls.poll({P0: [state(1), state(2, AT + 15_000)], P1: [state(1)]})) == [
        ("orders", 0, 2, 15_000)
    ]


def test_a_partition_that_the_first_poll_could_not_ask_begins_later() -> None:
    polls = Polls()
    polls.poll({P1: []}, {P0: None})
    assert new(polls.poll({P0: [state(1)], P1: []})) == []
    assert new(polls.poll({P0: [state(1), state(2, AT + 15_000)], P1: []})) == [
        ("orders", 0, 2, 15_000)
    ]


def test_topics_and_partitions_made_between_polls_have_only_new_ids() -> None:
    polls = Polls()
    polls.poll({P0: []})
    made = Place("late", 0)
    assert new(polls.poll({P0: [], P1: [state(1, AT + 1)], made: [state(1, AT + 2)]})) == [
        ("orders", 1, 1, 1),
        ("late", 0, 1, 2),
    ]
    # Also where the first answer about them takes longer.
    later = Place("later", 0)
    polls.poll({P0: [], P1: [state(1)], made: [state(1)]}, {later: None})
    found = polls.poll({P0: [], P1: [state(1)], made: [state(1)], later: [state(5, AT + 25_000)]})
    assert new(found) == [("later", 0, 5, 25_000)]


def test_a_topic_that_is_chosen_later_has_known_ids() -> None:
    polls = Polls()
    hidden = Place("_hidden", 0)
    polls.poll({P0: []}, names=frozenset({"orders", "_hidden"}))
    assert new(polls.poll({P0: [], hidden: [state(1)]})) == []


def test_a_topic_that_is_gone_has_no_live_ids() -> None:
    polls = Polls()
    polls.poll({P0: [state(1)], Place("old", 0): [state(1)]})
    done = polls.poll({P0: [state(1)]})
    assert live(done) == [("1", "old", "unknown", 0, 0, 0)]
    assert (done.gone, set(done.known)) == ({"old"}, {"orders"})


def test_a_topic_that_is_listed_and_not_described_is_as_it_was() -> None:
    polls = Polls()
    polls.poll({P0: [state(1)], P1: []})
    done = polls.poll({}, names=frozenset({"orders"}))
    assert (done.records, done.rows, done.skipped) == ([], [], {P0, P1})
    assert new(polls.poll({P0: [state(1)], P1: [state(1, AT + 1)]})) != []


def test_another_leader_holds_the_same_ids() -> None:
    polls = Polls()
    polls.poll({P0: [state(1)], P1: [state(1)]})
    moved = polls.poll({P0: [state(1)], P1: [state(1)]}, {P1: "2"})
    assert moved.records == []
    assert live(moved) == [
        ("1", "orders", "unknown", 1, 1, 100),
        ("2", "orders", "unknown", 1, 1, 100),
    ]


def test_a_row_has_the_heap_of_its_broker_and_all_rows_come_where_they_are_wanted() -> None:
    polls = Polls(Named(p1="alice"))
    other = Place("billing", 0)
    polls.poll({P0: [state(1)], P1: [state(1), state(2)], other: [state(3)]}, {P1: "2"})
    done = polls.poll({P0: [state(1)], P1: [state(2)], other: [state(3)]}, {P1: "2"})
    assert live(done) == [("2", "orders", "alice", 0, 0, 0)]
    assert [r["broker_heap_bytes"] for r in done.rows] == [100]
    again = {P0: [state(1)], P1: [state(2)], other: [state(3)]}
    assert polls.poll(again, {P1: "2"}).rows == []
    done = polls.poll(again, {P1: "2"}, whole=True)
    assert live(done) == [
        ("1", "billing", "unknown", 1, 1, 100),
        ("1", "orders", "alice", 1, 1, 100),
        ("2", "orders", "unknown", 1, 1, 100),
    ]
    assert [r["broker_heap_bytes"] for r in done.rows] == [200, 200, 100]


def test_an_owner_that_is_known_later_is_kept_from_then_on() -> None:
    owners = Named()
    polls = Polls(owners)
    polls.poll({P0: [state(1)]})
    owners.owners[1] = "alice"
    assert live(polls.poll({P0: [state(1)]})) == [
        ("1", "orders", "alice", 1, 1, 100),
        ("1", "orders", "unknown", 0, 0, 0),
    ]
    del owners.owners[1]
    done = polls.poll({P0: [state(1)]})
    assert (done.rows, done.unknown) == ([], 0)


def test_polls_without_news_move_the_clocks_past_the_newest_id() -> None:
    polls = Polls(Named(p1="alice"))
    polls.poll({P0: []})
    polls.poll({P0: [state(1, AT + 4000)]})
    ticks = [polls.poll({P0: [state(1)]}).records for _ in range(8)]
    assert ticks[0] == [
        {
            "event_type": "producer_id_assigned",
            "source_feed": "kafka_producers",
            "cluster": "east",
            "broker": "1",
            "ts_wall_ms": AT + 20_000,
            "principal": "User:alice",
            "client_id": "alice-app",
            "producer_id": 1,
        }
    ]
    # The last one is more than tick_ms after the id.
    assert [len(records) for records in ticks] == [1, 1, 1, 1, 1, 1, 0, 0]
    assert ticks[5][0]["ts_wall_ms"] == AT + 70_000
    assert new(polls.poll({P0: [state(1), state(2, AT + 95_000)]})) == [("orders", 0, 2, 95_000)]
