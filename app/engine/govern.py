"""Govern: one stateful query for a group of jobs, from raw records to committed tables.

    source ─► parse, validate, route, pack (mapInArrow) ─► shuffle by (job, shard)
           ─► applyInPandasWithState: the jobs' cores ─► one commit per table and micro-batch

The query that carries the archive writes its files where the records are parsed; their list passes
the operator. The operator's rows leave it as Arrow blobs per table, so no value passes through
pandas columns.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from app.engine.archive_query import Archivist
from app.engine.archive_task import ArchiveTarget
from app.engine.assignment import query_name
from app.engine.catch_up import CatchUp
from app.engine.messages import ANSWERS, PACKED, MessageKind
from app.engine.operators import Operator, limits_of, operators
from app.engine.policy_changes import TABLE as POLICIES
from app.engine.policy_changes import PolicyChanges
from app.engine.policy_watch import PolicyWatch
from app.engine.routing import packer
from app.engine.shard_labels import labels
from app.engine.step import STATE, decode, stepper
from app.engine.throttle_publisher import COMMANDS, ThrottleFeed
from app.sources import open_stream
from app.sources.files import planned_files
from app.tables import checkpoints, lease, manifest
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.shape import shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings
    from app.sources.raw import Raw
    from app.tables.archive_files import ArchiveWriter


def frame(
    raw: Raw, settings: Settings, group: dict[str, Operator], archive: ArchiveTarget | None = None
) -> DataFrame:
    """The answers of a group of jobs to the records of a source, as a streaming frame of ANSWERS.
    With `archive` the tasks that parse the records write its files.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    pack = partial(
        packer,
        {name: operator.route for name, operator in group.items()},
        settings.shard_count,
        limits_of(settings),
        archive=archive,
        labels=labels_of(settings, group),
    )
    idle_ms = settings.idle_advance_ms
    packed = raw.through(pack(), PACKED, polls=pack(beside=True))
    # The watermark only calls shards that have something to do. Passed on with a null column that
    # carries its mark, it drops no record: what is too late, the operator decides by the clocks of
    # its keys.
    marked = packed.withWatermark("ts", f"{idle_ms} milliseconds").select(
        "job",
        "shard",
        "kind",
        "blob",
        F.lit(None).cast("bigint").alias("watermark", metadata={"spark.watermarkDelayMs": idle_ms}),
    )
    return marked.groupBy("job", "shard").applyInPandasWithState(
        stepper(group),  # type: ignore[arg-type]
        ANSWERS,
        STATE,
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )


def labels_of(settings: Settings, jobs: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """Labels of the shards of some jobs."""
    kept = manifest.load(settings.location)
    partitions = kept.partitions if kept else settings.partitions or os.cpu_count() or 1
    return {job: labels(job, settings.shard_count, partitions) for job in jobs}


class Committer:
    """Writes the answers of the operator: called once per micro-batch, on the driver."""

    def __init__(
        self,
        writer: Writer,
        group: dict[str, Operator],
        on_time: Callable[[MessageKind, int], None] | None = None,
        feed: ThrottleFeed | None = None,
        catch_up: CatchUp | None = None,
        policies: PolicyChanges | None = None,
        archivist: Archivist | None = None,
    ) -> None:
        """`on_time` gets the `idle_advance_ms` that would have kept records which are LATE, and the
        `clock_skew_ms` of records which are AHEAD.

        `feed` publishes the throttle commands before the tables are written: see
        `app.engine.throttle_publisher`. `catch_up` tells the tasks how far silent keys are moved.
        `policies` brings changed policies to the batches. `archivist` takes the files
        of the archive that the query carries.
        """
        self._writer, self._policies, self._group = writer, policies, group
        self._constants = {
            table: operator.constants for operator in group.values() for table in operator.tables
        }
        self._stamps = {
            table: operator.stamp_of(table)
            for operator in group.values()
            for table in operator.tables
        }
        self._on_time = on_time
        self._feed = feed
        self._catch_up = catch_up
        self._archivist = archivist

    def prepare(self) -> None:
        """Create the tables of the group."""
        own = [] if self._policies is None else [POLICIES]
        self._writer.prepare([*self._constants, "quarantine", *own])
        if self._archivist is not None:
            self._archivist.prepare()

    def __call__(self, answers: DataFrame, batch: int) -> None:
        if self._catch_up is not None:
            self._catch_up.begin(batch)
        if self._policies is not None:
            self._policies.begin(batch, self._group)
        collected = answers.toArrow()
        rows: defaultdict[str, list[Any]] = defaultdict(list)
        control: dict[MessageKind, list[Any]] = {kind: [] for kind in MessageKind}
        tables, kinds = (collected.column(n).to_pylist() for n in ("table_name", "kind"))
        for table, kind, blob in zip(tables, kinds, collected.column("blob"), strict=True):
            to = rows[table] if kind == MessageKind.DATA else control[kind]
            to.append(blob.as_buffer())
        if self._on_time is not None:
            for kind in (MessageKind.LATE, MessageKind.AHEAD):
                for needed_ms in control[kind]:
                    self._on_time(kind, int(needed_ms.to_pybytes()))
        if self._catch_up is not None and control[MessageKind.POLLED]:
            self._catch_up.polled(max(int(ms.to_pybytes()) for ms in control[MessageKind.POLLED]))
        self._add_files(control[MessageKind.FILE], batch)
        if control[MessageKind.REFUSED]:
            rows["quarantine"] += control[MessageKind.REFUSED]
        if self._feed is not None and COMMANDS in rows:
            self._feed.publish(self._rows(COMMANDS, rows[COMMANDS]))
        with ThreadPoolExecutor(self._writer.at_once) as pool:
            found = [
                pool.submit(self._append, table, parts, batch) for table, parts in rows.items()
            ]
            if self._archivist is not None:
                found.append(
                    pool.submit(self._archivist.commit, control[MessageKind.ARCHIVED], batch)
                )
            for done in found:
                done.result()
        if self._policies is not None:
            self._writer.append(POLICIES, self._policies.rows(batch), batch)
        self._writer.settle(batch)
        if self._catch_up is not None:
            self._catch_up.end(batch)

    def _append(self, table: str, parts: Sequence[Any], batch: int) -> None:
        self._writer.append(table, self._rows(table, parts), batch)

    def _add_files(self, bodies: Sequence[Any], batch: int) -> None:
        from deltalake.transaction import AddAction

        now = time.time_ns() // 1_000_000
        added: defaultdict[str, dict[str, AddAction]] = defaultdict(dict)
        for file in (json.loads(body.to_pybytes()) for body in bodies):
            action = AddAction(file["path"], file["bytes"], {}, now, True, file["stats"])
            added[file["table"]][file["path"]] = action
        for table, files in added.items():
            self._writer.add_files(table, list(files.values()), batch)

    def _rows(self, name: str, parts: Sequence[Any]) -> pa.Table:
        rows = decode(parts)
        if name in self._stamps:
            rows = self._stamps[name].stamped(rows)
        return shaped(rows, TABLES[name], self._constants.get(name, {}))


class Writers(NamedTuple):
    """The writers of a query."""

    jobs: Writer | None = None
    archive: ArchiveWriter | None = None
    """Where the query carries the archive."""


def _unheard(text: str) -> None:
    """Receiver of late records for a query outside a service."""


def start(
    spark: SparkSession,
    settings: Settings,
    group: Sequence[str],
    trigger: dict[str, Any] | None = None,
    on_time: Callable[[MessageKind, int], None] | None = None,
    writers: Writers | None = None,
    ending: bool = False,
    watch: PolicyWatch | None = None,
) -> StreamingQuery:
    """Start the query of a group of jobs under the name of the writer of their rows, which
    identifies its checkpoint.

    Without that writer it has the name of the group, and every micro-batch commits its rows. With
    `ending` the query stops at the source's present end. `watch` has the policies of the files as
    they are now.
    """
    writer, archive = writers or Writers()
    writer = writer or Writer(settings.location, query_name(group), settings.maintenance.history_ms)
    name = writer.query
    feed = ThrottleFeed(spark, settings.throttle_feed) if settings.throttle_feed else None
    raw = open_stream(spark, settings, name, ending)
    bounded = ending or "availableNow" in (trigger or {})
    catch_up = CatchUp(spark, settings, name, raw.shares, bounded)
    watch = watch or PolicyWatch(settings, _unheard, _unheard)
    policies = PolicyChanges(spark, settings, name, watch)
    group_operators = operators(
        settings, group, in_stream=True, log=policies.log, shadows=policies.shadows
    )
    archivist = Archivist(archive) if archive else None
    committer = Committer(writer, group_operators, on_time, feed, catch_up, policies, archivist)
    committer.prepare()
    write = planned_files.compared(settings.streamed, settings.location, name, committer)
    target = ArchiveTarget.of(settings) if archive else None
    return (
        frame(raw, settings, group_operators, target)
        .writeStream.queryName(name)
        .outputMode("append")
        .option("checkpointLocation", checkpoints.location(settings.location, name))
        .trigger(**(trigger or {"processingTime": f"{settings.pause_ms} milliseconds"}))
        .foreachBatch(lease.guarded(settings.location, name, write))
        .start()
    )
