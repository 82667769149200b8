"""Ends the driver with its JVM, which somebody else may end: the system, where memory is short."""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from app.terminal import log

GONE = (
    "the JVM of this run has ended: it was killed, as the system does where memory is short, or has"
    " crashed (hs_err_pid*.log)\nstart again: the run continues at its checkpoint"
)
INTERNAL = 3
"""Exit code of an internal error."""


@contextmanager
def ending_with_jvm() -> Iterator[None]:
    """A context in which this process ends when the JVM that has started it does, and says so.

    Nothing can be finished without it: each thread would report for itself that it cannot ask it.
    """
    over = threading.Event()
    try:
        if "PYSPARK_GATEWAY_PORT" in os.environ:
            jvm = os.pidfd_open(os.getppid())
            threading.Thread(target=_end, args=(jvm, over), name="JVM", daemon=True).start()
    except (AttributeError, OSError):
        pass  # not on this system
    try:
        yield
    finally:
        over.set()


def _end(jvm: int, over: threading.Event) -> None:
    select.select([jvm], [], [])
    if not over.is_set():
        log.error(GONE)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the others say
        os._exit(INTERNAL)
