"""Processor time of each test file: a plugin of pytest, `-p tests.support.cpu`.

WEIR_CPU names a folder; each process of the suite writes a file of JSON there: seconds of wall and of
CPU by test file, the CPU of its children (JVMs, brokers, commands) included. A server that several
files share counts where it works.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

FOLDER = Path(os.environ["WEIR_CPU"])
_ME = psutil.Process()


def _used_s() -> float:
    """CPU seconds of this process and of all below it, those of ended children included: what a
    process has waited for is in its own times."""
    used_s = 0.0
    for each in (_ME, *_ME.children(recursive=True)):
        with suppress(psutil.Error):  # it has just ended
            used_s += sum(each.cpu_times()[:4])
    return used_s


class _Meter:
    """Measures each file from its first test to that of the next file."""

    def __init__(self) -> None:
        self.file = ""
        self.times: dict[str, list[float]] = {}
        self._since = time.monotonic(), _used_s()

    def turn_to(self, file: str) -> None:
        """Charge what was used since the last turn to the file before."""
        now = time.monotonic(), _used_s()
        if self.file:
            found = self.times.setdefault(self.file, [0.0, 0.0])
            for i in range(2):
                found[i] += max(now[i] - self._since[i], 0.0)
        self.file, self._since = file, now

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        file = nodeid.partition("::")[0]
        if file != self.file:
            self.turn_to(file)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self.file:
            self.turn_to("")
            FOLDER.mkdir(parents=True, exist_ok=True)
            (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(self.times))


def pytest_configure(config: pytest.Config) -> None:
    """Measure in each process that runs tests: the one that hands them out is told of every test,
    and has all the others below it."""
    if not config.getoption("numprocesses", None):
        config.pluginmanager.register(_Meter())
