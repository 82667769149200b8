"""A Kafka broker that writes a request log, and the dump of its segments.

The jars of the broker hold no binding of its logging to Log4j; those of Spark do, so they stand
before them on the class path.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyspark

from tests.support.servers.kafka import VERSION, Kafka
from tests.support.servers.process import ServerFailed, java
from tests.support.servers.sasl_kafka import SaslKafka

LOG4J = """\
appender.console.type = Console
appender.console.name = STDOUT
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
appender.requests.type = File
appender.requests.name = Requests
appender.requests.fileName = {requests}
appender.requests.layout.type = PatternLayout
appender.requests.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = STDOUT
logger.requests.name = kafka.request.logger
logger.requests.level = {level}
logger.requests.additivity = false
logger.requests.appenderRef.requests.ref = Requests
"""
BINDING = ("slf4j-api-", "log4j-slf4j2-impl-", "log4j-api-", "log4j-core-")


class LoggingKafka(SaslKafka):
    """The broker of `SaslKafka` with a request log in a file."""

    def __init__(
        self,
        folder: Path,
        users: Sequence[str],
        level: str = "DEBUG",
        properties: Mapping[str, object] | None = None,
        version: str = VERSION,
        joins: Kafka | None = None,
        plugins: Sequence[Path] = (),
    ) -> None:
        super().__init__(folder, users, properties, version, plugins, joins)
        self.request_log = folder / "kafka-request.log"
        config = folder / "log4j2.properties"
        config.write_text(LOG4J.format(requests=self.request_log, level=level))
        jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
        binding = [str(jar) for jar in jars if jar.name.startswith(BINDING)]
        classpath = ":".join([*binding, self._classpath])
        self._server = self._process(classpath, f"-Dlog4j2.configurationFile={config}")

    def segments(self, topic: str) -> list[Path]:
        """The log segments of a topic."""
        return sorted((self._folder / "data").glob(f"{topic}-[0-9]*/*.log"))

    def dump(self, segments: Sequence[Path], *flags: str) -> str:
        """What DumpLogSegments prints of some segments."""
        quiet = ("-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error")
        done = subprocess.run(
            [
                *java(self._classpath, "kafka.tools.DumpLogSegments", *quiet),
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
