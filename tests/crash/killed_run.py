"""A run that kills itself: `python -m tests.crash.killed_run CONFIG QUERY POINT NUMBER`.

POINT is `before`, `inside` or `after` a commit, NUMBER which commit of the query it is; with 0
nothing is killed. Only this query runs, so that the other is not done before its own turn to be
killed. Everything else is the product's own `run --available-now`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

from app.config.settings import load_settings
from app.stream.run import run
from app.warehouse.commit import Writer

INSIDE_S = 0.004
"""An append takes some ten milliseconds: the end comes while it is at work."""


def main(config: str, query: str, point: str, number: str) -> int:
    """Run to the end of the source, or to the commit at which the process is killed."""
    count = 0

    def killing(commit: Any) -> Any:
        def wrapped(writer: Writer, *arguments: Any) -> None:
            nonlocal count
            mine = f"-{query}-" in writer.application
            count += mine
            now = mine and count == int(number)
            if now and point == "before":
                die()
            if now and point == "inside":
                threading.Timer(INSIDE_S, die).start()
            commit(writer, *arguments)
            if now:
                die()

        return wrapped

    Writer.append = killing(Writer.append)  # type: ignore[method-assign]
    Writer.add_files = killing(Writer.add_files)  # type: ignore[method-assign]
    settings = load_settings(Path(config))
    jobs = list(settings.jobs) if query == "govern" else [query]
    return run(settings, available_now=True, jobs=jobs)


def die() -> None:
    """SIGKILL for the JVM and this process: neither has a moment to tidy up."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    os.kill(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
