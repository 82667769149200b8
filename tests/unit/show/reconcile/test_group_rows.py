"""Kafka's numbers between two readings: what a poll between them can have, and what cannot."""

from __future__ import annotations

from typing import Any

import pytest

from app.show.reconcile.cluster_reading import Reading
from app.show.reconcile.group_rows import Empty, Lost, WeirNumber, rows_of
from app.sources.kafka.offsets import Place

PLACE = Place("orders", 0)
KEY = ("billing", PLACE)
Found = list[tuple[str, Any, int, str | None]]


def read(
    at_ms: int, start: int = 0, end: int = 100, offset: int | None = None, **changes: Any
) -> Reading:
    """A reading of one partition and one group."""
    offsets = {} if offset is None else {PLACE.text: offset}
    return Reading(
        **{
            "from_ms": at_ms,
            "to_ms": at_ms + 10,
            "ids": {"orders": "A"},
            "gone": [],
            "partitions": {"orders": [0]},
            "logs": {PLACE.text: [start, end]},
            "offsets": {"billing": offsets},
            **changes,
        }
    )


def found(first: Reading, second: Reading, **weir: Any) -> Found:
    rows = rows_of(first, second, WeirNumber(**{"check": 5, "reached": True, **weir}))
    return [(r["measure"], r["broker_value"], r["weir_value"], r["reason"]) for r in rows]


@pytest.mark.parametrize(
    ("before", "after", "lag", "expected"),
    [
        (read(0, offset=90), read(9, offset=90), 10, (10, None)),
        (read(0, offset=90), read(9, offset=90), 11, (10, None)),
        (read(0, offset=90), read(9, offset=90), 0, (10, None)),
        # 100 to 130 less 90 to 95: 5 to 40.
        (read(0, offset=90), read(9, end=130, offset=95), 5, (5, None)),
        (read(0, offset=90), read(9, end=130, offset=95), 40, (40, None)),
        (read(0, offset=90), read(9, end=130, offset=95), 41, (40, None)),
        (read(0, offset=90), read(9, end=130, offset=95), 4, (5, None)),
        # Set back, and ahead of its log.
        (read(0, offset=90), read(9, offset=20), 80, (80, None)),
        (read(0, offset=90), read(9, offset=20), 81, (80, None)),
        (read(0, offset=400), read(9, end=150, offset=400), -250, (-250, None)),
        (read(0, offset=400), read(9, end=150, offset=400), -249, (-250, None)),
        # It came, it left, or it was there for a moment.
        (read(0), read(9, offset=90), 10, (None, "GROUP_CHANGED")),
        (read(0, offset=90), read(9), 10, (None, "GROUP_CHANGED")),
        (read(0), read(9), 10, (0, "GROUP_CHANGED")),
        (read(0, offsets={}), read(9, offset=90), 10, (None, "NO_ANSWER")),
        (read(0, offset=90, logs={}), read(9, offset=90), 10, (None, "NO_ANSWER")),
        (read(0, offset=90), read(9, offset=90, ids={}), 10, (None, "NO_ANSWER")),
        (read(0, offset=90), read(9, offset=90, ids={"orders": "B"}), 10, (None, "LOG_ANEW")),
        (read(0, offset=90), read(9, end=99, offset=90), 10, (None, "LOG_ANEW")),
        (
            read(0, offset=90),
            read(9, offset=90, ids={}, logs={}, gone=["orders"]),
            10,
            (None, "LOG_ANEW"),
        ),
        # The partition is not there at either reading.
        (
            read(0, ids={}, logs={}, gone=["orders"]),
            read(9, ids={}, logs={}, gone=["orders"]),
            10,
            (0, "GROUP_CHANGED"),
        ),
    ],
)
def test_a_lag_lies_between_the_readings(
    before: Reading, after: Reading, lag: int, expected: tuple[int | None, str | None]
) -> None:
    lags = {KEY: lag} if lag else {}
    assert found(before, after, lags=lags) == [("group_lag", expected[0], lag, expected[1])]


def test_what_is_0_on_both_sides_has_no_row() -> None:
    assert found(read(0, offset=100), read(9, offset=100)) == []
    # Between 100 and 130 and 90 and 130 a lag of 0 is possible.
    assert found(read(0, offset=90), read(9, end=130, offset=130)) == []


def test_a_group_that_is_gone_at_both_readings_and_lags_since_before_them_differs() -> None:
    gone = read(0), read(9)
    assert found(*gone, lags={KEY: 10}, before=frozenset({KEY})) == [("group_lag", 0, 10, None)]


@pytest.mark.parametrize(
    ("weir", "reason"),
    [
        ({"check": None}, "NO_CHECK"),
        ({"reached": False}, "NOT_REACHED"),
        ({"stale": frozenset({KEY})}, "NOT_POLLED"),
        ({"stale": frozenset({(None, PLACE)})}, "NOT_POLLED"),
        ({}, None),
    ],
)
def test_why_a_difference_is_none(weir: dict[str, Any], reason: str | None) -> None:
    readings = read(0, offset=90), read(9, offset=90)
    assert found(*readings, lags={KEY: 7}, **weir) == [("group_lag", 10, 7, reason)]
    if reason != "NO_CHECK":
        assert found(*readings, lags={KEY: 10}, **weir) == [("group_lag", 10, 10, None)]


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ((10, 100), [("log_start", 10, 10, None), ("log_end", 100, 100, None)]),
        ((50, 130), [("log_start", 50, 50, None), ("log_end", 130, 130, None)]),
        ((9, 131), [("log_start", 10, 9, None), ("log_end", 130, 131, None)]),
        ((51, 99), [("log_start", 50, 51, None), ("log_end", 100, 99, None)]),
    ],
)
def test_a_log_lies_between_the_readings(log: tuple[int, int], expected: Found) -> None:
    readings = read(0, 10, 100), read(9, 50, 130)
    assert found(*readings, logs={PLACE: log}) == expected
    assert {reason for *_, reason in found(*readings, logs={PLACE: log}, reached=False)} == {
        None if expected[0][1] == expected[0][2] else "NOT_REACHED"
    }


LOST = [Lost(30, 50)]


@pytest.mark.parametrize(
    ("offsets", "lost", "weir", "expected"),
    [
        # The log starts at 10 and then at 50; a group at 30 has lost 20.
        ((30, 30), LOST, {}, (20, 20, None)),
        ((30, 30), [], {}, (20, 0, None)),
        ((30, 30), [], {"reached": False}, (20, 0, "NOT_REACHED")),
        ((30, 30), [*LOST, Lost(50, 60)], {}, (20, 20, None)),  # what was deleted later
        ((30, 30), LOST * 2, {}, (20, 40, None)),
        ((30, 30), [Lost(29, 50)], {}, (20, 21, None)),
        ((5, 5), [Lost(10, 50)], {}, (40, 40, None)),
        ((5, 5), [Lost(5, 50)], {}, (40, 40, None)),  # 5 to 10 were gone before
        ((50, 50), [Lost(30, 50)], {}, (0, 20, None)),
        # It moved: from 30 to 45 it may have read, or jumped.
        ((30, 45), [Lost(45, 50)], {}, (5, 5, None)),
        ((30, 45), LOST, {}, (20, 20, None)),
        ((30, 45), [Lost(46, 50)], {}, (5, 4, None)),
        ((30, 45), [Lost(29, 50)], {}, (20, 21, None)),
        ((30, 80), [], {}, None),
        ((30, 80), LOST, {}, (20, 20, None)),
        # Set back from 40 to 30: what a poll had counted before is not counted again.
        ((40, 30), [Lost(40, 50)], {}, (10, 10, None)),
        ((40, 30), LOST, {}, (20, 20, None)),
        # It stood still, and had moved on at Weir's next poll; or was gone there.
        ((30, 30), [], {"later": {KEY: [30, 90]}}, None),
        ((30, 30), [], {"later": {KEY: [30, None]}}, None),
        ((30, 30), [], {"later": {KEY: [30, 30]}}, (20, 0, None)),
        ((30, None), [], {}, None),
        ((30, None), LOST, {}, (20, 20, None)),
        # It came: at least what lay behind its offset.
        ((None, 45), LOST, {}, (20, 20, None)),
        ((None, 45), [Lost(45, 50)], {}, (5, 5, None)),
        ((None, 45), [], {}, (5, 0, None)),
        # A poll had found no record from 25 to 42; one of a group at 44 says nothing of what is before.
        ((30, 30), [Lost(42, 50)], {"empty": {KEY: [Empty(25, 42)]}}, (8, 8, None)),
        ((30, 30), LOST, {"empty": {KEY: [Empty(25, 42)]}}, (8, 20, None)),
        ((30, 30), LOST, {"empty": {KEY: [Empty(44, 70)]}}, (20, 20, None)),
        ((30, 30), [], {"empty": {KEY: [Empty(30, 40), Empty(35, 60)]}}, None),
    ],
)
def test_lost_offsets_are_those_that_were_deleted_before_a_group(
    offsets: tuple[int | None, int | None],
    lost: list[Lost],
    weir: dict[str, Any],
    expected: tuple[int, int, str | None] | None,
) -> None:
    rows = found(
        read(0, 10, 100, offsets[0]), read(9, 50, 100, offsets[1]), lost={KEY: lost}, **weir
    )
    assert [row[1:] for row in rows if row[0] == "lost_offsets"] == (
        [] if expected is None else [expected]
    )


def test_a_log_that_stands_or_is_another_one_vouches_for_no_loss() -> None:
    for after in (read(9, 10, 100, 5), read(9, 50, 100, 5, ids={"orders": "B"})):
        rows = found(read(0, 10, 100, 5), after, lost={KEY: LOST})
        assert "lost_offsets" not in {row[0] for row in rows}
