"""Payloads of chunks: staged in files while their message is incomplete, joined when it is
complete.

Tasks write and read the files; the driver only adds them to the tables. The name of a file follows
from the records whose payloads it has, so a repeated micro-batch writes the same file again.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.tables.definitions import TABLES
from app.tables.object_store import file_system
from state.engine.payloads import PARTS

Array = np.ndarray
STAGED = "chunk_payloads"
WHOLE = "chunk_messages"
GROUP_BYTES = 4 << 20
"""Payload bytes of a row group of a staged file, the unit that is read for one chunk."""
SLICE_BYTES = 32 << 20
"""Payload bytes of messages that are joined and written at once; a larger message is written alone.
"""
OPEN_FILES = 16


@dataclass
class Files:
    """Data files of one table, local or in an object store."""

    root: str
    storage: dict[str, str]

    def writer(self, path: str, schema: pa.Schema, **options: Any) -> pq.ParquetWriter:
        """A writer of a new file, without compression of payloads."""
        common = {"compression": "snappy", "use_dictionary": False, "write_statistics": False}
        if "://" not in self.root:
            file = Path(self.root) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            return pq.ParquetWriter(file, schema, **common, **options)
        return pq.ParquetWriter(
            path, schema, filesystem=file_system(self.root, self.storage), **common, **options
        )

    def open(self, path: str) -> pq.ParquetFile:
        """An existing file."""
        if "://" not in self.root:
            return pq.ParquetFile(Path(self.root) / path, memory_map=True)
        return pq.ParquetFile(file_system(self.root, self.storage).open_input_file(path))

    def size(self, path: str) -> int:
        """Length of a file (bytes)."""
        return int(file_system(self.root, self.storage).get_file_info(path).size)


@dataclass
class Payloads:
    """The payloads of a warehouse: where they wait, and where complete messages go. Works inside
    tasks.
    """

    staged: Files
    whole: Files
    inline_bytes: int
    largest_bytes: int
    """Messages that declare a larger size are not assembled."""
    _added: list[bytes] = field(default_factory=list)
    _open: OrderedDict[str, tuple[pq.ParquetFile, Array]] = field(default_factory=OrderedDict)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_added": [], "_open": OrderedDict()}

    def drain(self) -> list[bytes]:
        """The files that were written since the last call, as bodies of FILE."""
        added, self._added = self._added, []
        return added

    def stage(self, rows: pa.Table, identity: bytes | None = None) -> str:
        """Write rows of `chunk_payloads` into a file; returns its name, which follows from the rows
        or from `identity`.
        """
        if identity is None:
            positions = rows.select(["cluster", "topic", "ledger_id", "entry_id"])
            sums = [zlib.crc32(p) for p in rows.column("payload").to_pylist()]
            identity = json.dumps([positions.to_pylist(), sums]).encode()
        path = f"part-{hashlib.sha1(identity, usedforsecurity=False).hexdigest()}.parquet"
        schema = TABLES[STAGED].schema
        rows = rows.select(schema.names).cast(schema)
        with self.staged.writer(path, schema) as writer:
            for begin, end in _groups(rows.column("payload"), GROUP_BYTES):
                writer.write_table(rows.slice(begin, end - begin))
        self._note(STAGED, path, self.staged, rows.num_rows)
        return path

    def _note(self, table: str, path: str, files: Files, rows: int) -> None:
        file = {
            "table": table,
            "path": path,
            "bytes": files.size(path),
            "stats": json.dumps({"numRecords": rows}),
        }
        self._added.append(json.dumps(file).encode())

    def write_whole(self, rows: pa.Table) -> None:
        """Join the chunks of completed messages and write them as rows of `chunk_messages`.

        `rows` has the columns of the table and those of PARTS.
        """
        schema = TABLES[WHOLE].schema
        sizes = rows.column("assembled_bytes").fill_null(0).to_numpy()
        identity = json.dumps(
            rows.select(
                [
                    "cluster",
                    "topic",
                    "subscription",
                    "consumer",
                    "positions",
                    "complete_ms",
                    "row_no",
                ]
            ).to_pylist()
        ).encode()
        path = f"part-{hashlib.sha1(identity, usedforsecurity=False).hexdigest()}.parquet"
        with self.whole.writer(path, schema) as writer:
            for begin, end in _cuts(sizes, SLICE_BYTES):
                writer.write_table(
                    joined(rows.slice(begin, end - begin), self).select(schema.names).cast(schema)
                )
        self._note(WHOLE, path, self.whole, rows.num_rows)

    def read(self, file: str, rows: Sequence[int]) -> list[bytes]:
        """Payloads of some rows of a staged file."""
        opened = self._opened(file)
        parquet, ends = opened
        groups = np.searchsorted(ends, np.asarray(rows), side="right")
        found: dict[int, bytes] = {}
        for group in np.unique(groups).tolist():
            begin = int(ends[group - 1]) if group else 0
            column = parquet.read_row_group(group, columns=["payload"]).column(0)
            for row in (r for r, g in zip(rows, groups.tolist(), strict=True) if g == group):
                found[row] = column[row - begin].as_py()
        return [found[row] for row in rows]

    def _opened(self, file: str) -> tuple[pq.ParquetFile, Array]:
        if file in self._open:
            self._open.move_to_end(file)
            return self._open[file]
        parquet = self.staged.open(file)
        meta = parquet.metadata
        ends = np.cumsum([meta.row_group(g).num_rows for g in range(meta.num_row_groups)])
        self._open[file] = parquet, ends
        while len(self._open) > OPEN_FILES:
            _, (oldest, _) = self._open.popitem(last=False)
            oldest.close()
        return parquet, ends


def _groups(payloads: Any, most: int) -> Iterator[tuple[int, int]]:
    import pyarrow.compute as pc

    return _cuts(pc.binary_length(payloads).fill_null(0).to_numpy(), most)


def _cuts(sizes: Array, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows of up to a number of bytes each, of at least one row."""
    begin, total = 0, 0
    for i, size in enumerate(sizes.tolist()):
        if i > begin and total + size > most:
            yield begin, i
            begin, total = i, 0
        total += size
    if len(sizes):
        yield begin, len(sizes)


def joined(rows: pa.Table, source: Payloads | None = None) -> pa.Table:
    """Messages with their payload in place of the places of their chunks; null if one is missing."""
    files, numbers, inline = (rows.column(name).to_pylist() for name in PARTS)
    payloads = [
        None if parts is None else _message(parts, numbers[i], inline[i], source)
        for i, parts in enumerate(files)
    ]
    rows = rows.drop([*PARTS, *(n for n in ("payload",) if n in rows.column_names)])
    return rows.append_column("payload", pa.array(payloads, pa.binary()))


def _message(
    files: list[str | None],
    numbers: list[int],
    inline: list[bytes | None],
    source: Payloads | None,
) -> bytes | None:
    parts = list(inline)
    staged: dict[str, list[int]] = {}
    for i, file in enumerate(files):
        if file is not None:
            staged.setdefault(file, []).append(i)
    for file, places in staged.items():
        if source is None:
            return None
        for i, payload in zip(places, source.read(file, [numbers[i] for i in places]), strict=True):
            parts[i] = payload
    if any(part is None for part in parts):
        return None
    return b"".join(parts)  # type: ignore[arg-type]
