"""Packed records of slices that are not due yet: in memory for the next, then in files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from app.whatif.replay.archive import Blobs

_SCHEMA = pa.schema([("job", pa.string()), ("shard", pa.int32()), ("blob", pa.large_binary())])


class Spill:
    """Blobs by slice. A file that spans many slices is read once, and what is far ahead waits on
    disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._near: dict[int, Blobs] = {}
        self._far: dict[int, list[Path]] = {}
        self._written = 0

    def put(self, number: int, blobs: Blobs, current: int) -> None:
        """Keep blobs of a slice; `current` is the one that is being judged, or read for."""
        if number <= current + 1:
            _join(self._near.setdefault(number, {}), blobs)
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{number}-{self._written}.arrow"
        self._written += 1
        rows = [
            (job, shard, blob.to_pybytes())
            for (job, shard), parts in blobs.items() for blob in parts
        ]
        columns = list(zip(*rows, strict=True)) or [(), (), ()]
        batch = pa.record_batch(
            [pa.array(c, f.type) for c, f in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
        )
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
            writer.write_batch(batch)
        self._far.setdefault(number, []).append(path)

    def take(self, number: int) -> Blobs:
        """The blobs of a slice, once."""
        found = self._near.pop(number, {})
        for path in self._far.pop(number, []):
            with pa.memory_map(str(path)) as file:
                for batch in pa.ipc.open_stream(file):
                    columns = (batch.column(name) for name in _SCHEMA.names)
                    for job, shard, blob in zip(*columns, strict=True):
                        key = job.as_py(), shard.as_py()
                        found.setdefault(key, []).append(blob.as_buffer())
            path.unlink()  # what is mapped stays readable
        return found


def _join(into: Blobs, more: Blobs) -> None:
    for key, parts in more.items():
        into.setdefault(key, []).extend(parts)
