"""A day of a Pulsar cluster in minutes: a broker with the plug-in, clients, and Weir beside."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar as client
import yaml

from app.cli import main
from tests.crash.service import Service
from tests.servers import pulsar_situations as situations
from tests.support.recording.limits import OF_BROKER, rate
from tests.support.recording.saturated import COUNTED, sending
from tests.support.recording.scene import Scene, name_of
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import Pulsar, samples
from tests.support.servers.pulsar_plugin import connected
from tests.support.waiting import wait_for

Json = dict[str, Any]
HOT, VICTIM, CHANGED, TWICE, STEADY, HOLES, BACK = (
    name_of("day", name)
    for name in ("hot", "victim", "changed", "twice", "steady", "holes", "back")
)
PAIR = [name_of("shared", name) for name in ("a", "b")]
GROUP = "analytics"
GROUPED = [name_of("group-a", "t"), name_of("group-b", "t")]
CROWD = [name_of("crowd", name) for name in ("a", "b")]
TTL, GEO = name_of("ttl", "t"), "persistent://acme/geo/clicks"
EVENTS = "persistent://acme/geo/__change_events"
SATURATED = (HOT, CHANGED, TWICE, *PAIR)
"""At limits of their own: of the topic, or of the namespace for each of its topics."""
CALM = (STEADY, HOLES, BACK, TTL)
SPLIT = [f"{situations.SPLIT}-partition-{n}" for n in (0, 1)]
CONNECTIONS = ([HOT, f"~{VICTIM}"], PAIR, [CHANGED], [TWICE], [TWICE], *([t] for t in GROUPED))
OF_GROUP = {
    "publishRateInMsgs": 80,
    "publishRateInBytes": 1_000_000,
    "dispatchRateInMsgs": 1_000_000,
    "dispatchRateInBytes": 100_000_000,
}
BROKER_RATE = 300
REMOTE = {"serviceUrl": "http://127.0.0.1:1", "brokerServiceUrl": "pulsar://127.0.0.1:1"}
FUNCTION = "public/default/a-function"
CHECK_S = 5
ENOUGH_S = 600
TTL_S = 20


@dataclass
class Day:
    """A broker, its clients, and two runs of Weir: on the plug-in's files, and on polls."""

    pulsar: Pulsar
    folder: Path
    telemetry: str
    seconds: int
    runs: dict[str, Service] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    went_on_ms: int = 0
    """When the stalled subscription did."""

    def __post_init__(self) -> None:
        self.scene = Scene(self.pulsar, self.telemetry)
        self.window_ms = self.seconds * 100

    def config(self, name: str) -> Path:
        return self.folder / f"{name}.yaml"

    def prepare(self) -> None:
        """Namespaces, topics and limits; another cluster that does not answer."""
        ask, scene = self.pulsar.ask, self.scene
        ask("PUT", "clusters/elsewhere", REMOTE)
        ask("PUT", "tenants/acme", {"allowedClusters": ["standalone", "elsewhere"]})
        ask("PUT", "namespaces/acme/geo", {})
        for name in ("day", "shared", "ttl", "group-a", "group-b", "crowd"):
            scene.namespace(name)
        ask("POST", "namespaces/public/day/deduplication", True)
        ask("POST", "namespaces/public/shared/publishRate", rate(80))
        ask("PUT", f"resourcegroups/{GROUP}", OF_GROUP)
        wait_for(lambda: GROUP in ask("GET", "resourcegroups"))
        for name in ("group-a", "group-b"):
            ask("POST", f"namespaces/public/{name}/resourcegroup/{GROUP}")
        ask("POST", "namespaces/public/ttl/messageTTL", TTL_S)
        self.quota("public/ttl", 3600)
        self.quota("acme/geo", 6 * CHECK_S)
        for topic in (*SATURATED, VICTIM, *GROUPED, *CROWD, *CALM, GEO):
            scene.topic(topic)
        scene.set(HOT, "publishRate", rate(200))
        scene.set(CHANGED, "publishRate", rate(100))
        scene.set(TWICE, "publishRate", rate(100))
        scene.set(GEO, "publishRate", rate(1000))
        with connected(self.pulsar) as one:
            one.subscribe(TTL, "slow").close()
            reader, producer = one.subscribe(GEO, "local"), one.create_producer(GEO)
            ask("POST", "namespaces/acme/geo/replication", ["standalone", "elsewhere"])
            wait_for(lambda: "elsewhere" in scene.stats(GEO)["replication"])
            for _ in range(50):
                producer.send(b"x" * 100)
                reader.acknowledge(reader.receive(10_000))
        situations.prepare(scene, ("off", "small", "evicts", "large", "open", "delayed", "split"))
        ask("PUT", f"{BACK.replace('://', '/')}/compaction")

    def quota(self, namespace: str, seconds: int) -> None:
        """A time quota."""
        self.pulsar.ask(
            "POST",
            f"namespaces/{namespace}/backlogQuota?backlogQuotaType=message_age",
            {"limitTime": seconds, "limitSize": -1, "policy": "producer_request_hold"},
        )

    def begin_weir(self) -> None:
        """Both runs, as a user starts them."""
        admin = {
            "cluster": "standalone",
            "url": self.pulsar.url,
            "interval_ms": 1000 * CHECK_S,
            "namespaces": [*self.namespaces()],
            "topics": [EVENTS],
        }
        sources: Json = {
            "files": {"format": "files", "path": str(self.folder / "records")},
            "polls": {"format": "pulsar_admin", "admin": admin},
        }
        for name, source in sources.items():
            self.config(name).write_text(
                yaml.safe_dump(
                    {
                        "warehouse": str(self.folder / name),
                        "source": source,
                        "partitions": 2,
                        "trigger_ms": 1000,
                        "stats_window_ms": self.window_ms,
                        "metrics": None,
                        **({"queries": [["backlog"]]} if name == "polls" else {}),
                        "reconcile": {
                            "brokers": [self.pulsar.url],
                            # who asks while a page is made for another gets that one, which is older
                            "interval_ms": self.window_ms + 7000 * (name == "polls"),
                            "settle_ms": self.window_ms,
                        },
                        "backlog": {"backlogQuotaCheckIntervalInSeconds": CHECK_S},
                    }
                )
            )
            self.runs[name] = Service(self.config(name))
        files, polls = self.runs["files"], self.runs["polls"]
        wait_for(lambda: files.batches("govern", "commits") > 1, ENOUGH_S)
        wait_for(lambda: polls.batches("backlog", "commits") > 1, ENOUGH_S)

    def namespaces(self) -> Iterator[str]:
        for tenant in ("public", "acme", "pulsar"):
            yield from self.pulsar.ask("GET", f"namespaces/{tenant}")

    def live(self) -> None:
        """Producers that never stop beside calm clients; then others, at a limit of the broker that
        the calm ones share; then the calm ones alone, and a stalled subscription that goes on, until
        the last windows are written."""
        with connected(self.pulsar) as one, situations.transaction(self.pulsar, one, self.folder):
            kept = situations.begin(one)
            with sending(self.scene, self.seconds, CONNECTIONS):
                self.calm(one, self.seconds)
            where = f"brokers/configuration/{OF_BROKER}"
            self.pulsar.ask("POST", f"{where}/{BROKER_RATE}")
            with sending(self.scene, self.seconds / 3, [[topic] for topic in CROWD]):
                self.calm(one, self.seconds / 3)
            self.pulsar.ask("POST", f"{where}/0")
            situations.go_on(self.scene, kept[1])
            self.went_on_ms = time.time_ns() // 1_000_000
            self.calm(one, 2 * self.window_ms // 1000 + 40)
            for consumer in kept:
                consumer.close()
        for (name, labels), value in samples(self.telemetry).items():
            if name == COUNTED:
                self.counted[dict(labels)["pulsar_topic"]] += int(value)

    def calm(self, one: client.Client, seconds: float) -> None:
        """A message each second to every topic without limits; one reader comes rarely, one goes
        back once, one acknowledges every other message only. A limit changes twice."""
        begun, changes, back = time.monotonic(), [300, 60], False
        producers = {t: one.create_producer(t) for t in (*CALM, *SPLIT)}
        steady, reader = one.subscribe(STEADY, FUNCTION), one.subscribe(BACK, "goes-back")
        holes = one.subscribe(HOLES, "holes", consumer_type=client.ConsumerType.Shared)
        for number in range(10**9):
            passed = (time.monotonic() - begun) / seconds
            if passed >= 1:
                break
            if changes and seconds == self.seconds and passed > (3 - len(changes)) / 3:
                self.scene.set(CHANGED, "publishRate", rate(changes.pop(0)))
            for producer in producers.values():
                producer.send(b"x" * 100)
            if number % (3 * CHECK_S) == 0:
                drain(steady)
            if not 0.5 < passed < 0.5 + 3 * CHECK_S / seconds:
                drain(reader)
            elif not back:
                reader.seek(client.MessageId.earliest)
                back = True
            message = holes.receive(10_000)
            if number % 2:
                holes.acknowledge(message)
            time.sleep(0.9)
        for each in (*producers.values(), steady, reader, holes):
            each.close()

    def records(self, *kinds: str) -> list[Json]:
        """What the plug-in wrote."""
        return pulsar_plugin.records(self.folder / "records", *kinds)

    def query(self, name: str, sql: str) -> list[Json]:
        """Rows of one of the warehouses."""
        code, text = said("query", sql, "--warehouse", str(self.folder / name), "--json")
        assert code == 0, text
        rows: list[Json] = json.loads(text)
        return rows


def drain(consumer: client.Consumer) -> None:
    with contextlib.suppress(client.Timeout):
        while True:
            consumer.acknowledge(consumer.receive(20))


def said(*words: str) -> tuple[int, str]:
    """The exit code of a command, and what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        code = main([*words])
    return code, out.getvalue()
