"""Rounds over warehouses with rows made by hand: what is forecast, printed and kept."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.config.settings import Settings
from app.read.relations import Warehouse
from app.show.forecast.forecasting import one_round
from app.tables.definitions import TABLES
from app.tables.run_lock import Busy, only_forecast
from tests.support.ready_questions import lag
from tests.support.throttle_rows import OTHER, START_MS, TOPIC, write
from tests.unit.show.forecast.rounds import Json, fill, growing, stored
from tests.unit.show.forecast.rows import (
    DAY,
    END_MS,
    HOUR,
    checked,
    client_used,
    decided,
    identified,
    published,
)

Make = Callable[..., Settings]
USED_AT_NIGHT = [10.0] * 9 + [90.0] + [10.0] * 14


def only(rows: list[Json], **where: Any) -> Json:
    (row,) = (row for row in rows if all(row[name] == value for name, value in where.items()))
    return row


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_growing_backlog_has_the_hour_of_its_breach(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    done = one_round(Warehouse.of(settings.location), settings.forecast.history_ms)
    found = only(done.rows)
    # 700 bytes in the newest hour: 1001 after 43, so in the day that ends after 48; 1036 then.
    assert found == {
        "made_ms": found["made_ms"],
        "known_ms": END_MS,
        "kind": "backlog_size",
        "cluster": "east",
        "broker": None,
        "entity": TOPIC,
        "limit": 1000.0,
        "used": 700.0,
        "p50": pytest.approx(0.6195),
        "p95": pytest.approx(0.695, abs=0.002),
        "highest": 0.7,
        "breached": False,
        "for_ms": END_MS + 2 * DAY,
        "predicted": 1.036,
        "breach_ms": END_MS + 42 * HOUR,
        "mean_error": pytest.approx(0.0, abs=1e-9),
        "tests": 5,
        "reason": None,
    }


def test_a_daily_pattern_of_a_topic_on_two_brokers(make_settings: Make) -> None:
    settings = make_settings()
    rows = [
        published(
            ago, USED_AT_NIGHT[23 - ago % 24], limit_msgs=80.0, broker="b1" if ago > 100 else "b2"
        )
        for ago in range(240)
    ]
    fill(settings.warehouse, limiter_stats=rows)
    found = only(
        one_round(Warehouse.of(settings.location), settings.forecast.history_ms).rows,
        kind="topic_msgs",
    )
    assert (found["p50"], found["highest"]) == (10 / 80, 90 / 80)
    assert found["breach_ms"] is None
    assert found["mean_error"] == pytest.approx(1.0)  # a line knows no hours of the day


def test_use_is_compared_with_the_limit_in_force(make_settings: Make) -> None:
    """The limit was doubled an hour ago; a share of the old one would have fallen."""
    settings = make_settings()
    rows = [published(ago, 100.0 - ago, limit_msgs=100.0 if ago else 200.0) for ago in range(100)]
    fill(settings.warehouse, limiter_stats=rows)
    found = only(
        one_round(Warehouse.of(settings.location), settings.forecast.history_ms).rows,
        kind="topic_msgs",
    )
    assert (found["limit"], found["highest"]) == (200.0, 0.99)
    # 100 in the newest hour, 196 after 96: the day that ends then was not tested.
    assert (found["breach_ms"], found["for_ms"]) == (None, END_MS + 2 * DAY)
    assert found["predicted"] == pytest.approx(148 / 200)


def test_a_quota_of_producer_ids_is_that_of_each_broker(make_settings: Make) -> None:
    settings = make_settings()
    rows = [
        {**identified(ago, 2.0 if broker == "b1" else 4.0), "broker": broker}
        for ago in range(60)
        for broker in ("b1", "b2")
    ]
    fill(
        settings.warehouse,
        producer_id_stats=rows,
        producer_id_decisions=[{**decided(0), "broker": b} for b in ("b1", "b2")],
    )
    done = one_round(Warehouse.of(settings.location), settings.forecast.history_ms).rows
    assert {(row["broker"], row["entity"], row["limit"], row["predicted"]) for row in done} == {
        ("b1", "etl", 10.0, 0.2),
        ("b2", "etl", 10.0, 0.4),
    }


def test_a_client_quota_is_that_of_each_broker_and_of_requests_where_they_are_known(
    make_settings: Make,
) -> None:
    """Use is the average of a window, so a burst may be throttled long before."""
    settings = make_settings()
    changes = {"broker": "b2", "rate_avg": 80.0}
    rows = [
        row
        for ago in range(60)
        for row in (
            client_used(ago),
            client_used(ago, **changes),
            client_used(ago, **changes | {"rate_avg": 5.0, "basis": "metrics"}),
        )
    ]
    fill(settings.warehouse, client_quota_stats=rows)
    done = one_round(Warehouse.of(settings.location), settings.forecast.history_ms).rows
    assert {
        (row["kind"], row["broker"], row["entity"], row["limit"], row["predicted"]) for row in done
    } == {
        ("client_produce_bytes", "b1", "etl", 100.0, 0.5),
        ("client_produce_bytes", "b2", "etl", 100.0, 0.8),
    }


def test_what_has_been_breached_says_so(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    fill(
        settings.warehouse,
        backlog_checks=[*(checked(ago, 1000) for ago in range(3)), *growing(name=OTHER)],
    )
    assert main(["forecast", "--warehouse", settings.warehouse]) == 0
    _, _, first, second, empty, last = capsys.readouterr().out.splitlines()
    assert empty.startswith("without a value: ")
    assert TOPIC in first and "true" in first
    assert OTHER in second and "2023-11-16T18:00:00Z" in second
    assert last == (
        "days ahead, 2 limits as of 2023-11-15T00:00:00Z: 1 breached, 1 expected to be reached, "
        "1 with too little history for a forecast"
    )


def test_ten_minutes_of_data_are_enough_for_the_next_ones(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two checks of a group; at the first one the other group had stopped, too."""
    settings = make_settings()
    where = ["--warehouse", settings.warehouse]
    rows = [
        lag("g", 0, 5, time_to_loss_s=600.0, limit_s=605),
        lag("g", 60_000, 5, time_to_loss_s=540.0, limit_s=545),
        lag("h", 0, 5, time_to_loss_s=60.0, limit_s=65),
        lag("h", 60_000, 0),
    ]
    fill(settings.warehouse, group_lag=rows)

    def listed(*options: str) -> list[tuple[str, str]]:
        found = answer(capsys, "forecast", *where, *options)
        assert {(row["predicted"], row["mean_error"]) for row in found} == {(None, None)}
        return [(row["group_or_subscription"], row["breach"]) for row in found]

    assert listed() == [("g", "2023-11-14T22:24:00Z")]
    assert listed("--at", str(START_MS)) == [
        ("h", "2023-11-14T22:15:00Z"),
        ("g", "2023-11-14T22:24:00Z"),
    ]


def test_one_limit_is_not_several(make_settings: Make, capsys: pytest.CaptureFixture[str]) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    assert main(["forecast", "--warehouse", settings.warehouse]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("days ahead, 1 limit as of 2023-11-15T00:00:00Z")


def test_too_little_history_is_said_and_kept(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing(20))
    done = one_round(Warehouse.of(settings.location), settings.forecast.history_ms)
    done.keep(Warehouse.of(settings.location))
    assert [(row["reason"], row["predicted"], row["mean_error"]) for row in stored(settings)] == [
        ("TOO_LITTLE_HISTORY", None, None)
    ]


def test_a_second_round_writes_nothing_twice(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    where = ["--warehouse", settings.warehouse]
    fill(settings.warehouse, backlog_checks=growing())
    first = answer(capsys, "forecast", *where)
    kept = stored(settings)
    assert (len(kept), [row["predicted"] for row in first]) == (1, [1.036])
    assert (
        answer(capsys, "forecast", *where) == first == answer(capsys, "query", "forecasts", *where)
    )
    assert stored(settings) == kept
    # A limit whose rows came late is added to the same hour.
    write(settings.warehouse, "backlog_checks", growing(name=OTHER))
    assert [row["entity"] for row in answer(capsys, "forecast", *where)] == [TOPIC, OTHER]
    assert sorted(row["entity"] for row in stored(settings)) == [TOPIC, OTHER]


def test_a_forecast_of_the_past_knows_nothing_later(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    where = ["--warehouse", settings.warehouse]
    fill(settings.warehouse, backlog_checks=growing(150))
    at_ms = END_MS - 2 * DAY
    answer(capsys, "forecast", *where, "--at", str(at_ms + 1800_000))
    answer(capsys, "forecast", *where)
    past, now = (only(stored(settings), known_ms=ms) for ms in (at_ms, END_MS))
    assert (past["used"], past["for_ms"], past["predicted"], past["breach_ms"]) == (
        7.0 * 102,
        END_MS,
        1.05,
        at_ms + 40 * HOUR,
    )
    assert now["breached"]
    # What came is in the row of the day that was predicted.
    (row,) = answer(capsys, "query", "forecast-outcomes", *where)
    assert (row["forecasts"], row["predicted"], row["came"], row["off"], row["mean_error"]) == (
        1,
        1.05,
        1.05,
        0.0,
        0.0,
    )


@pytest.mark.parametrize("at", ["-9223372036854775808", "0", "9223372036854775807"])
def test_any_time_may_be_asked_for(
    make_settings: Make, capsys: pytest.CaptureFixture[str], at: str
) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    found = answer(capsys, "forecast", "--warehouse", settings.warehouse, "--at", at)
    assert bool(found) is (len(at) == 19)


def test_nothing_is_known_of_an_empty_warehouse(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    Path(settings.warehouse, "_weir").mkdir(parents=True)
    assert main(["forecast", "--warehouse", settings.warehouse]) == 0
    *_, why, last = capsys.readouterr().out.splitlines()
    assert why.startswith("no rows: no limit is breached or expected to be reached")
    assert last == "days ahead: no limit has rows of a whole hour yet"
    assert not Path(settings.warehouse, "forecasts").exists()


def test_a_clock_that_is_ahead_hides_nobody(make_settings: Make) -> None:
    settings = make_settings()
    ahead_ms = 200_000_000_000_000
    fill(
        settings.warehouse,
        limiter_stats=[published(0, 1.0, window_start_ms=ahead_ms, ts_wall_ms=ahead_ms)],
    )
    done = one_round(Warehouse.of(settings.location), settings.forecast.history_ms)
    assert done.known_ms is not None and done.known_ms < ahead_ms


EXTREMES = (2**63 - 1, -(2**63), 0)
RATES = (float("nan"), float("inf"), float("-inf"), 1.7e308, -1.7e308, 5e-324, 0.0)


def test_extreme_numbers_break_nothing(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    checks = [
        checked(ago, size, limit, f"persistent://a/b/{size}-{limit}")
        for ago in range(100)
        for size in EXTREMES
        for limit in (*EXTREMES, 1)
    ]
    limits = [
        published(
            ago,
            0,
            f"persistent://a/b/{rate}-{messages}",
            limit_msgs=rate,
            messages=messages,
            window_ms=length,
        )
        for ago in range(60)
        for rate in RATES
        for messages in EXTREMES
        for length in (60_000, 0, -1)
    ]
    nobody = [checked(ago, 1, 1, name=None) for ago in range(60)]
    fill(settings.warehouse, backlog_checks=[*checks, *growing(), *nobody], limiter_stats=limits)
    done = answer(capsys, "forecast", "--warehouse", settings.warehouse)
    assert only(done, entity=TOPIC)["predicted"] == 1.036
    kept = stored(settings)
    assert kept
    for row in kept:
        assert row["limit"] > 0 and row["used"] >= 0, row
    assert main(["forecast", "--warehouse", settings.warehouse]) == 0
    assert len(stored(settings)) == len(kept)


def test_hostile_names_are_names(make_settings: Make, capsys: pytest.CaptureFixture[str]) -> None:
    settings = make_settings()
    names = [
        "persistent://a/b/'; DROP TABLE x --",
        "persistent://a/b/\x1b[2J\n",
        "persistent://a/é",
    ]
    fill(settings.warehouse, backlog_checks=[row for name in names for row in growing(name=name)])
    assert main(["forecast", "--warehouse", settings.warehouse]) == 0
    assert "\x1b" not in capsys.readouterr().out
    assert {row["entity"] for row in stored(settings)} == set(names)
    assert main(["forecast", "--warehouse", settings.warehouse]) == 0
    assert len(stored(settings)) == len(names)


def test_a_forgotten_name_is_in_no_forecast(
    make_settings: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings()
    users = [identified(ago, 1.0, user) for ago in range(60) for user in ("zoe", "bob")]
    fill(
        settings.warehouse,
        backlog_checks=growing(),
        producer_id_stats=users,
        producer_id_decisions=[decided(0, "zoe"), decided(0, "bob")],
    )
    warehouse = Warehouse.of(settings.location)
    one_round(warehouse, settings.forecast.history_ms).keep(warehouse)
    for words in (["--principal", "User:zoe"], ["--topic", TOPIC]):
        assert main(["forget", "--warehouse", settings.warehouse, *words]) == 0
    names = {row["entity"] for row in stored(settings)}
    assert "bob" in names and not names & {"zoe", TOPIC}
    assert len(names) == 3


def test_one_process_at_a_time_makes_forecasts(make_settings: Make) -> None:
    settings = make_settings()
    with only_forecast(settings.location), pytest.raises(Busy), only_forecast(settings.location):
        pass


def test_every_column_is_filled_or_null(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    assert [
        list(row)
        for row in one_round(Warehouse.of(settings.location), settings.forecast.history_ms).rows
    ] == [list(TABLES["forecasts"].names)]
