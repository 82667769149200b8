"""A real Kafka broker on loopback, from its jars: no tarball, no container, no Maven."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.servers import ivy
from tests.support.servers.process import Server, ServerFailed, accepts, cache_dir, free_ports, java
from tests.support.servers.raw_kafka import BROKERS, LOGGERS, Entity, RawClient
from tests.support.servers.tls import self_signed
from tests.support.waiting import PATIENCE_S, wait_for

VERSION = "4.1.0"
MECHANISM, USER, PASSWORD = "SCRAM-SHA-512", "weir", "hush-of-the-broker"
"""Who may log in where the broker asks, at `Kafka.secure_servers`."""
MOST_BYTES = 200_000_000
"""Of a record, as far as a producer decides."""
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secure},\
CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secure}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
inter.broker.listener.name=PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={data}
num.network.threads=2
num.io.threads=2
log.cleaner.dedupe.buffer.size=16777216
auto.create.topics.enable=false
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
OF_FORMAT = ("metadata.", "unstable.")
"""Begin of the properties that decide how a storage is formatted."""
JOINING = """\
process.roles=broker
node.id=2
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL_SSL://127.0.0.1:{secure}
"""
"""Of a second broker, which has its controller in the first."""
DEPENDENCIES = """\
<dependency org="org.apache.kafka" name="kafka_2.13" rev="{version}" conf="default->default"/>
<dependency org="org.slf4j" name="slf4j-simple" rev="1.7.36" conf="default->default"/>
"""


def jars(version: str = VERSION) -> Path:
    """The folder of the broker's jars."""
    return ivy.jars(f"kafka-{version}", DEPENDENCIES.format(version=version))


def run_class(folder: Path, name: str, text: str, *words: str) -> None:
    """Run a class of Java, which is given as text, beside the broker's jars until it ends."""
    source = folder / f"{name}.java"
    source.write_text(text, "utf-8")
    line = [*java(f"{jars()}/*", str(source)), *words]
    subprocess.run(line, check=True, capture_output=True, timeout=120)


def _cluster_id() -> str:
    """Sixteen bytes in base64, as Kafka makes them; a dash in front would be an option."""
    return "K" + secrets.token_urlsafe(16)[1:]


class Kafka:
    """One KRaft process, broker and controller; data survive `stop` and `start`."""

    def __init__(
        self,
        folder: Path,
        properties: Mapping[str, object] | None = None,
        version: str = VERSION,
        joins: Kafka | None = None,
        plugins: Sequence[Path] = (),
        options: Sequence[str] = (),
    ) -> None:
        """`properties` are further ones of the broker; `joins` is the first of a cluster of two,
        `plugins` are jars beside those of the broker, `options` those of its JVM."""
        self._folder, self._joins = folder, joins is not None
        self._port, self._secure, controller = free_ports(3)
        self._controller: int = controller if joins is None else joins._controller
        self._cluster_id: str = _cluster_id() if joins is None else joins._cluster_id
        self._classpath, self._plugins = f"{jars(version)}/*", plugins
        self._properties = folder / "server.properties"
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, keystore = self._identity()
        self._properties.write_text(
            PROPERTIES.format(
                port=self._port,
                secure=self._secure,
                controller=controller,
                data=folder / "data",
                keystore=keystore,
            )
            + (
                JOINING.format(port=self._port, secure=self._secure, controller=self._controller)
                if joins is not None
                else ""
            )
            + "".join(f"{key}={value}\n" for key, value in (properties or {}).items())
        )
        self._format(version, properties or {})
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=info"
        self._server = self._process(self._classpath, logging, *options)

    @property
    def servers(self) -> str:
        """The bootstrap servers."""
        return f"127.0.0.1:{self._port}"

    @property
    def secure_servers(self) -> str:
        """The same broker by TLS, with its `certificate` (PEM), for those who log in."""
        return f"127.0.0.1:{self._secure}"

    @property
    def running(self) -> bool:
        """Whether the broker lives."""
        return self._server.running

    @property
    def pid(self) -> int:
        """The number of its process."""
        return self._server.pid

    def start(self) -> None:
        """Start the broker and wait until it serves."""
        self._server.start(lambda log: "Kafka Server started" in log and accepts(self._port))

    def stop(self) -> None:
        """Stop the broker by its pid; its data stay."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL for the broker; its data stay."""
        self._server.kill()

    def restart(self) -> None:
        """Stop and start again: same ports, same data."""
        self.stop()
        self.start()

    def has_topic(self, name: str) -> bool:
        """Whether there is a topic of this name."""
        with AdminClient({"bootstrap.servers": self.servers}) as admin:
            return name in admin.list_topics(timeout=PATIENCE_S).topics

    def create_topic(
        self, name: str, partitions: int = 1, config: dict[str, str] | None = None
    ) -> None:
        """Create a topic and wait until every partition has a leader."""
        with AdminClient({"bootstrap.servers": self.servers}) as admin:
            new = NewTopic(name, partitions, 1, config=config or {})
            admin.create_topics([new])[name].result(PATIENCE_S)

            def led() -> bool:
                seen = admin.list_topics(timeout=PATIENCE_S).topics.get(name)
                return (
                    seen is not None
                    and sum(p.leader >= 0 for p in seen.partitions.values()) == partitions
                )

            wait_for(led)

    def limit(self, entity: Entity, limits: Mapping[str, float | None]) -> str:
        """Set limits of an entity, or remove them where they are None; what the broker says against
        them."""
        with closing(RawClient(self.servers, b"admin")) as client:
            return client.limit(entity, limits)

    def change(self, settings: Mapping[str, object]) -> str:
        """Change settings of all brokers while they run; what the broker says against it."""
        with closing(RawClient(self.servers, b"admin")) as client:
            return client.configure(BROKERS, "", {k: str(v) for k, v in settings.items()})

    def log(self, logger: str, level: str | None) -> None:
        """Have a logger of the broker write from a level on, or from its own."""
        with closing(RawClient(self.servers, b"admin")) as client:
            assert client.configure(LOGGERS, "1", {logger: level}) == ""

    def produce(
        self, topic: str, lines: Iterable[bytes], *, key: Callable[[bytes], bytes] | None = None
    ) -> int:
        """Produce every line in its order, by key where one is given; the count sent."""
        return self.send(topic, ({"value": n, "key": key(n) if key else None} for n in lines))

    def produce_to(self, topic: str, lines: Iterable[tuple[int, bytes]]) -> int:
        """Produce (partition, line) in their order; the count sent."""
        return self.send(topic, ({"value": line, "partition": p} for p, line in lines))

    def send(self, topic: str, messages: Iterable[dict[str, Any]]) -> int:
        """Produce messages by the arguments of a producer (value, key, headers, ...)."""
        failed: list[str] = []
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": 1_000_000,
                "message.timeout.ms": 60_000,
                "message.max.bytes": MOST_BYTES,
                "log_level": 2,
            }
        )

        def delivered(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(str(error))

        count = 0
        for message in messages:
            while True:
                try:
                    producer.produce(topic, on_delivery=delivered, **message)
                    break
                except BufferError:
                    producer.poll(0.1)
            count += 1
            producer.poll(0)
        producer.flush(60)
        if failed:
            raise ServerFailed(f"{len(failed)} of {count} records were not taken: {failed[0]}")
        return count

    def _process(self, classpath: str, *options: str) -> Server:
        """The process of the broker, which does not run yet."""
        memory = ("-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-Djava.awt.headless=true")
        command = java(classpath, "kafka.Kafka", *memory, *options, plugins=self._plugins)
        return Server([*command, str(self._properties)], self._folder / "broker.log")

    def _identity(self) -> tuple[Path, Path]:
        """A certificate, and the PEM file of it and its key."""
        certificate, _ = self_signed(self._folder)
        keystore = self._folder / "keystore.pem"
        key = certificate.with_name("key.pem")
        keystore.write_bytes(key.read_bytes() + certificate.read_bytes())
        return certificate, keystore

    def _format(self, version: str, properties: Mapping[str, object]) -> None:
        """Format the storage, once: as one of the same kind was, under ids of its own."""
        data = self._folder / "data"
        if (data / "meta.properties").exists():
            return
        features = sorted((k, v) for k, v in properties.items() if k.startswith(OF_FORMAT))
        kind = (version, self._joins, PROPERTIES, JOINING, MECHANISM, USER, PASSWORD, features)
        digest = hashlib.sha256(repr(kind).encode()).hexdigest()[:16]
        kept = cache_dir("kafka-formatted") / digest
        if not kept.exists():
            self._have_formatted()
            made = kept.with_name(f"{digest}-{secrets.token_hex(8)}")
            shutil.copytree(data, made)
            try:
                made.rename(kept)
            except OSError:  # another process was first
                shutil.rmtree(made)
            return
        shutil.copytree(kept, data)
        about = data / "meta.properties"
        text = about.read_text("utf-8")
        ids = {"cluster": self._cluster_id, "directory": _cluster_id()}
        for of, value in ids.items():
            text, times = re.subn(rf"^{of}\.id=.*$", f"{of}.id={value}", text, flags=re.M)
            assert times == 1, text
        about.write_text(text, "utf-8")

    def _have_formatted(self) -> None:
        """Have Kafka's own tool format the storage: a JVM."""
        quiet = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        done = subprocess.run(
            [
                *java(self._classpath, "kafka.tools.StorageTool", *quiet),
                "format",
                "-t",
                self._cluster_id,
                "-c",
                str(self._properties),
                "--add-scram",
                f"{MECHANISM}=[name={USER},password={PASSWORD}]",
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
        if done.returncode:
            raise ServerFailed(f"cannot format Kafka's storage\n{done.stdout}{done.stderr}")
