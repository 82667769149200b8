"""A run that kills itself: `python -m tests.crash.killed_run CONFIG QUERY STEP NUMBER [ARCHIVE]`.

STEP is one of STEPS, GATHERED, EDITED, PARTED or CONTINUED, and NUMBER is at which time it is reached; with 0
nothing is killed. QUERY is ALL, the query of all jobs with the archive, or one of the two apart.
Only this query runs, so that the other is not done before its own turn to be killed. Everything
else is the product's own `run --available-now`; at the steps of GATHERED, where rows of several
batches are committed together, `run` without an end. With ARCHIVE it begins with that of another
warehouse.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.config.settings import Settings, load_settings
from app.engine.archive_query import Archivist
from app.engine.govern import Committer
from app.run.service import run
from app.tables import archive_files, checkpoints, durable, manifest, policy_log, succession
from app.tables.commit import Writer
from app.tables.gathering import Gathered, GatheringWriter
from tests.crash.tables import ALONE

INSIDE_S = 0.004
"""An append takes some ten milliseconds: the end comes while it is at work."""
LOOK_S = 0.0005


@dataclass(frozen=True)
class Step:
    """Before, inside or after the functions of the product that a step is between."""

    when: str
    functions: tuple[tuple[Any, str], ...]
    file: str = ""
    """Only calls whose first argument is a file with this in its name."""


@dataclass(frozen=True)
class Logged:
    """As soon as Spark has written a file of this log of the query's checkpoint."""

    log: str


INTERVAL_MS = 1000
ALL = "all"
COMMIT = ((Writer, "append"), (Writer, "add_files"))
STEPS: dict[str, Step | Logged] = {
    # The first start of a warehouse.
    "manifest": Step("after", ((manifest, "claim"),)),
    "identity": Step("after", ((checkpoints, "keep_identity"),)),
    "table-created": Step("after", ((Writer, "_table"),)),
    # A batch, in its order.
    "planned": Logged("offsets"),
    "begun": Step("before", ((Committer, "__call__"), (Archivist, "__call__"))),
    "before": Step("before", COMMIT),
    "inside": Step("inside", COMMIT),
    "after": Step("after", COMMIT),
    "all-tables": Step("before", ((Writer, "settle"),)),
    "record-unfinished": Step("before", ((Path, "replace"),), checkpoints.COMMITTED),
    "recorded": Step("after", ((checkpoints, "record"),)),
    "synced": Step("after", ((durable, "sync"),)),
    "answered": Step("after", ((Committer, "__call__"), (Archivist, "__call__"))),
    "ended": Logged("commits"),
}
GATHERED: dict[str, Step | Logged] = {
    # Rows that gather over batches, and their commit.
    "gathered": Step("after", ((Gathered, "put"),)),
    "due": Step("before", ((GatheringWriter, "_append_gathered"),)),
    "together": Step("after", ((GatheringWriter, "_append_gathered"),)),
    "to-remove": Step("before", ((Gathered, "remove"),)),
    "removed": Step("after", ((Gathered, "remove"),)),
    "merged": Step("after", ((archive_files, "merged"),)),
}
PARTED: dict[str, Step | Logged] = {
    # An archive that cannot be written becomes a query of its own.
    "copied": Step("after", ((checkpoints, "copy_logs"),)),
}

EDITED: dict[str, Step | Logged] = {
    # A version of the policies that is written and that nothing has been judged by.
    "taken": Step("after", ((policy_log, "keep"),)),
}
CONTINUED: dict[str, Step | Logged] = {
    # A warehouse that reads the archive of another one, and then the source.
    "found": Step("after", ((manifest, "keep_topics"),)),
    "begins": Step("after", ((succession, "begin"),)),
    "is-read": Step("before", ((succession, "finish"),)),
    "half-changed": Step("before", ((checkpoints, "put_plan"),)),
    "changed": Step("after", ((checkpoints, "put_ends"),)),
    "goes-on": Step("after", ((succession, "finish"),)),
}


def main(config: str, query: str, step: str, number: str, archive: str | None = None) -> int:
    """Run to the end of the source, or to the step at which the process is killed."""
    gathers = step in GATHERED
    gathering = {"commit_interval_ms": INTERVAL_MS} if gathers else {}
    settings = load_settings(Path(config), ALONE | gathering)
    reached, count = {**STEPS, **GATHERED, **EDITED, **PARTED, **CONTINUED}[step], int(number)
    carries = query == ALL
    query = "govern" if carries else query
    if isinstance(reached, Logged) and count:
        threading.Thread(
            target=_watch, args=(settings, query, reached.log, count), daemon=True
        ).start()
    elif isinstance(reached, Step):
        counter = _Counter(count, reached.file)
        for owner, name in reached.functions:
            setattr(owner, name, _killing(getattr(owner, name), reached.when, counter))
    jobs = [*settings.jobs, *(["archive"] if carries else [])] if query == "govern" else [query]
    if archive is not None:
        return run(settings, available_now=True, archive=archive)
    return run(settings, available_now=not gathers, jobs=jobs)


class _Counter:
    """How often the step has been reached, on whatever thread."""

    def __init__(self, deadly: int, file: str) -> None:
        self._deadly, self._file, self._count = deadly, file, 0
        self._lock = threading.Lock()

    def now(self, arguments: tuple[Any, ...]) -> bool:
        """Whether this is the time."""
        if self._file and self._file not in arguments[0].name:
            return False
        with self._lock:
            self._count += 1
            return self._count == self._deadly


def _killing(function: Callable[..., Any], when: str, counter: _Counter) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*arguments: Any) -> Any:
        now = counter.now(arguments)
        if now and when == "before":
            die()
        if now and when == "inside":
            threading.Timer(INSIDE_S, die).start()
        answer = function(*arguments)
        if now:
            die()
        return answer

    return wrapped


def _watch(settings: Settings, query: str, log: str, more: int) -> None:
    folder = Path(checkpoints.location(settings.location, query), log)
    ended = checkpoints.last_ended(settings.location, query)
    while not (folder / str(ended + more)).exists():
        time.sleep(LOOK_S)
    die()


def die() -> None:
    """SIGKILL for the JVM and this process: neither has a moment to tidy up."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway
    if gateway is not None:
        os.kill(gateway.proc.pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
