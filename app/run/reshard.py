"""The command `reshard`: moves the state of a stopped run to other shards and partitions.

    old checkpoint ─► states ─► pieces by new shard (mapInArrow) ─► files
         ─► applyInPandasWithState: pieces joined, one batch ─► states of a checkpoint of its own
    new checkpoint = offsets, commits and sources of the old one + these states

The new checkpoint of each query is built beside the old one. Then the manifest gets the new numbers
and the names of the queries, and the checkpoints are exchanged. An interruption before the manifest
changes has no effect; after that the next `reshard` finishes the exchange.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from app import folders
from app.archive_names import ARCHIVE
from app.config.settings import shards_for
from app.engine import assignment
from app.engine.assignment import jobs_of
from app.engine.operators import operators
from app.engine.shard_labels import labels
from app.engine.step import STATE
from app.errors import UserError, reason
from app.plain_text import is_digits
from app.run.integrity import SHARED, tables_of
from app.run.session import spark_session
from app.run.spark_logs import written
from app.sources.worker import settle
from app.tables import checkpoints, formats, manifest, policy_log, run_lock, writable
from app.tables.checkpoints import FOLDER, RESHARDING
from app.tables.manifest import Manifest
from app.tables.small_files import local_path
from app.terminal.interrupt import stoppable
from app.terminal.printable import say
from app.terminal.sizes import size_text
from state.engine.job import Job
from state.engine.moving import heirs

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.settings import Settings

PIECES = pa.schema(
    [("job", pa.string()), ("shard", pa.int32()), ("piece", pa.binary()), ("due_ms", pa.int64())]
)
_COLUMNS = "job string, shard int, piece binary, due_ms bigint"
AT_ONCE = "16"
"""Number of states or pieces in one Arrow batch; they are large."""


@dataclass(frozen=True)
class Move:
    """The old and the new numbers, and the queries that have a checkpoint."""

    shards: tuple[int, int]
    partitions: tuple[int, int]
    queries: dict[str, tuple[str, ...]]
    """Jobs by query, and what the archive keeps."""
    rehashed: bool
    """Whether keys may move to other shards."""

    @property
    def needed(self) -> bool:
        """Whether the numbers change."""
        return self.rehashed or self.partitions[0] != self.partitions[1]

    def __str__(self) -> str:
        return (
            f"shards {self.shards[0]} to {self.shards[1]}, "
            f"partitions {self.partitions[0]} to {self.partitions[1]}"
        )


def refuse(settings: Settings, *, held: bool = False) -> Move:
    """The move to be made. UserError for a warehouse that cannot be resharded now.

    A number that is not configured stays; shards follow partitions as at a first start. With `held`
    this process holds the locks of the queries.
    """
    root = _root(settings.location)
    kept = manifest.load(settings.location)
    found = checkpoints.found(settings.location)
    if kept is not None and kept.moving is not None:
        found = sorted({*found, *kept.moving})
    if kept is None or not found:
        raise UserError(
            f"reshard: {root} has no state to move\n"
            "a first start takes any number of shards and partitions; --warehouse names another"
        )
    writable.require(settings.location)
    if not held:
        run_lock.refuse(settings.warehouse)
    for query in found:
        if not _settled(settings, query):
            raise UserError(
                f"reshard: the last batch of {query} has not ended\n"
                "run once with --available-now and the configuration as it was, then reshard"
            )
    move = _move(settings, kept, found)
    formats.check(settings.location, [j for jobs in move.queries.values() for j in jobs_of(jobs)])
    return move


def _settled(settings: Settings, query: str) -> bool:
    """Whether no batch of a query is half written. A run that is stopped in the middle of a backlog
    has planned its next batch; nothing of it is written, and it can be planned again.
    """
    if checkpoints.settled(settings.location, query):
        return True
    jobs = assignment.known(settings.location).get(query, (ARCHIVE,))
    tables = [*tables_of(settings, jobs), SHARED]
    return not written(
        settings.location, query, tables, checkpoints.last_ended(settings.location, query) + 1
    )


def _move(settings: Settings, kept: Manifest, found: Sequence[str]) -> Move:
    partitions = settings.partitions or kept.partitions
    shards = settings.shards or kept.shards
    if settings.shards is None and partitions != kept.partitions:
        shards = shards_for(partitions, settings.shards)
    known = assignment.known(settings.location)
    return Move(
        (kept.shards, shards),
        (kept.partitions, partitions),
        {query: known.get(query, ()) for query in found},
        shards != kept.shards,
    )


def _root(warehouse: Location) -> Path:
    root = local_path(warehouse.uri)
    if root is None:
        raise UserError(
            f"reshard: {warehouse.uri} is not on this machine, and checkpoints are exchanged "
            "by renaming folders\ncopy the warehouse to a folder, reshard it there, copy it back"
        )
    return root


def reshard(settings: Settings, dry_run: bool = False) -> int:
    """Move the state of every query, or print what would move."""
    move = refuse(settings)
    if dry_run:
        say(f"would move: {move}")
        _list(settings.location, move)
        return 0
    began = time.monotonic()
    with run_lock.only_run(settings.location, list(move.queries)):
        if finished(settings.location):
            say("the interrupted reshard is finished")
        move = refuse(settings, held=True)
        if not move.needed:
            say(f"nothing to move: {move}")
            return 0
        root = _root(settings.location)
        shutil.rmtree(root / RESHARDING, ignore_errors=True)
        _build(settings, move, root)
        manifest.renumber(settings.location, move.shards[1], move.partitions[1], list(move.queries))
        finished(settings.location)
    say(f"moved in {time.monotonic() - began:.0f} s: {move}")
    return 0


def finished(warehouse: Location) -> bool:
    """Exchange checkpoints that are complete; returns whether there were any."""
    root, kept = _root(warehouse), manifest.load(warehouse)
    if kept is None or kept.moving is None:
        return False
    for query in kept.moving:
        checkpoints.put_in_place(root, query)
    manifest.moved(warehouse)
    shutil.rmtree(root / RESHARDING, ignore_errors=True)
    return True


def _list(warehouse: Location, move: Move) -> None:
    for query, jobs in move.queries.items():
        state = Path(checkpoints.location(warehouse, query)) / "state"
        size = sum(file.bytes for file in folders.files_below(state))
        about = f"{', '.join(jobs)}; {size_text(size)} of state" if jobs_of(jobs) else "no state"
        say(f"  {query}: {about}, to batch {checkpoints.last_ended(warehouse, query)}")


def _build(settings: Settings, move: Move, root: Path) -> None:
    """Build new checkpoints of all queries below RESHARDING."""
    wanted = settings.model_copy(update={"partitions": move.partitions[1]})
    with stoppable(), spark_session(wanted, "weir reshard") as spark:
        for query, jobs in move.queries.items():
            old, new = root / FOLDER / query, root / RESHARDING / query
            ended = checkpoints.last_ended(settings.location, query)
            checkpoints.without_state(old, new, move.partitions[1], ended)
            checkpoints.renumbered(settings.location, query, move.shards[1])
            if (old / "state").is_dir():
                work = root / RESHARDING / f"{query}.work"
                _states(spark, wanted, move, jobs, old, work)
                _take_over(work / "checkpoint" / "state", new / "state", ended + 1)
                folders.remove(work)


def _take_over(built: Path, place: Path, version: int) -> None:
    """Move the states that one batch has written to where a query looks for those of its last
    batch.
    """
    for partition in folders.matching(built / "0", "*"):
        if is_digits(partition.name):
            for name in ("1.zip", ".1.zip.crc"):
                file = partition / name
                file.rename(file.with_name(name.replace("1", str(version), 1)))
    built.rename(place)


def _states(
    spark: SparkSession, settings: Settings, move: Move, jobs: Sequence[str], old: Path, work: Path
) -> None:
    """Build a checkpoint below `work` that has the moved states of another one."""
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    log = policy_log.load(settings.location, old.name)
    made = operators(settings, jobs_of(jobs), log=log, shadows=log.shadows if log else None)
    cores = {name: operator.job for name, operator in made.items()}
    session = spark.newSession()
    for key, value in {
        checkpoints.PARTITIONS: str(move.partitions[1]),
        "spark.sql.execution.arrow.maxRecordsPerBatch": AT_ONCE,
        # A batch writes its states whole, not the changes to those before.
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        session.conf.set(key, value)
    states = (
        session.read.format("statestore")
        .load(str(old))
        .select(
            "key.job",
            "key.shard",
            F.col("value.groupState.state").alias("piece"),
            F.col("value.timeoutTimestamp").alias("due_ms"),
        )
        .where(F.col("job").isin(list(jobs)))
    )
    try:
        cut = cutter(cores, move)
        states.mapInArrow(cut, _COLUMNS).write.parquet(str(work / "pieces"))  # type: ignore[arg-type]
        (
            session.readStream.schema(_COLUMNS)
            .parquet(str(work / "pieces"))
            .withColumn("never", F.lit(None).cast("timestamp"))
            .withWatermark("never", "1 second")
            .groupBy("job", "shard")
            .applyInPandasWithState(
                joiner(cores, move.rehashed),  # type: ignore[arg-type]
                "job string",
                STATE,
                "append",
                GroupStateTimeout.EventTimeTimeout,
            )
            .writeStream.format("noop")
            .option("checkpointLocation", str(work / "checkpoint"))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )
    except PySparkException as error:
        raise _failed(str(error)) from None


def _failed(text: str) -> UserError:
    told = [line for line in text.split("\n") if "StateFormatError:" in line]
    why = told[0].partition("StateFormatError:")[2] if told else text
    return UserError(
        f"reshard: {reason(why)}\nnothing has changed: run continues with the numbers as they were"
    )


Batches = Iterator[pa.RecordBatch]


def cutter(cores: Mapping[str, Job], move: Move) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow`: states in, their pieces out, both as PIECES with labels of shards."""
    (was, now), partitions = move.shards, move.partitions[1]

    def cut(batches: Batches) -> Batches:
        settle()
        for batch in batches:
            for state in batch.to_pylist():
                job, shard = state["job"], state["shard"] % was
                found = {shard: state["piece"]}
                if move.rehashed:
                    found = cores[job].pieces(state["piece"], now, heirs(shard, was, now))
                label = labels(job, now, partitions)
                yield pa.RecordBatch.from_pylist(
                    [{**state, "shard": label[to], "piece": piece} for to, piece in found.items()],
                    PIECES,
                )

    return cut


def joiner(
    cores: Mapping[str, Job], cut: bool
) -> Callable[[tuple[str, int], Iterator[pd.DataFrame], Any], Iterator[pd.DataFrame]]:
    """The function of the stateful operator: joins the pieces of a shard to its state and sets the
    earliest of their timers. With `cut`=False the state is in one piece.
    """

    def join(
        key: tuple[str, int], frames: Iterator[pd.DataFrame], state: Any
    ) -> Iterator[pd.DataFrame]:
        settle()
        rows = [row for f in frames for row in zip(f["piece"], f["due_ms"], strict=True)]
        pieces = [bytes(piece) for piece, _ in rows]
        state.update((cores[key[0]].joined(pieces) if cut else pieces[0],))
        due_ms = [int(due) for _, due in rows if due >= 0]
        if due_ms:
            state.setTimeoutTimestamp(min(due_ms))
        return iter(())

    return join
