"""Replays: the same jobs over the archive, in batch, under any policy and parameters.

`replay_command` is the command `replay`; `stages` has the two stages, which `in_threads` or `on_spark`
call. `replayed` answers the tables of a small archive in memory.
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
    from app.whatif.replay.archive import Archive
    from app.whatif.replay.in_memory import judge_in_memory
    from app.whatif.replay.slices import RECORDS

    group = group or operators(settings, jobs)
    archive = Archive(settings, {name: operator.route for name, operator in group.items()})
    parts: dict[str, list[pa.Table]] = {}
    judge_in_memory(
        archive,
        group,
        settings.idle_advance_ms,
        lambda name, rows: parts.setdefault(name, []).append(rows),
        settings.window_end_ms if drain else lambda _: None,
        records or RECORDS,
    )
    return {name: pa.concat_tables(rows) for name, rows in parts.items()}
