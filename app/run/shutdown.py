"""Orderly shutdown: after a signal the running batches end, then the queries stop."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

SIGNALS = (signal.SIGTERM, signal.SIGINT)
POLL_S = 0.02
FINISH_S = 60.0
"""Time for running batches to end; after it they are interrupted and repeated by the next run."""


class Stopping:
    """Requests to end the run: whether there was one, and whether there was a second."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._again = threading.Event()

    def ask(self) -> None:
        """Record a request; the second one asks not to wait for running batches."""
        (self._again if self._asked.is_set() else self._asked).set()

    @property
    def asked(self) -> bool:
        """Whether the run was asked to end."""
        return self._asked.is_set()

    @property
    def at_once(self) -> bool:
        """Whether the run was asked a second time."""
        return self._again.is_set()

    def wait(self, seconds: float) -> bool:
        """Wait for a request, at most for a time; returns whether there is one."""
        return self._asked.wait(seconds)


@contextmanager
def listening(spark: SparkSession, stopping: Stopping, *, python: bool = True) -> Iterator[None]:
    """Within this context SIGTERM and SIGINT request the end of the run, in Python and in the JVM.
    Without `python` Python's own handlers stay, and the JVM ignores SIGINT.

    Under spark-submit a service manager signals the JVM, which by itself would end Spark in the
    middle of a batch. Ctrl-C reaches both processes, so requests within a moment count as one.
    """
    last = [float("-inf")]
    lock = threading.Lock()

    def ask() -> None:
        with lock:
            now = time.monotonic()
            if now - last[0] > 1.0:
                last[0] = now
                stopping.ask()

    earlier: dict[int, Any] = {}
    if python and threading.current_thread() is threading.main_thread():
        earlier = {number: signal.signal(number, lambda *_: ask()) for number in SIGNALS}
    handler = _JvmHandler(ask if python else _nothing)
    restore = _listen_in_jvm(spark, handler, ("TERM", "INT") if python else ("INT",))
    try:
        yield
    finally:
        restore()
        for number, before in earlier.items():
            signal.signal(number, before)


def _nothing() -> None:
    """The JVM's handler of a signal that Python handles."""


class _JvmHandler:
    """A signal handler of the JVM that calls Python."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    def handle(self, _: Any) -> None:
        """Called by the JVM on a thread of its own."""
        self._ask()

    class Java:
        """The Java interface that this class implements, as py4j reads it."""

        implements = ("sun.misc.SignalHandler",)


def _listen_in_jvm(spark: SparkSession, handler: _JvmHandler, names: Sequence[str]) -> Any:
    """Install the handler; returns a function that restores the earlier ones."""
    from pyspark.java_gateway import ensure_callback_server_started

    ensure_callback_server_started(spark.sparkContext._gateway)
    jvm: Any = spark._jvm
    kinds = jvm.sun.misc
    earlier = {name: kinds.Signal.handle(kinds.Signal(name), handler) for name in names}

    def restore() -> None:
        for name, old in earlier.items():
            kinds.Signal.handle(kinds.Signal(name), old)

    return restore


def finish(queries: Sequence[StreamingQuery], stopping: Stopping) -> list[str]:
    """Stop every query between two batches; returns the names of those whose batch was interrupted.

    A repeated batch recognises what its interrupted run has committed, so nothing is lost or
    doubled either way; waiting only saves the work.
    """
    deadline = time.monotonic() + FINISH_S
    running = {query: _batch(query) for query in queries if query.isActive}
    interrupted = []
    while running:
        for query, batch in list(running.items()):
            hurry = stopping.at_once or time.monotonic() > deadline
            # The batch of the request has ended, or none had begun.
            if not query.isActive or hurry or waits(query) or _batch(query) > batch:
                if query.isActive and hurry:
                    interrupted.append(str(query.name))
                query.stop()
                del running[query]
        time.sleep(POLL_S)
    return interrupted


def _batch(query: StreamingQuery) -> int:
    """Number of the last batch that has ended; -1 if none has."""
    progress = query.lastProgress
    if progress is None:
        return -1
    return int(progress["batchId"]) - (not ended(progress))


def ended(progress: dict[str, Any]) -> bool:
    """Whether a progress report of Spark is that of an ended batch.

    A query that waits for records reports as well, under the number of the batch to come.
    """
    return "addBatch" in progress["durationMs"]


def waits(query: StreamingQuery) -> bool:
    """Whether no batch runs: the query waits for records, or looks for them."""
    status = query.status
    return not status["isTriggerActive"] or status["message"].startswith("Getting offsets")
