"""Metrics of what shadow policies would have done, and what the live ones did."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.show.metrics.entities import Bounds
from app.show.metrics.part import MetricsPart, Sample, Sums, rows
from app.tables.shadow_effects import MEASURES, SHADOW_EFFECTS
from state.engine.table import LIVE, SHADOW

_NAME = "weir_shadow_effects_total"
_COUNTS = "\nUNION ALL\n".join(
    f"SELECT cluster, {policy} AS policy, '{one.name}' AS measure, sum({one.amount}) AS amount"
    f" FROM {before}{one.table} WHERE {one.where} GROUP BY ALL"
    for one in MEASURES
    for policy, before in ((f"'{LIVE}'", ""), ("policy", SHADOW))
)


class Shadows(MetricsPart):
    """Sums by policy; nothing where no shadow has judged."""

    reads = SHADOW_EFFECTS.reads

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._sums = Sums(_NAME)
        self._shadowed = False

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        found = rows(fresh, _COUNTS)
        shadowed = [
            (cluster, LIVE, measure, 0) for cluster, policy, measure, _ in found if policy != LIVE
        ]
        self._sums.add([*found, *shadowed])
        self._shadowed = self._shadowed or bool(shadowed)

    def samples(self) -> Iterator[Sample]:
        if self._shadowed:
            yield from self._sums.samples()
