"""State of one shard of `chunks`: keys, consumers, what they are assembling, payloads; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numba
import numpy as np
import pyarrow as pa

from state.chunks import layout as L
from state.chunks.declaration import COLUMNS, NAME, STATE_VERSION
from state.chunks.layout import NULL, Array, World
from state.chunks.shared import MEANING, Timeline
from state.engine import structs, wall_job
from state.engine.store import Arrays, Plain, RecordSet, Store, Struct

PAYLOAD = "payload"
"""Column of records: position of an inline payload in the shard's store, -1 without."""
NAME_FIELDS = {
    "keys": ("cluster", "topic", "broker", "feed"),
    "subs": ("name",),
    "consumers": ("name",),
    "contexts": ("uuid", "producer"),
    "nodes": ("file",),
    "bindings": ("uuid",),
    "held": ("uuid", "producer", "file"),
    "producers": ("name",),
    "stored": ("uuid", "producer"),
}
LAYOUTS: Mapping[str, np.dtype] = {
    "keys": L.KEY,
    "subs": L.SUB,
    "consumers": L.CONSUMER,
    "contexts": L.CONTEXT,
    "nodes": L.NODE,
    "entries": L.ENTRY,
    "bindings": L.BINDING,
    "held": L.HELD,
    "producers": L.PRODUCER,
    "stored": L.STORED,
    "pieces": L.PIECE,
    "acked": L.RANGE,
}
_WORLD = {name: f"world.{name}" for name in LAYOUTS}
KEPT = Store(
    NAME,
    STATE_VERSION,
    Plain("next_order"),
    *(Struct(_WORLD[name], kind, NAME_FIELDS.get(name, ())) for name, kind in LAYOUTS.items()),
    RecordSet("waiting", COLUMNS, (PAYLOAD,)),
    RecordSet("shared", COLUMNS, (PAYLOAD,)),
    Struct("meaning", MEANING, ("name",)),
    Plain("payloads", np.uint8),
    Plain("payload_lengths"),
    added=("shared", "meaning"),
)


@dataclass
class Shard(wall_job.SharedShard):
    """What one shard knows between two calls; lists are kept as orders."""

    store: pa.Array = field(default_factory=lambda: pa.array([], pa.large_binary()))
    """Payloads kept in state, by the `payload` of nodes, held chunks and waiting records."""
    next_order: int = 0
    files: Array = field(default_factory=lambda: np.zeros(0, np.int64))
    """Staged files that were referred to when the call began; not kept."""


def read(data: bytes | None) -> Shard:
    """The shard behind its bytes, or a new one."""
    found, names = KEPT.opened(data)
    offsets = np.concatenate([[0], np.cumsum(found["payload_lengths"])]).astype(np.int64)
    store = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(offsets) - 1,
        [None, pa.py_buffer(offsets), pa.py_buffer(found["payloads"])],
    )
    return Shard(
        names,
        {name: found[kept] for name, kept in _WORLD.items()},
        found["waiting"],
        found["shared"],
        found["meaning"],
        (),
        store,
        int(found["next_order"].sum()),
    )


def write(shard: Shard) -> bytes:
    """The bytes of a shard."""
    return KEPT.write(
        {
            "next_order": np.array([shard.next_order], np.int64),
            "waiting": shard.waiting,
            "shared": shard.shared,
            "meaning": shard.meaning,
            **{kept: shard.parts[name] for name, kept in _WORLD.items()},
            **_payloads(shard),
        },
        shard.names,
    )


def _payloads(shard: Shard) -> Arrays:
    """Only the payloads that something refers to, numbered anew."""
    if not len(shard.store):
        return {"payloads": np.zeros(0, np.uint8), "payload_lengths": np.zeros(0, np.int64)}
    users = [shard.parts["nodes"][PAYLOAD], shard.parts["held"][PAYLOAD], shard.waiting[PAYLOAD]]
    used = np.unique(np.concatenate(users))
    used = used[used >= 0]
    kept = shard.store.take(pa.array(used))
    for column in users:
        column[...] = np.where(column >= 0, np.searchsorted(used, column), -1)
    buffers = kept.buffers()
    offsets = np.frombuffer(buffers[1], np.int64)[kept.offset : kept.offset + len(kept) + 1]
    data = np.frombuffer(buffers[2], np.uint8) if buffers[2] else np.zeros(0, np.uint8)
    first, last = (int(offsets[0]), int(offsets[-1])) if len(kept) else (0, 0)
    return {
        "payloads": data[first:last],
        "payload_lengths": np.diff(offsets) if len(kept) else np.zeros(0, np.int64),
    }


# -- between state and kernel ----------------------------------------------------------------


@dataclass(frozen=True)
class Room:
    """How much a call may need beside what lives: chunks, acknowledgements, chunks that are stored
    or not delivered."""

    chunks: int
    acks: int
    stored: int = 0


def unpack(
    parts: Mapping[str, Array],
    settings: Mapping[str, int],
    next_order: int,
    room: Room,
    timeline: Timeline,
    place: Array,
    most_pending: Array,
) -> World:
    """The world behind stored arrays, with room for a batch and its lists linked; `place` is the
    broker of each key among those of the timeline, `most_pending` a limit of each consumer."""
    p = np.zeros(1, L.SETTINGS)
    for name, value in settings.items():
        p[name] = value
    more = room.chunks + len(parts["held"])
    sizes = {
        "contexts": more,
        "nodes": more,
        "entries": more,
        "bindings": room.chunks,
        "held": room.chunks,
        "stored": room.stored,
        "pieces": room.stored,
    }
    grown = {
        name: structs.grown(parts[name], len(parts[name]) + sizes.get(name, 0)) for name in LAYOUTS
    }
    for array, first, name in (
        ("contexts", "free_context", "contexts"),
        ("nodes", "free_node", "nodes"),
        ("entries", "free_entry", ""),
        ("bindings", "free_binding", "bindings"),
        ("held", "free_held", "held"),
        ("stored", "free_stored", ""),
        ("pieces", "free_piece", ""),
    ):
        live = len(parts[array])
        every = len(grown[array])
        grown[array]["next"][live:] = np.arange(live + 1, every + 1)
        grown[array]["next"][max(every - 1, live) :] = -1
        p[first] = live if live < every else -1
        if name:
            p[name] = live
    grown["held"]["key"][len(parts["held"]) :] = -1
    grown["bindings"]["sub"][len(parts["bindings"]) :] = -1
    grown["stored"]["key"][len(parts["stored"]) :] = -1
    grown["pieces"]["stored"][len(parts["pieces"]) :] = -1
    p["next_order"] = next_order
    p["consumers"] = len(parts["consumers"])
    world = World(
        settings=p,
        chunk=np.zeros(1, L.CHUNK),
        acks=np.zeros(room.acks, L.RANGE),
        context_table=_table(len(grown["contexts"])),
        binding_table=_table(len(grown["bindings"])),
        held_table=_table(len(grown["held"])),
        stored_table=_table(len(grown["stored"])),
        piece_table=_table(len(grown["pieces"])),
        ack_table=_table(room.acks),
        most_pending=most_pending,
        links=np.zeros(len(parts["keys"]), L.LINK),
        **timeline._asdict(),
        **grown,
    )
    world.links["place"] = place
    _link(world, len(parts["contexts"]), len(parts["nodes"]), len(parts["entries"]))
    _link_stored(world, len(parts["stored"]), len(parts["pieces"]))
    return world


def _table(elements: int) -> Array:
    size = 64
    while size < 4 * elements:
        size *= 2
    return np.full(size, -1, np.int64)


@numba.njit(cache=True, nogil=True)
def _link(w: World, contexts: int, nodes: int, entries: int) -> None:
    for k in range(len(w.keys)):
        w.keys[k]["first_consumer"] = -1
    for i in range(len(w.consumers)):
        e = w.consumers[i]
        e["next"] = w.keys[e["key"]]["first_consumer"]
        w.keys[e["key"]]["first_consumer"] = i
        e["first"], e["last"], e["head"], e["tail"] = -1, -1, -1, -1
    for i in range(contexts):
        e = w.contexts[i]
        owner = w.consumers[e["consumer"]]
        e["previous"], e["next"], e["first"], e["newest"] = owner["last"], -1, -1, -1
        if owner["last"] >= 0:
            w.contexts[owner["last"]]["next"] = i
        else:
            owner["first"] = i
        owner["last"] = i
    for i in range(nodes):
        e = w.contexts[w.nodes[i]["next"]]
        w.nodes[i]["next"] = -1
        if e["newest"] >= 0:
            w.nodes[e["newest"]]["next"] = i
        else:
            e["first"] = i
        e["newest"] = i
    for i in range(entries):
        owner = w.consumers[w.entries[i]["next"]]
        w.entries[i]["next"], w.entries[i]["previous"] = -1, owner["tail"]
        if owner["tail"] >= 0:
            w.entries[owner["tail"]]["next"] = i
        else:
            owner["head"] = i
        owner["tail"] = i


@numba.njit(cache=True, nogil=True)
def _link_stored(w: World, stored: int, pieces: int) -> None:
    for k in range(len(w.keys)):
        w.keys[k]["first_sub"] = w.keys[k]["first_stored"] = w.keys[k]["last_stored"] = -1
        w.keys[k]["stored"] = w.keys[k]["pieces"] = 0
    for i in range(len(w.subs)):
        w.subs[i]["next"] = w.keys[w.subs[i]["key"]]["first_sub"]
        w.keys[w.subs[i]["key"]]["first_sub"] = i
    for i in range(stored):
        e = w.stored[i]
        k = w.keys[e["key"]]
        e["previous"], e["next"], e["first"], e["newest"] = k["last_stored"], -1, -1, -1
        e["pieces"] = 0
        if k["last_stored"] >= 0:
            w.stored[k["last_stored"]]["next"] = i
        else:
            k["first_stored"] = i
        k["last_stored"] = i
        k["stored"] += 1
    for i in range(pieces):
        e = w.stored[w.pieces[i]["stored"]]
        w.pieces[i]["next"] = -1
        if e["newest"] >= 0:
            w.pieces[e["newest"]]["next"] = i
        else:
            e["first"] = i
        e["newest"] = i
        e["pieces"] += 1
        w.keys[e["key"]]["pieces"] += 1


@numba.njit(cache=True, nogil=True)
def _line_up(
    w: World, contexts: Array, nodes: Array, owners: Array, entries: Array, holders: Array
) -> tuple[int, int, int]:
    """Places of contexts, chunks (with their contexts) and fifo elements (with their consumers),
    list by list."""
    a, b, c = 0, 0, 0
    for i in range(len(w.consumers)):
        at = w.consumers[i]["first"]
        while at >= 0:
            contexts[a] = at
            a += 1
            node = w.contexts[at]["first"]
            while node >= 0:
                nodes[b], owners[b] = node, at
                b += 1
                node = w.nodes[node]["next"]
            at = w.contexts[at]["next"]
        at = w.consumers[i]["head"]
        while at >= 0:
            entries[c], holders[c] = at, i
            c += 1
            at = w.entries[at]["next"]
    return a, b, c


def pack(w: World, stays: Array) -> dict[str, Array]:
    """The arrays to store, without what is as good as new; inverse of `unpack`."""
    p = w.settings[0]
    contexts, nodes, owners = (
        np.empty(n, np.int64) for n in (len(w.contexts), len(w.nodes), len(w.nodes))
    )
    entries, holders = np.empty(len(w.entries), np.int64), np.empty(len(w.entries), np.int64)
    a, b, c = _line_up(w, contexts, nodes, owners, entries, holders)
    contexts, nodes, owners = contexts[:a], nodes[:b], owners[:b]
    entries, holders = entries[:c], holders[:c]
    bindings = np.flatnonzero(w.bindings["sub"] >= 0)
    held = np.flatnonzero(w.held["key"] >= 0)
    stored, pieces = _in_order(w.stored, "key"), _in_order(w.pieces, "stored")
    used = w.bindings["used_ms"][bindings]
    clock = w.keys["clock_ms"]
    bindings = bindings[clock[w.subs["key"][w.bindings["sub"][bindings]]] - used < p["idle_ms"]]
    keep = _kept(w, stays, bindings, held)
    number = {name: _renumber(mask) for name, mask in keep.items()}
    number["contexts"] = np.full(len(w.contexts) + 1, -1, np.int64)
    number["contexts"][contexts] = np.arange(a)
    number["stored"] = np.full(len(w.stored) + 1, -1, np.int64)
    number["stored"][stored] = np.arange(len(stored))
    keep |= {
        "contexts": contexts,
        "nodes": nodes,
        "entries": entries,
        "bindings": bindings,
        "held": held,
        "stored": stored,
        "pieces": pieces,
    }
    parts = {name: structs.picked(getattr(w, name), rows) for name, rows in keep.items()}
    parts["nodes"]["next"] = number["contexts"][owners]
    parts["entries"]["next"] = number["consumers"][holders]
    parts["entries"] = structs.picked(parts["entries"], parts["entries"]["next"] >= 0)
    acked = _acknowledged(w)
    parts["acked"] = structs.picked(acked, keep["subs"][acked["sub"]])
    for part, field_, target in (
        ("subs", "key", "keys"),
        ("consumers", "key", "keys"),
        ("consumers", "sub", "subs"),
        ("contexts", "consumer", "consumers"),
        ("bindings", "sub", "subs"),
        ("bindings", "consumer", "consumers"),
        ("held", "key", "keys"),
        ("held", "sub", "subs"),
        ("producers", "key", "keys"),
        ("acked", "sub", "subs"),
        ("stored", "key", "keys"),
        ("pieces", "stored", "stored"),
    ):
        parts[part][field_] = number[target][parts[part][field_]]
    return parts


def _in_order(array: Array, owner: str) -> Array:
    """Places of the elements with an owner, in the order in which they came."""
    live = np.flatnonzero(array[owner] >= 0)
    return live[np.argsort(array["order"][live], kind="stable")]


def _kept(w: World, stays: Array, bindings: Array, held: Array) -> dict[str, Array]:
    p, k, e, s = w.settings[0], w.keys, w.consumers, w.subs
    consumer_clock, sub_clock = k["clock_ms"][e["key"]], k["clock_ms"][s["key"]]
    consumers = (e["touched"] != 0) | (
        (e["known"] != 0)
        & (
            (e["contexts"] > 0)
            | (e["counter"] > 0)
            | (e["closed_ms"] != NULL)
            | ((e["used_ms"] != NULL) & (consumer_clock - e["used_ms"] < p["idle_ms"]))
            | (p["mode"] == L.HASH)
        )
    )
    consumers[w.bindings["consumer"][bindings]] = True
    subs = (
        (s["shared"] != 0)
        | (s["stalled"] != 0)
        | ((s["last_chunk_ms"] != NULL) & (sub_clock - s["last_chunk_ms"] < p["idle_ms"]))
    )
    subs |= (s["mark_ledger"] != NULL) & (
        (k["chunked"][s["key"]] != 0) | (sub_clock - s["told_ms"] < p["idle_ms"])
    )
    subs[e["sub"][consumers]] = True
    subs[w.bindings["sub"][bindings]] = True
    subs[w.held["sub"][held]] = True
    keys = (
        (k["open"] != 0)
        | (k["touched"] != 0)
        | (k["held"] > 0)
        | stays
        | ((k["row_ms"] != NULL) & (k["row_ms"] >= k["clock_ms"]))
    )
    keys[s["key"][subs]] = True
    keys |= k["stored"] > 0
    producers = (
        (k["open"][w.producers["key"]] != 0)
        & (w.producers["window_ms"] == k["window_ms"][w.producers["key"]])
        & keys[w.producers["key"]]
    )
    return {"keys": keys, "subs": subs, "consumers": consumers, "producers": producers}


def _renumber(keep: Array) -> Array:
    """New position by old one; what is dropped, and -1, become -1."""
    number = np.full(len(keep) + 1, -1, np.int64)
    number[:-1][keep] = np.arange(int(keep.sum()))
    return number


def _acknowledged(w: World) -> Array:
    """Ranges of the subscriptions' present epochs, joined where they touch, without what a
    cumulative acknowledgement covers."""
    more = int(w.settings[0]["acks"])
    if not len(w.acked) and not more:
        return w.acked
    every = structs.grown(w.acked, len(w.acked) + more)
    every[len(w.acked) :] = w.acks[:more]
    s = w.subs[every["sub"]]
    covered = (s["has_cumulative"] != 0) & (
        (every["ledger"] < s["ledger"])
        | ((every["ledger"] == s["ledger"]) & (every["last"] <= s["entry"]))
    )
    every = every[(every["epoch"] == s["epoch"]) & ~covered]
    if not len(every):
        return every
    every = every[np.lexsort((every["first"], every["ledger"], every["sub"]))]
    new_group = np.ones(len(every), bool)
    new_group[1:] = (every["sub"][1:] != every["sub"][:-1]) | (
        every["ledger"][1:] != every["ledger"][:-1]
    )
    group = np.cumsum(new_group) - 1
    reach = _reach(every["last"], group)
    begins = new_group.copy()
    begins[1:] |= every["first"][1:] - 1 > reach[:-1]
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], len(every)) - 1
    joined = every[starts]
    joined["last"] = reach[ends]
    return joined


@numba.njit(cache=True, nogil=True)
def _reach(last: Array, group: Array) -> Array:
    """Largest `last` up to each row of its group."""
    out = np.empty(len(last), np.int64)
    for i in range(len(last)):
        out[i] = last[i]
        if i > 0 and group[i] == group[i - 1]:
            out[i] = max(out[i], out[i - 1])
    return out
