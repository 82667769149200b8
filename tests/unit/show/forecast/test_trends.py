"""A trend on a few hours whose answer can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from app.show.forecast.trends import trend

NONE = float("nan")


def given(used: list[float], *ahead: int) -> list[float]:
    found = trend(np.array(used))
    assert found is not None
    return [round(value, 9) for value in found(np.array(ahead)).tolist()]


def test_a_trend_goes_on_as_it_was() -> None:
    assert given([3.0 + 2 * n for n in range(12)], 1, 10) == [27.0, 45.0]


def test_a_trend_does_not_follow_one_hour_that_is_out_of_line() -> None:
    assert given([*map(float, range(1, 13)), 900.0], 1, 2) == [14.0, 15.0]


def test_hours_without_rows_have_no_part_in_a_trend() -> None:
    used = [float(n) if n % 3 else NONE for n in range(24)]
    assert given([NONE, *used, NONE], 1, 5) == [25.0, 29.0]


def test_of_a_long_history_a_trend_takes_the_highest_use_of_blocks() -> None:
    # 96 hours are 48 blocks of two; the use of every second hour is out of line.
    assert given([float(n) if n % 2 else 0.0 for n in range(96)], 1, 4) == [96.0, 99.0]


def test_a_falling_trend_ends_at_nothing() -> None:
    assert given([12.0 - n for n in range(12)], 1, 2, 900) == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "used",
    [
        [],
        [NONE] * 50,
        [1.0] * 11,
        [NONE, *[1.0] * 11, NONE],
        [*[1.0] * 12, *[NONE] * 2000, 5.0],  # two points
    ],
)
def test_too_little_history_gives_nothing(used: list[float]) -> None:
    assert trend(np.array(used)) is None


def test_flat_use_stays_flat() -> None:
    assert given([4.5] * 100, 1, 24, 168) == [4.5, 4.5, 4.5]
