"""States of jobs' shards as files, which replays begin and end with."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.errors import UserError
from app.tables import durable
from app.tables.object_store import file_system

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


def write(
    path: Path | str,
    states: States,
    about: Mapping[str, Any] | None = None,
    storage: Mapping[str, str] | None = None,
) -> None:
    """Write a file of states with the description `about`, whole or not at all: a local one, or
    with the options `storage` the object of an address."""
    if "://" in str(path):
        sink = pa.BufferOutputStream()
        _write(sink, states, about)
        folder, _, name = str(path).rpartition("/")
        with file_system(folder, storage or {}).open_output_stream(name) as file:
            file.write(sink.getvalue())
        return
    with durable.replacing(Path(path)) as unfinished:
        with pa.OSFile(str(unfinished), "wb") as file:
            _write(file, states, about)
        with unfinished.open("rb") as written:
            os.fsync(written.fileno())


def _write(sink: Any, states: States, about: Mapping[str, Any] | None) -> None:
    text = json.dumps({"latest_ms": states.latest_ms, **(about or {})})
    schema = _SCHEMA.with_metadata({_ABOUT: text.encode()})
    with pa.ipc.new_file(sink, schema) as writer:
        for (job, shard), state in sorted(states.states.items()):
            row = ([job], [shard], [state], [states.wakes.get((job, shard))])
            columns = [pa.array(c, f.type) for c, f in zip(row, schema, strict=True)]
            writer.write_batch(pa.record_batch(columns, schema=schema))


def read(
    path: Path | str, storage: Mapping[str, str] | None = None
) -> tuple[States, dict[str, Any]]:
    """The states of a file and their description; UserError if it cannot be read."""
    try:
        with _opened(path, storage) as file:
            opened = pa.ipc.open_file(file)
            about = _about(opened)
            found = States(latest_ms=int(about["latest_ms"]))
            for number in range(opened.num_record_batches):
                for row in opened.get_batch(number).to_pylist():
                    found.keep((row["job"], row["shard"]), row["state"], row["wake_ms"])
            return found, about
    except _UNREADABLE as error:
        raise UserError(f"{path}: cannot be read as states ({error})") from error


def described(path: Path | str, storage: Mapping[str, str] | None = None) -> dict[str, Any] | None:
    """The description of a file of states; None for one that is not there or cannot be read."""
    try:
        with _opened(path, storage) as file:
            return _about(pa.ipc.open_file(file))
    except _UNREADABLE:
        return None


_UNREADABLE = (OSError, pa.ArrowInvalid, KeyError, TypeError, ValueError)


def _opened(path: Path | str, storage: Mapping[str, str] | None) -> Any:
    folder, name = os.path.split(path)
    return file_system(folder or ".", storage or {}).open_input_file(name)


def _about(opened: Any) -> dict[str, Any]:
    about: dict[str, Any] = json.loads(opened.schema.metadata[_ABOUT])
    return about
