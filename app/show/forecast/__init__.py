"""Predicts when quotas are reached, and measures how wrong such predictions were.

The command `forecast`, and rounds beside a run.

Start with `forecasting`: a round reads the hourly use of every limit (`uses`), fits a trend to it
(`trends`) as of the newest hour and of past ones (`backtest`), and appends the results to the table
`forecasts`. Imports `app.read` and `app.config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings


def forecast(
    settings: Settings,
    at_ms: int | None = None,
    as_json: bool = False,
    cluster: str | None = None,
) -> int:
    """Forecast every limit as of `at_ms` (ms since the epoch; None: now), and keep that; the answer
    is of one cluster or all; 0."""
    from app.show.forecast.forecast_command import forecast_command

    return forecast_command(settings, at_ms, as_json, cluster)
