"""A flood that waits in Kafka: `run` with its defaults and a driver of 2 GB catches up.

Four partitions, two of which hold 93 % of the records; a process of its own, as a user starts it.
Once as it comes, and once with everything planned as one micro-batch, as a version without a bound
would have left it in the checkpoint. The floor is what Spark needs to read and parse the topic.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import psutil
import yaml
from deltalake import DeltaTable

from app.generate.scenario import load_scenario
from app.generate.trace import plan_trace
from tests.bench.floors import parsed
from tests.bench.result import Result
from tests.bench.stream import Bench, open_session
from tests.servers.kafka import Kafka

ROOT = Path(__file__).resolve().parents[2]
FLOOR = "floor: from_json of the topic, whole contract"
TOPIC, SHARES = "events", (465, 465, 35, 35)
TIMEOUT_S = 1800
OF_BENCH = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_CONF_DIR", "WEIR_JARS")


def run(bench: Bench) -> Result:
    """Fill the topic, then catch up twice."""
    events = 60_000 if bench.small else 5_000_000
    result = Result("flood", events, bench.small)
    broker = Kafka(bench.folder / "kafka-flood")
    broker.start()
    try:
        broker.create_topic(TOPIC, len(SHARES))
        trace = plan_trace(load_scenario("demo"), events, 7)
        places = [p for p, share in enumerate(SHARES) for _ in range(share)]
        broker.produce_to(TOPIC, (
            (places[number % len(places)], line)
            for part in trace.slices() for number, line in enumerate(part.lines())
        ))
        for name, options in (("as it comes", {}), ("planned as one", {
            "maxOffsetsPerTrigger": "1000000000"
        })):
            _catch_up(bench, result, broker, name, options)
        result.add(FLOOR, result.events / _parsed_by_spark(bench, broker.servers))
    finally:
        broker.stop()
    for name in ("as it comes", "planned as one"):
        result.ratio(f"{name}: caught up, all jobs and the archive", FLOOR)
    return result


def _parsed_by_spark(bench: Bench, servers: str) -> float:
    """Seconds in which Spark alone reads the topic and parses its records, and keeps nothing."""
    spark = bench.spark or open_session()
    began = time.monotonic()
    raw = spark.read.format("kafka").options(**{
        "kafka.bootstrap.servers": servers, "subscribe": TOPIC,
    }).load()
    parsed(raw, None).write.format("noop").mode("overwrite").save()
    took = time.monotonic() - began
    if bench.spark is None:
        spark.stop()
    return took


def _catch_up(
    bench: Bench, result: Result, broker: Kafka, name: str, options: dict[str, str]
) -> None:
    """One run to the end of the topic; its time, its batches and what its processes needed."""
    warehouse = bench.folder / f"flood-{len(result.figures)}"
    config = warehouse.with_suffix(".yaml")
    config.write_text(yaml.safe_dump({
        "warehouse": str(warehouse), "idle_advance_ms": 600_000,
        "source": {"format": "kafka", "options": {
            "kafka.bootstrap.servers": broker.servers, "subscribe": TOPIC, **options,
        }},
    }))
    environment = {k: v for k, v in os.environ.items() if k not in OF_BENCH}
    began = time.monotonic()
    process = subprocess.Popen(
        [str(ROOT / "spark-submit.sh"), "--driver-memory", "2g", "run", "--config", str(config),
         "--available-now"], env=environment, cwd=ROOT,
    )
    driver = workers = 0
    while process.poll() is None and time.monotonic() - began < TIMEOUT_S:
        java, python = _resident(process.pid)
        driver, workers = max(driver, java), max(workers, python)
        time.sleep(0.5)
    took = time.monotonic() - began
    if process.poll() is None:
        process.terminate()
    assert process.wait(60) == 0, f"the run ended with {process.returncode}"
    commits = warehouse / "_weir" / "checkpoints" / "govern" / "offsets"
    batches = [file for file in commits.iterdir() if file.name.isdigit()]
    offsets = [
        sum(json.loads(file.read_text().splitlines()[-1])[TOPIC].values())
        for file in sorted(batches, key=lambda file: int(file.name))
    ]
    archived = DeltaTable(str(warehouse / "events")).to_pyarrow_dataset().count_rows()
    result.add(f"{name}: caught up, all jobs and the archive", result.events / took,
               note=f"{archived:,} events archived, start of Spark included")
    largest = max((b - a for a, b in zip([0, *offsets], offsets, strict=False)), default=0)
    result.add(f"{name}: largest micro-batch", largest, "records")
    result.add(f"{name}: memory of the driver's JVM, at most", driver / 1e9, "GB")
    result.add(f"{name}: memory of all Python processes, at most", workers / 1e9, "GB")


def _resident(pid: int) -> tuple[int, int]:
    """Bytes that the JVM and the Python processes of a run hold."""
    java = python = 0
    try:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            try:
                held = process.memory_info().rss
                if process.name().startswith("java"):
                    java += held
                elif process.name().startswith("python"):
                    python += held
            except psutil.Error:
                continue
    except psutil.Error:
        pass
    return java, python
