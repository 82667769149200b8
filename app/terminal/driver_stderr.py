"""The standard error of the driver under spark-submit: a pipe past the JVM.

Spark passes on both streams of Python to the JVM's standard output. A Ctrl-C ends the JVM, often
before it has passed on what Python says of it, and Python inherits no other stream from a JVM. So
the pipe of the JVM's standard error has a name, by which Python opens it. Standard library only.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

VARIABLE = "WEIR_STDERR"
"""The path of the pipe, in the environment of spark-submit."""


def pipe() -> tuple[int, int, Path | None]:
    """The ends of a new pipe for reading and for writing, and its path in a folder of its own;
    None where no folder takes one."""
    try:
        path = Path(tempfile.mkdtemp(prefix="weir-stderr-"), "pipe")
        os.mkfifo(path, 0o600)
    except OSError:
        return *os.pipe(), None
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # there is no writer to wait for
    writing = os.open(path, os.O_WRONLY)
    os.set_blocking(reading, True)
    return reading, writing, path


def take() -> None:
    """Make the pipe the standard error of this process; without one it stays as it is."""
    path = os.environ.pop(VARIABLE, None)  # those of other processes are their own
    if path is None:
        return
    with suppress(OSError):  # its reader has ended
        end = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(end, True)
        os.dup2(end, 2)
        os.close(end)
        # The JVM writes beside it: Spark makes Python write each part of a line by itself.
        sys.stderr.reconfigure(  # type: ignore[union-attr]
            line_buffering=True, write_through=False
        )
