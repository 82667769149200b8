"""A bound on the memory of one statement.

DuckDB's `memory_limit` counts hash tables and sorted runs, not the rows of an answer on their way
to Python, and a few thousand large cells are gigabytes. So the process itself is bounded as well,
if the system supports it.
"""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import duckdb

from app.errors import UserError
from app.read.databases import fileless
from app.terminal.sizes import read_size, size_text

OVERHEAD = 256 << 20
"""Bytes for everything but DuckDB and the answer."""
_STATUS = Path("/proc/self/status")


@cache
def default_bytes() -> int:
    """The default bound (bytes)."""
    with fileless() as connection:
        (text,) = connection.execute("SELECT current_setting('memory_limit')").fetchone() or ("",)
    return read_size(str(text)) or 1 << 30


@contextmanager
def bounded(limit: int, where: str) -> Iterator[None]:
    """Raises a UserError, which begins with `where`, if the body needs more than about `limit`
    bytes.
    """
    earlier = resource.getrlimit(resource.RLIMIT_DATA)
    in_use = _data_bytes()
    wanted = None if in_use is None else in_use + limit + limit // 4 + OVERHEAD
    if wanted is None or (0 <= earlier[0] <= wanted):
        wanted = None
    if wanted is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (wanted, earlier[1]))
    try:
        yield
    except (duckdb.OutOfMemoryException, MemoryError) as error:
        raise UserError(
            f"{where}: needs more than {size_text(limit)} of memory, or of temporary disk\n"
            "ask for fewer rows or columns, or allow more with --memory"
        ) from error
    finally:
        if wanted is not None:
            resource.setrlimit(resource.RLIMIT_DATA, earlier)


def _data_bytes() -> int | None:
    """Writable private memory of this process, as RLIMIT_DATA counts it; None if not known."""
    try:
        found = re.search(r"^VmData:\s+(\d+) kB", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
