"""Saves a Python worker of Spark repeated work: rereading zip files, useless garbage collections,
clearing the same memory for every batch.
"""

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
"""Number of tasks of a process before each of which its objects are set aside; later only at powers
of 2.
"""


def settle() -> None:
    """Called where a task enters Weir's code; acts once per process and once per task."""
    global _settled
    if not _settled:
        _settled = True
        _keep_directories()
        keep_freed_memory()
    _set_aside()


def _set_aside() -> None:
    """Exempt the objects that live before a task from garbage collection.

    Spark has a worker collect garbage after every task, which visits each of the hundred thousands
    of objects of numba, pyarrow and pandas: 70 to 100 ms a task, four times a micro-batch. Exempted
    objects that become garbage later are never freed, so this is done often while code is still
    loaded, and ever less often afterwards.
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
    """Let zip importers reread a file's directory only if the file has changed.

    Spark clears its worker's import caches in every task (`importlib.invalidate_caches`), and
    before Python 3.12 an importer then rereads the directory of its zip at once. Spark's own jar is
    on the path of every worker: 130 to 300 ms a task, three times a micro-batch.
    """
    importer = zipimport.zipimporter
    again: Callable[[zipimport.zipimporter], None] | None
    again = getattr(importer, "invalidate_caches", None)
    if again is not None:
        setattr(importer, "invalidate_caches", _changed_only(again))  # noqa: B010 - a method


def _changed_only(
    again: Callable[[zipimport.zipimporter], None],
) -> Callable[[zipimport.zipimporter], None]:
    """The method, called only for files that have changed since the last call."""

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
