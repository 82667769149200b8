"""The archive's part of a task: rows of its tables from parsed records, and files of them.

Spark's workers import this module and what it imports, so it imports no configuration.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from app.archive_names import WRITES
from app.contract.event_contract import DIGESTS, Parsed, parse_batch
from app.contract.redaction import redact
from app.engine.coverage import Coverage
from app.engine.messages import MessageKind, control_row, encode
from app.sources.batches import regrouped
from app.sources.clocks import LATEST_MS, plan_of
from app.tables.archive_files import DAY_MS, write_files
from app.tables.definitions import TABLES
from app.tables.small_files import local_path, path_in

if TYPE_CHECKING:
    from app.config.settings import Settings

ROWS_PER_FILE = 1_000_000
BYTES_PER_FILE = 256 << 20
TABLE = b"table"
"""Key of the metadata of a list of files: their table."""
Batches = Iterator[pa.RecordBatch]


def events_rows(
    parsed: Parsed, identity: pa.RecordBatch, ingest_ms: int, with_payload: bool = False
) -> pa.Table:
    """The records that at least one job could apply, as rows of `events`.

    Of a payload only length and CRC-32 are kept, unless `archive_payload` is set.
    """
    keep = parsed.archivable
    rows = parsed.table
    if not with_payload:
        at = rows.schema.get_field_index("payload")
        rows = rows.set_column(at, "payload", pa.nulls(rows.num_rows, pa.binary()))
    sizes, sums = parsed.block.digests
    for name, values in zip(DIGESTS, (sizes, sums), strict=True):
        rows = rows.append_column(name, pa.array(values, mask=sizes < 0))
    if not keep.all():
        kept = pa.array(keep)
        rows = rows.filter(kept)
        identity = identity.filter(kept)
    wall = parsed.block.number("ts_wall_ms")[keep]
    known = parsed.block.has("ts_wall_ms")[keep]
    day = (np.minimum(np.where(known, wall, ingest_ms), LATEST_MS) // DAY_MS).astype(np.int32)
    for name in ("source_partition", "source_offset"):
        rows = rows.append_column(name, identity.column(name))
    rows = rows.append_column("ingest_ms", pa.array(np.full(len(day), ingest_ms, np.int64)))
    return rows.append_column("event_date", pa.array(day, pa.date32()))


def quarantine_rows(
    parsed: Parsed, batch: pa.RecordBatch, ingest_ms: int, with_payload: bool = False
) -> pa.Table:
    """One row per rule that a record of the batch broke.

    In the record's text a payload is replaced by its length and CRC-32, unless `archive_payload` is
    set.
    """
    bad = parsed.bad
    row = bad.column("row")
    columns: dict[str, Any] = {name: bad.column(name) for name in ("reason_code", "detail", "job")}
    for name in ("source_feed", "cluster", "broker", "seq", "ts_wall_ms"):
        columns[name] = parsed.table.column(name).take(row)
    for name in ("source_partition", "source_offset"):
        columns[name] = batch.column(name).take(row)
    columns["raw"] = pa.array(_texts(parsed, batch, row, with_payload), pa.string())
    columns["ingest_ms"] = pa.array(np.full(len(row), ingest_ms, np.int64))
    schema = TABLES["quarantine"].schema
    return pa.table({f.name: _plain(columns[f.name]).cast(f.type) for f in schema}, schema=schema)


def _texts(
    parsed: Parsed, batch: pa.RecordBatch, rows: pa.Array, with_payload: bool
) -> Iterator[str | None]:
    """The text of some records, one at a time. Records that arrived as columns get a text without
    the payload.
    """
    if "value" in batch.schema.names:
        column = batch.column("value")
        for row in rows.to_pylist():
            buffer = column[row].as_buffer()
            if buffer is None:
                yield None
                continue
            text = buffer.to_pybytes() if with_payload else redact(memoryview(buffer))
            yield text.decode("utf-8", "backslashreplace")
        return
    names = [name for name in batch.schema.names if name != "payload"]
    found = pa.table([batch.column(name) for name in names], names).take(rows).to_pylist()
    yield from (json.dumps({k: v for k, v in record.items() if v is not None}) for record in found)


def _plain(column: Any) -> Any:
    if isinstance(column, pa.ChunkedArray):
        column = column.unify_dictionaries().combine_chunks()
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


class ArchiveTarget(NamedTuple):
    """Where the tasks of the archive write, and what."""

    roots: dict[str, str]
    """The folder of each table."""
    storage: dict[str, str]
    blind_ms: Mapping[str, int]
    """By enabled job, how long it is blind after a gap."""
    with_payload: bool = False

    @classmethod
    def of(cls, settings: Settings) -> ArchiveTarget:
        """That of a warehouse."""
        location = settings.location
        return cls(
            {name: path_in(location, name) for name in WRITES},
            {} if local_path(settings.warehouse) else location.storage(),
            settings.blind_after_gap_ms(),
            settings.archive_payload,
        )


class ArchiveTask:
    """The archive's part of a task: makes rows of its tables, and writes them as files."""

    def __init__(self, target: ArchiveTarget) -> None:
        self._target = target
        self._coverage = Coverage(target.blind_ms)
        self._held: dict[str, list[pa.Table]] = {}

    def add(self, parsed: Parsed, batch: pa.RecordBatch) -> Batches:
        """Take the records of a batch; returns rows of PACKED for the files that were written."""
        planned_ms = plan_of(batch)
        ingest_ms = time.time_ns() // 1_000_000 if planned_ms is None else planned_ms
        with_payload = self._target.with_payload
        self._coverage.add(parsed)
        events = events_rows(parsed, batch, ingest_ms, with_payload)
        if events.num_rows:
            yield from self._hold("events", events)
        if parsed.bad.num_rows:
            rows = quarantine_rows(parsed, batch, ingest_ms, with_payload)
            yield from self._hold("quarantine", rows)

    def end(self) -> Batches:
        """Write what is left, and the counts; returns rows of PACKED."""
        for name, rows in self._coverage.tables().items():
            yield from self._hold(name, rows)
        for name in list(self._held):
            yield self._write(name)

    def _hold(self, name: str, rows: pa.Table) -> Batches:
        held = self._held.setdefault(name, [])
        held.append(rows)
        if (
            sum(t.num_rows for t in held) >= ROWS_PER_FILE
            or sum(t.nbytes for t in held) >= BYTES_PER_FILE
        ):
            yield self._write(name)

    def _write(self, name: str) -> pa.RecordBatch:
        target = self._target
        files = write_files(TABLES[name], self._held.pop(name), target.roots[name], target.storage)
        marked = files.replace_schema_metadata({TABLE: name})
        return control_row(MessageKind.ARCHIVED, encode(marked))


def file_writer(target: ArchiveTarget) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow`: raw records in, rows of PACKED out, one per table and file."""

    def write(batches: Batches) -> Batches:
        task, jobs = ArchiveTask(target), list(target.blind_ms)
        for batch in regrouped(batches):
            yield from task.add(parse_batch(batch, jobs), batch)
        yield from task.end()

    return write


def files_of(bodies: Iterable[Any]) -> dict[str, pa.Table]:
    """The files that bodies of ARCHIVED list, by table."""
    found: dict[str, list[pa.Table]] = {}
    for body in bodies:
        files = pa.ipc.open_stream(body).read_all()
        found.setdefault(files.schema.metadata[TABLE].decode(), []).append(files)
    return {name: pa.concat_tables(parts) for name, parts in found.items()}
