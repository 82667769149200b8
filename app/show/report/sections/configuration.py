"""The configuration of the rows, and the tables of the warehouse."""

from __future__ import annotations

import yaml

from app.config.described import Described
from app.show.report.model import Fold, Grid, GridColumn, Part, ReportSection
from app.show.report.report_reader import ReportReader
from app.show.report.text import time_text
from app.tables.definitions import TABLES
from app.tables.manifest import Manifest

_HASHES = " UNION ALL ".join(
    f"SELECT job, params_hash, switches, count(*) AS rows, max(ts_wall_ms) AS newest FROM {name}"
    " GROUP BY ALL"
    for name, table in TABLES.items()
    if table.job is not None
    and table.live is None
    and {"job", "switches", "ts_wall_ms"} <= set(table.names)
)
DECIDED = f"""
SELECT job, params_hash, CAST(sum(rows) AS BIGINT) AS rows, max(newest) AS newest,
  any_value(switches) AS switches
FROM ({_HASHES}) GROUP BY job, params_hash ORDER BY job, newest DESC
"""


def configuration(
    reader: ReportReader, kept: Described | None, manifest: Manifest | None
) -> ReportSection:
    """The section on the configuration with which the rows were written."""
    decided = reader.rows(DECIDED)
    texts: list[str] = []
    parts: list[Part] = []
    if kept is None:
        texts.append("The configuration of these tables is not kept here; --config names it.")
    else:
        texts.append(
            f"Configuration {kept.config_hash}"
            + (f", in force since {time_text(kept.started_ms)}." if kept.started_ms else ".")
        )
        strange = sorted(
            {
                row["job"]
                for row in decided
                if row["params_hash"] != kept.params_hash.get(row["job"])
            }
        )
        if strange:
            texts.append(
                f"Some rows of {', '.join(strange)} were decided under other parameters "
                "or policies: compare the hashes below."
            )
    if decided:
        for row in decided:
            row["switches"] = ", ".join(
                f"{name}={value}" for name, value in sorted(row["switches"].items()) if value
            )
        parts.append(
            Grid(
                "Parameters that the rows were decided under",
                [
                    GridColumn("job", "job"),
                    GridColumn("params_hash", "hash of parameters and policies"),
                    GridColumn("rows", "rows", "number"),
                    GridColumn("newest", "newest", "time"),
                    GridColumn("switches", "version parameters"),
                ],
                decided,
                folded=True,
            )
        )
    else:
        texts.append("No job has written a row yet.")
    if kept is not None:
        text = yaml.safe_dump(kept.config, sort_keys=False, allow_unicode=True)
        parts.append(Fold("The whole configuration", text))
    parts.append(_tables(reader))
    texts.append(_warehouse(reader, manifest))
    unwritten = [s.name for s in reader.states.values() if s.version is None]
    if unwritten:
        texts.append(f"Never written: {', '.join(unwritten)}.")
    return ReportSection("configuration", "Configuration and warehouse", texts, parts)


def _warehouse(reader: ReportReader, manifest: Manifest | None) -> str:
    where = f"Warehouse {reader.warehouse.uri}"
    if manifest is None:
        return f"{where}: it has no manifest, so no run has written to it."
    return (
        f"{where}: layout {manifest.layout_version}, {manifest.partitions} partitions, "
        f"{manifest.shards} shards, created {time_text(manifest.created_ms)}."
    )


def _tables(reader: ReportReader) -> Grid:
    rows = [
        {
            "name": s.name,
            "version": s.version,
            "rows": s.rows,
            "bytes": s.bytes,
            "committed": s.committed_ms,
            "newest": s.newest_ms,
        }
        for s in reader.states.values()
        if s.version is not None
    ]
    return Grid(
        "Tables of this report",
        [
            GridColumn("name", "table"),
            GridColumn("version", "version", "number"),
            GridColumn("rows", "rows", "number"),
            GridColumn("bytes", "size", "bytes"),
            GridColumn("committed", "committed", "time"),
            GridColumn("newest", "newest row", "time"),
        ],
        rows,
        folded=True,
    )
