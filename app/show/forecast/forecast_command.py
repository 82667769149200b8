"""The command `forecast`: one round into the table, then the answer of the question `forecasts`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from app.read.query import AnswerLimits, Output, query
from app.read.question import MOST
from app.read.relations import Warehouse
from app.show.forecast.backtest import TOO_LITTLE_HISTORY
from app.show.forecast.forecasting import ForecastRound, one_round
from app.tables.manifest import load as load_manifest
from app.tables.run_lock import only_forecast
from app.terminal.counts import counted
from app.terminal.moments import instant_of
from app.terminal.printable import say

if TYPE_CHECKING:
    from app.config.settings import Settings


def forecast_command(
    settings: Settings,
    at_ms: int | None = None,
    as_json: bool = False,
    cluster: str | None = None,
) -> int:
    """One round, which is kept, and what is reached next by what was known at `at_ms`, of one
    cluster or all; 0."""
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    load_manifest(settings.location)
    with only_forecast(settings.location):
        done = one_round(warehouse, settings.forecast.history_ms, at_ms)
        done.keep(warehouse)
    until_ms = MOST if at_ms is None else min(at_ms + 1, MOST)
    output: Output = "json" if as_json else "table"
    params, limits = [f"until={until_ms}"], AnswerLimits(wide=True)
    query(settings, "forecasts", output, params=params, limits=limits, cluster=cluster)
    if not as_json:
        rows = [row for row in done.rows if cluster in (None, row["cluster"])]
        say(summary(replace(done, rows=rows)))
    return 0


def summary(done: ForecastRound) -> str:
    """A round in a line."""
    if done.known_ms is None or not done.rows:
        return "days ahead: no limit has rows of a whole hour yet"
    breached = sum(row["breached"] for row in done.rows)
    expected = sum(not row["breached"] and row["breach_ms"] is not None for row in done.rows)
    unknown = sum(row["reason"] == TOO_LITTLE_HISTORY for row in done.rows)
    return (
        f"days ahead, {counted(len(done.rows), 'limit')} as of {instant_of(done.known_ms)}: "
        f"{breached} breached, {expected} expected to be reached, "
        f"{unknown} with too little history for a forecast"
    )
