"""Ctrl-C and --timeout end a command immediately, whatever library is running.

Python handles a signal between two of its own instructions. A query of DuckDB or a read of delta-rs
is one instruction, however long it takes. So a separate thread receives the signal, interrupts
DuckDB, and ends the process where nothing else does.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.errors import UserError

if TYPE_CHECKING:
    import duckdb

GRACE_S = 2.0
"""From the signal until the process ends without its own clean-up."""
AGAIN_S = 0.05
"""Between two interruptions: a command may begin a statement after the first one."""
signalled = threading.Event()
"""Set where a signal ends the body of `stoppable`."""
_connections: weakref.WeakKeyDictionary[duckdb.DuckDBPyConnection, Path]
_connections = weakref.WeakKeyDictionary()
_folders: set[Path] = set()
_lock = threading.Lock()


class Terminated(BaseException):
    """SIGTERM arrived."""


def watch(connection: duckdb.DuckDBPyConnection, spill: Path) -> None:
    """Interrupt this connection, and remove what it has written to `spill`, at a signal."""
    with _lock:
        _connections[connection] = spill


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """A folder that is removed at the end, also where a signal ends the process."""
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    with _lock:
        _folders.add(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with _lock:
            _folders.discard(folder)


@contextmanager
def stoppable(timeout_ms: int | None = None) -> Iterator[None]:
    """End the body at SIGINT (KeyboardInterrupt), SIGTERM (Terminated) or after `timeout_ms` ms
    (UserError).

    A body that does not end within GRACE_S ends the process, with the exit codes 130, 143 and 2.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    stop = _Stop(timeout_ms)
    stop.begin()
    try:
        yield
    except BaseException as error:
        # DuckDB has errors of its own for a statement that was interrupted.
        expected = stop.exception()
        if expected is None or type(error) is type(expected):
            raise
        raise expected from None
    finally:
        stop.end()


@contextmanager
def stopping_at_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, for a service that ends between two rounds."""
    stopping = threading.Event()
    earlier = {
        number: signal.signal(number, lambda *_: stopping.set())
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        yield stopping
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


class _Stop:
    """Signal handlers, timer and thread of one command."""

    def __init__(self, timeout_ms: int | None) -> None:
        self._timeout_ms = timeout_ms
        self._received: int | None = None
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._earlier: dict[int, Any] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="weir-interrupt", daemon=True)

    def begin(self) -> None:
        numbers = [signal.SIGINT, signal.SIGTERM]
        # What a parent has switched off (nohup, a job in the background) stays off.
        numbers = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]
        if self._timeout_ms is not None:
            numbers.append(signal.SIGALRM)
        self._earlier = {n: signal.signal(n, self._handle) for n in numbers}
        self._earlier_fd = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread.start()
        if self._timeout_ms is not None:
            signal.setitimer(signal.ITIMER_REAL, max(self._timeout_ms, 1) / 1000)

    def end(self) -> None:
        logging.disable(logging.NOTSET)
        if self._timeout_ms is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._done.set()
        signal.set_wakeup_fd(self._earlier_fd)
        for number, handler in self._earlier.items():
            signal.signal(number, handler)
        os.close(self._write)  # the thread reads the end
        self._thread.join()
        os.close(self._read)

    def exception(self) -> BaseException | None:
        """The exception for the received signal; None without one."""
        if self._received is None:
            return None
        if self._received == signal.SIGINT:
            return KeyboardInterrupt()
        return Terminated() if self._received == signal.SIGTERM else UserError(self._late())

    def _late(self) -> str:
        return f"--timeout: no answer within {(self._timeout_ms or 0) / 1000:g} s"

    def _handle(self, number: int, _frame: Any) -> None:
        self._received = self._received or number
        # Log lines of interrupted libraries, such as Py4J's stack trace, carry no information.
        logging.disable(logging.CRITICAL)
        if not self._done.is_set():
            error = self.exception()
            assert error is not None
            raise error

    def _watch(self) -> None:
        """Wait for a signal, then interrupt until the command has ended or the grace is over."""
        while numbers := os.read(self._read, 64):
            wanted = [number for number in numbers if number in self._earlier]
            if wanted:
                break
        else:
            return
        self._received = self._received or wanted[0]
        signalled.set()
        for _ in range(int(GRACE_S / AGAIN_S)):
            _interrupt_all()
            if self._done.wait(AGAIN_S):
                return
        self._end_process()

    def _end_process(self) -> None:
        for folder in (*_folders, *(spill for _, spill in _watched())):
            shutil.rmtree(folder, ignore_errors=True)
        number = self._received or signal.SIGINT
        late = number == signal.SIGALRM
        print(f"weir: {self._late() if late else 'interrupted'}", file=sys.stderr, flush=True)
        os._exit(2 if late else 128 + number)


def _watched() -> list[tuple[duckdb.DuckDBPyConnection, Path]]:
    with _lock:
        return list(_connections.items())


def _interrupt_all() -> None:
    watched = _watched()
    if not watched:
        return
    import duckdb

    for connection, _ in watched:
        with suppress(duckdb.Error):  # it has been closed meanwhile
            connection.interrupt()
