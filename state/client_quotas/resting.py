"""Entities that rest: a user and client id of a broker with their sensors, open windows and use,
stored apart as pages of bytes, which a batch passes on unread unless it needs them.

An entity rests when no request or rate has come for it for a time. Its page, which is of one broker, is
read again when a request or rate may be charged to an entity in it, when a window in it ends, and
while a broker start is ahead of the clock of a broker with pages. In between nothing can happen to
it: limits are looked up when a request comes. A page of sensors that have all been idle for too
long is dropped unread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from state.client_quotas import shard as shards
from state.client_quotas.layout import NULL, Array
from state.client_quotas.shard import SAMPLES, Shard, clocks, users_of, window_end
from state.client_quotas.shared import STARTS
from state.engine import wall
from state.engine.names import Names
from state.engine.resting import Rest
from state.engine.structs import joined, picked
from udfs.hashing import combine_hashes, hash_strings

REST = Rest(2_000)
"""An entity is idle since its last request or rate."""
AGAIN_MS = 10_000
"""How long after entities of a broker went to rest others may, if one of them was needed since: the
pages of entities that are used at random are not read and written in every batch."""
_ROWS = {"sensors": "recorded_ms", "stats": "last_ms", "usage": "last_ms"}
"""What belongs to entities, and the time at which each was last used."""
_LAST = np.int64(2**63 - 1)


def wake(s: Shard, pairs: Array, keys: Array, begin_ms: Array, times: Mapping[str, int]) -> None:
    """Read the entities that a batch may need: those that its pairs (broker, user, client id) may be
    charged to, and those of windows that have ended by the clocks of `keys`.

    `begin_ms` are the clocks before the batch; `times` has `period_ms` and `idle_ms`.
    """
    resting = s.resting
    if not len(resting):
        return
    broker, window = resting.about["broker"], resting.about["window"]
    clock_ms = clocks(keys)[broker]
    called = (window != NULL) & (window_end(window, times["period_ms"]) <= clock_ms)
    if _start_is_ahead(s, begin_ms[broker]):
        called[:] = True
    elif len(pairs):
        wanted = resting.pages_of(_hashes(_charged(s, pairs), keys, s.names))
        called[wanted] = True
        keys["called"][broker[wanted]] = 1
    over = (window == NULL) & (clock_ms - resting.about["recorded_ms"] > times["idle_ms"])
    _read(s, called, over & ~called)


def rest(s: Shard, pairs: Array) -> None:
    """Move idle entities out of a shard, but for those that the pairs of this batch may be charged
    to."""
    keys, used = s.parts["keys"], [s.parts[name][time] for name, time in _ROWS.items()]
    # as a first guess an entity is as likely to be idle as a row
    least = REST.least(sum(map(len, used)))
    if least > sum(map(len, used)):
        return
    may = (keys["called"] == 0) | (keys["clock_ms"] >= keys["rested_ms"] + AGAIN_MS)
    if not may.any():
        return
    since_ms = clocks(keys) - REST.after_ms
    old = [ms < since_ms[s.parts[n]["key"]] for n, ms in zip(_ROWS, used, strict=True)]
    if sum(map(np.count_nonzero, old)) < least:
        return
    if _start_is_ahead(s, clocks(keys)[keys["has_clock"] != 0]):
        return
    entities, active, of_rows = _entities(s, _charged(s, pairs))
    last_ms = np.full(len(entities), NULL)
    for ms, of_row in zip(used, of_rows, strict=True):
        np.maximum.at(last_ms, of_row, ms)
    broker = entities[:, 0]
    idle = last_ms < since_ms[broker]
    idle[:active] = False
    awake = np.bincount(broker, minlength=len(keys)).tolist()
    may &= np.bincount(broker, idle, len(keys)) >= [REST.least(n) for n in awake]
    chosen = np.flatnonzero(idle & may[broker])
    if not len(chosen):
        return
    rested = np.unique(broker[chosen])
    keys["rested_ms"][rested], keys["called"][rested] = keys["clock_ms"][rested], 0
    chosen = chosen[np.lexsort((last_ms[chosen], broker[chosen]))]
    number = _numbers(broker[chosen])
    page = np.full(len(entities), -1)
    page[chosen] = number
    hashes = _hashes(entities[chosen], keys, s.names)
    about, pages = _put_aside(s, [page[of_row] for of_row in of_rows], int(number[-1]) + 1)
    s.resting = s.resting.joined_by(hashes, number, about, pages)


def _read(s: Shard, called: Array, dropped: Array) -> None:
    """Bring back the entities of some pages, and drop others (both bool)."""
    read = [shards.read_page(s.resting.pages[i], s.names) for i in np.flatnonzero(called).tolist()]
    for name in (*_ROWS, *SAMPLES) if read else ():
        pieces = [s.parts[name], *(parts[name] for parts in read)]
        s.parts[name] = joined(pieces) if name in _ROWS else np.concatenate(pieces)
    if read or dropped.any():
        s.resting = s.resting.without(called | dropped)


def _put_aside(s: Shard, page: Sequence[Array], count: int) -> tuple[dict[str, Array], list[bytes]]:
    """Take rows out of a shard into so many pages, given the page of each row of `_ROWS` (-1: it
    stays); what is known of the pages, and their bytes."""
    parts, pieces = s.parts, [dict[str, Array]() for _ in range(count)]
    s.parts = stays = dict(parts)
    about = {name: np.full(count, NULL) for name in ("broker", "window", "recorded_ms")}
    window = np.full(count, _LAST)
    for name, of_page in zip(_ROWS, page, strict=True):
        rows = parts[name]
        moves = of_page >= 0
        about["broker"][of_page[moves]] = rows["key"][moves]
        if name == "sensors":
            np.maximum.at(about["recorded_ms"], of_page[moves], rows["recorded_ms"][moves])
        else:
            np.minimum.at(window, of_page[moves], rows["window"][moves])
        order = np.argsort(of_page, kind="stable")
        bounds = np.searchsorted(of_page[order], np.arange(-1, count + 1)).tolist()
        for piece, begin, end in zip([stays, *pieces], bounds, bounds[1:], strict=False):
            which = order[begin:end]
            piece[name] = picked(rows, which)
            if name == "sensors":
                places = shards.blocks(np.cumsum(rows["held"]) - rows["held"], rows["held"], which)
                piece |= {sample: parts[sample][places] for sample in SAMPLES}
    about["window"] = np.where(window == _LAST, NULL, window)
    return about, [shards.write_page(piece, s.names) for piece in pieces]


def _numbers(broker: Array) -> Array:
    """The page of each of some entities, which are in the order of their brokers."""
    begins = np.flatnonzero(np.diff(broker, prepend=-1))
    counts = np.diff(begins, append=len(broker))
    pages = -(-counts // REST.page)
    place = np.arange(len(broker)) - np.repeat(begins, counts)
    first = np.cumsum(pages) - pages
    return np.repeat(first, counts) + place * np.repeat(pages, counts) // np.repeat(counts, counts)


def _start_is_ahead(s: Shard, clock_ms: Array) -> bool:
    """Whether a broker start is new, or not before all of these clocks."""
    if not len(clock_ms):
        return False
    ahead = (s.meaning["fresh"] != 0) | (s.shared["ts_wall_ms"] >= clock_ms.min())
    return bool((ahead & (s.meaning["what"] == STARTS)).any())


def _charged(s: Shard, pairs: Array) -> Array:
    """The entities (broker, user, client id) that requests of pairs may be charged to, with
    repetitions: the pair, its user, and its client."""
    empty = s.names.intern_one("")
    user, client = pairs.copy(), pairs.copy()
    user[:, 2] = client[:, 1] = empty
    return np.concatenate([pairs, user, client])


def _entities(s: Shard, first: Array) -> tuple[Array, int, list[Array]]:
    """The entities of a shard, some given ones first; how many these are, and the entity of each row
    of `_ROWS`."""
    sensors, stats, usage = (s.parts[name] for name in _ROWS)
    empty = s.names.intern_one("")
    principal, client = (np.where(usage[c] < 0, empty, usage[c]) for c in ("principal", "client"))
    rows = [(e["key"], e["user"], e["client"]) for e in (sensors, stats)]
    every = [tuple(first.T), *rows, (usage["key"], users_of(s.names, principal), client)]
    columns = [np.concatenate([part[i] for part in every]) for i in range(3)]
    n = len(columns[0])
    known, found = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(known, 0, *columns, np.ones(n, bool), found)
    mine, *others = np.split(found, np.cumsum([len(part[0]) for part in every])[:-1])
    return known[:count], int(mine.max(initial=-1)) + 1, others


def _hashes(entities: Array, keys: Array, names: Names) -> Array:
    """Hashes of entities, which do not depend on the integers of names."""
    broker, user, client = entities.T
    every = hash_strings(names.lookup(np.arange(len(names))))
    return combine_hashes(
        *(every[n] for n in (keys["cluster"][broker], keys["broker"][broker], user, client))
    )
