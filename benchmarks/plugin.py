"""What the broker plug-in costs a real broker: latency and throughput of publishes.

One client publishes entries of 100 bytes, unbatched: first one after the other, each when the last
is answered, then as many as the broker takes. The broker runs without the plug-in, with files as
its sink, with files of digests, and with a sink that is dead from the start, so that its buffer
fills and drops. Client, broker and bookie share the machine. The volume is that of the files, as
text and as they are: nobody reads, so an entry has two records.
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
WITHOUT, FILES, DIGEST, DEAD = "without", "with files", "with a digest", "with a dead sink"
WRITING = (FILES, DIGEST)


def run(bench: Bench) -> Result:
    """Each kind of broker in turn, three times."""
    single, burst = (200, 2_000) if bench.small else (3_000, 50_000)
    result = Result("plugin", single + burst, bench.small)
    broker = Pulsar(bench.folder / "pulsar")
    found: dict[str, list[tuple[float, float, float]]] = {}
    volumes: dict[str, list[tuple[float, float]]] = {}
    try:
        for turn in range(1 if bench.small else REPEATS):
            for name in (WITHOUT, FILES, DIGEST, DEAD):
                records = bench.folder / f"records-{turn}-{name}"
                begin(broker, records, name)
                found.setdefault(name, []).append(measured(broker, single, burst))
                if name in WRITING:
                    broker.stop()
                    volumes.setdefault(name, []).append(volume(records, entries(single, burst)))
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
    for name, sizes in volumes.items():
        for figure, values in zip(("text", "file"), zip(*sizes, strict=True), strict=True):
            value, spread = middle(values)
            result.add(f"volume of {figure}, {name}", value, "B/entry", spread)
    for figure in ("text", "file"):
        result.ratio(f"volume of {figure}, {DIGEST}", f"volume of {figure}, {FILES}")
    for name in list(found)[1:]:
        for figure in ("publish p50", "publish p99", "throughput"):
            result.ratio(f"{figure}, {name}", f"{figure}, {WITHOUT}")
    return result


def begin(broker: Pulsar, records: Path, name: str) -> None:
    """Start the broker anew in one of the four ways."""
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
    more = {DEAD: dead, DIGEST: {"weirDigestMillis": "1000"}}.get(name, {})
    defaults = {"weirFileMillis": "5000", "weirWatchMillis": "1000"}
    pulsar_plugin.start(broker, records, **{**defaults, **more})


def measured(broker: Pulsar, single: int, burst: int) -> tuple[float, float, float]:
    """Latency p50 and p99 (ms) of single publishes, and entries per second of many at once."""
    with pulsar_plugin.connected(broker) as client:
        producer = client.create_producer(
            TOPIC, batching_enabled=False, block_if_queue_full=True, max_pending_messages=900
        )
        flood(producer, first(burst))  # what a JVM compiles first
        latencies = []
        for _ in range(single):
            began = time.perf_counter()
            producer.send(PAYLOAD)
            latencies.append(1000 * (time.perf_counter() - began))
        rate = flood(producer, burst)
    return float(np.percentile(latencies, 50)), float(np.percentile(latencies, 99)), rate


def first(burst: int) -> int:
    """Entries before those that are measured."""
    return burst // 5


def entries(single: int, burst: int) -> int:
    """Entries that one broker gets."""
    return first(burst) + single + burst


def volume(records: Path, count: int) -> tuple[float, float]:
    """Bytes of each entry: of its records, and of the files."""
    text = sum(len(line) + 1 for line in pulsar_plugin.lines(records))
    return text / count, sum(f.stat().st_size for f in records.glob("*.ndjson.gz")) / count


def flood(producer: pulsar_plugin.client.Producer, count: int) -> float:
    """Publish as fast as the broker answers; entries per second."""
    began = time.perf_counter()
    for _ in range(count):
        producer.send_async(PAYLOAD, None)
    producer.flush()
    return count / (time.perf_counter() - began)
