"""Passes policy versions to the tasks of a batch.

The cores of a query are created with the versions that it had at its start. Later versions are
passed to the tasks as a local property of Spark; without later versions the property is not set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine.documents import Version
from state.engine.table import WHOSE

if TYPE_CHECKING:
    from app.engine.operators import Operator

VERSIONS = "weir.policies"
"""Local property of a batch: versions and hashes as JSON."""
Hashes = Sequence[tuple[int, str]]
"""Event times (ms), each with the `params_hash` of the rows from then on."""


def written(
    versions: Sequence[Version],
    hashes: Mapping[str, Hashes],
    shadows: Mapping[str, Sequence[Version]],
) -> str:
    """The value of the property: all versions of a query, the hashes of each job, and the versions
    of each shadow.
    """
    return json.dumps(
        [
            _plain(versions),
            hashes,
            {name: _plain(its) for name, its in shadows.items()},
        ]
    )


def _plain(versions: Sequence[Version]) -> list[Any]:
    return [
        [v.number, v.since_ms, [[*source, text] for source, text in v.changed.items()]]
        for v in versions
    ]


def _read(plain: Sequence[Any]) -> list[Version]:
    return [
        Version(number, since_ms, {(scope, name): said for scope, name, said in changed})
        for number, since_ms, changed in plain
    ]


class Follower:
    """Brings the cores of a task up to the versions of its batch."""

    def __init__(self, group: Mapping[str, Operator]) -> None:
        self._group = group
        self._known: str | None = None

    def follow(self) -> None:
        """Update the cores; called before a core is used."""
        from pyspark import TaskContext

        context = TaskContext.get()
        text = None if context is None else context.getLocalProperty(VERSIONS)
        if text is None or text == self._known:
            return
        self._known = text
        versions, hashes, shadows = json.loads(text)
        for job, operator in self._group.items():
            operator.job.follow(_read(versions))
            operator.stamp.hashes = hashes[job]
            for name, shadow in operator.shadows.items():
                shadow.follow(_read(shadows[name]))


class Stamp:
    """The `params_hash` of rows, by their time if policies have changed."""

    def __init__(self, hashes: Hashes = ()) -> None:
        self.hashes = hashes

    def stamped(self, rows: pa.Table) -> pa.Table:
        """The rows with a column of their hashes, unless one hash holds for all."""
        if len(self.hashes) < 2 or "ts_wall_ms" not in rows.column_names:
            return rows
        return rows.append_column("params_hash", self.of(rows))

    def of(self, rows: pa.Table) -> pa.Array:
        """The hash of each row."""
        since, hashes = zip(*self.hashes, strict=True)
        times = rows.column("ts_wall_ms").fill_null(2**63 - 1).to_numpy()
        which = np.searchsorted(np.array(since[1:], np.int64), times, side="right")
        return pa.array(hashes).take(pa.array(which))


class ShadowStamp(Stamp):
    """The `params_hash` of the rows of shadows, each by its own policies."""

    def __init__(self, of_shadows: Mapping[str, Stamp]) -> None:
        super().__init__()
        self.of_shadows = of_shadows

    def stamped(self, rows: pa.Table) -> pa.Table:
        """The rows with a column of their hashes."""
        whose = rows.column(WHOSE.name)
        found = pa.nulls(len(rows), pa.string())
        for name, stamp in self.of_shadows.items():
            found = pc.if_else(pc.equal(whose, name), stamp.of(rows), found)
        return rows.append_column("params_hash", found)
