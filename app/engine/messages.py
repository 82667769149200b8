"""Messages from the packer to the operator, and from the operator to the committer.

A message is a row with a name and a blob. Most rows carry records of a job or rows of a table and
have its name. The name of any other kind begins with a character that begins no job and no table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa


class MessageKind(Enum):
    """Kinds of messages; the value is the first character of the name."""

    DATA = ""
    """Records for a job, or rows of a table."""
    CLOCK = "@"
    """Only the time of the row, for a batch without records of these jobs. During a catch-up it
    carries the latest time (ms) of a source partition, which the operator passes on to the
    committer.
    """
    FILE = "+"
    """A data file, written by a task, that becomes part of the named table."""
    REFUSED = "-"
    """Rows of `quarantine` that need no state, on their way to the committer."""
    AHEAD = ">"
    """The `clock_skew_ms` (ms) that would let records of a feed that is ahead move the clocks."""
    LATE = "!"
    """The `idle_advance_ms` (ms) that would have kept records which came too late."""


_NOTES = {kind.value: kind for kind in MessageKind if kind.value}


@dataclass(frozen=True, slots=True)
class Message:
    """A row: its kind, the job or table that it is for, and its blob."""

    kind: MessageKind
    name: str = ""
    body: Any = b""

    @property
    def address(self) -> str:
        """The text of the row's name column."""
        return self.kind.value + self.name

    @classmethod
    def of(cls, address: str, body: Any = b"") -> Message:
        """The message of a row."""
        kind = _NOTES.get(address[:1], MessageKind.DATA)
        return cls(kind, address[len(kind.value) :], body)


def encode(rows: pa.Table) -> bytes:
    """Rows as an Arrow IPC stream, the body of DATA and REFUSED."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body
