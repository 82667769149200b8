"""Whether the tables can be trusted: audits, records that were not applied, and freshness."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

from app.show.audit.audit_pages import INDEX
from app.show.reconcile.recorded_numbers import entity_text
from app.show.report.charts import plain_bars
from app.show.report.model import Chart, Grid, GridColumn, Link, Part, ReportSection, Tile
from app.show.report.report_reader import ReportReader
from app.show.report.text import time_text
from app.terminal.counts import counted

TOP = 20
QUARANTINED = """
SELECT count(DISTINCT (source_partition, source_offset)) AS records FROM quarantine
"""
# An audit leaves out tables that have not changed since their last one.
_AUDIT = """
WITH newest AS (
  SELECT q.table AS name, arg_max(q.run_id, q.checked_ms) AS run_id FROM quality_results AS q
  GROUP BY q.table
)
SELECT q.table AS name, count(*) AS checks, count(*) FILTER (WHERE NOT q.success) AS failed,
  max(q.checked_ms) AS checked_ms
FROM quality_results AS q JOIN newest AS n ON n.name = q.table AND n.run_id = q.run_id
GROUP BY q.table ORDER BY failed DESC, name
"""
_FAILED = """
WITH newest AS (
  SELECT q.table AS name, arg_max(q.run_id, q.checked_ms) AS run_id FROM quality_results AS q
  GROUP BY q.table
)
SELECT q.table AS name, q.expectation, q.column AS about, q.unexpected_count, q.observed
FROM quality_results AS q JOIN newest AS n ON n.name = q.table AND n.run_id = q.run_id
WHERE NOT q.success ORDER BY name, q.expectation, about LIMIT $most
"""


_GAPS = """
SELECT cluster, broker, source_feed, gap_from_wall_ms AS since_ms, ts_wall_ms AS ended_ms,
  any_value(dropped) AS dropped, max(blind_until_ms) AS blind_until_ms,
  array_to_string(list_sort(list(DISTINCT job)), ', ') AS blind
FROM coverage_gaps WHERE ts_wall_ms IS NOT NULL
GROUP BY cluster, broker, source_feed, seq, ts_wall_ms, gap_from_wall_ms
ORDER BY ended_ms DESC, cluster, broker
"""


_COMPARED = """
SELECT count(*) FILTER (WHERE reason IS NULL AND abs(difference::DOUBLE) <= bound) AS agree,
  count(*) FILTER (WHERE reason IS NULL AND abs(difference::DOUBLE) > bound) AS differ,
  count(*) FILTER (WHERE reason IS NOT NULL) AS without
FROM reconciliation
"""


def data_quality(reader: ReportReader, links_from: Path) -> ReportSection:
    """The newest audit and what went to quarantine; Data Docs are linked from the folder
    `links_from` if they are there."""
    key, title = "quality", "Data quality"
    texts: list[str] = []
    parts: list[Part] = []
    audited = reader.rows(_AUDIT)
    checks, failed = (sum(row[name] for row in audited) for name in ("checks", "failed"))
    if audited:
        last = time_text(max(row["checked_ms"] for row in audited))
        texts.append(
            f"The last audit of every table, until {last}, made "
            f"{counted(checks, 'check')}: " + (f"{failed:,} failed." if failed else "all held.")
        )
        if failed:
            parts.append(
                Grid(
                    "Checks that failed",
                    [
                        GridColumn("name", "table"),
                        GridColumn("expectation", "expectation"),
                        GridColumn("about", "columns"),
                        GridColumn("unexpected_count", "rows", "number"),
                        GridColumn("observed", "seen"),
                    ],
                    reader.rows(_FAILED, most=TOP),
                    '"FROM quality_results WHERE NOT success"',
                )
            )
        parts.append(
            Grid(
                "Tables that were audited",
                [
                    GridColumn("name", "table"),
                    GridColumn("checks", "checks", "number"),
                    GridColumn("failed", "failed", "number"),
                ],
                audited,
                folded=True,
            )
        )
        parts += _data_docs(reader, links_from)
    else:
        texts.append(f"{reader.nothing_in('quality_results')} The command quality audits them.")
    parts += _gaps(reader, texts)
    parts += _compared(reader, texts)
    refused = reader.ask("quarantined", TOP)
    total = reader.row(QUARANTINED)["records"]
    if refused:
        texts.append(
            f"{counted(total, 'record')} {'was' if total == 1 else 'were'} not applied "
            "and are in quarantine; a record may break several rules."
        )
        bars = [
            {"name": row["reason_code"], "value": row["records"], "text": f"{row['records']:,}"}
            for row in refused
        ]
        parts += [
            Chart(
                "Quarantine, by the rule that was broken",
                "Records.",
                bars,
                lambda rows, frame: plain_bars(rows, frame, "records"),
            ),
            Grid(
                "Quarantine",
                [
                    GridColumn("reason_code", "rule"),
                    GridColumn("records", "records", "number"),
                    GridColumn("commonest_detail", "most often"),
                    GridColumn("newest", "newest", "time"),
                ],
                refused,
                "quarantined",
                folded=True,
            ),
        ]
    else:
        texts.append(
            "Nothing is in quarantine."
            if reader.written("quarantine")
            else reader.nothing_in("quarantine")
        )
    note = f"{counted(failed, 'check')} of quality failed" if failed else "records not applied"
    tile = Tile("in quarantine", f"{total:,}", note, bool(failed))
    return ReportSection(key, title, texts, parts, tile)


def _data_docs(reader: ReportReader, links_from: Path) -> list[Link]:
    folder = reader.warehouse.folder
    if folder is None or not (folder / INDEX).is_file():
        return []
    way = os.path.relpath((folder / INDEX).resolve(), links_from.resolve())
    return [Link("Data Docs: every check of every table", quote(Path(way).as_posix()))]


def _gaps(reader: ReportReader, texts: list[str]) -> list[Part]:
    """What feeds have dropped, if they have."""
    found = reader.rows(_GAPS)
    if not found:
        return []
    known = sum(row["dropped"] or 0 for row in found)
    texts.append(
        f"Feeds have announced {counted(len(found), 'gap')} and dropped "
        f"{counted(known, 'event')} in them, as far as they know."
    )
    return [
        Grid(
            "Gaps in the feeds",
            [
                GridColumn("cluster", "cluster"),
                GridColumn("broker", "broker"),
                GridColumn("source_feed", "feed"),
                GridColumn("since_ms", "since", "time"),
                GridColumn("ended_ms", "until", "time"),
                GridColumn("dropped", "dropped", "number"),
                GridColumn("blind", "blind jobs"),
                GridColumn("blind_until_ms", "blind until", "time"),
            ],
            found[:TOP],
            "coverage",
            folded=True,
        )
    ]


def _about(row: dict[str, Any]) -> str:
    """What a number is of: a topic, a partition of Kafka, a group there; an entity of quotas."""
    if row["user"] is not None:
        return entity_text(row)
    partition = "" if row["partition"] is None else f" {row['partition']}"
    group = "" if row["group"] is None else f", group {row['group']}"
    return f"{row['topic'] or 'all topics'}{partition}{group}"


def _compared(reader: ReportReader, texts: list[str]) -> list[Part]:
    """How the tables compare with the brokers' own numbers, if they were compared."""
    found = reader.row(_COMPARED)
    if not any(found.values()):
        return []
    differ = found["differ"]
    texts.append(
        f"Of {counted(found['agree'] + differ, 'number')} that brokers count as well, "
        f"{differ:,} {'differs' if differ == 1 else 'differ'} by more than timing explains; "
        f"{found['without']:,} could not be compared."
    )
    rows = [{**row, "topic": _about(row)} for row in reader.ask("reconciliation", TOP)]
    return [
        Grid(
            "Numbers of the brokers, newest comparison",
            [
                GridColumn("broker", "broker"),
                GridColumn("topic", "of"),
                GridColumn("measure", "number"),
                GridColumn("broker_value", "broker has", "number"),
                GridColumn("weir_value", "Weir has", "number"),
                GridColumn("difference", "difference", "number"),
                GridColumn("bound", "explained", "number"),
                GridColumn("reason", "not compared for"),
                GridColumn("until", "until", "time"),
            ],
            rows,
            "reconciliation",
            folded=True,
        )
    ]
