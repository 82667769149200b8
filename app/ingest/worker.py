"""The set-up of a Python worker of Spark, once per process."""

from __future__ import annotations

import os
import zipimport
from collections.abc import Callable
from pathlib import Path

Signature = tuple[int, int, int]
_seen: dict[str, Signature] = {}
_settled = False


def settle() -> None:
    """Let importers of zip files read a file's directory again only when the file has changed.

    Spark has every task forget what its worker knows of modules (`importlib.invalidate_caches`),
    and before Python 3.12 an importer then reads the directory of its zip again at once. Spark's
    own jar is on the path of every worker: 130 to 300 ms a task, three times a micro-batch.
    """
    global _settled
    if _settled:
        return
    _settled = True
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
