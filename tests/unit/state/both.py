"""Records judged by the core, record by record or at once, or by the reference.

For what is written by hand, since a misreading that core and reference share is equal: a module
asks for it with the fixture `runner`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.effort import SLOW
from tests.unit.state.contract.jobs import JOBS, Rows, Sample
from tests.unit.state.shipping import Row, params_of

RUNNER = ["core"]
MOST_PIECES = 300
"""Of a trace that is longer a piece is more than a record, without --slow."""


def judge(
    job: str,
    records: Sequence[Row],
    params: Row | None = None,
    policies: Sequence[str] = (),
    until_ms: int | None = None,
) -> Rows:
    """Rows by table, in order, up to just behind the last record if no other time is given."""
    until = max(r["ts_wall_ms"] for r in records) + 1 if until_ms is None else until_ms
    by = Sample(records, params_of(job, **(params or {})), policies, until)
    if RUNNER[0] == "reference":
        return JOBS[job].in_order(JOBS[job].judge(by))
    read = JOBS[job].read(records)
    if RUNNER[0] == "core":
        return JOBS[job].play([read], by)
    timed = sorted(read, key=lambda r: r["ts_wall_ms"])
    length = 1 if SLOW else -(-len(timed) // MOST_PIECES)
    pieces = [timed[first : first + length] for first in range(0, len(timed), length)]
    return JOBS[job].play(pieces, by)
