"""What a job is: a named state machine over the records of one shard.

A job gets the bytes of its state and a batch of blobs, and returns new bytes, output rows and the
wall time at which it wants to be called again. It knows no Spark, no clock and no file, so the
streaming query and the batch replay call the same code.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from state.engine.documents import Version

if TYPE_CHECKING:
    from state.engine.reach import Reach


@dataclass
class Step:
    """The result of one call of a job.

    `tables` holds output rows by table name, without the columns that are the same for every row
    of a job. `wake_at_ms` is a wall time: when the clock of a key passes it, the shard must be called even
    without records; None = never. `needed_idle_advance_ms` is set when records were too late only
    because their keys had been silent for so long.
    """

    state: bytes
    tables: dict[str, pa.Table] = field(default_factory=dict)
    wake_at_ms: int | None = None
    needed_idle_advance_ms: int | None = None


class Job(Protocol):
    """A stateful operator that can be run alone or fused with others. What else the application
    knows of it is in its declaration (`state.engine.declaration`)."""

    name: str

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """Judge a batch; `reach` says how far silent keys are moved before it."""
        ...

    def follow(self, versions: Iterable[Version]) -> None:
        """Judge by these versions of the configuration after the documents that the job was made
        with, each from its time on; a shard that has not had them gets them with its next call."""
        ...
