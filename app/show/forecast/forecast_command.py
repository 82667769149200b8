"""The command `forecast`: one round, its soonest breaches, and its rows into the table."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from app.read.relations import Warehouse
from app.show.forecast.backtest import TOO_LITTLE_HISTORY
from app.show.forecast.forecasting import ForecastRound, Row, one_round
from app.tables.manifest import load as load_manifest
from app.tables.reach import require_delta_rs
from app.tables.run_lock import only_forecast
from app.terminal.counts import counted
from app.terminal.moments import instant_of
from app.terminal.printable import say
from app.terminal.rows import write_table

if TYPE_CHECKING:
    from app.config.settings import Settings

SHOWN = (
    "kind",
    "entity",
    "broker",
    "highest",
    "breach",
    "by",
    "method",
    "predicted",
    "mean_error",
    "worst_error",
    "tests",
)
MOST_SHOWN = 20
DIGITS = 4


def forecast_command(settings: Settings, at_ms: int | None = None, as_json: bool = False) -> int:
    """One round; the forecasts that it printed are kept; 0."""
    require_delta_rs(settings.warehouse)
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    load_manifest(settings.location)
    with only_forecast(settings.location):
        done = one_round(warehouse, settings.forecast.history_ms, at_ms)
        if as_json:
            print(json.dumps({"known_ms": done.known_ms, "forecasts": done.rows}))
        else:
            _print(done)
        done.keep(warehouse)
    return 0


def _print(done: ForecastRound) -> None:
    if done.known_ms is None or not done.rows:
        say("no limit has rows of a whole hour yet")
        return
    soonest = sorted((row for row in done.rows if _ends(row) is not None), key=_soonest)
    if soonest:
        cells = [[_cell(row, name) for name in SHOWN] for row in soonest]
        more = "query forecasts --param rows=N shows more"
        write_table(list(SHOWN), cells, sys.stdout, MOST_SHOWN, more)
    say(summary(done))


def summary(done: ForecastRound) -> str:
    """A round in a line."""
    limits: dict[tuple[Any, ...], list[Row]] = {}
    for row in done.rows:
        key = (row["kind"], row["cluster"], row["broker"], row["entity"])
        limits.setdefault(key, []).append(row)
    breached = sum(rows[0]["breached"] for rows in limits.values())
    expected = sum(not rows[0]["breached"] and any(map(_ends, rows)) for rows in limits.values())
    unknown = sum(
        all(row["reason"] == TOO_LITTLE_HISTORY for row in rows) for rows in limits.values()
    )
    assert done.known_ms is not None
    return (
        f"{counted(len(limits), 'limit')} as of {instant_of(done.known_ms)}: "
        f"{breached} breached, {expected} expected to be reached, "
        f"{unknown} with too little history for a forecast"
    )


def _ends(row: Row) -> int | None:
    """When a limit is reached: at once if it is breached; None = not expected."""
    found: int | None = row["known_ms"] if row["breached"] else row["breach_ms"]
    return found


def _soonest(row: Row) -> tuple[Any, ...]:
    return (
        not row["breached"],
        _ends(row),
        row["mean_error"] is None,
        row["mean_error"],
        row["kind"],
        row["entity"],
    )


def _cell(row: Row, name: str) -> Any:
    if name == "breach":
        if row["breached"]:
            return "breached"
        name = "breach_ms"
    value = row["for_ms" if name == "by" else name]
    if name in ("breach_ms", "by"):
        return None if value is None else instant_of(value)
    if name == "predicted" and row["reason"]:
        return row["reason"]
    return round(value, DIGITS) if isinstance(value, float) else value
