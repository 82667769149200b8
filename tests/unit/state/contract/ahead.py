"""What tests share of ahead."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from hashlib import sha256
from typing import Any

import pyarrow as pa

from app.engine.messages import MessageKind
from app.engine.routing import Route, packer
from app.engine.step import decode
from app.sources.clocks import ClockLimits, stamped
from state.engine.reach import Reach
from state.events import SCHEMA
from state.jobs import DECLARED
from tests.unit.state.contract.jobs import JOBS, Job, Rows
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
UNTIL_MS = START_MS + 20 * MINUTE
Batches = Sequence[tuple[int, Sequence[Row | bytes]]]
"""Batches of records, or of lines as they are, each with the time after the start at which it was
planned (ms)."""


@dataclass(frozen=True)
class _Reached:
    """How far a query has come: its state, the plan of its last batch (ms), and its rows."""

    state: bytes | None = None
    reached_ms: int = 0
    records: int = 0
    rows: Rows = field(default_factory=dict)

    def further(self, tables: Iterable[tuple[str, list[Row]]], **changes: Any) -> _Reached:
        """With more rows."""
        rows = {name: list(found) for name, found in self.rows.items()}
        for name, found in tables:
            rows.setdefault(name, []).extend(found)
        return replace(self, rows=rows, **changes)


_KNOWN: dict[bytes, _Reached] = {}
"""By job and all batches so far: most tests stream the same ones, up to those that are theirs."""
MOST_KNOWN = 1000


@cache
def _query(name: str) -> tuple[Callable[..., Any], Any]:
    """The packer and the core of a job."""
    limits, declared, job = ClockLimits(), DECLARED[name], JOBS[name]
    route = Route(declared.columns, declared.key, everywhere=declared.everywhere)
    params = {**job.before.params, "clock_skew_ms": limits.clock_skew_ms}
    return packer({name: route}, 1, limits), job.core(params, job.before.policies)


def _after(job: Job, before: _Reached, plan_ms: int, lines: list[bytes], waiting: bool) -> _Reached:
    """How far a query comes with one more batch."""
    pack, core = _query(job.name)
    first, end = before.records, before.records + len(lines)
    raw = {
        "value": pa.array(lines, pa.binary()),
        "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
        "source_offset": pa.array(range(first, end), pa.int64()),
    }
    parts = pack(iter([stamped(pa.record_batch(raw), START_MS + plan_ms)]))
    packed = [row for part in parts for row in part.to_pylist()]
    mine = [r["blob"] for r in packed if r["job"] == job.name]
    step = core.step(before.state, mine, Reach(0, before.reached_ms))
    refused = [decode([r["blob"]]) for r in packed if r["kind"] == MessageKind.REFUSED]
    return before.further(
        [*_plain(job, step.tables), *(("quarantine", table.to_pylist()) for table in refused)],
        state=step.state,
        reached_ms=0 if waiting else START_MS + plan_ms,
        records=end,
    )


def _at_end(job: Job, before: _Reached, end: Reach) -> _Reached:
    """With the rows of a last call without records."""
    return before.further(_plain(job, _query(job.name)[1].step(before.state, [], end).tables))


def _known(key: bytes, made: Callable[[], _Reached]) -> _Reached:
    if key not in _KNOWN:
        if len(_KNOWN) >= MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[key] = made()
    return _KNOWN[key]


def _plain(job: Job, tables: Mapping[str, pa.Table]) -> list[tuple[str, list[Row]]]:
    return [
        (name, table.to_pylist() if name == "quarantine" else job.plain(table))
        for name, table in tables.items()
    ]


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
    found = _Reached()
    key = f"{job.name} {waiting}".encode()
    for plan_ms, records in batches:
        lines = [
            r
            if isinstance(r, bytes)
            else json.dumps({k: r[k] for k in SCHEMA.names if r.get(k) is not None}).encode()
            for r in records
        ]
        key = sha256(repr((key, plan_ms, lines)).encode()).digest()
        found = _known(key, partial(_after, job, found, plan_ms, lines, waiting))
        if decided is not None:
            decided.append(sum(map(len, without_quarantine(found.rows).values())))
    end = Reach(UNTIL_MS if drained else 0, found.reached_ms)
    key = sha256(repr((key, end)).encode()).digest()
    return job.in_order(_known(key, partial(_at_end, job, found, end)).rows)


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
