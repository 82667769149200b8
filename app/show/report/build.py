"""From a warehouse to the page of a report."""

from __future__ import annotations

import shlex
import time
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from app.config.described import described
from app.jobs import every
from app.read.question import LEAST, MOST
from app.read.questions import QUESTIONS
from app.read.relations import Warehouse
from app.show.report.curves import Curves
from app.show.report.model import Grid, JobSection, Page, ReportSection
from app.show.report.report_reader import ReportReader, ReportSpan, reached
from app.show.report.sections.alerting import alerting
from app.show.report.sections.cluster_rows import cluster_rows
from app.show.report.sections.configuration import configuration
from app.show.report.sections.data_quality import data_quality
from app.show.report.sections.quotas import quotas
from app.show.report.sections.runbooks import runbooks
from app.show.report.summary import (
    actions_of,
    all_findings,
    verdict,
    what_happened,
    what_to_do,
)
from app.show.report.text import time_text, utc
from app.tables import last_configuration
from app.tables.manifest import load as load_manifest
from app.terminal.amounts import seconds_text

if TYPE_CHECKING:
    from app.config.settings import Settings


def build(
    settings: Settings,
    span: ReportSpan,
    as_of_ms: int | None = None,
    configured: bool = False,
    links_from: Path = Path(),
    cluster: str | None = None,
    recent_ms: int | None = None,
) -> Page:
    """The page about the warehouse of `settings`; `configured`: these are the settings of its
    run, not only its location. Links start in the folder `links_from`; `cluster`: of it alone;
    `recent_ms`: the last so many ms of its time, and the alerts as they are now."""
    warehouse = Warehouse.of(settings.location, settings.owners).at(as_of_ms)
    warehouse = warehouse.of_cluster(cluster)
    warehouse.require()
    manifest = load_manifest(settings.location)
    kept = described(settings) if configured else last_configuration.load(settings.location)
    reader = now = ReportReader(warehouse, span)
    if recent_ms is not None and now.span is not None:
        span = ReportSpan(now.span.end_ms - recent_ms)
        reader = ReportReader(warehouse, span)
    findings = all_findings(reader, settings.alerts)
    first = what_happened(findings)
    actions = what_to_do(actions_of(findings, reader))
    declared: list[JobSection] = list(every("report", "SECTIONS"))
    of_jobs = [
        (section.place, section.make(reader))
        for section in declared
        if any(map(reader.written, section.tables))
    ]
    alerts = alerting(now, None if reader is now else Curves(reader, settings.alerts))
    limits, clusters = quotas(reader), cluster_rows(reader)
    quality, settled = data_quality(reader, links_from), configuration(reader, kept, manifest)
    placed = [(0, first), (10, alerts), (40, limits), *of_jobs, (100, quality), (110, settled)]
    if clusters is not None:
        placed.append((5, clusters))
    sections = _in_order(placed)
    if (folded := runbooks([actions, *(part for s in sections for part in s.parts)])) is not None:
        sections.append(folded)
    tiled = [alerts, *([clusters] if clusters else []), limits, *_in_order(of_jobs), quality]
    covered = reader.span
    made_ms = time.time_ns() // 1_000_000
    facts = {
        "warehouse": warehouse.uri,
        "made_ms": made_ms,
        "as_of_ms": as_of_ms,
        "from_ms": covered.start_ms if covered else None,
        "to_ms": covered.end_ms if covered else None,
        "config_hash": kept.config_hash if kept else None,
    }
    title = "Weir report" if covered is None else f"Weir report, {time_text(covered.start_ms)}"
    return Page(
        title,
        _covers(reader, as_of_ms, made_ms),
        verdict(reader, [*tiled[:-1]]),
        [section.tile for section in tiled if section.tile is not None],
        [_of_span(section, span) for section in sections],
        actions,
        _asked(warehouse),
        facts,
    )


def _in_order(placed: list[tuple[int, ReportSection]]) -> list[ReportSection]:
    return [section for _, section in sorted(placed, key=itemgetter(0))]


def _asked(warehouse: Warehouse) -> str:
    """The options of `query` that name the tables of this page."""
    text = f" --warehouse {shlex.quote(warehouse.uri)}"
    if warehouse.cluster is not None:
        text += f" --cluster {shlex.quote(warehouse.cluster)}"
    return text if warehouse.as_of_ms is None else f"{text} --as-of {warehouse.as_of_ms}"


def _of_span(section: ReportSection, span: ReportSpan) -> ReportSection:
    """The section, whose questions are asked of the time that it shows."""
    parts = [
        replace(part, more=_narrowed(part.more, span)) if isinstance(part, Grid) else part
        for part in section.parts
    ]
    return replace(section, parts=parts)


def _narrowed(more: str, span: ReportSpan) -> str:
    question = QUESTIONS.get(more.partition(" ")[0])
    if question is None:
        return more
    allowed = {param.name for param in question.params}
    bounds = (("since", span.start_ms, LEAST), ("until", span.end_ms, MOST))
    return more + "".join(
        f" --param {name}={at_ms}"
        for name, at_ms, open_ in bounds
        if name in allowed and at_ms != open_
    )


def day(page: Page) -> str:
    """The day that all event time of the page falls on (ISO 8601); empty if it is none."""
    start, end = page.facts["from_ms"], page.facts["to_ms"]
    if start is None:
        return ""
    first, last = utc(start).date(), utc(max(end - 1, start)).date()
    return first.isoformat() if first == last else ""


def _covers(reader: ReportReader, as_of_ms: int | None, made_ms: int) -> str:
    span = reader.span
    result = []
    if span is not None:
        result.append(
            f"Event time {time_text(span.start_ms)} to {time_text(span.end_ms)} "
            f"({seconds_text((span.end_ms - span.start_ms) / 1000)})"
        )
    seen = " UNION ALL ".join(f"SELECT cluster FROM {table}" for table in reached())
    clusters = [
        row["cluster"]
        for row in reader.rows(
            f"SELECT DISTINCT cluster FROM ({seen}) WHERE cluster IS NOT NULL ORDER BY cluster"
        )
    ]
    if clusters:
        more = f" and {len(clusters) - 4} more" if len(clusters) > 4 else ""
        result.append(f"cluster{'' if len(clusters) == 1 else 's'} {', '.join(clusters[:4])}{more}")
    if as_of_ms is not None:
        result.append(f"tables as of {time_text(as_of_ms)}")
    return "; ".join([*result, f"made {time_text(made_ms)}"]) + "."
