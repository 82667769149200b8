"""The trace that a bake-off replays: the cache's records of an archive, or of JSON lines."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app import folders
from app.contract.event_contract import parse_batch
from app.engine.operators import Operator, operators
from app.engine.routing import pack_parsed
from app.errors import UserError
from app.read.relations import Warehouse
from app.sources.files.line_files import lines_of
from app.whatif.replay.archive import Archive
from state.engine.blobs import Blob
from state.entry_cache.declaration import NAME as JOB
from state.entry_cache.parameters import EntryCacheParameters
from state.events import KIND_INDEX

if TYPE_CHECKING:
    from app.config.settings import Settings


ENDINGS = (".json", ".jsonl", ".ndjson", ".gz")
READS = {"dispatch": "dispatch", "entry_released": "entry_read"}
"""Kinds of records that are reads, by the parameter `release_event`."""
HINT = (
    "a broker's cache needs the records entry_added, entry_read, entry_released and cursor_state, "
    "or by entry_added and dispatch"
)


@dataclass(frozen=True)
class PackedTrace:
    """The records of the job, packed; a key (cluster, broker) is in one shard only."""

    name: str
    shards: tuple[tuple[bytes, ...], ...]
    latest_ms: int
    """Latest wall time of all records, which ends every clock."""
    counts: Mapping[str, int]
    """Records by kind."""
    refused: int = 0
    """Number of records of the files that broke a rule of the event contract."""

    @property
    def records(self) -> int:
        """Number of records of entries and cursors."""
        return sum(self.counts.values())


def read_trace(settings: Settings, path: Path | None) -> PackedTrace:
    """The archive of the warehouse or, with `path`, a file or folder of JSON lines.

    A UserError if nothing in it could be a record of the cache.
    """
    group = operators(settings, [JOB])
    trace = (
        _archived(settings, group)
        if path is None
        else _from_files(settings.shard_count, group, path)
    )
    if not trace.records:
        raise UserError(f"bakeoff: {trace.name} has no records of entries and cursors\n{HINT}")
    return trace


def release_event(own: EntryCacheParameters, trace: PackedTrace) -> str:
    """The parameter of that name; if it is not set, the one for which the trace has reads.

    A UserError for a trace without reads.
    """
    name: str = own.release_event
    if "release_event" not in own.model_fields_set and trace.counts.get("entry_read"):
        name = "entry_released"
    if not trace.counts.get(READS[name]):
        raise UserError(
            f"bakeoff: {trace.name} has no {READS[name]} records, which are the reads under "
            f"entry_cache.release_event {name}\n{HINT}"
        )
    return name


def _archived(settings: Settings, group: Mapping[str, Operator]) -> PackedTrace:
    warehouse = Warehouse.of(settings.location)
    warehouse.require()
    if warehouse.open("events") is None:
        raise UserError("bakeoff: the archive is empty; run the job archive first, or give --trace")
    blobs, latest = Archive(settings, {JOB: group[JOB].route}).whole()
    shards = tuple(tuple(found) for _, found in sorted(blobs.items()))
    return PackedTrace(f"the archive of {settings.warehouse}", shards, latest, _counts(shards))


def _from_files(shard_count: int, group: Mapping[str, Operator], path: Path) -> PackedTrace:
    files, base = _files(path)
    routes = {JOB: group[JOB].route}
    shards: dict[int, list[bytes]] = {}
    latest = refused = 0
    for file in files:
        for lines in lines_of(str(file), base, None):
            now_ms = time.time_ns() // 1_000_000
            parsed = parse_batch(lines, [JOB])
            refused += int(parsed.n - parsed.valid.sum())
            packed = pack_parsed(parsed, lines, routes, shard_count, now_ms)
            for row in packed.to_pylist():
                latest = max(latest, int(row["ts"].timestamp() * 1000)) if row["ts"] else latest
                if row["job"] == JOB:
                    shards.setdefault(row["shard"], []).append(row["blob"])
    ordered = tuple(tuple(found) for _, found in sorted(shards.items()))
    return PackedTrace(str(path), ordered, latest, _counts(ordered), refused)


def _files(path: Path) -> tuple[list[Path], str]:
    """Files of a trace by name, and the folder that their names are relative to."""
    if path.is_file():
        return [path], str(path.parent.absolute())
    if not path.is_dir():
        raise UserError(
            f"--trace {path}: does not exist\n"
            "allowed: a file or a folder of JSON lines, such as `events` of the demo's folder"
        )
    if (path / "events").is_dir():
        path = path / "events"
    found = sorted(
        p
        for p, *_ in folders.files_below(path)
        if p.suffix in ENDINGS and not p.name.startswith(".")
    )
    if not found:
        raise UserError(f"--trace {path}: has no files of JSON lines ({', '.join(ENDINGS)})")
    return found, str(path.absolute())


def _counts(shards: Iterable[Iterable[bytes]]) -> dict[str, int]:
    totals = np.zeros(len(KIND_INDEX), np.int64)
    for blobs in shards:
        for blob in blobs:
            (kinds,) = Blob(blob).values(("event_type",))
            totals += np.bincount(kinds, minlength=len(totals))
    return {kind: int(totals[i]) for kind, i in KIND_INDEX.items() if totals[i]}
