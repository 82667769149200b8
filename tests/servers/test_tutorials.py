"""The tutorials, run as a reader runs them: every command of a page, in order, in one terminal.

The blocks of `sh` run; those of `bash`, which fetch and start a broker, are replaced by a broker of
the suite. A block of `text` shows what the commands above it print.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from tests.conftest import ROOT
from tests.support.servers import pulsar_plugin
from tests.support.servers.kafka import Kafka
from tests.support.servers.process import serving
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.tools import kafka_tools, pulsar_tools

TUTORIALS = ROOT / "docs" / "tutorials"
OF_PYTEST = ("PYTHONPATH", "SPARK_CONF_DIR", "WEIR_JARS", "WEIR_JAVA_OPTIONS", "COLUMNS")
"""Variables that a reader does not have."""
COLUMNS, PATIENCE_S = 100, 400
NUMBER = re.compile(r"\d[\d,.]*")
STEP = re.compile(r"^```sh\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.M | re.S)
"""Commands, and what they print if the page shows it."""


def walk(page: Path, folder: Path, values: Mapping[str, object]) -> list[str]:
    """Run the commands of a page, whose variables get values of this machine; what each block
    printed, which is what the page shows."""
    text = page.read_text("utf-8")
    for name, value in values.items():
        text, times = re.subn(rf"^{name}=.*$", f"{name}={value}", text, flags=re.M)
        assert times == 1, name
    steps = STEP.findall(text)
    (folder / "spark-submit.sh").write_text(f'#!/bin/sh\nexec {ROOT}/spark-submit.sh "$@"\n')
    (folder / "spark-submit.sh").chmod(0o755)
    script = folder / "page.sh"
    script.write_text("\n".join(f"{commands}printf '\\f'" for commands, _ in steps))
    printed = on_a_terminal(["bash", "-eu", str(script)], folder).split("\f")
    for (commands, shown), seen in zip(steps, printed, strict=False):
        assert_shown(shown, seen, commands)
    assert len(printed) == len(steps) + 1, f"the page ended early: {printed[-1]}"
    return printed


def on_a_terminal(command: list[str], folder: Path) -> str:
    """What a command prints on a terminal; what it has left behind is ended."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, COLUMNS))
    kept = {name: value for name, value in os.environ.items() if name not in OF_PYTEST}
    with (folder / "printed").open("wb") as out, os.fdopen(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        reader = threading.Thread(target=copy, args=(terminal, out), daemon=True)
        reader.start()
        try:
            process.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            os.close(theirs)
            reader.join(10)
    return (folder / "printed").read_text("utf-8").replace("\r\n", "\n")


def copy(terminal: IO[bytes], out: IO[bytes]) -> None:
    """Copy all that a terminal gets; it fails to be read once nobody can write to it."""
    with suppress(OSError):
        while data := terminal.read(65536):
            out.write(data)
            out.flush()


def assert_shown(shown: str, seen: str, commands: str) -> None:
    """The parts between `...` of a shown text are in what was seen, in this order; numbers and the
    widths of columns may differ."""
    rest = seen
    for part in shown.split("...\n"):
        texts = NUMBER.split(" ".join(part.split()))
        pattern = NUMBER.pattern.join(map(re.escape, texts)).replace(r"\ ", r"\s+")
        match = re.search(pattern, rest)
        assert match, f"{commands}\nThe page shows\n\n{part}\nbut what was printed is\n\n{seen}"
        rest = rest[match.end() :]


def column(printed: str, name: str) -> str:
    """A value of the first row, one column a line."""
    match = re.search(rf"^{name} +(\S+)$", printed, re.M)
    assert match, printed
    return match[1]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Kafka]:
    """A Kafka broker that looks for old records as often as that of the page."""
    often = {"log.retention.check.interval.ms": 1000}
    with serving(lambda: Kafka(tmp_path / "broker", often), "Kafka broker") as kafka:
        yield kafka


@pytest.mark.kafka
def test_the_tutorial_with_kafka(broker: Kafka, tmp_path: Path) -> None:
    values = {
        "KAFKA": kafka_tools(tmp_path / "kafka"),
        "SERVER": broker.servers,
    }
    printed = walk(TUTORIALS / "kafka.md", tmp_path, values)
    losses = next(text for text in printed if "to_offset" in text)
    heading, _, row = (re.split("  +", line) for line in losses.strip().splitlines()[:3])
    lost = dict(zip(heading, row, strict=True))
    first, beyond = (int(lost[f"{end}_offset"]) for end in ("from", "to"))
    assert first == 100
    assert int(lost["offsets"]) == beyond - first > 0


def test_the_tutorial_with_pulsar(pulsar: Pulsar, tmp_path: Path) -> None:
    tools = tmp_path / "pulsar"
    # The number of pauses begins anew with each update of the broker's statistics: not here.
    pulsar_plugin.start(
        pulsar,
        tools / "data" / "weir",
        statsUpdateFrequencyInSecs="3600",
        statsUpdateInitialDelayInSecs="3600",
    )
    pulsar_tools(tools, pulsar)
    page = TUTORIALS / "pulsar.md"
    assert pulsar_plugin.nar().name in page.read_text("utf-8")
    printed = walk(page, tmp_path, {"PULSAR": tools})
    blame = next(text for text in printed if "culprit" in text)
    counted = next(text for text in printed if "publishRateLimitedTimes" in text)
    times = int(re.search(r'Times" : (\d+)', counted)[1])
    assert abs(int(column(blame, "pauses")) - times) <= 0.02 * times
