"""All jobs together on the demo's fleet, against Spark's own parsing of the same records.

One query judges all jobs and commits their tables; beside its speed stands the CPU that each kind
of process took per event. Floors before and after the figures, in the same session.
"""

from __future__ import annotations

import os
import time
from typing import Any

import psutil

from app.generate.scenario import load_scenario
from app.generate.trace import plan_trace
from app.generate.write import write_files
from app.stream import archive, govern
from state.jobs import JOBS
from tests.bench import floors
from tests.bench.result import Result, middle
from tests.bench.stream import END, Bench, Speed, finished
from tests.bench.trace import COLUMNS
from tests.servers.kafka import Kafka

CONTRACT = "parse floor, whole contract"
CARRIED = "parse floor, columns carried"
FILES_PER_BATCH, BATCHES = 6, 10
TOPIC, PARTITIONS = "events", 4


def run(bench: Bench) -> Result:
    """From JSON lines, with the archive beside it, in small batches, and from Kafka."""
    events = 25_000 if bench.small else 2_000_000
    folder = bench.folder / "all-jobs-trace"
    trace = plan_trace(load_scenario("demo"), events, 7)
    written = write_files(trace, folder)
    result = Result("govern-all", written.events, bench.small)
    lines = bench.spark.readStream.option("maxFilesPerTrigger", FILES_PER_BATCH).text(str(folder))

    def floor(columns: tuple[str, ...] | None) -> Speed:
        return bench.to_nothing(floors.parsed(lines, columns), "floor-all-jobs")

    wide, narrow = [floor(None)], [floor(COLUMNS)]
    source = {"format": "files", "path": str(folder),
              "options": {"maxFilesPerTrigger": str(FILES_PER_BATCH)}}
    settings = bench.settings("all-jobs", source, policies=trace.policies)
    with Cpu() as cpu:
        ours = finished(govern.start(bench.spark, settings, JOBS, END))
    wide.append(floor(None))
    narrow.append(floor(COLUMNS))
    both = _with_archive(bench, source, trace.policies)
    wide.append(floor(None))
    kafka, kafka_floor = _from_kafka(bench, trace)
    for name, speeds in ((CONTRACT, wide), (CARRIED, narrow)):
        value, spread = middle([s.median for s in speeds])
        result.add(name, value, spread=spread)
    result.add("five jobs from JSON lines", ours.median, spread=ours.spread)
    result.add("batch of five jobs", ours.batch_ms, "ms")
    for kind, seconds in cpu.seconds.items():
        result.add(f"CPU of {kind}", 1e6 * seconds / written.events, "µs per event",
                   note="start of the query included")
    result.add("five jobs and the archive", both)
    result.add("parse floor from Kafka, whole contract", kafka_floor.median,
               spread=kafka_floor.spread)
    result.add("five jobs from Kafka", kafka.median, spread=kafka.spread)
    result.ratio("five jobs from JSON lines", CONTRACT, 0.85)
    result.ratio("five jobs from JSON lines", CARRIED, 0.70)
    result.ratio("five jobs and the archive", CONTRACT, 0.50)
    result.ratio("five jobs from Kafka", "parse floor from Kafka, whole contract", 0.85)
    return result


def small_batches(bench: Bench) -> Result:
    """What a micro-batch of 5,000 events takes: all jobs, and rate_limits alone."""
    size, batches = (4_000, 5) if bench.small else (5_000, 30)
    folder = bench.folder / "small-batches-trace"
    trace = plan_trace(load_scenario("demo"), size * batches, 7)
    folder.mkdir(parents=True)
    rows = [line for part in trace.slices() for line in part.lines()]
    for number in range(batches):
        part = rows[number * size : (number + 1) * size]
        (folder / f"part-{number:04d}.json").write_bytes(b"\n".join(part) + b"\n")
        moment = time.time() - 10 * (batches - number)
        os.utime(folder / f"part-{number:04d}.json", (moment, moment))
    result = Result("small-batches", len(rows), bench.small)
    source = {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "1"}}
    wanted = {"five jobs": (JOBS, 450), "rate_limits alone": (("rate_limits",), 350)}
    for name, (jobs, most) in wanted.items():
        settings = bench.settings(f"small-{len(jobs)}", source, policies=trace.policies)
        with Cpu() as cpu:
            speed = finished(govern.start(bench.spark, settings, jobs, END))
        result.add(f"batch of {size:,} events, {name}", speed.batch_ms, "ms")
        steps = middle([p["durationMs"]["addBatch"] for p in speed.progress])[0]
        result.add(f"of it inside Spark's batch, {name}", steps, "ms")
        for kind, seconds in cpu.seconds.items():
            result.add(f"CPU of {kind} a batch, {name}", 1000 * seconds / batches, "ms")
        result.add(f"wanted at most, {name}", most, "ms")
        result.ratio(f"batch of {size:,} events, {name}", f"wanted at most, {name}", 1)
    return result


def _with_archive(bench: Bench, source: dict[str, Any], policies: list[dict[str, Any]]) -> float:
    """Records per second through all jobs and the archive, side by side, first batches apart."""
    from tests.bench.end_to_end import together

    settings = bench.settings("all-jobs-archive", source, policies=policies)
    return together(
        govern.start(bench.spark, settings, JOBS, END), archive.start(bench.spark, settings, END)
    )


def _from_kafka(bench: Bench, trace: Any) -> tuple[Speed, Speed]:
    """All jobs from a real broker, and Spark's parsing of the same topic."""
    broker = Kafka(bench.folder / "kafka-all-jobs")
    broker.start()
    try:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.produce_to(TOPIC, (
            (number % PARTITIONS, line)
            for part in trace.slices() for number, line in enumerate(part.lines())
        ))
        options = {"kafka.bootstrap.servers": broker.servers, "subscribe": TOPIC,
                   "startingOffsets": "earliest",
                   "maxOffsetsPerTrigger": str(max(trace.events // BATCHES, 1))}
        raw = bench.spark.readStream.format("kafka").options(**options).load()
        floor = bench.to_nothing(floors.parsed(raw.select("value"), None), "floor-kafka")
        settings = bench.settings(
            "all-jobs-kafka", {"format": "kafka", "options": options}, policies=trace.policies,
            idle_advance_ms=600_000,
        )
        ours = finished(govern.start(bench.spark, settings, JOBS, END))
        return ours, floor
    finally:
        broker.stop()


class Cpu:
    """CPU seconds of this process's JVM, of its Python workers and of itself while it is open."""

    def __enter__(self) -> Cpu:
        self.seconds: dict[str, float] = {}
        self._before = _times()
        return self

    def __exit__(self, *_: object) -> None:
        after = _times()
        for kind in ("Python workers", "JVM", "driver"):
            self.seconds[kind] = after.get(kind, 0.0) - self._before.get(kind, 0.0)


def _times() -> dict[str, float]:
    """CPU seconds since they began, those of ended children included."""
    found: dict[str, float] = {}
    me = psutil.Process()
    own = me.cpu_times()
    found["driver"] = own.user + own.system
    for child in me.children(recursive=True):
        try:
            times = child.cpu_times()
            name = "JVM" if child.name().startswith("java") else "Python workers"
        except psutil.Error:
            continue
        used = times.user + times.system
        if name == "Python workers":
            used += times.children_user + times.children_system
        found[name] = found.get(name, 0.0) + used
    return found
