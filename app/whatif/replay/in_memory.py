"""A replay whose rows are taken as they are decided, in threads of this process."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import pyarrow as pa

from app.tables.state_files import States
from app.whatif.replay.in_threads import Threads
from app.whatif.replay.replay_progress import ReplayProgress
from app.whatif.replay.slices import RECORDS, edges, slices
from app.whatif.replay.stages import Placed, ReplayPart, Stages, clocks_of

if TYPE_CHECKING:
    from app.engine.operators import Operator
    from app.whatif.replay.archive import Archive


def judge_in_memory(
    archive: Archive,
    group: Mapping[str, Operator],
    idle_advance_ms: int,
    take: Callable[[str, pa.Table], None],
    drained_ms: Callable[[int], int | None] = lambda _: None,
    records: int = RECORDS,
) -> None:
    """Judge an archive from empty states, in slices of so many records; `take` gets rows of a table
    at a time. `drained_ms` as for the clocks of a replay."""
    found = slices(archive.counted(), archive.span, records=records)
    clocks = clocks_of(found, edges(found), idle_advance_ms, drained_ms=drained_ms)
    divisor = archive.reader.shards
    parts = [ReplayPart(job, n) for job in group for n in range(divisor)]
    one_at_a_time = threading.Lock()

    def write(stages: Stages, part: ReplayPart, placed: Iterable[Placed]) -> int:
        count = 0
        for name, rows in stages.judge(part, States(), placed):
            count += rows.num_rows
            with one_at_a_time:
                take(name, rows)
        return count

    stages = Stages(archive.reader, group, clocks, parts, divisor)
    Threads().run(stages, archive.files, write, ReplayProgress(0, len(parts), math.inf))
