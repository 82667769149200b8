"""One round: every limit as of one hour, and the rows that are new."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from app.read.relations import Warehouse, connect_once
from app.show.forecast.backtest import Forecast, forecast
from app.show.forecast.trends import HOURS_PER_DAY
from app.show.forecast.uses import HOUR_MS, Use, known_until, uses
from app.tables.definitions import TABLES
from app.tables.writable import append

TABLE = "forecasts"
KEY = ("kind", "cluster", "broker", "entity")
Row = dict[str, Any]
_KEPT = f"SELECT {', '.join(KEY)} FROM {TABLE} WHERE known_ms = $known_ms"


@dataclass
class ForecastRound:
    """The rows of one hour, in the order of limits."""

    known_ms: int | None = None
    """The end of the newest hour that they follow from; None while there is none."""
    rows: list[Row] = field(default_factory=list)

    def keep(self, warehouse: Warehouse) -> int:
        """Append the rows that the table does not have, and how many these are; the caller holds
        the lock."""
        import pyarrow as pa

        if not self.rows:
            return 0
        hour = {"known_ms": self.known_ms}
        with connect_once(warehouse, _KEPT, hour) as connection:
            there = set(connection.execute(_KEPT, hour).fetchall())
        fresh = [row for row in self.rows if tuple(row[name] for name in KEY) not in there]
        if fresh:
            rows = pa.Table.from_pylist(fresh, schema=TABLES[TABLE].schema)
            append(warehouse, TABLE, rows, "the forecasts")
        return len(fresh)


def one_round(warehouse: Warehouse, history_ms: int, at_ms: int | None = None) -> ForecastRound:
    """Forecast every limit as of `at_ms` (ms since the epoch; None: now); nothing is written."""
    known_ms = known_until(warehouse, at_ms)
    if known_ms is None:
        return ForecastRound()
    made_ms = time.time_ns() // 1_000_000
    return ForecastRound(
        known_ms,
        [_row(use, made_ms, known_ms) for use in uses(warehouse, known_ms, history_ms)],
    )


def _row(use: Use, made_ms: int, known_ms: int) -> Row:
    """A row of the table."""
    day = use.used[-HOURS_PER_DAY:]
    row: Row = {
        **dict.fromkeys(TABLES[TABLE].names),
        "made_ms": made_ms,
        "known_ms": known_ms,
        "kind": use.kind,
        "cluster": use.cluster,
        "broker": use.broker,
        "entity": use.entity,
        "limit": use.limit,
        "used": float(np.nanmax(day)),
        "p50": use.p50,
        "p95": use.p95,
        "highest": use.highest,
        "breached": use.breached,
    }
    found = forecast(use.used, use.limit)
    if not isinstance(found, Forecast):
        return {**row, "reason": found}
    breach_ms = None if found.breach is None else known_ms + (found.breach - 1) * HOUR_MS
    return {
        **row,
        "for_ms": known_ms + found.lead * HOUR_MS,
        "predicted": found.predicted,
        "breach_ms": breach_ms,
        "mean_error": found.mean_error,
        "tests": found.tests,
    }
