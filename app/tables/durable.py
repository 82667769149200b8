"""Files that appear whole or not at all, and that survive a loss of power."""

from __future__ import annotations

import ctypes
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

UNFINISHED = ".unfinished"


def unfinished(file: Path) -> Path:
    """The path of a file that is not complete yet; readers of the folder ignore it."""
    return file.with_name(f".{file.name}{UNFINISHED}")


@contextmanager
def replacing(file: Path) -> Iterator[Path]:
    """The path to which the body writes the new contents of a file; they replace it at the end. A
    file has one writer at a time, the others wait. A failure leaves nothing of them: they take room
    where there may be none.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    path = unfinished(file)
    with _locked(path):
        try:
            yield path
            path.replace(file)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of the file that is at the path: another writer may just have moved it away."""
    while True:
        with path.open("ab") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            if _is_at(path, opened.fileno()):
                yield
                return


def _is_at(path: Path, handle: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


def sync(folder: Path) -> None:
    """Write all data, names and sizes of the folder's file system to its disk.

    One call serves all files of a micro-batch. If the system cannot limit it to one file system,
    all of them are synced.
    """
    call = _syncfs()
    if call is None:
        os.sync()
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        if call(handle) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(handle)


@cache
def _syncfs() -> Any:
    """syncfs(2) of the C library; None where there is none."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if function is not None:
        function.argtypes, function.restype = [ctypes.c_int], ctypes.c_int
    return function
