"""Evaluates the alert rules during a run, in a process that the stream does not wait for.

The run writes its configuration to the standard input of the process and leaves it open. End of
file means that the run has ended, for whatever reason: the process makes one more round over the
last commit and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.background.rounds import NICENESS
from app.terminal.printable import say
from app.warehouse.reach import by_delta_rs

if TYPE_CHECKING:
    from app.config.settings import Settings

Log = Callable[[str], None]
LAST_ROUND_S = 60.0
"""Time limit of the round after the end of the run."""
LONGEST_PAUSE_S = 300.0


def check(settings: Settings) -> None:
    """Refuse rule files that cannot be read, before Spark starts, with a UserError."""
    from app.alerts.rule_files import rules_of

    if settings.alerts.interval_ms and settings.alerts.rule_files is not None:
        rules_of(settings.alerts)


@contextmanager
def beside(settings: Settings, log: Log) -> Iterator[None]:
    """Evaluate the rules every `alerts.interval_ms`, and once more at the end; null is off."""
    if not settings.alerts.interval_ms:
        yield
        return
    if not by_delta_rs(settings.warehouse):
        log("alerts: not evaluated, since only Spark reaches this warehouse")
        yield
        return
    keeper = _Keeper(settings, log)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class _Keeper:
    """Starts the process, and restarts it with growing pauses if it dies."""

    def __init__(self, settings: Settings, log: Log) -> None:
        self._document = settings.model_dump_json().encode() + b"\n"
        self._log = log
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name="alerts", daemon=True)

    def start(self) -> None:
        """Start the process and the thread that supervises it."""
        self._thread.start()

    def stop(self) -> None:
        """Let the process make its last round, and kill it if that takes too long."""
        with self._lock:
            self._stopping.set()
            process = self._process
            if process is not None and process.stdin is not None:
                process.stdin.close()
        self._thread.join(LAST_ROUND_S)
        if self._thread.is_alive() and process is not None:
            self._log(f"alerts: the last round exceeds {LAST_ROUND_S:.0f} s and is cancelled")
            process.kill()
            self._thread.join()

    def _keep(self) -> None:
        pause_s = 1.0
        while True:
            began = time.monotonic()
            code = self._one()
            if code == 0 or self._stopping.is_set():
                return
            if time.monotonic() - began > LONGEST_PAUSE_S:
                pause_s = 1.0
            self._log(f"alerts: the process ended with code {code}; restart in {pause_s:.0f} s")
            if self._stopping.wait(pause_s):
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _one(self) -> int:
        """Run the process to its end; its exit code."""
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = subprocess.Popen(
                [sys.executable, "-m", "app.alerts.beside"],
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,  # Ctrl-C is handled by the run, which ends this process
            )
            self._process = process
            assert process.stdin is not None and process.stderr is not None
            try:
                process.stdin.write(self._document)
                process.stdin.flush()
            except BrokenPipeError:
                pass  # the exit code is reported below
        for text in process.stderr:
            self._log(f"alerts: {text.decode(errors='replace').rstrip()}")
        return process.wait()


def main() -> int:
    """The process: the configuration is the first line of its standard input."""
    from app.alerts.rounds import Evaluator, keep_watching, one_round
    from app.config.alerts import StdoutSink
    from app.config.settings import Settings
    from app.errors import UserError

    os.nice(NICENESS)
    settings = Settings.model_validate_json(sys.stdin.buffer.readline())
    stopping = threading.Event()

    def wait_for_end() -> None:
        # Nothing more is ever written there.
        os.read(sys.stdin.fileno(), 1)
        stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()

    def log(text: str) -> None:
        say(text, file=sys.stderr, flush=True)

    formats = sorted({s.format for s in settings.alerts.sinks if isinstance(s, StdoutSink)})
    interval_ms = settings.alerts.interval_ms
    assert interval_ms is not None
    try:
        evaluator = Evaluator(settings)
    except UserError as error:
        log(f"{error}; no alerts are evaluated")
        return 0
    logged = keep_watching(
        evaluator, interval_ms, stopping, log, formats, first_after_ms=interval_ms
    )
    one_round(evaluator, threading.Event(), log, formats, logged)
    return 0


if __name__ == "__main__":
    sys.exit(main())
