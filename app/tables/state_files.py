"""Saved states of jobs for replays: files below `_weir/states`, named in the manifest.

A file has the state of every shard of one query after one of its batches, and the query's position
in the source: an offset per partition, or the names of the files for a source of files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.errors import UserError
from app.tables.durable import replacing

FOLDER = "_weir/states"
Key = tuple[str, int]
"""Job and shard."""
_ABOUT = b"weir"
_SCHEMA = pa.schema(
    [
        ("job", pa.string()),
        ("shard", pa.int32()),
        ("state", pa.large_binary()),
        ("wake_ms", pa.int64()),
    ]
)


@dataclass
class States:
    """The states of some jobs' shards between two batches."""

    states: dict[Key, bytes] = field(default_factory=dict)
    wakes: dict[Key, int] = field(default_factory=dict)
    """When a shard wants to be called without records (ms of the stream)."""
    latest_ms: int = 0
    """Latest wall time of the records that they contain (ms since the epoch)."""

    def keep(self, key: Key, state: bytes, wake_ms: int | None) -> None:
        """Add the state of a shard and the time at which it wants to be called."""
        self.states[key] = state
        self.wakes.pop(key, None)
        if wake_ms is not None:
            self.wakes[key] = wake_ms


@dataclass(frozen=True)
class SourcePosition:
    """The records of a source that have been applied."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    """By partition, the offset of the first record that was not applied."""
    files: Sequence[str] = ()
    """Files whose records have all been applied."""


def write(path: Path, states: States, about: Mapping[str, Any] | None = None) -> None:
    """Write a file of states with the description `about`, whole or not at all."""
    text = json.dumps({"latest_ms": states.latest_ms, **(about or {})})
    schema = _SCHEMA.with_metadata({_ABOUT: text.encode()})
    with replacing(path) as unfinished:
        with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for (job, shard), state in sorted(states.states.items()):
                row = ([job], [shard], [state], [states.wakes.get((job, shard))])
                columns = [pa.array(c, f.type) for c, f in zip(row, schema, strict=True)]
                writer.write_batch(pa.record_batch(columns, schema=schema))
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())


def read(path: Path) -> tuple[States, dict[str, Any]]:
    """The states of a file and their description; UserError if it cannot be read."""
    try:
        with pa.OSFile(str(path), "rb") as file:
            opened = pa.ipc.open_file(file)
            about: dict[str, Any] = json.loads(opened.schema.metadata[_ABOUT])
            found = States(latest_ms=int(about["latest_ms"]))
            for number in range(opened.num_record_batches):
                for row in opened.get_batch(number).to_pylist():
                    found.keep((row["job"], row["shard"]), row["state"], row["wake_ms"])
            return found, about
    except (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as saved states ({error})") from error
