"""The files of Spark in a query's checkpoint: whether they are there, and as Spark wrote them.

Spark writes a checksum beside each of its files (`.NAME.crc`: a head of eight bytes, then the
CRC-32 of every 512 bytes). A file that does not fit it ends a query with a stack trace.
"""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from app import folders
from app.plain_text import is_digits, lines_of
from app.tables import checkpoints
from app.tables.small_files import Damaged, names, path_in, read_text

if TYPE_CHECKING:
    from app.config.location import Location

_HEAD = b"crc\0"
_SNAPSHOT = re.compile(r"(\d+)\.zip")
COMPACT = ".compact"


def checksum_of(file: Path) -> Path:
    """The file with the checksum of another one."""
    return file.with_name(f".{file.name}.crc")


def changed(file: Path) -> bool:
    """Whether a file is not the one that its checksum is of; False without either."""
    try:
        kept, data = checksum_of(file).read_bytes(), file.read_bytes()
    except FileNotFoundError:
        return False
    if len(kept) < 8 or not kept.startswith(_HEAD):
        return True
    (size,) = struct.unpack(">I", kept[4:8])
    sums = [zlib.crc32(data[at : at + size]) for at in range(0, len(data), size or len(data) or 1)]
    return kept[8:] != struct.pack(f">{len(sums)}I", *sums)


def lost_state(place: Path, batch: int, partitions: int) -> Path | None:
    """The first file that is missing, empty or changed of those that the states after a batch are
    read from: of each partition the newest snapshot, and the changes since. None if all are whole.
    """
    version = batch + 1
    for partition in range(partitions):
        folder = place / "state" / "0" / str(partition)
        sizes = {file.path.name: file.bytes for file in folders.files(folder)}
        snapshots = [int(found[1]) for name in sizes if (found := _SNAPSHOT.fullmatch(name))]
        first = max((number for number in snapshots if number <= version), default=0)
        wanted = [f"{first}.zip"] if first else []
        wanted += [f"{number}.changelog" for number in range(first + 1, version + 1)]
        for name in wanted:
            if not sizes.get(name) or changed(folder / name):
                return folder / name
    return None


@dataclass(frozen=True)
class SourceFile:
    """A file that a query has planned to read."""

    path: str
    """Its path or address."""
    entry: int
    """The entry of Spark's log that has it."""


class SourceLog:
    """Spark's log of the files that a query has found in its source (`sources/0`)."""

    def __init__(self, warehouse: Location, query: str) -> None:
        self._warehouse = warehouse
        self._folder = f"{checkpoints.FOLDER}/{query}/sources/0"
        self._names = set(names(warehouse, self._folder))

    @property
    def last(self) -> int:
        """The newest entry; -1 for none."""
        return max(
            (
                int(n.removesuffix(COMPACT))
                for n in self._names
                if is_digits(n.removesuffix(COMPACT))
            ),
            default=-1,
        )

    def logs(self, last: int) -> list[str]:
        """Names of the logs that have all entries up to one: the newest compact one, and those
        since.
        """
        whole = [int(n.removesuffix(COMPACT)) for n in self._names if n.endswith(COMPACT)]
        begin = max((n for n in whole if n <= last), default=-1)
        found = [f"{begin}{COMPACT}"] if begin >= 0 else []
        return found + [str(n) for n in range(begin + 1, last + 1)]

    def files(self, last: int, after: int = -1) -> Iterator[SourceFile]:
        """The files of the entries up to `last` and after another one; Damaged for a log that is
        gone or cannot be read.
        """
        for name in self.logs(last):
            if int(name.removesuffix(COMPACT)) > after:
                yield from (file for file in self._entries(name) if file.entry > after)

    def _entries(self, name: str) -> list[SourceFile]:
        place = f"{self._folder}/{name}"
        try:
            text = read_text(self._warehouse, place)
            if text is None:
                raise Damaged(path_in(self._warehouse, place), "is gone")
            version, *lines = lines_of(text)
            found = [json.loads(line) for line in lines if line]
            if not version.startswith("v"):
                raise ValueError("no version")
            return [SourceFile(unquote(one["path"]), int(one["batchId"])) for one in found]
        except (ValueError, KeyError, TypeError) as error:
            raise Damaged(path_in(self._warehouse, place), f"is damaged ({error!r:.200})") from None


def entry_of(offsets: dict[str, Any]) -> int | None:
    """The last entry of the log of a source of files that a batch reads; None for other sources."""
    found = offsets.get("logOffset")
    return found if isinstance(found, int) else None
