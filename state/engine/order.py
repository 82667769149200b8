"""The one order in which the records of a key are judged, whatever order they arrived in.

Inside a key: run of the broker, time on the job's clock, seq, topic, partition, ledger, entry,
kind, then every other column as the contract lists them; nulls first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from state.engine.names import Names
from state.engine.records import NULL, Array, Records
from state.events import COLUMNS, KIND_INDEX
from udfs.topics import split_partition

BROKER_STARTED = KIND_INDEX["broker_started"]
FIRST = np.int64(-(2**63))
"""A broker start is before everything of its run."""
_TEXT = {c.name for c in COLUMNS if str(c.type) == "string"} - {"event_type"}
_TEXT |= {"marker_ids", "source_partition"}
_LEADING = (
    "ledger_id",
    "entry_id",
    "event_type",
    "source_feed",
    "broker",
    "ts_mono_ns",
    "ts_wall_ms",
)


def runs(key: Array, records: Records) -> Array:
    """How many broker starts of its own key a record follows, among those given (per row).

    A record follows a start whose wall time its own is not below; `seq` decides where one of the
    two wall times is missing.
    """
    run = np.zeros(len(key), np.int64)
    for at in np.flatnonzero(records["event_type"] == BROKER_STARTED):
        same = key == key[at]
        wall, start = records["ts_wall_ms"], records["ts_wall_ms"][at]
        by_wall = (wall != NULL) & (start != NULL)
        seq = np.where(records["has_seq"] != 0, records["seq"], FIRST)
        follows = np.where(by_wall, wall >= start, seq >= seq[at])
        earlier_start = records["event_type"] == BROKER_STARTED
        # of two starts the one with the smaller wall time, then seq, begins the earlier run
        tie = earlier_start & by_wall & (wall == start)
        follows = np.where(tie, seq >= seq[at], follows)
        run += (same & follows).astype(np.int64)
    return run


def order(
    key: Array,
    run: Array,
    time: Array,
    records: Records,
    at: Array,
    names: Names,
    columns: Sequence[str],
) -> tuple[Array, Array]:
    """Positions of the rows in judging order, and those of rows that share key, run and time with
    the row before them; `at` is where each row is among the records."""
    n = len(time)
    if n < 2:
        return np.arange(n), np.zeros(n, bool)
    single = bool((key == key[0]).all()) and bool((run == run[0]).all())
    if single and bool((time[1:] > time[:-1]).all()):
        return np.arange(n), np.zeros(n, bool)
    # not stable: rows of one time are put in order below, by all of their columns
    rows = np.argsort(time) if single else np.lexsort((time, run, key))
    tied = _same_as_before(key, run, time, rows)
    if not tied.any():
        return rows, tied
    member = tied.copy()
    member[:-1] |= tied[1:]
    group = np.cumsum(~tied)
    inside = np.flatnonzero(member)
    subset = rows[inside]
    keys = [_comparable(name, records, at[subset], names) for name in _tie_columns(columns)]
    levels = [level for columns_ in keys for level in columns_]
    rows[inside] = subset[np.lexsort((*reversed(levels), group[inside]))]
    return rows, tied


def repeated(rows: Array, tied: Array, records: Records, at: Array) -> Array:
    """Rows (by position) that repeat feed, broker and seq of an earlier row of the same key and
    time. `rows` and `tied` are what `order` answers; `at` is where each row is among the records.
    """
    if not tied.any():
        return np.zeros(0, np.int64)
    member = tied.copy()
    member[:-1] |= tied[1:]
    inside = np.flatnonzero(member)
    group = np.cumsum(~tied)[inside]
    subset = rows[inside]
    known = records["has_seq"][at[subset]] != 0
    group, subset = group[known], subset[known]
    identity = np.stack(
        [group, *(records[name][at[subset]] for name in ("seq", "source_feed", "broker"))]
    )
    _, first = np.unique(identity, axis=1, return_index=True)
    return np.delete(subset, first)


def _same_as_before(key: Array, run: Array, time: Array, rows: Array) -> Array:
    tied = np.zeros(len(rows), bool)
    k, r, t = key[rows], run[rows], time[rows]
    tied[1:] = (k[1:] == k[:-1]) & (r[1:] == r[:-1]) & (t[1:] == t[:-1])
    return tied


def _tie_columns(columns: Sequence[str]) -> list[str]:
    done = {"seq", "topic", "cluster", *_LEADING}
    later = [c.name for c in COLUMNS if c.name in columns and c.name not in done]
    return [
        "has_seq",
        "seq",
        "topic",
        *[c for c in _LEADING if c in columns],
        *later,
        "source_partition",
        "source_offset",
    ]


def _comparable(name: str, records: Records, rows: Array, names: Names) -> list[Array]:
    """Sort levels of one column: integers as they are, names by rank, topics by name and
    partition."""
    values = records[name][rows]
    if name not in _TEXT:
        return [values]
    distinct, position = np.unique(values, return_inverse=True)
    strings = [names.get(int(i)) if i >= 0 else "" for i in distinct]
    if name != "topic":
        ranks = _ranks([(i >= 0, s.encode()) for i, s in zip(distinct, strings, strict=True)])
        return [ranks[position]]
    parts = [split_partition(s) for s in strings]
    bases = _ranks([(i >= 0, p[0].encode()) for i, p in zip(distinct, parts, strict=True)])
    partitions = np.array([-1 if p[1] is None else p[1] for p in parts], np.int64)
    return [bases[position], partitions[position]]


def _ranks(values: list[tuple[bool, bytes]]) -> Array:
    position = {value: i for i, value in enumerate(sorted(set(values)))}
    return np.array([position[value] for value in values], np.int64)
