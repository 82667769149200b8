"""Rounds beside a run: each is a process of its own.

A round is `python -m MODULE`. It reads its configuration from its standard input; what it has to
report is a line on its standard output, with exit code 0 or 2. The run does not wait for it, and
while it takes longer than the interval, no other begins.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from threading import Event

from app.background.threads import working

POLL_S = 0.2
NICENESS = 10
"""The stream has priority over other processes when cores are scarce."""


def repeating(
    module: str, document: str, interval_ms: int, name: str, say: Callable[[str], None]
) -> AbstractContextManager[None]:
    """A context with a round every `interval_ms`; reports go to `say`, repeated ones once."""

    def repeat(stop: Event) -> None:
        reported = ""
        while not stop.wait(interval_ms / 1000):
            found = one_round(module, document, stop)
            if found and found != reported and not stop.is_set():
                say(f"{name}: {found}")
            reported = found

    return working(repeat, name)


def one_round(module: str, document: str, stop: Event) -> str:
    """One round; its report or its error, in a line. Cancelled by `stop`."""
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, "-m", module],
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # An interrupt from the keyboard is for the run, which ends it.
        start_new_session=True,
    ) as process:
        asked: str | None = document
        while True:
            try:
                out, error = process.communicate(asked, timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                asked = None
                if stop.is_set():
                    process.terminate()
    if process.returncode not in (0, 2) and not stop.is_set():
        last = (error.strip().splitlines() or ["no message"])[-1]
        return f"failed ({last[:200]})"
    return out.strip()
