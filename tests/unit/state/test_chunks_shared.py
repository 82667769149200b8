"""Chunks on shared subscriptions, by PIP-37 and the specification: written by hand for core and
reference alike, since a misreading that both share is equal."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.chunks_shared import (
    HOUR,
    MINUTE,
    Judge,
    Row,
    Rows,
    chunk,
    joins,
    record,
    rows_of,
)

__all__ = ["rows_of"]


def marker(at_ms: int, entry: int, *listed: int, consumer: str = "c1") -> Row:
    """A marker at 1:entry that lists entries of ledger 1."""
    return record(
        "dispatch",
        at_ms,
        consumer=consumer,
        sub_type="shared",
        ledger_id=1,
        entry_id=entry,
        entry_bytes=1,
        marker_ids=[f"1:{one}" for one in listed],
    )


def ack(at_ms: int, entry: int) -> Row:
    return record("ack", at_ms, ledger_id=1, entry_id=entry)


def events(rows: Rows) -> list[tuple[Any, ...]]:
    """Outcome, consumer, chunk, position, acks, tracked, orphaned."""
    names = ("outcome", "consumer", "chunk_id", "position", "acks", "tracked", "orphaned")
    return [tuple(row[name] for name in names) for row in rows.get("chunk_events", [])]


def messages(rows: Rows) -> list[tuple[Any, ...]]:
    names = ("consumer", "uuid", "positions", "marker_position")
    return [tuple(row[name] for name in names) for row in rows.get("chunk_messages", [])]


# -- hash: "broker keeps a sorted list of shared consumers based on connected time" -------------


def test_a_hash_picks_the_consumer_whoever_the_record_names(rows_of: Judge) -> None:
    # MurmurHash3 (32 bits): "hello" is 613,153,351, odd; "foo" is 4,138,058,784, even.
    rows = rows_of(
        [
            *joins(0, "c1", "c2"),
            chunk(10, "0/2", 1, uuid="hello"),
            chunk(11, "0/2", 2, "c2", uuid="foo"),
            chunk(12, "1/2", 3, uuid="hello"),
            chunk(13, "1/2", 4, "c2", uuid="foo"),
        ],
        shared_mode="hash",
    )
    assert messages(rows) == [
        ("c2", "hello", ["1:1", "1:3"], None),
        ("c1", "foo", ["1:2", "1:4"], None),
    ]


def test_a_consumer_that_joins_moves_no_message_in_flight(rows_of: Judge) -> None:
    # 613,153,351 modulo 4 is 3: a message that begins later goes to the fourth.
    rows = rows_of(
        [
            *joins(0, "c1", "c2"),
            chunk(10, "0/2", 1, uuid="hello"),
            *joins(20, "c3", "c4"),
            chunk(30, "1/2", 2, uuid="hello"),
            chunk(40, "0/2", 3, uuid="hello"),
            chunk(41, "1/2", 4, uuid="hello"),
        ],
        shared_mode="hash",
    )
    assert messages(rows) == [
        ("c2", "hello", ["1:1", "1:2"], None),
        ("c4", "hello", ["1:3", "1:4"], None),
    ]


# -- pin and its orphans ------------------------------------------------------------------------


LOST = [
    *joins(0, "c1", "c2"),
    chunk(10, "1/2", 2, uuid="lost"),
    chunk(20, "0/2", 3, "c2"),
    chunk(21, "1/2", 4, "c1"),
]
"""A chunk whose chunk 0 nobody has seen, then a whole message."""


def test_ack_skip_acknowledges_an_orphan_and_goes_on(rows_of: Judge) -> None:
    rows = rows_of(LOST, shared_orphan="ack_skip")
    assert events(rows) == [
        ("SHARED_ORPHAN", "c1", 1, "1:2", ["1:2"], [], []),
        ("COMPLETE", "c2", 1, "1:4", [], [], []),
    ]
    assert messages(rows) == [("c2", "u", ["1:3", "1:4"], None)]


def test_stall_stops_the_subscription_for_good(rows_of: Judge) -> None:
    rows = rows_of(
        [*LOST, *joins(30, "c3"), chunk(40, "0/2", 5, "c3", uuid="v")], shared_orphan="stall"
    )
    assert events(rows) == [
        ("SHARED_ORPHAN", "c1", 1, "1:2", [], [], []),
        ("SHARED_ORPHAN", "c2", 0, "1:3", [], [], []),
        ("SHARED_ORPHAN", "c1", 1, "1:4", [], [], []),
        ("SHARED_ORPHAN", "c3", 0, "1:5", [], [], []),
    ]
    assert messages(rows) == []


def test_dispatch_gives_an_orphan_to_any_consumer(rows_of: Judge) -> None:
    rows = rows_of(LOST, shared_orphan="dispatch")
    assert events(rows) == [
        ("SHARED_ORPHAN", "c1", 1, "1:2", [], [], []),
        ("NO_FIRST_CHUNK", "c1", 1, "1:2", [], ["1:2"], []),
        ("COMPLETE", "c2", 1, "1:4", [], [], []),
    ]


# -- marker: "broker reads those list of chunked messages and dispatch them together" -----------


SENT = [*joins(0, "c1", "c2"), chunk(10, "0/2", 1, "c1"), chunk(11, "1/2", 2, "c2")]
"""Two chunks, which the broker skips, each at another consumer's turn."""


def test_chunks_are_skipped_until_their_marker_and_come_to_its_consumer(rows_of: Judge) -> None:
    assert events(rows_of(SENT, shared_mode="marker")) == []
    rows = rows_of([*SENT, marker(20, 3, 1, 2, consumer="c2")], shared_mode="marker")
    assert messages(rows) == [("c2", "u", ["1:1", "1:2"], "1:3")]
    assert events(rows) == [("COMPLETE", "c2", 1, "1:2", [], [], [])]
    (message,) = rows["chunk_messages"]
    assert (message["first_position"], message["last_position"]) == ("1:1", "1:2")
    assert message["complete_ms"] - message["first_chunk_ms"] == 0


def test_a_marker_that_is_redelivered_brings_every_chunk_again(rows_of: Judge) -> None:
    rows = rows_of(
        [*SENT, marker(20, 3, 1, 2), marker(30, 3, 1, 2, consumer="c2"), marker(40, 3, 1, 2)],
        shared_mode="marker",
    )
    assert messages(rows) == [
        ("c1", "u", ["1:1", "1:2"], "1:3"),
        ("c2", "u", ["1:1", "1:2"], "1:3"),
        ("c1", "u", ["1:1", "1:2"], "1:3"),
    ]


def test_nothing_is_skipped_for_good_before_the_marker_is_acknowledged(rows_of: Judge) -> None:
    acknowledged = [ack(40, 1), ack(41, 2), ack(42, 3)]
    rows = rows_of(
        [*SENT, marker(20, 3, 1, 2), *acknowledged, marker(50, 3, 1, 2, consumer="c2")],
        forget=2 * HOUR,
        shared_mode="marker",
    )
    assert messages(rows) == [("c1", "u", ["1:1", "1:2"], "1:3")]
    assert events(rows) == [("COMPLETE", "c1", 1, "1:2", [], [], [])]


def test_chunks_wait_longer_for_their_marker_than_clients_wait_for_chunks(rows_of: Judge) -> None:
    rows = rows_of([*SENT, marker(59 * MINUTE, 3, 1, 2)], shared_mode="marker")
    assert messages(rows) == [("c1", "u", ["1:1", "1:2"], "1:3")]
    rows = rows_of(
        [
            *SENT,
            marker(20, 3, 1, 2),
            marker(58 * MINUTE, 3, 1, 2),
            marker(116 * MINUTE, 3, 1, 2, consumer="c2"),
        ],
        shared_mode="marker",
    )
    assert [consumer for consumer, *_ in messages(rows)] == ["c1", "c1", "c2"]


def test_chunks_without_a_marker_are_reported_when_they_are_forgotten(rows_of: Judge) -> None:
    rows = rows_of(SENT, forget=61 * MINUTE, shared_mode="marker")
    assert events(rows) == [
        ("ORPHANED", None, 0, "1:1", [], [], ["1:1"]),
        ("ORPHANED", None, 1, "1:2", [], [], ["1:2"]),
    ]
    assert [row["age_ms"] for row in rows["chunk_events"]] == [
        HOUR + MINUTE - 10,
        HOUR + MINUTE - 11,
    ]


def test_a_message_that_was_acknowledged_without_its_marker_is_no_orphan(rows_of: Judge) -> None:
    rows = rows_of(
        [*SENT, marker(20, 3, 1, 2), ack(30, 1), ack(31, 2)],
        forget=62 * MINUTE,
        shared_mode="marker",
    )
    assert events(rows) == [("COMPLETE", "c1", 1, "1:2", [], [], [])]


def test_an_acknowledged_chunk_is_not_assembled_again(rows_of: Judge) -> None:
    rows = rows_of(
        [*SENT, marker(20, 3, 1, 2), ack(30, 1), marker(40, 3, 1, 2, consumer="c2")],
        shared_mode="marker",
    )
    assert events(rows)[1:] == [
        ("ALREADY_ACKED", "c2", 0, "1:1", [], [], []),
        ("NO_FIRST_CHUNK", "c2", 1, "1:2", [], ["1:2"], []),
    ]


def test_the_order_of_the_list_is_that_of_delivery(rows_of: Judge) -> None:
    rows = rows_of([*SENT, marker(20, 3, 2, 1), marker(30, 3, 1, 2)], shared_mode="marker")
    assert events(rows) == [
        ("NO_FIRST_CHUNK", "c1", 1, "1:2", [], ["1:2"], []),
        ("RESTART_REDELIVERY", "c1", 0, "1:1", [], [], []),
        ("COMPLETE", "c1", 1, "1:2", [], [], []),
    ]


def test_a_position_that_the_broker_has_not_seen_is_left_out(rows_of: Judge) -> None:
    rows = rows_of([*SENT, marker(20, 3, 9, 1, 2)], shared_mode="marker")
    assert messages(rows) == [("c1", "u", ["1:1", "1:2"], "1:3")]


def test_what_becomes_of_a_message_becomes_of_its_marker(rows_of: Judge) -> None:
    begun = [*joins(0, "c1"), chunk(10, "0/3", 1), chunk(11, "1/3", 2), marker(20, 4, 1, 2)]
    rows = rows_of(begun, forget=3 * MINUTE, shared_mode="marker")
    assert events(rows) == [("EXPIRED", "c1", 1, "1:2", ["1:1", "1:2", "1:4"], [], [])]
    more = [chunk(30, "0/2", 5, uuid="v"), chunk(31, "1/2", 6, uuid="v"), marker(40, 7, 5, 6)]
    for auto_ack in (True, False):
        rows = rows_of(
            [*begun, *more],
            shared_mode="marker",
            maxPendingChunkedMessage=1,
            autoAckOldestChunkedMessageOnQueueFull=auto_ack,
        )
        ids = ["1:1", "1:2", "1:4"]
        assert events(rows) == [
            ("EVICTED", "c1", 1, "1:2", ids if auto_ack else [], [] if auto_ack else ids, []),
            ("COMPLETE", "c1", 1, "1:6", [], [], []),
        ]
        assert messages(rows) == [("c1", "v", ["1:5", "1:6"], "1:7")]
    closed = [*begun, record("consumer_closed", 30, consumer="c1")]
    rows = rows_of(closed, forget=3 * MINUTE, shared_mode="marker")
    assert events(rows) == [("ORPHANED", "c1", 1, "1:2", [], [], ["1:1", "1:2", "1:4"])]


def test_a_message_that_is_given_up_acknowledges_its_marker(rows_of: Judge) -> None:
    rows = rows_of(
        [
            *joins(0, "c1"),
            chunk(10, "0/2", 1, total=15),
            chunk(11, "1/2", 2, total=15),
            marker(20, 3, 1, 2),
        ],
        shared_mode="marker",
    )
    assert events(rows) == [("GIVEN_UP_OVERFLOW", "c1", 1, "1:2", ["1:1", "1:2", "1:3"], [], [])]


def test_a_marker_in_another_mode_is_an_ordinary_message(rows_of: Judge) -> None:
    rows = rows_of([*SENT, marker(20, 3, 1, 2)], shared_mode="pin")
    assert messages(rows) == [("c1", "u", ["1:1", "1:2"], None)]


# -- settings of clients that differ -----------------------------------------------------------


def only(most: int, **names: str) -> Row:
    return {
        "topic": "**",
        "subscription": "**",
        "consumer": "**",
        **names,
        "maxPendingChunkedMessage": most,
    }


@pytest.mark.parametrize("ending", ["", "-partition-3"])
@pytest.mark.parametrize(
    ("consumers", "evicting"),
    [
        ([], []),
        ([only(1, subscription="s")], ["s"]),
        ([only(1, topic="a/*/t", consumer="c*")], ["s", "t"]),
        ([only(1), only(0, subscription="t")], ["s"]),  # the last one that matches
        ([only(0, subscription="t"), only(1)], ["s", "t"]),
        ([only(1, topic="persistent://a/b/t")], ["s", "t"]),
        ([only(1, topic="a/b/other")], []),
        ([only(1, topic="a/*")], []),
        ([only(1, consumer="c2")], []),
        ([only(2)], []),
    ],
)
def test_a_client_has_its_own_limit(
    rows_of: Judge, consumers: list[Row], evicting: list[str], ending: str
) -> None:
    records = [
        {**one, "subscription": name, "topic": f"persistent://a/b/t{ending}"}
        for name in ("s", "t")
        for one in (*joins(0, "c1"), chunk(10, "0/2", 1), chunk(20, "0/2", 2, uuid="v"))
    ]
    rows = rows_of(sorted(records, key=lambda r: r["ts_wall_ms"]), consumers=consumers)
    found = rows.get("chunk_events", [])
    assert [(r["subscription"], r["outcome"], r["uuid"]) for r in found] == [
        (name, "EVICTED", "u") for name in evicting
    ]
