"""Threads beside a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread


@contextmanager
def working(work: Callable[[Event], None], name: str) -> Iterator[None]:
    """A context with a thread at work; the event is set at its end, and the thread waited for."""
    stop = Event()
    thread = Thread(target=work, args=(stop,), name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
