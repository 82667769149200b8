"""The files of the parts of a replay: the states at their begin and end, and their rows.

The file of a part's last states names the files of its rows and is written when they are, whole or
not at all. So a part is done or not, whoever judges it and how often; the files of an attempt that
did not end are named nowhere.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from app.tables import state_files
from app.tables.archive_files import write_files
from app.tables.definitions import TABLES
from app.tables.object_store import file_system
from app.tables.state_files import States
from app.whatif.replay.stages import Placed, ReplayPart, Stages

BEGIN, END = "_weir/replay/begin", "_weir/replay/end"
"""Folders of the states."""
ROWS_PER_FILE = 500_000
BYTES_PER_FILE = 64 << 20
MAGIC = b"PAR1"


class DonePart(NamedTuple):
    """A part that is judged."""

    files: list[dict[str, Any]]
    """Its files: table, path below the table's folder, bytes, and statistics of the log."""
    rows: int


@dataclass(frozen=True)
class PartFiles:
    """The files of parts below a warehouse; travels to the tasks that write them."""

    root: str
    """Folder or address of the warehouse."""
    storage: dict[str, str]
    begins_empty: bool = True

    def begin(self, part: ReplayPart) -> States:
        """The states that a part begins with."""
        if self.begins_empty:
            return States()
        return state_files.read(self._path(BEGIN, part), self.storage)[0]

    def keep_begin(self, part: ReplayPart, states: States) -> None:
        """Write the states that a part begins with."""
        state_files.write(self._path(BEGIN, part), states, storage=self.storage)

    def end(self, part: ReplayPart) -> States:
        """The states with which a part has ended."""
        return state_files.read(self._path(END, part), self.storage)[0]

    def write(self, stages: Stages, part: ReplayPart, records: Iterable[Placed]) -> int:
        """Judge a part and write its rows and its last states; the number of rows."""
        states = self.begin(part)
        files: list[dict[str, Any]] = []
        held: dict[str, list[pa.Table]] = {}
        count = 0
        for name, rows in stages.judge(part, states, records):
            count += rows.num_rows
            parts = held.setdefault(name, [])
            parts.append(rows)
            if (
                sum(t.num_rows for t in parts) >= ROWS_PER_FILE
                or sum(t.nbytes for t in parts) >= BYTES_PER_FILE
            ):
                files += self._written(name, held.pop(name))
        files += [file for name, parts in held.items() for file in self._written(name, parts)]
        self._keep_end(part, states, {"files": files, "rows": count})
        return count

    def _keep_end(self, part: ReplayPart, states: States, about: dict[str, Any]) -> None:
        """Write the last states; of two attempts at once the later one counts."""
        path = self._path(END, part)
        if "://" in self.root:
            state_files.write(path, states, about, self.storage)
            return
        attempt = f"{path}.{uuid.uuid4()}"
        state_files.write(attempt, states, about)
        Path(attempt).replace(path)

    def done(self, part: ReplayPart) -> DonePart | None:
        """A part that is judged, with all its files; None for one that is not."""
        about = state_files.described(self._path(END, part), self.storage)
        if about is None or not all(map(self._is_whole, about["files"])):
            return None
        return DonePart(about["files"], about["rows"])

    def _written(self, name: str, parts: list[pa.Table]) -> list[dict[str, Any]]:
        files = write_files(TABLES[name], parts, f"{self.root}/{name}", self.storage)
        kept = files.select(["path", "bytes", "stats"])
        return [{"table": name, **one} for one in kept.to_pylist()]

    def _is_whole(self, file: dict[str, Any]) -> bool:
        """Whether a file is there to its last byte: a loss of power may have taken the end."""
        if "://" in self.root:
            system = file_system(f"{self.root}/{file['table']}", self.storage)
            return bool(system.get_file_info(file["path"]).size == file["bytes"])
        path = Path(self.root, file["table"], file["path"])
        try:
            with path.open("rb") as opened:
                at = opened.seek(-len(MAGIC), 2)
                return (at + len(MAGIC), opened.read()) == (file["bytes"], MAGIC)
        except OSError:
            return False

    def _path(self, folder: str, part: ReplayPart) -> str:
        return f"{self.root}/{folder}/{part.job}-{part.remainder}.arrow"
