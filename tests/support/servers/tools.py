"""The command-line tools of Kafka and Pulsar under the names that their tarballs give them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable
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


COMMANDS = """\
import java.util.Arrays;

public class Commands {
    static Class<?> tool;

    static Object of(String name, Object value) throws Exception {
        for (var field : tool.getDeclaredFields())
            if (field.getName().equals(name)) {
                field.setAccessible(true);
                if (value != null) field.set(null, value);
                return field.get(null);
            }
        return 0;
    }

    /** A program, then how many words each command has, and these. */
    public static void main(String[] words) throws Exception {
        tool = Class.forName(words[0]);
        of("allowSystemExit", false);  // of Pulsar; Kafka's ends the JVM when it fails
        for (int at = 1, end; at < words.length; at = end) {
            end = at + 1 + Integer.parseInt(words[at]);
            Object command = Arrays.copyOfRange(words, at + 1, end);
            tool.getMethod("main", String[].class).invoke(null, command);
            if (!of("lastExitCode", null).equals(0)) System.exit(1);
        }
        System.exit(0);
    }
}
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


def together(script: Path) -> Callable[[], subprocess.CompletedProcess[str]]:
    """Have a tool note the commands that it is given, and what runs them in one JVM then, each with
    its own words, in the environment of the last one: a JVM for each takes seconds."""
    words = shlex.split(script.read_text().splitlines()[-1])
    at = words.index("-cp") + 1
    program, *first = words[at + 1 : -1]
    source, noted, set_ = (script.with_name(f"Commands.{end}") for end in ("java", "words", "env"))
    source.write_text(COMMANDS)
    script.write_text(
        f"#!/bin/sh\nenv -0 > {set_}\n"
        f"printf '%s\\0' $(({len(first)} + $#)) {shlex.join(first)} \"$@\" >> {noted}\n"
    )

    def run() -> subprocess.CompletedProcess[str]:
        options = (word for word in words[:at] if word.startswith("-D"))
        commands = map(os.fsdecode, noted.read_bytes().split(b"\0")[:-1])
        line = [*java(words[at], str(source), *options), program, *commands]
        environment = dict(each.split(b"=", 1) for each in set_.read_bytes().split(b"\0")[:-1])
        return subprocess.run(
            line, env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return run


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
