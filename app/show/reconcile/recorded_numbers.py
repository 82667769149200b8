"""Numbers of brokers that came with the records of a job: its tables have both sides.

Nothing is read from a broker. A comparison covers what the tables have since the round before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any

from app.jobs import parts
from app.read.relations import Warehouse, connect_once
from app.show.reconcile.side import CONFIG
from app.show.reconcile.spans import Row
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.settings import Settings

EVERY_BROKER = "*"
"""Broker of a number that all brokers of a cluster have alike."""
Until = dict[str, int]
"""By place, such as a broker of a cluster: up to when (ms since the epoch) it was compared."""


@dataclass(frozen=True)
class RecordedSide:
    """The tables of a warehouse, and up to when they were compared."""

    settings: Settings
    warehouse: Warehouse
    until: Mapping[str, int]
    now_ms: int

    def ask(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of a query."""
        with connect_once(self.warehouse, sql, params, config=CONFIG) as connection:
            rows: list[tuple[Any, ...]] = connection.execute(sql, dict(params)).fetchall()
        return rows


Comparison = Callable[[RecordedSide], tuple[list[Row], Until]]
"""The rows of what was not compared yet, and up to when it is now."""


def compared_parts(settings: Settings) -> dict[str, ModuleType]:
    """By job the module that compares, of the jobs that run or have written their tables."""
    warehouse = Warehouse.of(settings.location)

    def has_rows(job: str) -> bool:
        return any(warehouse.open(table.name) is not None for table in DECLARED[job].tables)

    return {
        job: part
        for job, part in parts("recorded").items()
        if job in settings.jobs or has_rows(job)
    }


def compare(settings: Settings, until: Until, now_ms: int) -> Iterator[Row]:
    """The rows of all jobs; `until` is moved on."""
    for job, part in compared_parts(settings).items():
        side = RecordedSide(settings, Warehouse.of(settings.location), dict(until), now_ms)
        comparisons: Iterable[Comparison] = part.COMPARISONS
        for each in comparisons:
            rows, reached = each(side)
            until |= reached
            for row in rows:
                yield row_of(compared_job=job, **row)


def row_of(
    *,
    broker_value: int,
    weir_value: int,
    bound: int = 0,
    reason: str | None = None,
    **about: Any,
) -> Row:
    """A row of the table; `about`: cluster, broker, user, client, measure and window."""
    return {
        "topic": None,
        "partition": None,
        "group": None,
        **about,
        "broker_value": broker_value,
        "weir_value": weir_value,
        "difference": broker_value - weir_value,
        "bound": bound,
        "reason": reason,
    }


def entity_text(row: Row) -> str:
    """Who shares a quota, as Kafka spells it."""
    names = (("user", row["user"]), ("client-id", row["client"]))
    return ", ".join(f"{kind}={name}" for kind, name in names if name) or "-"


def remedies(rows: Iterable[Row]) -> dict[str, list[str]]:
    """What to do about rows that differ, and the measures that it is about."""
    found: dict[str, list[str]] = {}
    told = parts("recorded")
    for row in rows:
        if row["compared_job"] in told:
            text = told[row["compared_job"]].remedy(row["measure"])
            measures = found.setdefault(text, [])
            if row["measure"] not in measures:
                measures.append(row["measure"])
    return found
