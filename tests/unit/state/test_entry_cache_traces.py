"""Caches of whole traces side by side, those with foresight included: as the reference has it."""

from __future__ import annotations

from hypothesis import given

from state.entry_cache.belady import compare
from tests.reference.entry_cache import bakeoff
from tests.reference.words import words
from tests.support.effort import drawn
from tests.unit.state.cache_trace import PARAMS, blob, numbered
from tests.unit.state.cache_traces import Trace, traces
from tests.unit.state.contract.jobs import closing

MEASURES = words(
    "hits misses hit_ratio hit_bytes storage_bytes evicted_wanted evicted_wanted_bytes"
    " max_used_bytes passes work"
)


@drawn(20)
@given(traces())
def test_comparison_of_caches_as_the_reference(trace: Trace) -> None:
    """Every cache of a whole trace, those with foresight included."""
    records = numbered([*trace.records, *closing(trace.records)])
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    sizes = (trace.params.get("max_bytes", 1000), 400, None)
    variants = [
        *({"policy": "belady", "max_bytes": size} for size in sizes),
        *trace.params["variants"],
    ]
    params = {**PARAMS, **trace.params, "variants": variants}
    got = compare([blob(records)], params, trace.configured, until)
    expected = bakeoff(records, params, variants, trace.configured, until)
    for mine, wanted in zip(got, expected, strict=True):
        assert {k: mine.get(k) for k in MEASURES} == {k: wanted[k] for k in MEASURES}
        # the reference does not look at the level after a merge
        assert mine["wanted_bytes"] >= wanted["wanted_bytes"]
