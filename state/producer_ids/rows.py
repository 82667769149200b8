"""The kernel's rows as output tables."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from state.engine.names import Names
from state.engine.records import Records
from state.producer_ids import layout as L
from state.producer_ids import quota
from state.producer_ids.layout import NULL, Array, Out, World

WINDOW_RULE = "window"
_RULES = pa.array(L.RULES)
_VERDICTS = pa.array(quota.VERDICTS)
_SOURCES = pa.array(quota.SOURCES)


def _long(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.int64), mask=null)


def _known(values: Array) -> pa.Array:
    return _long(values, values == NULL)


def _double(values: Array, null: Array | None = None) -> pa.Array:
    return pa.array(np.ascontiguousarray(values, np.float64), mask=null)


def _int(values: Array) -> pa.Array:
    null = values == NULL
    return pa.array(np.where(null, 0, values).astype(np.int32), mask=null)


def _all(values: Array, absent: bool) -> Array:
    return np.full(len(values), absent)


class Rows:
    """Makes tables of what one call has put into `Out`; `records` are those that were judged."""

    def __init__(self, w: World, o: Out, records: Records, names: Names) -> None:
        self._w, self._o, self._p, self._r = w, o, w.settings[0], records
        self._strings = names.strings()

    def tables(self) -> dict[str, pa.Table]:
        """The tables that have rows."""
        makers = {
            "producer_id_decisions": ("decisions", self.decisions),
            "producer_id_stats": ("stats", self.stats),
            "producer_id_owners": ("owners", self.owners),
        }
        return {name: make() for name, (count, make) in makers.items() if self._p[count]}

    def _text(self, ids: Array) -> pa.Array:
        ids = np.ascontiguousarray(ids, np.int64)
        return self._strings.take(pa.array(ids, mask=ids < 0)).cast(pa.string())

    def _of_key(self, field: str, rows: Array) -> pa.Array:
        return self._text(self._w.keys[field][rows["key"]])

    def _of_record(self, rows: Array) -> dict[str, pa.Array]:
        """Common columns of rows that stem from records."""
        r, at = self._r, rows["record"]
        return {
            "cluster": self._text(r["cluster"][at]),
            "broker": self._text(r["broker"][at]),
            "ts_mono_ns": _known(r["ts_mono_ns"][at]),
            "ts_wall_ms": _long(r["ts_wall_ms"][at]),
            "source_feed": self._text(r["source_feed"][at]),
            "row_no": pa.array(rows["row_no"].astype(np.int32)),
            "rule": _RULES.take(pa.array(rows["rule"])),
            "user": self._of_key("user", rows),
            "client_id": self._text(r["client_id"][at]),
            "producer_id": _long(r["producer_id"][at]),
        }

    def decisions(self) -> pa.Table:
        """One row per unseen producer id."""
        rows = self._o.decisions[: self._p["decisions"]]
        at = rows["record"]
        return pa.table(
            {
                **self._of_record(rows),
                "topic": self._text(self._r["topic"][at]),
                "partition": _int(self._r["partition"][at]),
                "verdict": _VERDICTS.take(pa.array(rows["verdict"])),
                "bound": _double(rows["bound"]),
                "bound_source": _SOURCES.take(pa.array(rows["source"])),
                "rate": _double(rows["rate"]),
                "tokens": self._tokens(rows),
                "throttle_ms": _long(rows["throttle_ms"]),
                "live_filters": _int(rows["live"]),
                "filter_created_ms": _known(rows["created_ms"]),
                "recount": pa.array(rows["recount"] != 0, mask=_all(rows, not self._p["exact"])),
            }
        )

    def _tokens(self, rows: Array) -> pa.Array:
        sampled = bool(self._p["math"] == quota.SAMPLED_RATE)
        return _double(rows["tokens"], _all(rows, sampled))

    def owners(self) -> pa.Table:
        """One row per assigned or unseen producer id."""
        return pa.table(self._of_record(self._o.owners[: self._p["owners"]]))

    def stats(self) -> pa.Table:
        """One row per user and window."""
        rows = self._o.stats[: self._p["stats"]]
        exact = bool(self._p["exact"])
        slowed, bound = rows["throttled"], rows["bound"]
        return pa.table(
            {
                "cluster": self._of_key("cluster", rows),
                "broker": self._of_key("broker", rows),
                "ts_mono_ns": _known(rows["mono_ns"]),
                "ts_wall_ms": _long(rows["at_ms"]),
                "source_feed": self._text(rows["feed"]),
                "row_no": pa.array(np.zeros(len(rows), np.int32)),
                "rule": pa.repeat(pa.scalar(WINDOW_RULE), len(rows)),
                "window_start_ms": _long(rows["start_ms"]),
                "window_ms": _long(rows["window_ms"]),
                "user": self._of_key("user", rows),
                "new_ids": _long(rows["new_ids"]),
                "seen_batches": _long(rows["seen"]),
                "rejected": _long(rows["rejected"]),
                "rate": _double(rows["rate"]),
                "tokens": self._tokens(rows),
                "throttle_time_avg_ms": _double(
                    rows["throttle_ms"] / np.maximum(slowed, 1), slowed == 0
                ),
                "utilisation": _double(rows["rate"] / np.where(bound == 0, 1, bound), bound == 0),
                "live_filters": _int(rows["live"]),
                "filter_fill": _double(rows["fill"], _all(rows, exact)),
                "estimated_fpp": _double(rows["fpp"], _all(rows, exact)),
                "state_bytes": _long(rows["bytes"]),
            }
        )
