"""Finds elements by name: open-addressing hash tables over the arrays of a World.

A table has four times the room of what a call can add, so it never fills up.
"""

from __future__ import annotations

import numpy as np

from state.chunks.layout import FREE, NOBODY, Array, Int, World, compiled

_MIX = np.uint64(0x9E3779B97F4A7C15)


@compiled
def slot(a: Int, b: Int, c: Int, table: Array) -> Int:
    """First place to look for three integers in a table."""
    h = (np.uint64(a) * _MIX) ^ np.uint64(b)
    h = (h ^ (h >> np.uint64(31))) * _MIX
    h = (h ^ np.uint64(c)) * _MIX
    h ^= h >> np.uint64(29)
    return np.int64(h & np.uint64(len(table) - 1))


@compiled
def put(table: Array, at: Int, place: Int) -> None:
    """Enter an element at the first free place from `at` on."""
    while table[at] >= 0:
        at = (at + 1) & (len(table) - 1)
    table[at] = place


@compiled
def remove(table: Array, at: Int, place: Int) -> None:
    """Remove an element that was entered from `at` on."""
    while table[at] != NOBODY:
        if table[at] == place:
            table[at] = FREE
            return
        at = (at + 1) & (len(table) - 1)


@compiled
def find_context(w: World, consumer: Int, hash_: Int, uuid: Int) -> Int:
    """The live context of a consumer by uuid, -1 without; a uuid of -1 matches any."""
    table = w.context_table
    at = slot(consumer, hash_, 0, table)
    while table[at] != NOBODY:
        i = table[at]
        if i >= 0:
            e = w.contexts[i]
            if e["consumer"] == consumer and e["hash"] == hash_ and (uuid < 0 or e["uuid"] == uuid):
                return i
        at = (at + 1) & (len(table) - 1)
    return NOBODY


@compiled
def find_binding(w: World, sub: Int, hash_: Int, uuid: Int) -> Int:
    """The binding of a uuid in a subscription, -1 without."""
    table = w.binding_table
    at = slot(sub, hash_, 0, table)
    while table[at] != NOBODY:
        i = table[at]
        if i >= 0 and w.bindings[i]["sub"] == sub and w.bindings[i]["uuid"] == uuid:
            return i
        at = (at + 1) & (len(table) - 1)
    return NOBODY


@compiled
def find_held(w: World, sub: Int, ledger: Int, entry: Int) -> Int:
    """The chunk that a subscription holds for a marker at a position, -1 without."""
    table = w.held_table
    at = slot(sub, ledger, entry, table)
    while table[at] != NOBODY:
        i = table[at]
        if i >= 0:
            e = w.held[i]
            if e["sub"] == sub and e["ledger"] == ledger and e["entry"] == entry:
                return i
        at = (at + 1) & (len(table) - 1)
    return NOBODY


@compiled
def find_stored(w: World, key: Int, hash_: Int, uuid: Int) -> Int:
    """The stored message of a key by uuid, -1 without."""
    table = w.stored_table
    at = slot(key, hash_, 0, table)
    while table[at] != NOBODY:
        i = table[at]
        if i >= 0 and w.stored[i]["key"] == key and w.stored[i]["uuid"] == uuid:
            return i
        at = (at + 1) & (len(table) - 1)
    return NOBODY


@compiled
def find_piece(w: World, key: Int, ledger: Int, entry: Int) -> Int:
    """The stored chunk of a key at a position, -1 without."""
    table = w.piece_table
    at = slot(key, ledger, entry, table)
    while table[at] != NOBODY:
        i = table[at]
        if i >= 0:
            e = w.pieces[i]
            if (
                e["ledger"] == ledger
                and e["entry"] == entry
                and w.stored[e["stored"]]["key"] == key
            ):
                return i
        at = (at + 1) & (len(table) - 1)
    return NOBODY


@compiled
def acknowledged(w: World, sub: Int, ledger: Int, entry: Int) -> bool:
    """Whether a position has been acknowledged in the subscription's present epoch."""
    s = w.subs[sub]
    if s["has_cumulative"] != 0 and (
        ledger < s["ledger"] or (ledger == s["ledger"] and entry <= s["entry"])
    ):
        return True
    table = w.ack_table
    at = slot(sub, ledger, entry, table)
    while table[at] != NOBODY:
        e = w.acks[table[at]]
        if (
            e["sub"] == sub
            and e["epoch"] == s["epoch"]
            and e["ledger"] == ledger
            and e["first"] == entry
        ):
            return True
        at = (at + 1) & (len(table) - 1)
    low, high = np.int64(0), np.int64(len(w.acked))
    while low < high:
        middle = (low + high) >> 1
        r = w.acked[middle]
        before = r["sub"] < sub or (
            r["sub"] == sub
            and (r["ledger"] < ledger or (r["ledger"] == ledger and r["last"] < entry))
        )
        if before:
            low = middle + 1
        else:
            high = middle
    if low == len(w.acked):
        return False
    r = w.acked[low]
    return bool(
        r["sub"] == sub
        and r["epoch"] == s["epoch"]
        and r["ledger"] == ledger
        and r["first"] <= entry <= r["last"]
    )


@compiled
def acknowledge(w: World, sub: Int, ledger: Int, entry: Int) -> None:
    """Record that one entry was acknowledged."""
    p = w.settings[0]
    place = p["acks"]
    p["acks"] += 1
    e = w.acks[place]
    e["sub"], e["epoch"], e["ledger"] = sub, w.subs[sub]["epoch"], ledger
    e["first"] = e["last"] = entry
    put(w.ack_table, slot(sub, ledger, entry, w.ack_table), place)


@compiled
def index_all(w: World) -> None:
    """Index all live elements in the tables, which are empty."""
    for c in range(len(w.consumers)):
        at = w.consumers[c]["first"]
        while at >= 0:
            e = w.contexts[at]
            put(w.context_table, slot(c, e["hash"], 0, w.context_table), at)
            at = e["next"]
    p = w.settings[0]
    for i in range(p["bindings"]):
        b = w.bindings[i]
        put(w.binding_table, slot(b["sub"], b["hash"], 0, w.binding_table), i)
    for i in range(p["held"]):
        h = w.held[i]
        put(w.held_table, slot(h["sub"], h["ledger"], h["entry"], w.held_table), i)
    for key in range(len(w.keys)):
        message = w.keys[key]["first_stored"]
        while message >= 0:
            e = w.stored[message]
            older = find_stored(w, key, e["hash"], e["uuid"])
            if older >= 0:
                remove(w.stored_table, slot(key, e["hash"], 0, w.stored_table), older)
            put(w.stored_table, slot(key, e["hash"], 0, w.stored_table), message)
            at = e["first"]
            while at >= 0:
                x = w.pieces[at]
                put(w.piece_table, slot(key, x["ledger"], x["entry"], w.piece_table), at)
                at = x["next"]
            message = e["next"]
