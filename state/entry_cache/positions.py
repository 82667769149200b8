"""Ordered sets of positions (ledger, entry) in pages of 32 neighbours.

All sets share one array of pages and one hash table by (owner, ledger, block): a position is found
through its page, in order through the list of a set's pages. Entries of a ledger follow each other,
so both mostly end at the page used last.
"""

from __future__ import annotations

import numpy as np

from state.entry_cache.layout import (
    BLOCK_MASK,
    BLOCK_SHIFT,
    NOBODY,
    ONE,
    ZERO,
    Int,
    Record,
    World,
    compiled,
)

_MIX = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)
_HALVES = (
    (np.int64(16), np.int64(0xFFFF)),
    (np.int64(8), np.int64(0xFF)),
    (np.int64(4), np.int64(0xF)),
    (np.int64(2), np.int64(0x3)),
    (np.int64(1), np.int64(0x1)),
)


@compiled
def replay_owner(c: int) -> Int:
    """The owner of the replay queue of a cursor: below 0, where no cell is."""
    return -ONE - c


@compiled
def place_of(w: World, owner: int, ledger: int, block: int) -> Int:
    """Where the table holds a page, or would."""
    mask = np.int64(len(w.table) - 1)
    h = (np.uint64(owner) * _MIX) ^ np.uint64(ledger)
    h = (h ^ (h >> _SHIFT)) * _MIX
    h = (h ^ np.uint64(block)) * _MIX
    at = np.int64(h >> np.uint64(20)) & mask
    while w.table[at] >= 0:
        page = w.pages[w.table[at]]
        if page["block"] == block and page["ledger"] == ledger and page["owner"] == owner:
            break
        at = (at + ONE) & mask
    return at


@compiled
def page_of(w: World, s: Record, owner: int, ledger: int, block: int) -> Int:
    """The page of a set that holds these positions, -1 without one."""
    p = s["finger"]
    if p < 0:
        return NOBODY
    page = w.pages[p]
    if page["block"] == block and page["ledger"] == ledger:
        return p
    p = w.table[place_of(w, owner, ledger, block)]
    if p >= 0:
        s["finger"] = p
    return p


@compiled
def lowest(bits: Int) -> Int:
    """Number of the lowest bit that is set, of 32 that are not all 0."""
    n = ZERO
    for width, mask in _HALVES:
        if bits & mask == 0:
            bits >>= width
            n += width
    return n


@compiled
def is_before(w: World, p: int, ledger: int, block: int) -> bool:
    """Whether a page is before a block."""
    page = w.pages[p]
    return page["ledger"] < ledger or (page["ledger"] == ledger and page["block"] < block)


@compiled
def first_from(w: World, s: Record, ledger: int, block: int) -> Int:
    """The first page of a set at a block or behind it, -1 without one."""
    if s["first"] < 0 or is_before(w, s["last"], ledger, block):
        return NOBODY
    if not is_before(w, s["first"], ledger, block):
        return s["first"]
    p = s["finger"]
    while is_before(w, p, ledger, block):
        p = w.pages[p]["next"]
    previous = w.pages[p]["previous"]
    while not is_before(w, previous, ledger, block):
        p = previous
        previous = w.pages[p]["previous"]
    return p


@compiled
def make_page(w: World, s: Record, owner: int, ledger: int, block: int) -> Int:
    """The page of a set for these positions, made if it is not there; the caller has room."""
    p = page_of(w, s, owner, ledger, block)
    if p >= 0:
        return p
    k = w.key[0]
    at = place_of(w, owner, ledger, block)
    p = k["free_page"]
    if p >= 0:
        k["free_page"] = w.pages[p]["next"]
    else:
        p = k["pages_top"]
        k["pages_top"] += 1
    k["pages"] += 1
    before = NOBODY
    if s["first"] >= 0:
        # mostly behind its neighbour: ask for that before looking through the list
        before = w.table[place_of(w, owner, ledger, block - ONE)]
    after = w.pages[before]["next"] if before >= 0 else first_from(w, s, ledger, block)
    if before < 0:
        before = w.pages[after]["previous"] if after >= 0 else s["last"]
    page = w.pages[p]
    page["owner"], page["ledger"], page["block"], page["bits"] = owner, ledger, block, 0
    page["previous"], page["next"] = before, after
    if before >= 0:
        w.pages[before]["next"] = p
    else:
        s["first"] = p
    if after >= 0:
        w.pages[after]["previous"] = p
    else:
        s["last"] = p
    w.table[at] = p
    s["finger"] = p
    return p


@compiled
def drop_page(w: World, s: Record, p: int) -> None:
    """Take an empty page out of its set."""
    page = w.pages[p]
    before, after = page["previous"], page["next"]
    if before >= 0:
        w.pages[before]["next"] = after
    else:
        s["first"] = after
    if after >= 0:
        w.pages[after]["previous"] = before
    else:
        s["last"] = before
    if s["finger"] == p:
        s["finger"] = after if after >= 0 else before
    mask = np.int64(len(w.table) - 1)
    hole = place_of(w, page["owner"], page["ledger"], page["block"])
    at = (hole + ONE) & mask
    w.table[hole] = NOBODY
    while w.table[at] >= 0:
        # what was placed behind its own place because of the hole moves up
        moved = w.table[at]
        w.table[at] = NOBODY
        other = w.pages[moved]
        w.table[place_of(w, other["owner"], other["ledger"], other["block"])] = moved
        at = (at + ONE) & mask
    k = w.key[0]
    page["next"] = k["free_page"]
    k["free_page"] = p
    k["pages"] -= 1


@compiled
def add(w: World, s: Record, owner: int, ledger: int, entry: int) -> tuple[Int, Int, bool]:
    """Put a position into a set; returns its page, its place there and whether it is new."""
    p = make_page(w, s, owner, ledger, entry >> BLOCK_SHIFT)
    i = entry & BLOCK_MASK
    bits = w.pages[p]["bits"]
    w.pages[p]["bits"] = bits | (ONE << i)
    return p, i, (bits >> i) & ONE == 0


@compiled
def discard(w: World, s: Record, p: int, i: int) -> None:
    """Take a position out of a set."""
    w.pages[p]["bits"] &= ~(ONE << i)
    if w.pages[p]["bits"] == 0:
        drop_page(w, s, p)


@compiled
def has(w: World, s: Record, owner: int, ledger: int, entry: int) -> Int:
    """The page that holds a position, -1 if the set does not."""
    p = page_of(w, s, owner, ledger, entry >> BLOCK_SHIFT)
    if p < 0 or (w.pages[p]["bits"] >> (entry & BLOCK_MASK)) & ONE == 0:
        return NOBODY
    return p


@compiled
def precedes(ledger: int, entry: int, other_ledger: int, other_entry: int) -> bool:
    """Whether a position is before another."""
    return ledger < other_ledger or (ledger == other_ledger and entry < other_entry)


@compiled
def entry_at(w: World, p: int, i: int) -> Int:
    """Entry id of a place in a page."""
    return (w.pages[p]["block"] << BLOCK_SHIFT) + i
