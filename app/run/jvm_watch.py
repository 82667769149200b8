"""Ends the driver with its JVM, which somebody else may end: the system, where memory is short."""

from __future__ import annotations

import logging
import os
import select
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer
from typing import Any

from app.errors import UserError
from app.terminal import interrupt, log
from app.terminal.printable import say

GONE = (
    "the JVM of this command has ended: it was killed, as the system does where memory is short,"
    " was stopped before Spark had started, or has crashed (hs_err_pid*.log)\n"
    "start again: a run continues at its checkpoint"
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
    port = int(os.environ.get("PYSPARK_GATEWAY_PORT", "0"))
    if not port or not hasattr(os, "pidfd_open"):
        yield
        return
    jvm, over = _Jvm(port), threading.Event()
    _silence(jvm)
    threading.Thread(target=_watch, args=(jvm, over), name="JVM", daemon=True).start()
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if jvm.gone(SIGNALLED_S):
            jvm.end_driver(error)
        raise
    finally:
        over.set()


class _Jvm:
    """The JVM that has started this process."""

    def __init__(self, port: int) -> None:
        """`port` is that of its gateway."""
        self._process = os.pidfd_open(os.getppid())
        self._ending = threading.Lock()
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            self._was_there = True
        except ConnectionRefusedError:  # then the parent is another process
            self._was_there = False

    def gone(self, within_s: float | None) -> bool:
        """Whether it has ended, or does within a time."""
        return not self._was_there or bool(select.select([self._process], [], [], within_s)[0])

    def end_driver(self, error: Exception | None = None) -> None:
        """Say that it has ended and end this process, unless a signal has asked for it. Of the driver's
        own error it says what is more than that the JVM cannot be asked.
        """
        if interrupt.signalled.is_set():
            return
        self._ending.acquire()  # one thread says it
        said = GONE
        if error is not None and not _is_of_asking(error):
            said += "\n" + "".join(traceback.format_exception(error)).rstrip()
        if not log.error(said):
            say(f"weir: {said}", file=sys.stderr, flush=True)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what the others say
        os._exit(INTERNAL)


def _is_of_asking(error: Exception) -> bool:
    """Whether an error is that a JVM cannot be asked, by the library that asks."""
    library = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError | EOFError) or library in ("py4j", "pyspark")


def _silence(jvm: _Jvm) -> None:
    """Leave out what Py4J logs, Spark's server of accumulators prints and threads of polls end with,
    of a JVM that has ended: these learn of it first.
    """
    handler = logging.lastResort
    if handler is not None:
        handler.addFilter(lambda record: not (record.exc_info and jvm.gone(SIGNALLED_S)))
        logging.root.addHandler(handler)
    printed, ended = BaseServer.handle_error, threading.excepthook

    def handle_error(server: BaseServer, request: Any, client_address: Any) -> None:
        if not jvm.gone(SIGNALLED_S):
            printed(server, request, client_address)

    def excepthook(args: threading.ExceptHookArgs) -> None:
        if not jvm.gone(SIGNALLED_S):
            ended(args)

    threading.excepthook = excepthook
    BaseServer.handle_error = handle_error  # type: ignore[assignment,method-assign]


def _watch(jvm: _Jvm, over: threading.Event) -> None:
    if jvm.gone(None) and not over.wait(SIGNALLED_S):
        jvm.end_driver()
