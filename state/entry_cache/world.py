"""Arrays of one broker: new elements, growing, finding topics and cursors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from state.engine.clocks import NEVER_SET
from state.engine.structs import grown, joined, repeated
from state.entry_cache import layout as L
from state.entry_cache.layout import NOBODY, NULL, Array, Out, World, compiled
from state.entry_cache.outputs import EVICTION, READ, STATISTICS
from state.entry_cache.positions import place_of

LAYOUTS: Mapping[str, np.dtype] = {
    "key": L.KEY,
    "variants": L.VARIANT,
    "topics": L.TOPIC,
    "cells": L.CELL,
    "sets": L.SET,
    "cursors": L.CURSOR,
    "flag_sets": L.SET,
    "pages": L.PAGE,
    "entries": L.ENTRY,
    "ledgers": L.LEDGER,
}
_NO_PLACE = {
    "variants": (
        "head",
        "tail",
        "stash_head",
        "stash_tail",
        "unwanted_head",
        "unwanted_tail",
        "given",
    ),
    "cells": ("head_at",),
    "sets": ("first", "last", "finger"),
    "flag_sets": ("first", "last", "finger"),
    "topics": ("first_cursor", "name", "first_ledger"),
    "cursors": ("next",),
    "key": ("last_feed", "free_entry", "free_page", "free_ledger"),
}
_UNKNOWN = {
    "variants": ("idle_until_ns", "max_bytes"),
    "topics": ("seen_ns", "left_ns", "check_ns"),
    "cursors": ("backlog",),
    "key": (*NEVER_SET, "last_wall_ms", "eviction_ns", "read_ns"),
}


def blank(name: str, count: int) -> Array:
    """New elements of one array, empty as the kernel expects them."""
    return repeated(_empty(name), count)


@lru_cache
def _empty(name: str) -> Array:
    array = np.zeros(1, LAYOUTS[name])
    for field in _NO_PLACE.get(name, ()):
        array[field] = NOBODY
    for field in _UNKNOWN.get(name, ()):
        array[field] = NULL
    return array


def more(array: Array, count: int) -> Array:
    """An array with zeros behind its elements."""
    return grown(array, len(array) + count)


def new_world(cluster: int, broker: int, caches: int) -> World:
    """A new broker."""
    key = blank("key", 1)
    key["cluster"], key["broker"] = cluster, broker
    none = np.zeros(0, np.int64)
    return world_of(
        0,
        0,
        key=key,
        variants=blank("variants", caches),
        topics=blank("topics", 0),
        by_rank=none,
        cells=blank("cells", 0),
        sets=blank("sets", 0),
        cursors=blank("cursors", 0),
        flag_sets=blank("flag_sets", 0),
        heads=np.zeros((caches, 0), np.int64),
        ledgers=np.zeros(16, L.LEDGER),
        scratch=none,
    )


def world_of(entries: int, pages: int, **parts: Array) -> World:
    """The world of these arrays, with room for so many entries and pages."""
    entries, pages = entries + 64, pages + 64
    return with_far(
        World(
            **parts,
            pages=np.zeros(pages, L.PAGE),
            slots=np.zeros((pages, int(L.BLOCK)), np.int64),
            table=_table(pages),
            entries=np.zeros(entries, L.ENTRY),
            far=np.zeros((len(parts["variants"]), 0), np.int64),
        )
    )


def with_far(w: World) -> World:
    """Room for the heaps of next reads, where a cache needs one."""
    known = w.far.shape[1]
    if known >= len(w.entries) or not (w.variants["policy"] == L.BELADY).any():
        return w
    far = np.zeros((len(w.variants), len(w.entries)), np.int64)
    far[:, :known] = w.far
    return w._replace(far=far)


def _table(pages: int) -> Array:
    size = 64
    while size < 2 * pages:
        size *= 2
    return np.full(size, NOBODY)


def with_topics(w: World, names: Array) -> World:
    """More topics at the end; their order by name is still to be set."""
    count, caches = len(names), len(w.variants)
    topics = blank("topics", count)
    topics["name"] = names
    heads = np.zeros((caches, len(w.topics) + count), np.int64)
    heads[:, : len(w.topics)] = w.heads
    return w._replace(
        topics=joined([w.topics, topics]),
        heads=heads,
        cells=joined([w.cells, blank("cells", count * caches)]),
        sets=joined([w.sets, blank("sets", count * caches)]),
        scratch=np.zeros(len(w.topics) + count, np.int64),
    )


def with_cursors(w: World, topics: Array, names: Array) -> World:
    """More subscriptions at the end."""
    first, count = len(w.cursors), len(names)
    cursors = blank("cursors", count)
    cursors["topic"], cursors["name"] = topics, names
    w = w._replace(
        cursors=joined([w.cursors, cursors]),
        flag_sets=joined([w.flag_sets, blank("flag_sets", count)]),
    )
    link_cursors(w, first)
    return w


@compiled
def link_cursors(w: World, first: int) -> None:
    """Put cursors from a place on into the lists of their topics."""
    for c in range(first, len(w.cursors)):
        topic = w.topics[w.cursors[c]["topic"]]
        w.cursors[c]["next"] = topic["first_cursor"]
        topic["first_cursor"] = c


@compiled
def fill_table(w: World) -> None:
    """Put all pages into an empty table."""
    for s in range(len(w.sets)):
        place_pages(w, w.sets[s]["first"])
    for c in range(len(w.flag_sets)):
        place_pages(w, w.flag_sets[c]["first"])


@compiled
def place_pages(w: World, p: int) -> None:
    """Put a page and those behind it into the table."""
    while p >= 0:
        page = w.pages[p]
        w.table[place_of(w, page["owner"], page["ledger"], page["block"])] = p
        p = page["next"]


def grow(w: World, o: Out) -> tuple[World, Out]:
    """Make room for at least one more step: arrays that are short are doubled."""
    k, caches = w.key[0], len(w.variants)
    if k["entries"] + caches > len(w.entries):
        count = len(w.entries) + caches + 64
        w = with_far(w._replace(entries=more(w.entries, count)))
    if k["pages"] + caches + 1 > len(w.pages):
        count = len(w.pages) + caches + 64
        w = w._replace(
            pages=more(w.pages, count),
            slots=more(w.slots, count),
            table=_table(len(w.pages) + count),
        )
        fill_table(w)
    if k["ledgers"] + 1 > len(w.ledgers):
        w = w._replace(ledgers=more(w.ledgers, len(w.ledgers) + 16))
    need = {"reads": int(k["reads"]) + caches, "stats": int(k["stats"]) + len(w.cells) + caches}
    if k["with_evictions"]:
        need["evictions"] = int(k["evictions"]) + int(k["entries"]) + caches
    for name, count in need.items():
        old = getattr(o, name)
        if count > len(old):
            o = o._replace(**{name: more(old, 2 * count + 64 - len(old))})
    return w, o


def new_out() -> Out:
    """No rows, little room."""
    return Out(np.zeros(64, EVICTION), np.zeros(64, READ), np.zeros(16, STATISTICS))
