"""Keeps the metrics of a warehouse current: reads new rows periodically, independent of scrapes.

A scrape takes what the last refresh has left and reads nothing, so a slow store makes it old, never
slow.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.config.metrics import MetricsSettings
from app.errors import UserError, reason
from app.read.relations import ANY_ORDER, TableState, Warehouse, connect_to, state
from app.show.metrics import check_durations, health
from app.show.metrics.catalogue import METRICS, SECTIONS
from app.show.metrics.entities import Bounds
from app.show.metrics.hidden import shows_topics, without_topics
from app.show.metrics.owned import owned
from app.show.metrics.part import MetricsPart, Sample
from app.show.metrics.table_changes import StartAnew, TableFollower
from app.tables import manifest
from app.tables.definitions import TABLES
from app.terminal.printable import lines

if TYPE_CHECKING:
    from app.config.settings import Settings

OVERDUE = 4
"""After so many intervals without a refresh the exporter is not up."""


class Exporter(Collector):
    """The metrics of one warehouse."""

    def __init__(self, settings: Settings, say: Callable[[str], None]) -> None:
        self._settings = settings
        options = settings.metrics or MetricsSettings()
        self._refresh_s = options.refresh_s
        self._warehouse = Warehouse.of(settings.location, settings.owners)
        self._say = say
        bounds = Bounds(options.top, options.idle_s * 1000, options.share, shows_topics(settings))
        self._followed = [
            _Followed(part, bounds, self._warehouse)
            for section in SECTIONS
            for part in section.parts
        ]
        self._states = _States(self._warehouse)
        self._samples: list[Sample] = []
        self._errors: Counter[str] = Counter()
        self._said: set[str] = set()
        self._refreshes = 0
        self._took_s = 0.0
        self._ended_s = 0.0
        self._whole = False

    def refresh(self) -> list[str]:
        """Read the new rows; returns the errors."""
        began_s = time.monotonic()
        problems: dict[str, str] = {}
        try:
            self._warehouse.require()
            manifest.load(self._settings.location)
            samples = list(self._read(problems))
            if not shows_topics(self._settings):
                samples = list(without_topics(samples))
            self._samples = [*samples, *owned(self._settings.owners, samples)]
        except UserError as error:
            problems[""] = str(error)
        except Exception as error:  # noqa: BLE001 - the last samples remain
            problems[""] = f"{self._warehouse.uri}: cannot be read ({reason(error)})"
        self._errors.update(problems.keys())
        for text in set(problems.values()) - self._said:
            self._say(text)
        self._said = set(problems.values())
        self._whole = not problems
        self._took_s = time.monotonic() - began_s
        self._ended_s = time.time()
        self._refreshes += 1
        return sorted(set(problems.values()))

    def _read(self, problems: dict[str, str]) -> Iterator[Sample]:
        for followed in self._followed:
            followed.refresh(problems)
            yield from followed.samples()
        yield from self._states.samples(problems)
        yield from health.samples(self._settings.location)
        yield from check_durations.samples(self._settings.location)

    def keep_current(self, stop: threading.Event) -> None:
        """Refresh at every interval until `stop`."""
        while not stop.is_set():
            began_s = time.monotonic()
            self.refresh()
            stop.wait(max(0.0, self._refresh_s - (time.monotonic() - began_s)))

    def collect(self) -> Iterator[Metric]:
        """The metrics as the last refresh has left them; called by each scrape."""
        yield from families([*self._samples, *self._own()])

    def obstacle(self) -> str:
        """Why the samples are not those of the warehouse as it is; empty where they are."""
        if not self._refreshes:
            return f"{self._warehouse.uri}: not read yet"
        if self._said:
            return min(self._said)
        return f"{self._warehouse.uri}: the last reading is overdue" if self._overdue() else ""

    def _overdue(self) -> bool:
        return time.time() - self._ended_s > OVERDUE * self._refresh_s + self._took_s

    def _own(self) -> Iterator[Sample]:
        if self._settings.alerts.runbook_base:
            yield "weir_alerts_info", (self._settings.alerts.runbook_base.rstrip("/"),), 1
        yield "weir_exporter_up", (), float(self._whole and not self._overdue())
        for table, count in list(self._errors.items()):
            yield "weir_exporter_errors_total", (table,), count
        if self._refreshes:
            yield "weir_exporter_refresh_duration_seconds", (), self._took_s
            yield "weir_exporter_refresh_timestamp_seconds", (), self._ended_s


class _Followed:
    """A part, its tables and how far they have been read."""

    def __init__(self, part: type[MetricsPart], bounds: Bounds, warehouse: Warehouse) -> None:
        self._part = part(bounds)
        self._warehouse = warehouse
        self._follower = TableFollower(warehouse)
        self._samples: list[Sample] = []
        self._began = False

    def refresh(self, problems: dict[str, str]) -> None:
        """Read the new rows; an error is kept by its table, and the last samples remain."""
        found: dict[str, str] = {}
        try:
            try:
                self._take(found)
            except StartAnew:
                self._start_anew()
                self._take(found)
        except Exception as error:  # noqa: BLE001 - the other parts are read
            self._start_anew()
            text = f"{', '.join(self._part.reads)}: cannot be read ({reason(error)})"
            found.update(dict.fromkeys(self._part.reads, text))
        problems.update(found)

    def samples(self) -> list[Sample]:
        """The samples of the last read of the tables."""
        return self._samples

    def _start_anew(self) -> None:
        self._part = type(self._part)(self._part.bounds)
        self._follower.forget()
        self._began = False

    def _take(self, problems: dict[str, str]) -> None:
        news = {}
        for name in self._part.reads:
            try:
                news[name] = self._follower.news(name)
            except UserError as error:
                problems[name] = str(error)
        there = {name: one for name, one in news.items() if one is not None}
        if any(one.files for one in there.values()) or not self._began:
            opened = {
                name: there[name].followed.delta if name in there else None
                for name in self._part.reads
            }
            files = {name: one.files for name, one in there.items()}
            with connect_to(self._warehouse, opened, ANY_ORDER, files=files) as fresh:
                self._part.take(fresh)
            self._samples = [*self._part.samples(), *self._entities()]
            self._began = True
        self._follower.done(there.values())

    def _entities(self) -> Iterator[Sample]:
        for family, entities in self._part.families().items():
            yield "weir_exporter_entities", (family, "own"), len(entities)
            yield "weir_exporter_entities", (family, "none"), entities.hidden


class _States:
    """How far each table is, from its log."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._follower = TableFollower(warehouse)
        self._states: dict[str, TableState] = {}

    def samples(self, problems: dict[str, str]) -> Iterator[Sample]:
        """The samples of every table that there is."""
        for name in TABLES:
            try:
                self._look(name)
            except UserError as error:
                problems.setdefault(name, str(error))
        for name, found in self._states.items():
            for end, value, unit in (
                ("rows", found.rows, 1),
                ("bytes", found.bytes, 1),
                ("files", found.files, 1),
                ("committed_timestamp_seconds", found.committed_ms, 1000),
                ("newest_event_timestamp_seconds", found.newest_ms, 1000),
            ):
                if value is not None:
                    yield f"weir_table_{end}", (name,), value / unit

    def _look(self, name: str) -> None:
        try:
            delta = self._follower.look(name)
        except StartAnew:
            self._states.pop(name, None)
            delta = self._follower.look(name)
        if delta is None:
            self._states.pop(name, None)
        elif name not in self._states or self._states[name].version != delta.version():
            self._states[name] = state(self._warehouse, name, delta)


def families(samples: Iterable[Sample]) -> Iterator[Metric]:
    """Samples as the library takes them, in the order of the catalogue."""
    by_name: dict[str, list[Sample]] = {}
    for sample in samples:
        by_name.setdefault(sample[0], []).append(sample)
    for name, definition in METRICS.items():
        if name not in by_name:
            continue
        kind = "gauge" if definition.kind == "counter as gauge" else definition.kind
        metric = Metric(
            name.removesuffix("_total") if kind == "counter" else name, definition.meaning, kind
        )
        for _, values, value in by_name.pop(name):
            pairs = zip(definition.labels, values, strict=True)
            named, own = {k: lines(v) for k, v in pairs if v}, name
            if kind == "histogram":  # `le` is the end of a bucket, count or sum
                own += f"_{named.pop('le')}" if named["le"] in ("count", "sum") else "_bucket"
            if value is not None:
                metric.add_sample(own, named, float(value))
        if metric.samples:
            yield metric
    assert not by_name, f"not in the catalogue: {', '.join(by_name)}"
