"""Positions in a Pulsar partition: what a trigger takes, how a record is named, what lags."""

from __future__ import annotations

import pytest

from app.sources.pulsar.message_positions import (
    START,
    Position,
    bounded,
    entries_of_trigger,
    offset,
)
from app.sources.pulsar.shares import EARLIEST, PulsarShares, document_of, positions_of


@pytest.mark.parametrize(
    "position", [START, Position(3, 0), Position(7, 12, -1), Position(7, 1, 9)]
)
def test_a_position_is_read_as_it_was_written(position: Position) -> None:
    assert Position.of(str(position)) == position
    document = document_of({("persistent://a/b/c", "3"): position})
    assert positions_of(document) == {("persistent://a/b/c", "3"): position}


@pytest.mark.parametrize(
    ("begin", "last", "entries", "end"),
    [
        (Position(5, 9), Position(5, 30, 2), 10, Position(5, 19)),
        (Position(5, 9), Position(5, 19, 2), 10, Position(5, 19, 2)),
        (Position(5, 9), Position(5, 12, 2), 10, Position(5, 12, 2)),
        (Position(5, 9), Position(8, 0, -1), 10, Position(5, 19)),
        (Position(5, -1), Position(5, 0, -1), 1, Position(5, 0, -1)),
    ],
)
def test_a_trigger_takes_entries_of_one_ledger(
    begin: Position, last: Position, entries: int, end: Position
) -> None:
    assert bounded(begin, last, entries) == end


@pytest.mark.parametrize(
    ("limits", "entries"),
    [
        ((1000, 10**9, 10.0, 100.0, 2), 50),
        ((1000, 5_000, 10.0, 100.0, 2), 25),
        ((10, 5, 100.0, 10_000.0, 8), 1),
    ],
)
def test_a_trigger_is_limited_by_records_and_bytes_and_takes_an_entry_at_least(
    limits: tuple[int, int, float, float, int], entries: int
) -> None:
    assert entries_of_trigger(*limits) == entries


def test_an_offset_orders_the_messages_of_a_ledger() -> None:
    places = [(0, -1), (1, 0), (1, 1), (1, (1 << 20) - 1), (2, -1), ((1 << 43) - 1, 5)]
    found = [offset(*place) for place in places]
    assert found == sorted(set(found)) and found[-1] < 1 << 63
    for entry, index in ((1 << 43, 0), (0, 1 << 20)):
        with pytest.raises(ValueError, match="beyond what an offset can hold"):
            offset(entry, index)


def test_only_partitions_that_a_bounded_batch_advances_lag() -> None:
    shares = PulsarShares(100, with_topic=False)
    before = {("t", "0"): Position(1, 5), ("t", "1"): Position(2, 5)}
    after = {**before, ("t", "1"): Position(2, 9), ("t", "2"): Position(3, 0)}
    assert shares.lagging(document_of(before), document_of(after, more=True), 100) == ["1", "2"]
    assert shares.lagging(EARLIEST, document_of(after, more=True), 100) == ["0", "1", "2"]
    assert shares.lagging({}, document_of(after, more=True), 100) == ["0", "1", "2"]
    assert shares.lagging(document_of(before), document_of(after), 100) == []
    assert shares.partition("1:2") == "1"
    named = PulsarShares(100, with_topic=True)
    assert named.partition("persistent://a/b/c-1:2") == named.name("persistent://a/b/c", "1")
