"""Opens a file from Python, locally or in an object store."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

OPENED = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfss", "hdfs": "hdfs"}
"""Spark's name of a scheme and Arrow's; credentials come from the environment."""
_SCHEME = re.compile(r"^([a-z][a-z0-9+.-]*):(?://)?", re.IGNORECASE)


def scheme_of(path: str) -> str | None:
    """The scheme of a path in lower case; None for a local one."""
    found = _SCHEME.match(path)
    return None if found is None or found[1].lower() == "file" else found[1].lower()


def absolute(path: str) -> str:
    """A local path from the root and without `file:`; a path of another scheme as it is."""
    if scheme_of(path):
        return path
    found = _SCHEME.match(path)
    return str(Path("/" + path[found.end() :].lstrip("/") if found else path).absolute())


def open_file(path: str) -> pa.NativeFile:
    """The file, for reading at any position; an OSError on failure."""
    scheme = scheme_of(path)
    if scheme is None:
        return pafs.LocalFileSystem().open_input_file(absolute(path))
    if scheme not in OPENED:
        raise OSError(f"{scheme}: is not a scheme that can be opened outside of Spark")
    root, _, key = path.partition("://")[2].partition("/")
    system, base = pafs.FileSystem.from_uri(f"{OPENED[scheme]}://{root}")
    return system.open_input_file(f"{base.rstrip('/')}/{key}")
