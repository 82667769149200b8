"""The data files of a table, from its log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa

if TYPE_CHECKING:
    from deltalake import DeltaTable

Partition = tuple[tuple[str, str | None], ...]


@dataclass(frozen=True)
class DataFile:
    """One file of a table."""

    path: str
    """Path in the log: relative to the table, with escapes."""
    bytes: int
    rows: int | None
    written_ms: int
    """Time at which its newest rows were written (ms since the epoch)."""
    partition: Partition = ()
    least: int | None = None
    most: int | None = None
    """Least and greatest time of its rows (ms); None if the log does not have them."""
    untimed: int | None = None
    """Number of rows without a time; None if the log does not have it."""

    @property
    def plain_path(self) -> str:
        """Path of the file without escapes."""
        return unquote(self.path)


def data_files(delta: DeltaTable, clock: str | None = None) -> list[DataFile]:
    """The files of a table's version, with the least and greatest values of the column `clock`."""
    adds = pa.table(delta.get_add_actions(flatten=True))

    def column(name: str) -> list[Any]:
        there = name in adds.column_names
        return adds.column(name).to_pylist() if there else [None] * adds.num_rows

    partitions = list(delta.metadata().partition_columns)
    values = [column(f"partition.{name}") for name in partitions]
    found = zip(
        column("path"),
        column("size_bytes"),
        column("num_records"),
        column("modification_time"),
        column(f"min.{clock}"),
        column(f"max.{clock}"),
        column(f"null_count.{clock}"),
        strict=True,
    )
    return [
        DataFile(
            path,
            size,
            rows,
            written,
            tuple((name, _text(value[i])) for name, value in zip(partitions, values, strict=True)),
            least,
            most,
            untimed,
        )
        for i, (path, size, rows, written, least, most, untimed) in enumerate(found)
    ]


def live_paths(delta: DeltaTable) -> set[str]:
    """The paths of the files of a table's version, as its log has them."""
    return set(pa.table(delta.get_add_actions()).column("path").to_pylist())


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
