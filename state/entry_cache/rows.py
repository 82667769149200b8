"""The kernel's rows as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.engine.emitted import Emitted, integers
from state.engine.names import Names
from state.engine.table import SWITCHES
from state.entry_cache import flow
from state.entry_cache import layout as L
from state.entry_cache.broker import Broker
from state.entry_cache.layout import Array
from state.entry_cache.outputs import EVICTIONS, READS, STATS

Given = dict[str, pa.Array]


def _of_eviction(b: Broker, rows: Array) -> Given:
    return {"expected_remaining": integers(rows["expected"], rows["counted"] == 0)}


def _of_read(b: Broker, rows: Array) -> Given:
    return {"hit": pa.array(rows["rule"] == flow.HIT, mask=rows["rule"] == flow.UNKNOWN)}


def _of_window(b: Broker, rows: Array) -> Given:
    reads = rows["hits"] + rows["misses"]
    return {
        "window_ms": integers(np.full(len(rows), int(b.key["window_ms"]))),
        "hit_ratio": pa.array(rows["hits"] / np.maximum(reads, 1), mask=reads == 0),
        "non_evictable_bytes": integers(rows["wanted"] + rows["bare"]),
    }


def of(b: Broker, names: Names) -> dict[str, pa.Table]:
    """All rows of a broker since it was read, by table."""
    every = (
        (STATS, b.out.stats[: int(b.key["stats"])], _of_window),
        (EVICTIONS, b.out.evictions[: int(b.key["evictions"])], _of_eviction),
        (READS, b.out.reads[: int(b.key["reads"])], _of_read),
    )
    if not any(len(rows) for _, rows, _ in every):
        return {}
    found = Emitted(names)
    whose = found.texts(np.array([b.key["cluster"], b.key["broker"]]))
    switches = pa.array([cache.switches for cache in b.variants], SWITCHES)
    return {
        output.name: found.table(
            output,
            rows,
            cluster=pa.repeat(whose[0], len(rows)),
            broker=pa.repeat(whose[1], len(rows)),
            switches=switches.take(pa.array(rows["variant"])),
            **given(b, rows),
        )
        for output, rows, given in every
        if len(rows)
    }


def totals(b: Broker, i: int) -> dict[str, int]:
    """What one cache of a broker has counted since the key began, and its largest levels."""
    cache, cells = b.world.variants[i], b.world.cells[i :: len(b.variants)]
    counts = {name: int(cache[name]) + int(cells[name].sum()) for name in L.COUNTED}
    return {
        "hits": counts["hits"],
        "misses": counts["misses"],
        "hit_bytes": counts["hit_bytes"],
        "storage_bytes": counts["miss_bytes"],
        "evicted_wanted": counts["evicted_wanted"],
        "evicted_wanted_bytes": int(cache["evicted_wanted_bytes"]),
        "wanted_bytes": int(cache["most_wanted"]),
        "max_used_bytes": int(cache["most_used"]),
        "passes": int(cache["passes"]),
        "work": int(cache["work"]),
    }
