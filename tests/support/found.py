"""What is found in a warehouse of some rows."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from app.read.relations import Warehouse
from app.show.report.model import Finding
from app.show.report.report_reader import ReportReader, ReportSpan
from app.show.report.summary import all_findings
from app.tables.definitions import TABLES
from tests.support.throttle_rows import write


def found_in(**tables: list[dict[str, Any]]) -> list[Finding]:
    """The findings of rows by table, in their order; rows are numbered, and need no time."""
    with TemporaryDirectory() as folder:
        Path(folder, "_weir").mkdir()
        for name, rows in tables.items():
            numbered = [{"ts_wall_ms": 0, **row, "row_no": i} for i, row in enumerate(rows)]
            write(folder, name, [{c: row.get(c) for c in TABLES[name].names} for row in numbered])
        return all_findings(ReportReader(Warehouse(folder), ReportSpan()))
