"""The archive: usable records go to `events`, refused ones to `quarantine`.

Tasks write Parquet files, and the driver adds those of a micro-batch to each table in one commit,
so no record passes through the rows of the JVM or through the driver. A repeated task leaves files
that no table names.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.contract.event_contract import DIGESTS, Parsed, parse_batch
from app.contract.redaction import redact
from app.engine.coverage import COUNTS, GAPS, Coverage
from app.sources import open_stream
from app.sources.batches import regrouped
from app.sources.clocks import LATEST_MS, plan_of
from app.sources.files import planned_files
from app.tables import checkpoints
from app.tables.commit import Writer
from app.tables.definitions import TABLES, Table
from app.tables.object_store import object_store
from app.tables.small_files import local_path, path_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings

WRITTEN = "table_name string, path string, day string, bytes bigint, stats string"
_WRITTEN = pa.schema(
    [
        ("table_name", pa.string()),
        ("path", pa.string()),
        ("day", pa.string()),
        ("bytes", pa.int64()),
        ("stats", pa.string()),
    ]
)
DAY_MS = 86_400_000
ROWS_PER_FILE = 1_000_000
BYTES_PER_FILE = 256 << 20
MOST_DAYS = 366
"""Files that are written at once: whoever chooses the times of records chooses their days."""
STATS = (
    "ts_wall_ms",
    "ts_mono_ns",
    "cluster",
    "broker",
    "topic",
    "event_type",
    "seq",
    "reason_code",
    "source_partition",
    "source_offset",
    "ingest_ms",
)
LONGEST_STAT = 200
WRITES = ("events", "quarantine", COUNTS, GAPS)
"""Tables of the archive."""
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
        picked = pa.array(np.flatnonzero(keep))
        rows = rows.take(picked)
        identity = identity.take(picked)
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


def _validated(
    batches: Batches, blind_ms: Mapping[str, int], with_payload: bool
) -> Iterator[tuple[str, pa.Table]]:
    coverage, jobs = Coverage(blind_ms), list(blind_ms)
    for batch in regrouped(batches):
        planned_ms = plan_of(batch)
        now = time.time_ns() // 1_000_000 if planned_ms is None else planned_ms
        parsed = parse_batch(batch, jobs)
        coverage.add(parsed)
        events = events_rows(parsed, batch, now, with_payload)
        if events.num_rows:
            yield "events", events
        if parsed.bad.num_rows:
            yield "quarantine", quarantine_rows(parsed, batch, now, with_payload)
    yield from coverage.tables().items()


def file_writer(
    roots: dict[str, str],
    storage: dict[str, str],
    blind_ms: Mapping[str, int],
    with_payload: bool = False,
) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow`: raw records in, rows of WRITTEN out, one per file.

    `blind_ms` has the enabled jobs, with how long each is blind after a gap.
    """

    def write(batches: Batches) -> Batches:
        held: dict[str, list[pa.Table]] = {}
        for name, rows in _validated(batches, blind_ms, with_payload):
            held.setdefault(name, []).append(rows)
            parts = held[name]
            if (
                sum(t.num_rows for t in parts) >= ROWS_PER_FILE
                or sum(t.nbytes for t in parts) >= BYTES_PER_FILE
            ):
                yield write_files(TABLES[name], held.pop(name), roots[name], storage)
        for name, parts in held.items():
            yield write_files(TABLES[name], parts, roots[name], storage)

    return write


def write_files(
    table: Table, parts: list[pa.Table], root: str, storage: dict[str, str]
) -> pa.RecordBatch:
    """Write one file per partition of the table; returns rows of WRITTEN."""
    rows = pa.concat_tables(parts).unify_dictionaries()
    days: list[Any] = [None]
    if table.partition_by:
        rows = _by_day(rows)
        days = pc.unique(rows.column(table.partition_by[0])).to_pylist()
    written: list[tuple[str, str, str | None, int, str]] = []
    for day in days:
        mine = rows
        if day is not None:
            if len(days) > 1:
                mine = rows.filter(pc.equal(rows.column("event_date"), pa.scalar(day)))
            mine = mine.drop(["event_date"])
        mine = mine.take(_sorted(mine, table.sort_by))
        folder = "" if day is None else f"{table.partition_by[0]}={day.isoformat()}/"
        path = f"{folder}part-{uuid.uuid4()}.parquet"
        size = _write(mine, root, path, storage)
        written.append(
            (table.name, path, None if day is None else day.isoformat(), size, _stats(mine))
        )
    columns = list(zip(*written, strict=True))
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, _WRITTEN, strict=True)]
    return pa.record_batch(arrays, schema=_WRITTEN)


def _by_day(rows: pa.Table) -> pa.Table:
    """The rows with a bounded number of days: those of the rarest are filed under their arrival."""
    date = rows.column("event_date").combine_chunks()
    found = pc.value_counts(date)
    if len(found) <= MOST_DAYS:
        return rows
    days, counts = (found.field(i).cast(pa.int32()).to_numpy() for i in (0, 1))
    kept = days[np.lexsort((days, -counts))[: MOST_DAYS - 1]]
    own = date.cast(pa.int32()).to_numpy()
    arrival = rows.column("ingest_ms").to_numpy() // DAY_MS
    filed = np.where(np.isin(own, kept), own, arrival).astype(np.int32)
    at = rows.schema.get_field_index("event_date")
    return rows.set_column(at, "event_date", pa.array(filed, pa.date32()))


def _sorted(rows: pa.Table, keys: Sequence[str]) -> pa.Array:
    """Order of the rows by the table's sort columns, text by its dictionary's order."""
    levels = []
    for name in keys:
        column = rows.column(name).combine_chunks()
        if isinstance(column, pa.ChunkedArray):
            column = column.chunk(0) if column.num_chunks else pa.nulls(0)
        if pa.types.is_dictionary(column.type):
            rank = np.empty(len(column.dictionary) + 1, np.int64)
            rank[pc.sort_indices(column.dictionary).to_numpy()] = np.arange(len(column.dictionary))
            rank[-1] = -1
            codes = column.indices.fill_null(len(column.dictionary)).to_numpy(zero_copy_only=False)
            levels.append(rank[codes])
        elif pa.types.is_string(column.type):
            encoded = column.dictionary_encode()
            levels.append(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False))
        else:
            levels.append(column.fill_null(-1).to_numpy(zero_copy_only=False))
    return pa.array(np.lexsort(levels[::-1]))


def _write(rows: pa.Table, root: str, path: str, storage: dict[str, str]) -> int:
    options: dict[str, Any] = {"compression": "zstd", "compression_level": 1}
    if "://" not in root:
        file = Path(root) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, file, **options)
        return file.stat().st_size
    system = object_store(root, storage)
    pq.write_table(rows, path, filesystem=system, **options)
    return int(system.get_file_info(path).size)


def _stats(rows: pa.Table) -> str:
    """Delta statistics of the columns that look-ups prune by."""
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in STATS:
        if name not in rows.column_names:
            continue
        column = rows.column(name)
        nulls[name] = column.null_count
        if pa.types.is_dictionary(column.type):
            column = column.combine_chunks()
            column = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
            used = pc.unique(column.indices).drop_null()
            column = column.dictionary.take(used)
        found = pc.min_max(column).as_py()
        if found["min"] is None or max(len(str(v)) for v in found.values()) > LONGEST_STAT:
            continue
        least[name], most[name] = found["min"], found["max"]
    return json.dumps(
        {"numRecords": rows.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}
    )


class Archivist:
    """Commits the files of the tasks: called once per micro-batch, on the driver."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def __call__(self, written: DataFrame, batch: int) -> None:
        from deltalake.transaction import AddAction

        now = time.time_ns() // 1_000_000
        actions: dict[str, list[AddAction]] = {}
        for row in written.toArrow().to_pylist():
            table = TABLES[row["table_name"]]
            values = {table.partition_by[0]: row["day"]} if table.partition_by else {}
            actions.setdefault(table.name, []).append(
                AddAction(row["path"], row["bytes"], values, now, True, row["stats"])
            )
        for name, added in actions.items():
            self._writer.add_files(name, added, batch)
        self._writer.settle(batch)


def start(
    spark: SparkSession,
    settings: Settings,
    trigger: dict[str, Any] | None = None,
    ending: bool = False,
) -> StreamingQuery:
    """Start the archive of the source. With `ending` it stops at the source's present end."""
    writer = Writer(settings.location, checkpoints.ARCHIVE, settings.maintenance.history_ms)
    writer.prepare(list(WRITES))
    blind_ms = settings.blind_after_gap_ms()
    raw = open_stream(spark, settings.feed, settings.location, checkpoints.ARCHIVE, ending)
    roots = {name: path_in(settings.location, name) for name in WRITES}
    storage = {} if local_path(settings.warehouse) else settings.location.storage()
    frame = raw.through(file_writer(roots, storage, blind_ms, settings.archive_payload), WRITTEN)
    return (
        frame.writeStream.queryName(checkpoints.ARCHIVE)
        .outputMode("append")
        .option("checkpointLocation", checkpoints.location(settings.location, checkpoints.ARCHIVE))
        .trigger(**(trigger or {"processingTime": f"{settings.archive_trigger_ms} milliseconds"}))
        .foreachBatch(
            planned_files.compared(
                settings.feed, settings.location, checkpoints.ARCHIVE, Archivist(writer)
            )
        )
        .start()
    )
