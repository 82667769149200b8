"""Replays: the same jobs over the archive, in batch, under any policy and parameters.

`command` is the command `replay`; `engine` runs the cores over slices of event time, `archive`
reads them. `replayed` answers the tables of a small archive in memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from app.config.settings import Settings
    from app.engine.operators import Operator


def replayed(
    settings: Settings,
    jobs: Sequence[str],
    records: int | None = None,
    group: Mapping[str, Operator] | None = None,
    drain: bool = False,
) -> dict[str, pa.Table]:
    """Output tables of some jobs over the whole archive of the warehouse, for small archives;
    judged in slices of so many `records`, by the operators of `group` or as configured. With
    `drain` nothing waits for later records."""
    import pyarrow as pa

    from app.engine.operators import operators
    from app.terminal.interrupt import temporary_folder
    from app.whatif.replay.archive_reader import Archive
    from app.whatif.replay.slice_engine import Engine
    from app.whatif.replay.slices import RECORDS, slices

    group = group or operators(settings, jobs)
    archive = Archive(settings, {name: operator.route for name, operator in group.items()})
    found = slices(archive.counted(), archive.span, records=records or RECORDS)
    parts: dict[str, list[pa.Table]] = {}
    with temporary_folder("weir-replay-") as folder:
        until = settings.window_end_ms if drain else lambda _: None
        engine = Engine(archive, group, settings.idle_advance_ms, drained_ms=until)
        for _, tables in engine.run(found, folder):
            for name, rows in tables.items():
                parts.setdefault(name, []).append(rows)
    return {name: pa.concat_tables(rows) for name, rows in parts.items()}
