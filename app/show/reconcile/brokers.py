"""Brokers of Pulsar: their counters, read from their metrics, against the tables."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from app.config.reconcile import ReconcileSettings
from app.jobs import parts
from app.read.relations import Warehouse
from app.show.reconcile.counted import weir
from app.show.reconcile.scrape import NO_TOPICS, Scrape, scrape
from app.show.reconcile.side import WeirSide
from app.show.reconcile.spans import ReadingSpan, Row, outside, rows_of, shown
from app.sources.polling import noted
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.settings import Settings

THREADS = 8


class PulsarBrokers:
    """The brokers of the section `reconcile`."""

    reading = Scrape

    def __init__(self, settings: Settings, chosen: ReconcileSettings) -> None:
        self._settings = settings
        self._chosen = chosen
        self.names = chosen.brokers.keys()

    def read(self, stopping: threading.Event) -> Iterator[tuple[str, Scrape | str]]:
        """The reading of every broker, or why there is none; all at the same time."""

        def one(broker: str) -> Scrape | str:
            problems: list[str] = []
            with noted(problems):
                return scrape(self._chosen, broker, stopping)
            return problems[0]

        with ThreadPoolExecutor(THREADS, "reconcile") as pool:
            yield from zip(self.names, pool.map(one, self.names), strict=True)

    def odd(self, name: str, found: Scrape) -> list[str]:
        """What keeps topics from being compared."""
        problems = [f"{name}: {text}" for text in found.problems]
        if found.topics or not found.whole:
            return problems
        return [*problems, f"{name}: {NO_TOPICS}"]

    def compared(self, kept: list[Scrape], now_ms: int) -> tuple[list[Row] | None, list[Scrape]]:
        """The rows between the first two readings."""
        span = ReadingSpan(kept[0], kept[1])
        if now_ms < span.end_ms + self._chosen.settle_ms:
            return None, kept
        rows = self._rows(span)
        waits = any(row["reason"] == "NOT_REACHED" for row in rows)
        if waits and now_ms < span.end_ms + self._chosen.wait_ms:
            return None, kept
        return rows, kept[1:]

    def _rows(self, span: ReadingSpan) -> list[Row]:
        settings, chosen = self._settings, self._chosen
        tables = WeirSide(settings, Warehouse.of(settings.location), span)
        side = weir(tables)
        takes = chosen.takes
        if chosen.sampled_by == "topic":
            known = {topic for _, topic in side.counted}

            def takes(topic: str) -> bool:
                return topic in known and chosen.takes(topic)

        jobs = {job for job in settings.jobs if not tables.is_polled or DECLARED[job].polled}

        def rows_with(more: dict[str, int]) -> list[Row]:
            rows = rows_of(span, shown(span, takes), side, more)
            return [
                row
                for row in rows
                if row["compared_job"] in jobs and (row["topic"] is None or takes(row["topic"]))
            ]

        bounds = outside(span, takes)
        rows = rows_with(bounds)
        asked = [part for part in parts("reconcile").values() if hasattr(part, "further")]
        more = {name: n for part in asked for name, n in part.further(tables, rows).items()}
        larger = {name: bound + more.get(name, 0) for name, bound in bounds.items()}
        return rows_with(larger) if more else rows
