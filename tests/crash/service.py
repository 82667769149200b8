"""A command as a user starts it: spark-submit.sh, the JVM, the driver, Python workers, executors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

import psutil

from app.config.settings import load_settings
from tests.conftest import ROOT

OF_PYTEST = (
    "PYTHONPATH",
    "PYSPARK_PYTHON",
    "PYSPARK_DRIVER_PYTHON",
    "SPARK_CONF_DIR",
    "WEIR_JARS",
    "WEIR_JAVA_OPTIONS",
)
"""Variables that a user does not have."""
WITHIN_S = 60.0
"""Time in which a run has to stop that cannot go on."""
PATIENCE_S = 300.0
"""Time for anything else, on a machine that has other work."""
LOCAL = "local[2]"
WORKER = "daemon pyspark"
"""Of Weir's daemon, which has the cores, or of Spark's, which plans sources."""
EXECUTOR = "CoarseGrainedExecutorBackend"
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z [A-Z]{4,7} +")


class Failed(Exception):
    """A run did not do what is expected of it."""


class Submitted:
    """A command line as a user starts it; what it says goes into files."""

    def __init__(
        self,
        words: Sequence[str],
        said: Path,
        *,
        master: str = LOCAL,
        variables: Mapping[str, str] | None = None,
        confs: Sequence[str] = (),
        without: Sequence[str] = OF_PYTEST,
    ) -> None:
        """`without` names variables of this process that it does not get."""
        self._said, self._out = said, said.with_suffix(".out")
        given = ["spark.ui.enabled=false", *confs]
        options = [word for conf in given for word in ("--conf", conf)]
        kept = {name: value for name, value in os.environ.items() if name not in without}
        with self._said.open("w") as err, self._out.open("w") as out:
            self._process = subprocess.Popen(
                [str(ROOT / "spark-submit.sh"), "--master", master, *options, *words],
                stdout=out,
                stderr=err,
                start_new_session=True,
                env={**kept, **(variables or {})},
            )

    @property
    def said(self) -> str:
        """What it has written to its standard error so far."""
        return self._said.read_text(errors="replace")

    @property
    def out(self) -> str:
        """What it has written to its standard output so far."""
        return self._out.read_text(errors="replace")

    @property
    def alive(self) -> bool:
        """Whether the process that a service manager knows lives."""
        return self._process.poll() is None

    def wait(self, what: Callable[[], bool], name: str = "it") -> None:
        """Wait until something holds while the command goes on."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            if not self.alive:
                raise Failed(f"the run ended with {self._process.returncode}: {self.end}")
            if time.monotonic() > deadline:
                raise Failed(f"{name} did not happen within {PATIENCE_S:.0f} s: {self.end}")
            time.sleep(0.01)

    def processes(self, word: str = "") -> list[psutil.Process]:
        """Its processes whose command has the word; children without children last."""
        try:
            found = psutil.Process(self._process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return [each for each in found if word in _command(each)]

    @property
    def driver(self) -> psutil.Process | None:
        """The Python of the driver; None before it has started."""
        return next(
            (
                each
                for each in self.processes("app/main.py")
                if "java" not in _command(each).split()[0]
            ),
            None,
        )

    def kill(self, victim: psutil.Process | None = None) -> None:
        """SIGKILL for one process, the JVM if none is given; the others have to end by themselves."""
        others, deadline = self.processes(), time.monotonic() + WITHIN_S
        (victim or psutil.Process(self._process.pid)).kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(WITHIN_S)  # first: who waits for it takes its exit code
        _, left = psutil.wait_procs(others, max(deadline - time.monotonic(), 0))
        if self._process.poll() is None or left:
            names = ", ".join(f"{each.pid} {_command(each)[:120]}" for each in left)
            raise Failed(f"still there {WITHIN_S:.0f} s after a part was killed: {names}")

    def terminate(self) -> None:
        """Ask it to stop, as a service manager or a cluster does."""
        self._process.send_signal(signal.SIGTERM)

    def interrupt(self) -> None:
        """A Ctrl-C: everything that the terminal has started gets it."""
        os.killpg(self._process.pid, signal.SIGINT)

    def code(self, within_s: float = PATIENCE_S) -> int:
        """The exit code of its process, once it has ended; Failed if it does not within its time."""
        try:
            return self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            raise Failed(f"still running after {within_s:.0f} s: {self.end}") from None

    def refused(self, within_s: float = WITHIN_S) -> list[str]:
        """The lines with which it stops, by exit code 2; Failed if it does not within its time."""
        code = self.code(within_s)
        if code != 2:
            raise Failed(f"ended with {code} and not 2: {self.end}")
        return self.last_lines()

    def last_lines(self) -> list[str]:
        """Its last message, a line or two."""
        return last_message(self.said)

    def stop(self) -> None:
        """Ask it to stop, and wait for the end of it; Failed unless its exit code is 0."""
        self.terminate()
        self.end_well()

    def end_well(self) -> None:
        """Wait for the end of it; Failed unless its exit code is 0."""
        code = self.code()
        if code:
            raise Failed(f"ended with {code}: {self.end}")

    def close(self) -> None:
        """End whatever of it is still there."""
        for each in [*self.processes(), self._process]:
            try:
                each.kill()
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        self._process.wait()

    @property
    def end(self) -> str:
        """The end of what it has said."""
        return " / ".join(self.said.splitlines()[-6:])[-1500:]


class Service(Submitted):
    """One start of `run` without an end, or of another command with a configuration."""

    def __init__(
        self,
        config: Path,
        command: str = "run",
        *options: str,
        master: str = LOCAL,
        variables: Mapping[str, str] | None = None,
        confs: Sequence[str] = (),
    ) -> None:
        self._settings = load_settings(config)
        super().__init__(
            [command, "--config", str(config), *options],
            config.with_name(f"{config.stem}.log"),
            master=master,
            variables=variables,
            confs=[
                "spark.executor.memory=512m",
                "spark.driver.extraJavaOptions=-Xss4m",
                *confs,
            ],
        )

    def batches(self, query: str, log: str) -> int:
        """How many batches stand in one of the logs of a query's checkpoint."""
        return batches(self._settings.warehouse, query, log)

    def wait_to_read(self, places: Mapping[str, int]) -> None:
        """Wait until every query has ended the batch that reaches the end of each partition."""

        def reached(query: str) -> bool:
            number = self.batches(query, "commits") - 1
            log = Path(self._settings.warehouse, "_weir", "checkpoints", query, "offsets")
            if number < 0 or number + 1 != self.batches(query, "offsets"):
                return False
            (found,) = json.loads((log / str(number)).read_text().splitlines()[-1]).values()
            return all(found.get(name, 0) >= end for name, end in places.items())

        folder = Path(self._settings.warehouse, "_weir", "checkpoints")

        def all_reached() -> bool:
            return all(reached(log.parent.name) for log in folder.glob("*/offsets"))

        self.wait(lambda: reached("govern") and all_reached(), f"reading up to {places}")

    def wait_for_batches(self, more: int, query: str = "govern") -> None:
        """Wait until the query has ended so many more batches."""
        end = self.batches(query, "commits") + more
        self.wait(lambda: self.batches(query, "commits") >= end, f"batch {end} of {query}")


def last_message(said: str) -> list[str]:
    """The last message of a start, a line or two, which the log has on one; without what Spark says."""
    lines = said.splitlines()
    found = list(takewhile(lambda line: LINE.match(line) and "Z ERROR " in line, lines[::-1]))
    if found:
        return [part for line in found[::-1] for part in LINE.sub("", line).split(" | ")]
    refused = [line for line in lines if line.startswith("weir: ")]  # before the log begins
    return lines[lines.index(refused[-1]) :] if refused else []


def batches(warehouse: str, query: str, log: str) -> int:
    """How many batches stand in a log of a query's checkpoint: the number of the last, plus one."""
    folder = Path(warehouse) / "_weir" / "checkpoints" / query / log
    found = [int(p.name) for p in folder.iterdir() if p.name.isdigit()] if folder.is_dir() else []
    return max(found, default=-1) + 1


def killed_at(config: Path, query: str, step: str, number: int, *archive: str) -> None:
    """A run that kills itself at a step of a commit, which may begin with the archive of another
    warehouse; Failed if it ends in another way."""
    command = [
        sys.executable,
        "-m",
        "tests.crash.killed_run",
        str(config),
        query,
        step,
        str(number),
        *archive,
    ]
    ended = subprocess.run(command, timeout=300, check=False, capture_output=True, text=True)
    if ended.returncode != -signal.SIGKILL:
        raise Failed(f"ended with {ended.returncode} at {step}: {ended.stderr[-1500:]}")


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
