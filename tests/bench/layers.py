"""What each layer of the query of five jobs costs: the query is run again with one more of them.

Text handed to Python and dropped; scanned, validated, routed and packed; shuffled to steps that
keep their state and answer nothing; and everything. The first three are floors: what remains of
the time when no rule of a job runs and no row is written. In large batches from JSON lines, and in
batches of 5,000 events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pyarrow as pa

from app.generate.scenario import load_scenario
from app.generate.trace import plan_trace
from app.generate.write import write_files
from app.ingest.contract import Limits
from app.ingest.routing import PACKED, packer
from app.ingest.sources import open_stream
from app.ingest.worker import settle
from app.stream import govern
from app.stream.operators import Operator, operators
from state.engine.job import Step
from state.jobs import JOBS
from tests.bench import floors
from tests.bench.all_jobs import FILES_PER_BATCH, write_batches
from tests.bench.result import Result, middle
from tests.bench.stream import END, Bench, Speed, finished

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

Batches = Iterator[pa.RecordBatch]
HANDED, PACKED_ONLY, SILENT, ALL = (
    "text handed to Python", "packed", "shuffled to steps that answer nothing", "five jobs",
)
CONTRACT = "parse floor, whole contract"


def run(bench: Bench) -> Result:
    """Layers in turn, several times; the middle of each counts."""
    events, rounds = (25_000, 1) if bench.small else (2_000_000, 3)
    large = bench.folder / "layers-large"
    trace = plan_trace(load_scenario("demo"), events, 7)
    written = write_files(trace, large)
    result = Result("layers", written.events, bench.small)
    lines = bench.spark.readStream.option("maxFilesPerTrigger", FILES_PER_BATCH).text(str(large))
    size, batches = (4_000, 5) if bench.small else (5_000, 30)
    few = bench.folder / "layers-small"
    small_trace = write_batches(few, size, batches)
    found: dict[str, list[Speed]] = {}
    for number in range(rounds):
        floor = bench.to_nothing(floors.parsed(lines, None), f"layers-floor-{number}")
        found.setdefault(CONTRACT, []).append(floor)
        for folder, per_batch, made in ((large, FILES_PER_BATCH, trace), (few, 1, small_trace)):
            source = {"format": "files", "path": str(folder),
                      "options": {"maxFilesPerTrigger": str(per_batch)}}
            for name, layer in LAYERS.items():
                key = f"{folder.name}-{name.replace(' ', '-')}-{number}"
                settings = bench.settings(key, source, policies=made.policies)
                speed = layer(bench, bench.spark, settings, key)
                found.setdefault(_figure(name, folder, few, size), []).append(speed)
    for name, speeds in found.items():
        if name.endswith("events"):
            value, spread = middle([s.batch_ms for s in speeds])
            result.add(name, value, "ms", spread)
        else:
            value, spread = middle([s.median for s in speeds])
            result.add(name, value, spread=spread)
    for name in LAYERS:
        result.ratio(name, CONTRACT)
    return result


def _figure(name: str, folder: Path, few: Path, size: int) -> str:
    return f"{name}, batch of {size:,} events" if folder == few else name


def _handed(bench: Bench, spark: SparkSession, settings: Settings, key: str) -> Speed:
    return bench.to_nothing(open_stream(spark, settings).through(_dropped(), PACKED), key)


def _packed(bench: Bench, spark: SparkSession, settings: Settings, key: str) -> Speed:
    routes = {name: o.route for name, o in operators(settings, JOBS, in_stream=True).items()}
    pack = packer(routes, settings.shards, Limits(settings.max_future_ms))
    return bench.to_nothing(open_stream(spark, settings).through(_dropped(pack), PACKED), key)


def _dropped(pack: Callable[[Batches], Batches] | None = None) -> Callable[[Batches], Batches]:
    """A function for `mapInArrow` that reads what it is given, or what `pack` makes of it."""

    def drop(batches: Batches) -> Batches:
        settle()  # what Weir's workers are spared, the floor is spared
        for batch in pack(batches) if pack else batches:
            yield batch.slice(0, 0) if pack else _NOTHING

    return drop


_NOTHING = pa.record_batch(
    [pa.array([], kind) for kind in (pa.string(), pa.int32(), pa.timestamp("us", "UTC"),
                                     pa.binary())],
    ["job", "shard", "ts", "blob"],
)


@dataclass(frozen=True)
class Silent:
    """The core of a job that keeps a state and judges nothing."""

    name: str

    def step(self, state: bytes | None, blobs: Sequence[bytes], stream_ms: int) -> Step:
        """The state as it is."""
        return Step(state or b"state")


def _silent(bench: Bench, spark: SparkSession, settings: Settings, key: str) -> Speed:
    def without_rules(*args: Any, **more: Any) -> dict[str, Operator]:
        return {
            name: replace(one, job=Silent(one.job.name))
            for name, one in operators(*args, **more).items()
        }

    with mock.patch.object(govern, "operators", without_rules):
        return finished(govern.start(spark, settings, JOBS, END))


def _all(bench: Bench, spark: SparkSession, settings: Settings, key: str) -> Speed:
    return finished(govern.start(spark, settings, JOBS, END))


LAYERS = {HANDED: _handed, PACKED_ONLY: _packed, SILENT: _silent, ALL: _all}
