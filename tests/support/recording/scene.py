"""What the scenarios of a recording share: the broker, topics, and the numbers that they keep."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pulsar as client

from tests.support.servers.pulsar import Pulsar
from tests.support.servers.pulsar_plugin import connected
from tests.support.waiting import wait_for

Json = dict[str, Any]
WORDS = ("order", "paid", "parcel", "sent", "returned", "invoice", "open", "closed")
SENDER = """
import sys, pulsar
url, topic, name = sys.argv[1:]
text = sys.stdin.read()
one = pulsar.Client(url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null"))
producer = one.create_producer(topic, producer_name=name, chunking_enabled=True)
print("ready", flush=True)
producer.send(text.encode())
"""


@dataclass(frozen=True)
class Number:
    """What the broker or an application counted, and the SQL that gives the same from the tables."""

    scenario: str
    what: str
    counted_by: str
    value: Any
    sql: str


@dataclass
class Scene:
    """A broker that is being recorded."""

    pulsar: Pulsar
    telemetry: str
    """The address of the counters that the broker gives to OpenTelemetry."""
    numbers: list[Number] = field(default_factory=list)

    def keep(self, scenario: str, what: str, counted_by: str, value: Any, sql: str) -> None:
        """Keep a number of the broker's."""
        self.numbers.append(Number(scenario, what, counted_by, value, " ".join(sql.split())))

    def namespace(self, name: str) -> None:
        """Create public/NAME."""
        self.pulsar.ask("PUT", f"namespaces/public/{name}", {})

    def stats(self, topic: str) -> Json:
        """The broker's stats of a topic."""
        found: Json = self.pulsar.ask(
            "GET", f"{path(topic)}/stats?getPreciseBacklog=true&subscriptionBacklogSize=true"
        )
        return found

    def topic(self, name: str) -> None:
        """Create a topic."""
        self.pulsar.ask("PUT", path(name))

    def set(self, topic: str, what: str, value: Json, query: str = "") -> None:
        """Set a policy of a topic, and wait until the broker has it."""
        where = f"{path(topic)}/{what}"
        before = self.pulsar.ask("GET", where)
        self.pulsar.ask("POST", where + query, value)
        wait_for(lambda: self.pulsar.ask("GET", where) != before)

    def counter(self, name: str, **labels: str) -> float:
        """The sum of a metric of the broker over all series with these labels."""
        wanted = set(labels.items())
        return sum(
            value
            for (metric, found), value in self.pulsar.metrics().items()
            if metric == name and wanted <= set(found)
        )

    @contextmanager
    def client(self) -> Iterator[client.Client]:
        """A client, so a connection, of its own."""
        with connected(self.pulsar) as one:
            yield one

    def sender(self, topic: str, name: str, text: str) -> subprocess.Popen[str]:
        """A process that sends one large message, to be killed meanwhile."""
        process = subprocess.Popen(
            [sys.executable, "-c", SENDER, self.pulsar.service_url, topic, name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(text)
        process.stdin.close()
        assert process.stdout.readline() == "ready\n"
        return process


def name_of(namespace: str, topic: str) -> str:
    """The full name of public/NAMESPACE/TOPIC."""
    return f"persistent://public/{namespace}/{topic}"


def path(topic: str) -> str:
    """A topic in the paths of the admin interface."""
    return topic.replace("://", "/")


def batch(producer: client.Producer, count: int) -> None:
    """Publish so many messages as one entry."""
    for _ in range(count):
        producer.send_async(b"x" * 20, None)
    producer.flush()


def text_of(size: int, seed: int) -> str:
    """Readable text of so many bytes: it compresses."""
    drawn = random.Random(seed)
    words: list[str] = []
    while sum(map(len, words)) + len(words) < size:
        words += drawn.choices(WORDS, k=200)
    return " ".join(words)[:size]


def digest(data: bytes) -> str:
    """What identifies the bytes of a message."""
    return hashlib.sha256(data).hexdigest()


def drain(consumer: client.Consumer, wait_ms: int = 3000) -> list[bytes]:
    """Take and acknowledge messages until none comes; what the application got."""
    found: list[bytes] = []
    while True:
        try:
            message = consumer.receive(wait_ms)
        except client.Timeout:
            return found
        found.append(message.data())
        consumer.acknowledge(message)
