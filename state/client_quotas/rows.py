"""Windows that have ended, as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.client_quotas import layout as L
from state.client_quotas.layout import Array
from state.client_quotas.outputs import MEASURED_RULE, OTHERS, STATS, USAGE, WINDOW_RULE
from state.client_quotas.shard import Shard, clocks, window_end
from state.engine import structs
from state.engine.emitted import Emitted, integers, numbers

_TEXTS = ("principal", "client_id", "api", "topic")


def close_windows(s: Shard, period_ms: int, usage_rows: int) -> dict[str, pa.Table]:
    """The rows of windows that have ended by the clocks of their brokers; the shard keeps the
    others."""
    found, keys = {}, s.parts["keys"]
    for name, output in (("stats", STATS), ("usage", USAGE)):
        rows = s.parts[name]
        end = window_end(rows["window"], period_ms)
        ended = end <= clocks(keys)[rows["key"]]
        if not ended.any():
            continue
        s.parts[name] = structs.picked(rows, ~ended)
        rows, end = structs.picked(rows, ended), end[ended]
        given = {
            "ts_mono_ns": pa.nulls(len(rows), pa.int64()),
            "ts_wall_ms": integers(end),
            "window_start_ms": integers(rows["window"]),
            "window_ms": integers(np.full(len(rows), period_ms)),
        }
        of = Emitted(s.names, keys)
        if name == "stats":
            found[output.name] = _stats(of, rows, given)
        else:
            found[output.name] = _usage(of, rows, given, usage_rows)
    return found


def _numbered(table: pa.Table, rows: Array, order: list[tuple[str, str]]) -> Array:
    """The order of rows, broker by broker and window by window; and the number of each there."""
    keyed = table.append_column("key", integers(rows["key"]))
    sort = [("key", "ascending"), ("ts_wall_ms", "ascending"), *order]
    by = pc.sort_indices(keyed, sort_keys=sort).to_numpy().astype(np.int64)
    key, end = rows["key"][by], table["ts_wall_ms"].to_numpy()[by]
    begins = np.ones(len(by), bool)
    begins[1:] = (key[1:] != key[:-1]) | (end[1:] != end[:-1])
    place = np.arange(len(by))
    number = place - np.maximum.accumulate(np.where(begins, place, 0))
    return np.stack([by, number])


def _stats(of: Emitted, rows: Array, given: dict[str, pa.Array]) -> pa.Table:
    metrics, silent = rows["basis"] == L.OF_METRICS, rows["observed"] == 0
    seconds = given["window_ms"].to_numpy() / 1000.0
    average = np.where(metrics, rows["rate_sum"] / rows["requests"], rows["charged"] / seconds)
    table = of.table(
        STATS,
        rows,
        rule=pa.array(np.where(metrics, MEASURED_RULE, WINDOW_RULE)),
        requests=integers(rows["requests"], metrics),
        charged=numbers(rows["charged"], metrics),
        rate_avg=numbers(average, metrics & (rows["type"] == L.MUTATION)),
        throttle_ms=integers(rows["throttle_ms"], metrics),
        observed_throttled=integers(rows["observed_throttled"], silent),
        observed_throttle_ms=integers(rows["observed_ms"], silent),
        **given,
    )
    order = [(name, "ascending") for name in ("quota_type", "user", "client", "basis")]
    by, number = _numbered(table, rows, order)
    return table.take(by).append_column("row_no", pa.array(number.astype(np.int32)))


def _usage(of: Emitted, rows: Array, given: dict[str, pa.Array], most: int) -> pa.Table:
    table = of.table(USAGE, rows, handler_ns=integers(rows["handler_ns"]), **given)
    order = [("bytes", "descending"), ("requests", "descending")]
    by, number = _numbered(table, rows, [*order, *((name, "ascending") for name in _TEXTS)])
    table, rows = table.take(by), rows[by]
    rest = number >= most
    if rest.any():
        table = pa.concat_tables([table.filter(pa.array(~rest)), _rest(table, rows, rest)])
        number = np.append(number[~rest], np.full(len(table) - int((~rest).sum()), most))
    handler_ms = numbers(table["handler_ns"].to_numpy() / 1e6)
    return (
        table.drop_columns("handler_ns")
        .append_column("handler_time_ms", handler_ms)
        .append_column("row_no", pa.array(number.astype(np.int32)))
    )


def _rest(table: pa.Table, rows: Array, rest: Array) -> pa.Table:
    """One row for all beyond the largest of each broker and window."""
    places = np.flatnonzero(rest)
    key, window = rows["key"][places], rows["window"][places]
    begins = np.ones(len(places), bool)
    begins[1:] = (key[1:] != key[:-1]) | (window[1:] != window[:-1])
    first = np.flatnonzero(begins)
    found = table.take(places[first])
    new = {
        "client_id": pa.repeat(pa.scalar(OTHERS), len(first)),
        **{name: pa.nulls(len(first), pa.string()) for name in ("principal", "api", "topic")},
        **{
            name: integers(np.add.reduceat(rows[name][places], first))
            for name in ("requests", "bytes", "handler_ns", "throttle_ms")
        },
    }
    return pa.table({name: new.get(name, found[name]) for name in found.column_names})
