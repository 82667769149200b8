"""The kernel's rows as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine.names import Names
from state.entry_cache import flow
from state.entry_cache import layout as L
from state.entry_cache.broker import Broker
from state.entry_cache.layout import NULL, Array

WINDOW_RULE = "window"
_POLICIES = pa.array(L.POLICIES)
_CAUSES = pa.array(L.CAUSES)
_RULES = pa.array(L.RULES)
_READERS = pa.array(L.READERS)
_HIT_OR_MISS = pa.array(["miss", "hit", "unknown"])
"""By `flow.MISS`, `HIT` and `UNKNOWN`."""
UNKNOWN = "unknown_reads"


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


def _known(values: Array) -> pa.Array:
    return _long(values, values == NULL)


def _pick(choices: pa.Array, codes: Array) -> pa.Array:
    return choices.take(_long(codes))


def _text(names: pa.LargeStringArray, ids: Array) -> pa.Array:
    return names.take(_long(ids, ids < 0)).cast(pa.string())


def _switches(b: Broker) -> pa.Array:
    """Parameters by cache."""
    return pa.array([cache.switches for cache in b.variants], pa.map_(pa.string(), pa.string()))


def _common(b: Broker, names: pa.LargeStringArray, rows: Array) -> dict[str, pa.Array]:
    n = len(rows)
    return {
        "cluster": pa.repeat(names[int(b.key["cluster"])], n).cast(pa.string()),
        "broker": pa.repeat(names[int(b.key["broker"])], n).cast(pa.string()),
        "ts_mono_ns": _long(rows["ts_mono_ns"]),
        "ts_wall_ms": _known(rows["ts_wall_ms"]),
        "source_feed": _text(names, rows["feed"]),
        "row_no": pa.array(rows["row_no"].astype(np.int32)),
        "switches": _switches(b).take(_long(rows["variant"])),
        "policy": _pick(_POLICIES, rows["policy"]),
        "max_bytes": _known(rows["max_bytes"]),
        "topic": _text(names, rows["topic"]),
    }


def cache_evictions(b: Broker, names: pa.LargeStringArray) -> pa.Table:
    """Entries that have left in the last call."""
    rows = b.out.evictions[: int(b.key["evictions"])]
    return pa.table(
        {
            **_common(b, names, rows),
            "rule": _pick(_RULES, rows["rule"]),
            "ledger_id": _long(rows["ledger"]),
            "entry_id": _long(rows["entry"]),
            "entry_bytes": _long(rows["bytes"]),
            "cause": _pick(_CAUSES, rows["cause"]),
            "expected_remaining": _long(rows["expected"], rows["counted"] == 0),
            "requeue_count": _long(rows["requeue_count"]),
            "accessed": pa.array(rows["accessed"] != 0),
            "age_ns": _long(rows["age_ns"]),
            "used_bytes_before": _long(rows["used_before"]),
        }
    )


def cache_reads(b: Broker, names: pa.LargeStringArray) -> pa.Table:
    """Reads of the last call."""
    rows = b.out.reads[: int(b.key["reads"])]
    position = pc.binary_join_element_wise(
        _long(rows["ledger"]).cast(pa.string()), _long(rows["entry"]).cast(pa.string()), ":"
    )
    return pa.table(
        {
            **_common(b, names, rows),
            "rule": _pick(_HIT_OR_MISS, rows["hit"]),
            "subscription": _text(names, rows["subscription"]),
            "position": position,
            "hit": pa.array(rows["hit"] == flow.HIT, mask=rows["hit"] == flow.UNKNOWN),
            "expected_after": _known(rows["expected"]),
            "reader_kind": _pick(_READERS, rows["reader"]),
        }
    )


def cache_stats(b: Broker, names: pa.LargeStringArray) -> pa.Table:
    """Windows that have ended in the last call."""
    rows = b.out.stats[: int(b.key["stats"])]
    reads = rows["hits"] + rows["misses"]
    ratio = rows["hits"] / np.maximum(reads, 1)
    return pa.table(
        {
            **_common(b, names, rows),
            "rule": pa.repeat(pa.scalar(WINDOW_RULE), len(rows)),
            "window_start_ms": _long(rows["window_start_ms"]),
            "window_ms": _long(np.full(len(rows), int(b.key["window_ms"]))),
            **{name: _long(rows[name]) for name in L.COUNTED if name != UNKNOWN},
            UNKNOWN: _long(rows[UNKNOWN], rows[UNKNOWN] == 0),
            "hit_ratio": pa.array(ratio, mask=reads == 0),
            "passes_size": _known(rows["passes_size"]),
            "entries_visited": _known(rows["entries_visited"]),
            "entries": _long(rows["entries"]),
            "used_bytes": _long(rows["used"]),
            "wanted_bytes": _long(rows["wanted"]),
            "non_evictable_bytes": _long(rows["wanted"] + rows["bare"]),
            "max_used_bytes": _known(rows["max_used"]),
        }
    )


def of(b: Broker, names: Names) -> dict[str, pa.Table]:
    """All rows of a broker since it was read, by table."""
    if not (b.key["stats"] or b.key["evictions"] or b.key["reads"]):
        return {}
    strings = names.strings()
    tables = {
        "cache_stats": cache_stats(b, strings) if b.key["stats"] else None,
        "cache_evictions": cache_evictions(b, strings) if b.key["evictions"] else None,
        "cache_reads": cache_reads(b, strings) if b.key["reads"] else None,
    }
    return {name: table for name, table in tables.items() if table is not None}


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
