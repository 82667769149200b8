"""Documents of a poll become records: what is said, and nothing that is not."""

from __future__ import annotations

import copy
import json
import random
import time
from typing import Any

import pytest

from app.sources.pulsar.admin_documents import PolledTopic, Producer, map_poll
from app.sources.pulsar.admin_policies import PollNames
from app.tables.json_documents import Document
from tests.reference.words import words
from tests.unit.sources.pulsar.documents import (
    AT,
    NAMES,
    TOPIC,
    Json,
    info,
    internal,
    kinds,
    mapped,
    of_kind,
    poll,
    publisher,
    recorded,
    recorded_polls,
    stats,
    valid,
)

KEPT: Document[PolledTopic] = Document(PolledTopic)
LEDGER = ("ledger_id", "ledger_entries", "ledger_bytes", "ledger_close_ms")
CURSOR = ("subscription", "mark_delete", "read_pos", "active", "durable", "publish_time_ms")


def test_complete_documents_of_a_broker() -> None:
    done = mapped(poll(internal=recorded("internal"), stats=recorded("stats"), info=None))
    assert done.problems == []
    assert of_kind(done, "ledger_state", *LEDGER) == [
        (30, 25, 14575, None),
        (42, 25, 14675, None),
        (47, 25, 14775, None),
        (50, 5, 3095, None),
    ]
    assert of_kind(done, "cursor_state", *CURSOR) == [
        ("fast", "50:4", "50:5", True, True, None),
        ("slow", "50:4", "50:5", True, True, None),
    ]
    assert of_kind(done, "producer_created", "cnx_id", "producer_id", "producer_name") == [
        ("/127.0.0.1:39380", 0, "standalone-0-15")
    ]
    common = ("source_feed", "cluster", "broker", "ts_wall_ms", "topic")
    assert {tuple(record[key] for key in common) for record in done.records} == {
        ("pulsar_admin", "standalone", "127.0.0.1:19081", AT, TOPIC)
    }


def test_recorded_run_poll_by_poll() -> None:
    known: dict[str, PolledTopic | None] = {}
    ledgers: dict[str, list[int]] = {}
    deleted = 0
    for each in recorded_polls():
        topic = each["topic"]
        done = mapped(each, known.get(topic))
        known[topic] = done.known
        inside, times = each["internal"], {x["ledgerId"]: x for x in each["info"]["ledgers"]}
        assert done.problems == [] or all("publishers" in text for text in done.problems)
        expected = [
            (x["ledgerId"], x["entries"], x["size"], times[x["ledgerId"]]["timestamp"])
            for x in inside["ledgers"][:-1]
        ]
        last = inside["ledgers"][-1]["ledgerId"]
        expected.append((last, inside["currentLedgerEntries"], inside["currentLedgerSize"], None))
        assert of_kind(done, "ledger_state", *LEDGER) == expected
        assert sum(size for _, _, size, _ in expected) == inside["totalSize"]
        subscriptions = each["stats"]["subscriptions"]
        for name, mark_delete, published in of_kind(
            done, "cursor_state", "subscription", "mark_delete", "publish_time_ms"
        ):
            assert mark_delete == inside["cursors"][name]["markDeletePosition"]
            earliest = subscriptions[name]["earliestMsgPublishTimeInBacklog"]
            assert published == (earliest if earliest > 0 else None)
        now = [x["ledgerId"] for x in inside["ledgers"]]
        trimmed = [(ledger,) for ledger in ledgers.get(topic, []) if ledger not in now]
        assert of_kind(done, "ledger_deleted", "ledger_id") == trimmed
        ledgers[topic] = now
        deleted += len(trimmed)
    assert (len(known), deleted) == (4, 4)


def test_first_poll_in_full() -> None:
    done = mapped(poll())
    assert done.problems == []
    assert kinds(done) == [*["ledger_state"] * 2, *["cursor_state"] * 2, "producer_created"]
    assert of_kind(done, "ledger_state", *LEDGER) == [(3, 10, 1000, AT - 5000), (5, 4, 400, None)]
    assert of_kind(done, "cursor_state", *CURSOR) == [
        ("fast", "5:3", "5:4", True, True, None),
        ("slow", "3:2", "3:7", False, True, AT - 9000),
    ]
    assert done.known == PolledTopic(
        "b1:8080", (3, 5), {"fast": True, "slow": True}, (Producer("/10.0.0.1:500", 0, "p"),)
    )
    assert KEPT.of_text(KEPT.text(done.known)) == done.known


def test_what_is_gone_is_told_between_policies_and_states() -> None:
    first = mapped(poll())
    quotas = {"destination_storage": {"limitSize": 5, "policy": "producer_exception"}}
    done = mapped(
        poll(
            internal=internal(
                ledgers=[{"ledgerId": 5, "entries": 0, "size": 0}],
                cursors={"fast": {"markDeletePosition": "5:3"}},
            ),
            stats=stats(publishers=[publisher("/10.0.0.1:500", 1), publisher("/10.0.0.2:7", 0)]),
            policies={"topic": {"backlogQuotaMap": quotas}},
        ),
        first.known,
    )
    assert kinds(done) == [
        *words(
            "policy ledger_deleted cursor_deleted producer_closed ledger_state cursor_state"
            " producer_created producer_created"
        )
    ]
    assert of_kind(done, "ledger_deleted", "ledger_id") == [(3,)]
    assert of_kind(done, "cursor_deleted", "subscription") == [("slow",)]
    assert of_kind(done, "producer_closed", "cnx_id", "producer_id", "producer_name") == [
        ("/10.0.0.1:500", 0, "p")
    ]
    assert of_kind(done, "producer_created", "cnx_id", "producer_id", "producer_name") == [
        ("/10.0.0.1:500", 1, None),
        ("/10.0.0.2:7", 0, None),
    ]
    assert {record["ts_wall_ms"] for record in done.records} == {AT}


def test_an_equal_poll_has_states_only() -> None:
    first = mapped(poll())
    second = mapped(poll(AT + 1), first.known)
    assert kinds(second) == ["ledger_state", "ledger_state", "cursor_state", "cursor_state"]
    assert second.known == first.known


def test_a_topic_that_is_gone() -> None:
    first = mapped(poll())
    done = mapped({"polled_ms": AT, "topic": TOPIC, "gone": True}, first.known)
    assert kinds(done) == [
        *words("ledger_deleted ledger_deleted cursor_deleted cursor_deleted producer_closed")
    ]
    assert {record["broker"] for record in done.records} == {"b1:8080"}
    assert done.known is None
    assert mapped({"polled_ms": AT, "topic": TOPIC, "gone": True}).records == []


@pytest.mark.parametrize("answer", [None, {}, {"reason": "Request failed"}, "no object", [1], 7])
@pytest.mark.parametrize("document", ["stats", "internal", "info"])
def test_nothing_is_deleted_after_an_answer_that_failed(document: str, answer: Any) -> None:
    known = mapped(poll()).known
    done = mapped(poll(**{document: answer}), known)
    assert not {"ledger_deleted", "cursor_deleted", "producer_closed"} & set(kinds(done))
    assert done.known == known
    assert bool(done.problems) == bool(answer)
    assert kinds(mapped(poll(), done.known)) == kinds(mapped(poll(), known))


def test_close_times_need_info() -> None:
    done = mapped(poll(info=None))
    assert of_kind(done, "ledger_state", "ledger_id", "ledger_close_ms") == [(3, None), (5, None)]


def test_a_ledger_that_closed_between_two_answers_is_open_still() -> None:
    later = info(
        ledgers=[
            *({"ledgerId": n, "timestamp": AT - n} for n in (3, 5)),
            {"ledgerId": 9, "timestamp": AT},
        ]
    )
    done = mapped(poll(info=later))
    assert of_kind(done, "ledger_state", *LEDGER) == [(3, 10, 1000, AT - 3), (5, 4, 400, None)]


@pytest.mark.parametrize("time", [0, -1, None, "soon", 1.5, True])
def test_a_time_that_is_none_is_null(time: Any) -> None:
    closed = [{"ledgerId": 3, "timestamp": time}, {"ledgerId": 5, "timestamp": AT}]
    shown = {"slow": {"isDurable": True, "earliestMsgPublishTimeInBacklog": time}}
    done = mapped(poll(info=info(ledgers=closed), stats=stats(subscriptions=shown)))
    assert of_kind(done, "ledger_state", "ledger_id", "ledger_close_ms") == [(3, None), (5, None)]
    assert of_kind(done, "cursor_state", "publish_time_ms") == [(None,), (None,)]


def test_the_open_ledger_needs_its_live_figures() -> None:
    without = internal()
    del without["currentLedgerSize"]
    done = mapped(poll(internal=without))
    assert of_kind(done, "ledger_state", "ledger_id") == [(3,)]
    assert done.problems == ["internal.ledgers[1]: has no number of entries or no size"]
    assert done.known is not None and done.known.ledgers == (3, 5)


def test_the_last_ledger_is_closed_while_none_is_open() -> None:
    closed = internal(
        state="ClosedLedger",
        ledgers=[{"ledgerId": 5, "entries": 9, "size": 90}],
        currentLedgerEntries=0,
        currentLedgerSize=0,
    )
    done = mapped(poll(internal=closed))
    assert of_kind(done, "ledger_state", *LEDGER) == [(5, 9, 90, None)]


def test_readers_and_cursors_that_stats_does_not_list() -> None:
    place = {"markDeletePosition": "3:1"}
    names = ("pulsar.dedup", "reader-1", "slow")
    inside = internal(cursors=dict.fromkeys(names, place))
    shown = {"slow": {"isDurable": True}, "reader-1": {"isDurable": False}}
    first = mapped(poll(internal=inside, stats=stats(subscriptions=shown)))
    expected = [("pulsar.dedup", True), ("reader-1", False), ("slow", True)]
    assert of_kind(first, "cursor_state", "subscription", "durable") == expected
    # The reader closes after internalStats had listed its cursor: still no durable one.
    shown.pop("reader-1")
    second = mapped(poll(internal=inside, stats=stats(subscriptions=shown)), first.known)
    assert of_kind(second, "cursor_state", "subscription", "durable") == expected
    # Without stats, what was known still holds; a new cursor is left out.
    inside["cursors"]["new"] = place
    third = mapped(poll(internal=inside, stats=None), second.known)
    assert of_kind(third, "cursor_state", "subscription", "durable") == expected
    assert "new" in third.problems[0]


@pytest.mark.parametrize(
    "place", ["", "3", "3:-2", "-1:-1", "a:b", "3:1:2", 31, "99999999999999999999:0"]
)
def test_a_position_that_is_none_is_left_out(place: Any) -> None:
    cursors = {
        "slow": {"markDeletePosition": place, "readPosition": "3:0"},
        "fast": {"markDeletePosition": place},
    }
    done = mapped(poll(internal=internal(cursors=cursors)))
    assert of_kind(done, "cursor_state", "subscription", "mark_delete", "read_pos") == [
        ("slow", None, "3:0")
    ]
    assert any("is not ledger:entry" in text for text in done.problems)
    assert done.known is not None and set(done.known.cursors) == {"slow", "fast"}


def test_a_list_with_a_broken_element_deletes_nothing() -> None:
    known = mapped(poll()).known
    broken = poll(
        internal=internal(ledgers=["?", {"ledgerId": 5, "entries": 0, "size": 0}]),
        stats=stats(publishers=[{"producerName": "p"}, publisher("/10.0.0.9:1", 4)]),
    )
    done = mapped(broken, known)
    assert kinds(done) == ["ledger_state", "cursor_state", "cursor_state", "producer_created"]
    assert len(done.problems) == 2
    whole = poll(
        internal=internal(ledgers=[{"ledgerId": 5, "entries": 0, "size": 0}]),
        stats=stats(publishers=[publisher("/10.0.0.9:1", 4)]),
    )
    later = mapped(whole, done.known)
    assert of_kind(later, "ledger_deleted", "ledger_id") == [(3,)]
    assert of_kind(later, "producer_closed", "cnx_id") == [("/10.0.0.1:500",)]


@pytest.mark.parametrize("state", ["ClosedLedger", "Terminated"])
def test_a_topic_without_ledgers_has_its_last_one_without_entries(state: str) -> None:
    known = mapped(poll()).known
    empty = internal(ledgers=[], state=state, lastConfirmedEntry="7:3")
    for before, deleted in ((known, [(3,), (5,)]), (None, [])):
        done = mapped(poll(internal=empty), before)
        assert done.problems == []
        assert of_kind(done, "ledger_deleted", "ledger_id") == deleted
        assert of_kind(done, "ledger_state", *LEDGER) == [(7, 0, 0, None)]
        assert done.known is not None and done.known.ledgers == (7,)
        again = mapped(poll(AT + 1), done.known)
        assert of_kind(again, "ledger_deleted", "ledger_id") == [(7,)]
    unwritten = mapped(poll(internal={**empty, "lastConfirmedEntry": "-1:-1"}))
    assert of_kind(unwritten, "ledger_state", "ledger_id") == [(5,)]


OPEN = [(5, 4, 400, None)]


@pytest.mark.parametrize(
    ("inside", "metadata", "states"),
    [
        ({"ledgers": []}, info(), [(3, 10, 1000, AT - 5000), *OPEN]),
        ({"ledgers": []}, {}, OPEN),
        (
            {"ledgers": [{"ledgerId": 3, "entries": 10, "size": 1000}]},
            {},
            [(3, 10, 1000, None), *OPEN],
        ),
        ({"ledgers": [], "currentLedgerEntries": 0}, {}, []),
        (
            {"ledgers": [], "currentLedgerEntries": 0, "currentLedgerSize": 0},
            info(),
            [(3, 10, 1000, AT - 5000), (5, 0, 0, None)],
        ),
    ],
)
def test_an_answer_that_lacks_its_open_ledger_contradicts_itself(
    inside: Json, metadata: Json, states: list[tuple[Any, ...]]
) -> None:
    known = mapped(poll()).known
    broken = poll(AT + 1, internal=internal(lastConfirmedEntry="5:3", **inside), info=metadata)
    for before in (known, None):
        done = mapped(broken, before)
        assert done.problems == [
            "internal.ledgers: lacks the open ledger; what was known before stays"
        ]
        assert of_kind(done, "ledger_deleted", "ledger_id") == []
        assert of_kind(done, "ledger_state", *LEDGER) == states
    whole = internal(ledgers=[{"ledgerId": 5, "entries": 0, "size": 0}])
    later = mapped(poll(AT + 2, internal=whole), mapped(broken, known).known)
    assert of_kind(later, "ledger_deleted", "ledger_id") == [(3,)]


@pytest.mark.parametrize(
    "inside",
    [
        {"state": "ClosedLedger"},
        {"lastConfirmedEntry": "3:9"},
        {"lastConfirmedEntry": None},
        {"currentLedgerEntries": 0, "lastConfirmedEntry": "2:9"},
    ],
)
def test_an_answer_with_its_open_ledger_is_whole(inside: Json) -> None:
    done = mapped(poll(internal=internal(**inside)), mapped(poll()).known)
    assert done.problems == []


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ("plain", "plain"),
        ("billing%3Aeu%40night", "billing:eu@night"),
        ("a+b", "a b"),
        ("a%2Bb", "a+b"),
        ("50%25", "50%"),
        ("%E2%82%AC%2F%C3%BC", "\u20ac/\u00fc"),
        ("x%253A", "x%3A"),
        ("half%2", "half%2"),
        ("not%zz", "not%zz"),
        ("%FF", "\ufffd"),
        ("pulsar.repl.us-west", "pulsar.repl.us-west"),
        ("pulsar.repl-persistent%3A%2F%2Fa%2Fb%2Fc", "pulsar.repl-persistent://a/b/c"),
    ],
)
def test_names_of_cursors_are_decoded(raw: str, name: str) -> None:
    cursors = {raw: {"markDeletePosition": "5:3", "readPosition": "5:4"}}
    shown = {name: {"isDurable": True, "earliestMsgPublishTimeInBacklog": AT - 9}}
    done = mapped(poll(internal=internal(cursors=cursors), stats=stats(subscriptions=shown)))
    assert done.problems == []
    assert of_kind(done, "cursor_state", "subscription", "publish_time_ms") == [(name, AT - 9)]
    assert done.known is not None and done.known.cursors == {name: True}


def test_the_name_of_a_reader_is_as_it_is() -> None:
    cursors = {"a+b": {"markDeletePosition": "5:3"}, "a%2Bc": {"markDeletePosition": "5:3"}}
    shown = {"a+b": {"isDurable": False}, "a+c": {"isDurable": True}}
    done = mapped(poll(internal=internal(cursors=cursors), stats=stats(subscriptions=shown)))
    assert of_kind(done, "cursor_state", "subscription", "durable") == [
        ("a+b", False),
        ("a+c", True),
    ]


def test_cursors_that_were_known_encoded_are_gone_under_that_name() -> None:
    before = PolledTopic("b1:8080", (3, 5), {"a%3Ab": True})
    cursors = {"a%3Ab": {"markDeletePosition": "5:3"}}
    done = mapped(poll(internal=internal(cursors=cursors)), before)
    assert of_kind(done, "cursor_deleted", "subscription") == [("a%3Ab",)]
    assert of_kind(done, "cursor_state", "subscription") == [("a:b",)]


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("[]", ""),
        ("[(3:2..3:4]]", "3:3..4"),
        ("[(3:2..3:4],(5:-1..5:0]]", "3:3..4,5:0..0"),
        ("[(3:2..3:4], (5:-1..5:0]]", "3:3..4,5:0..0"),
        ("[(3:2\u20253:4]]", "3:3..4"),
        ("[[3:2..3:4)]", "3:2..3"),
        ("[(3:7..5:1]]", "3:8..9,5:0..1"),
        ("[(9:2..9:2]]", ""),
    ],
)
def test_ranges_acknowledged_one_by_one(text: str, ranges: str) -> None:
    cursors = {
        "s": {
            "markDeletePosition": "3:0",
            "individuallyDeletedMessages": text,
            "totalNonContiguousDeletedMessagesRange": 1,
        }
    }
    shown = {"s": {"isDurable": True, "totalMsgExpired": 7}}
    done = mapped(poll(internal=internal(cursors=cursors), stats=stats(subscriptions=shown)))
    assert done.problems == []
    assert of_kind(done, "cursor_state", "acked_ranges", "expired_messages") == [(ranges, 7)]


@pytest.mark.parametrize(
    ("text", "count", "said"),
    [
        (None, 0, None),
        (None, None, None),
        (None, 3, "is missing; ranges: 3"),
        ("[(3:2..3", 1, "'[(3:2..3' is not a list of ranges; ranges: 1"),
        ([1], 0, "'[1]' is not a list of ranges; ranges: 0"),
    ],
)
def test_ranges_that_cannot_be_read_are_not_made_up(
    text: Any, count: Any, said: str | None
) -> None:
    cursors = {
        "s": {
            "markDeletePosition": "3:0",
            "individuallyDeletedMessages": text,
            "totalNonContiguousDeletedMessagesRange": count,
        }
    }
    shown = {"s": {"isDurable": True}}
    done = mapped(poll(internal=internal(cursors=cursors), stats=stats(subscriptions=shown)))
    place = "internal.cursors['s'].individuallyDeletedMessages"
    assert done.problems == ([] if said is None else [f"{place}: {said}"])
    assert of_kind(done, "cursor_state", "mark_delete", "acked_ranges") == [("3:0", None)]


def test_overlapping_ranges_end() -> None:
    """Of a cursor, 20,000 ranges over 5,000 ledgers each: no broker has them, and anybody may answer."""
    ledgers = [{"ledgerId": n, "entries": 1, "size": 1} for n in range(5000)]
    text = "[" + ",".join(["(0:-1..4999:0]"] * 20_000) + "]"
    cursors = {"s": {"markDeletePosition": "0:-1", "individuallyDeletedMessages": text}}
    began = time.monotonic()
    done = mapped(poll(internal=internal(cursors=cursors, ledgers=ledgers)))
    assert time.monotonic() - began < 20
    assert any("is not a list of ranges" in problem for problem in done.problems)


TTLS = [
    ({"namespace": {"message_ttl_in_seconds": 3600}}, [("namespace", 3600)]),
    ({"namespace": {"message_ttl_in_seconds": 0}}, [("namespace", 0)]),
    ({"namespace": {"message_ttl_in_seconds": -1}}, []),
    ({"namespace": {"message_ttl_in_seconds": None}}, []),
    ({"topic": {"messageTTL": 60}}, [("topic", 60)]),
    ({"topic": {"messageTTL": None}}, []),
]


@pytest.mark.parametrize(("policies", "ttls"), TTLS)
def test_the_ttl_of_a_namespace_and_a_topic(policies: Json, ttls: list[tuple[str, int]]) -> None:
    done = mapped(poll(policies=policies))
    found = [json.loads(text) for (text,) in of_kind(done, "policy", "policy_json")]
    assert [(d["scope"], d["limits"]["message_ttl_in_seconds"]) for d in found] == ttls
    again = map_poll(
        poll(
            AT + 1,
            policies={"namespace": {"message_ttl_in_seconds": None}, "topic": {"messageTTL": None}},
        ),
        done.known,
        done.policies,
        NAMES,
    )
    assert sum(r["event_type"] == "policy" for r in again.records) == len(ttls)


RATES = {"standalone": {"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}}


@pytest.mark.parametrize(
    ("others", "limits", "said"),
    [
        ({"broker": {"clusterName": "standalone"}}, {"publishRateInMsgs": 5}, None),
        ({"clusters": ["standalone"]}, {"publishRateInMsgs": 5}, None),
        ({"clusters": ["east", "standalone"]}, None, None),
        ({"broker": {"clusterName": "east"}}, None, None),
        ({"clusters": ["west", "standalone"]}, None, "has rates of 'standalone', none of cluster"),
        ({}, None, "has rates of 'standalone', none of cluster 'east'"),
    ],
)
def test_publish_rates_are_those_of_the_name_that_pulsar_has(
    others: Json, limits: Json | None, said: str | None
) -> None:
    policies = {**others, "namespace": {"publishMaxMessageRate": RATES}}
    done = mapped(poll(policies=policies), names=PollNames("east"))
    found = [json.loads(text)["limits"] for (text,) in of_kind(done, "policy", "policy_json")]
    assert found == ([] if limits is None else [limits])
    assert [said in text for text in done.problems] == ([] if said is None else [True])
    assert {record["cluster"] for record in done.records} == {"east"}


def test_the_broker_is_that_of_the_settings_if_set() -> None:
    done = mapped(poll(), names=PollNames("c", "mine"))
    assert {record["broker"] for record in done.records} == {"mine"}
    nobody = stats()
    del nobody["ownerBroker"]
    assert {record["broker"] for record in mapped(poll(stats=nobody)).records} == {"unknown"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"polled_ms": None},
        {"polled_ms": -1},
        {"polled_ms": "now"},
        {"topic": None},
        {"topic": "t"},
        {"topic": "kafka://a/b/c"},
    ],
)
def test_a_poll_without_time_or_topic_says_nothing(wrong: Json) -> None:
    known = mapped(poll()).known
    done = mapped({**poll(), **wrong}, known)
    assert (done.records, done.known, len(done.problems)) == ([], known, 1)


def test_partitions_keep_their_ending() -> None:
    name = "public/n1/t-partition-3"
    assert {r["topic"] for r in mapped(poll(topic=name)).records} == {f"persistent://{name}"}


# Policies


def limits_of(
    policies: Json, before: dict[str, Json] | None = None, names: PollNames = NAMES
) -> list[tuple[str, str, str, Json]]:
    """Broker, scope, name and limits of every policy record."""
    done = map_poll(poll(policies=policies), None, before or {}, names)
    valid(done.records)
    found = []
    for record in done.records:
        if record["event_type"] == "policy":
            assert "topic" not in record
            document = json.loads(record["policy_json"])
            found.append(
                (record["broker"], document["scope"], document["name"], document["limits"])
            )
    assert {f"{scope} {name}": limits for _, scope, name, limits in found} == done.policies
    return found


NAMESPACE: Json = {
    "publishMaxMessageRate": {
        "standalone": {"publishThrottlingRateInMsg": 1000, "publishThrottlingRateInByte": -1},
        "other": {"publishThrottlingRateInMsg": 1, "publishThrottlingRateInByte": 1},
    },
    "backlog_quota_map": {
        "destination_storage": {
            "limit": 20000,
            "limitSize": 20000,
            "limitTime": -1,
            "policy": "producer_exception",
        },
        "message_age": {
            "limit": -1,
            "limitSize": -1,
            "limitTime": 60,
            "policy": "consumer_backlog_eviction",
        },
    },
    "resource_group_name": "rg1",
}
NAMESPACE_LIMITS: Json = {
    "publishRateInMsgs": 1000,
    "resource_group": "rg1",
    "backlog_quota": {
        "destination_storage": {"limitSize": 20000, "policy": "producer_exception"},
        "message_age": {"limitTime": 60, "policy": "consumer_backlog_eviction"},
    },
}


def test_policies_of_every_scope() -> None:
    told = limits_of(
        {
            "namespace": NAMESPACE,
            "topic": {
                "publishRate": {"publishThrottlingRateInMsg": -1, "publishThrottlingRateInByte": 0},
                "backlogQuotaMap": {"destination_storage": {"limit": 7, "policy": None}},
            },
            "resource_group": {"rg1": {"publishRateInMsgs": 10, "publishRateInBytes": None}},
            "broker": {
                "backlogQuotaCheckIntervalInSeconds": "2",
                "backlogQuotaDefaultLimitGB": "-1.0",
                "preciseTimeBasedBacklogQuotaCheck": "false",
                "clusterName": "standalone",
                "backlogQuotaDefaultRetentionPolicy": "producer_request_hold",
                "numIOThreads": "",
            },
        }
    )
    assert told == [
        (
            "*",
            "broker",
            "*",
            {
                "backlogQuotaCheckIntervalInSeconds": 2,
                "backlogQuotaDefaultLimitGB": -1.0,
                "preciseTimeBasedBacklogQuotaCheck": False,
                "backlogQuotaDefaultRetentionPolicy": "producer_request_hold",
            },
        ),
        ("*", "resource_group", "rg1", {"publishRateInMsgs": 10}),
        ("*", "namespace", "public/n1", NAMESPACE_LIMITS),
        (
            "*",
            "topic",
            TOPIC,
            {"publishRateInBytes": 0, "backlog_quota": {"destination_storage": {"limitSize": 7}}},
        ),
    ]


@pytest.mark.parametrize(
    ("scope", "key"), [("namespace", "backlog_quota_map"), ("topic", "backlogQuotaMap")]
)
@pytest.mark.parametrize(
    ("quotas", "limits"),
    [
        ({"destination_storage": {"limitSize": -1}}, {"destination_storage": {"limitSize": -1}}),
        ({"destination_storage": {"limit": -1}}, {"destination_storage": {"limitSize": -1}}),
        ({"message_age": {"limitSize": 5, "limitTime": -1}}, {"message_age": {"limitTime": -1}}),
        ({"message_age": {"limitTime": 0}}, {"message_age": {"limitTime": 0}}),
        ({"message_age": {"limitSize": 5}, "destination_storage": None}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_quota_that_is_off_is_told_from_none(
    scope: str, key: str, quotas: Json | None, limits: Json | None
) -> None:
    told = limits_of({scope: {key: quotas}})
    assert [document for *_, document in told] == ([{"backlog_quota": limits}] if limits else [])


def test_a_broker_that_is_named_has_a_policy_of_its_own() -> None:
    told = limits_of({"broker": {"numIOThreads": "4"}}, names=PollNames("c", "b1"))
    assert told == [("b1", "broker", "b1", {"numIOThreads": 4})]


def test_a_policy_is_told_when_it_changes() -> None:
    before = {"namespace public/n1": NAMESPACE_LIMITS}
    assert limits_of({"namespace": NAMESPACE}, before) == []
    assert limits_of({"namespace": None, "topic": None}, before) == []
    assert limits_of({"topic": {"publishRate": None, "backlogQuotaMap": {}}}, before) == []
    empty = {"publishMaxMessageRate": {}, "backlog_quota_map": {}}
    assert limits_of({"namespace": empty}, before) == [("*", "namespace", "public/n1", {})]


def test_a_partition_has_the_policies_of_its_topic() -> None:
    rate = {"publishRate": {"publishThrottlingRateInMsg": 5}}
    done = map_poll(poll(topic=f"{TOPIC}-partition-1", policies={"topic": rate}), None, {}, NAMES)
    assert list(done.policies) == [f"topic {TOPIC}"]


@pytest.mark.parametrize("answer", [{}, {"reason": "not found"}, {"publishMaxMessageRate": {}}])
def test_limits_that_a_document_does_not_tell_stay(answer: Json) -> None:
    before = {"namespace public/n1": {"backlog_quota": NAMESPACE_LIMITS["backlog_quota"]}}
    assert limits_of({"namespace": answer}, before) == []


@pytest.mark.parametrize(
    "answer",
    [
        "text",
        [],
        {"publishMaxMessageRate": 5, "backlog_quota_map": "none"},
        {"publishMaxMessageRate": {"standalone": {"publishThrottlingRateInMsg": "many"}}},
        {"backlog_quota_map": {"message_age": {"limitTime": 5, "policy": "unheard_of"}}},
    ],
)
def test_a_policy_that_is_broken_is_reported_and_changes_nothing(answer: Any) -> None:
    before = {"namespace public/n1": {"backlog_quota": NAMESPACE_LIMITS["backlog_quota"]}}
    done = map_poll(poll(policies={"namespace": answer}), None, before, NAMES)
    assert done.problems
    assert "policy" not in kinds(done)
    valid(done.records)


def test_one_broken_value_does_not_hide_the_others() -> None:
    done = map_poll(
        poll(policies={"broker": {"numIOThreads": "some", "connectionsPerBroker": "5"}}),
        None,
        {},
        NAMES,
    )
    assert done.policies == {"broker *": {"connectionsPerBroker": 5}}
    assert len(done.problems) == 1


def test_whatever_stands_in_a_document_no_record_is_invalid() -> None:
    chance = random.Random(5)
    odd: list[Any] = [
        None,
        -1,
        0,
        "",
        "x",
        [],
        {},
        True,
        1.5,
        2**70,
        "3:1",
        [None],
        {"a": 1},
        "\ud800",
        {"\ud800": {}},
    ]

    def spoil(value: Any) -> Any:
        if chance.random() < 0.08:
            return chance.choice(odd)
        if isinstance(value, dict):
            return {k: spoil(v) for k, v in value.items() if chance.random() > 0.04}
        return [spoil(v) for v in value] if isinstance(value, list) else value

    records, known = [], None
    for at in range(400):
        document = spoil(
            copy.deepcopy(
                poll(
                    AT + at,
                    policies={
                        "namespace": NAMESPACE,
                        "broker": {"numIOThreads": "2"},
                        "topic": {
                            "publishRate": {"publishThrottlingRateInMsg": 5},
                            "backlogQuotaMap": {},
                        },
                    },
                )
            )
        )
        if not isinstance(document, dict):
            continue
        done = map_poll(document, known, {}, NAMES)
        known = done.known
        assert known is None or KEPT.of_text(KEPT.text(known)) == known
        records += done.records
    assert len(records) > 1000
    valid(records)
