"""The warehouse that a replay writes: whose it is, how far it has come, and its rows.

`_weir/replay.json` has what is replayed, the version of the archive, the slices and how many are
done. Some slices at a time are a batch under the replay's application id, always the same ones, so
a batch that is repeated after an interruption writes nothing twice.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from app.config.described import described
from app.errors import UserError
from app.tables import last_configuration, state_files, writable
from app.tables.commit import Writer
from app.tables.json_documents import Document
from app.tables.small_files import local_path
from app.tables.state_files import SourcePosition, States
from app.whatif.replay.archive_reader import FIRST_MS
from app.whatif.replay.slices import TimeSlice

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.engine.operators import Operator

NAME = "_weir/replay.json"
FOLDER = "_weir/replay"
FORMAT = 2
REMEDY = "name another folder"
SAVED_EVERY_S = 10.0
"""States are kept so often; what was committed since is judged again after an interruption."""
TOGETHER = 8
"""Slices of a commit: one per table takes as long whatever the rows."""
MOST_ROWS = 500_000
"""A commit has fewer slices where these have more rows."""


@dataclass
class Header:
    """What the file of a replay has in every version."""

    format: int
    identity: dict[str, Any]
    """What is replayed."""


@dataclass
class Progress(Header):
    """How far a replay has come."""

    archive_version: int
    application: str
    slices: list[TimeSlice]
    applied: dict[str, SourcePosition]
    """By job, the records that the states of the begin have."""
    done: int = 0
    """How many slices are done and their states kept."""
    states: str | None = None
    """The file of the states after them; None while the jobs are empty."""


_HEADER: Document[Header] = Document(Header, REMEDY)
_PROGRESS: Document[Progress] = Document(Progress, REMEDY, indent=1)


class ReplayFolder:
    """The folder of one replay."""

    def __init__(
        self, settings: Settings, folder: str, identity: Mapping[str, Any], option: str = "--out"
    ) -> None:
        """UserError for a folder that is no place for this replay, with the `option` that named it;
        nothing is written."""
        self._place = f"{option} {folder}"
        root = local_path(folder)
        if root is None:
            raise UserError(f"{self._place}: is not a folder of this machine")
        self.root = root.absolute()
        self.settings = settings.model_copy(
            update={
                "warehouse": str(self.root),
                "storage_options": {},
                "commit": "delta-rs",
            }
        )
        self._refuse_live(settings.location)
        self._identity = json.loads(json.dumps(identity))
        self._progress = self._load()
        refused = writable.obstacle(self.settings.location)
        if refused is not None:
            raise UserError(f"{self._place}: {refused}")
        self._saved_s = time.monotonic()
        self._writer: Writer | None = None
        self._held: dict[str, list[pa.Table]] = {}
        self._held_rows = 0

    def _refuse_live(self, warehouse: Location) -> None:
        live = local_path(warehouse.uri)
        if live is not None and live.resolve() == self.root.resolve():
            raise UserError(
                f"{self._place}: is the warehouse that is replayed\nname another folder"
            )

    def _load(self) -> Progress | None:
        found = _HEADER.load(self.settings.location, NAME)
        if found is None:
            if self.root.exists() and (not self.root.is_dir() or any(self.root.iterdir())):
                raise UserError(
                    f"{self._place}: is not empty and not of a replay\n"
                    "name a folder that does not exist"
                )
            return None
        if found.format != FORMAT:
            raise UserError(
                f"{self._place}: was written by another version of Weir "
                f"(format {found.format})\n{REMEDY}"
            )
        theirs = found.identity
        other = [
            key
            for key in {**theirs, **self._identity}
            if theirs.get(key) != self._identity.get(key)
        ]
        if other:
            key = other[0]
            raise UserError(
                f"{self._place}: belongs to another replay, whose {key} is {theirs.get(key)!r}, "
                f"not {self._identity.get(key)!r}\nname another folder"
            )
        return _PROGRESS.load(self.settings.location, NAME)

    @property
    def begun(self) -> bool:
        """Whether slices have been planned."""
        return self._progress is not None

    @property
    def ended(self) -> bool:
        """Whether every slice is done."""
        return self.begun and self.done == len(self.slices)

    @property
    def archive_version(self) -> int | None:
        """The version of the archive that is replayed; None before the begin."""
        return None if self._progress is None else self._progress.archive_version

    @property
    def slices(self) -> list[TimeSlice]:
        """All slices of the replay."""
        return self._there.slices

    @property
    def done(self) -> int:
        """How many slices are done and their states kept."""
        return self._there.done

    @property
    def _there(self) -> Progress:
        assert self._progress is not None
        return self._progress

    def begin(
        self,
        archive_version: int,
        found: list[TimeSlice],
        start: States | None = None,
        applied: Mapping[str, SourcePosition] | None = None,
    ) -> None:
        """Write down what will be done, and the states to begin with."""
        self._progress = Progress(
            FORMAT,
            self._identity,
            archive_version,
            f"weir-replay-{uuid.uuid4()}",
            found,
            dict(applied or {}),
        )
        if start is None:
            self._write()
        else:
            self._save(0, start)
        last_configuration.keep(
            self.settings.location, described(self.settings, time.time_ns() // 1_000_000)
        )

    @property
    def applied(self) -> dict[str, SourcePosition]:
        """By job, the records that the states of the begin have."""
        return self._there.applied

    def states(self) -> States | None:
        """The states after the slices that are done; None while the jobs are empty."""
        name = self._there.states
        return None if name is None else state_files.read(self.root / FOLDER / name)[0]

    def prepare(self, group: Mapping[str, Operator]) -> None:
        """Create the tables of the jobs."""
        self._writer = Writer(
            self.settings.location,
            "replay",
            self.settings.maintenance.history_ms,
            self._there.application,
        )
        self._writer.prepare([*(t for o in group.values() for t in o.tables), "quarantine"])

    def take(
        self,
        one: TimeSlice,
        tables: Mapping[str, pa.Table],
        states: States,
        from_ms: int = FIRST_MS,
    ) -> int:
        """Append the rows of a slice, those before `from_ms` left out, with those of the slices
        before that wait; how many it has.

        Which slices are a commit depends on their numbers and rows alone.
        """
        before = self._held_rows
        for name, rows in ({} if one.warm_up else tables).items():
            mine = _from(rows, from_ms)
            if mine.num_rows:
                self._held.setdefault(name, []).append(mine)
                self._held_rows += mine.num_rows
        added = self._held_rows - before
        last = one.number + 1 == len(self.slices)
        if last or (one.number + 1) % TOGETHER == 0 or self._held_rows >= MOST_ROWS:
            self._commit(one.number)
            if last or time.monotonic() - self._saved_s >= SAVED_EVERY_S:
                self._save(one.number + 1, states)
        return added

    def _commit(self, number: int) -> None:
        """Append what waits, as the batch of its last slice."""
        assert self._writer is not None
        for name, parts in sorted(self._held.items()):
            self._writer.append(name, pa.concat_tables(parts), number)
        self._writer.settle()
        self._held, self._held_rows = {}, 0

    def _save(self, done: int, states: States) -> None:
        name, before = f"states-{done}.arrow", self._there.states
        state_files.write(self.root / FOLDER / name, states)
        self._there.done, self._there.states = done, name
        self._write()
        if before is not None and before != name:
            (self.root / FOLDER / before).unlink(missing_ok=True)
        self._saved_s = time.monotonic()

    def _write(self) -> None:
        _PROGRESS.keep(self.settings.location, NAME, self._there)

    @property
    def spill(self) -> Path:
        """Where records wait that were read too early."""
        return self.root / FOLDER / "spill"


def _from(rows: pa.Table, from_ms: int) -> pa.Table:
    if from_ms == FIRST_MS:
        return rows
    wall = rows.column("ts_wall_ms")
    return rows.filter(pc.or_kleene(pc.is_null(wall), pc.greater_equal(wall, from_ms)))


def of_folder(settings: Settings, folder: Path, option: str) -> tuple[dict[str, Any], States]:
    """What the replay in a folder was, and the states that it ended with; UserError where it has
    not ended."""
    there = settings.model_copy(update={"warehouse": str(folder), "storage_options": {}})
    progress = _PROGRESS.load(there.location, NAME)
    if progress is None:
        raise UserError(
            f"{option} {folder}: is not the folder of a replay (allowed: one that "
            "replay --out has written)"
        )
    if progress.states is None or progress.done != len(progress.slices):
        raise UserError(f"{option} {folder}: that replay has not ended\nlet it go on first")
    return progress.identity, state_files.read(folder / FOLDER / progress.states)[0]
