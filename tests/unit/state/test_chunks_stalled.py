"""Subscriptions that stand at a chunk whose first chunks are gone: what is said, and what is not;
written by hand for core and reference alike."""

from __future__ import annotations

from typing import Any

import pytest

from state.chunks.stored import MOST_PIECES
from tests.reference.chunks import MOST_STORED
from tests.reference.words import words
from tests.support.chunks_shared import (
    MINUTE,
    START_MS,
    Judge,
    Row,
    Rows,
    by_core,
    by_reference,
    chunk,
    joins,
    record,
    rows_of,
)
from tests.support.chunks_stalled import STALL, WHOLE, cursor, stored

__all__ = ["rows_of"]

Found = list[tuple[Any, ...]]


def plain(at_ms: int, entry: int, ledger: int = 1) -> Row:
    return record(
        "entry_added", at_ms, subscription=None, ledger_id=ledger, entry_id=entry, entry_bytes=10
    )


def ack(at_ms: int, entry: int, cumulative: bool = False) -> Row:
    return record("ack", at_ms, ledger_id=1, entry_id=entry, ack_cumulative=cumulative)


def stalled(rows: Rows, minute: int = 2) -> Found:
    """Subscription, message, where it stands, its first position and its missing chunks, at the end
    of a minute (from 0 on)."""
    return [
        (r["subscription"], r["uuid"], r["stalled_at"], r["first_position"], r["missing_chunks"])
        for r in rows.get("incomplete_messages", ())
        if r["state"] == "stalled" and r["window_start_ms"] // MINUTE == _FIRST + minute
    ]


_FIRST = 1_767_621_600_000 // MINUTE
LATER = 4 * MINUTE
HEAD = ("s", "u", "1:7", "1:7", [0, 1])
BEHIND = ("s", "v", "1:7", "1:8", [])


def test_all_that_waits_behind_the_chunk_is_listed(rows_of: Judge) -> None:
    rows = rows_of(STALL, LATER, shared_orphan="stall")
    assert stalled(rows, 0) == [], "no longer than an expiry"
    assert stalled(rows) == [HEAD, BEHIND]
    assert {r["consumer"] for r in rows["incomplete_messages"]} == {None}
    assert {r["expires_ms"] for r in rows["incomplete_messages"]} == {None}
    assert not rows.get("chunk_state")


@pytest.mark.parametrize(
    "more",
    [
        [cursor(MINUTE, "1:7")],
        [cursor(MINUTE, "1:9")],
        [ack(MINUTE, 9, cumulative=True)],
        [ack(MINUTE, 7)],
        [record("cursor_deleted", MINUTE)],
        [record("consumer_closed", MINUTE, consumer="c1")],
        [record("dispatch", 2 * MINUTE, consumer="c1", sub_type="shared", ledger_id=1, entry_id=3)],
    ],
    ids=[
        *words(
            "skipped all-skipped cumulative acknowledged deleted no-consumer something-delivered"
        )
    ],
)
def test_what_ends_a_stall_or_shows_that_there_is_none(rows_of: Judge, more: list[Row]) -> None:
    assert stalled(rows_of([*STALL, *more], LATER, shared_orphan="stall")) == []


@pytest.mark.parametrize(
    "records",
    [
        # it lags, or has no chunk at its mark-delete
        [*joins(0, "c1"), cursor(5, "1:7"), *WHOLE],
        [*joins(0, "c1"), cursor(5, "1:5"), plain(9, 6), stored(10, "2/3", 7), *WHOLE],
        # ordered subscriptions, and cursors of which nobody knows what they are, get the chunk
        [record("consumer_created", 0, consumer="c1", sub_type="exclusive"), *STALL[1:]],
        [record("consumer_created", 0, consumer="c1", sub_type="key_shared"), *STALL[1:]],
        [cursor(5, "1:6", "__compaction"), stored(10, "2/3", 7), *WHOLE],
        # not known that chunk 0 is gone
        [*joins(0, "c1"), stored(10, "2/3", 7), *WHOLE],
        # it was delivered
        [
            *STALL,
            chunk(30, "0/3", 1, uuid="u"),
            chunk(31, "1/3", 2, uuid="u"),
            chunk(32, "2/3", 7, uuid="u"),
            chunk(33, "0/2", 8, uuid="v"),
            chunk(34, "1/2", 9, uuid="v"),
        ],
    ],
    ids=["lags", "ordinary-first", "exclusive", "key-shared", "compaction", "unknown", "delivered"],
)
def test_what_is_no_stall(rows_of: Judge, records: list[Row]) -> None:
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == []


@pytest.mark.parametrize("orphan", ["ack_skip", "dispatch"])
def test_brokers_that_do_not_put_the_chunk_back_do_not_stall(rows_of: Judge, orphan: str) -> None:
    assert stalled(rows_of(STALL, LATER, shared_orphan=orphan)) == []


def test_chunks_that_expired_unread_are_missing(rows_of: Judge) -> None:
    records = [
        *joins(0, "c1"),
        cursor(1, "1:4"),
        stored(5, "0/3", 5),
        stored(6, "1/3", 6),
        stored(10, "2/3", 7),
        *WHOLE,
        cursor(30_000, "1:6"),
    ]
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == [HEAD, BEHIND]


def test_the_chunk_may_be_the_first_entry_of_the_next_ledger(rows_of: Judge) -> None:
    records = [*joins(0, "c1"), plain(1, 6), cursor(5, "1:6"), stored(10, "1/2", 0, ledger=2)]
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == [
        ("s", "u", "2:0", "2:0", [0])
    ]
    between = [*records[:2], plain(2, 7), *records[2:]]
    assert stalled(rows_of(between, LATER, shared_orphan="stall")) == []


def test_the_chunk_at_the_mark_delete_no_longer_waits(rows_of: Judge) -> None:
    records = [*STALL[:-2], stored(20, "1/2", 8, "v"), cursor(30, "1:7")]
    rows = rows_of(records, LATER, shared_orphan="stall")
    assert stalled(rows) == [("s", "v", "1:8", "1:8", [0])]


def large(at_ms: int, entry: int, uuid: str) -> list[Row]:
    """A message of three chunks is stored."""
    return [stored(at_ms + i, f"{i}/3", entry + i, uuid) for i in range(3)]


def sent(at_ms: int, entry: int, uuid: str, sub_type: str = "shared") -> list[Row]:
    """Its chunks are delivered."""
    deliveries = [chunk(at_ms + i, f"{i}/3", entry + i, uuid=uuid) for i in range(3)]
    return [{**delivery, "sub_type": sub_type} for delivery in deliveries]


NACKED = [*joins(0, "c1"), cursor(5, "1:4"), *large(10, 5, "u"), *sent(20, 5, "u")]
HANDED_BACK = [*NACKED, *large(30, 8, "v"), *large(40, 11, "w"), plain(50, 14)]


def test_a_message_that_was_handed_back_stalls_at_its_last_chunk(rows_of: Judge) -> None:
    """Its client asks the broker for the last chunk alone, which then has no first one."""
    assert stalled(rows_of(HANDED_BACK, LATER, shared_orphan="stall")) == [
        ("s", "u", "1:7", "1:7", [0, 1]),
        ("s", "v", "1:7", "1:8", []),
        ("s", "w", "1:7", "1:11", []),
    ]


@pytest.mark.parametrize("at_ms", [10, MINUTE - 20], ids=["in-a-window", "at-its-end"])
def test_a_feed_may_tell_of_the_cursor_after_the_first_message(rows_of: Judge, at_ms: int) -> None:
    """It looks at cursors once in a while, and the first delivery does not wait for that."""
    records = [
        *joins(0, "c1"),
        *large(at_ms, 5, "u"),
        *sent(at_ms + 10, 5, "u"),
        cursor(at_ms + 50, "1:4"),
        *large(at_ms + 60, 8, "v"),
    ]
    assert stalled(rows_of(records, LATER, shared_orphan="stall"), 3) == [
        ("s", "u", "1:7", "1:7", [0, 1]),
        ("s", "v", "1:7", "1:8", []),
    ]


def test_behind_a_message_that_was_acknowledged_another_is_handed_back(rows_of: Judge) -> None:
    records = [*HANDED_BACK, *sent(60, 8, "v"), *(ack(70 + i, 5 + i) for i in range(3))]
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == [
        ("s", "v", "1:10", "1:10", [0, 1]),
        ("s", "w", "1:10", "1:11", []),
    ]


@pytest.mark.parametrize(
    "records",
    [
        [*HANDED_BACK, *(ack(60 + i, 5 + i) for i in range(3))],
        [*HANDED_BACK, *sent(2 * MINUTE, 5, "u")],
        [*HANDED_BACK, record("consumer_closed", 60, consumer="c1")],
        [*HANDED_BACK, *sent(60, 8, "v"), *sent(70, 11, "w")],
        NACKED,
        [*NACKED[:-1], *large(30, 8, "v")],
        [
            record("consumer_created", 0, consumer="c1", sub_type="exclusive"),
            *HANDED_BACK[1:5],
            *sent(20, 5, "u", "exclusive"),
            *HANDED_BACK[8:],
        ],
        [*HANDED_BACK[:1], cursor(5, "1:3"), *HANDED_BACK[2:]],
    ],
    ids=[
        *words(
            "acknowledged all-sent-again no-consumer nothing-waits nothing-behind not-whole"
            " exclusive mark-elsewhere"
        )
    ],
)
def test_what_is_not_handed_back(rows_of: Judge, records: list[Row]) -> None:
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == []


def test_every_subscription_is_by_itself(rows_of: Judge) -> None:
    other = {"subscription": "other"}
    records = [
        *STALL,
        {**joins(0, "c1")[0], **other},
        cursor(6, "1:6", "other"),
        *({**chunk(30 + i, f"{i}/2", 8 + i, uuid="v"), **other} for i in range(2)),
    ]
    found = stalled(rows_of(records, LATER, shared_orphan="stall"))
    assert found == [("other", "u", "1:7", "1:7", [0, 1]), HEAD, BEHIND]


def test_a_part_that_a_lost_consumer_acknowledged_stalls_the_rest(rows_of: Judge) -> None:
    records = [
        *joins(0, "c1", "c2"),
        cursor(2, "1:4"),
        stored(5, "0/3", 5),
        stored(6, "1/3", 6),
        stored(7, "2/3", 7),
        chunk(10, "0/3", 5),
        chunk(11, "1/3", 6),
        chunk(12, "2/3", 7),
        ack(20, 5),
        ack(21, 6),
        record("consumer_closed", 30, consumer="c1"),
        stored(40, "0/2", 8, "v"),
        stored(41, "1/2", 9, "v"),
    ]
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == [HEAD, BEHIND]


def test_a_message_that_is_sent_again_does_not_replace_the_chunk(rows_of: Judge) -> None:
    records = [*STALL, *(stored(30 + i, f"{i}/3", 10 + i) for i in range(3))]
    assert stalled(rows_of(records, LATER, shared_orphan="stall")) == [
        HEAD,
        BEHIND,
        ("s", "u", "1:7", "1:10", []),
    ]


def test_the_window_after_the_stall_says_that_it_is_over(rows_of: Judge) -> None:
    rows = rows_of([*STALL, cursor(3 * MINUTE + 1, "1:9")], LATER, shared_orphan="stall")
    assert stalled(rows, 2) == [HEAD, BEHIND] and stalled(rows, 3) == []
    ends = [r["window_start_ms"] // MINUTE - _FIRST for r in rows["chunk_topic_stats"]]
    assert ends[-1] == 3, "a row without a message follows"


def by_reference_of_ten(records: list[Row], until_ms: int, **params: Any) -> Rows:
    """The reference looks at every stored chunk for every record: with a bound of 10 it is quick."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.reference.chunks.MOST_STORED", 10)
        return by_reference(records, until_ms, **params)


BOUNDED = pytest.mark.parametrize(
    ("judge", "most"), [(by_core, 10_000), (by_reference_of_ten, 10)], ids=["core", "reference"]
)


def without_first(at_ms: int, chunks: int) -> list[Row]:
    """The message `w` with `chunks` stored chunks, from 1:10 on; its chunk 0 is gone."""
    return [stored(at_ms, f"{i}/{chunks + 1}", 9 + i, "w") for i in range(1, chunks + 1)]


@pytest.mark.parametrize("more", [0, 1])
@BOUNDED
def test_of_too_many_stored_chunks_the_oldest_are_forgotten(
    judge: Judge, most: int, more: int
) -> None:
    """`u` is at the mark-delete first, `w` from minute 3 on."""
    records = [*STALL[:3], *without_first(20, most - 1 + more), cursor(3 * MINUTE, "1:9")]
    rows = judge(records, START_MS + 7 * MINUTE, shared_orphan="stall")
    assert stalled(rows) == ([] if more else [HEAD, ("s", "w", "1:7", "1:10", [0])])
    assert stalled(rows, 5) == [("s", "w", "1:10", "1:10", [0])]


@pytest.mark.parametrize("more", [0, 1])
@BOUNDED
def test_of_too_many_stored_chunks_the_newest_are_forgotten_in_a_stall(
    judge: Judge, most: int, more: int
) -> None:
    records = [*STALL, *without_first(3 * MINUTE, most - 3 + more)]
    rows = judge(records, START_MS + 7 * MINUTE, shared_orphan="stall")
    last = [] if more else [("s", "w", "1:7", "1:10", [0])]
    assert stalled(rows) == [HEAD, BEHIND]
    assert stalled(rows, 5) == [HEAD, BEHIND, *last]


def test_the_reference_keeps_as_many_stored_chunks_as_the_core() -> None:
    assert MOST_STORED == MOST_PIECES == 10_000
