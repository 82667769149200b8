"""A Kafka broker that writes a request log, with users of its own, and the dump of its segments.

The jars of the broker hold no binding of its logging to Log4j; those of Spark do, so they stand
before them on the class path.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.support.servers.kafka import VERSION, Kafka
from tests.support.servers.process import Server, ServerFailed, accepts, free_ports, java

LISTENERS = """
listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl},CONTROLLER://{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,\
CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required {users};
"""
LOG4J = """\
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}
    File:
      name: Requests
      fileName: "{requests}"
      PatternLayout: {{pattern: "[%d] %p %m (%c)%n"}}
  Loggers:
    Root: {{level: INFO, AppenderRef: {{ref: STDOUT}}}}
    Logger:
      - {{name: kafka.request.logger, level: {level}, additivity: false,
         AppenderRef: {{ref: Requests}}}}
"""
BINDING = ("slf4j-api-", "log4j-slf4j2-impl-", "log4j-api-", "log4j-core-")


class LoggingKafka(Kafka):
    """The broker of `Kafka` with a second listener, SASL/PLAIN, and a request log in a file."""

    def __init__(
        self,
        folder: Path,
        users: Sequence[str],
        level: str = "DEBUG",
        properties: Mapping[str, object] | None = None,
        version: str = VERSION,
        plugins: Sequence[Path] = (),
    ) -> None:
        """`plugins` are jars beside those of the broker."""
        super().__init__(folder, properties, version)
        (self._sasl_port,) = free_ports(1)
        self.request_log = folder / "kafka-request.log"
        self._users = users
        self._listen()
        config = folder / "log4j2.yaml"
        config.write_text(LOG4J.format(requests=self.request_log, level=level))
        jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
        binding = [str(jar) for jar in jars if jar.name.startswith(BINDING)]
        command = [
            *java(),
            "-Xms128m",
            "-Xmx512m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={config}",
            "-cp",
            ":".join([*binding, *map(str, plugins), self._classpath]),
            "kafka.Kafka",
            str(self._properties),
        ]
        self._server = Server(command, folder / "broker.log")

    def start(self) -> None:
        """Start the broker and wait until both listeners serve."""
        self._server.start(
            lambda log: (
                "Kafka Server started" in log and accepts(self._port) and accepts(self._sasl_port)
            )
        )

    def client(self, user: str) -> dict[str, str]:
        """Options with which a client is this user."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._sasl_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": _password(user),
        }

    def segments(self, topic: str) -> list[Path]:
        """The log segments of a topic."""
        return sorted((self._folder / "data").glob(f"{topic}-[0-9]*/*.log"))

    def dump(self, segments: Sequence[Path], *flags: str) -> str:
        """What DumpLogSegments prints of some segments."""
        done = subprocess.run(
            [
                *java(),
                "-Xmx256m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
                "-cp",
                self._classpath,
                "kafka.tools.DumpLogSegments",
                *flags,
                "--files",
                ",".join(map(str, segments)),
            ],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode:
            raise ServerFailed(f"cannot dump the segments\n{done.stdout}{done.stderr}")
        return done.stdout

    def _listen(self) -> None:
        """Put the second listener into the properties: the last value of a key holds."""
        users = " ".join(f'user_{user}="{_password(user)}"' for user in self._users)
        text = self._properties.read_text()
        controller = text.split("controller.quorum.voters=1@", 1)[1].split("\n", 1)[0]
        self._properties.write_text(
            text
            + LISTENERS.format(
                port=self._port, sasl=self._sasl_port, controller=controller, users=users
            )
        )


def _password(user: str) -> str:
    return f"{user}-of-the-test"
