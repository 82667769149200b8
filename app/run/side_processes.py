"""What works beside the queries of a run: one table, each entry in processes of low priority.

    python -m app.run.side_processes NAME

The process gets the settings as one line of JSON on its standard input. The run waits for none of
them, and ends them with itself. The alert rules have one process that stays; every other entry has
one for each round, and while a round takes longer than the interval, no other begins.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from app.errors import UserError, not_installed, reason
from app.terminal.printable import say
from app.threads import working

if TYPE_CHECKING:
    from app.config.settings import Settings

Log = Callable[[str], None]
NICENESS = 10
"""The stream has priority over other processes when cores are scarce."""
POLL_S = 0.2
LEAD_S = 5.0
"""A round at multiples of its interval is started so long before: a process takes time to come."""
LAST_ROUND_S = 60.0
"""Time limit of the round of alerts after the end of the run."""
LONGEST_PAUSE_S = 300.0
NAMED = 5
"""Problems of a round that are named."""


@dataclass(frozen=True)
class RepeatedWork:
    """Work that is repeated beside a run."""

    interval_ms: Callable[[Settings], int | None]
    """None: it is not configured."""
    work: Callable[[Settings], list[str]]
    """In the process: one round; its problems."""
    aligned: bool = False
    """Rounds begin at multiples of the interval since the epoch."""
    package: str | None = None
    """What it needs that an image for polls does not have."""


def _audit(settings: Settings) -> list[str]:
    from app.read.relations import Warehouse
    from app.show.audit.audit_command import audit_warehouse
    from app.tables.definitions import TABLES

    os.nice(NICENESS)
    rows = audit_warehouse(Warehouse.of(settings.location), list(TABLES))
    failed = [f"{row['table']}: {row['expectation']}" for row in rows if not row["success"]]
    return [f"{len(failed)} of {len(rows)} expectations failed ({_named(failed)})"] * bool(failed)


def _maintain(settings: Settings) -> list[str]:
    from app.read.relations import Warehouse
    from app.run.maintenance.upkeep import upkeep
    from app.tables.run_lock import only_maintenance

    os.nice(NICENESS)
    with only_maintenance(settings.location):
        done = upkeep(Warehouse.of(settings.location), settings.maintenance)
    return [f"{kept.table}: {kept.problem}" for kept in done.tables if kept.problem]


def _forecast(settings: Settings) -> list[str]:
    from app.read.relations import Warehouse
    from app.show.forecast.forecasting import one_round
    from app.tables.run_lock import only_forecast

    os.nice(NICENESS)
    with only_forecast(settings.location):
        warehouse = Warehouse.of(settings.location)
        one_round(warehouse, settings.forecast.history_ms).keep(warehouse)
    return []


def _reconcile(settings: Settings) -> list[str]:
    from app.show.reconcile.comparing import one_round, own
    from app.show.reconcile.reconcile_command import until_next
    from app.tables.run_lock import only_reconciliation

    until_next(own(settings).interval_ms or 1, threading.Event())
    with only_reconciliation(settings.location):
        os.nice(NICENESS)
        return one_round(settings).problems


ROUNDS = {
    "quality": RepeatedWork(
        lambda settings: settings.quality.interval_ms, _audit, package="great_expectations"
    ),
    "maintenance": RepeatedWork(lambda settings: settings.maintenance.interval_ms, _maintain),
    "reconcile": RepeatedWork(
        lambda settings: settings.reconcile.interval_ms if settings.reconcile else None,
        _reconcile,
        aligned=True,
    ),
    "forecast": RepeatedWork(lambda settings: settings.forecast.interval_ms, _forecast),
}
ALERTS = "alerts"


# -- in the run --------------------------------------------------------------------------------


@contextmanager
def working_beside(settings: Settings, endless: bool, log: Log) -> Iterator[None]:
    """A context in which all of it works that is configured: rounds if the run has no end, alerts
    in any case. Problems go to `log`, repeated ones of rounds once.
    """
    with ExitStack() as stack:
        stack.enter_context(evaluating(settings, log))
        for name in ROUNDS if endless else ():
            stack.enter_context(repeating(name, settings, log))
        yield


@contextmanager
def repeating(name: str, settings: Settings, log: Log) -> Iterator[None]:
    """A context with a round of ROUNDS at every interval of its own, if it is configured."""
    each = ROUNDS[name]
    interval_ms = each.interval_ms(settings)
    if interval_ms is None:
        yield
        return
    if each.package and find_spec(each.package) is None:
        log(f"{name}: none is made: {not_installed(each.package)}".replace("\n", "; "))
        yield
        return

    def repeat(stop: threading.Event) -> None:
        reported = ""
        while not stop.wait(_pause_s(interval_ms, each.aligned)):
            try:
                problems = one_round(name, settings.model_dump_json(), stop)
            except Exception as error:  # noqa: BLE001 - no process may start, for example
                problems = f"failed ({reason(error)})"
            if problems and problems != reported and not stop.is_set():
                log(f"{name}: {problems}")
            reported = problems

    with working(repeat, name):
        yield


def _pause_s(interval_ms: int, aligned: bool) -> float:
    if not aligned:
        return interval_ms / 1000
    return (interval_ms - (time.time() + LEAD_S) * 1000 % interval_ms) / 1000


def one_round(name: str, settings: str, stop: threading.Event) -> str:
    """One round in its process, which gets the `settings` as JSON; its problems or its error, in a
    line. Cancelled by `stop`.
    """
    with _started(name, stdout=subprocess.PIPE) as process:
        asked: bytes | None = settings.encode()
        while True:
            try:
                out, error = process.communicate(asked, timeout=POLL_S)
                break
            except subprocess.TimeoutExpired:
                asked = None
                if stop.is_set():
                    process.terminate()
    if process.returncode not in (0, 2) and not stop.is_set():
        last = error.decode(errors="replace").strip().rpartition("\n")[2]
        return f"failed ({reason(last or 'no message')})"
    return out.decode(errors="replace").strip()


def _started(name: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", __name__, name],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.PIPE,
        stdout=stdout,
        stderr=subprocess.PIPE,
        start_new_session=True,  # an interrupt from the keyboard is for the run, which ends it
    )


@contextmanager
def evaluating(settings: Settings, log: Log) -> Iterator[None]:
    """A context in which alert rules are evaluated every `alerts.interval_ms`, and once more at its
    end."""
    if not settings.alerts.interval_ms:
        yield
        return
    keeper = _Keeper(settings.model_dump_json(), log)
    keeper.start()
    try:
        yield
    finally:
        keeper.stop()


class _Keeper:
    """Starts the process of the alerts, and restarts it with growing pauses if it dies.

    Its standard input stays open: end of file means that the run has ended, for whatever reason.
    """

    def __init__(self, settings: str, log: Log) -> None:
        self._document = settings.encode() + b"\n"
        self._log = log
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._keep, name=ALERTS, daemon=True)

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
            self._log(f"{ALERTS}: the last round exceeds {LAST_ROUND_S:.0f} s and is cancelled")
            process.kill()
            self._thread.join()

    def _keep(self) -> None:
        pause_s = 1.0
        while True:
            began = time.monotonic()
            try:
                code = self._one()
            except Exception as error:  # noqa: BLE001 - no process may start, for example
                self._log(f"{ALERTS}: {reason(error)}")
                code = 1
            if code == 0 or self._stopping.is_set():
                return
            if time.monotonic() - began > LONGEST_PAUSE_S:
                pause_s = 1.0
            self._log(f"{ALERTS}: the process ended with code {code}; restart in {pause_s:.0f} s")
            if self._stopping.wait(pause_s):
                return
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    def _one(self) -> int:
        """Run the process to its end; its exit code."""
        with self._lock:
            if self._stopping.is_set():
                return 0
            process = self._process = _started(ALERTS)
            assert process.stdin is not None and process.stderr is not None
            try:
                process.stdin.write(self._document)
                process.stdin.flush()
            except BrokenPipeError:
                pass  # the exit code is reported below
        for text in process.stderr:
            self._log(f"{ALERTS}: {text.decode(errors='replace').rstrip()}")
        return process.wait()


# -- in the process ----------------------------------------------------------------------------


def main(name: str) -> int:
    """The process of an entry; 2 if its work is refused."""
    from app.config.settings import Settings
    from app.tables.run_lock import Busy

    settings = Settings.model_validate_json(sys.stdin.buffer.readline())
    if name == ALERTS:
        return _evaluate(settings)
    try:
        problems = ROUNDS[name].work(settings)
    except Busy:
        return 0  # who has the lock does the same
    except UserError as error:
        print(reason(error))
        return 2
    if problems:
        print(_named(problems))
    return 0


def _named(problems: Sequence[str]) -> str:
    more = f" and {len(problems) - NAMED} more" if len(problems) > NAMED else ""
    return "; ".join(problems[:NAMED]) + more


def _evaluate(settings: Settings) -> int:
    from app.config.alerts import StdoutSink
    from app.read.relations import Warehouse
    from app.show.alerts.evaluator import Evaluator, keep_watching, one_round

    os.nice(NICENESS)
    stopping = threading.Event()

    def wait_for_end() -> None:
        os.read(sys.stdin.fileno(), 1)  # nothing more is ever written there
        stopping.set()

    threading.Thread(target=wait_for_end, daemon=True).start()

    def log(text: str) -> None:
        say(text, file=sys.stderr, flush=True)

    formats = sorted({s.format for s in settings.alerts.sinks if isinstance(s, StdoutSink)})
    interval_ms = settings.alerts.interval_ms
    assert interval_ms is not None
    try:
        evaluator = Evaluator(Warehouse.of(settings.location, settings.owners), settings.alerts)
    except UserError as error:
        log(f"{error}; no alerts are evaluated")
        return 0
    logged = keep_watching(
        evaluator, interval_ms, stopping, log, formats, first_after_ms=interval_ms
    )
    one_round(evaluator, threading.Event(), log, formats, logged)
    # all is written; DuckDB would tell of what is open at the end of an interpreter, a line each
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
