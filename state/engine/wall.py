"""Order and lateness for jobs that decide on wall time (event contract, section 2).

All keys of a shard at once: each has a clock, records before it are judged, the rest waits, and
what is before it when its batch begins is refused.
"""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np

from state.engine import order
from state.engine.kernel import NULL
from state.engine.names import Names
from state.engine.records import Array, Records, length, take
from state.engine.refused import DUPLICATE, TOO_LATE, Refused

CLOCK_FIELDS = [("has_clock", "|u1"), ("clock_ms", "<i8"), ("latest_ms", "<i8")]
"""What the array of keys must have; `latest_ms` is NULL before the first record."""
Ordered = Callable[[Array, Array, Records, Names], tuple[Array, Array]]
"""Returns, for the key and time of records, their positions in order and those that repeat."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


def admit(
    keys: Array, key: Array, records: Records, is_new: Array, stream_ms: int, lateness_ms: int,
    idle_advance_ms: int, columns: tuple[str, ...], names: Names, refused: Refused,
    ordered: Ordered | None = None,
) -> tuple[Records, Array, Records]:
    """Sort waiting and new records, refuse what is late or repeated and move the clocks.

    `key` is the position of each record's key in `keys`, whose clocks are set to their positions
    when the batch ends. Returns the records to judge, in order, with their keys, and those that
    go on waiting. `ordered` puts records in order where a job does so in its own way.
    """
    if stream_ms > 0:
        keys["clock_ms"] = np.where(
            keys["has_clock"] != 0, np.maximum(keys["clock_ms"], stream_ms), stream_ms
        )
        keys["has_clock"] = 1
    time = records["ts_wall_ms"]
    late = is_new & (keys["has_clock"][key] != 0) & (time < keys["clock_ms"][key])
    if late.any():
        _refuse_late(
            keys, key, records, np.flatnonzero(late), stream_ms, lateness_ms, idle_advance_ms,
            refused,
        )
        records, key, is_new = take(records, ~late), key[~late], is_new[~late]
        time = records["ts_wall_ms"]
    if ordered is not None:
        rows, twice = ordered(key, time, records, names)
    else:
        none = np.zeros(len(time), np.int64)
        rows, tied = order.order(key, none, time, records, names, columns)
        twice = order.repeated(rows, tied, records)
    if len(twice):
        refused.add(records, twice, DUPLICATE, [""] * len(twice))
        rows = rows[~np.isin(rows, twice)]
    _move_clocks(keys, key, time, lateness_ms)
    judged = time[rows] < keys["clock_ms"][key[rows]]
    now, later = rows[judged], rows[~judged]
    return take(records, now), key[now], take(records, later)


def _move_clocks(keys: Array, key: Array, time: Array, lateness_ms: int) -> None:
    if not len(time):
        return
    latest = np.full(len(keys), NULL)
    np.maximum.at(latest, key, time)
    keys["latest_ms"] = np.maximum(keys["latest_ms"], latest)
    has = keys["latest_ms"] != NULL
    own = np.where(has, keys["latest_ms"] - np.where(has, lateness_ms, 0), NULL)
    keys["clock_ms"] = np.where(
        keys["has_clock"] != 0, np.maximum(keys["clock_ms"], own), own
    )
    keys["has_clock"] |= has.astype(np.uint8)


def _refuse_late(
    keys: Array, key: Array, records: Records, late: Array, stream_ms: int, lateness_ms: int,
    idle_advance_ms: int, refused: Refused,
) -> None:
    details = []
    for i in late:
        wall, latest = int(records["ts_wall_ms"][i]), int(keys["latest_ms"][key[i]])
        own = latest - lateness_ms if latest != NULL else None
        if own is None or wall >= own:
            needed = stream_ms + idle_advance_ms - wall
            details.append(f"idle_advance_ms of {needed} would have kept it")
            refused.needed_idle_advance_ms = max(refused.needed_idle_advance_ms or 0, needed)
        else:
            details.append(f"{own - wall} ms before the clock of its key")
    refused.add(records, late, TOO_LATE, details)


def first_waiting(keys: int, key: Array, records: Records) -> tuple[Array, Array]:
    """Monotonic time (ns) and broker of the first record of each key in sorted records; NULL and
    -1 without one."""
    mono, broker = np.full(keys, NULL), np.full(keys, -1, np.int64)
    if length(records):
        mono[key[::-1]] = records["ts_mono_ns"][::-1]
        broker[key[::-1]] = records["broker"][::-1]
    return mono, broker


@numba.njit(cache=True, nogil=True)
def intern_tuples(
    known: Array, count: int, a: Array, b: Array, c: Array, create: Array, found: Array
) -> int:
    """Position of (a, b, c) per row among the rows of `known`, -1 if unknown and not to be made.

    `known` has shape (at least count + rows, 3); returns how many of it are in use.
    """
    size = 64
    while size < 4 * (count + len(a)):
        size *= 2
    table = np.full(size, -1, np.int64)
    old = count
    for i in range(old + len(a)):
        row = i - old
        if row < 0:
            x, y, z = known[i, 0], known[i, 1], known[i, 2]
        else:
            x, y, z = a[row], b[row], c[row]
        h = (np.uint64(x) * _MIX) ^ np.uint64(y)
        h = (h ^ (h >> np.uint64(31))) * _MIX
        h = (h ^ np.uint64(z)) * _MIX
        at = np.int64((h ^ (h >> np.uint64(29))) & np.uint64(size - 1))
        while table[at] >= 0:
            j = table[at]
            if known[j, 0] == x and known[j, 1] == y and known[j, 2] == z:
                break
            at = (at + 1) & (size - 1)
        if row < 0:
            table[at] = i
            continue
        if table[at] < 0 and create[row]:
            known[count, 0], known[count, 1], known[count, 2] = x, y, z
            table[at] = count
            count += 1
        found[row] = table[at]
    return count
