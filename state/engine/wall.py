"""Order and lateness for jobs on wall time (event contract, section 2).

All keys of a shard at once: each has a clock. Records before the clock are judged, the others wait.
A new record before the clock at the beginning of its batch is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numba
import numpy as np

from state.engine.kernel import NULL
from state.engine.names import Names
from state.engine.reach import Reach
from state.engine.records import STILL, Array, Records, length, take
from state.engine.refused import FAR_MS, Refused
from state.engine.sequence import Sequence as Order
from state.engine.structs import grown, words
from state.engine.tables import Count, Ms, StateRow
from state.events import DUPLICATE, TOO_LATE

_MIX = np.uint64(0x9E3779B97F4A7C15)


class Clocked(StateRow):
    """A row with the clock of a key; a job declares what identifies the key, and what else it keeps."""

    has_clock: Count
    clock_ms: Ms = NULL
    latest_ms: Ms = NULL
    """NULL before the first record that moves the clock."""
    plan_ms: Ms = NULL
    """The plan of the batch with the last record; NULL before the first one."""


class Lateness(NamedTuple):
    """What decides that a record of a batch is late."""

    reach: Reach
    """How far silent keys are moved."""
    lateness_ms: int
    """How far a clock is behind the latest record of its key."""
    idle_advance_ms: int
    """How far the clock of a silent key is behind its time."""


def admit(
    keys: Array,
    key: Array,
    records: Records,
    first_new: int,
    lateness: Lateness,
    order: Order,
    names: Names,
    refused: Refused,
) -> tuple[Array, Array]:
    """Refuse late and repeated records, sort the rest and move the clocks.

    `key` is the position of each record's key in `keys`, whose clocks are set to their positions at
    the end of the batch; records before `first_new` have waited. Returns the positions of the
    records to judge, in order, and of those that keep waiting.
    """
    time = records["ts_wall_ms"]
    still = records["home"] & STILL != 0
    moved = lateness.reach.moved(keys, "latest_ms", lateness.idle_advance_ms)
    late = _late(keys, key, time, first_new, moved)
    kept = None
    if len(late):
        _refuse_late(keys, key, records, late, moved[key[late]], lateness, refused)
        kept = np.delete(np.arange(len(time)), late)
        records, key, time, still = take(records, kept), key[kept], time[kept], still[kept]
    rows, twice = order.ordered(key, time, records, names)
    if len(twice):
        refused.add(records, twice, DUPLICATE, [""] * len(twice))
        rows = rows[~np.isin(rows, twice)]
    plan = records["ingest_ms"]
    now, later = _parted(keys, key, time, plan, first_new, still, rows, lateness.lateness_ms)
    return (now, later) if kept is None else (kept[now], kept[later])


@numba.njit(cache=True, nogil=True)
def _late(keys: Array, key: Array, time: Array, first_new: int, moved: Array) -> Array:
    """Move the clocks of silent keys, and find the new records before them."""
    for i in range(len(keys)):
        k = keys[i]
        if moved[i] > 0:
            if k["has_clock"] == 0 or k["clock_ms"] < moved[i]:
                k["clock_ms"] = moved[i]
            k["has_clock"] = 1
    late = np.empty(len(time), np.int64)
    count = 0
    for i in range(first_new, len(time)):
        k = keys[key[i]]
        if k["has_clock"] != 0 and time[i] < k["clock_ms"]:
            late[count] = i
            count += 1
    return late[:count]


@numba.njit(cache=True, nogil=True)
def _parted(
    keys: Array,
    key: Array,
    time: Array,
    plan: Array,
    first_new: int,
    still: Array,
    rows: Array,
    lateness_ms: int,
) -> tuple[Array, Array]:
    """Move the clocks by records, except those that are `still`; returns the rows before them, and
    the others."""
    for i in range(len(time)):
        k = keys[key[i]]
        if time[i] > k["latest_ms"] and not still[i]:
            k["latest_ms"] = time[i]
        if i >= first_new and plan[i] > k["plan_ms"] and (k["plan_ms"] == NULL or not still[i]):
            k["plan_ms"] = plan[i]
    if len(time):
        for i in range(len(keys)):
            k = keys[i]
            own = NULL
            if k["latest_ms"] != NULL:
                own = k["latest_ms"] - lateness_ms
            if k["has_clock"] == 0 or k["clock_ms"] < own:
                k["clock_ms"] = own
            if k["latest_ms"] != NULL:
                k["has_clock"] = 1
    now, later = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
    count = 0
    for i in range(len(rows)):
        row = rows[i]
        if time[row] < keys[key[row]]["clock_ms"]:
            now[count] = row
            count += 1
        else:
            later[i - count] = row
    return now[:count], later[: len(rows) - count]


def _refuse_late(
    keys: Array,
    key: Array,
    records: Records,
    late: Array,
    moved: Array,
    lateness: Lateness,
    refused: Refused,
) -> None:
    _, lateness_ms, idle_advance_ms = lateness
    time, latest = records["ts_wall_ms"][late], keys["latest_ms"][key[late]]
    own = np.where(latest != NULL, latest, NULL + lateness_ms) - lateness_ms
    by_stream = time >= own
    missing = np.where(by_stream, moved + idle_advance_ms - time, own - time)
    if by_stream.any():
        needed = missing[by_stream]
        near = needed[needed <= FAR_MS]
        refused.needs(int(near.max() if len(near) else needed.min()))
    refused.add(
        records,
        late,
        TOO_LATE,
        [
            f"idle_advance_ms of {ms} would have kept it"
            if others
            else f"{ms} ms before the clock of its key"
            for ms, others in zip(missing.tolist(), by_stream.tolist(), strict=True)
        ],
    )


def first_waiting(keys: int, key: Array, records: Records) -> tuple[Array, Array]:
    """Monotonic time (ns) and broker of the first record of each key in sorted records; NULL and -1
    without one.
    """
    mono, broker = np.full(keys, NULL), np.full(keys, -1, np.int64)
    if length(records):
        mono[key[::-1]] = records["ts_mono_ns"][::-1]
        broker[key[::-1]] = records["broker"][::-1]
    return mono, broker


def interned(
    row: type[StateRow], known: Array, values: Sequence[Array], create: Array | None = None
) -> tuple[Array, Array]:
    """Rows that two or three integers identify, with new ones appended (only where `create` is
    true, if given); and the place of each identity, -1 without one.
    """
    n, count = len(values[0]), len(known)
    found = np.empty(n, np.int64)
    if not n:
        return known, found
    every = np.zeros((count + n, 3), np.int64)
    for i, field in enumerate(row.keys):
        every[:count, i] = known[field]
    zero = np.zeros(n, np.int64)
    a, b, c = (*values, zero)[:3]
    made = intern_tuples(
        every, count, a, b, c, np.ones(n, bool) if create is None else create, found
    )
    if made == count:
        return known, found
    more = grown(known, made)
    words(more)[count:] = words(row.blank)
    for i, field in enumerate(row.keys):
        more[field][count:] = every[count:made, i]
    return more, found


@numba.njit(cache=True, nogil=True)
def intern_tuples(
    known: Array, count: int, a: Array, b: Array, c: Array, create: Array, found: Array
) -> int:
    """Position of (a, b, c) per row among the rows of `known`, -1 if unknown and not to be created.

    `known` has shape (at least count + rows, 3); returns the number of its rows in use.
    """
    table = _table(known, count)
    mask = len(table) - 1
    for i in range(len(a)):
        x, y, z = a[i], b[i], c[i]
        at = _hash(x, y, z) & mask
        while table[at] >= 0:
            j = table[at]
            if known[j, 0] == x and known[j, 1] == y and known[j, 2] == z:
                break
            at = (at + 1) & mask
        found[i] = table[at]
        if table[at] < 0 and create[i]:
            known[count, 0], known[count, 1], known[count, 2] = x, y, z
            table[at] = found[i] = count
            count += 1
            if 4 * count > len(table):
                table = _table(known, count)
                mask = len(table) - 1
    return count


@numba.njit(cache=True, nogil=True)
def _table(known: Array, count: int) -> Array:
    """A hash table of the first rows: as small as their number allows, so that it stays in the
    processor's cache however many rows are looked up."""
    size = 1024
    while size < 8 * count:
        size *= 2
    table = np.full(size, -1, np.int64)
    for i in range(count):
        at = _hash(known[i, 0], known[i, 1], known[i, 2]) & (size - 1)
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = i
    return table


@numba.njit(cache=True, nogil=True)
def _hash(x: int, y: int, z: int) -> np.int64:
    h = (np.uint64(x) * _MIX) ^ np.uint64(y)
    h = (h ^ (h >> np.uint64(31))) * _MIX
    h = (h ^ np.uint64(z)) * _MIX
    return np.int64(h ^ (h >> np.uint64(29)))
