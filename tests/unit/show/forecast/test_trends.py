"""Each method on a few hours whose answer can be worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.show.forecast.methods import METHODS, same_hour, trend

NONE = float("nan")
DAY = [1.0] * 9 + [8.0] + [2.0] * 14


def given(fit: Any, used: list[float], *ahead: int) -> list[float]:
    found = fit(np.array(used))
    return [round(value, 9) for value in found(np.array(ahead)).tolist()]


def test_a_trend_goes_on_as_it_was() -> None:
    assert given(trend, [3.0 + 2 * n for n in range(12)], 1, 10) == [27.0, 45.0]


def test_a_trend_does_not_follow_one_hour_that_is_out_of_line() -> None:
    assert given(trend, [*map(float, range(1, 13)), 900.0], 1, 2) == [14.0, 15.0]


def test_hours_without_rows_have_no_part_in_a_trend() -> None:
    used = [float(n) if n % 3 else NONE for n in range(24)]
    assert given(trend, [NONE, *used, NONE], 1, 5) == [25.0, 29.0]


def test_of_a_long_history_a_trend_takes_the_highest_use_of_blocks() -> None:
    # 96 hours are 48 blocks of two; the use of every second hour is out of line.
    assert given(trend, [float(n) if n % 2 else 0.0 for n in range(96)], 1, 4) == [96.0, 99.0]


def test_a_falling_trend_ends_at_nothing() -> None:
    assert given(trend, [12.0 - n for n in range(12)], 1, 2, 900) == [0.0, 0.0, 0.0]


def test_the_same_hour_has_the_median_of_the_days_before() -> None:
    third = [5.0] * 9 + [4.0] + [2.0] * 14
    used = [*DAY, *DAY, *third]
    assert given(same_hour, used, 1, 10, 24, 25, 34) == [1.0, 8.0, 2.0, 1.0, 8.0]


def test_the_same_hour_counts_from_where_the_history_ends() -> None:
    assert given(same_hour, [*DAY, *DAY, *DAY[:7]], 1, 3) == [1.0, 8.0]


def test_an_hour_with_rows_on_one_day_only_has_no_forecast() -> None:
    second = [NONE if n == 9 else value for n, value in enumerate(DAY)]
    found = given(same_hour, [*DAY, *second], 9, 10)
    assert found[0] == 1.0 and np.isnan(found[1])


def test_days_that_are_more_than_a_week_ago_do_not_count() -> None:
    assert given(same_hour, [900.0] * 24 * 4 + DAY * 7, 1, 10) == [1.0, 8.0]


@pytest.mark.parametrize(
    ("fit", "used"),
    [
        (trend, []),
        (trend, [NONE] * 50),
        (trend, [1.0] * 11),
        (trend, [NONE, *[1.0] * 11, NONE]),
        (trend, [*[1.0] * 12, *[NONE] * 2000, 5.0]),  # two points
        (same_hour, []),
        (same_hour, [NONE] * 60),
        (same_hour, [1.0] * 24),
    ],
)
def test_too_little_history_gives_nothing(fit: Any, used: list[float]) -> None:
    assert fit(np.array(used)) is None


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_flat_use_stays_flat(method: Any) -> None:
    assert given(method.fit, [4.5] * 100, 1, 24, 168) == [4.5, 4.5, 4.5]
