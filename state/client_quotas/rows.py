"""The kernel's rows, and windows that have ended, as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.client_quotas import layout as L
from state.client_quotas.layout import NULL, Array, Out, World
from state.client_quotas.shard import Shard, clocks, window_end
from state.engine import structs
from state.engine.names import Names
from state.engine.records import Records
from state.events import QUOTA_TYPES

OTHERS = "<others>"
"""Client id of the row of all beyond the largest."""
_TYPES, _LEVELS = pa.array(QUOTA_TYPES), pa.array(L.LEVELS)
_RULES, _VERDICTS, _BASES = pa.array(L.RULES), pa.array(L.VERDICTS), pa.array(L.BASES)


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


def _known(values: Array) -> pa.Array:
    return _long(values, values == NULL)


def _double(values: Array, null: Array | None = None) -> pa.Array:
    values = np.ascontiguousarray(values, np.float64)
    return pa.array(values, mask=np.isnan(values) if null is None else null | np.isnan(values))


def _one_of(words: pa.Array, codes: Array) -> pa.Array:
    return words.take(pa.array(np.ascontiguousarray(codes), mask=codes < 0))


class Rows:
    """Makes tables of what one call has put into `Out`; `records` are those that were judged."""

    def __init__(self, w: World, o: Out, records: Records, names: Names) -> None:
        self._w, self._o, self._p, self._r = w, o, w.settings[0], records
        self._names = names

    def tables(self) -> dict[str, pa.Table]:
        """The tables that have rows."""
        found = {
            "client_quota_decisions": self._o.decisions[: self._p["decisions"]],
            "client_quota_verdicts": self._o.verdicts[: self._p["verdicts"]],
        }
        return {name: self._table(rows) for name, rows in found.items() if len(rows)}

    def _table(self, rows: Array) -> pa.Table:
        r, at, text = self._r, rows["record"], self._names.lookup
        return pa.table(
            {
                "cluster": text(r["cluster"][at]),
                "broker": text(r["broker"][at]),
                "ts_mono_ns": _known(r["ts_mono_ns"][at]),
                "ts_wall_ms": _long(r["ts_wall_ms"][at]),
                "source_feed": text(r["source_feed"][at]),
                "row_no": pa.array(rows["row_no"].astype(np.int32)),
                "rule": _one_of(_RULES, rows["rule"]),
                "api": text(r["api"][at]),
                "principal": text(r["principal"][at]),
                "client_id": text(r["client_id"][at]),
                "quota_type": _one_of(_TYPES, rows["type"]),
                "user": text(np.ascontiguousarray(rows["user"])),
                "client": text(np.ascontiguousarray(rows["client"])),
                "bound_level": _one_of(_LEVELS, rows["level"]),
                "bound": _double(rows["bound"]),
                "rate": _double(rows["rate"]),
                "window_ms": _known(rows["span_ms"]),
                "tokens": _double(rows["tokens"]),
                "charged": _double(rows["charged"]),
                "throttle_ms": _long(rows["throttle_ms"]),
                "observed_throttle_ms": _known(r["throttle_ms"][at]),
                "verdict": _one_of(_VERDICTS, rows["verdict"]),
                "top_topic": text(np.ascontiguousarray(rows["top_topic"])),
            }
        )


# -- windows ---------------------------------------------------------------------------------


def close_windows(s: Shard, period_ms: int, usage_rows: int) -> dict[str, pa.Table]:
    """The rows of windows that have ended by the clocks of their brokers; the shard keeps the
    others."""
    found = {}
    for name in ("stats", "usage"):
        rows, keys = s.parts[name], s.parts["keys"]
        if not len(rows):
            continue
        end = window_end(rows["window"], period_ms)
        ended = end <= clocks(keys)[rows["key"]]
        if not ended.any():
            continue
        s.parts[name] = structs.picked(rows, ~ended)
        rows, end = structs.picked(rows, ended), end[ended]
        common = _common(rows, end, keys[rows["key"]], period_ms, s.names)
        if name == "stats":
            found["client_quota_stats"] = _stats(rows, end, common, s.names)
        else:
            found["client_usage"] = _usage(rows, end, common, s.names, usage_rows)
    return found


def _common(
    rows: Array, end: Array, key: Array, period_ms: int, names: Names
) -> dict[str, pa.Array]:
    return {
        "cluster": names.lookup(np.ascontiguousarray(key["cluster"])),
        "broker": names.lookup(np.ascontiguousarray(key["broker"])),
        "ts_mono_ns": pa.nulls(len(rows), pa.int64()),
        "ts_wall_ms": _long(end),
        "source_feed": names.lookup(np.ascontiguousarray(rows["feed"])),
        "window_start_ms": _long(rows["window"]),
        "window_ms": _long(np.full(len(rows), period_ms)),
    }


def _numbered(table: pa.Table, rows: Array, end: Array, order: list[tuple[str, str]]) -> Array:
    """The order of rows, broker by broker and window by window; and the number of each there."""
    keyed = table.append_column("key", _long(rows["key"])).append_column("end", _long(end))
    sort = [("key", "ascending"), ("end", "ascending"), *order]
    by = pc.sort_indices(keyed, sort_keys=sort).to_numpy().astype(np.int64)
    key, end = rows["key"][by], end[by]
    begins = np.ones(len(by), bool)
    begins[1:] = (key[1:] != key[:-1]) | (end[1:] != end[:-1])
    place = np.arange(len(by))
    number = place - np.maximum.accumulate(np.where(begins, place, 0))
    return np.stack([by, number])


def _stats(rows: Array, end: Array, common: dict[str, pa.Array], names: Names) -> pa.Table:
    metrics = rows["basis"] == L.OF_METRICS
    bound, most = rows["bound"], rows["rate_max"]
    seconds = common["window_ms"].to_numpy() / 1000.0
    average = np.where(metrics, rows["rate_sum"] / rows["requests"], rows["charged"] / seconds)
    tokens = metrics & (rows["type"] == L.MUTATION)
    unbounded = ~(bound > 0)
    table = pa.table(
        {
            **common,
            "rule": pa.array(np.where(metrics, L.MEASURED_RULE, L.WINDOW_RULE)),
            "quota_type": _one_of(_TYPES, rows["type"]),
            "user": names.lookup(np.ascontiguousarray(rows["user"])),
            "client": names.lookup(np.ascontiguousarray(rows["client"])),
            "requests": _long(rows["requests"], metrics),
            "charged": _double(rows["charged"], metrics),
            "rate_max": _double(most),
            "rate_avg": _double(average, tokens),
            "bound": _double(bound),
            "bound_level": _one_of(_LEVELS, rows["level"]),
            "utilisation": _double(most / np.where(unbounded, 1.0, bound), unbounded),
            "throttled": _long(rows["throttled"]),
            "throttle_ms": _long(rows["throttle_ms"], metrics),
            "observed_throttled": _long(rows["observed_throttled"], rows["observed"] == 0),
            "observed_throttle_ms": _long(rows["observed_ms"], rows["observed"] == 0),
            "basis": _one_of(_BASES, rows["basis"]),
        }
    )
    order = [(name, "ascending") for name in ("quota_type", "user", "client", "basis")]
    by, number = _numbered(table, rows, end, order)
    return table.take(by).append_column("row_no", pa.array(number.astype(np.int32)))


def _usage(
    rows: Array, end: Array, common: dict[str, pa.Array], names: Names, most: int
) -> pa.Table:
    texts = {
        column: names.lookup(np.ascontiguousarray(rows[name]))
        for column, name in (
            ("principal", "principal"),
            ("client_id", "client"),
            ("api", "api"),
            ("topic", "topic"),
        )
    }
    sums = ("requests", "bytes", "handler_ns", "throttle_ms")
    table = pa.table({**common, **texts, **{name: _long(rows[name]) for name in sums}})
    order = [("bytes", "descending"), ("requests", "descending")]
    by, number = _numbered(table, rows, end, [*order, *((name, "ascending") for name in texts)])
    table, rows = table.take(by), rows[by]
    rest = number >= most
    if rest.any():
        table = pa.concat_tables([table.filter(pa.array(~rest)), _rest(table, rows, rest, sums)])
        number = np.append(number[~rest], np.full(len(table) - int((~rest).sum()), most))
    handler_ms = _double(table["handler_ns"].to_numpy() / 1e6)
    return (
        table.drop_columns("handler_ns")
        .append_column("handler_time_ms", handler_ms)
        .append_column("rule", pa.repeat(pa.scalar(L.WINDOW_RULE), len(table)))
        .append_column("row_no", pa.array(number.astype(np.int32)))
    )


def _rest(table: pa.Table, rows: Array, rest: Array, sums: tuple[str, ...]) -> pa.Table:
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
        **{name: _long(np.add.reduceat(rows[name][places], first)) for name in sums},
    }
    return pa.table({name: new.get(name, found[name]) for name in found.column_names})
