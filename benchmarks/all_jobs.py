"""All jobs together on the demo's fleet, against Spark's own parsing of the same records.

One query judges all jobs and commits their tables; beside its speed stands the CPU that each kind
of process took per event. Floors before and after the figures, in the same session.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from app.engine import archive_query, govern
from benchmarks import floors
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import Trace, plan_trace
from benchmarks.generator.write import write_files
from benchmarks.result import Result, middle
from benchmarks.stream import END, Bench, Speed, after_first, finished
from benchmarks.trace import COLUMNS
from state.jobs import BY_DEFAULT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

CONTRACT = "parse floor, whole contract"
CARRIED = "parse floor, columns carried"
JOBS_ALONE, KAFKA_FLOOR = "five jobs from JSON lines", "parse floor from Kafka, whole contract"
SIX, CLIENTS = "six jobs from JSON lines", "client_quotas from JSON lines"
KAFKA, KAFKA_BOTH = "five jobs from Kafka", "five jobs and the archive from Kafka"
FILES, BATCHES, SMALL_BATCHES = 60, 10, 3
TOPIC, PARTITIONS = "all-jobs", 4


@dataclass(frozen=True)
class Demo:
    """The demo's trace in files of JSON lines, and how many of them are a batch."""

    trace: Trace
    folder: Path
    events: int
    files_per_batch: int

    @classmethod
    def written(cls, folder: Path, events: int, batches: int = BATCHES) -> Demo:
        """As the generator writes it, in large batches."""
        trace = plan_trace(load_scenario("demo"), events, 7)
        return cls(trace, folder, write_files(trace, folder).events, FILES // batches)

    @classmethod
    def in_batches(cls, folder: Path, size: int, batches: int) -> Demo:
        """In files of `size` records, their times in the order of their names; each is a batch."""
        trace = plan_trace(load_scenario("demo"), size * batches, 7)
        folder.mkdir(parents=True)
        rows = [line for part in trace.slices() for line in part.lines()]
        for number in range(batches):
            part = rows[number * size : (number + 1) * size]
            (folder / f"part-{number:04d}.json").write_bytes(b"\n".join(part) + b"\n")
            moment = time.time() - 10 * (batches - number)
            os.utime(folder / f"part-{number:04d}.json", (moment, moment))
        return cls(trace, folder, size * batches, 1)

    @property
    def source(self) -> dict[str, Any]:
        """The files as a source of settings."""
        return {
            "format": "files",
            "path": str(self.folder),
            "options": {"maxFilesPerTrigger": str(self.files_per_batch)},
        }

    @property
    def policies(self) -> list[dict[str, Any]]:
        """The policies of the trace."""
        return self.trace.policies

    def lines(self, bench: Bench) -> DataFrame:
        """The files as Spark reads text."""
        reader = bench.spark.readStream.option("maxFilesPerTrigger", self.files_per_batch)
        return reader.text(str(self.folder))


def run(bench: Bench) -> Result:
    """From JSON lines and from Kafka, each with and without the archive; floors and figures in turn.

    Each is run several times, so that the first run, in which a JVM compiles itself, decides
    neither the floors nor the figures.
    """
    events, rounds, batches = (20_000, 1, SMALL_BATCHES) if bench.small else (2_000_000, 3, BATCHES)
    demo = Demo.written(bench.folder / "all-jobs-trace", events, batches)
    result = Result("govern-all", demo.events, bench.small)
    lines, source, policies = demo.lines(bench), demo.source, demo.policies
    found: dict[str, list[Speed]] = {
        CONTRACT: [],
        CARRIED: [],
        JOBS_ALONE: [],
    }
    used: list[dict[str, float]] = []
    both = []
    for number in range(rounds):
        for name, columns in ((CONTRACT, None), (CARRIED, COLUMNS)):
            speed = bench.to_nothing(floors.parsed(lines, columns), f"floor-{number}-{name[:3]}")
            found[name].append(speed)
        settings = bench.settings(f"all-jobs-{number}", source, policies=policies)
        speed, cpu_s = _with_cpu(govern.start(bench.spark, settings, BY_DEFAULT, END))
        found[JOBS_ALONE].append(speed)
        events = sum(p["events"] for p in speed.progress)
        used.append({kind: 1e6 * seconds / events for kind, seconds in cpu_s.items()})
        both.append(_with_archive(bench, source, policies))
    for name, speeds in found.items():
        value, spread = middle([s.median for s in speeds])
        result.add(name, value, spread=spread)
    result.add("batch of five jobs", middle([s.batch_ms for s in found[JOBS_ALONE]])[0], "ms")
    for kind in used[0]:
        value, spread = middle([u[kind] for u in used])
        result.add(f"CPU of {kind}", value, "µs per event", spread, "after the first batch")
    value, spread = middle(both)
    result.add("five jobs and the archive", value, spread=spread)
    for name, speeds in _from_kafka(bench, demo.trace, rounds, batches).items():
        value, spread = middle([s.median for s in speeds])
        result.add(name, value, spread=spread)
    result.ratio(JOBS_ALONE, CONTRACT)
    result.ratio(JOBS_ALONE, CARRIED)
    result.ratio("five jobs and the archive", CONTRACT)
    result.ratio(KAFKA, KAFKA_FLOOR)
    result.ratio(KAFKA_BOTH, KAFKA_FLOOR)
    return result


def six(bench: Bench) -> Result:
    """Five jobs, six, and `client_quotas` alone, with a floor before each; in turn, several times."""
    events, rounds, batches = (20_000, 1, SMALL_BATCHES) if bench.small else (2_000_000, 3, BATCHES)
    demo = Demo.written(bench.folder / "six-jobs-trace", events, batches)
    result = Result("six-jobs", demo.events, bench.small)
    groups = {JOBS_ALONE: BY_DEFAULT, SIX: demo.trace.jobs, CLIENTS: ("client_quotas",)}
    found: dict[str, list[Speed]] = {CONTRACT: [], **{name: [] for name in groups}}
    lines = demo.lines(bench)
    for number in range(rounds):
        for name, jobs in groups.items():
            at = f"six-jobs-{len(jobs)}-{number}"
            found[CONTRACT].append(bench.to_nothing(floors.parsed(lines, None), f"floor-{at}"))
            settings = bench.settings(at, demo.source, policies=demo.policies)
            found[name].append(finished(govern.start(bench.spark, settings, jobs, END)))
    for name, speeds in found.items():
        value, spread = middle([s.median for s in speeds])
        result.add(name, value, spread=spread)
    result.ratio(JOBS_ALONE, CONTRACT)
    result.ratio(SIX, CONTRACT)
    result.ratio(CLIENTS, CONTRACT)
    return result


def small_batches(bench: Bench) -> Result:
    """What a micro-batch of 5,000 events takes: all jobs, and rate_limits alone.

    Each is run twice, and the second run counts: in the first a JVM compiles itself.
    """
    size, batches = (6_000, 3) if bench.small else (5_000, 60)
    folder = bench.folder / "small-batches-trace"
    demo = Demo.in_batches(folder, size, batches)
    result = Result("small-batches", size * batches, bench.small)
    for name, jobs in (("five jobs", BY_DEFAULT), ("rate_limits alone", ("rate_limits",))):
        for number in range(1 if bench.small else 2):
            settings = bench.settings(
                f"small-{len(jobs)}-{number}", demo.source, policies=demo.policies
            )
            speed, cpu_s = _with_cpu(govern.start(bench.spark, settings, jobs, END))
        result.add(f"batch of {size:,} events, {name}", speed.batch_ms, "ms")
        steps = middle([p["durationMs"]["addBatch"] for p in speed.progress])[0]
        result.add(f"of it inside Spark's batch, {name}", steps, "ms")
        for kind, seconds in cpu_s.items():
            result.add(f"CPU of {kind} a batch, {name}", 1000 * seconds / speed.batches, "ms")
    return result


def _with_archive(bench: Bench, source: dict[str, Any], policies: list[dict[str, Any]]) -> float:
    """Records per second through all jobs and the archive that they carry, the first batch apart."""
    from benchmarks.end_to_end import after_first_batch

    settings = bench.settings("all-jobs-archive", source, policies=policies)
    archive = archive_query.writer_of(settings, gathers=False)
    return after_first_batch(
        govern.start(
            bench.spark, settings, BY_DEFAULT, END, writers=govern.Writers(archive=archive)
        )
    )


def _from_kafka(bench: Bench, trace: Any, rounds: int, batches: int) -> dict[str, list[Speed]]:
    """All jobs from a real broker, with and without the archive, and Spark's parsing of the same
    topic.
    """
    found: dict[str, list[Speed]] = {KAFKA_FLOOR: [], KAFKA: [], KAFKA_BOTH: []}
    with bench.broker("kafka-all-jobs") as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.produce_to(
            TOPIC,
            (
                (number % PARTITIONS, line)
                for part in trace.slices()
                for number, line in enumerate(part.lines())
            ),
        )
        options = {
            "kafka.bootstrap.servers": broker.servers,
            "subscribe": TOPIC,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(max(trace.events // batches, 1)),
        }
        for number in range(rounds):
            raw = bench.spark.readStream.format("kafka").options(**options).load()
            parsed = floors.parsed(raw.select("value"), None)
            found[KAFKA_FLOOR].append(bench.to_nothing(parsed, f"floor-kafka-{number}"))
            for name in (KAFKA, KAFKA_BOTH):
                settings = bench.settings(
                    f"all-jobs-kafka-{number}",
                    {"format": "kafka", "options": options},
                    policies=trace.policies,
                    idle_advance_ms=600_000,
                )
                writer = archive_query.writer_of
                archive = writer(settings, gathers=False) if name == KAFKA_BOTH else None
                query = govern.start(
                    bench.spark, settings, BY_DEFAULT, END, writers=govern.Writers(archive=archive)
                )
                found[name].append(finished(query))
    return found


def _with_cpu(query: StreamingQuery) -> tuple[Speed, dict[str, float]]:
    """The speed of a query, and CPU seconds by kind of process; both without its first batch."""
    after_first(query)
    with Cpu() as cpu:
        speed = finished(query)
    return speed, cpu.seconds


class Cpu:
    """CPU seconds of this process's JVM, of its Python workers and of itself while it is open.

    Those of a process that ends meanwhile are not known; Spark ends workers that rest.
    """

    def __enter__(self) -> Cpu:
        self.seconds = dict.fromkeys(("Python workers", "JVM", "driver"), 0.0)
        self._before = _times()
        return self

    def __exit__(self, *_: object) -> None:
        for (kind, process), seconds in _times().items():
            self.seconds[kind] += seconds - self._before.get((kind, process), 0.0)


def _times() -> dict[tuple[str, psutil.Process], float]:
    """CPU seconds of each process since it began, those of its ended children included."""
    found: dict[tuple[str, psutil.Process], float] = {}
    me = psutil.Process()
    own = me.cpu_times()
    found["driver", me] = own.user + own.system
    for child in me.children(recursive=True):
        try:
            times = child.cpu_times()
            name = "JVM" if child.name().startswith("java") else "Python workers"
        except psutil.Error:
            continue
        used = times.user + times.system
        if name == "Python workers":
            used += times.children_user + times.children_system
        found[name, child] = used
    return found
