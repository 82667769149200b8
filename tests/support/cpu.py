"""Processor time of each test file: a plugin of pytest, `-p tests.support.cpu`.

WEIR_CPU names a folder; each process of the suite writes a file of JSON there: seconds of wall and of
CPU by test file, the CPU of its children (JVMs, brokers, commands) included. A server that several
files share counts where it works.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import psutil
import pytest

FOLDER = Path(os.environ["WEIR_CPU"])
_ME = psutil.Process()


class _Meter:
    def __init__(self) -> None:
        self.file = ""
        self.times: dict[str, list[float]] = {}
        self._wall_s = time.monotonic()
        self._known: dict[tuple[int, float], float] = {}

    def turn_to(self, file: str) -> None:
        """Charge what was used since the last turn to the file before."""
        wall_s, cpu_s = time.monotonic(), 0.0
        mine = _ME.cpu_times()
        now = {(_ME.pid, 0.0): mine.user + mine.system}
        for child in _ME.children(recursive=True):
            try:
                now[child.pid, child.create_time()] = sum(child.cpu_times()[:4])
            except psutil.Error:  # it has just ended
                continue
        ended = mine.children_user + mine.children_system
        now[-1, 0.0] = ended
        for who, used_s in now.items():
            cpu_s += used_s - self._known.get(who, 0.0)
        # What an ended child had used while it lived was charged then.
        gone = sum(s for who, s in self._known.items() if who not in now)
        cpu_s = max(cpu_s - gone, 0.0)
        if self.file:
            found = self.times.setdefault(self.file, [0.0, 0.0])
            found[0] += wall_s - self._wall_s
            found[1] += cpu_s
        self.file, self._wall_s, self._known = file, wall_s, now


_METER = _Meter()


def pytest_runtest_logstart(nodeid: str) -> None:
    file = nodeid.partition("::")[0]
    if file != _METER.file:
        _METER.turn_to(file)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    if _METER.file:
        _METER.turn_to("")
        FOLDER.mkdir(parents=True, exist_ok=True)
        (FOLDER / f"{os.getpid()}.json").write_text(json.dumps(_METER.times))
