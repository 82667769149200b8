"""`python -m tests.support.recording.saturated [--broker] [--seconds N]`: producers that never stop.

Every producer has more to send than its limit lets through, so the broker pauses its connection
again and again. The folder gets `events.ndjson.gz`, what the plug-in wrote of them, and
`numbers.json`: what the broker counted, and who was limited by whose limit. With `--broker` two
connections meet the limit of the broker, else others those of topics, a namespace and a group.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.recording.limits import OF_BROKER, rate
from tests.support.recording.scene import Scene, name_of
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import VERSION, samples, with_telemetry
from tests.support.waiting import wait_for

COUNTED = "pulsar_broker_topic_publish_rate_limit_count_total"
"""The stats of a topic begin anew at each reading of the rates; this counter does not."""
RECORDINGS = Path(__file__).resolve().parents[2] / "data" / "recordings"
OUT, OUT_OF_BROKER = RECORDINGS / "saturated", RECORDINGS / "saturated-broker"
KINDS = frozenset(
    {
        "broker_started",
        "connection_opened",
        "connection_closed",
        "producer_created",
        "producer_closed",
        "publish",
        "entry_added",
        "reads_paused",
        "reads_resumed",
        "policy",
        "gap",
    }
)
COLUMNS = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_mono_ns",
    "ts_wall_ms",
    "cnx_id",
    "io_thread",
    "reports_pauses",
    "topic",
    "producer_id",
    "producer_name",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
    "policy_json",
    "gap_from_mono_ns",
    "dropped",
)
SENDER = """
import sys, threading, time, pulsar
url, seconds, topics = sys.argv[1], float(sys.argv[2]), sys.argv[3:]
one = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
end = time.monotonic() + seconds
def send(topic, pause):
    producer = one.create_producer(
        topic, batching_enabled=False, max_pending_messages=400, block_if_queue_full=True)
    while time.monotonic() < end:
        producer.send_async(b"x" * 20, None)
        if pause:
            time.sleep(pause)
    producer.flush()
threads = [threading.Thread(target=send, args=(t.lstrip("~"), 0.2 if t[0] == "~" else 0))
           for t in topics]
[t.start() for t in threads]
[t.join() for t in threads]
one.close()
"""
"""One connection: a topic with ~ is published to five times a second, others without end."""
HOT, *VICTIMS = (name_of("sat", name) for name in ("hot", "v1", "v2", "v3", "v4"))
SHARED = name_of("sat", "shared")
CHANGED = name_of("sat", "changed")
OF_NAMESPACE = [name_of("sat-ns", name) for name in ("a", "b")]
OF_GROUP = [name_of("sat-group-a", "a"), name_of("sat-group-b", "b")]
CROWD = [name_of("sat-crowd", name) for name in ("a", "b")]
BROKER_RATE = 300
GROUP = {
    "publishRateInMsgs": 120,
    "publishRateInBytes": 1_000_000,
    "dispatchRateInMsgs": 1_000_000,
    "dispatchRateInBytes": 100_000_000,
}


def prepare(scene: Scene) -> None:
    """Namespaces, topics and their limits."""
    for name in ("sat", "sat-ns", "sat-group-a", "sat-group-b", "sat-crowd"):
        scene.namespace(name)
    for topic in (HOT, *VICTIMS, SHARED, CHANGED, *OF_NAMESPACE, *OF_GROUP, *CROWD):
        scene.topic(topic)
    for topic, messages in ((HOT, 200), (SHARED, 150), (CHANGED, 100)):
        scene.set(topic, "publishRate", rate(messages))
    scene.pulsar.ask("POST", "namespaces/public/sat-ns/publishRate", rate(80))
    scene.pulsar.ask("PUT", "resourcegroups/sat", GROUP)
    wait_for(lambda: "sat" in scene.pulsar.ask("GET", "resourcegroups"))
    for name in ("sat-group-a", "sat-group-b"):
        scene.pulsar.ask("POST", f"namespaces/public/{name}/resourcegroup/sat")
    time.sleep(3)


def play(scene: Scene, seconds: float) -> None:
    """All connections at once; one limit changes twice meanwhile."""
    connections = (
        [HOT, *(f"~{topic}" for topic in VICTIMS)],
        [SHARED],
        [SHARED],
        [OF_NAMESPACE[0], OF_NAMESPACE[1]],
        [OF_GROUP[0]],
        [OF_GROUP[1]],
        [CHANGED, f"~{VICTIMS[0]}"],
    )
    with sending(scene, seconds, connections):
        for messages in (300, 60):
            time.sleep(seconds / 3)
            scene.set(CHANGED, "publishRate", rate(messages))
    time.sleep(3)


def crowd(scene: Scene, seconds: float) -> None:
    """Two connections at the broker's limit."""
    where = f"brokers/configuration/{OF_BROKER}"
    scene.pulsar.ask("POST", f"{where}/{BROKER_RATE}")
    with sending(scene, seconds, [[topic] for topic in CROWD]):
        pass
    scene.pulsar.ask("POST", f"{where}/0")
    time.sleep(3)


@contextmanager
def sending(scene: Scene, seconds: float, connections: Sequence[Sequence[str]]) -> Iterator[None]:
    """Producers on connections of their own; at the end they have all stopped."""
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", SENDER, scene.pulsar.service_url, str(seconds), *topics]
        )
        for topics in connections
    ]
    yield
    for sender in senders:
        assert sender.wait(timeout=seconds + 120) == 0


def pauses(changes: Iterable[tuple[str, int, bool]]) -> dict[str, tuple[int, int]]:
    """By connection the number of pauses and their time (ns)."""
    begun: dict[str, int] = {}
    found: dict[str, tuple[int, int]] = {}
    for cnx, at, paused in changes:
        count, ns = found.get(cnx, (0, 0))
        if paused and cnx not in begun:
            begun[cnx] = at
            found[cnx] = count + 1, ns
        elif not paused and cnx in begun:
            found[cnx] = count, ns + at - begun.pop(cnx)
    return found


def reported(records: Iterable[Mapping[str, Any]]) -> dict[str, tuple[int, int]]:
    """The same of what the plug-in wrote."""
    kinds = {"reads_paused": True, "reads_resumed": False, "connection_closed": False}
    return pauses(
        (r["cnx_id"], r["ts_mono_ns"], kinds[r["event_type"]])
        for r in records
        if r["event_type"] in kinds
    )


def kept(line: str) -> dict[str, Any] | None:
    """What a test needs of a record; None for a record that it does not need."""
    record = json.loads(line)
    if record["event_type"] not in KINDS:
        return None
    return {column: record[column] for column in COLUMNS if column in record}


def main() -> int:
    parser = argparse.ArgumentParser(
        "python -m tests.support.recording.saturated", description=__doc__
    )
    parser.add_argument("--broker", action="store_true")
    parser.add_argument("--seconds", type=float, default=12)
    asked = parser.parse_args()
    out, topics = (
        (OUT_OF_BROKER, CROWD)
        if asked.broker
        else (OUT, [HOT, *VICTIMS, SHARED, CHANGED, *OF_NAMESPACE, *OF_GROUP])
    )
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        broker, metrics = with_telemetry(folder / "broker")
        pulsar_plugin.start(
            broker, folder / "records", resourceUsageTransportPublishIntervalInSecs="600"
        )
        try:
            scene = Scene(broker, metrics)
            prepare(scene)
            (crowd if asked.broker else play)(scene, asked.seconds)
            counted = samples(scene.telemetry)
            limited = {
                topic: {
                    "limited_times": int(
                        sum(
                            value
                            for (name, labels), value in counted.items()
                            if name == COUNTED and ("pulsar_topic", topic) in labels
                        )
                    ),
                    "messages": scene.stats(topic)["msgInCounter"],
                }
                for topic in topics
            }
        finally:
            broker.stop()
        lines = pulsar_plugin.lines(folder / "records")
        records = [record for line in lines if (record := kept(line)) is not None]
    out.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(record, separators=(",", ":")) + "\n" for record in records)
    (out / "events.ndjson.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (out / "numbers.json").write_text(
        json.dumps(
            {
                "broker": f"Apache Pulsar {VERSION}",
                "events": len(records),
                "seconds": asked.seconds,
                "topics": limited,
            },
            indent=1,
        )
        + "\n"
    )
    size = (out / "events.ndjson.gz").stat().st_size
    print(f"{len(records)} events, {size} bytes: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
