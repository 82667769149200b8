"""Govern: one stateful query for a group of jobs, from raw records to committed tables.

    source ─► parse, validate, route, pack (mapInArrow) ─► shuffle by (job, shard)
           ─► applyInPandasWithState: the jobs' cores ─► one commit per table and micro-batch

The operator's rows leave it as Arrow blobs per table, so no value passes through pandas columns.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.engine.assignment import query_name
from app.engine.bounded import bounded
from app.engine.catch_up import CatchUp
from app.engine.messages import Message, MessageKind
from app.engine.operators import Operator, limits_of, operators
from app.engine.policy_changes import TABLE as POLICIES
from app.engine.policy_changes import PolicyChanges
from app.engine.policy_watch import PolicyWatch
from app.engine.routing import PACKED, packer
from app.engine.step import ANSWERS, STATE, decode, stepper
from app.engine.throttle_publisher import COMMANDS, ThrottleFeed
from app.sources import open_stream
from app.sources.files import planned_files
from app.tables import checkpoints, manifest
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.shape import shaped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings
    from app.sources.raw import Raw
    from app.tables.policy_log import PolicyLog, ShadowLog


def frame(
    raw: Raw,
    settings: Settings,
    group: Sequence[str],
    log: PolicyLog | None = None,
    shadows: Mapping[str, ShadowLog] | None = None,
) -> DataFrame:
    """The answers of a group of jobs to the records of a source, as a streaming frame of ANSWERS."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    group_operators = operators(settings, group, in_stream=True, log=log, shadows=shadows)
    pack = packer(
        {name: o.route for name, o in group_operators.items()},
        settings.shard_count,
        limits_of(settings),
        as_spelled=manifest.as_spelled(settings.location),
    )
    idle_ms = settings.idle_advance_ms
    packed = raw.through(pack if raw.shares is None else bounded(pack), PACKED)
    # The watermark is the stream's clock. Passed on with a null column that carries its mark, it
    # fires timers and drops no record: what is too late, the operator decides.
    marked = packed.withWatermark("ts", f"{idle_ms} milliseconds").select(
        "job",
        "shard",
        "blob",
        F.lit(None).cast("bigint").alias("watermark", metadata={"spark.watermarkDelayMs": idle_ms}),
    )
    return marked.groupBy("job", "shard").applyInPandasWithState(
        stepper(group_operators),  # type: ignore[arg-type]
        ANSWERS,
        STATE,
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )


COMMITS = 3
"""Number of tables that are appended to concurrently: each commit mostly waits for the file system.
"""


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
    ) -> None:
        """`on_time` gets the `idle_advance_ms` that would have kept records which are LATE, and the
        `clock_skew_ms` of records which are AHEAD.

        `feed` publishes the throttle commands before the tables are written: see
        `app.engine.throttle_publisher`. `catch_up` bounds the clock of a source that can lag in some
        partitions. `policies` brings changed policies to the batches.
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

    def prepare(self) -> None:
        """Create the tables of the group."""
        own = [] if self._policies is None else [POLICIES]
        self._writer.prepare([*self._constants, "quarantine", *own])

    def __call__(self, answers: DataFrame, batch: int) -> None:
        if self._catch_up is not None:
            self._catch_up.begin(batch)
        if self._policies is not None:
            self._policies.begin(batch, self._group)
        collected = answers.toArrow()
        found: dict[MessageKind, dict[str, list[Any]]] = {kind: {} for kind in MessageKind}
        columns = (collected.column("table_name"), collected.column("blob"))
        for address, blob in zip(*columns, strict=True):
            message = Message.of(address.as_py(), blob.as_buffer())
            found[message.kind].setdefault(message.name, []).append(message.body)
        if self._on_time is not None:
            for kind in (MessageKind.LATE, MessageKind.AHEAD):
                for needed_ms in found[kind].get("", ()):
                    self._on_time(kind, int(needed_ms.to_pybytes()))
        for table, files in found[MessageKind.FILE].items():
            self._add_files(table, files, batch)
        rows = found[MessageKind.DATA]
        for table, parts in found[MessageKind.REFUSED].items():
            rows.setdefault(table, []).extend(parts)
        if self._feed is not None and COMMANDS in rows:
            self._feed.publish(self._rows(COMMANDS, rows[COMMANDS]))
        with ThreadPoolExecutor(COMMITS) as pool:
            for done in [
                pool.submit(self._append, table, parts, batch) for table, parts in rows.items()
            ]:
                done.result()
        if self._policies is not None:
            self._writer.append(POLICIES, self._policies.rows(batch), batch)
        self._writer.settle(batch)
        if self._catch_up is not None:
            self._catch_up.end(batch, found[MessageKind.CLOCK].get("", ()))

    def _append(self, table: str, parts: Sequence[Any], batch: int) -> None:
        self._writer.append(table, self._rows(table, parts), batch)

    def _add_files(self, table: str, listed: Sequence[Any], batch: int) -> None:
        from deltalake.transaction import AddAction

        now = time.time_ns() // 1_000_000
        files = {one["path"]: one for one in (json.loads(f.to_pybytes()) for f in listed)}
        self._writer.add_files(
            table,
            [
                AddAction(path, one["bytes"], {}, now, True, one["stats"])
                for path, one in files.items()
            ],
            batch,
        )

    def _rows(self, name: str, parts: Sequence[Any]) -> pa.Table:
        rows = decode(parts)
        if name in self._stamps:
            rows = self._stamps[name].stamped(rows)
        return shaped(rows, TABLES[name], self._constants.get(name, {}))


def _unheard(text: str) -> None:
    """Receiver of late records for a query outside a service."""


def start(
    spark: SparkSession,
    settings: Settings,
    group: Sequence[str],
    trigger: dict[str, Any] | None = None,
    on_time: Callable[[MessageKind, int], None] | None = None,
    writer: Writer | None = None,
    ending: bool = False,
    watch: PolicyWatch | None = None,
) -> StreamingQuery:
    """Start the query of a group of jobs under the name of its `writer`, which identifies its
    checkpoint.

    Without a `writer` it has the name of the group, and every micro-batch commits its rows. With
    `ending` the query stops at the source's present end. `watch` has the policies of the files as
    they are now.
    """
    writer = writer or Writer(settings.location, query_name(group), settings.maintenance.history_ms)
    name = writer.query
    feed = ThrottleFeed(spark, settings.throttle_feed) if settings.throttle_feed else None
    raw = open_stream(spark, settings.feed, settings.location, name, ending)
    catch_up = CatchUp(spark, settings.location, name, raw.shares) if raw.shares else None
    watch = watch or PolicyWatch(settings, _unheard, _unheard)
    policies = PolicyChanges(spark, settings, name, watch)
    group_operators = operators(
        settings, group, in_stream=True, log=policies.log, shadows=policies.shadows
    )
    committer = Committer(writer, group_operators, on_time, feed, catch_up, policies)
    committer.prepare()
    return (
        frame(raw, settings, group, policies.log, policies.shadows)
        .writeStream.queryName(name)
        .outputMode("append")
        .option("checkpointLocation", checkpoints.location(settings.location, name))
        .trigger(**(trigger or {"processingTime": f"{settings.trigger_ms} milliseconds"}))
        .foreachBatch(planned_files.compared(settings.feed, settings.location, name, committer))
        .start()
    )
