"""The mapping: one open ledger per partition, cursors, deletions only from whole answers."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.sources.kafka.offsets import (
    KafkaTopic,
    KnownPartition,
    Log,
    LogPosition,
    Oldest,
    Place,
    limits_of,
)
from app.tables.json_documents import Document
from tests.reference.words import words
from tests.unit.sources.kafka.answers import (
    AT,
    P0,
    P1,
    RULES,
    WEEK,
    answers,
    kinds,
    mapped,
    of_kind,
    records,
)

KEPT: Document[KnownPartition] = Document(KnownPartition)
FULL = [*words("ledger_state cursor_state cursor_state ledger_state cursor_state group_state")]
"""`slow` has an offset in the first partition alone."""


def test_a_partition_is_an_open_ledger() -> None:
    done = mapped(answers())
    assert kinds(done) == FULL
    # 30 bytes in each of the two messages that were read; the other partition takes no mean yet.
    assert of_kind(
        done,
        "ledger_state",
        "topic",
        "partition",
        "ledger_id",
        "ledger_entries",
        "ledger_bytes",
        "log_start",
        "ledger_close_ms",
    ) == [("orders", 0, 0, 100, 3000, 10, None), ("orders", 1, 0, 50, 0, 0, None)]
    assert of_kind(
        done,
        "cursor_state",
        "partition",
        "subscription",
        "mark_delete",
        "publish_time_ms",
        "durable",
    ) == [
        (0, "fast", "0:99", None, True),
        (0, "slow", "0:39", AT - 9000, True),
        (1, "fast", "0:49", None, True),
    ]
    assert {(r["source_feed"], r["cluster"], r["broker"]) for r in records(done)} == {
        ("kafka_groups", "east", "k1")
    }
    assert done.known == {
        P0: KnownPartition("id1", ("fast", "slow"), 30.0, 1),
        P1: KnownPartition("id1", ("fast", "slow"), None, 0, ("slow",)),
    }
    assert (done.gone, done.skipped, done.problems) == (set(), set(), [])


def test_bytes_are_whole_per_message() -> None:
    """A remainder over so many entries would stand in the backlog of a group that reads all."""
    end = 10**12 + 7
    done = mapped(
        answers(
            logs={P0: Log(0, end)},
            committed={"fast": {P0: end - 1}},
            oldest={LogPosition(P0, end - 1): Oldest(AT, 3, 100)},
            read={},
        )
    )
    ((size,),) = of_kind(done, "ledger_state", "ledger_bytes")
    assert size == 33 * end


def test_the_mean_goes_on_over_polls() -> None:
    known = mapped(answers()).known
    read = {LogPosition(P0, 60): Oldest(AT, 1, 60)}
    oldest = {**answers().oldest, **read}
    done = mapped(answers(read=read, oldest=oldest), known)
    assert done.known[P0] == KnownPartition("id1", ("fast", "slow"), 45.0, 2)
    # A partition that was never read is taken to be like the others.
    assert of_kind(done, "ledger_state", "ledger_bytes") == [(4500,), (1500,)]
    old = {P0: KnownPartition("id1", (), 100.0, 64)}
    assert mapped(answers(read=read), old).known[P0].mean == 100 - 40 / 64
    fixed = replace(RULES, bytes_per_message=7)
    assert of_kind(mapped(answers(), rules=fixed), "ledger_state", "ledger_bytes") == [
        (700,),
        (350,),
    ]
    assert KEPT.of_text(KEPT.text(known[P0])) == known[P0]


@pytest.mark.parametrize(
    ("log", "offset", "place"),
    [
        (Log(0, 0), 0, "0:-1"),
        (Log(0, 5), 0, "0:-1"),
        (Log(5, 5), 5, "0:4"),
        (Log(5, 9), 2, "0:1"),
        (Log(0, 5), 9, "0:8"),
        (Log(2**62, 2**62 + 1), 2**62, f"0:{2**62 - 1}"),
    ],
)
def test_ends_of_a_log(log: Log, offset: int, place: str) -> None:
    done = mapped(answers(logs={P0: log}, committed={"g": {P0: offset}}, oldest={}, read={}))
    assert of_kind(done, "cursor_state", "mark_delete") == [(place,)]
    assert of_kind(done, "ledger_state", "ledger_entries") == [(log.end,)]


def test_what_retention_deleted_unread() -> None:
    given = answers(
        committed={"slow": {P0: 4}, "fast": {P0: 10}},
        oldest={LogPosition(P0, 10): Oldest(AT - 500, 1, 1)},
    )
    assert given.positions() == {LogPosition(P0, 10)}
    done = mapped(given)
    assert of_kind(done, "ledger_state", "log_start")[0] == (10,)
    # The cursor stands where it was committed; the time is that of the oldest record still there.
    assert of_kind(done, "cursor_state", "subscription", "mark_delete", "publish_time_ms") == [
        ("fast", "0:9", AT - 500),
        ("slow", "0:3", AT - 500),
    ]


def test_only_lagging_groups_have_a_position() -> None:
    assert answers().positions() == {LogPosition(P0, 40)}
    assert answers(logs={}).positions() == set()


def test_groups_that_are_gone() -> None:
    before = mapped(answers()).known
    done = mapped(answers(committed={"fast": {P0: 100}, "slow": {}}), before)
    assert kinds(done) == [*["cursor_deleted"] * 3, "ledger_state", "cursor_state", "ledger_state"]
    assert of_kind(done, "cursor_deleted", "partition", "subscription") == [
        (0, "slow"),
        (1, "fast"),
        (1, "slow"),
    ]
    assert done.known[P0].groups == ("fast",)
    again = mapped(answers(committed={"fast": {P0: 100}, "slow": {}}), done.known)
    assert of_kind(again, "cursor_deleted") == []


def test_no_deletion_follows_from_a_failure() -> None:
    before = mapped(answers()).known
    # A group that did not answer stays, wherever it was.
    done = mapped(answers(committed={"slow": {P0: 41}}), before)
    assert set(kinds(done)) == {"ledger_state", "cursor_state", "group_state"}
    assert done.known[P0].groups == done.known[P1].groups == ("fast", "slow")
    # A partition without offsets, and a topic that did not answer, are left out.
    done = mapped(answers(logs={P1: Log(0, 50)}), before)
    assert {record["partition"] for record in records(done)} == {1}
    assert (done.known[P0], done.skipped) == (before[P0], {P0})
    done = mapped(answers(topics={}, logs={}), before)
    assert (records(done), done.known, done.skipped) == ([], before, {P0, P1})


def test_topics_that_are_gone() -> None:
    before = mapped(answers()).known
    done = mapped(answers(topics={}, logs={}, committed={"fast": {}}, gone={"orders"}), before)
    assert kinds(done) == [*["ledger_deleted", "cursor_deleted", "cursor_deleted"] * 2]
    assert (done.known, done.gone) == ({}, {P0, P1})
    # Made anew: of the old one everything is gone, and the next poll tells what is there now.
    anew = answers(topics={"orders": KafkaTopic("id2", (0,))})
    done = mapped(anew, before)
    assert kinds(done) == [*["ledger_deleted", "cursor_deleted", "cursor_deleted"] * 2]
    assert (done.known, done.skipped) == ({}, set())
    done = mapped(anew, done.known)
    assert kinds(done) == FULL[:3] and done.known[P0].topic_id == "id2"
    # A broker that tells no ids.
    done = mapped(answers(topics={"orders": KafkaTopic(None, (0, 1))}), before)
    assert done.gone == set()


def test_what_is_no_longer_asked_for_is_told_as_gone() -> None:
    before = mapped(answers()).known
    only = replace(RULES, wants_group=lambda name: name == "fast")
    done = mapped(answers(committed={"fast": {P0: 100, P1: 50}}), before, rules=only)
    assert of_kind(done, "cursor_deleted", "partition", "subscription", "unread") == [
        (0, "slow", 0),
        (1, "slow", 0),
    ]
    none = replace(RULES, wants_topic=lambda _: False)
    done = mapped(answers(topics={}, logs={}), before, rules=none)
    assert set(kinds(done)) == {"ledger_deleted", "cursor_deleted"} and done.known == {}


@pytest.mark.parametrize(
    ("settings", "quotas"),
    [
        (WEEK, {"message_age": 604_800}),
        (
            {**WEEK, "retention.bytes": "5000"},
            {"message_age": 604_800, "destination_storage": 5000},
        ),
        ({**WEEK, "retention.ms": "-1"}, {}),
        ({**WEEK, "retention.ms": "500"}, {"message_age": 1}),
        ({**WEEK, "cleanup.policy": "compact"}, {}),
        ({**WEEK, "cleanup.policy": "compact, delete"}, {"message_age": 604_800}),
        ({**WEEK, "retention.ms": str(2**63 - 1)}, {}),
        ({**WEEK, "retention.ms": "1000000000999"}, {"message_age": 10**9}),
        ({**WEEK, "retention.ms": "1000000001000"}, {}),
    ],
)
def test_retentions(settings: dict[str, str | None], quotas: dict[str, int]) -> None:
    found = limits_of(settings).get("backlog_quota", {})
    assert {kind: q.get("limitTime", q.get("limitSize")) for kind, q in found.items()} == quotas
    assert {q["policy"] for q in found.values()} <= {"consumer_backlog_eviction"}


def policies(done: Any) -> list[Any]:
    return [
        (broker, json.loads(text))
        for broker, text in of_kind(done, "policy", "broker", "policy_json")
    ]


def test_a_retention_is_told_when_it_differs() -> None:
    week = {
        "backlog_quota": {
            "message_age": {"limitTime": 604_800, "policy": "consumer_backlog_eviction"}
        }
    }
    first = mapped(answers(settings={"orders": WEEK}))
    assert kinds(first) == ["policy", *FULL]
    assert policies(first) == [("*", {"scope": "topic", "name": "orders", "limits": week})]
    again = mapped(answers(settings={"orders": WEEK}), first.known, first.policies)
    assert (policies(again), again.policies) == ([], first.policies)
    # Not answered, or not a number: as it was.
    assert mapped(answers(), first.known, first.policies).policies == first.policies
    broken = mapped(answers(settings={"orders": {**WEEK, "retention.ms": "x"}}), {}, first.policies)
    assert (policies(broken), broken.policies) == ([], first.policies)
    assert broken.problems == ["orders: retention.ms: 'x' is not a number"]
    gone = [("*", {"scope": "topic", "name": "orders", "limits": {}})]
    off = replace(RULES, retention_as_quota=False)
    own = replace(RULES, has_quota={"orders"}.__contains__)
    for given, rules in (
        (answers(settings={"orders": {**WEEK, "retention.ms": "-1"}}), RULES),
        (answers(gone={"orders"}, topics={}, logs={}), RULES),
        (answers(settings={"orders": WEEK}), own),
        (answers(), off),
    ):
        done = mapped(given, first.known, first.policies, rules)
        assert (policies(done), done.policies) == (gone, {})
    assert policies(mapped(answers(settings={"orders": WEEK}), rules=own)) == []


def test_places_have_names() -> None:
    assert Place.of_text(P1.text) == P1 and P1.text == "orders/1"


def test_a_partition_without_an_offset_is_stated() -> None:
    """`slow` has an offset in one partition; the other one holds records that it never read."""
    done = mapped(answers())
    assert of_kind(done, "group_state", "topic", "partition", "subscription", "group_state") == [
        ("orders", 1, "slow", "no_offset")
    ]
    assert done.known[P1] == KnownPartition("id1", ("fast", "slow"), None, 0, ("slow",))
    assert KEPT.of_text(KEPT.text(done.known[P1])) == done.known[P1]
    # It goes on while the group is elsewhere in the topic, and ends with it.
    again = mapped(answers(), done.known)
    assert kinds(again) == kinds(done) and again.known[P1] == done.known[P1]
    over = mapped(answers(committed={"fast": {P0: 100, P1: 50}, "slow": {}}), done.known)
    assert of_kind(over, "cursor_deleted", "partition", "subscription") == [
        (0, "slow"),
        (1, "slow"),
    ]
    # An offset that is no longer there is news first.
    gone = mapped(answers(committed={"fast": {P0: 100}, "slow": {P0: 40}}), done.known)
    assert of_kind(gone, "cursor_deleted", "partition", "subscription") == [(1, "fast")]
    then = mapped(answers(committed={"fast": {P0: 100}, "slow": {P0: 40}}), gone.known)
    assert of_kind(then, "group_state", "partition", "subscription") == [(1, "fast"), (1, "slow")]


def test_records_have_the_type_of_a_group_and_what_a_share_group_has_not_acknowledged() -> None:
    """The broker's count holds where a read has found more; a start offset that is missing is no
    state of a share group."""
    given = answers(
        committed={"jobs": {P0: 40}, "slow": {P1: 50}},
        types={"jobs": "share", "slow": "classic"},
        share_lags={("jobs", P0): 3},
        oldest={LogPosition(P0, 40): Oldest(AT - 9000, 5, 60, True)},
        read={},
    )
    columns = ("subscription", "partition", "mark_delete", "unread", "group_type")
    assert of_kind(mapped(given), "cursor_state", *columns) == [
        ("jobs", 0, "0:39", 3, "share"),
        ("slow", 1, "0:49", None, "classic"),
    ]
    columns = ("subscription", "partition", "group_state", "group_type")
    assert of_kind(mapped(given), "group_state", *columns) == [("slow", 0, "no_offset", "classic")]
