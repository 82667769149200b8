"""Plans the batches of an archive, in a process of Spark that stays beside the query.

It imports little: neither pyarrow nor the compiled cores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from pyspark.sql.datasource import InputPartition

from app.sources.python_source import PlanningReader, Rows

Document = dict[str, Any]
"""An offset."""
UPTO, MORE = "archived_ms", "more"
"""Keys of an offset: the end of a slice, and whether there is a further one."""


class Piece(NamedTuple):
    """A file of the archive, and the times at which its records were read (ms)."""

    path: str
    bytes: int
    rows: int
    least: int
    most: int


class SliceReader(PlanningReader):
    """Plans the batches of one query."""

    def __init__(
        self, pieces: Sequence[Piece], ends: Sequence[int], tasks: int, upto_ms: int | None
    ) -> None:
        """`upto_ms` is the end of the last planned batch."""
        self._pieces, self._ends, self._tasks = pieces, ends, tasks
        self._first_ms = min(piece.least for piece in pieces) - 1
        self._upto_ms = self._first_ms if upto_ms is None else upto_ms

    def initialOffset(self) -> Document:  # noqa: N802
        """The start of the first batch."""
        return {UPTO: self._first_ms, MORE: True}

    def latestOffset(self) -> Document:  # noqa: N802
        """The end of the next batch."""
        upto = next((end for end in self._ends if end > self._upto_ms), self._upto_ms)
        return {UPTO: upto, MORE: upto < self._ends[-1]}

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        """The files of a slice, for a few tasks."""
        after, self._upto_ms = start[UPTO], end[UPTO]
        rows = [
            (piece.path, after, end[UPTO], piece.bytes // max(piece.rows, 1))
            for piece in sorted(self._pieces, key=lambda piece: -piece.bytes)
            if piece.most > after and piece.least <= end[UPTO]
        ]
        return [Rows(rows[n :: self._tasks]) for n in range(min(self._tasks, len(rows)))]
