"""Ends the driver with its JVM, which somebody else may end: the system, where memory is short."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from app.terminal import log

GONE = (
    "the JVM of this run has ended: it was killed, as the system does where memory is short, or has"
    " crashed (hs_err_pid*.log)\nstart again: the run continues at its checkpoint"
)
INTERNAL = 3
"""Exit code of an internal error."""
SIGNALLED_S = 0.5
"""For so long after the JVM's end this process may take note of a signal that both have got."""


@contextmanager
def ending_with_jvm() -> Iterator[None]:
    """A context in which this process ends when the JVM that has started it does, and says so.

    Nothing can be finished without it: each thread would report for itself that it cannot ask it. Where
    both get a signal, as of Ctrl-C, this process ends as the signal asks.
    """
    over = threading.Event()
    try:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            jvm = os.pidfd_open(os.getppid())
            threading.Thread(target=_end, args=(jvm, over), name="JVM", daemon=True).start()
    except (AttributeError, OSError):
        pass  # not on this system
    earlier = _noting(over)
    try:
        yield
    finally:
        over.set()
        for number, handler in earlier.items():
            signal.signal(number, handler)


def _noting(over: threading.Event) -> dict[signal.Signals, Any]:
    """Set an event when a signal comes that a handler waits for; the handlers."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    every = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    earlier = {number: handler for number, handler in every.items() if callable(handler)}

    def noted(number: int, frame: Any) -> None:
        over.set()
        earlier[signal.Signals(number)](number, frame)

    for number in earlier:
        signal.signal(number, noted)
    return earlier


def _end(jvm: int, over: threading.Event) -> None:
    select.select([jvm], [], [])
    if not over.wait(SIGNALLED_S):
        log.error(GONE)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the others say
        os._exit(INTERNAL)
