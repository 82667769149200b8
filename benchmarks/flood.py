"""A flood that waits in Kafka: `run` with its defaults and a driver of 2 GB catches up.

Four partitions, two of which hold 93 % of the records; a process of its own, as an installed Weir
starts it.
Once as it comes, and once with everything planned as one micro-batch, as a version without a bound
would have left it in the checkpoint. The floor is what Spark needs to read and parse the topic.
`shapes` has floods that are hard for another reason than their length.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from deltalake import DeltaTable

from app.tables import checkpoints
from benchmarks.floors import parsed
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.result import Result
from benchmarks.stream import Bench, open_session
from benchmarks.trace import POLICY, Traffic
from tests.support.servers.kafka import Kafka

ROOT = Path(__file__).resolve().parents[1]
FLOOR = "floor: from_json of the topic, whole contract"
TOPIC, SHARES = "flood", (465, 465, 35, 35)
TIMEOUT_S = 1800
LARGE, LARGE_BYTES, MOST_BYTES = "one record of 100 MB", 100_000_000, 200_000_000
OF_BENCH = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR")
START = "import sys; from app.setup.launch.installed import main; sys.exit(main())"
STEADY = "after the first batch, all jobs and the archive"
QUERY = "govern"
"""It carries the archive."""


def run(bench: Bench) -> Result:
    """Fill the topic, then catch up twice, of a small run once."""
    events = 20_000 if bench.small else 5_000_000
    ways = (
        {"as it comes": {}}
        if bench.small
        else {
            "as it comes": {},
            "planned as one": {"maxOffsetsPerTrigger": "1000000000"},
        }
    )
    result = Result("flood", events, bench.small)
    with bench.broker("kafka-flood") as broker:
        broker.create_topic(TOPIC, len(SHARES))
        trace = plan_trace(load_scenario("demo"), events, 7)
        places = [p for p, share in enumerate(SHARES) for _ in range(share)]
        broker.produce_to(
            TOPIC,
            (
                (places[number % len(places)], line)
                for part in trace.slices()
                for number, line in enumerate(part.lines())
            ),
        )
        for name, options in ways.items():
            _catch_up(bench, result, broker, name, options, result.events)
        result.add(FLOOR, result.events / _parsed_by_spark(bench, broker.servers))
    for name in ways:
        result.ratio(f"{name}: caught up, all jobs and the archive", FLOOR)
    return result


def _parsed_by_spark(bench: Bench, servers: str) -> float:
    """Seconds in which Spark alone reads the topic and parses its records, and keeps nothing."""
    spark = bench.spark or open_session()
    began = time.monotonic()
    raw = (
        spark.read.format("kafka")
        .options(
            **{
                "kafka.bootstrap.servers": servers,
                "subscribe": TOPIC,
            }
        )
        .load()
    )
    parsed(raw, None).write.format("noop").mode("overwrite").save()
    took = time.monotonic() - began
    if bench.spark is None:
        spark.stop()
    return took


def shapes(bench: Bench) -> Result:
    """Most records of one broker, very many topics, only new topics, and one record of 100 MB."""
    result = Result("flood_shapes", 0, bench.small)
    scale = 100 if bench.small else 1
    # Six of ten records draw a topic of their own.
    floods = {
        "one broker has 90 %": (Traffic(hot=0.9), 500_000),
        "a million topics": (Traffic(topics=4_000_000 // scale, skew=0.0), 2_000_000),
        "100,000 new topics in a batch": (Traffic(topics=200_000 // scale, skew=0.0), 300_000),
        LARGE: (Traffic(), 200_000),
    }
    broker = Kafka(
        bench.folder / "kafka-shapes",
        {
            "message.max.bytes": MOST_BYTES,
            "socket.request.max.bytes": 2 * MOST_BYTES,
        },
    )
    broker.start()
    try:
        for name, (traffic, events) in floods.items():
            topic = f"events-{len(result.figures)}"
            broker.create_topic(topic, len(SHARES))
            count = broker.produce_to(topic, _by_broker(traffic, events // scale // 10))
            if name == LARGE:
                started = {"event_type": "broker_started", "broker": "x" * (LARGE_BYTES // scale)}
                broker.send(topic, [{"value": json.dumps(started).encode(), "partition": 0}])
            result.events += count
            _catch_up(bench, result, broker, name, {"subscribe": topic}, count, [POLICY])
    finally:
        broker.stop()
    return result


def _by_broker(traffic: Traffic, size: int) -> Iterator[tuple[int, bytes]]:
    """Records and their partitions: those of a broker are in one."""
    for part in traffic.parts(10, size):
        brokers = pa.array(sorted(pc.unique(part["broker"]).to_pylist()))
        numbers = pc.index_in(part["broker"], brokers).to_pylist()
        for number, line in zip(numbers, part["value"].to_pylist(), strict=True):
            yield number % len(SHARES), line


def _catch_up(
    bench: Bench,
    result: Result,
    broker: Kafka,
    name: str,
    options: dict[str, str],
    events: int,
    policies: Sequence[dict[str, Any]] = (),
) -> None:
    """One run to the end of the topic; its time, its batches and what its processes needed."""
    warehouse = bench.folder / f"flood-{result.name}-{len(result.figures)}"
    config = warehouse.with_suffix(".yaml")
    options = {"kafka.bootstrap.servers": broker.servers, "subscribe": TOPIC, **options}
    config.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(warehouse),
                "idle_advance_ms": 600_000,
                "policies": list(policies),
                "source": {"format": "kafka", "options": options},
            }
        )
    )
    environment = {k: v for k, v in os.environ.items() if k not in OF_BENCH}
    began = time.monotonic()
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            START,
            "--driver-memory",
            "2g",
            "run",
            "--config",
            str(config),
            "--available-now",
        ],
        env=environment,
        cwd=ROOT,
    )
    checkpoint = warehouse / checkpoints.FOLDER / QUERY
    used, first_s = Use(0, 0, 0.0), None
    while process.poll() is None and time.monotonic() - began < TIMEOUT_S:
        used = Use(*map(max, used, _used(process.pid)))
        if first_s is None and (checkpoint / "commits" / "0").exists():
            first_s = used.cpu_s
        time.sleep(0.5)
    took = time.monotonic() - began
    if process.poll() is None:
        process.terminate()
    assert process.wait(60) == 0, f"the run ended with {process.returncode}"
    archived = DeltaTable(str(warehouse / "events")).to_pyarrow_dataset().count_rows()
    result.add(
        f"{name}: caught up, all jobs and the archive",
        events / took,
        note=f"{archived:,} events archived, start of Spark included",
    )
    first, *rest = batches = _batches(checkpoint, options["subscribe"])
    if first_s is not None and rest:
        later = sum(batch.records for batch in rest)
        took = rest[-1].end_s - first.end_s
        result.add(f"{name}: {STEADY}", later / took, note="by the times of batches")
        result.add(
            f"{name}: CPU after the first batch",
            1e6 * (used.cpu_s - first_s) / later,
            "µs per event",
            note="the driver's JVM and all Python processes; without the broker",
        )
    result.add(f"{name}: largest micro-batch", max(b.records for b in batches), "records")
    result.add(f"{name}: longest micro-batch", max(b.end_s - b.begin_s for b in batches), "s")
    result.add(f"{name}: memory of the driver's JVM, at most", used.java_bytes / 1e9, "GB")
    result.add(f"{name}: memory of all Python processes, at most", used.python_bytes / 1e9, "GB")


class Batch(NamedTuple):
    """A micro-batch, by the logs of its checkpoint."""

    records: int
    begin_s: float
    end_s: float


def _batches(checkpoint: Path, topic: str) -> list[Batch]:
    """The micro-batches of a query that have read something."""
    batches, before = [], 0
    for number in sorted(
        int(f.name) for f in (checkpoint / "offsets").iterdir() if f.name.isdigit()
    ):
        begun, ended = (checkpoint / log / str(number) for log in ("offsets", "commits"))
        after = sum(json.loads(begun.read_text().splitlines()[-1])[topic].values())
        batches.append(Batch(after - before, begun.stat().st_mtime, ended.stat().st_mtime))
        before = after
    return [batch for batch in batches if batch.records]


class Use(NamedTuple):
    """Memory that the processes of a run hold, and CPU time that they have taken."""

    java_bytes: int
    python_bytes: int
    cpu_s: float


def _used(pid: int) -> Use:
    """What a run uses now; CPU time includes that of its ended Python processes."""
    java = python = 0
    cpu_s = 0.0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                held, times = process.memory_info().rss, process.cpu_times()
                if process.name().startswith("java"):
                    java += held
                elif process.name().startswith("python"):
                    python += held
                    cpu_s += times.children_user + times.children_system
                cpu_s += times.user + times.system
            except psutil.Error:
                continue
    except psutil.Error:
        pass
    return Use(java, python, cpu_s)
