"""One limit: the forecast of the newest hour, and its error at past ones.

What is forecast is the highest use of a day. At past hours a trend is fitted to what was known
then, and its forecast compared with the day that came. A forecast reaches as far as it could be
tested, and has the error of the days as far ahead as its answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from app.show.forecast.trends import HOURS_PER_DAY, LEAST_VALUES, Fit, Hours, trend

LEADS = tuple(days * HOURS_PER_DAY for days in (1, 2, 4, 7))
"""How far ahead (hours) the forecast days end."""
STEP = 6
"""Hours between two past forecasts."""
MOST_TESTS = 20
LEAST_TESTS = 4
TOO_LITTLE_HISTORY = "TOO_LITTLE_HISTORY"
"""Why there is no forecast: the history is too short for a trend, or for a test of it."""
OUT_OF_RANGE = "OUT_OF_RANGE"
"""A trend gives no number that a table can hold."""


@dataclass(frozen=True)
class Forecast:
    """The highest use of the day that ends `lead` hours after the newest one, as a share of the
    limit, and after how many hours the limit is reached: None = not within `lead`.

    `mean_error` is the mean difference of `tests` past forecasts from what came, as a share of the
    limit."""

    lead: int
    predicted: float
    breach: int | None
    mean_error: float
    tests: int


def forecast(used: Hours, limit: float) -> Forecast | str:
    """The forecast for the hourly use of a limit above 0, or why there is none."""
    fitted = _Fits(used)
    errors = {lead: found for lead in LEADS if (found := _error(fitted, lead, limit)) is not None}
    now = fitted.at(len(used) - 1, 0)
    if not errors or now is None:
        return TOO_LITTLE_HISTORY
    longest = max(errors)
    later = now(np.arange(1, longest + 1))
    breach = next((int(n) + 1 for n in np.flatnonzero(later >= limit)[:1]), None)
    lead = longest if breach is None else min(n for n in errors if n >= breach)
    result = Forecast(
        lead, _highest(later[lead - HOURS_PER_DAY : lead]) / limit, breach, *errors[lead]
    )
    return result if all(map(isfinite, (result.predicted, result.mean_error))) else OUT_OF_RANGE


class _Fits:
    """The fits to what was known at each hour; each is made once."""

    def __init__(self, used: Hours) -> None:
        self.used = used
        self._made: dict[int, Fit | None] = {}
        there = np.flatnonzero(~np.isnan(used))
        self._first = int(there[0]) if len(there) else len(used)

    def at(self, hour: int, lead: int) -> Fit | None:
        """The fit at an hour; None where the history is shorter than a trend needs, or than
        half of `lead`."""
        if hour - self._first + 1 < max(LEAST_VALUES, lead // 2):
            return None
        if hour not in self._made:
            self._made[hour] = trend(self.used[: hour + 1])
        return self._made[hour]


def _error(fitted: _Fits, lead: int, limit: float) -> tuple[float, int] | None:
    """The mean error of past forecasts of days that end `lead` hours later, and their number; None
    if too few can be compared."""
    apart: list[float] = []
    ahead = np.arange(lead - HOURS_PER_DAY + 1, lead + 1)
    for hour in range(len(fitted.used) - 1 - lead, -1, -STEP):
        if len(apart) == MOST_TESTS:
            break
        fit = fitted.at(hour, lead)
        if fit is None:
            continue
        predicted, came = _highest(fit(ahead)), _highest(fitted.used[hour + ahead])
        if not np.isnan(predicted) and not np.isnan(came):
            with np.errstate(over="ignore", invalid="ignore"):
                apart.append(abs(predicted / limit - came / limit))
    if len(apart) < LEAST_TESTS:
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.mean(apart)), len(apart)


def _highest(used: Hours) -> float:
    """The highest of the hours that have a value; nan without one."""
    known = used[~np.isnan(used)]
    return float(known.max()) if len(known) else float("nan")
