"""Audits during a run: periodically, in a separate process with low priority.

A thread of the driver waits for that process and does nothing else, so neither the commits nor the
tasks of the stream wait for an audit. While one takes longer than the interval, no other begins.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.config.settings import Settings

POLL_S = 0.2


@contextmanager
def beside(settings: Settings, endless: bool, say: Callable[[str], None]) -> Iterator[None]:
    """A context in which audits run, if they are configured and the run has no end; failures
    go to `say`; repeated failures are reported once."""
    if settings.quality.interval_ms is None or not endless:
        yield
        return
    stop = Event()
    thread = Thread(
        target=_repeat, args=(settings, settings.quality.interval_ms / 1000, stop, say),
        name="quality", daemon=True,
    )
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _repeat(
    settings: Settings, interval_s: float, stop: Event, say: Callable[[str], None]
) -> None:
    reported = ""
    while not stop.wait(interval_s):
        found = audit_once(settings, stop)
        if found and found != reported and not stop.is_set():
            say(f"quality: {found}")
        reported = found


def audit_once(settings: Settings, stop: Event) -> str:
    """One audit; its failures or its error, in a line. Cancelled by `stop`."""
    path = os.pathsep.join(filter(None, sys.path))
    with subprocess.Popen(
        [sys.executable, "-m", "app.quality"], text=True, env={**os.environ, "PYTHONPATH": path},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        # An interrupt from the keyboard is for the run, which ends it.
        start_new_session=True,
    ) as process:
        asked: str | None = settings.model_dump_json()
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
        return f"the audit failed ({last[:200]})"
    return out.strip()
