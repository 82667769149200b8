"""The warehouse that a replay writes: whose it is, and how far it has come.

`_weir/replay.json` has what is replayed, the version of the archive, the slices and the parts. The
rows of all parts are one commit per table under the replay's application id, when every part is
judged; a commit that is repeated after an interruption writes nothing twice.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app import folders
from app.config.described import described
from app.errors import UserError
from app.tables import last_configuration, small_files, writable
from app.tables.commit import Writer
from app.tables.json_documents import Document
from app.tables.small_files import local_path, path_in
from app.tables.state_files import States
from app.whatif.replay.part_files import PartFiles
from app.whatif.replay.slices import TimeSlice
from app.whatif.replay.stages import ReplayPart

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.engine.operators import Operator

NAME = "_weir/replay.json"
EXCHANGE = "_weir/replay/exchange"
FORMAT = 3
REMEDY = "name another folder"


@dataclass
class Header:
    """What the file of a replay has in every version."""

    format: int
    identity: dict[str, Any]
    """What is replayed."""


@dataclass
class Progress(Header):
    """What a replay does, and whether it is done."""

    archive_version: int
    application: str
    slices: list[TimeSlice]
    divisor: int
    """Into how many parts the shards of a job are divided."""
    begins_empty: bool
    ended: bool = False
    """Whether all is committed."""

    def parts(self) -> list[ReplayPart]:
        """All parts."""
        return [ReplayPart(job, n) for job in self.identity["jobs"] for n in range(self.divisor)]


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
        self.settings = _settings_of(settings, folder)
        self._refuse_live(settings.location)
        self._identity = json.loads(json.dumps(identity))
        self._progress = self._load()
        refused = writable.obstacle(self.settings.location)
        if refused is not None:
            raise UserError(f"{self._place}: {refused}")

    def _refuse_live(self, warehouse: Location) -> None:
        if _same(warehouse, self.settings.location):
            raise UserError(
                f"{self._place}: is the warehouse that is replayed\nname another folder"
            )

    def _load(self) -> Progress | None:
        found = _HEADER.load(self.settings.location, NAME)
        if found is None:
            if _is_taken(self.settings.location):
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
        """Whether it has been planned."""
        return self._progress is not None

    @property
    def ended(self) -> bool:
        """Whether all is committed."""
        return self._progress is not None and self._progress.ended

    @property
    def archive_version(self) -> int | None:
        """The version of the archive that is replayed; None before the begin."""
        return None if self._progress is None else self._progress.archive_version

    @property
    def slices(self) -> list[TimeSlice]:
        """All slices of the replay."""
        return self._there.slices

    @property
    def divisor(self) -> int:
        """Into how many parts the shards of a job are divided."""
        return self._there.divisor

    @property
    def parts(self) -> list[ReplayPart]:
        """All parts of the replay."""
        return self._there.parts()

    @cached_property
    def files(self) -> PartFiles:
        """The files of its parts."""
        return _files_of(self.settings.location, self._there)

    @property
    def _there(self) -> Progress:
        assert self._progress is not None
        return self._progress

    def begin(
        self,
        archive_version: int,
        slices: list[TimeSlice],
        divisor: int,
        start: States | None = None,
    ) -> None:
        """Write down what will be done, and the states to begin with."""
        self._progress = Progress(
            FORMAT,
            self._identity,
            archive_version,
            f"weir-replay-{uuid.uuid4()}",
            slices,
            divisor,
            start is None,
        )
        if start is not None:
            divided = {part: States(latest_ms=start.latest_ms) for part in self.parts}
            for (job, shard), state in start.states.items():
                mine = divided[ReplayPart(job, shard % divisor)]
                mine.keep((job, shard), state, start.wakes.get((job, shard)))
            for part, states in divided.items():
                self.files.keep_begin(part, states)
        self._write()
        last_configuration.keep(
            self.settings.location, described(self.settings, time.time_ns() // 1_000_000)
        )

    def commit(self, group: Mapping[str, Operator]) -> int:
        """Commit the rows of all parts, which are judged; how many there are."""
        from deltalake.transaction import AddAction

        now_ms, rows = time.time_ns() // 1_000_000, 0
        names = [*(t for operator in group.values() for t in operator.tables), "quarantine"]
        actions: dict[str, list[AddAction]] = {}
        for part in self.parts:
            done = self.files.done(part)
            assert done is not None
            rows += done.rows
            for file in done.files:
                actions.setdefault(file["table"], []).append(
                    AddAction(file["path"], file["bytes"], {}, now_ms, True, file["stats"])
                )
        history_ms = self.settings.maintenance.history_ms
        writer = Writer(self.settings.location, "replay", history_ms, self._there.application)
        writer.prepare(names)
        for name, added in sorted(actions.items()):
            writer.add_files(name, added, 0)
        writer.settle()
        self._there.ended = True
        self._write()
        return rows

    def _write(self) -> None:
        _PROGRESS.keep(self.settings.location, NAME, self._there)

    @property
    def exchange(self) -> Path | None:
        """Where records wait between two stages on this machine; None for an object store."""
        root = local_path(self.settings.warehouse)
        return None if root is None else root / EXCHANGE


def absolute(folder: str) -> str:
    """A warehouse of the command line, wherever the command runs."""
    root = local_path(folder)
    return folder if root is None else str(root.absolute())


def _settings_of(settings: Settings, folder: str) -> Settings:
    """The settings of the warehouse that is written: an object store has the configured options."""
    stored = local_path(folder) is None
    return settings.model_copy(
        update={
            "warehouse": absolute(folder),
            "storage_options": settings.storage_options if stored else {},
            "commit": "delta-rs",
        }
    )


def _files_of(location: Location, progress: Progress) -> PartFiles:
    storage = {} if local_path(location.uri) else location.storage()
    return PartFiles(path_in(location, "").rstrip("/"), storage, progress.begins_empty)


def _same(one: Location, other: Location) -> bool:
    """Whether two warehouses are the same."""
    roots = [local_path(location.uri) for location in (one, other)]
    if None in roots:
        return one.uri.rstrip("/") == other.uri.rstrip("/")
    return len({root.resolve() for root in roots if root}) == 1


def _is_taken(location: Location) -> bool:
    """Whether something is where a replay would write."""
    root = local_path(location.uri)
    if root is None:
        return bool(small_files.names(location, ""))
    return root.exists() and (not root.is_dir() or bool(folders.names(root)))


def of_folder(settings: Settings, folder: str, option: str) -> tuple[dict[str, Any], States]:
    """What the replay in a folder was, and the states that it ended with; UserError where it has
    not ended."""
    location = _settings_of(settings, folder).location
    progress = _PROGRESS.load(location, NAME)
    if progress is None:
        raise UserError(
            f"{option} {folder}: is not the folder of a replay (allowed: one that "
            "replay --out has written)"
        )
    if not progress.ended:
        raise UserError(f"{option} {folder}: that replay has not ended\nlet it go on first")
    states, files = States(), _files_of(location, progress)
    for part in progress.parts():
        ended = files.end(part)
        states.latest_ms = max(states.latest_ms, ended.latest_ms)
        for key, state in ended.states.items():
            states.keep(key, state, ended.wakes.get(key))
    return progress.identity, states
