"""Saves a Python worker of Spark repeated work and waits: rereading zip files, useless garbage
collections, clearing the same memory for every batch, records held back by the network's rules.
"""

from __future__ import annotations

import gc
import io
import os
import socket
import sys
import zipimport
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from udfs.allocator import keep_freed_memory

Signature = tuple[int, int, int]
_seen: dict[str, Signature] = {}
_settled = False
_task: int | None = None
_tasks = 0
BUFFER_BYTES = 65536
"""What Spark's worker reads at once."""
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
        _acknowledge_at_once()
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


class AcknowledgedAtOnce(io.RawIOBase):
    """What a TCP connection receives; every read acknowledges what was read before."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """Always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read what is there, at least a byte; 0 at the end."""
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return self._connection.recv_into(buffer)


def _acknowledge_at_once() -> None:
    """Let the next tasks of this process acknowledge what they read before they wait for more.

    Spark's JVM writes the function of a task, its records and its timers one after the other. The
    kernel holds a short write back until the one before is acknowledged (Nagle), and Linux delays
    an acknowledgement by 40 ms: once a task, twice in the stateful operator. A worker has no way to
    Spark's socket options, and TCP_QUICKACK does not last, so it is set before every read.
    """
    daemon = sys.modules.get("pyspark.daemon") or sys.modules["__main__"]
    task: Callable[[BinaryIO, BinaryIO], None] | None = getattr(daemon, "worker_main", None)
    if task is None or not hasattr(socket, "TCP_QUICKACK"):  # not a worker of a daemon; not Linux
        return

    def worker_main(infile: BinaryIO, outfile: BinaryIO) -> None:
        with socket.socket(fileno=os.dup(infile.fileno())) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task(io.BufferedReader(AcknowledgedAtOnce(connection), BUFFER_BYTES), outfile)

    setattr(daemon, "worker_main", worker_main)  # noqa: B010 - a module of Spark


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
