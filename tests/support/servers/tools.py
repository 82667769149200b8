"""The command-line tools of Kafka and Pulsar under the names that their tarballs give them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.support.servers import ivy, kafka, pulsar
from tests.support.servers.process import USED, WRITTEN, java

KAFKA = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-consumer-groups.sh": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-producer-perf-test.sh": "org.apache.kafka.tools.ProducerPerformance",
}
PULSAR = {
    "pulsar-admin": "org.apache.pulsar.admin.cli.PulsarAdminTool",
    "pulsar-perf": "org.apache.pulsar.testclient.PulsarPerfTestTool",
}
PULSAR_VERSION = "4.0.8"
"""The newest release of 4.x whose tools are in Maven's central repository."""
LOGGING = """\
<Configuration status="ERROR"><Appenders><Console name="C">
<PatternLayout pattern="%d %-5p %c - %m%n"/></Console></Appenders>
<Loggers><Root level="info"><AppenderRef ref="C"/></Root></Loggers></Configuration>
"""


def kafka_tools(folder: Path) -> Path:
    """A folder like that of Kafka's tarball, with the tools in `bin`."""
    jar = (
        f'<dependency org="org.apache.kafka" name="kafka-tools" rev="{kafka.VERSION}"'
        ' transitive="false"/>\n'
    )
    paths = [ivy.jars(f"kafka-tool-{kafka.VERSION}", jar), kafka.jars()]
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    for name, program in KAFKA.items():
        _write(folder / "bin" / name, paths, quiet, program)
    return folder


def pulsar_tools(folder: Path, broker: pulsar.Pulsar) -> Path:
    """A folder like that of Pulsar's tarball, with the tools in `bin` for a broker."""
    settings, logging = folder / "conf" / "client.conf", folder / "conf" / "log4j2.xml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f"webServiceUrl={broker.url}\nbrokerServiceUrl={broker.service_url}\n")
    logging.write_text(LOGGING)
    # The tools come without the classes of the broker that commands of pulsar-perf name.
    paths = [pulsar.jars(PULSAR_VERSION, pulsar.TOOLS), pulsar.jars()]
    option = f"-Dlog4j2.configurationFile={logging}"
    for name, program in PULSAR.items():
        _write(folder / "bin" / name, paths, option, program, str(settings))
    return folder


def _write(script: Path, jars: list[Path], option: str, program: str, *words: str) -> None:
    """A script that runs a Java program; its arguments follow `words`."""
    script.parent.mkdir(parents=True, exist_ok=True)
    classpath = ":".join(f"{folder}/*" for folder in jars)
    line = "exec " + shlex.join([*java(classpath, program, "-Xmx1g", option), *words])
    # The first start writes the archive, the next ones use it.
    line = re.sub(
        f"(.*-XX:){WRITTEN}=(\\S+)(.*)", rf"a={WRITTEN}; [ ! -f \2 ] || a={USED}\n\1$a=\2\3", line
    )
    script.write_text(f'#!/bin/sh\n{line} "$@"\n')
    script.chmod(0o755)
