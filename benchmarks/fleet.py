"""A simulated fleet of Kafka: what the Java half of the client answers about it, as JSON texts.

Topics have forty partitions. A group reads one topic: two groups a topic, so that each partition
has two offsets. Group `even` of a topic has read all of half its partitions, group `odd` is behind
everywhere. A group has one consumer, and no transaction is open. The texts are those that
`KafkaRequests.Answers.json` gives; the JVM reads each from its file when it is asked for. Kafka's
client, its network and the writing of JSON in the JVM are left out; what a poll asks about some
groups or partitions only is written when it is asked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from app.config.kafka_groups import KafkaGroupsSettings
from app.jvm import driver_jvm
from app.sources.kafka.groups_client import GroupsClient
from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.offsets import Log, LogPosition, Oldest, Place

TOPICS, GROUPS = ["^orders-of-region-.*"], ["^billing-.*"]
"""Patterns of their names."""
PER_TOPIC = 40
"""Partitions of a topic; a topic has two groups."""
STABLE = 3_000_000_000
"""The last stable offset of every partition: no group stands there."""
SETTINGS = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}


class Fleet(NamedTuple):
    """The size of a fleet."""

    topics: int
    per_topic: int = PER_TOPIC
    """Partitions of a topic in a real cluster."""

    @property
    def partitions(self) -> int:
        """All of them."""
        return self.topics * self.per_topic

    @property
    def names(self) -> list[str]:
        """The names of the topics."""
        return [f"orders-of-region-{n:06d}" for n in range(self.topics)]

    @property
    def groups(self) -> list[str]:
        """The names of the groups."""
        return [f"billing-{n:06d}-{kind}" for n in range(self.topics) for kind in ("even", "odd")]

    def ends(self, moved: float) -> np.ndarray:
        """The next offset of each partition, after a share of them has moved."""
        ends = 1_000_000_000 + np.arange(self.partitions, dtype=np.int64) * 1_009
        ends[: round(len(ends) * moved)] += 500
        return ends

    def write(self, folder: Path, moved: float = 0.0) -> None:
        """Write the answers of one poll as files."""
        folder.mkdir(parents=True, exist_ok=True)
        ends, parts = self.ends(moved), range(PER_TOPIC)
        per_topic = ends.reshape(self.topics, PER_TOPIC).tolist()
        leaders = [[n, str(n % 20)] for n in parts]
        committed: list[dict[str, dict[str, int]]] = []
        for name, offsets in zip(self.names, per_topic, strict=True):
            committed.append({name: {str(n): offsets[n] - (n % 2) * 70 for n in parts}})
            committed.append({name: {str(n): offsets[n] - 90 - n for n in parts}})
        answers = {
            "names": [self.names],
            "topics": [[f"id{n:020d}", leaders] for n in range(self.topics)],
            "groups": [[[name, "Stable", "Classic"] for name in self.groups], []],
            "committed": committed,
            "first": (ends - 900_000).tolist(),
            "next": ends.tolist(),
            "settings": [SETTINGS] * self.topics,
            "transactions": [[]],
            "described": [],
        }
        for name, values in answers.items():
            _write(folder / name, values)


def _write(path: Path, values: Sequence[Any]) -> None:
    path.write_text(json.dumps({"values": values, "errors": {}}, separators=(",", ":")))


def _of_some(name: str, asked: str) -> list[Any]:
    """The answers about some groups, or some partitions."""
    every = [item for items in json.loads(asked) for item in items]
    if name == "stable":
        return [STABLE] * len(every)
    topics = [f"orders-of-region-{group.split('-')[1]}" for group in every]
    places = ([[topic, n] for n in range(PER_TOPIC)] for topic in topics)
    return [[[["billing", "/10.0.0.1", pairs]], None, None] for pairs in places]


class Answered:
    """An answer of the JVM: a file that it reads."""

    def __init__(self, view: Any, path: Path) -> None:
        self._files = view.java.nio.file.Files
        self._path = view.java.io.File(str(path)).toPath()

    def ready(self, wait_ms: int) -> bool:
        """Whether it has come."""
        return True

    def json(self) -> str:
        """Its text."""
        text: str = self._files.readString(self._path)
        return text


class Requests:
    """What a KafkaClient has of the Java half: requests cross to the JVM, answers come from it."""

    def __init__(self) -> None:
        self._view = driver_jvm()
        self.folder = Path()
        """The answers of the present poll."""

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self._sent(name, *arguments)

    def close(self, wait_ms: int) -> None:
        """There is no client."""

    def _sent(self, name: str, *arguments: Any) -> Answered:
        for text in arguments:
            self._view.java.lang.String.valueOf(text)
        path = self.folder / (arguments[1] if name == "offsets" else name)
        if path.name in ("consumers", "stable"):
            _write(path, _of_some(path.name, arguments[0]))
        return Answered(self._view, path)


class _Folder(KafkaClient):
    """A client whose answers are files: there is no address to knock at."""

    def _servers(self, asked: str = "") -> list[str]:
        return []


class FleetClient(GroupsClient):
    """Asks a fleet; each position that is read has a record of a minute ago."""

    def __init__(self, settings: KafkaGroupsSettings, at_ms: int) -> None:
        super().__init__(settings)
        self._at_ms = at_ms
        self.requests = Requests()
        self._client = _Folder(settings.client_options(), settings.timeout_ms)
        self._client._requests = self.requests

    def read(
        self,
        positions: Sequence[LogPosition],
        logs: Mapping[Place, Log],
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        """A record of each position."""
        return {position: Oldest(self._at_ms - 60_000, 20, 8_000) for position in positions}


@contextmanager
def committing(fleet: Fleet, servers: str) -> Iterator[Callable[[int], None]]:
    """The topics of a fleet in a real cluster, with two records in each partition; and commits of
    all groups at an offset."""
    view = driver_jvm()
    options = view.java.util.HashMap()
    options.put("bootstrap.servers", servers)
    for kind in ("key", "value"):
        serializer = "org.apache.kafka.common.serialization.StringSerializer"
        options.put(f"{kind}.serializer", serializer)
    admin = view.org.apache.kafka.clients.admin.Admin.create(options)
    producer = view.org.apache.kafka.clients.producer.KafkaProducer(options)
    partition = view.org.apache.kafka.common.TopicPartition
    record = view.org.apache.kafka.clients.producer.ProducerRecord
    for begin in range(0, fleet.topics, 10):
        new = view.java.util.ArrayList()
        for name in fleet.names[begin : begin + 10]:
            topic = view.org.apache.kafka.clients.admin.NewTopic(name, fleet.per_topic, 1)
            new.add(topic)
        admin.createTopics(new).all().get()
    for name in fleet.names:
        for n in range(fleet.per_topic):
            for _ in range(2):
                producer.send(record(name, n, None, "x" * 100))
    producer.flush()
    producer.close()

    def commit(offset: int) -> None:
        at = view.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset)
        sent = []
        for number, name in enumerate(fleet.names):
            offsets = view.java.util.HashMap()
            for n in range(fleet.per_topic):
                offsets.put(partition(name, n), at)
            for group in fleet.groups[2 * number : 2 * number + 2]:
                sent.append(admin.alterConsumerGroupOffsets(group, offsets).all())
        for future in sent:
            future.get()

    yield commit
    admin.close()
