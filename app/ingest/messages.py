"""The messages from the packer to the operator, and from the operator to the committer.

Both travel as rows of a name and a blob. Most rows carry records for a job, or rows of a table, and
have its name. The others are notes; the first character of their name is one that no job and no
table begins with.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any


class Kind(Enum):
    """Kinds of messages; the value begins the message's address."""

    DATA = ""
    """Records for a job, or rows of a table."""
    CLOCK = "@"
    """Only the row's time: a batch without records for these jobs. In a catch-up with the latest
    time (ms) of a source partition, which goes on to the committer."""
    FILE = "+"
    """A data file that a task has written becomes part of the named table."""
    LATE = "!"
    """The `idle_advance_ms` (ms) that would have kept records which came too late."""


_NOTES = {kind.value: kind for kind in Kind if kind.value}


@dataclass(frozen=True, slots=True)
class Message:
    """One row: its kind, the job or table it is for, and what it carries."""

    kind: Kind
    name: str = ""
    body: Any = b""

    @property
    def address(self) -> str:
        """The text of the row's name column."""
        return self.kind.value + self.name

    @classmethod
    def of(cls, address: str, body: Any = b"") -> Message:
        """The message of a row."""
        kind = _NOTES.get(address[:1], Kind.DATA)
        return cls(kind, address[len(kind.value):], body)
