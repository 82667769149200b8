"""How old a committed row is: the demo's fleet at 5,000 events/s from a real Kafka broker.

A process of its own produces the trace as if it ran now (`benchmarks.produce`); age = commit time
of the row's Delta version less its `ts_wall_ms`. The allowed lateness is waited for by intent and
taken off. Measured on the marks of `throttle_events`, each caused by one record: all jobs with the
archive beside them, then `rate_limits` alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.engine import archive_query, govern
from benchmarks.produce import demo
from benchmarks.result import Result
from benchmarks.stream import Bench, open_session
from state.jobs import JOBS
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS, RATE, SMALL_RATE = 4, 5_000, 2_000
LIMIT = {"scope": "broker", "name": "*", "limits": {"maxPublishRatePerTopicInMessages": 20}}
"""Busy topics break it all the time; those of the demo are broken only in its incidents."""
KEPT = ("user", "topic")
"""Scopes of the demo's own documents that hold beside it: quotas of users and on backlogs."""
ALL, ALONE = "five jobs and the archive", "rate_limits alone"


def run(bench: Bench) -> Result:
    """Both, one after the other, each from a topic of its own."""
    result = Result("freshness", 0, bench.small)
    spark = bench.spark or open_session()
    try:
        with bench.broker("kafka") as broker:
            for name, jobs in ((ALL, JOBS), (ALONE, ("rate_limits",))):
                _measure(bench, spark, broker, name, jobs, result)
    finally:
        if bench.spark is None:
            spark.stop()
    return result


def _measure(
    bench: Bench,
    spark: SparkSession,
    broker: Kafka,
    name: str,
    jobs: Sequence[str],
    result: Result,
) -> None:
    """Warm up, produce, stop, read the ages from the log of the tables."""
    warm_s, measured_s, rate = (2, 5, SMALL_RATE) if bench.small else (45, 60, RATE)
    topic = f"freshness-{len(jobs)}"
    broker.create_topic(topic, PARTITIONS)
    source = {
        "format": "kafka",
        "options": {
            "kafka.bootstrap.servers": broker.servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
        },
    }
    policies = [LIMIT, *(p for p in demo(rate).policies if p["scope"] in KEPT)]
    settings = bench.settings(f"freshness-{len(jobs)}", source, policies=policies)
    archive = archive_query.writer_of(settings, gathers=False) if name == ALL else None
    query = govern.start(spark, settings, jobs, writers=govern.Writers(archive=archive))
    produced = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "benchmarks.produce",
            broker.servers,
            topic,
            str(rate),
            str(warm_s + measured_s),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert produced.stdout is not None
        since = int(produced.stdout.readline()) + 1000 * warm_s
        sent = int(produced.communicate(timeout=warm_s + measured_s + 60)[0])
        until = time.time() * 1000
        query.processAllAvailable()
        seen = [p for p in query.recentProgress if p["numInputRows"]]
    finally:
        produced.kill()
        query.stop()
    result.events += sent
    tables = {"throttle_events": settings.allowed_lateness_ms}
    if name == ALL:
        tables["events"] = 0
    for table, wait in tables.items():
        ages = committed_ages(Path(settings.warehouse) / table, since, until) - wait
        for share in (50, 95):
            result.add(
                f"{name}: age of {table}, p{share}",
                float(np.percentile(ages, share)),
                "ms",
                note=f"{len(ages):,} rows; {wait} ms of lateness taken off",
            )
    result.add(f"{name}: produced", sent / (warm_s + measured_s))
    batches = [p["durationMs"]["triggerExecution"] for p in seen[len(seen) // 2 :]]
    result.add(f"{name}: batch of govern", float(np.median(batches)), "ms")


def committed_ages(table: Path, since: float, until: float) -> Any:
    """Age (ms) when they were committed of the rows of events in [since, until)."""
    found = []
    for log in sorted((table / "_delta_log").glob("*.json")):
        committed = log.stat().st_mtime * 1000
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added is None:
                continue
            path = table / added["path"]
            columns = [c for c in ("ts_wall_ms", "action") if c in pq.read_schema(path).names]
            rows = pq.ParquetFile(path).read(columns=columns)
            if "action" in columns:
                rows = rows.filter(pc.equal(rows["action"], pa.scalar("mark")))
            wall = rows["ts_wall_ms"].to_numpy()
            found.append(committed - wall[(wall >= since) & (wall < until)])
    return np.concatenate(found)
