"""Owners of producer ids: by the request log, the configured rules, or the ACLs of the topic."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

import pyarrow as pa

from app import folders
from app.config.kafka_producers import OwnerRule
from app.sources.files.lines import GZIP, numbered
from app.sources.kafka import request_log as request_log
from app.sources.kafka.producer_states import UNKNOWN, IdOwner
from app.sources.polling import noted

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a listener without authentication."""
EVERYBODY = "User:*"
MOST_ASSIGNED = 500_000
"""Assignments that are kept; of more, the newest."""
BLOCK_BYTES, MOST_OF_LINE = 16 << 20, 1 << 20
"""Read at once, and kept of a line whose end is not there yet."""


class Grant(NamedTuple):
    """A permission on topics."""

    name: str
    pattern: str
    """LITERAL or PREFIXED."""
    principal: str
    operation: str
    permission: str = "ALLOW"

    def covers(self, topic: str) -> bool:
        """Whether the permission applies to a topic."""
        if self.pattern == "PREFIXED":
            return topic.startswith(self.name)
        return self.name in ("*", topic)


class RequestLogs:
    """The newest assignment of each producer id in request logs that brokers still write.

    Reading continues where the last call ended, also in a file that was renamed.
    """

    def __init__(self, path: str, time_zone: str) -> None:
        """`path` is a file, a folder, or a pattern; plain files and gzip."""
        self._path = Path(path)
        self._zone = ZoneInfo(time_zone)
        self._read: dict[tuple[int, int], int] = {}
        """By device and inode how many bytes have been read."""
        self._assigned: dict[int, tuple[int, IdOwner]] = {}

    def owner(self, producer_id: int) -> IdOwner | None:
        """Principal and client id to which an id was last assigned."""
        found = self._assigned.get(producer_id)
        return None if found is None else found[1]

    def read(self, problems: list[str]) -> None:
        """Read the lines added since the last call."""
        there = {}
        files: list[Path] = []
        with noted(problems, f"request log {self._path}: "):
            files = self._files()
        for file in files:
            with noted(problems, f"request log {file}: "):
                about = file.stat()
                inode = about.st_dev, about.st_ino
                begin = self._read.get(inode, 0)
                if about.st_size < begin:
                    begin = 0  # emptied and written anew
                there[inode] = begin
                if about.st_size > begin:
                    there[inode] = self._take(file, begin)
        if not there:
            problems.append(f"request log {self._path}: no file")
        self._read = there
        for old in list(self._assigned)[: max(len(self._assigned) - MOST_ASSIGNED, 0)]:
            del self._assigned[old]

    def _files(self) -> list[Path]:
        found = (
            folders.files_below(self._path)
            if self._path.is_dir()
            else folders.listed(folders.matching(self._path.parent, self._path.name))
        )
        files = [each for each in found if each.path.name[:1] not in "._"]
        return [each.path for each in sorted(files, key=lambda each: (each.changed_ns, each.path))]

    def _take(self, file: Path, begin: int) -> int:
        """Read the complete lines of a file from a byte on; returns the byte after them."""
        with file.open("rb") as opened:
            if opened.read(len(GZIP)) == GZIP:
                size = os.fstat(opened.fileno()).st_size
                opened.seek(0)
                self._lines(numbered(pa.PythonFile(opened)))
                return size
            opened.seek(begin)
            rest = b""
            while block := opened.read(BLOCK_BYTES):
                whole, _, rest = (rest[-MOST_OF_LINE:] + block).rpartition(b"\n")
                if whole:
                    self._lines(numbered(pa.BufferReader(whole + b"\n")))
            return opened.tell() - len(rest)

    def _lines(self, blocks: Iterable[tuple[pa.Array, pa.Array]]) -> None:
        for values, _ in blocks:
            for line in values.filter(request_log.candidates(values)).to_pylist():
                try:
                    one = request_log.parse(line, self._zone)
                except Exception:  # noqa: BLE001 - another line of the same log
                    continue
                if one is None:
                    continue
                known = self._assigned.pop(one.producer_id, None)
                newest = one.arrived_ms, IdOwner(one.principal or UNKNOWN, one.client_id)
                self._assigned[one.producer_id] = max(
                    newest, known or newest, key=lambda one: one[0]
                )


class OwnersOf:
    """The owner of an id, from the first of: its assignment in a request log, if that names a
    principal; the first matching rule; the only principal that may write to the topic.
    """

    def __init__(
        self,
        rules: Sequence[OwnerRule],
        logs: RequestLogs | None = None,
        grants: Sequence[Grant] = (),
    ) -> None:
        self._rules = rules
        self._logs = logs
        self._grants = grants
        self._only: dict[str, str | None] = {}

    def of(self, producer_id: int, topic: str) -> IdOwner:
        """The owner of an id on a topic; the principal is UNKNOWN if nothing names it."""
        logged = (self._logs.owner(producer_id) if self._logs else None) or IdOwner()
        if logged.principal not in (UNKNOWN, ANONYMOUS):
            return logged
        for rule in self._rules:
            if rule.fits(topic, logged.client_id):
                return IdOwner(rule.principal, logged.client_id)
        writer = self._writer(topic)
        return IdOwner(writer, logged.client_id) if writer is not None else logged

    def _writer(self, topic: str) -> str | None:
        """The only principal that may write to a topic."""
        if topic not in self._only:
            names = {each.principal for each in self._grants if each.covers(topic)}
            only = names.pop() if len(names) == 1 else None
            self._only[topic] = None if only == EVERYBODY else only
        return self._only[topic]
