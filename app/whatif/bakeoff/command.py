"""The command `bakeoff`: replays the archive or a trace under every policy at every size.

Runs in this process, without Spark. The result is printed, appended to `cache_bakeoff` and drawn.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from app.terminal.counts import counted
from app.terminal.outputs import require_folder
from app.terminal.printable import say
from app.terminal.sizes import size_text
from app.warehouse.manifest import load as load_manifest
from app.warehouse.tables import TABLES
from app.warehouse.writable import append
from app.whatif.bakeoff import advice, choice
from app.whatif.bakeoff.curves import BakeOff, Curve, Place, Point, around, hit_ratio, measured
from app.whatif.bakeoff.trace import JOB, Trace, read_trace, release_event

if TYPE_CHECKING:
    from app.config.settings import Settings

TABLE = "cache_bakeoff"
SAMPLE_ABOVE = 2_000_000
"""Records above which a trace is sampled by default."""
SAMPLED = 10
"""Size of a sample as a share of that number."""
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
UNBOUNDED = "expected_reads_stash"
"""The policy whose cache may exceed its size."""
EXCEEDED = 1.1
"""Multiple of its size above which a note is printed; any cache briefly holds one more entry."""
Say = Callable[[str], None]


@dataclass(frozen=True)
class Asked:
    """The comparison as given on the command line."""

    trace: Path | None = None
    policies: str | None = None
    sizes: str | None = None
    vary: Sequence[str] = ()
    sample: float | None = None
    """Share of the entries to simulate; None: decided by `sample_above`."""
    sample_above: int = SAMPLE_ABOVE


@dataclass(frozen=True)
class Result:
    """The result of a bake-off."""

    trace: Trace
    release_event: str
    points: tuple[Point, ...]
    """By curve, each from the smallest size to the largest."""
    size: int
    """The size that the advice is about."""
    advice: str
    rate: float
    """The requested share of the entries; single sizes may have more."""
    error: float | None
    """Largest difference of a sampled hit ratio from the exact one; None without a sample."""
    one_size: bool = False
    """Whether all entries have one size; then no policy that keeps to its size is better than
    `belady`.
    """


def bakeoff(
    settings: Settings,
    asked: Asked,
    svg: Path | None = None,
    keep: bool = True,
    as_json: bool = False,
) -> int:
    """Print the result of each policy at each size; returns 0.

    With `keep` the rows are appended to `cache_bakeoff` of the warehouse; with `svg` a picture is
    drawn.
    """
    require_folder(svg, "--svg")
    if keep:
        load_manifest(settings)
    result = compare(settings, asked, _say)
    table = rows(settings, result)
    if svg is not None:
        draw_curves(result, svg)
    if as_json:
        _print_json(result, table)
    else:
        say("\n".join(lines(result)))
    if keep:
        keep_rows(settings, table)
    return 0


def compare(settings: Settings, asked: Asked, say: Say) -> Result:
    """Replay the trace; `say` reports steps that take long."""
    curves, sizes = choice.curves(asked.policies, asked.vary), choice.sizes(asked.sizes)
    trace = read_trace(settings, asked.trace)
    event = release_event(settings, trace)
    rate = _rate(asked, trace)
    if rate < 1.0:
        say(
            f"{trace.records:,} records: {rate:.2%} of the entries are simulated, more at small "
            "sizes (--sample 1 for all)"
        )
    off = BakeOff(settings, trace, event)
    configured = choice.configured_size(settings)
    if sizes is None:
        sizes = around(off.working_set(_reference(curves), rate))
        sizes = sorted({*sizes, *([configured, 2 * configured] if configured else [])})
    points = off.curves(curves, sizes, rate)
    size = advice.advised_size(points, configured)
    error = None
    if any(p.rate < 1.0 for p in points):
        # the advice is about exact figures; where both are known, the error is, too
        say("its figures are compared with all entries at the sizes that the advice is about")
        checked = [s for s in (size, 2 * size) if s in sizes]
        points, error = measured(points, off.exact(curves, checked))
    return Result(
        trace, event, tuple(points), size, advice.sentence(points, size), rate, error, off.one_size
    )


def _rate(asked: Asked, trace: Trace) -> float:
    if asked.sample is not None:
        return asked.sample
    if trace.records <= asked.sample_above:
        return 1.0
    return asked.sample_above / SAMPLED / trace.records


def _reference(curves: Sequence[Curve]) -> Curve:
    """The curve whose memory without a limit defines the working set: the brokers' default policy
    if it is compared, else one without foresight.
    """
    return min(curves, key=lambda c: (c.policy != advice.SHIPPED, c.policy == advice.OPTIMUM))


# -- the table -------------------------------------------------------------------------------


def rows(settings: Settings, result: Result) -> pa.Table:
    """Rows of `cache_bakeoff`, for each broker and for all together."""
    now_ms = time.time_ns() // 1_000_000
    own = {**settings.switches(JOB), "release_event": result.release_event}
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


def _of_point(point: Point) -> dict[str, Any]:
    return {
        "policy": point.curve.policy,
        "max_bytes": point.max_bytes,
        "settings": [(name, str(value)) for name, value in point.curve.own],
        "sample_rate": point.rate,
        "hit_ratio_error": point.error,
    }


def _counted(counted: Mapping[str, float]) -> dict[str, Any]:
    return {**{name: round(counted[name]) for name in COUNTED}, "hit_ratio": hit_ratio(counted)}


def keep_rows(settings: Settings, table: pa.Table) -> None:
    """Append rows to `cache_bakeoff` of the warehouse."""
    append(settings, TABLE, table)


def draw_curves(result: Result, path: Path) -> None:
    """Write the picture of a result."""
    from app.whatif.bakeoff.picture import draw

    path.write_text(draw(result.points, result.size, _subtitle(result), result.one_size), "utf-8")


# -- printed ---------------------------------------------------------------------------------


def lines(result: Result) -> list[str]:
    """The result as text: hit ratios by size and policy, the advised size, the advice."""
    points = result.points
    sizes = sorted({p.max_bytes for p in points if p.max_bytes is not None})
    by_place = {(p.curve, p.max_bytes): p for p in points}
    curves = list(dict.fromkeys(p.curve for p in points))
    shown = [
        [curve.label, *(f"{100 * by_place[curve, size].hit_ratio:.1f}" for size in sizes)]
        for curve in curves
    ]
    found = [f"{_subtitle(result)}.", "Hit ratio (%) by the size of each broker's cache:", ""]
    found += _aligned([["policy", *map(size_text, sizes)], *shown])
    found += ["", f"At {size_text(result.size)}:", ""]
    found += _aligned(
        [
            [
                "policy",
                "hit ratio",
                "from storage",
                "wanted",
                "held",
                "evicted wanted",
                "passes",
                "entries visited",
            ],
            *([curve.label, *_details(by_place[curve, result.size])] for curve in curves),
        ]
    )
    found += ["", *_remarks(result), result.advice]
    return found


def _details(point: Point) -> list[str]:
    total = point.total
    return [
        f"{100 * point.hit_ratio:.1f} %",
        size_text(total["storage_bytes"]),
        size_text(total["wanted_bytes"]),
        size_text(total["max_used_bytes"]),
        *(f"{total[name]:,.0f}" for name in ("evicted_wanted", "passes", "work")),
    ]


def _remarks(result: Result) -> list[str]:
    found = []
    unbounded = next((p for p in result.points if p.curve.policy == UNBOUNDED), None)
    if unbounded is not None and unbounded.max_bytes is not None:
        held = max(counted["max_used_bytes"] for counted in unbounded.brokers.values())
        if held > EXCEEDED * unbounded.max_bytes:
            found.append(
                f"{unbounded.curve.label} keeps what is wanted beyond its size: with "
                f"{size_text(unbounded.max_bytes)} it held {size_text(held)}."
            )
    if len(_readers(result.points[0])) > 1:
        found.append("Bytes and counts are those of all brokers together.")
    if result.trace.refused:
        found.append(
            f"Left out, by the event contract: {counted(result.trace.refused, 'record')}"
            " of the files."
        )
    if result.error is not None:
        found.append(
            f"Sampled hit ratios were at most {100 * result.error:.2f} points from exact "
            f"ones at {size_text(result.size)}, which are shown."
        )
    return found


def _subtitle(result: Result) -> str:
    point = result.points[0]
    reads = round(point.total["hits"] + point.total["misses"])
    brokers = len(_readers(point))
    each = "1 broker" if brokers == 1 else f"{brokers} brokers, each with a cache of its own"
    size = size_text(point.total["hit_bytes"] + point.total["storage_bytes"])
    return f"{counted(reads, 'read')} of {size} on {each}, from {result.trace.name}"


def _readers(point: Point) -> list[Place]:
    """Brokers whose entries were read."""
    return [place for place, counted in point.brokers.items() if hit_ratio(counted) is not None]


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
            "sample": result.rate,
            "largest_error": result.error,
            "size": result.size,
            "advice": result.advice,
            "rows": found,
        },
        sys.stdout,
        ensure_ascii=False,
        indent=1,
    )
    say()


def _say(text: str) -> None:
    say(f"weir: {text}", file=sys.stderr, flush=True)
