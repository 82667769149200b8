"""The order of records with one key (event contract, section 2), made for many equal times.

Records of one key and time differ by `seq` as a rule. Only those that do not are compared by other
columns, in the order that a job names; nulls first. A policy without monotonic time comes before
everything of its wall time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from state.engine.names import Names
from state.engine.records import NULL, Array, Records, concat, length, take
from state.events import KIND_INDEX

POLICY = KIND_INDEX["policy"]


@dataclass(frozen=True)
class Sequence:
    """How records of one job are ordered.

    `columns`: what is compared where key, time and seq are equal, in this order. `texts`: columns
    that hold numbers of names, which are compared as UTF-8 bytes.
    """

    columns: tuple[str, ...]
    texts: frozenset[str]

    def ordered(
        self, key: Array, time: Array, records: Records, names: Names
    ) -> tuple[Array, Array]:
        """Positions of the rows in judging order, by key; and the rows (by position) that repeat
        feed, broker and seq of an earlier row of their key and time."""
        n = len(time)
        none = np.zeros(0, np.int64)
        if n < 2:
            return np.arange(n), none
        if not (key != key[0]).any() and bool((time[1:] > time[:-1]).all()):
            return np.arange(n), none
        fixed = (records["event_type"] != POLICY) | (records["ts_mono_ns"] != NULL)
        has_seq = records["has_seq"]
        seq = np.where(has_seq != 0, records["seq"], 0)
        varying = [
            level for level in (seq, has_seq, fixed, time, key) if bool((level != level[0]).any())
        ]
        rows = np.lexsort(varying) if varying else np.arange(n)
        same = np.zeros(n, bool)
        same[1:] = True
        for level in varying:
            picked = level[rows]
            same[1:] &= picked[1:] == picked[:-1]
        if not same.any():
            return rows, none
        member = same.copy()
        member[:-1] |= same[1:]
        inside = np.flatnonzero(member)
        group = np.cumsum(~same)[inside]
        subset = rows[inside]
        more = [self._comparable(name, records[name][subset], names) for name in self.columns]
        more = [level for level in more if bool((level != level[0]).any())]
        subset = subset[np.lexsort((*reversed(more), group))]
        rows[inside] = subset
        return rows, _repeated(subset, group, records)

    def ranks(self, records: Records, shared: Records, names: Names) -> Array:
        """How many of the shared records, which are in order, come before each record."""
        at, times = records["ts_wall_ms"], shared["ts_wall_ms"]
        found = np.searchsorted(times, at, "left")
        if not len(times):
            return found
        tied = np.flatnonzero(times[np.minimum(found, len(times) - 1)] == at)
        if not len(tied):
            return found
        near = np.flatnonzero(np.isin(times, at[tied]))
        both = concat([take(records, tied), take(shared, near)])
        rows, _ = self.ordered(np.zeros(length(both), np.int64), both["ts_wall_ms"], both, names)
        is_shared = rows >= len(tied)
        before: Array = np.cumsum(is_shared) - is_shared
        time = both["ts_wall_ms"][rows]
        begins = np.ones(len(rows), bool)
        begins[1:] = time[1:] != time[:-1]
        before -= np.maximum.accumulate(np.where(begins, before, 0))
        found[tied[rows[~is_shared]]] += before[~is_shared]
        return found

    def _comparable(self, name: str, values: Array, names: Names) -> Array:
        """One column as integers in its order."""
        if name not in self.texts:
            return values
        marks = np.zeros(len(names) + 1, bool)
        marks[values] = True
        distinct = np.flatnonzero(marks[:-1])
        if len(distinct) < 2:
            return values
        texts = [t.encode() for t in names.lookup(distinct).to_pylist()]
        rank = np.full(len(marks), -1, np.int64)
        rank[distinct[sorted(range(len(texts)), key=texts.__getitem__)]] = np.arange(len(texts))
        return rank[values]


def _repeated(rows: Array, group: Array, records: Records) -> Array:
    """Of ordered rows in groups of one seq, those whose feed and broker came before."""
    known = records["has_seq"][rows] != 0
    rows, group = rows[known], group[known]
    if not len(rows):
        return rows
    feed, broker = records["source_feed"][rows], records["broker"][rows]
    by = np.lexsort((broker, feed, group))
    again = np.zeros(len(rows), bool)
    again[1:] = (
        (group[by][1:] == group[by][:-1]) & (feed[by][1:] == feed[by][:-1])
        & (broker[by][1:] == broker[by][:-1])
    )
    return rows[by[again]]
