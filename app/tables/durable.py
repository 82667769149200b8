"""Files that survive a loss of power."""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any


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
