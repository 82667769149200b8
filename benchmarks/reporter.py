"""What the metrics reporter costs a real Kafka broker with a thousand client ids.

A producer sends records of 100 bytes one after the other, each when the last is answered, while the
broker has sensors of the produce and the request quota of 1,000 client ids. The reporter is switched
while the broker runs: without, with files, with a topic of the same broker, and with a sink that is
dead. The processor time is that of the broker while nobody sends: of all threads, and of the
reporter alone.
"""

from __future__ import annotations

import socket
import struct
import time
from pathlib import Path

import numpy as np
from confluent_kafka import Producer

from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from tests.support.servers import feeds, pulsar_plugin
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import free_ports

TOPIC, RATES = "bench", "rates"
PAYLOAD = b"x" * 100
REPEATS = 3
WITHOUT, FILES, OWN_TOPIC, DEAD = "without", "with files", "with a topic", "with a dead sink"
KINDS = (WITHOUT, FILES, OWN_TOPIC, DEAD)
HIGH = "producer_byte_rate=1000000000000,request_percentage=1000000"
PRODUCE, VERSION = 0, 3
THREADS = ("weir-", "kafka-producer-")
"""The beginnings of their names: the reporter's, and that of its Kafka producer."""


def run(bench: Bench) -> Result:
    """Each kind of reporter in turn, three times."""
    clients, sends, idle_s = (20, 100, 2) if bench.small else (1_000, 3_000, 10)
    result = Result("reporter", len(KINDS) * sends * REPEATS, bench.small)
    jar = feeds.built("kafka", "*.jar", feeds.KAFKA_VERSION, feeds.KAFKA_VERSION)
    broker = Kafka(bench.folder / "kafka", plugins=[jar])
    records = bench.folder / "rates"
    found: dict[str, list[tuple[float, float, float, float]]] = {kind: [] for kind in KINDS}
    broker.start()
    try:
        broker.create_topic(TOPIC)
        broker.create_topic(RATES)
        broker.configure("--entity-type", "clients", "--entity-default", "--add-config", HIGH)
        introduce(broker, clients)
        latencies(broker, sends)  # what a JVM compiles first
        for _ in range(1 if bench.small else REPEATS):
            for kind in KINDS:
                broker.change(settings(broker, kind, records))
                time.sleep(2)
                found[kind].append((*latencies(broker, sends), *used(broker.pid, idle_s)))
        broker.change(settings(broker, WITHOUT, records))
    finally:
        broker.stop()
    for kind, runs in found.items():
        p50, p99, all_threads, of_reporter = zip(*runs, strict=True)
        for figure, values, unit in (
            (f"produce p50, {kind}", p50, "ms"),
            (f"produce p99, {kind}", p99, "ms"),
            (f"processor time, {kind}", all_threads, "ms/s"),
            (f"processor time of its threads, {kind}", of_reporter, "ms/s"),
        ):
            value, spread = middle(values)
            result.add(figure, value, unit, spread)
    lines = list(pulsar_plugin.lines(records))
    packed = sum(file.stat().st_size for file in records.glob("*.ndjson.gz"))
    result.add("volume of text", sum(len(line) + 1 for line in lines) / len(lines), "B/record")
    result.add("volume of file", packed / len(lines), "B/record")
    for kind in KINDS[1:]:
        for figure in ("produce p50", "produce p99"):
            result.ratio(f"{figure}, {kind}", f"{figure}, {WITHOUT}")
    return result


def settings(broker: Kafka, kind: str, records: Path) -> dict[str, object]:
    """Settings of the broker by which the reporter is of a kind."""
    if kind == WITHOUT:
        return {"metric.reporters": ""}
    servers = f"127.0.0.1:{free_ports(1)[0]}" if kind == DEAD else broker.servers
    return {
        "metric.reporters": "weir.kafka.ClientQuotaReporter",
        "weir.directory": records,
        "weir.sink": "files" if kind == FILES else "kafka",
        "weir.topic": RATES,
        "weir.kafka.bootstrap.servers": servers,
    }


def introduce(broker: Kafka, clients: int) -> None:
    """Have the broker know so many client ids: by a produce request of each, without records."""
    host, _, port = broker.servers.partition(":")
    with socket.create_connection((host, int(port))) as connection:
        for number in range(clients):
            name = f"client-{number:04d}".encode()
            header = struct.pack(">hhih", PRODUCE, VERSION, number, len(name)) + name
            body = struct.pack(
                ">hhii", -1, 1, 1_000, 0
            )  # no transaction, acks, time-out, no topics
            connection.sendall(struct.pack(">i", len(header + body)) + header + body)
            (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
            assert connection.recv(size, socket.MSG_WAITALL)[:4] == struct.pack(">i", number)


def latencies(broker: Kafka, sends: int) -> tuple[float, float]:
    """Latency p50 and p99 (ms) of single records."""
    producer = Producer({"bootstrap.servers": broker.servers, "client.id": "bench", "linger.ms": 0})
    taken: list[float] = []
    began = 0.0

    def answered(error: object, _: object) -> None:
        assert error is None
        taken.append(1000 * (time.perf_counter() - began))

    for _ in range(sends):
        began = time.perf_counter()
        producer.produce(TOPIC, PAYLOAD, on_delivery=answered)
        producer.flush()
    assert len(taken) == sends
    return float(np.percentile(taken, 50)), float(np.percentile(taken, 99))


def used(pid: int, seconds: int) -> tuple[float, float]:
    """Processor time (ms) of each second: of a process, and of the reporter's threads in it."""
    before = _used_ns(pid)
    time.sleep(seconds)
    after = _used_ns(pid)
    total, of_reporter = (
        (now - then) / seconds / 1e6 for now, then in zip(after, before, strict=True)
    )
    return total, of_reporter


def _used_ns(pid: int) -> tuple[int, int]:
    total = of_reporter = 0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        try:
            spent = int((thread / "schedstat").read_text().split()[0])
            name = (thread / "comm").read_text()
        except OSError:
            continue  # it has ended
        total += spent
        of_reporter += spent if name.startswith(THREADS) else 0
    return total, of_reporter
