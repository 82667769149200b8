"""What the broker plug-in costs a real broker: latency and throughput of publishes.

One client publishes entries of 100 bytes, unbatched: first one after the other, each when the last
is answered, then as many as the broker takes. The broker runs without the plug-in, with files as
its sink, and with a sink that is dead from the start, so that its buffer fills and drops. Client,
broker and bookie share the machine.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from tests.support.servers import pulsar_plugin
from tests.support.servers.process import free_ports
from tests.support.servers.pulsar import Pulsar

TOPIC = "persistent://public/default/bench"
PAYLOAD = b"x" * 100
REPEATS = 3
WITHOUT = "without"


def run(bench: Bench) -> Result:
    """Each kind of broker in turn, three times."""
    single, burst = (200, 2_000) if bench.small else (3_000, 50_000)
    result = Result("plugin", single + burst, bench.small)
    broker = Pulsar(bench.folder / "pulsar")
    found: dict[str, list[tuple[float, float, float]]] = {}
    try:
        for _ in range(1 if bench.small else REPEATS):
            for name in (WITHOUT, "with files", "with a dead sink"):
                begin(broker, bench.folder / "records", name)
                found.setdefault(name, []).append(measured(broker, single, burst))
    finally:
        broker.stop()
    for name, runs in found.items():
        p50, p99, rate = zip(*runs, strict=True)
        for figure, values, unit in (
            (f"publish p50, {name}", p50, "ms"),
            (f"publish p99, {name}", p99, "ms"),
            (f"throughput, {name}", rate, "entries/s"),
        ):
            value, spread = middle(values)
            result.add(figure, value, unit, spread)
    for name in list(found)[1:]:
        for figure in ("publish p50", "publish p99", "throughput"):
            result.ratio(f"{figure}, {name}", f"{figure}, {WITHOUT}")
    return result


def begin(broker: Pulsar, records: Path, name: str) -> None:
    """Start the broker anew in one of the three ways."""
    broker.stop()
    if name == WITHOUT:
        broker.run_with(allowAutoTopicCreation="true", managedLedgerMaxEntriesPerLedger="50000")
        return
    dead = {
        "weirSink": "kafka",
        "weirTopic": "weir",
        "weirBufferEvents": "10000",
        "weirKafka.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
    }
    defaults = {"weirFileMillis": "5000", "weirWatchMillis": "1000"}
    pulsar_plugin.start(
        broker, records, **{**defaults, **(dead if name == "with a dead sink" else {})}
    )


def measured(broker: Pulsar, single: int, burst: int) -> tuple[float, float, float]:
    """Latency p50 and p99 (ms) of single publishes, and entries per second of many at once."""
    with pulsar_plugin.connected(broker) as client:
        producer = client.create_producer(
            TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=900
        )
        flood(producer, burst // 5)  # what a JVM compiles first
        latencies = []
        for _ in range(single):
            began = time.perf_counter()
            producer.send(PAYLOAD)
            latencies.append(1000 * (time.perf_counter() - began))
        rate = flood(producer, burst)
    return float(np.percentile(latencies, 50)), float(np.percentile(latencies, 99)), rate


def flood(producer: pulsar_plugin.client.Producer, count: int) -> float:
    """Publish as fast as the broker answers; entries per second."""
    began = time.perf_counter()
    for _ in range(count):
        producer.send_async(PAYLOAD, None)
    producer.flush()
    return count / (time.perf_counter() - began)
