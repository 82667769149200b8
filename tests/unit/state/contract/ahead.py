"""What tests share of ahead."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa

from app.engine.messages import MessageKind
from app.engine.routing import Route, packer
from app.engine.step import decode
from app.sources.clocks import ClockLimits, stamped
from state.engine.reach import Reach
from state.events import SCHEMA
from state.jobs import DECLARED
from tests.unit.state.contract.jobs import Job, Rows
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
UNTIL_MS = START_MS + 20 * MINUTE
Batches = Sequence[tuple[int, Sequence[Row | bytes]]]
"""Batches of records, or of lines as they are, each with the time after the start at which it was
planned (ms)."""


def streamed(
    job: Job,
    batches: Batches,
    decided: list[int] | None = None,
    waiting: bool = False,
    drained: bool = True,
) -> Rows:
    """The rows of the batches, and then of an input that is drained up to UNTIL_MS; `decided` gets how
    many there are after each batch, refused records apart. With `waiting` each batch leaves records in
    the source, as in a catch-up or in a run with an end."""
    limits = ClockLimits()
    declared, by = DECLARED[job.name], job.before
    route = Route(declared.columns, declared.key, everywhere=declared.everywhere)
    pack = packer({job.name: route}, 1, limits)
    core = job.core({**by.params, "clock_skew_ms": limits.clock_skew_ms}, by.policies)
    state: bytes | None = None
    reached_ms = count = 0
    rows: dict[str, list[Row]] = {}
    for plan_ms, records in batches:
        lines = [
            r
            if isinstance(r, bytes)
            else json.dumps({k: r[k] for k in SCHEMA.names if r.get(k) is not None}).encode()
            for r in records
        ]
        raw = stamped(
            pa.record_batch(
                {
                    "value": pa.array(lines, pa.binary()),
                    "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
                    "source_offset": pa.array(range(count, count + len(lines)), pa.int64()),
                }
            ),
            START_MS + plan_ms,
        )
        count += len(lines)
        packed = [row for part in pack(iter([raw])) for row in part.to_pylist()]
        mine = [r["blob"] for r in packed if r["job"] == job.name]
        step = core.step(state, mine, Reach(0, reached_ms))
        state = step.state
        tables = [(name, table) for name, table in step.tables.items()]
        for row in packed:
            if row["kind"] == MessageKind.REFUSED:
                tables.append(("quarantine", decode([row["blob"]])))
        reached_ms = 0 if waiting else START_MS + plan_ms
        for name, table in tables:
            rows.setdefault(name, []).extend(
                job.plain(table) if name != "quarantine" else table.to_pylist()
            )
        if decided is not None:
            decided.append(sum(map(len, without_quarantine(rows).values())))
    end_ms = UNTIL_MS if drained else 0
    for name, table in core.step(state, [], Reach(end_ms, reached_ms)).tables.items():
        rows.setdefault(name, []).extend(job.plain(table))
    return job.in_order(rows)


def honest(job: Job, from_ms: int = 0) -> list[tuple[int, list[Row]]]:
    """Two keys, a record each a second, in batches of ten seconds that are planned when they end."""
    found = []
    for first in range(0, 60, 10):
        records = [
            job.event(from_ms + second * 1000, 2 * second + i, key=key, number=second + 1)
            for second in range(first, first + 10)
            for i, key in enumerate("ab")
        ]
        found.append((from_ms + (first + 10) * 1000, records))
    return found


def without_quarantine(rows: Rows) -> Rows:
    return {name: found for name, found in rows.items() if name != "quarantine"}
