"""rate_limits alone on records that are columns already: no JSON, no commit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from app.contract.event_contract import from_table
from app.engine.govern import labels_of
from app.engine.messages import ANSWERS, PACKED
from app.engine.operators import operators
from app.engine.routing import Packing, Route, latest, needed, pack_parsed, times_of
from app.engine.step import STATE, stepper
from app.sources.batches import regrouped
from benchmarks import floors, per_topic
from benchmarks.result import Result
from benchmarks.stream import Bench
from state.events import SCHEMA

if TYPE_CHECKING:
    from app.config.settings import Settings


Batches = Iterator[pa.RecordBatch]
Labels = Mapping[str, Sequence[int]] | None


def run(bench: Bench) -> Result:
    """Operator, identity behind the same shuffle, one group per topic; the floor twice."""
    trace = bench.trace("zipf", bench.traffic())
    result = Result("columnar", trace.events, bench.small)
    settings = bench.settings("columnar", {"format": "files", "path": "in"})
    first = floors.identity(bench, trace)
    ours = bench.to_nothing(judged(settings, floors.typed(bench, trace)), "rate-limits-columnar")
    exchange = bench.settings(
        "columnar-exchange",
        {"format": "files", "path": "in"},
        rate_limits={"protocol": "pip385", "receipt_model": "all"},
    )
    asked = bench.to_nothing(
        judged(exchange, floors.typed(bench, trace)), "rate-limits-columnar-pip385"
    )
    second = floors.identity(bench, trace)
    named = floors.identity(bench, trace, names=True)
    single = per_topic.speed(bench, trace)
    floor = (first.median + second.median) / 2
    result.add("identity, names as hashes", floor, spread=(first.median, second.median))
    result.add("identity, names as text", named.median, spread=named.spread)
    result.add("rate_limits from columns", ours.median, spread=ours.spread)
    result.add("rate_limits from columns, pip385", asked.median, spread=asked.spread)
    result.add("one group per topic", single.median, spread=single.spread)
    result.ratio("rate_limits from columns", "identity, names as hashes")
    result.ratio("rate_limits from columns", "identity, names as text")
    result.ratio("rate_limits from columns, pip385", "identity, names as hashes")
    result.ratio("rate_limits from columns, pip385", "rate_limits from columns")
    result.ratio("rate_limits from columns", "one group per topic")
    return result


class ColumnarInput(NamedTuple):
    """Typed records of one job, in files of two a trigger."""

    folder: Path
    carried: tuple[str, ...]
    """Columns of the files, beside the identity."""
    key: str
    """The column that the floor is shuffled by."""
    note: str


def beside_identity(bench: Bench, result: Result, settings: Settings, given: ColumnarInput) -> None:
    """The only job of `settings` from columns, between two identities behind the same shuffle."""
    (job,) = settings.jobs
    schema = floors.schema_of(given.carried).add("source_partition", "string")
    rows = (
        bench.spark.readStream.schema(schema.add("source_offset", "long"))
        .option("maxFilesPerTrigger", 2)
        .parquet(str(given.folder))
    )
    texts = {name for name in given.carried if pa.types.is_string(SCHEMA.field(name).type)}
    narrow = rows.select(
        F.pmod(F.xxhash64(given.key), F.lit(floors.SHARDS)).cast("int").alias("shard"),
        *[
            (
                F.xxhash64(name)
                if name in texts
                else F.coalesce(F.col(name).cast("long"), F.lit(-1))
            ).alias(name)
            for name in (*given.carried, "source_offset")
        ],
    )
    first = floors.behind(bench, narrow, f"floor-{job}")
    ours = bench.to_nothing(judged(settings, rows, job), job)
    second = floors.behind(bench, narrow, f"floor-{job}")
    floor, of_job = "identity behind the same shuffle", f"{job} from columns"
    ends = first.median, second.median
    result.add(floor, sum(ends) / 2, spread=(min(ends), max(ends)))
    result.add(of_job, ours.median, spread=ours.spread, note=given.note)
    result.ratio(of_job, floor)


def judged(settings: Settings, rows: DataFrame, job: str = "rate_limits") -> DataFrame:
    """The answers of a job over typed records, as `govern.frame` makes them of raw ones."""
    group = operators(settings, [job])
    idle_ms = settings.idle_advance_ms
    routes = {name: o.route for name, o in group.items()}
    rows = rows.withColumn("ingest_ms", F.lit(0).cast("long"))
    columns, kinds = needed(routes)
    narrowed = rows.where(rows.event_type.isin(*kinds)).select(
        *(name for name in columns if name in rows.columns)
    )
    packed = narrowed.mapInArrow(
        packer(routes, settings.shard_count, labels_of(settings, group)), PACKED
    )
    marked = packed.withWatermark("ts", f"{idle_ms} milliseconds").select(
        "job",
        "shard",
        "kind",
        "blob",
        F.lit(None)
        .cast("timestamp")
        .alias("watermark", metadata={"spark.watermarkDelayMs": idle_ms}),
    )
    return marked.groupBy("job", "shard").applyInPandasWithState(
        stepper(group), ANSWERS, STATE, "append", GroupStateTimeout.EventTimeTimeout
    )


def packer(
    routes: dict[str, Route], shards: int, labels: Labels = None
) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow`: rows of `events` in, rows of PACKED out."""

    def pack(batches: Batches) -> Batches:
        for batch in regrouped(batches):
            parsed = from_table(batch, list(routes))
            clock_ms = latest(times_of(parsed))
            packing = Packing(parsed, batch, routes, shards, 0, clock_ms=clock_ms)
            yield packing.rows(labels=labels)

    return pack


def blobs_of(parts: Iterator[pa.Table], routes: dict[str, Route], shards: int, block: int) -> Any:
    """Blobs by shard of each table, packed `block` records at a time: what a task would ship."""
    for part in parts:
        by_shard: dict[int, list[bytes]] = {}
        for start in range(0, part.num_rows, block):
            rows = part.slice(start, block).combine_chunks()
            identity = pa.record_batch(
                {
                    "source_partition": pa.repeat(pa.scalar("0"), rows.num_rows),
                    "source_offset": rows["seq"].chunk(0),
                }
            )
            packed = pack_parsed(from_table(rows, list(routes)), identity, routes, shards, 0)
            for shard, blob in zip(
                packed["shard"].to_pylist(), packed["blob"].to_pylist(), strict=True
            ):
                by_shard.setdefault(shard, []).append(blob)
        yield by_shard
