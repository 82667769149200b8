"""Reads the use of every limit by hour, from the view `quota_usage`.

Only files and rows of the history are read; the hours of a limit come together, so that one limit
is in memory at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from operator import itemgetter
from typing import Any

import duckdb
import numpy as np

from app.errors import UserError
from app.read.relations import ANY_ORDER, Recent, Warehouse, connect, first_lines, state
from app.show.forecast.trends import HOURS_PER_DAY, Hours
from app.tables.quota_usage import QUOTAS, TABLES_OF_USE

HOUR_MS = 3_600_000
DAY_MS = HOURS_PER_DAY * HOUR_MS
CONFIG = {"memory_limit": "1GB", "threads": "1", **ANY_ORDER}
"""Limits of DuckDB: forecasts are made beside the stream; what needs more memory is spilled."""
FETCHED = 10_000
_OF = "kind, cluster, broker, entity"
_OF_TOPICS = ", ".join(f"'{quota.kind}'" for quota in QUOTAS if quota.of_topic)
_LASTING = ", ".join(f"'{quota.kind}'" for quota in QUOTAS if quota.lasting)
_TAKEN = f"""
  SELECT kind, cluster, CASE WHEN kind NOT IN ({_OF_TOPICS}) THEN broker END AS broker, entity,
    window_start_ms AS at_ms, "limit", used, ratio, breached OR used >= "limit" AS breached
  FROM quota_usage
  WHERE kind IN ({_LASTING}) AND entity IS NOT NULL AND used >= 0 AND isfinite(used)
"""
# An hour has the limit that is newest in it: at a rate of 0 that of a producer id quota is unknown.
_HOURS = f"""
WITH hours AS (
  SELECT {_OF}, at_ms // {HOUR_MS} AS hour, max(used) AS used,
    arg_max("limit", at_ms) FILTER (isfinite("limit")) AS "limit",
    arg_max(breached, at_ms) AS breached
  FROM ({_TAKEN} AND window_start_ms >= $since AND window_start_ms < $until)
  GROUP BY ALL
), day AS (
  SELECT {_OF}, approx_quantile(ratio, [0.5, 0.95]) AS quantiles, max(ratio) AS highest
  FROM ({_TAKEN} AND window_start_ms >= $day AND window_start_ms < $until)
  WHERE isfinite(ratio)
  GROUP BY ALL
)
SELECT h.kind, h.cluster, h.broker, h.entity, h.hour, h.used, h."limit", h.breached,
  d.quantiles[1], d.quantiles[2], d.highest
FROM hours AS h JOIN day AS d ON d.kind = h.kind AND d.entity = h.entity
  AND d.cluster IS NOT DISTINCT FROM h.cluster AND d.broker IS NOT DISTINCT FROM h.broker
ORDER BY h.kind, h.cluster, h.broker, h.entity, h.hour
"""


@dataclass(frozen=True)
class Use:
    """One limit: its use by hour and over the last day."""

    kind: str
    cluster: str | None
    broker: str | None
    entity: str
    limit: float
    """The newest limit, above 0."""
    used: Hours
    """Highest use of each hour, the newest hour last; nan = no rows."""
    breached: bool
    """Whether its newest window or check was at the limit, or breached it."""
    p50: float | None
    p95: float | None
    highest: float
    """Use as a share of the limit at the time, of windows and checks of the last day. Quantiles of
    numbers near the end of a double are not known."""


def known_until(warehouse: Warehouse, at_ms: int | None) -> int | None:
    """The end of the newest hour (ms since the epoch) that the tables have whole, or had at
    `at_ms`; None while they are empty. By the statistics of the logs."""
    opened = warehouse.open_all(TABLES_OF_USE)
    newest = [state(warehouse, name, delta).newest_ms for name, delta in opened.items()]
    reached = max((ms for ms in newest if ms is not None), default=None)
    if reached is None:
        return None
    # A broker's clock may be ahead.
    until_ms = min(reached, time.time_ns() // 1_000_000 if at_ms is None else at_ms)
    return until_ms // HOUR_MS * HOUR_MS


def uses(warehouse: Warehouse, known_ms: int, history_ms: int) -> Iterator[Use]:
    """Every limit with rows in the day before `known_ms`, one at a time."""
    since_ms = known_ms - history_ms // HOUR_MS * HOUR_MS
    times = {"since": since_ms, "until": known_ms, "day": known_ms - DAY_MS}
    recent = Recent(known_ms - since_ms, known_ms)
    try:
        with connect(warehouse, _HOURS, config=CONFIG, recent=recent, calendar=True) as connection:
            connection.execute(_HOURS, times)
            rows = iter(lambda: connection.fetchmany(FETCHED), [])
            every = (row for several in rows for row in several)
            for _, hours in groupby(every, key=itemgetter(0, 1, 2, 3)):
                found = _use(list(hours), since_ms // HOUR_MS, known_ms // HOUR_MS)
                if found is not None:
                    yield found
    except duckdb.Error as error:
        raise UserError(f"forecast: {first_lines(error)}") from error


def _use(rows: Sequence[tuple[Any, ...]], first: int, end: int) -> Use | None:
    """A limit from its rows by hour; None while it is not known, or is 0."""
    limit = next((row[6] for row in reversed(rows) if row[6] is not None), None)
    if limit is None or limit <= 0:
        return None
    used = np.full(end - first, np.nan)
    for row in rows:
        used[row[4] - first] = row[5]
    kind, cluster, broker, entity, _, _, _, breached, *quantiles, highest = rows[-1]
    p50, p95 = (share if isfinite(share) else None for share in quantiles)
    return Use(kind, cluster, broker, entity, limit, used, bool(breached), p50, p95, highest)
