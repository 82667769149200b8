"""Packed blobs against narrow columns: the same trace, core and commits in one run."""

from __future__ import annotations

from benchmarks import end_to_end, floors, narrow
from benchmarks.result import Result, middle
from benchmarks.stream import Bench

REPEATS = 2


def run(bench: Bench) -> Result:
    """Both ways in turn, twice, and the parse floor between them."""
    trace = bench.trace("zipf", bench.traffic())
    result = Result("transport", trace.events, bench.small)
    speeds: dict[str, list[float]] = {}
    for _ in range(1 if bench.small else REPEATS):
        for name, measure in (
            ("parse floor, 17 columns", lambda: floors.parse(bench, trace)),
            ("packed blobs", lambda: end_to_end.govern_alone(bench, trace)),
            ("narrow columns, names as text", lambda: narrow.speed(bench, trace, False)),
            ("narrow columns, names as hashes", lambda: narrow.speed(bench, trace, True)),
        ):
            speeds.setdefault(name, []).append(measure().median)
    for name, found in speeds.items():
        value, spread = middle(found)
        result.add(name, value, spread=spread)
    for name in list(speeds)[1:]:
        result.ratio(name, "parse floor, 17 columns")
    for name in list(speeds)[2:]:
        result.ratio("packed blobs", name)
    return result
