"""The data files of a table, as its log has them."""

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
    """As the log has it: below the table, with escapes."""
    bytes: int
    rows: int | None
    written_ms: int
    """When its newest rows were written."""
    partition: Partition = ()
    least: int | None = None
    most: int | None = None
    """Least and greatest time of its rows (ms); None where the log does not have them."""
    untimed: int | None = None
    """Rows without a time; None where the log does not count them."""

    @property
    def plain_path(self) -> str:
        """The path of the file itself."""
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
        column("path"), column("size_bytes"), column("num_records"), column("modification_time"),
        column(f"min.{clock}"), column(f"max.{clock}"), column(f"null_count.{clock}"), strict=True,
    )
    return [
        DataFile(path, size, rows, written,
                 tuple((name, _text(value[i])) for name, value in
                       zip(partitions, values, strict=True)),
                 least, most, untimed)
        for i, (path, size, rows, written, least, most, untimed) in enumerate(found)
    ]


def live_paths(delta: DeltaTable) -> set[str]:
    """The paths of the files of a table's version, as its log has them."""
    return set(pa.table(delta.get_add_actions()).column("path").to_pylist())


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
