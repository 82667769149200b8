"""Packed records of slices that are not due yet: in memory for the next, then in files."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from app.whatif.replay.archive_reader import Blobs, Key


@dataclass(frozen=True)
class _Written:
    """A file of blobs, one behind the other."""

    path: Path
    blobs: list[tuple[Key, int]]
    """The key and the length (bytes) of each."""


class Spill:
    """Blobs by slice. A file that spans many slices is read once, and what is far ahead waits on
    disk. Threads may put at the same time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._near: dict[int, Blobs] = {}
        self._far: dict[int, list[_Written]] = {}
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def put(self, found: Mapping[int, Blobs], current: int) -> None:
        """Keep blobs by slice; `current` is the slice that they are read for."""
        for number, blobs in found.items():
            if number <= current + 1:
                with self._lock:
                    _join(self._near.setdefault(number, {}), blobs)
            else:
                written = self._write(blobs)
                with self._lock:
                    self._far.setdefault(number, []).append(written)

    def _write(self, blobs: Blobs) -> _Written:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{next(self._numbers)}.blobs"
        with pa.OSFile(str(path), "wb") as file:
            for parts in blobs.values():
                for blob in parts:
                    file.write(blob)
        return _Written(path, [(key, blob.size) for key, parts in blobs.items() for blob in parts])

    def take(self, number: int) -> Blobs:
        """The blobs of a slice, once; all of them have been put."""
        found = self._near.pop(number, {})
        for written in self._far.pop(number, []):
            with pa.memory_map(str(written.path)) as file:
                for key, size in written.blobs:
                    found.setdefault(key, []).append(file.read_buffer(size))
            written.path.unlink()  # what is mapped stays readable
        return found


def _join(into: Blobs, more: Blobs) -> None:
    for key, parts in more.items():
        into.setdefault(key, []).extend(parts)
