"""The spool folder: files of records, and the memory of the last poll.

A file is first written under a name that readers ignore; then the memory, which names it; then the
file gets its own name. So the memory decides: the next start completes a file that it names and
removes any other unfinished file, whose poll then never happened. A record is in the spool once,
and a deletion that the memory lacks is recorded by the next poll.
"""

from __future__ import annotations

import fcntl
import gzip
import io
import json
import os
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Generic, Literal, TextIO, TypeVar

import msgspec

from app import folders
from app.errors import UserError
from app.sources.poll_records import Record
from app.tables import durable
from app.tables.json_documents import Document

MEMORY = "memory.json"
LOCK = "lock"
_NAME = re.compile(r"poll-[0-9]{15}-[0-9]{15}\.jsonl(\.gz)?")


T = TypeVar("T")


@dataclass
class PollMemory(Generic[T]):
    """What the polls so far left: it survives a restart."""

    cluster: str
    seq: int
    """Number of the next record."""
    last_poll_ms: int
    """Time of the newest poll."""
    file: str | None
    """The file that was written last."""
    topics: dict[str, T]
    """What is kept of a topic between two polls."""
    policies: dict[str, dict[str, Any]]
    extra: dict[str, Any] = field(default_factory=dict)
    """Further data of a feed."""
    version: Literal[1] = 1

    def take(
        self, topic: str, known: T | None, policies: Mapping[str, dict[str, Any]], at_ms: int
    ) -> None:
        """Keep what a poll of a topic leaves for the next one; None is known of one that is gone."""
        if known is None:
            self.topics.pop(topic, None)
        else:
            self.topics[topic] = known
        self.policies.update(policies)
        self.last_poll_ms = max(self.last_poll_ms, at_ms)


def none_of(names: Sequence[str]) -> Container[str]:
    """No reader is known that needs any of these files."""
    return ()


class Spool:
    """One folder of polls, held by one process at a time."""

    def __init__(
        self, folder: Path, cluster: str, where: str = "source", of_topic: Any = dict[str, Any]
    ) -> None:
        """`where` is the place of the settings in the configuration; `of_topic` is the type of what
        is kept of a topic.
        """
        self.folder = folder
        self._where = where
        self._document: Document[PollMemory[Any]] = Document(PollMemory[of_topic])
        self._lock: TextIO | None = None
        self.memory = PollMemory[Any](cluster, 0, -1, None, {}, {})

    @property
    def records(self) -> Path:
        """The folder that readers read."""
        return self.folder / "polls"

    def hold(self, wait: bool = False) -> bool:
        """Take the folder with its memory; returns whether that was possible."""
        if self._lock is not None:
            return True
        try:
            self.records.mkdir(parents=True, exist_ok=True)
            lock = (self.folder / LOCK).open("w")
        except OSError as error:
            raise self._unusable(error) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            self.memory = self._recover()
        except BlockingIOError:
            lock.close()
            return False
        except BaseException:
            lock.close()
            raise
        self._lock = lock
        return True

    def release(self) -> None:
        """Let another process take the folder."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def commit(self, at_ms: int, records: Iterable[Record]) -> Path | None:
        """Write records as a file, numbered, and the memory; None if there are none.

        A failure leaves the file unwritten; the memory in this process is then no longer that of
        the folder, so the folder must be released and taken again.
        """
        memory = self.memory
        name = f"poll-{max(at_ms, 0):015d}-{memory.seq:015d}.jsonl.gz"
        unfinished = durable.unfinished(self.folder / name)
        try:
            first = memory.seq
            with unfinished.open("wb") as file:
                # Records of a poll are alike: a thirtieth is left of them.
                packed = gzip.GzipFile("", "wb", 1, file, 0)
                with packed, io.BufferedWriter(packed, 1 << 20) as out:
                    for record in records:
                        out.write(b'%b,"seq":%d}\n' % (_json(record)[:-1], memory.seq))
                        memory.seq += 1
                _flush(file)
            wrote = memory.seq > first
            if wrote:
                memory.file = name
            self._write_memory()
            if not wrote:
                unfinished.unlink(missing_ok=True)
                return None
            unfinished.replace(self.records / name)
        except OSError as error:
            raise self._unusable(error) from error
        return self.records / name

    def remove_before(
        self, at_ms: int, least: int, needed: Callable[[Sequence[str]], Container[str]] = none_of
    ) -> int:
        """Remove the files of polls before a time, except the newest `least` and those that `needed`
        picks from their names; returns their number."""
        names = [name for name in folders.names(self.records) if _NAME.fullmatch(name)]
        old = [name for name in names[:-least] if int(name.split("-")[1]) < at_ms]
        kept = needed(old) if old else ()
        gone = [name for name in old if name not in kept]
        for name in gone:
            (self.records / name).unlink(missing_ok=True)
        return len(gone)

    def _recover(self) -> PollMemory[Any]:
        """The memory of the folder, after an unfinished file was completed or dropped."""
        memory = self._read_memory()
        if memory.file is not None:
            with suppress(FileNotFoundError):
                durable.unfinished(self.folder / memory.file).replace(self.records / memory.file)
        for leftover in folders.matching(self.folder, f".*{durable.UNFINISHED}"):
            folders.remove(leftover)
        return memory

    def _read_memory(self) -> PollMemory[Any]:
        file, cluster = self.folder / MEMORY, self.memory.cluster
        if not file.exists():
            return PollMemory(cluster, 0, -1, None, {}, {})
        try:
            memory = self._document.of_text(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UserError(
                f"{file}: is not the memory of a poll ({error})\n"
                "put it back from a copy, or delete it: deletions since then are never recorded"
            ) from None
        if memory.cluster != cluster:
            raise UserError(
                f"{self._where}.cluster: {file} is of cluster {memory.cluster}, not {cluster}\n"
                f"give each cluster a folder of its own ({self._where}.spool)"
            )
        return memory

    def _write_memory(self) -> None:
        with (
            durable.replacing(self.folder / MEMORY) as unfinished,
            unfinished.open("w", encoding="utf-8") as out,
        ):
            out.write(self._document.text(self.memory))
            _flush(out)

    def _unusable(self, error: OSError) -> UserError:
        return UserError(
            f"{self._where}.spool: cannot write in {self.folder}: {error.strerror}\n"
            "choose a local folder with space that this user may write"
        )


def _json(record: Record) -> bytes:
    try:
        return msgspec.json.encode(record)
    except (UnicodeEncodeError, OverflowError):  # half a character, or a number beyond 64 bits
        return json.dumps(record, separators=(",", ":")).encode("ascii")


def _flush(out: IO[Any]) -> None:
    out.flush()
    os.fsync(out.fileno())
