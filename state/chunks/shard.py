"""State of one shard of `chunks`: topics, consumers, what they are assembling, payloads; as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from state.chunks import layout as L
from state.chunks.declaration import COLUMNS, NAME, STATE_VERSION
from state.chunks.layout import NULL, Array, World
from state.chunks.shared import MEANING, Timeline
from state.engine import structs, wall_job
from state.engine.store import Arrays, Plain, RecordSet, Store, Struct
from state.engine.tables import (
    Indexed,
    StateRow,
    children,
    in_order,
    in_use,
    more_children,
    moved,
    places,
    table,
    with_room,
)

PAYLOAD = "payload"
"""Column of records: position of an inline payload in the shard's store, -1 without."""
STANDING: Mapping[str, type[StateRow]] = {
    "keys": L.ChunkTopic,
    "subs": L.Subscription,
    "consumers": L.Consumer,
    "producers": L.Sender,
    "acked": L.AckedRange,
}
PASSING: Mapping[str, type[StateRow]] = {
    "contexts": L.Context,
    "buffered": L.BufferedChunk,
    "fifo": L.FifoEntry,
    "bindings": L.Binding,
    "held": L.HeldChunk,
    "stored": L.StoredMessage,
    "pieces": L.StoredChunk,
}
"""What comes and goes while a batch is judged."""
ROWS = {**STANDING, **PASSING}
"""What is kept."""
TABLES = {**PASSING, "newest": L.StoredUuid, "acks": L.AckedRange}
"""What has an index."""
OWNERS = {
    "subs_of": ("keys", "subs", "key"),
    "consumers_of": ("keys", "consumers", "key"),
    "contexts_of": ("consumers", "contexts", "consumer"),
    "fifo_of": ("consumers", "fifo", "consumer"),
    "held_of": ("keys", "held", "key"),
    "stored_of": ("keys", "stored", "key"),
    "pieces_of": ("stored", "pieces", "message"),
}
"""Children in the World: their owners, the rows, and the field with the owner of each."""
PLACES = (
    ("subs", "key", "keys"),
    ("consumers", "key", "keys"),
    ("consumers", "sub", "subs"),
    ("producers", "key", "keys"),
    ("acked", "sub", "subs"),
    ("contexts", "consumer", "consumers"),
    ("buffered", "context", "contexts"),
    ("fifo", "consumer", "consumers"),
    ("bindings", "sub", "subs"),
    ("bindings", "consumer", "consumers"),
    ("held", "key", "keys"),
    ("held", "sub", "subs"),
    ("stored", "key", "keys"),
    ("pieces", "key", "keys"),
    ("pieces", "message", "stored"),
)
"""Fields that are positions in other tables."""
KEPT = Store(
    NAME,
    STATE_VERSION,
    Plain("next_order"),
    *(row.part(name) for name, row in ROWS.items()),
    RecordSet("waiting", COLUMNS, (PAYLOAD,)),
    RecordSet("shared", COLUMNS, (PAYLOAD,)),
    Struct("meaning", MEANING, ("name",)),
    Plain("payloads", np.uint8),
    Plain("payload_lengths"),
    added=("shared", "meaning", *ROWS),
)


@dataclass
class Shard(wall_job.SharedShard):
    """What one shard knows between two calls; rows with an order are in it."""

    store: pa.Array = field(default_factory=lambda: pa.array([], pa.large_binary()))
    """Payloads kept in state, by the `payload` of buffered and held chunks and waiting records."""
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
        {name: found[name] for name in ROWS},
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
            **_payloads(shard),
            **shard.parts,
        },
        shard.names,
    )


def _payloads(shard: Shard) -> Arrays:
    """Only the payloads that something refers to, numbered anew."""
    if not len(shard.store):
        return {"payloads": np.zeros(0, np.uint8), "payload_lengths": np.zeros(0, np.int64)}
    users = [
        shard.parts["buffered"][PAYLOAD],
        shard.parts["held"][PAYLOAD],
        shard.waiting[PAYLOAD],
    ]
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


def unpack(
    parts: Mapping[str, Array],
    settings: Mapping[str, int],
    next_order: int,
    timeline: Timeline,
    place: Array,
    most_pending: Array,
    ids: Array,
) -> World:
    """The world behind stored arrays. `place` is the broker of each topic among those of the
    timeline, `most_pending` a limit of each consumer, `ids` what markers list."""
    p, links = L.ChunkSettings.blank.copy(), np.zeros(len(parts["keys"]), L.TopicLink.dtype)
    for name, value in {**settings, "next_order": next_order}.items():
        p[name] = value
    links["place"] = place
    every: dict[str, Any] = {
        **{name: parts[name] for name in STANDING},
        **{name: table(row, parts[name]) for name, row in PASSING.items()},
        "newest": table(L.StoredUuid, np.zeros(0, L.StoredUuid.dtype), len(parts["stored"])),
        "acks": table(L.AckedRange, np.zeros(0, L.AckedRange.dtype)),
    }
    for name, (owners, rows, owner) in OWNERS.items():
        order = np.arange(len(parts[rows]))
        if rows in STANDING:
            order = order[::-1].copy()
        every[name] = children(
            parts[rows][owner][order], order, len(_rows(every[owners])), len(_rows(every[rows]))
        )
    return World(
        settings=p,
        timer=L.ChunkRecord.blank.copy(),
        ids=ids,
        links=links,
        most_pending=most_pending,
        **timeline._asdict(),
        **every,
    )


def more_room(w: World, chunks: int) -> World:
    """The world with room for so many more chunks where its tables are short."""
    every: dict[str, Any] = {
        name: with_room(row, getattr(w, name), chunks) for name, row in TABLES.items()
    }
    w = w._replace(**every)
    room = {name: len(_rows(getattr(w, name))) for name in ROWS}
    every = {
        name: more_children(getattr(w, name), room[owners], room[rows])
        for name, (owners, rows, _) in OWNERS.items()
    }
    return w._replace(**every)


def _rows(found: Any) -> Array:
    """The rows of a table, or an array of rows."""
    rows: Array = found.rows if isinstance(found, Indexed) else found
    return rows


def pack(w: World, stays: Array) -> dict[str, Array]:
    """The arrays to store, without what is as good as new; inverse of `unpack`."""
    at = _kept(w, stays)
    kept = {name: structs.picked(_rows(getattr(w, name)), rows) for name, rows in at.items()}
    kept["acked"] = _acknowledged(w)
    for name, field_, target in PLACES:
        room = len(_rows(getattr(w, target)))
        kept[name][field_] = moved(kept[name][field_], at[target], room)
    kept["acked"] = structs.picked(kept["acked"], kept["acked"]["sub"] >= 0)
    return kept


def _kept(w: World, stays: Array) -> dict[str, Array]:
    """Places of the rows to store, in order."""
    bindings = places(w.bindings)
    b = w.bindings.rows[bindings]
    unused_ms = w.keys["clock_ms"][w.subs["key"][b["sub"]]] - b["used_ms"]
    bindings = bindings[unused_ms < w.settings["idle_ms"]]
    masks = _standing(w, stays, w.bindings.rows[bindings])
    at = {name: np.flatnonzero(mask) for name, mask in masks.items()}
    at |= {
        "contexts": in_order(w.contexts_of, at["consumers"]),
        "fifo": in_order(w.fifo_of, at["consumers"]),
        "bindings": bindings,
        "held": in_order(w.held_of, at["keys"]),
        "stored": in_order(w.stored_of, at["keys"]),
    }
    buffered, pieces = _by_context(w, at["contexts"]), in_order(w.pieces_of, at["stored"])
    return at | {"buffered": buffered, "pieces": pieces}


def _standing(w: World, stays: Array, bindings: Array) -> dict[str, Array]:
    """Which topics, subscriptions, consumers and producers are more than new ones; `bindings` are
    those that are kept."""
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
    consumers[bindings["consumer"]] = True
    subs = (
        (s["shared"] != 0)
        | (s["stalled"] != 0)
        | ((s["last_chunk_ms"] != NULL) & (sub_clock - s["last_chunk_ms"] < p["idle_ms"]))
    )
    subs |= (s["mark_ledger"] != NULL) & (
        (k["chunked"][s["key"]] != 0) | (sub_clock - s["told_ms"] < p["idle_ms"])
    )
    for of in (e["sub"][consumers], bindings["sub"], w.held.rows["sub"][places(w.held)]):
        subs[of] = True
    keys = (k["open"] != 0) | (k["touched"] != 0) | (w.held_of.first >= 0)
    keys |= stays | (w.stored_of.first >= 0)
    keys |= (k["row_ms"] != NULL) & (k["row_ms"] >= k["clock_ms"])
    keys[s["key"][subs]] = True
    of = w.producers["key"]
    producers = (k["open"][of] != 0) & (w.producers["window"] == k["window"][of]) & keys[of]
    return {"keys": keys, "subs": subs, "consumers": consumers, "producers": producers}


def _by_context(w: World, contexts: Array) -> Array:
    """Places of the buffered chunks of some contexts, in the order of these and by chunk id."""
    found = places(w.buffered)
    rows = w.buffered.rows[found]
    number = moved(rows["context"], contexts, len(w.contexts.rows))
    by: Array = found[np.lexsort((rows["chunk_id"], number))]
    return by


def _acknowledged(w: World) -> Array:
    """Ranges of the subscriptions' present epochs, joined where they touch, without what a
    cumulative acknowledgement covers."""
    every = structs.joined([w.acked, in_use(w.acks)])
    if not len(every):
        return every
    every["last"][len(w.acked) :] = every["first"][len(w.acked) :]
    s = w.subs[every["sub"]]
    covered = (every["ledger"] < s["cumulative_ledger"]) | (
        (every["ledger"] == s["cumulative_ledger"]) & (every["last"] <= s["cumulative_entry"])
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
