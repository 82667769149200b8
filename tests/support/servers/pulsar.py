"""A real Pulsar broker with its bookie on loopback, in one process, from jars that Maven collects.

Messages are published one by one over the REST interface, or in numbers by Pulsar's client.
"""

from __future__ import annotations

import base64
import fcntl
import hmac
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from tests.support.servers.process import Missing, Server, ServerFailed, cache_dir, free_ports, java
from tests.support.servers.tls import self_signed
from tests.support.waiting import PATIENCE_S

VERSION = "4.2.4"
OTEL_VERSION = "1.62.0"
BROKER, TOOLS = (Path(__file__).with_name(f"pulsar{part}-pom.xml") for part in ("", "-tools"))
CONFIGURATION = """\
clusterName=standalone
bindAddress=127.0.0.1
advertisedAddress=127.0.0.1
brokerServicePort={port}
brokerServicePortTls={secure}
tlsCertificateFilePath={certificate}
tlsKeyFilePath={key}
webServicePort={web}
numIOThreads=2
numHttpServerThreads=8
numOrderedExecutorThreads=2
numCacheExecutorThreadPoolSize=2
bookkeeperNumberOfChannelsPerBookie=2
managedLedgerNumSchedulerThreads=2
managedLedgerDefaultEnsembleSize=1
managedLedgerDefaultWriteQuorum=1
managedLedgerDefaultAckQuorum=1
managedLedgerCacheSizeMB=32
managedLedgerMinLedgerRolloverTimeMinutes=0
managedLedgerMaxEntriesPerLedger=25
loadBalancerEnabled=false
allowAutoTopicCreation=false
maxMessageSize={chunk}
brokerDeleteInactiveTopicsEnabled=false
transactionCoordinatorEnabled=false
functionsWorkerEnabled=false
webSocketServiceEnabled=false
backlogQuotaCheckIntervalInSeconds=2
allowLoopback=true
listeningInterface=lo
advertisedBookieAddress=
diskUsageThreshold=0.99
diskUsageWarnThreshold=0.98
journalMaxSizeMB=64
journalPreAllocSizeMB=4
dbStorage_writeCacheMaxSizeMb=16
dbStorage_readAheadCacheMaxSizeMb=16
dbStorage_rocksDB_blockCacheSize=8388608
"""
CHUNK = 100_000
"""Bytes of the largest message that is not sent in chunks."""
LOGGING = """\
<Configuration status="ERROR"><Appenders><Console name="C" target="SYSTEM_ERR">
<PatternLayout pattern="%d %-5p %c - %m%n"/></Console></Appenders>
<Loggers><Root level="warn"><AppenderRef ref="C"/></Root></Loggers></Configuration>
"""
OPEN = (
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/sun.net",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
SAMPLE = re.compile(r"(?P<name>[a-z_]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
LABEL = re.compile(r'(\w+)="([^"]*)"')
Sample = tuple[str, frozenset[tuple[str, str]]]
KEEPER = "keeper"
TEMPORARY_REDIRECT = 307
EARLIEST = {"ledgerId": -1, "entryId": -1}
SIGNING_KEY = b"a key of tests that signs tokens of 32 bytes or more"
TEXT = json.dumps({"name": "", "schema": "", "type": "STRING", "properties": {}})


def jars(version: str = VERSION, pom: Path = BROKER) -> Path:
    """The folder of the jars of the broker, or of the tools, collected once by Maven."""
    home = cache_dir(f"{pom.name.removesuffix('-pom.xml')}-{version}")
    lib = home / "lib"
    complete = lib / f".complete-{version}"
    with (home / "lock").open("w") as lock:  # two test runs may ask at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if complete.exists():
            return lib
        if shutil.which("mvn") is None:
            raise Missing(f"no jars of Pulsar {version} in {lib}, and no mvn to collect them")
        done = subprocess.run(
            [
                "mvn",
                "-q",
                "-B",
                "-f",
                str(pom),
                f"-Dpulsar.version={version}",
                f"-Dotel.version={OTEL_VERSION}",
                "dependency:copy-dependencies",
                f"-DoutputDirectory={lib}",
                "-DincludeScope=runtime",
            ],
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        if done.returncode:
            raise Missing(
                f"Maven cannot collect the jars of Pulsar {version}\n{done.stdout[-2000:]}"
            )
        complete.touch()
    return lib


def token(role: str, key: bytes = SIGNING_KEY) -> str:
    """The token of a role: a JSON web token (HS256)."""

    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).rstrip(b"=").decode()

    text = ".".join(part(json.dumps(each).encode()) for each in ({"alg": "HS256"}, {"sub": role}))
    return f"{text}.{part(hmac.digest(key, text.encode(), 'sha256'))}"


def with_login() -> dict[str, str]:
    """Settings of a broker that knows roles by their tokens; whoever has none is an administrator."""
    return {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
        "tokenSecretKey": f"data:;base64,{base64.b64encode(SIGNING_KEY).decode()}",
        "superUserRoles": "admin",
        "anonymousUserRole": "admin",
        "brokerClientAuthenticationPlugin": "org.apache.pulsar.client.impl.auth.AuthenticationToken",
        "brokerClientAuthenticationParameters": f"token:{token('admin')}",
    }


def samples(url: str) -> dict[Sample, float]:
    """What a Prometheus endpoint has now: by name and labels the value."""
    with urlopen(url, timeout=PATIENCE_S) as answer:
        lines = answer.read().decode().splitlines()
    return {
        (m["name"], frozenset(LABEL.findall(m["labels"] or ""))): float(m["value"])
        for m in filter(None, map(SAMPLE.match, lines))
    }


class Pulsar:
    """Broker, bookie and metadata in one process; data survive `stop` and `start`."""

    def __init__(
        self,
        folder: Path,
        version: str = VERSION,
        *,
        jvm: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """`jvm` are options of the broker's Java, `environment` is what it gets beside ours."""
        self._port, self._secure, self._web, bookie = free_ports(4)
        lib = jars(version)
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._settings: dict[str, str] = {}
        self.certificate, _ = self_signed(folder)
        (folder / "log4j2.xml").write_text(LOGGING)
        program, *arguments = self._program(bookie)
        self._server = Server(
            [
                "env",
                *(f"{name}={value}" for name, value in (environment or {}).items()),
                *java(
                    f"{lib}/*",
                    program,
                    *("-Xms256m", "-Xmx768m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC"),
                    "-Dio.netty.tryReflectionSetAccessible=true",
                    f"-Djava.io.tmpdir={folder}",  # libraries of jars, which a killed JVM leaves
                    f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
                    *(part for name in OPEN for part in ("--add-opens", f"{name}=ALL-UNNAMED")),
                    *jvm,
                ),
                *arguments,
            ],
            folder / "broker.log",
            patience_s=30,
        )

    def _program(self, bookie: int) -> list[str]:
        """The main class and its arguments."""
        return [
            "org.apache.pulsar.PulsarStandaloneStarter",
            "-c",
            str(self._folder / "standalone.conf"),
            "-nfw",
            "-nss",
            "-a",
            "127.0.0.1",
            "--metadata-dir",
            str(self._folder / "metadata"),
            "--bookkeeper-dir",
            str(self._folder / "bookkeeper"),
            "--bookkeeper-port",
            str(bookie),
        ]

    def _place(self) -> dict[str, str]:
        """Settings of a broker that is one of several."""
        return {}

    @property
    def url(self) -> str:
        """The address of the admin interface."""
        return f"http://127.0.0.1:{self._web}"

    @property
    def service_url(self) -> str:
        """The address for clients."""
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def secure_service_url(self) -> str:
        """The same by TLS, with the broker's `certificate` (PEM)."""
        return f"pulsar+ssl://127.0.0.1:{self._secure}"

    def start(self) -> None:
        """Start the broker and wait until it says that it is well."""
        text = CONFIGURATION.format(
            port=self._port,
            secure=self._secure,
            web=self._web,
            chunk=CHUNK,
            certificate=self.certificate,
            key=self.certificate.with_name("key.pem"),
        )
        settings = {**self._place(), **self._settings}
        text += "".join(f"{key}={value}\n" for key, value in settings.items())
        (self._folder / "standalone.conf").write_text(text)
        self._server.start(lambda _: self._healthy(), timeout_s=180)

    def run_with(self, **settings: str) -> None:
        """Have the broker run with these settings beside its own, started anew if it does not."""
        if self._server.running and settings == self._settings:
            return
        self.stop()
        self._settings = settings
        self.start()

    @property
    def running(self) -> bool:
        """Whether the broker lives."""
        return self._server.running

    def stop(self) -> None:
        """Stop the broker by its pid; its data stay."""
        self._server.stop()

    def kill(self) -> None:
        """End the broker at once, as a crash does; its data stay."""
        self._server.kill()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """A request to the admin interface; the JSON of the answer, None if that is empty."""
        return self._request(method, f"/admin/v2/{path}", body)

    def lookup(self, topic: str) -> Any:
        """The addresses of the broker that serves a topic; one takes it if none does."""
        return self._request("GET", f"/lookup/v2/topic/{topic.replace('://', '/')}", None)

    def metrics(self) -> dict[Sample, float]:
        """What the broker's Prometheus endpoint has now: by name and labels the value."""
        return samples(f"{self.url}/metrics/")

    def publish(self, topic: str, payloads: list[str]) -> list[tuple[int, int]]:
        """Publish messages to tenant/namespace/name, each an entry; their positions."""
        positions = []
        for payload in payloads:
            answer = self._request(
                "POST",
                f"/topics/persistent/{topic}",
                {
                    "keySchema": TEXT,
                    "valueSchema": TEXT,
                    "producerName": "test",
                    "messages": [{"payload": payload}],
                },
            )
            (sent,) = answer["messagePublishResults"]
            if sent["errorCode"]:
                raise ServerFailed(f"{topic}: a message was not taken: {sent}")
            ledger, entry, *_ = sent["messageId"].split(":")
            positions.append((int(ledger), int(entry)))
        return positions

    def namespace(self, name: str) -> None:
        """Create tenant/namespace, and its tenant."""
        tenant, _ = name.split("/")
        if tenant not in self.ask("GET", "tenants"):
            self.ask("PUT", f"tenants/{tenant}", {"allowedClusters": ["standalone"]})
        self.ask("PUT", f"namespaces/{name}", {})

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Create tenant/namespace/name, partitioned or not; a subscription of the test's keeps
        what is sent to it."""
        if partitions:
            self.ask("PUT", f"persistent/{topic}/partitions", partitions)
        else:
            self.ask("PUT", f"persistent/{topic}")
        self.ask("PUT", f"persistent/{topic}/subscription/{KEEPER}", EARLIEST)

    def produce_to(
        self,
        topic: str,
        lines: Iterable[tuple[int, bytes]],
        *,
        batch: int = 100,
        partitioned: bool = True,
        **options: Any,
    ) -> list[tuple[str, int, int, int]]:
        """Send (partition, line) in their order, so many in a batch; partition, ledger, entry and
        index of each. `options` are those of a producer."""
        import pulsar

        client = pulsar.Client(
            self.service_url, logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, "/dev/null")
        )
        places: list[tuple[str, int, int, int]] = []
        failed: list[str] = []
        producers: dict[int, Any] = {}

        def sent(partition: int) -> Callable[[Any, Any], None]:
            def noted(result: Any, at: Any) -> None:
                if result != pulsar.Result.Ok:
                    failed.append(str(result))
                    return
                places.append((str(partition), at.ledger_id(), at.entry_id(), at.batch_index()))

            return noted

        try:
            for partition, line in lines:
                if partition not in producers:
                    name = f"{topic}-partition-{partition}" if partitioned else topic
                    producers[partition] = client.create_producer(
                        name,
                        batching_enabled=batch > 1,
                        batching_max_messages=max(batch, 2),
                        batching_max_publish_delay_ms=1000,
                        block_if_queue_full=True,
                        max_pending_messages=10_000,
                        **options,
                    )
                producers[partition].send_async(line, sent(partition))
            for producer in producers.values():
                producer.flush()
        finally:
            client.close()
        if failed:
            raise ServerFailed(f"{topic}: {len(failed)} messages were not taken: {failed[0]}")
        return places

    def _healthy(self) -> bool:
        try:
            with urlopen(f"{self.url}/admin/v2/brokers/health", timeout=5) as answer:
                return bool(answer.read().strip() == b"ok")
        except OSError:
            return False

    def _request(self, method: str, path: str, body: Any) -> Any:
        return self._send(method, self.url + path, body)

    def _send(self, method: str, url: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = Request(url, data, headers, method=method)
        path = url.removeprefix(self.url)
        try:
            with urlopen(request, timeout=PATIENCE_S) as answer:
                text = answer.read()
        except HTTPError as error:
            if error.code == TEMPORARY_REDIRECT:  # to the broker that serves it, or leads
                return self._send(method, error.headers["Location"], body)
            raise ServerFailed(f"{method} {path}: {error.code} {error.read()[:300]!r}") from None
        except URLError as error:
            raise ServerFailed(f"{method} {path}: {error.reason}") from None
        return json.loads(text) if text else None


def with_telemetry(folder: Path) -> tuple[Pulsar, str]:
    """A broker that does not run yet, and the address at which its OpenTelemetry metrics will be."""
    (port,) = free_ports(1)
    exporter = "-Dotel.exporter.prometheus"
    options = [
        "-Dotel.sdk.disabled=false",
        "-Dotel.metrics.exporter=prometheus",
        f"{exporter}.host=127.0.0.1",
        f"{exporter}.port={port}",
    ]
    return Pulsar(folder, jvm=options), f"http://127.0.0.1:{port}/metrics"
