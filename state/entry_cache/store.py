"""One broker's world as stored between calls: entries in order of their positions."""

from __future__ import annotations

import numpy as np

from state.engine.structs import copied, picked
from state.entry_cache import layout as L
from state.entry_cache.backlogs import push_ledger
from state.entry_cache.cache import append, stash
from state.entry_cache.heaps import put_far, settle_head
from state.entry_cache.layout import (
    BELADY,
    NOBODY,
    NULL,
    ONE,
    PROPORTIONAL,
    ZERO,
    Array,
    Int,
    World,
    compiled,
)
from state.entry_cache.positions import add, entry_at, lowest, replay_owner
from state.entry_cache.world import blank, link_cursors, world_of

LAYOUTS = {
    "key": L.KEY,
    "variants": L.VARIANT,
    "topics": L.TOPIC,
    "cells": L.CELL,
    "cursors": L.CURSOR,
    "flags": L.KEPT_FLAG,
    "entries": L.KEPT_ENTRY,
    "ledgers": L.KEPT_LEDGER,
}
NAME_FIELDS = {
    "key": ("cluster", "broker", "last_feed"),
    "variants": ("given",),
    "topics": ("name",),
    "cursors": ("name",),
}
"""Fields that hold integers of the shard's names."""
_COUNTER, _ACCESSED, _ASIDE = np.int64(1), np.int64(2), np.int64(4)


def pack(w: World) -> dict[str, Array]:
    """The arrays to store, without topics and subscriptions that have no known state."""
    k, caches = w.key[0], len(w.variants)
    kept_cursors = (w.cursors["known"] != 0) | (w.cursors["flags"] > 0)
    in_use = (w.cells["count"] > 0) | (w.cells["held"] != 0)
    topics = w.topics
    kept = (topics["event"] != 0) | (topics["cursors"] > 0) | (topics["flags"] > 0)
    kept |= in_use.reshape(len(topics), caches).any(axis=1)
    tells = (topics["has_persisted"] != 0) | (topics["left_ns"] != NULL)
    # an event at the clock or behind it would find the topic forgotten
    idle = (k["has_clock"] != 0) & (k["clock_ns"] - topics["seen_ns"] > k["idle_ns"])
    kept |= (topics["seen_ns"] != NULL) & tells & ~idle
    order = w.by_rank[kept[w.by_rank]]
    place = np.full(len(topics) + 1, -1, np.int64)
    place[order] = np.arange(len(order))
    cursors = picked(w.cursors, kept_cursors)
    cursors["topic"], cursors["next"] = place[cursors["topic"]], -1
    packed = {
        "key": copied(w.key),
        "variants": copied(w.variants),
        "topics": picked(topics, order),
        "cells": picked(w.cells, (order[:, None] * caches + np.arange(caches)).reshape(-1)),
        "cursors": cursors,
    }
    packed["topics"]["rank"] = np.arange(len(order))
    packed["topics"]["first_cursor"] = -1
    packed["variants"]["idle_until_ns"] = NULL
    for field in ("head", "tail", "stash_head", "stash_tail", "unwanted_head", "unwanted_tail"):
        packed["variants"][field] = -1
    packed["cells"]["head_at"] = -1
    packed["topics"]["first_ledger"] = -1
    for field in ("evictions", "reads", "stats", "entries_top", "pages_top", "ledgers_top"):
        packed["key"][field] = 0
    packed["key"]["free_entry"] = packed["key"]["free_page"] = packed["key"]["free_ledger"] = -1
    packed["key"]["now_ns"] = packed["key"]["now_wall_ms"] = packed["key"]["now_feed"] = 0
    entries = np.zeros(int(k["entries"]), L.KEPT_ENTRY)
    orders = np.zeros(len(w.entries), np.int64)
    keep_entries(w, order, orders, entries)
    flags = np.zeros(int(topics["flags"].sum()), L.KEPT_FLAG)
    keep_flags(w, np.flatnonzero(kept_cursors), flags)
    ledgers = np.zeros(int(k["ledgers"]), L.KEPT_LEDGER)
    count = keep_ledgers(w, order, ledgers)
    packed["key"]["ledgers"] = 0
    return {**packed, "entries": entries, "flags": flags, "ledgers": ledgers[:count]}


@compiled
def keep_entries(w: World, topics: Array, orders: Array, kept: Array) -> None:
    """Write the entries cell by cell, with their place in the queue."""
    count = len(w.variants)
    for v in range(count):
        n = ZERO
        for x in (w.variants[v]["stash_head"], w.variants[v]["head"]):
            while x >= 0:
                orders[x] = n
                n += ONE
                x = w.entries[x]["next"]
    n = ZERO
    for t in topics:
        for v in range(count):
            is_far = w.variants[v]["policy"] == BELADY
            p = w.sets[t * count + v]["first"]
            while p >= 0:
                bits = w.pages[p]["bits"]
                while bits != 0:
                    i = lowest(bits)
                    bits &= bits - ONE
                    keep(w, kept[n], p, i, ZERO if is_far else orders[w.slots[p, i]])
                    n += ONE
                p = w.pages[p]["next"]


@compiled
def keep(w: World, to: L.Record, p: int, i: int, order: int) -> None:
    """Write one entry."""
    e = w.entries[w.slots[p, i]]
    to["ledger"], to["entry"] = w.pages[p]["ledger"], entry_at(w, p, i)
    to["bytes"], to["ts"], to["inserted_ns"] = e["bytes"], e["ts"], e["inserted_ns"]
    to["expected"], to["requeue_count"], to["order"] = e["expected"], e["requeue_count"], order
    flags = _COUNTER if e["counted"] != 0 else ZERO
    if e["accessed"] != 0:
        flags += _ACCESSED
    if e["aside"] != 0:
        flags += _ASIDE
    to["flags"] = flags


@compiled
def keep_flags(w: World, cursors: Array, kept: Array) -> None:
    """Write what is queued for replay."""
    n = ZERO
    for number in range(len(cursors)):
        p = w.flag_sets[cursors[number]]["first"]
        while p >= 0:
            bits = w.pages[p]["bits"]
            while bits != 0:
                i = lowest(bits)
                bits &= bits - ONE
                to = kept[n]
                to["cursor"], to["ledger"] = number, w.pages[p]["ledger"]
                to["entry"] = entry_at(w, p, i)
                n += ONE
            p = w.pages[p]["next"]


@compiled
def keep_ledgers(w: World, topics: Array, kept: Array) -> Int:
    """Write what ledgers have, topic by topic from the oldest; returns how many they are."""
    n = ZERO
    for number in range(len(topics)):
        start = n
        at = w.topics[topics[number]]["first_ledger"]
        while at >= 0:
            n += ONE
            at = w.ledgers[at]["next"]
        at, back = w.topics[topics[number]]["first_ledger"], n
        while back > start:
            back -= ONE
            to = kept[back]
            to["topic"], to["ledger"] = number, w.ledgers[at]["ledger"]
            to["entries"] = w.ledgers[at]["entries"]
            at = w.ledgers[at]["next"]
    return n


def unpack(parts: dict[str, Array], source: Array, variants: Array) -> World:
    """The world behind stored arrays.

    `variants` are the caches wanted now; `source` has the stored one that each continues,
    -1 for one that begins empty.
    """
    key, topics, cursors = parts["key"], parts["topics"], parts["cursors"]
    caches, stored, n = len(variants), len(parts["variants"]), len(topics)
    kept = parts["ledgers"]
    was = parts["cells"].reshape(n, stored)
    if np.array_equal(source, np.arange(stored)):
        cells = parts["cells"]
    else:
        cells = blank("cells", n * caches)
        cells.reshape(n, caches)[:, source >= 0] = was[:, source[source >= 0]]
    w = world_of(
        int(key[0]["entries"]),
        int(key[0]["pages"]),
        key=key,
        variants=variants,
        topics=topics,
        by_rank=np.arange(n),
        cells=cells,
        sets=blank("sets", n * caches),
        heads=np.zeros((caches, n), np.int64),
        scratch=np.zeros(n, np.int64),
        cursors=cursors,
        flag_sets=blank("flag_sets", len(cursors)),
        ledgers=np.zeros(len(kept) + 16, L.LEDGER),
    )
    topics["first_cursor"] = -1
    link_cursors(w, 0)
    target = np.full(stored + 1, -1, np.int64)
    target[source[source >= 0]] = np.flatnonzero(source >= 0)
    key["entries"] = key["pages"] = 0
    variants["topics"][variants["policy"] == PROPORTIONAL] = 0
    variants["count"][variants["policy"] == BELADY] = 0
    variants["aside"] = 0
    counts = parts["cells"]["count"]
    places = np.full(int(counts.sum()), NOBODY)
    totals = was["count"].sum(axis=0)
    bases = np.concatenate([np.zeros(1, np.int64), np.cumsum(totals)])
    fill_entries(w, np.ascontiguousarray(counts), parts["entries"], target, bases, places)
    fill_flags(w, parts["flags"])
    fill_ledgers(w, kept)
    return w


@compiled
def fill_entries(
    w: World, counts: Array, kept: Array, target: Array, bases: Array, places: Array
) -> None:
    """Put stored entries into the caches that continue theirs, and link their queues."""
    k, count, stored = w.key[0], len(w.variants), len(bases) - 1
    n = ZERO
    for old in range(len(counts)):
        v = target[old % stored]
        if v < 0:
            n += counts[old]
            continue
        cell = old // stored * count + v
        for _ in range(counts[old]):
            e = kept[n]
            n += ONE
            p, i, _new = add(w, w.sets[cell], cell, e["ledger"], e["entry"])
            x = k["entries_top"]
            k["entries_top"] += 1
            k["entries"] += 1
            w.slots[p, i] = x
            to = w.entries[x]
            to["ts"], to["inserted_ns"], to["bytes"] = e["ts"], e["inserted_ns"], e["bytes"]
            to["expected"], to["requeue_count"] = e["expected"], e["requeue_count"]
            to["page"], to["slot"] = p, i
            flags = np.int64(e["flags"])
            to["counted"] = 1 if flags & _COUNTER != 0 else 0
            to["accessed"] = 1 if flags & _ACCESSED != 0 else 0
            to["aside"] = 1 if flags & _ASIDE != 0 else 0
            places[bases[old % stored] + e["order"]] = x
    for old in range(stored):
        v = target[old]
        if v < 0:
            continue
        for at in range(bases[old], bases[old + 1]):
            if places[at] >= 0 and w.variants[v]["policy"] != BELADY:
                x = places[at]
                if w.entries[x]["aside"] != 0:
                    stash(w, v, x)
                else:
                    append(w, v, x)
    for cell in range(len(w.cells)):
        v = cell % count
        if w.variants[v]["policy"] == PROPORTIONAL and w.cells[cell]["count"] > 0:
            w.variants[v]["topics"] += 1
            settle_head(w, v, cell)
    for x in range(k["entries_top"]):
        v = w.pages[w.entries[x]["page"]]["owner"] % count
        if w.variants[v]["policy"] == BELADY:
            w.variants[v]["count"] += 1
            put_far(w, v, x)


@compiled
def fill_flags(w: World, kept: Array) -> None:
    """Put back what is queued for replay."""
    for n in range(len(kept)):
        c = kept[n]["cursor"]
        add(w, w.flag_sets[c], replay_owner(c), kept[n]["ledger"], kept[n]["entry"])


@compiled
def fill_ledgers(w: World, kept: Array) -> None:
    """Put back what ledgers have."""
    for n in range(len(kept)):
        push_ledger(w, kept[n]["topic"], kept[n]["ledger"], kept[n]["entries"])
