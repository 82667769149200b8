"""Forecasts of one limit and their error, worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from app.show.forecast.backtest import OUT_OF_RANGE, TOO_LITTLE_HISTORY, Forecast, forecast

DAY = [10.0] * 9 + [90.0] + [10.0] * 14


def of(used: list[float], limit: float) -> Forecast | str:
    return forecast(np.array(used), limit)


def test_linear_growth_reaches_the_limit_at_the_calculable_hour() -> None:
    """Hour n uses n; the newest is 99, so 120 is reached 21 hours later, and 123 is the highest
    of the day. Past forecasts were made at 75, 69 ... 15: each was exact."""
    assert of([float(n) for n in range(100)], 120.0) == Forecast(24, 123 / 120, 21, 0.0, 11)


def test_a_breach_is_only_expected_as_far_ahead_as_was_tested() -> None:
    """Of a hundred hours, past forecasts could be tested 48 hours ahead (from 24
    hours of history on: at 51, 45, 39, 33 and 27) and not 96."""
    used = [float(n) for n in range(100)]
    assert of(used, 147.0) == Forecast(48, 1.0, 48, 0.0, 5)
    assert of(used, 148.0) == Forecast(48, 147 / 148, None, 0.0, 5)


def test_a_daily_pattern_has_a_large_error() -> None:
    """The tenth hour of each day uses 90 of 80; the history ends with a whole day."""
    found = of(DAY * 14, 80.0)
    assert isinstance(found, Forecast)
    assert found.breach is None and found.mean_error == pytest.approx(1.0)  # 90 came, not 10


def test_flat_use_never_reaches_the_limit() -> None:
    found = of([79.0] * 336, 80.0)
    assert isinstance(found, Forecast)
    assert found == Forecast(168, 79 / 80, None, 0.0, 15)


def test_the_error_is_the_mean_difference_of_what_came() -> None:
    """54 hours at 10, the last 9 of them at 30, of a limit of 100. Forecasts were made at the
    hours 29, 23, 17 and 11, all of 10; the days that came ended at 53, 47, 41 and 35. Only the
    first two had hours at 30 (from 45 on): differences of 0.2, 0.2, 0 and 0."""
    found = of([10.0] * 45 + [30.0] * 9, 100.0)
    assert isinstance(found, Forecast)
    assert (found.mean_error, found.tests) == (pytest.approx(0.1), 4)


def test_no_forecast_without_four_tests_of_it() -> None:
    """A trend needs 12 hours; then 18 for four forecasts, and the day of the last one."""
    assert of([1.0] * 53, 10.0) == TOO_LITTLE_HISTORY
    assert of([1.0] * 54, 10.0) == Forecast(24, 0.1, None, 0.0, 4)


def test_a_gap_in_the_history_is_no_test() -> None:
    used = [1.0] * 100
    used[40:90] = [math.nan] * 50
    found = of(used, 10.0)
    assert isinstance(found, Forecast)
    # Forecasts at 69 and 75, whose days have hours from 90 on, and at 33, 27, 21 and 15.
    assert found.tests == 6


@pytest.mark.parametrize(
    ("used", "limit"),
    [
        ([1.7e308, 0.0] * 168, 1e-3),
        ([0.0, 1.7e308] * 168, 5e-324),
        ([1.7e308] * 336, 1e-300),
    ],
)
def test_what_no_double_holds_is_no_forecast(used: list[float], limit: float) -> None:
    assert of(used, limit) == OUT_OF_RANGE


def test_numbers_near_the_end_of_64_bits_are_numbers() -> None:
    most = float(2**63 - 1)
    found = of([most] * 336, most)
    assert isinstance(found, Forecast)
    assert (found.predicted, found.breach, found.mean_error) == (1.0, 1, 0.0)


def test_nothing_is_known_of_no_history() -> None:
    assert of([math.nan] * 336, 1.0) == TOO_LITTLE_HISTORY
