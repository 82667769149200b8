"""The order of records with one key (event contract, section 2), efficient for many equal times.

Records of one key and time usually differ by `seq`. Only those that do not are compared by other
columns, in the order that a job names; nulls first. A policy without monotonic time precedes
everything of its wall time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from state.engine.blobs import TEXTS
from state.engine.names import Names
from state.engine.records import NULL, Array, Records, concat, length, take
from state.events import KIND_INDEX

POLICY = KIND_INDEX["policy"]


@dataclass(frozen=True)
class Sequence:
    """How records of one job are ordered.

    `columns` are compared, in this order, if key, time and seq are equal; names as UTF-8 bytes.
    """

    columns: tuple[str, ...]

    def ordered(
        self, key: Array, time: Array, records: Records, names: Names
    ) -> tuple[Array, Array]:
        """Positions of the rows in judging order, by key; and the rows (by position) that repeat
        feed, broker and seq of an earlier row of their key and time."""
        n = len(time)
        rows, same = np.arange(n), np.zeros(n, bool)
        none = np.zeros(0, np.int64)
        if n < 2 or not _line_up(
            key,
            time,
            records["event_type"],
            records["ts_mono_ns"],
            records["has_seq"],
            records["seq"],
            rows,
            same,
        ):
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
        """Number of shared records, which are in order, that precede each record."""
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
        if name not in TEXTS:
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
    """Of ordered rows in groups of one seq, those whose feed and broker occurred before."""
    known = records["has_seq"][rows] != 0
    rows, group = rows[known], group[known]
    if not len(rows):
        return rows
    feed, broker = records["source_feed"][rows], records["broker"][rows]
    by = np.lexsort((broker, feed, group))
    again = np.zeros(len(rows), bool)
    again[1:] = (
        (group[by][1:] == group[by][:-1])
        & (feed[by][1:] == feed[by][:-1])
        & (broker[by][1:] == broker[by][:-1])
    )
    return rows[by[again]]


@numba.njit(cache=True, nogil=True)
def _precedes(
    i: int, j: int, time: Array, kind: Array, mono_ns: Array, has_seq: Array, seq: Array
) -> int:
    """-1, 0 or 1: the order of two records of a key, as far as `seq` decides it."""
    if time[i] != time[j]:
        return -1 if time[i] < time[j] else 1
    fixed_i = kind[i] != POLICY or mono_ns[i] != NULL
    fixed_j = kind[j] != POLICY or mono_ns[j] != NULL
    if fixed_i != fixed_j:
        return 1 if fixed_i else -1
    if has_seq[i] != has_seq[j]:
        return -1 if has_seq[i] < has_seq[j] else 1
    if has_seq[i] != 0 and seq[i] != seq[j]:
        return -1 if seq[i] < seq[j] else 1
    return 0


@numba.njit(cache=True, nogil=True)
def _line_up(
    key: Array,
    time: Array,
    kind: Array,
    mono_ns: Array,
    has_seq: Array,
    seq: Array,
    rows: Array,
    same: Array,
) -> bool:
    """Sort rows by key and `_precedes`, stably, and mark each that equals the one before it;
    returns whether there are any.
    """
    n, most = len(key), key[0]
    for i in range(n):
        most = max(most, key[i])
    start = np.zeros(most + 2, np.int64)
    for i in range(n):
        start[key[i] + 1] += 1
    for k in range(most + 1):
        start[k + 1] += start[k]
    at = start.copy()
    for i in range(n):
        rows[at[key[i]]] = i
        at[key[i]] += 1
    spare = np.empty(n, np.int64)
    equal = False
    for k in range(most + 1):
        begin, end = start[k], start[k + 1]
        width = end - begin
        for i in range(begin + 1, end):
            if _precedes(rows[i - 1], rows[i], time, kind, mono_ns, has_seq, seq) > 0:
                width = 1
                break
        while width < end - begin:
            for low in range(begin, end, 2 * width):
                middle, high = min(low + width, end), min(low + 2 * width, end)
                a, b = low, middle
                for to in range(low, high):
                    if a < middle and (
                        b >= high
                        or _precedes(rows[a], rows[b], time, kind, mono_ns, has_seq, seq) <= 0
                    ):
                        spare[to] = rows[a]
                        a += 1
                    else:
                        spare[to] = rows[b]
                        b += 1
            for i in range(begin, end):
                rows[i] = spare[i]
            width *= 2
        for i in range(begin + 1, end):
            if _precedes(rows[i - 1], rows[i], time, kind, mono_ns, has_seq, seq) == 0:
                same[i] = True
                equal = True
    return equal
