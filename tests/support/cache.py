"""What tests share of cache."""

from __future__ import annotations

from functools import cache
from typing import Any

from benchmarks.generator.trace import ArrivalSlice, Trace
from tests.support import planned as every
from tests.unit.bench.generator.model import applied_records, normal_name, parsed_lines

Record = dict[str, Any]
EVENTS, MANY = 12_000, 20_000
SCENARIOS = (
    "cache-catch-up",
    "cache-key-shared",
    "cache-rolling-restart",
)


def planned(scenario: str, events: int = EVENTS, seed: int = 7) -> Trace:
    """A trace of moderate size."""
    return every.planned(scenario, seed, events)


def slices(scenario: str, events: int = EVENTS, seed: int = 7) -> tuple[ArrivalSlice, ...]:
    """Its slices."""
    return every.slices(scenario, seed, events)


@cache
def records(scenario: str, events: int = EVENTS, seed: int = 7) -> list[Record]:
    """What a cache sees of its own part and of restarts, in order of time, each once."""
    trace = planned(scenario, events, seed)
    assert trace.cache is not None
    names = set(trace.cache.readers.topics.names)
    found = []
    for r in applied_records(parsed_lines(slices(scenario, events, seed))):
        if r["event_type"] == "broker_started":
            found.append(r)
        elif "topic" in r and "ts_mono_ns" in r:
            name = normal_name(r["topic"], r.get("partition"))
            if name in names:
                found.append({**r, "topic": name})
    return found
