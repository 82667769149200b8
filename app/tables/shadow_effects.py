"""The view that compares the tables of shadow policies with the live tables."""

from __future__ import annotations

from app.jobs import parts
from app.tables.view import Shadowed, ShadowMeasure, View
from state.engine.table import SHADOW

_JOBS: tuple[Shadowed, ...] = tuple(part.SHADOWED for part in parts("shadows").values())
MEASURES: tuple[ShadowMeasure, ...] = tuple(measure for job in _JOBS for measure in job.measures)

OF_TOPICS = tuple(
    measure.name for job in _JOBS if job.entity == Shadowed.entity for measure in job.measures
)
"""Measures whose names are topics; those of the others are users and clients."""


def _span(source: int, table: str) -> str:
    return (
        f"  SELECT s.policy, s.cluster, {source} AS source, s.first_ms,"
        " least(s.last_ms, t.last_ms) AS last_ms FROM (\n"
        "    SELECT policy, cluster, min(ts_wall_ms) AS first_ms, max(ts_wall_ms) AS last_ms"
        f" FROM {SHADOW}{table} GROUP BY policy, cluster\n"
        "  ) AS s JOIN (\n"
        f"    SELECT cluster, max(ts_wall_ms) AS last_ms FROM {table} GROUP BY cluster\n"
        "  ) AS t ON t.cluster = s.cluster"
    )


def _rows(source: int, entity: str, measure: ShadowMeasure, live: bool) -> str:
    zero, amount = "CAST(0 AS DOUBLE)", measure.amount
    both = f"{amount} AS live, {zero} AS shadow" if live else f"{zero} AS live, {amount} AS shadow"
    same_policy = "" if live else " AND s.policy = t.policy"
    return (
        f"SELECT s.policy, t.cluster, t.broker, {entity} AS name, t.ts_wall_ms AS at_ms,"
        f" '{measure.name}' AS measure, {both}\n"
        f"FROM {'' if live else SHADOW}{measure.table} AS t JOIN spans AS s"
        f" ON s.source = {source} AND s.cluster = t.cluster{same_policy}\n"
        "  AND t.ts_wall_ms >= s.first_ms AND t.ts_wall_ms <= s.last_ms\n"
        f"WHERE {measure.where}"
    )


SHADOW_EFFECTS = View(
    "shadow_effects",
    "What live and shadow policies did to topics and users: a row per shadow, decision and"
    " measure, with the amount under `live` or under `shadow`, of the time that both have"
    " judged.",
    "\n".join(
        [
            "WITH spans AS (",
            "\n  UNION ALL\n".join(_span(i, job.table) for i, job in enumerate(_JOBS)),
            ")",
            "\nUNION ALL\n".join(
                _rows(i, job.entity, measure, live)
                for i, job in enumerate(_JOBS)
                for measure in job.measures
                for live in (True, False)
            ),
        ]
    ),
    reads=tuple(
        dict.fromkeys(
            name
            for table in (*(job.table for job in _JOBS), *(m.table for m in MEASURES))
            for name in (table, SHADOW + table)
        )
    ),
    place=1,
)
