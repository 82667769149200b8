"""The command `bakeoff`: replays the archive or a trace under every policy at every size.

Runs in this process, without Spark. The result is printed and appended to `cache_bakeoff`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.jobs.entry_cache.whatif import choice
from app.jobs.entry_cache.whatif.curves import (
    OF_BROKERS,
    BakeOff,
    Curve,
    CurvePoint,
    around,
    hit_ratio,
)
from app.jobs.entry_cache.whatif.trace import PackedTrace, read_trace, release_event
from app.tables.definitions import TABLES
from app.tables.manifest import load as load_manifest
from app.tables.writable import append
from app.terminal.counts import counted
from app.terminal.printable import say
from app.terminal.sizes import size_text
from state.entry_cache.declaration import NAME as JOB
from state.entry_cache.parameters import EntryCacheParameters

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings

TABLE = "cache_bakeoff"
COUNTED = (
    "hits",
    "misses",
    "hit_bytes",
    "storage_bytes",
    "wanted_bytes",
    "max_used_bytes",
    "evicted_wanted",
    "evicted_wanted_bytes",
    "passes",
    "work",
)
DEFAULT = "expected_reads"
"""The default policy of brokers."""
OPTIMUM = "belady"
UNBOUNDED = "expected_reads_stash"
"""The policy whose cache may exceed its size."""
EQUAL = "Equal lines of {}: what was varied changes nothing there on this trace."
EXCEEDED = 1.1
"""Multiple of its size above which a note is printed; any cache briefly holds one more entry."""


@dataclass(frozen=True)
class BakeoffRequest:
    """The comparison as given on the command line."""

    trace: Path | None = None
    policies: str | None = None
    sizes: str | None = None
    vary: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """The result of a bake-off."""

    trace: PackedTrace
    release_event: str
    points: tuple[CurvePoint, ...]
    """By curve, each from the smallest size to the largest."""


def bakeoff(
    settings: Settings, asked: BakeoffRequest, keep: bool = True, as_json: bool = False
) -> int:
    """Print the result of each policy at each size; returns 0.

    With `keep` the rows are appended to `cache_bakeoff` of the warehouse.
    """
    if keep:
        load_manifest(settings.location)
    result = compare(settings, asked)
    table = rows(settings, result)
    if as_json:
        _print_json(result, table)
    else:
        say("\n".join(lines(result)))
    if keep:
        keep_rows(settings.location, table)
    return 0


def compare(settings: Settings, asked: BakeoffRequest) -> Result:
    """Replay the trace through every cache."""
    curves, sizes = choice.curves(asked.policies, asked.vary), choice.sizes(asked.sizes)
    trace = read_trace(settings, asked.trace)
    own = settings.section(EntryCacheParameters)
    event = release_event(own, trace)
    off = BakeOff(settings, trace, event)
    if sizes is None:
        sizes = around(off.working_set(_reference(curves)))
        configured = choice.configured_size(own)
        sizes = sorted({*sizes, *([configured, 2 * configured] if configured else [])})
    return Result(trace, event, tuple(off.points(curves, sizes)))


def _reference(curves: Sequence[Curve]) -> Curve:
    """The curve whose memory without a limit defines the working set: the brokers' default policy
    if it is compared, else one without foresight.
    """
    return min(curves, key=lambda c: (c.policy != DEFAULT, c.policy == OPTIMUM))


# -- the table -------------------------------------------------------------------------------


def rows(settings: Settings, result: Result) -> pa.Table:
    """Rows of `cache_bakeoff`, for each broker and for all together."""
    now_ms = time.time_ns() // 1_000_000
    own = {**settings.switches(JOB), **OF_BROKERS, "release_event": result.release_event}
    common = {
        "compared_ms": now_ms,
        "trace": result.trace.name,
        "switches": sorted(own.items()),
        "params_hash": settings.params_hash(JOB),
    }
    found: list[dict[str, Any]] = []
    for point in result.points:
        whole = {**common, **_of_point(point)}
        found.append({**whole, "cluster": None, "broker": None, **_counted(point.total)})
        found += [
            {**whole, "cluster": cluster, "broker": broker, **_counted(counted)}
            for (cluster, broker), counted in sorted(point.brokers.items())
        ]
    return pa.Table.from_pylist(found, TABLES[TABLE].schema)


def _of_point(point: CurvePoint) -> dict[str, Any]:
    return {
        "policy": point.curve.policy,
        "max_bytes": point.max_bytes,
        "settings": [(name, str(value)) for name, value in point.curve.own],
    }


def _counted(counted: Mapping[str, int]) -> dict[str, Any]:
    return {**{name: counted[name] for name in COUNTED}, "hit_ratio": hit_ratio(counted)}


def keep_rows(warehouse: Location, table: pa.Table) -> None:
    """Append rows to `cache_bakeoff` of the warehouse."""
    append(warehouse, TABLE, table)


# -- printed ---------------------------------------------------------------------------------


def lines(result: Result) -> list[str]:
    """The result as text: hit ratios by size and policy."""
    points = result.points
    sizes = sorted({p.max_bytes for p in points if p.max_bytes is not None})
    by_place = {(p.curve, p.max_bytes): p for p in points}
    curves = list(dict.fromkeys(p.curve for p in points))
    shown = [
        [curve.label, *(f"{100 * by_place[curve, size].hit_ratio:.1f}" for size in sizes)]
        for curve in curves
    ]
    alike = Counter((curve.policy, *cells[1:]) for curve, cells in zip(curves, shown, strict=True))
    return [
        f"{_subtitle(result)}.",
        "Hit ratio (%) by the size of each broker's cache:",
        "",
        *_aligned([["policy", *map(size_text, sizes)], *shown]),
        *_remarks(result, dict.fromkeys(key[0] for key, count in alike.items() if count > 1)),
    ]


def _remarks(result: Result, equal: Iterable[str]) -> list[str]:
    names = ", ".join(equal)
    remarks = [EQUAL.format(names)] if names else []
    for point in result.points:
        if point.curve.policy != UNBOUNDED or point.max_bytes is None:
            continue
        held = max(counted["max_used_bytes"] for counted in point.brokers.values())
        if held > EXCEEDED * point.max_bytes:
            remarks.append(
                f"{point.curve.label} keeps what is wanted beyond its size: with "
                f"{size_text(point.max_bytes)} it held {size_text(held)}."
            )
            break
    if result.trace.refused:
        remarks.append(
            f"Left out, by the event contract: {counted(result.trace.refused, 'record')}"
            " of the files."
        )
    return ["", *remarks] if remarks else []


def _subtitle(result: Result) -> str:
    point = result.points[0]
    reads = point.total["hits"] + point.total["misses"]
    brokers = sum(hit_ratio(counted) is not None for counted in point.brokers.values())
    each = "1 broker" if brokers == 1 else f"{brokers} brokers, each with a cache of its own"
    size = size_text(point.total["hit_bytes"] + point.total["storage_bytes"])
    return f"{counted(reads, 'read')} of {size} on {each}, from {result.trace.name}"


def _aligned(cells: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in cells
    ]


def _print_json(result: Result, table: pa.Table) -> None:
    found = [
        {**row, "settings": dict(row["settings"]), "switches": dict(row["switches"])}
        for row in table.to_pylist()
    ]
    json.dump(
        {
            "trace": result.trace.name,
            "records": dict(result.trace.counts),
            "refused": result.trace.refused,
            "release_event": result.release_event,
            "rows": found,
        },
        sys.stdout,
        ensure_ascii=False,
        indent=1,
    )
    say()
