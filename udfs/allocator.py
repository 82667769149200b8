"""Settings of the C library's allocator for batch processing: freed memory stays with the process.

Each batch needs arrays of about the sizes of the batch before. By default large arrays are mapped
anew each time, and the system clears all their pages again.
"""

from __future__ import annotations

import ctypes
from functools import cache

_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -2, -3, -8
"""Options of glibc's `mallopt`."""
_MOST = 2**31 - 1
_MOST_OF_OLD = 32 << 20
"""The largest threshold of a glibc before 2.35."""
_GROWTH = 64 << 20
"""Bytes that are requested from the system at once."""


@cache
def keep_freed_memory() -> None:
    """From now on freed memory is not returned to the system; an allocator other than glibc's is
    left unchanged.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, 1)
    mallopt(_TOP_PAD, _GROWTH)
    mallopt(_TRIM_THRESHOLD, _MOST)
    if not mallopt(_MMAP_THRESHOLD, _MOST):
        mallopt(_MMAP_THRESHOLD, _MOST_OF_OLD)
