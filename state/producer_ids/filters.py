"""The known ids of a user: its filters, and its memory of counted ids."""

from __future__ import annotations

import numpy as np

from state.engine.tables import adopt, at, drop, find, release
from state.producer_ids import bloom
from state.producer_ids import layout as L
from state.producer_ids.heap import claim_words, class_for, class_of, release_words
from state.producer_ids.layout import BITS_CLASS, Int, World, compiled

# -- filters ---------------------------------------------------------------------------------


@compiled
def holds(w: World, place: Int, pid: Int, low: Int, high: Int) -> bool:
    """Whether an id is, or looks, present in one filter."""
    p, f = w.settings[0], w.filters.rows[place]
    if p["exact"] != 0:
        return bool(find(w.ids, (f.serial, pid)) >= 0)
    if f.dense != 0:
        return bloom.contains(w.words, f.at, p["bits"], p["hashes"], low, high)
    return bloom.listed_contains(w.words, f.at, f.items, p["bits"], p["hashes"], low, high)


@compiled
def _list_or_set(w: World, place: Int, pid: Int, low: Int, high: Int) -> None:
    """Insert into a filter of bits, or a list that becomes one when it is long."""
    p, f = w.settings[0], w.filters.rows[place]
    bits, hashes, items = p["bits"], p["hashes"], f.items
    if f.dense == 0 and items >= p["listed_most"]:
        old, room = f.at, f.room
        first = claim_words(w, BITS_CLASS, p["bits_words"])
        bloom.clear(w.words, first, bits)
        if room > 0:
            bloom.densify(w.words, old, items, w.words, first, bits, hashes)
            release_words(w, class_of(room), old)
        f.at, f.room, f.dense = first, p["bits_words"], 1
    if f.dense != 0:
        f.set += bloom.insert(w.words, f.at, bits, hashes, low, high)
        return
    f.set += bloom.listed_bits_added(w.words, f.at, items, bits, hashes, low, high)
    if items == f.room:
        kind = class_for(items + 1)
        first = claim_words(w, kind, np.int64(1) << kind)
        for i in range(items):
            w.words[first + i] = w.words[f.at + i]
        if f.room > 0:
            release_words(w, class_of(f.room), f.at)
        f.at, f.room = first, np.int64(1) << kind
    w.words[f.at + items] = np.uint64(pid)


@compiled
def insert(w: World, place: Int, pid: Int, low: Int, high: Int) -> None:
    """Insert an id that looks absent into one filter."""
    p, f = w.settings[0], w.filters.rows[place]
    if p["exact"] == 0:
        _list_or_set(w, place, pid, low, high)
    else:
        at(w.ids, (f.serial, pid))
    f.items += 1


@compiled
def _drop_oldest(w: World, key: Int) -> None:
    place = w.live.first[key]
    f = w.filters.rows[place]
    if f.room > 0:
        release_words(w, BITS_CLASS if f.dense != 0 else class_of(f.room), f.at)
    release(w.live, key, place)
    drop(w.filters, (f.serial,))
    w.links[key].live -= 1


@compiled
def dispose(w: World, key: Int, now: Int) -> None:
    """Drop the filters of a user that have reached the age of disposal, boundary included."""
    span_ms, mode = w.keys[key].span_ms, w.settings[0]["mode"]
    halves = np.int64(3 if mode == L.MODE_A or mode == L.MODE_C else 2)
    while w.live.first[key] >= 0:
        age = now - w.filters.rows[w.live.first[key]].created_ms
        if 2 * age < halves * span_ms:
            return
        _drop_oldest(w, key)


@compiled
def drop_all(w: World, key: Int) -> None:
    """Drop every filter of a user."""
    while w.live.first[key] >= 0:
        _drop_oldest(w, key)


@compiled
def is_seen(w: World, key: Int, pid: Int, low: Int, high: Int) -> bool:
    """The membership test over all live filters, newest first, which may refresh."""
    newest = w.live.last[key]
    place = newest
    while place >= 0:
        if holds(w, place, pid, low, high):
            if place != newest and w.settings[0]["refresh"] != 0:
                insert(w, newest, pid, low, high)
            return True
        place = w.live.before[place]
    return False


@compiled
def _is_aged(w: World, place: Int, now: Int, span_ms: Int, layers: Int) -> bool:
    p, f = w.settings[0], w.filters.rows[place]
    age = now - f.created_ms
    if p["mode"] == L.MODE_L:
        return bool(age * layers >= span_ms or f.items >= p["most_items"])
    if p["mode"] == L.MODE_C:
        return bool(age >= span_ms)
    return bool(2 * age >= span_ms)


@compiled
def put(
    w: World, key: Int, pid: Int, low: Int, high: Int, now: Int, span_ms: Int, layers: Int
) -> Int:
    """Insert an unseen id into the newest filter, or into a new one if that is due; returns when
    the filter was created.
    """
    place = w.live.last[key]
    if place < 0 or _is_aged(w, place, now, span_ms, layers):
        p = w.settings[0]
        place = at(w.filters, (p["next_serial"],))
        p["next_serial"] += 1
        f = w.filters.rows[place]
        f.key, f.created_ms = key, now
        adopt(w.live, key, place)
        w.links[key].live += 1
    insert(w, place, pid, low, high)
    return w.filters.rows[place].created_ms


# -- ids that were counted -------------------------------------------------------------------


@compiled
def was_counted(w: World, key: Int, pid: Int, now: Int) -> bool:
    """Whether an id was counted for its user within the expiration."""
    place = find(w.counted, (w.links[key].serial, pid))
    if place < 0:
        return False
    k, at_ms = w.keys[key], w.counted.rows[place].at_ms
    return bool(at_ms > k.lost_ms and now - at_ms < k.expiration_ms)


@compiled
def count(w: World, key: Int, pid: Int, now: Int) -> None:
    """Remember that an id was counted now."""
    w.counted.rows[at(w.counted, (w.links[key].serial, pid))].at_ms = now
