"""Where the time of a piece of Python goes: functions wrapped with a stopwatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch


class Stages:
    """Seconds by stage; time of a stage inside another one counts for the inner one only."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with a stopwatch."""

        def call(*args: Any, **kwargs: Any) -> Any:
            began = self._clock()
            self._inner.append(0.0)
            try:
                return function(*args, **kwargs)
            finally:
                passed = self._clock() - began
                own = passed - self._inner.pop()
                self.seconds[name] = self.seconds.get(name, 0.0) + own
                if self._inner:
                    self._inner[-1] += passed

        return call

    @contextmanager
    def watching(self, places: dict[str, list[tuple[Any, str]]]) -> Iterator[None]:
        """While inside, attributes (owner, name) count for their stage."""
        with ExitStack() as stack:
            for stage, targets in places.items():
                for owner, name in targets:
                    timed = self.timed(stage, getattr(owner, name))
                    stack.enter_context(patch.object(owner, name, timed))
            yield
