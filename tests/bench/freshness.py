"""How old a committed row is: events from a real Kafka broker, archive beside govern.

A process of its own produces records stamped with the time at which they are sent, at a constant
rate; age = commit time of the row's Delta version less its `ts_wall_ms`. The allowed lateness is
waited for by intent and taken off. Measured on the marks of `throttle_events`, each caused by one
record.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.stream import archive, govern
from tests.bench.result import Result
from tests.bench.stream import Bench, open_session
from tests.servers.kafka import Kafka

TOPIC, PARTITIONS, RATE = "events", 4, 5_000
LIMIT = {"scope": "broker", "name": "*", "limits": {"maxPublishRatePerTopicInMessages": 20}}


def run(bench: Bench) -> Result:
    """Warm up, produce, stop, read the ages from the log of the table."""
    warm_s, measured_s = (15, 10) if bench.small else (45, 60)
    result = Result("freshness", RATE * measured_s, bench.small)
    spark = bench.spark or open_session()
    broker = Kafka(bench.folder / "kafka")
    broker.start()
    try:
        broker.create_topic(TOPIC, PARTITIONS)
        source = {"format": "kafka", "options": {
            "kafka.bootstrap.servers": broker.servers, "subscribe": TOPIC,
        }}
        settings = bench.settings("freshness", source, policies=[LIMIT])
        queries = [govern.start(spark, settings, ["rate_limits"]), archive.start(spark, settings)]
        produced = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.produce", broker.servers, TOPIC, str(RATE),
             str(warm_s + measured_s)], stdout=subprocess.PIPE, text=True,
        )
        time.sleep(warm_s)
        since = time.time() * 1000
        sent, _ = produced.communicate(timeout=warm_s + measured_s + 60)
        until = time.time() * 1000
        time.sleep(3)
        seen = [p for p in queries[0].recentProgress if p["numInputRows"]]
        for query in queries:
            query.stop()
    finally:
        broker.stop()
        if bench.spark is None:
            spark.stop()
    lateness = settings.allowed_lateness_ms
    for name in ("throttle_events", "events"):
        wait = lateness if name == "throttle_events" else 0
        ages = committed_ages(Path(settings.warehouse) / name, since, until) - wait
        for share in (0.5, 0.95):
            result.add(f"age of {name}, p{share * 100:.0f}", float(np.quantile(ages, share)), "ms",
                       note=f"{len(ages):,} rows; {wait} ms of lateness taken off")
    result.add("produced", float(sent.split()[0]) / (warm_s + measured_s))
    batches = [p["durationMs"]["triggerExecution"] for p in seen[len(seen) // 2 :]]
    result.add("batch of govern", float(np.median(batches)), "ms")
    result.add("age wanted at most", 1500, "ms")
    result.ratio("age of throttle_events, p95", "age wanted at most")
    return result


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


