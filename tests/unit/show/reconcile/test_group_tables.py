"""Weir's side of a comparison with Kafka: which check counts; what waits, is joined or differs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from app.config.settings import Settings
from app.errors import UserError
from app.read.relations import Warehouse
from app.show.reconcile.cluster import Cluster
from app.show.reconcile.cluster_reading import Reading
from app.show.reconcile.comparing import own
from app.show.reconcile.group_rows import Empty, Lost, WeirNumber
from app.show.reconcile.group_tables import Tables
from app.sources.kafka.offsets import FEED, Place
from tests.support.throttle_rows import START_MS, write

Json = dict[str, Any]
S = 1000
PLACE = Place("orders", 0)
KEY = ("billing", PLACE)
COMMON = {"cluster": "east", "broker": "kafka"}


@pytest.fixture
def settings(make_settings: Callable[..., Settings]) -> Settings:
    return make_settings(
        source={
            "format": "kafka_groups",
            "groups": {"cluster": "east", "options": {"bootstrap.servers": "127.0.0.1:9"}},
        },
        reconcile={"settle_ms": 0, "wait_ms": 100 * S},
    )


def lag(at_s: float, group: str = "billing", behind: int | None = 10, **changes: Any) -> Json:
    """A row of a check."""
    return {
        **COMMON,
        "pass_ms": START_MS + int(at_s * S),
        "ts_wall_ms": START_MS + int(at_s * S),
        "row_no": 0,
        "group": group,
        "topic": "orders",
        "partition": 0,
        "state": "committed",
        "committed": 90,
        "log_start": 5,
        "log_end": 100,
        "lag": behind,
        **changes,
    }


def poll(at_s: float, offset: int = 90, group: str = "billing", **changes: Any) -> list[Json]:
    """The records of a poll: a log, and a group in it."""
    at = {
        **COMMON,
        "source_feed": FEED,
        "seq": 0,
        "ts_wall_ms": START_MS + int(at_s * S),
        "topic": "orders",
        "partition": 0,
        "event_date": date(2023, 11, 14),
    }
    log = {**at, "event_type": "ledger_state", "ledger_entries": 100, "log_start": 5}
    cursor = {
        **at,
        "event_type": "cursor_state",
        "subscription": group,
        "mark_delete": f"0:{offset - 1}",
        "unread": None,
    }
    names = {"ledger_entries", "log_start"}
    return [
        {**log, **{k: v for k, v in changes.items() if k in names}},
        {**cursor, **{k: v for k, v in changes.items() if k not in names}},
    ]


def reading(at_s: float, start: int = 5, offset: int = 90) -> Reading:
    return Reading(
        START_MS + int(at_s * S),
        START_MS + int(at_s * S) + 100,
        {"orders": "A"},
        [],
        {"orders": [0]},
        {PLACE.text: [start, 100]},
        {"billing": {PLACE.text: offset}},
    )


def between(
    settings: Settings, first: Reading, second: Reading, **tables: list[Json]
) -> WeirNumber:
    for name, rows in tables.items():
        write(settings.warehouse, name, rows)
    return Tables(Warehouse.of(settings.location), "east").between(first, second)


def flat(*polls: list[Json]) -> list[Json]:
    return [record for each in polls for record in each]


@pytest.mark.parametrize(
    ("polls_s", "checks_s", "check_s", "reached"),
    [
        # Readings at 10 and 70 s. The poll at 30 s may have begun before 10 s, that at 50 s has not.
        ([5, 30, 50, 90, 110], [0, 40, 60, 120], 60, True),
        (
            [5, 30, 50, 90, 110],
            [0, 40, 60, 100],
            60,
            False,
        ),  # that at 90 s may have begun before 70 s
        ([5, 30, 50, 90], [0, 40, 60, 120], 60, False),
        ([5, 30, 50, 90, 110], [0, 60, 80, 120], 80, True),  # the newest one with the poll at 50 s
        ([5, 30, 90, 110], [0, 40, 60, 120], None, True),
        ([5, 30, 50, 71, 110], [0, 40, 75, 120], None, True),
        ([30, 50, 90, 110], [40, 60, 120], 60, True),
        ([50, 90, 110], [60, 120], None, True),  # when it began is not known
        ([5, 30, 60, 90, 110], [0, 40, 60, 120], None, True),  # a poll and a check at one time
        ([], [], None, False),
    ],
)
def test_the_check_of_a_poll_between_the_readings_counts(
    settings: Settings,
    polls_s: list[float],
    checks_s: list[float],
    check_s: float | None,
    reached: bool,
) -> None:
    found = between(
        settings,
        reading(10),
        reading(70),
        events=flat(*map(poll, polls_s)),
        group_lag=[lag(at, behind=int(at)) for at in checks_s],
    )
    assert found.check == (None if check_s is None else START_MS + int(check_s * S))
    assert found.reached is reached
    assert found.lags == ({} if check_s is None else {KEY: int(check_s)})
    assert found.logs == ({} if check_s is None else {PLACE: (5, 100)})


def test_what_a_poll_left_out_and_what_was_lost(settings: Settings) -> None:
    lost = {
        **COMMON,
        "row_no": 0,
        "group": "billing",
        "topic": "orders",
        "partition": 0,
        "committed": 3,
        "from_offset": 3,
        "to_offset": 5,
        "offsets": 2,
        "first_sight": False,
    }
    found = between(
        settings,
        reading(10),
        reading(70, start=20),
        events=flat(
            poll(5, 3, unread=0),
            poll(30, 3),
            poll(30, 7, group="late"),
            poll(50, 8, group="slow", unread=0, log_start=9),
            poll(90, 3),
            poll(110, 33),
        ),
        group_lag=[
            lag(0, "gone"),
            lag(0, "idle", 0),
            lag(60),
            lag(60, "idle", 0),
            lag(60, "left", None, state="gone", log_start=None, log_end=None),
        ],
        lost_messages=[{**lost, "ts_wall_ms": START_MS + at * S} for at in (5, 50)],
    )
    assert found.lags == {KEY: 10}
    assert found.before == {("gone", PLACE)}
    assert found.stale == {KEY, ("late", PLACE)}
    assert found.lost == {KEY: [Lost(3, 5)]}
    assert found.empty == {KEY: [Empty(5, 100)], ("slow", PLACE): [Empty(9, 100)]}
    assert found.later == {
        KEY: [3, 33],
        ("late", PLACE): [None, None],
        ("slow", PLACE): [None, None],
    }


def test_what_was_empty_in_a_log_that_is_gone_says_nothing(settings: Settings) -> None:
    deleted = {**poll(40)[0], "event_type": "ledger_deleted"}
    found = between(
        settings,
        reading(10),
        reading(70, start=20),
        events=[
            *flat(poll(5, 3, unread=0), poll(30, 3, unread=0)),
            deleted,
            *poll(50, 3, unread=0),
        ],
    )
    assert found.empty == {KEY: [Empty(5, 100)]}


def compared(settings: Settings, kept: list[Reading], now_s: float) -> tuple[Any, list[Reading]]:
    rows, left = Cluster(settings, settings.feed, own(settings)).compared(
        kept, START_MS + int(now_s * S)
    )
    return None if rows is None else [
        (
            r["cluster"],
            r["broker"],
            r["group"],
            r["measure"],
            r["broker_value"],
            r["weir_value"],
            r["reason"],
        )
        for r in rows
    ], left


SAME = [
    ("east", "kafka", "billing", "group_lag", 10, 10, None),
    ("east", "kafka", None, "log_start", 5, 5, None),
    ("east", "kafka", None, "log_end", 100, 100, None),
]


def test_a_span_waits_for_its_check_and_is_joined_with_the_next_one(settings: Settings) -> None:
    first, second, third = readings = [reading(10), reading(40), reading(70)]
    write(settings.warehouse, "events", flat(poll(5), poll(30)))
    write(settings.warehouse, "group_lag", [lag(0), lag(35)])
    assert compared(settings, readings, 71) == (None, readings)  # not yet, perhaps
    write(settings.warehouse, "events", flat(poll(50), poll(65), poll(90), poll(110)))
    write(settings.warehouse, "group_lag", [lag(95), lag(120)])
    assert compared(settings, readings, 121) == ([], [first, third])
    # At 95 s that of the poll at 90 s is the newest one, so there is none.
    assert compared(settings, [first, third], 121) == (None, [first, third])
    write(settings.warehouse, "group_lag", [lag(66)])
    assert compared(settings, [first, third], 121) == (SAME, [third])
    assert compared(settings, [first, second], 1000) == (
        [("east", "kafka", "billing", "group_lag", 10, 0, "NO_CHECK")],
        [second],
    )


@pytest.mark.parametrize(
    ("behind", "now_s", "reason"),
    [
        (10, 71, None),
        (11, 71, "waits"),
        (11, 171, "NOT_REACHED"),
        (11, 121, None),
    ],
)
def test_a_difference_waits_until_weir_is_there(
    settings: Settings, behind: int, now_s: float, reason: str | None
) -> None:
    write(settings.warehouse, "events", flat(poll(5), poll(30), poll(50)))
    write(settings.warehouse, "group_lag", [lag(60, behind=behind)])
    if now_s == 121:
        write(settings.warehouse, "events", flat(poll(90), poll(110)))
        write(settings.warehouse, "group_lag", [lag(120)])
    rows, left = compared(settings, [reading(10), reading(70)], now_s)
    if reason == "waits":
        assert (rows, left) == (None, [reading(10), reading(70)])
    else:
        assert rows[0] == ("east", "kafka", "billing", "group_lag", 10, behind, reason)
        assert rows[1:] == SAME[1:]


def test_what_polls_found_empty_long_ago_is_no_loss(settings: Settings) -> None:
    """From 90 to 100 there were marks of transactions; records up to 120 followed an hour ago."""
    hour = 3600
    now = [{**r, "ledger_entries": 120} for r in flat(*(poll(hour + at) for at in (5, 30, 50)))]
    write(
        settings.warehouse,
        "events",
        [
            *flat(poll(0), poll(30, unread=0)),
            *now,
            *[{**r, "ledger_entries": 120} for r in flat(poll(hour + 90), poll(hour + 110))],
        ],
    )
    write(
        settings.warehouse,
        "group_lag",
        [lag(hour + at, behind=30, log_end=120, log_start=110) for at in (60, 120)],
    )
    write(
        settings.warehouse,
        "lost_messages",
        [
            {
                **COMMON,
                "row_no": 0,
                "group": "billing",
                "topic": "orders",
                "partition": 0,
                "committed": 90,
                "from_offset": 100,
                "to_offset": 110,
                "offsets": 10,
                "first_sight": False,
                "ts_wall_ms": START_MS + (hour + 50) * S,
            }
        ],
    )
    readings = [
        Reading(**{**vars(reading(hour + at, start)), "logs": {PLACE.text: [start, 120]}})
        for at, start in ((10, 5), (70, 110))
    ]
    rows, _ = compared(settings, readings, hour + 121)
    assert ("east", "kafka", "billing", "lost_offsets", 10, 10, None) in rows


def test_names_that_are_asked_for_are_those_of_the_newest_checks(settings: Settings) -> None:
    write(
        settings.warehouse,
        "group_lag",
        [lag(0, "old"), lag(3600), lag(3600, '""', topic=None, partition=None), lag(3500, "other")],
    )
    tables = Tables(Warehouse.of(settings.location), "east")
    assert tables.live(START_MS + 3700 * S) == ({"orders"}, {"billing", "other"})


def test_brokers_are_of_pulsar(settings: Settings, make_settings: Callable[..., Settings]) -> None:
    assert settings.source is not None
    source = settings.feed.model_dump(exclude_unset=True)
    assert own(make_settings(source=source)).brokers == {}  # the command needs no section
    with pytest.raises(UserError, match=r"brokers: is not read with source\.format kafka"):
        make_settings(source=source, reconcile={"brokers": ["http://b1:8080"]})
