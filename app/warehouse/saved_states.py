"""States of jobs that are kept for replays: files below `_weir/states`, named in the manifest.

A file has the state of every shard of one query after one of its batches, with the place in the
source that it stands for. Where the source keeps an order, that is an offset by partition; of files
it is their names.
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

FOLDER = "_weir/states"
Key = tuple[str, int]
"""Job and shard."""
_ABOUT = b"weir"
_SCHEMA = pa.schema([("job", pa.string()), ("shard", pa.int32()), ("state", pa.large_binary()),
                     ("wake_ms", pa.int64())])


@dataclass
class States:
    """What the shards of some jobs know between two batches."""

    states: dict[Key, bytes] = field(default_factory=dict)
    wakes: dict[Key, int] = field(default_factory=dict)
    """When a shard wants to be called without records (ms of the stream)."""
    latest_ms: int = 0
    """The latest wall time of the records behind them (ms since the epoch)."""

    def keep(self, key: Key, state: bytes, wake_ms: int | None) -> None:
        """The state of a shard, and when it wants to be called."""
        self.states[key] = state
        self.wakes.pop(key, None)
        if wake_ms is not None:
            self.wakes[key] = wake_ms


@dataclass(frozen=True)
class Position:
    """Which records of a source have been applied."""

    offsets: Mapping[str, int] = field(default_factory=dict)
    """By partition, the offset of the first record that has not been."""
    files: Sequence[str] = ()
    """Partitions of which all records have been."""


def write(path: Path, states: States, about: Mapping[str, Any] | None = None) -> None:
    """Write states, and what they are `about`: the whole file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"latest_ms": states.latest_ms, **(about or {})})
    schema = _SCHEMA.with_metadata({_ABOUT: text.encode()})
    unfinished = path.with_name(f".{path.name}.unfinished")
    with pa.OSFile(str(unfinished), "wb") as file, pa.ipc.new_file(file, schema) as writer:
        for (job, shard), state in sorted(states.states.items()):
            row = ([job], [shard], [state], [states.wakes.get((job, shard))])
            writer.write_batch(pa.record_batch(
                [pa.array(c, f.type) for c, f in zip(row, schema, strict=True)], schema=schema
            ))
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    unfinished.replace(path)


def read(path: Path) -> tuple[States, dict[str, Any]]:
    """The states of a file, and what they are about; UserError where it cannot be read."""
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
