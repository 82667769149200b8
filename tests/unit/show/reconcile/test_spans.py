"""The arithmetic of a comparison, with numbers done by hand."""

from __future__ import annotations

import pytest

from app.show.reconcile.spans import (
    Counted,
    ReadingSpan,
    Shown,
    WeirValue,
    differs,
    outside,
    rows_of,
    shown,
)
from tests.support.throttle_rows import OTHER, START_MS, TOPIC
from tests.unit.show.reconcile.scrapes import BROKER, scrape

MINUTE = 60_000
REACHED = frozenset({"rate_limits", "backlog", "entry_cache"})
MESSAGES, PAUSES = ("messages_in", TOPIC), ("publish_limited_times", TOPIC)


def everything(_: str) -> bool:
    return True


def minute(
    old: dict[str, float] | None, new: dict[str, float] | None, started_s: float = 5.0
) -> ReadingSpan:
    """A minute in which a topic's values changed."""
    return ReadingSpan(
        scrape(0, {TOPIC: old} if old is not None else {}),
        scrape(MINUTE, {TOPIC: new} if new is not None else {}, started_s=started_s),
    )


@pytest.mark.parametrize(
    ("span", "expected"),
    [
        (minute({"messages_in": 100}, {"messages_in": 130}), Shown(30)),
        (minute({"messages_in": 100}, {"messages_in": 100}), Shown(0)),
        # It fell: the topic was unloaded, and what it had counted before is not known.
        (minute({"messages_in": 100}, {"messages_in": 99}), Shown(reason="TOPIC_RELOADED")),
        # It began within the span, at 0.
        (minute(None, {"messages_in": 7}), Shown(7)),
        (
            minute({"messages_in": 100}, {"messages_in": 130}, started_s=6.0),
            Shown(reason="BROKER_RESTARTED"),
        ),
        (minute(None, {"messages_in": 7}, started_s=6.0), Shown(reason="BROKER_RESTARTED")),
        # Of a gauge only the end counts.
        (minute({"backlog_bytes": 100}, {"backlog_bytes": 30}), None),
    ],
)
def test_an_increase(span: ReadingSpan, expected: Shown | None) -> None:
    assert shown(span, everything).get(MESSAGES) == expected


def test_a_gauge_is_the_value_at_the_end_also_after_a_restart() -> None:
    span = minute({"backlog_bytes": 100}, {"backlog_bytes": 30}, started_s=6.0)
    assert shown(span, everything) == {("backlog_bytes", TOPIC): Shown(30)}


def test_a_topic_that_has_gone_has_no_number() -> None:
    gone = shown(minute({"messages_in": 1}, None), everything)
    assert set(gone.values()) == {Shown(reason="TOPIC_GONE")}


def test_a_rate_is_taken_as_the_increase_of_the_span() -> None:
    whole = {"cache_hits": 2.5, "cache_inserted": 10.0}
    found = shown(ReadingSpan(scrape(0, whole=whole), scrape(30_000, whole=whole)), everything)
    assert found == {
        ("cache_hits", None): Shown(75, "RATE_ONLY"),
        ("cache_inserted", None): Shown(0),
    }


def test_topics_that_the_feed_leaves_out_are_left_out_and_counted() -> None:
    before = scrape(
        0, {TOPIC: {"messages_in": 1}, OTHER: {"messages_in": 10}}, {"cache_entries": 5}
    )
    after = scrape(
        MINUTE,
        {
            TOPIC: {"messages_in": 2},
            OTHER: {"messages_in": 4},
            "persistent://acme/new/t": {"messages_in": 3},
        },
    )
    span = ReadingSpan(before, after)
    assert list(shown(span, lambda t: t == TOPIC)) == [MESSAGES]
    # One began anew and has 4, the other came with 3; 5 entries were there before.
    found = outside(span, lambda t: t == TOPIC)
    assert (found["cache_inserted"], found["cache_misses"], found["cache_evicted"]) == (7, 7, 12)
    assert "messages_in" not in found
    assert set(outside(span, everything).values()) == {0}


def rows(
    broker: dict[tuple[str, str | None], Shown],
    counted: dict[tuple[str, str | None], Counted],
    **more: object,
) -> list[tuple[object, ...]]:
    weir = WeirValue(counted, **{"blind": {}, "reached": REACHED, **more})  # type: ignore[arg-type]
    return [
        tuple(
            row[name]
            for name in (
                "measure",
                "topic",
                "broker_value",
                "weir_value",
                "difference",
                "bound",
                "reason",
            )
        )
        for row in rows_of(minute({}, {}), broker, weir)
    ]


def test_a_row_has_both_numbers_and_their_difference() -> None:
    (row,) = rows_of(
        minute({}, {}),
        {MESSAGES: Shown(30)},
        WeirValue({MESSAGES: Counted(28, 1)}, {}, reached=REACHED),
    )
    assert row == {
        "cluster": "east",
        "broker": BROKER,
        "topic": TOPIC,
        "partition": None,
        "group": None,
        "measure": "messages_in",
        "compared_job": "rate_limits",
        "window_start_ms": START_MS,
        "window_ms": MINUTE,
        "broker_value": 30,
        "weir_value": 28,
        "difference": 2,
        "bound": 1,
        "reason": None,
    }
    assert differs(row)
    assert not differs({**row, "bound": 2})
    assert not differs({**row, "reason": "GAP"})


def test_zero_on_both_sides_is_no_row() -> None:
    assert rows({MESSAGES: Shown(0)}, {PAUSES: Counted(0)}) == []


def test_a_number_that_only_one_side_has_is_a_difference() -> None:
    assert rows({MESSAGES: Shown(30)}, {PAUSES: Counted(4)}) == [
        ("publish_limited_times", TOPIC, 0, 4, -4, 0, None),
        ("messages_in", TOPIC, 30, 0, 30, 0, None),
    ]


def test_a_measure_that_the_broker_does_not_have_is_no_row() -> None:
    assert rows({}, {("cache_misses", None): Counted(3)}) == []


@pytest.mark.parametrize(
    ("value", "weir", "difference"),
    [
        (10, 10, 0),
        (17, 17, 0),
        (20, 20, 0),
        (9, 10, -1),
        (25, 20, 5),
    ],
)
def test_a_gauge_is_compared_with_the_nearest_value_between_two_checks(
    value: int, weir: int, difference: int
) -> None:
    key = ("backlog_bytes", TOPIC)
    assert rows({key: Shown(value)}, {key: Counted(10, 0, 20)}) == [
        ("backlog_bytes", TOPIC, value, weir, difference, 0, None)
    ]


@pytest.mark.parametrize(
    ("shows", "weir", "reason"),
    [
        (Shown(reason="BROKER_RESTARTED"), {"blind": {"rate_limits": "GAP"}}, "BROKER_RESTARTED"),
        (Shown(30), {"reloaded": frozenset({TOPIC})}, "TOPIC_RELOADED"),
        (Shown(30), {"reloaded": frozenset({OTHER})}, None),
        (Shown(30), {"blind": {"rate_limits": "GAP"}}, "GAP"),
        (Shown(30), {"blind": {"backlog": "GAP"}}, None),
        (Shown(30), {"reached": frozenset()}, "NOT_REACHED"),
        # What agrees needs no more rows of Weir.
        (Shown(28), {"reached": frozenset()}, None),
    ],
)
def test_why_a_row_is_no_comparison(shows: Shown, weir: dict[str, object], reason: str) -> None:
    ((*_, found),) = rows({MESSAGES: shows}, {MESSAGES: Counted(28)}, **weir)
    assert found == reason


def test_a_broker_wide_number_may_contain_topics_that_the_feed_leaves_out() -> None:
    key = ("cache_inserted", None)
    (row,) = rows_of(
        minute({}, {}),
        {key: Shown(12)},
        WeirValue({key: Counted(9, 1)}, {}, reached=REACHED),
        more={"cache_inserted": 2},
    )
    assert (row["difference"], row["bound"], differs(row)) == (3, 3, False)


@pytest.mark.parametrize(
    ("own", "reason", "is_apart"),
    [
        (10, None, False),
        (7, "OWN_READS", False),
        (13, None, True),
    ],
)
def test_a_broker_reads_entries_for_itself(own: int, reason: str | None, is_apart: bool) -> None:
    key = ("cache_misses", None)
    (row,) = rows_of(
        minute({}, {}), {key: Shown(10)}, WeirValue({key: Counted(own, 1)}, {}, reached=REACHED)
    )
    assert (row["reason"], differs(row)) == (reason, is_apart)
