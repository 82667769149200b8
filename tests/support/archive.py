"""What tests share of the archive's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.archive_names import WRITES
from app.engine import archive_task
from app.engine.archive_task import ArchiveTarget, file_writer
from app.engine.messages import MessageKind


def target(folder: Path, blind_ms: Mapping[str, int]) -> ArchiveTarget:
    """A target below a folder."""
    return ArchiveTarget({name: str(folder / name) for name in WRITES}, {}, blind_ms)


def files_of(packed: Iterable[pa.RecordBatch]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The table and the entry of each file that rows of PACKED list."""
    rows = [row for part in packed for row in part.to_pylist()]
    bodies = [row["blob"] for row in rows if row["kind"] == MessageKind.ARCHIVED]
    for name, files in archive_task.files_of(bodies).items():
        for file in files.to_pylist():
            yield name, file


def tables_of(
    packed: Iterable[pa.RecordBatch], folder: Path, columns: Sequence[str] | None = None
) -> dict[str, pa.Table]:
    """The rows of the files that rows of PACKED list, by table; with all columns, or those of these
    that a table has."""
    found: dict[str, list[pa.Table]] = {name: [] for name in WRITES}
    for name, file in files_of(packed):
        found[name].append(pq.ParquetFile(folder / name / file["path"]).read(columns))
    return {
        name: pa.concat_tables(parts) if parts else pa.table({}) for name, parts in found.items()
    }


def archived(
    batches: Iterable[pa.RecordBatch],
    folder: Path,
    blind_ms: Mapping[str, int],
    columns: Sequence[str] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """The rows of tables of a task of the archive alone; see `tables_of`."""
    tables = tables_of(file_writer(target(folder, blind_ms))(iter(batches)), folder, columns)
    return {name: table.to_pylist() for name, table in tables.items()}
