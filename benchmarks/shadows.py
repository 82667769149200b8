"""What a shadow costs: the query without one and with one, in turn.

The shadow has the policies of the trace with publish rates halved. Five jobs, of which three take
part, and `rate_limits` alone, which is the dearest; in large batches from JSON lines and in batches
of 5,000 events. Times are those of batches, commits included.
"""

from __future__ import annotations

from typing import Any

from app.engine import govern
from benchmarks.all_jobs import Demo
from benchmarks.result import Result, middle
from benchmarks.stream import END, Bench, finished
from state.jobs import BY_DEFAULT

GROUPS = {"five jobs": BY_DEFAULT, "rate_limits": ("rate_limits",)}


def run(bench: Bench) -> Result:
    """Rounds of all queries; the middle of each counts."""
    events, rounds = (25_000, 1) if bench.small else (2_000_000, 7)
    size, batches = (4_000, 5) if bench.small else (5_000, 30)
    demos = {
        "large batch": Demo.written(bench.folder / "shadows-large", events),
        f"batch of {size:,} events": Demo.in_batches(bench.folder / "shadows-small", size, batches),
    }
    result = Result("shadows", demos["large batch"].events, bench.small)
    found: dict[str, list[float]] = {}
    for number in range(rounds):
        for batch, demo in demos.items():
            for jobs, group in GROUPS.items():
                for name, more in _sides(demo, number).items():
                    key = f"{demo.folder.name}-{jobs.replace(' ', '-')}-{len(more)}-{number}"
                    settings = bench.settings(key, demo.source, policies=demo.policies, **more)
                    speed = finished(govern.start(bench.spark, settings, group, END))
                    found.setdefault(f"{batch}, {jobs}, {name}", []).append(speed.batch_ms)
    for name, times in found.items():
        value, spread = middle(times)
        result.add(name, value, "ms", spread)
    for batch in demos:
        for jobs in GROUPS:
            about = f"{batch}, {jobs}"
            result.ratio(f"{about}, one shadow", f"{about}, no shadow")
    return result


def _sides(demo: Demo, number: int) -> dict[str, dict[str, Any]]:
    """Without and with a shadow; each goes first in every second round."""
    sides: dict[str, dict[str, Any]] = {
        "no shadow": {},
        "one shadow": {
            "shadows": {
                "half": [
                    {
                        **p,
                        "limits": {
                            k: _half(v) if "Rate" in k else v for k, v in p["limits"].items()
                        },
                    }
                    for p in demo.policies
                ]
            }
        },
    }
    return dict(reversed(sides.items())) if number % 2 else sides


def _half(rate: Any) -> Any:
    return rate // 2 if isinstance(rate, int) and rate > 1 else rate
