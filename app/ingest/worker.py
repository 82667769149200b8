"""What a Python worker of Spark is spared: reading zip files again, looking for garbage in vain,
clearing the same memory for every batch."""

from __future__ import annotations

import gc
import os
import zipimport
from collections.abc import Callable
from pathlib import Path

from udfs.allocator import keep_freed_memory

Signature = tuple[int, int, int]
_seen: dict[str, Signature] = {}
_settled = False
_task: int | None = None
_tasks = 0
OFTEN = 8
"""Tasks of a process before each of which its objects are set aside; later ones at powers of 2."""


def settle() -> None:
    """Called wherever a task enters Weir's code; does something once per process and task."""
    global _settled
    if not _settled:
        _settled = True
        _keep_directories()
        keep_freed_memory()
    _set_aside()


def _set_aside() -> None:
    """Take what lives before a task out of the collector's sight.

    Spark has a worker collect garbage after every task, which visits each of the hundred thousands
    of objects of numba, pyarrow and pandas: 70 to 100 ms a task, four times a micro-batch. What is
    set aside and becomes garbage later is lost, so it is done as often as code is still loaded, and
    ever more seldom afterwards.
    """
    global _task, _tasks
    task = _this_task()
    if task == _task:
        return
    _task, _tasks = task, _tasks + 1
    if _tasks <= OFTEN or _tasks & (_tasks - 1) == 0:
        gc.freeze()


def _this_task() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return -1 if context is None else context.taskAttemptId()


def _keep_directories() -> None:
    """Let importers of zip files read a file's directory again only when the file has changed.

    Spark has every task forget what its worker knows of modules (`importlib.invalidate_caches`),
    and before Python 3.12 an importer then reads the directory of its zip again at once. Spark's
    own jar is on the path of every worker: 130 to 300 ms a task, three times a micro-batch.
    """
    importer = zipimport.zipimporter
    again: Callable[[zipimport.zipimporter], None] | None
    again = getattr(importer, "invalidate_caches", None)
    if again is not None:
        importer.invalidate_caches = _changed_only(again)  # type: ignore[method-assign]


def _changed_only(
    again: Callable[[zipimport.zipimporter], None],
) -> Callable[[zipimport.zipimporter], None]:
    """The method, called only for files that are not as they were at the last call."""

    def invalidate_caches(self: zipimport.zipimporter) -> None:
        place = f"{self.archive}{os.sep}{self.prefix}"
        signature = _signature(self.archive)
        if signature is None or _seen.get(place) != signature:
            again(self)
        if signature is not None:
            _seen[place] = signature

    return invalidate_caches


def _signature(path: str) -> Signature | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
