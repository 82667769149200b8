"""Where a trace goes: JSON lines in a folder, or a Kafka topic."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from app.demo.generator.trace import ArrivalSlice, Trace
from app.errors import UserError

MARK = "# Written by `generate`"
"""The first line of a file begins so, which a later trace may replace."""
TIMEOUT_S = 10.0
Progress = Callable[[ArrivalSlice], None]


@dataclass
class WrittenTrace:
    """What has been written."""

    events: int = 0
    bytes: int = 0
    files: list[Path] = field(default_factory=list)
    planted: Counter[str] = field(default_factory=Counter)

    def add(self, part: ArrivalSlice) -> None:
        """Counts one more slice."""
        self.events += part.ends.size
        self.bytes += part.data.size
        self.planted.update(part.planted)


def write_files(trace: Trace, out: Path, progress: Progress | None = None) -> WrittenTrace:
    """One file per slice of time, with all brokers in it: time advances across the files.

    A reader that takes files by name or by age takes them in order of time, so no broker's records
    come late in a catch-up.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: cannot be created: {error.strerror}") from error
    if any(out.glob("events-*.jsonl")):
        raise UserError(f"--out {out}: already holds events-*.jsonl; choose another folder")
    written = WrittenTrace()
    for part in trace.slices():
        path = out / part.name
        hidden = out / f".{part.name}.part"  # a stream that watches the folder sees whole files
        part.data.tofile(hidden)
        os.utime(hidden, (part.wall_ms / 1000, part.wall_ms / 1000))
        hidden.rename(path)
        written.add(part)
        written.files.append(path)
        if progress:
            progress(part)
    return written


def write_policies(trace: Trace, path: Path) -> None:
    """The policy documents of a trace, as a file that `policy_files` of the configuration takes."""
    text = yaml.safe_dump(trace.policies, sort_keys=False)
    kafka = "" if trace.kafka is None else f", and Kafka users, cluster {trace.kafka.spec.cluster}"
    path.write_text(
        f"{MARK}: limits of the scenario's fleet, cluster {trace.scenario.cluster}{kafka}.\n{text}"
    )


def write_kafka(
    trace: Trace, servers: str, topic: str, progress: Progress | None = None
) -> WrittenTrace:
    """Every record keyed by its broker, so that one broker's records stay in one partition.

    A topic that does not exist is created with a partition per broker. The record's own timestamp
    is left to the client: Kafka's retention would drop records of an old date.
    """
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise UserError(
            "--kafka needs the package confluent-kafka: pip install confluent-kafka"
        ) from error
    _ensure_topic(servers, topic, len(trace.fleet.keys) - 1)
    failed: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "compression.type": "lz4",
            "queue.buffering.max.messages": 1_000_000,
            "acks": "all",
            "enable.idempotence": True,
            "logger": _Silent(),
        }
    )

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(str(error))

    keys = [name.encode() for name in trace.fleet.keys]
    written = WrittenTrace()
    try:
        for part in trace.slices():
            for line, broker in zip(part.lines(), part.brokers.tolist(), strict=True):
                while True:
                    try:
                        producer.produce(topic, line, keys[broker], on_delivery=delivered)
                        break
                    except BufferError:  # the queue is full: let it drain
                        producer.poll(0.1)
            producer.poll(0)
            written.add(part)
            if failed:
                break
            if progress:
                progress(part)
        left = producer.flush(TIMEOUT_S * 6)
    except KafkaException as error:
        raise UserError(f"--kafka {servers}/{topic}: {error.args[0]}") from error
    if failed or left:
        raise UserError(
            f"--kafka {servers}/{topic}: {len(failed) + left} records not delivered"
            + (f": {failed[0]}" if failed else "")
        )
    return written


def _ensure_topic(servers: str, topic: str, partitions: int) -> None:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    quiet: dict[str, Any] = {"bootstrap.servers": servers, "logger": _Silent()}
    try:
        with AdminClient(quiet) as admin:
            known = admin.list_topics(timeout=TIMEOUT_S).topics
            if topic not in known:
                admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)
    except KafkaException as error:
        raise UserError(f"--kafka {servers}/{topic}: {error.args[0].str()}") from error


class _Silent:
    """A logger for the client, whose own would print each failed attempt to stderr."""

    def log(self, *_: Any) -> None:
        """Drops the message."""

    debug = info = warning = error = critical = log
