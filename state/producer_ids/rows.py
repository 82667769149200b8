"""The kernel's rows as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.engine.emitted import Emitted, numbers
from state.engine.names import Names
from state.engine.records import Records
from state.producer_ids import quota
from state.producer_ids.layout import Array, Out, World
from state.producer_ids.outputs import DECISIONS, OWNERS, STATS


def tables(w: World, o: Out, records: Records, names: Names) -> dict[str, pa.Table]:
    """The tables that have rows after a call; `records` are the judged ones."""
    p, of = w.settings[0], Emitted(names, w.keys, records)
    found = {}
    if p["decisions"]:
        rows = o.decisions[: p["decisions"]]
        recount = pa.array(rows["recount"] != 0, mask=np.full(len(rows), not p["exact"]))
        found[DECISIONS.name] = of.table(DECISIONS, rows, recount=recount, tokens=_tokens(w, rows))
    if p["stats"]:
        found[STATS.name] = _stats(w, o.stats[: p["stats"]], of)
    if p["owners"]:
        found[OWNERS.name] = of.table(OWNERS, o.owners[: p["owners"]])
    return found


def _tokens(w: World, rows: Array) -> pa.Array:
    sampled = w.settings[0]["math"] == quota.SAMPLED_RATE
    return numbers(rows["tokens"], np.full(len(rows), sampled))


def _stats(w: World, rows: Array, of: Emitted) -> pa.Table:
    """One row per user and window."""
    exact, slowed = np.full(len(rows), bool(w.settings[0]["exact"])), rows["throttled"]
    return of.table(
        STATS,
        rows,
        tokens=_tokens(w, rows),
        throttle_time_avg_ms=numbers(rows["throttle_ms"] / np.maximum(slowed, 1), slowed == 0),
        filter_fill=numbers(rows["fill"], exact),
        estimated_fpp=numbers(rows["fpp"], exact),
    )
