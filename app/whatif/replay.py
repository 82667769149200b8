"""Replay: the same jobs over the archive, in batch, under any policy.

What the live run recorded as too late or repeated is left out, so that the replay gets what the
live run got. A shard's records of the whole range are in memory at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.ingest.payloads import joined
from app.ingest.routing import CLOCK, PACKED, Route, needed, typed_packer
from app.stream.operators import Operator, operators
from app.stream.step import ANSWERS, decode, encode
from app.warehouse.shape import shaped
from app.warehouse.small_files import path_in
from app.warehouse.tables import TABLES
from state.chunks.operator import PARTS
from state.engine.job import Job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from app.config.settings import Settings

LATE = ("TOO_LATE", "DUPLICATE_RECORD")
PACKED_PARTS = ("job", "shard", "blob")
ROWS_PER_BLOCK = 50_000


def replay(
    spark: SparkSession, settings: Settings, jobs: Sequence[str]
) -> dict[str, pa.Table]:
    """Output tables of some jobs over the whole archive of the warehouse."""
    events = spark.read.format("delta").load(path_in(settings, "events"))
    refused = spark.read.format("delta").load(path_in(settings, "quarantine"))
    return replay_rows(spark, settings, jobs, _without(events, refused))


def _without(events: DataFrame, refused: DataFrame) -> DataFrame:
    """Records with the jobs that refused each of them in `left_out`."""
    from pyspark.sql import functions as F

    identity = ["source_partition", "source_offset"]
    left_out = (
        refused.where(F.col("reason_code").isin(*LATE))
        .groupBy(*identity)
        .agg(F.collect_set("job").alias("left_out"))
    )
    return events.join(left_out, identity, "left")


def replay_here(settings: Settings, jobs: Sequence[str]) -> dict[str, pa.Table]:
    """The same without Spark, in this process, shard after shard: for small archives."""
    group = operators(settings, jobs)
    blobs, latest = packed_here(settings, group)
    stream_ms = max(latest - settings.idle_advance_ms, 0)
    found: dict[str, list[pa.Table]] = {}
    for (job, _), mine in sorted(blobs.items()):
        first = group[job].job.step(None, mine, 0)
        for answer in (first, group[job].job.step(first.state, [], stream_ms)):
            for name, rows in _whole(answer.tables).items():
                constants = group[job].constants if name in group[job].tables else {}
                found.setdefault(name, []).append(shaped(rows, TABLES[name], constants))
    return {name: pa.concat_tables(parts) for name, parts in found.items()}


def packed_here(
    settings: Settings, group: Mapping[str, Operator],
    keep: Callable[[pa.Table], pa.Table] | None = None,
) -> tuple[dict[tuple[str, int], list[bytes]], int]:
    """The archive as blobs by (job, shard), and its latest wall time (ms; 0 without any).

    `keep` may leave rows of `events` out.
    """
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    routes = {name: operator.route for name, operator in group.items()}
    columns, kinds = needed(routes)
    archive = DeltaTable(
        path_in(settings, "events"), storage_options=settings.storage()
    ).to_pyarrow_dataset()
    events = archive.to_table(columns=columns, filter=pc.field("event_type").isin(kinds))
    latest = pc.max(archive.to_table(columns=["ts_wall_ms"]).column("ts_wall_ms")).as_py()
    events = events.append_column("left_out", _left_out_here(settings, events))
    if keep is not None:
        events = keep(events)
    blobs: dict[tuple[str, int], list[bytes]] = {}
    batches = events.combine_chunks().to_batches(max_chunksize=ROWS_PER_BLOCK)
    for packed in typed_packer(routes, settings.shard_count)(iter(batches)):
        columns = (packed.column(name).to_pylist() for name in PACKED_PARTS)
        for job, shard, blob in zip(*columns, strict=True):
            if job != CLOCK:
                blobs.setdefault((job, shard), []).append(blob)
    return blobs, latest or 0


def _left_out_here(settings: Settings, events: pa.Table) -> pa.Array:
    """The jobs that refused each record, as `_without` finds them."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    refused = DeltaTable(
        path_in(settings, "quarantine"), storage_options=settings.storage()
    ).to_pyarrow_dataset().to_table(
        columns=["source_partition", "source_offset", "job"],
        filter=pc.field("reason_code").isin(LATE),
    )
    jobs: dict[tuple[str, int], list[str]] = {}
    for row in refused.to_pylist():
        jobs.setdefault((row["source_partition"], row["source_offset"]), []).append(row["job"])
    lists: list[list[str] | None] = [None] * events.num_rows
    near = pc.is_in(events.column("source_offset"), refused.column("source_offset"))
    for i in pc.indices_nonzero(near).to_pylist():
        place = events.column("source_partition")[i].as_py()
        lists[i] = jobs.get((place, events.column("source_offset")[i].as_py()))
    return pa.array(lists, pa.list_(pa.string()))


def replay_rows(
    spark: SparkSession, settings: Settings, jobs: Sequence[str], events: DataFrame
) -> dict[str, pa.Table]:
    """Output tables of some jobs over rows of `events`, replayed in one call per shard."""
    group = operators(settings, jobs)
    latest = events.selectExpr("max(ts_wall_ms)").collect()[0][0]
    stream_ms = max((latest or 0) - settings.idle_advance_ms, 0)
    routes = {name: operator.route for name, operator in group.items()}
    packed = narrowed(events, routes).mapInArrow(typed_packer(routes, settings.shard_count), PACKED)
    step = _stepper({name: o.job for name, o in group.items()}, stream_ms)
    answers = (
        packed.where(packed.job != CLOCK)
        .select("job", "shard", "blob")
        .groupBy("job", "shard")
        .applyInArrow(step, ANSWERS)
        .toArrow()
    )
    return _tables(answers, group)


def narrowed(events: DataFrame, routes: Mapping[str, Route]) -> DataFrame:
    """Only the records and columns that the jobs read, so that no more leaves the files."""
    columns, kinds = needed(routes)
    kept = [name for name in (*columns, "left_out") if name in events.columns]
    return events.where(events.event_type.isin(*kinds)).select(*kept)


def _stepper(
    jobs: Mapping[str, Job], stream_ms: int
) -> Callable[[tuple[pa.Scalar, ...], pa.Table], pa.Table]:
    def step(key: tuple[pa.Scalar, ...], rows: pa.Table) -> pa.Table:
        job = jobs[key[0].as_py()]
        blobs = [blob.as_buffer() for blob in rows.column("blob")]
        names: list[str] = []
        answers: list[bytes] = []
        first = job.step(None, blobs, 0)
        for answer in (first, job.step(first.state, [], stream_ms)):
            tables = _whole(answer.tables)
            names += tables
            answers += [encode(table) for table in tables.values()]
        return pa.table({"table_name": pa.array(names, pa.string()),
                         "blob": pa.array(answers, pa.binary())})

    return step


def _whole(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Tables with the chunks of completed messages joined, where the archive has them."""
    return {
        name: joined(rows) if PARTS[0] in rows.column_names else rows
        for name, rows in tables.items()
    }


def _tables(answers: pa.Table, group: Mapping[str, Operator]) -> dict[str, pa.Table]:
    constants = {name: o.constants for o in group.values() for name in o.tables}
    blobs: dict[str, list[Any]] = {}
    columns = (answers.column("table_name"), answers.column("blob"))
    for name, blob in zip(*columns, strict=True):
        blobs.setdefault(name.as_py(), []).append(blob.as_buffer())
    return {
        name: shaped(decode(parts), TABLES[name], constants.get(name, {}))
        for name, parts in blobs.items()
    }
