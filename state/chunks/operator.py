"""The stateful operator `chunks`: reassembly of chunked messages (PIP-37).

Key: (cluster, topic). Clock: wall time. State: contexts, fifos and counters of consumers, payloads
of incomplete messages, acknowledgements, waiting records. Timers: expiry passes, consumers that do
not come back, window ends. Tables: `chunk_messages`, `chunk_events`, `chunk_state`,
`incomplete_messages`, `chunk_topic_stats` and its late or repeated records for `quarantine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.chunks import flow
from state.chunks import layout as L
from state.chunks import shard as shards
from state.chunks import shared as common
from state.chunks.declaration import COLUMNS, DECLARATION, NAME
from state.chunks.expiry import longest_life_ms, wait_ms
from state.chunks.layout import NULL, Array, Feed, Out, World
from state.chunks.outputs import CLOSED, LEVEL, MESSAGE, MISSING, ROW, TOO_LARGE
from state.chunks.pending import most_pending, rules_of
from state.chunks.rows import Rows
from state.chunks.sequence import SEQUENCE
from state.chunks.shard import PAYLOAD, Room, Shard
from state.engine import wall
from state.engine.documents import Configured, Version
from state.engine.names import Names
from state.engine.payloads import PARTS, RELEASES
from state.engine.reach import Reach
from state.engine.records import Records, length, read_blobs
from state.engine.structs import grown
from state.engine.wall_job import Batch, SharedWallJob, least
from udfs.hashing import hash_strings

Stage = Callable[[pa.Table], str]
_FIELDS = (
    ("rows", "rows", ROW),
    ("messages", "messages", MESSAGE),
    ("parts", "parts", L.NODE),
    ("levels", "levels", LEVEL),
    ("missing", "missing", MISSING),
    ("windows", "windows", CLOSED),
)


class Chunks(SharedWallJob[Shard]):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    key = DECLARATION.key
    columns = COLUMNS
    order = SEQUENCE
    standing = common.GAPS

    def __init__(
        self, params: Mapping[str, Any], policies: Sequence[str] = (), stage: Stage | None = None
    ) -> None:
        """`params` are the job's resolved parameters; `stage` writes payloads (cluster, topic,
        ledger_id, entry_id, payload) that are too many for the state and returns their file."""
        self._policies = Configured()
        self._lateness_ms = int(params["allowed_lateness_ms"])
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._assemble = bool(params["assemble_payload"])
        self._max_bytes = int(params["max_bytes"])
        self._max_shard_bytes = int(params["max_shard_bytes"])
        self._stage = stage
        defects = {str(d) for d in params["defects"]}
        self._hashed = params["shared_mode"] == "hash"
        self._pending = rules_of(params)
        self.settings = {
            "auto_ack": int(bool(params["autoAckOldestChunkedMessageOnQueueFull"])),
            "expiry_ms": int(params["expireTimeOfIncompleteChunkedMessageMillis"]),
            "lose": L.FIRST_DUPS.index(params["first_dup"]),
            "mode": L.SHARED_MODES.index(params["shared_mode"]),
            "orphan": L.SHARED_ORPHANS.index(params["shared_orphan"]),
            "window_ms": int(params["stats_window_ms"]),
            "idle_ms": int(params["idle_state_ms"]),
            "blind_ms": longest_life_ms(
                int(params["expireTimeOfIncompleteChunkedMessageMillis"]),
                int(params["idle_state_ms"]),
            ),
            "max_payload": int(params["max_payload_bytes"]),
            "stalls": int(params["shared_mode"] == "pin" and params["shared_orphan"] == "stall"),
            "wait_ms": wait_ms(params),
            **{d.lower(): int(d in defects) for d in L.DEFECTS},
        }

    def follow(self, versions: Iterable[Version]) -> None:
        """See `state.engine.job`; only gaps hold for many keys here, no policies."""

    def _open(self, state: bytes | None) -> Shard:
        return shards.read(state)

    def _write(self, s: Shard) -> bytes:
        return shards.write(s)

    def _judge(self, s: Shard, batch: Batch, reach: Reach) -> dict[str, pa.Table]:
        w, o = self._play(s, batch)
        rows = Rows(w, o, s.names)
        tables = rows.tables()
        if self._assemble and "chunk_messages" in tables:
            tables["chunk_messages"] = self._with_parts(tables["chunk_messages"], rows, w, o, s)
        s.parts = shards.pack(w, reach.stays(batch.keys))
        s.next_order = int(w.settings[0]["next_order"])
        return tables

    def _settle(self, s: Shard, tables: dict[str, pa.Table], reach: Reach) -> Iterable[int]:
        self._forget(s, reach)
        self._spill(s)
        released = self._released(s)
        if released is not None:
            tables[RELEASES] = released
        keys = s.parts["keys"]
        yield from least(keys["due_ms"])
        window = keys["window_ms"][keys["open"] != 0]
        if len(window):
            yield int(window.min()) + self.settings["window_ms"] - 1

    # -- records -----------------------------------------------------------------------------

    def _read(self, s: Shard, blobs: Sequence[bytes]) -> Records:
        """The records of a batch; their inline payloads join the shard's store."""
        payloads: list[pa.Array] = []
        new = read_blobs(blobs, s.names, COLUMNS, payloads, (PAYLOAD,), length(s.waiting))
        n = length(new)
        at = np.full(n, -1, np.int64)
        if n and any(len(p) > p.null_count for p in payloads):
            inline = pa.concat_arrays([p.cast(pa.large_binary()) for p in payloads])
            has = inline.is_valid().to_numpy(zero_copy_only=False)
            at[has] = len(s.store) + np.arange(int(has.sum()))
            s.store = pa.concat_arrays([s.store, inline.drop_null()])
        new[PAYLOAD] = at
        s.files = self._files(s, [s.waiting, new])
        return new

    def _keys(self, s: Shard, records: Records) -> tuple[Array, Array]:
        return wall.interned(
            s.parts["keys"], self.key, [records[column] for column in self.key], _BLANK
        )

    # -- judging -----------------------------------------------------------------------------

    def _play(self, s: Shard, batch: Batch) -> tuple[World, Out]:
        r, keys = batch.records, batch.keys
        timeline, place = common.timeline(
            s.shared,
            s.meaning,
            np.concatenate([keys["cluster"], r["cluster"]]),
            np.concatenate([keys["broker"], r["broker"]]),
            s.names,
        )
        feed, parts = self._feed(s, keys, r, batch.key, place[len(keys) :])
        chunks = int(((r["event_type"] == flow.DISPATCH) & (r["num_chunks"] > 1)).sum())
        chunks += len(feed.marker_ledger)
        acks = int((r["event_type"] == flow.ACK).sum())
        added = int(((r["event_type"] == flow.ENTRY_ADDED) & (r["num_chunks"] > 1)).sum())
        w = shards.unpack(
            parts,
            self.settings,
            s.next_order,
            Room(chunks, acks, chunks + added),
            timeline,
            place[: len(keys)],
            most_pending(self._pending, parts, s.names),
        )
        flow.prepare(w, batch.begin_ms)
        o = room_for_rows(w, None)
        at = np.int64(0)
        while True:
            at = flow.judge(w, o, feed, at)
            if at < 0:
                break
            marked = int(feed.marker_start[at + 1] - feed.marker_start[at])
            o = room_for_rows(w, o, marked + 1)
        at = np.int64(0)
        while True:
            at = flow.move_on(w, o, at, batch.next_ns, batch.next_broker)
            if at < 0:
                return w, o
            o = room_for_rows(w, o)

    def _feed(
        self, s: Shard, keys: Array, r: Records, key: Array, place: Array
    ) -> tuple[Feed, dict[str, Array]]:
        """Records as the kernel takes them, with the subscriptions and consumers they name; `place`
        is the broker of each."""
        n = length(r)
        kind = r["event_type"]
        chunked = r["num_chunks"] > 1
        shared = self._shared(s.names, r["sub_type"])
        start, ledger, entry = self._markers(s.names, r["marker_ids"], kind == flow.DISPATCH)
        marker = ~chunked & (np.diff(start) > 0)
        delivered = (kind == flow.DISPATCH) & (chunked | marker)
        opened = (kind == flow.CREATED) & self._hashed
        zero = np.zeros(n, np.int64)
        mark_ledger, mark_entry, marked = self._marks(s.names, r, kind == flow.CURSOR)
        subs, sub = wall.interned(
            s.parts["subs"],
            ("key", "name"),
            (key, r["subscription"]),
            _NEW_SUBSCRIPTION,
            delivered | (shared > 0) | opened | marked,
        )
        sub = np.where(r["subscription"] >= 0, sub, -1)
        consumers, consumer = wall.interned(
            s.parts["consumers"],
            ("sub", "name"),
            (sub, r["consumer"]),
            {
                "start_ms": NULL,
                "closed_ms": NULL,
                "used_ms": NULL,
                "passed_ms": NULL,
                "first": -1,
                "last": -1,
                "head": -1,
                "tail": -1,
                "next": -1,
            },
            delivered | opened,
        )
        consumer = np.where((sub >= 0) & (r["consumer"] >= 0), consumer, -1)
        fresh = slice(len(s.parts["consumers"]), None)
        consumers["key"][fresh] = subs["key"][consumers["sub"][fresh]]
        added = (kind == flow.ENTRY_ADDED) & chunked & (r["producer_name"] >= 0)
        producers, producer_row = wall.interned(
            s.parts["producers"],
            ("key", "name"),
            (key, r["producer_name"]),
            {"window_ms": NULL},
            added,
        )
        uuid = np.where(chunked, r["uuid"], -1)
        hashes, picks = self._hashes(s.names, uuid, n)
        sized = r["payload_bytes"] != NULL
        feed = Feed(
            key=key,
            kind=kind,
            at_ms=r["ts_wall_ms"],
            mono_ns=r["ts_mono_ns"],
            broker=r["broker"],
            place=place,
            feed=r["source_feed"],
            rank=SEQUENCE.ranks(r, s.shared, s.names),
            sub=sub,
            consumer=consumer,
            shared=shared,
            uuid=uuid,
            hash=hashes,
            chunk_id=r["chunk_id"],
            num_chunks=r["num_chunks"],
            declared=r["total_chunk_bytes"],
            size=np.where(sized, r["payload_bytes"], r["entry_bytes"]),
            crc=np.where(sized, r["payload_crc32"], zero),
            has_crc=sized.astype(np.int64),
            payload=r[PAYLOAD],
            file=r["payload_file"],
            row=r["payload_row"],
            ledger=r["ledger_id"],
            entry=r["entry_id"],
            publish_ms=r["publish_time_ms"],
            sequence_id=r["sequence_id"],
            producer=np.where(kind == flow.ENTRY_ADDED, producer_row, r["producer_name"]),
            entry_bytes=r["entry_bytes"],
            cumulative=(r["ack_cumulative"] == 1).astype(np.int64),
            mark_ledger=mark_ledger,
            mark_entry=mark_entry,
            marker_start=start,
            marker_ledger=ledger,
            marker_entry=entry,
            pick=picks,
        )
        feed = Feed(*[np.ascontiguousarray(column, np.int64) for column in feed])
        parts = {
            **s.parts,
            "keys": keys,
            "subs": subs,
            "consumers": consumers,
            "producers": producers,
        }
        return feed, parts

    def _shared(self, names: Names, sub_type: Array) -> Array:
        """By record whether its subscription is shared, -1 without a type."""
        value = np.full(len(names) + 1, -1, np.int64)
        for i in np.unique(sub_type[sub_type >= 0]).tolist():
            value[i] = names.get(i) == "shared"
        return value[sub_type]

    def _marks(self, names: Names, r: Records, cursor: Array) -> tuple[Array, Array, Array]:
        """Mark-delete of each record as ledger and entry, and which have one that may matter: those
        of a Pulsar topic."""
        ledger = np.full(length(r), NULL)
        entry = ledger.copy()
        marked = cursor & (r["mark_delete"] >= 0)
        topics, place = np.unique(r["topic"][marked], return_inverse=True)
        pulsar = np.array(["://" in names.get(i) for i in topics.tolist()], bool)
        marked[marked] = pulsar[place]
        distinct, place = np.unique(r["mark_delete"][marked], return_inverse=True)
        if len(distinct):
            texts = [names.get(i).split(":") for i in distinct.tolist()]
            ledger[marked], entry[marked] = np.array(texts, np.int64)[place].T
        return ledger, entry, marked

    def _markers(self, names: Names, ids: Array, dispatched: Array) -> tuple[Array, Array, Array]:
        """Where each record's positions begin, and all of them as ledgers and entries."""
        count = np.zeros(len(ids) + 1, np.int64)
        flat: list[tuple[int, int]] = []
        for i in np.flatnonzero((ids >= 0) & dispatched):
            text = names.get(int(ids[i]))
            pairs = [p.split(":") for p in text.split(",")] if text else []
            flat += [(int(a), int(b)) for a, b in pairs]
            count[i + 1] = len(pairs)
        both = np.array(flat, np.int64).reshape(-1, 2)
        return np.cumsum(count), both[:, 0].copy(), both[:, 1].copy()

    def _hashes(self, names: Names, uuid: Array, n: int) -> tuple[Array, Array]:
        """Per record the hash of its uuid and, for shared_mode=hash, what picks its consumer."""
        hashes, picks = np.zeros(n, np.int64), np.zeros(n, np.int64)
        has = uuid >= 0
        if has.any():
            distinct, position = np.unique(uuid[has], return_inverse=True)
            texts = names.lookup(distinct)
            hashes[has] = hash_strings(texts)[position]
            if self._hashed:
                one = np.array([mmh3.hash(t, 0, signed=False) for t in texts.to_pylist()], np.int64)
                picks[has] = one[position]
        return hashes, picks

    # -- payloads ----------------------------------------------------------------------------

    def _with_parts(self, table: pa.Table, rows: Rows, w: World, o: Out, s: Shard) -> pa.Table:
        """Completed messages with where their chunks are; null where none is to be assembled."""
        p = w.settings[0]
        messages, parts = o.messages[: p["messages"]], o.parts[: p["parts"]]
        wanted = (messages["has_crc"] != 0) & (rows.integrity(messages) != TOO_LARGE)
        offsets = np.concatenate([[0], np.cumsum(messages["parts"])])
        ids = np.where(parts["file"] >= 0, parts["file"], -1)
        places = np.where(parts["payload"] >= 0, parts["payload"], -1)
        columns = (
            s.names.lookup(ids),
            pa.array(parts["row"]),
            s.store.take(pa.array(places, mask=places < 0)),
        )
        for name, values in zip(PARTS, columns, strict=True):
            table = table.append_column(
                name, pa.LargeListArray.from_arrays(offsets, values, mask=pa.array(~wanted))
            )
        return table

    def _files(self, s: Shard, records: Sequence[Records]) -> Array:
        """Staged files that the state and these records refer to, once per row; a chunk that a
        marker has brought is in two places."""
        nodes, held = s.parts["nodes"], s.parts["held"]
        files = np.concatenate([nodes["file"], held["file"], *(r["payload_file"] for r in records)])
        staged = files >= 0
        if not staged.any():
            return files[staged]
        rows = np.concatenate([nodes["row"], held["row"], *(r["payload_row"] for r in records)])
        order = np.lexsort((rows[staged], files[staged]))
        files, rows = files[staged][order], rows[staged][order]
        first = np.ones(len(files), bool)
        first[1:] = (files[1:] != files[:-1]) | (rows[1:] != rows[:-1])
        return files[first]

    def _released(self, s: Shard) -> pa.Table | None:
        """Number of rows of each staged file that nothing refers to any more."""
        if not len(s.files):
            return None
        after = self._files(s, [s.waiting])
        many = len(s.names)
        gone = np.bincount(s.files, minlength=many) - np.bincount(after, minlength=many)[:many]
        files = np.flatnonzero(gone > 0)
        if not len(files):
            return None
        return pa.table({"file": s.names.lookup(files), "rows": pa.array(gone[files])})

    def _spill(self, s: Shard) -> None:
        """Move payloads to a file: of consumers that keep too many, of too many waiting records,
        and of all consumers if the shard keeps too many.
        """
        if self._stage is None or not len(s.store):
            return
        nodes, held, waiting = s.parts["nodes"], s.parts["held"], s.waiting
        lengths = np.append(pc.binary_length(s.store).to_numpy(), 0)
        owner = s.parts["contexts"]["consumer"][nodes["next"]]
        inline = nodes[PAYLOAD] >= 0
        size = np.where(inline, lengths[nodes[PAYLOAD]], 0)
        total = np.bincount(owner, size, minlength=len(s.parts["consumers"]))
        full = int(total.sum()) > self._max_shard_bytes
        many = inline & (full | (total[owner] > self._max_bytes))
        loose = sum(int(lengths[at][at >= 0].sum()) for at in (held[PAYLOAD], waiting[PAYLOAD]))
        if loose > self._max_bytes:
            groups: list[tuple[Any, Array]] = [
                (nodes, many),
                (held, held[PAYLOAD] >= 0),
                (waiting, waiting[PAYLOAD] >= 0),
            ]
        else:
            groups = [(nodes, many)]
        picked = [np.flatnonzero(mask) for _, mask in groups]
        if not sum(len(p) for p in picked):
            return
        places = np.concatenate([g[PAYLOAD][p] for (g, _), p in zip(groups, picked, strict=True)])
        file = self._stage(self._staged_rows(s, groups, picked, places))
        name, row = s.names.intern_one(file), 0
        for (group, _), rows in zip(groups, picked, strict=True):
            is_record = group is waiting
            group["payload_file" if is_record else "file"][rows] = name
            group["payload_row" if is_record else "row"][rows] = np.arange(row, row + len(rows))
            group[PAYLOAD][rows] = -1
            row += len(rows)

    def _staged_rows(
        self, s: Shard, groups: list[tuple[Any, Array]], picked: list[Array], places: Array
    ) -> pa.Table:
        """Rows of chunk_payloads for the picked elements of each group."""
        keys, consumers, contexts = (s.parts[n] for n in ("keys", "consumers", "contexts"))
        clusters, topics, ledgers, entries = [], [], [], []
        for (group, _), rows in zip(groups, picked, strict=True):
            if group is s.waiting:
                clusters.append(group["cluster"][rows])
                topics.append(group["topic"][rows])
                ledgers.append(group["ledger_id"][rows])
                entries.append(group["entry_id"][rows])
                continue
            if group is s.parts["nodes"]:
                key = consumers["key"][contexts["consumer"][group["next"][rows]]]
            else:
                key = group["key"][rows]
            clusters.append(keys["cluster"][key])
            topics.append(keys["topic"][key])
            ledgers.append(group["ledger"][rows])
            entries.append(group["entry"][rows])
        return pa.table(
            {
                "cluster": s.names.lookup(np.concatenate(clusters)),
                "topic": s.names.lookup(np.concatenate(topics)),
                "ledger_id": pa.array(np.concatenate(ledgers)),
                "entry_id": pa.array(np.concatenate(entries)),
                "payload": s.store.take(pa.array(places)).cast(pa.binary()),
            }
        )


_BLANK: dict[str, Any] = {
    **dict.fromkeys(
        (
            "clock_ms",
            "latest_ms",
            "plan_ms",
            "last_ms",
            "last_ns",
            "due_ms",
            "row_ms",
            "message_ms",
            "added_ledger",
        ),
        NULL,
    ),
    **dict.fromkeys(("broker", "feed", "first_consumer"), L.NOBODY),
}
"""Fields of a new key."""
_NEW_SUBSCRIPTION: dict[str, Any] = {
    **dict.fromkeys(
        ("last_chunk_ms", "mark_ledger", "told_ledger", "told_ms", "sent_ledger", "sent_ms"), NULL
    ),
    "number": L.NOBODY,
}


def room_for_rows(w: World, old: Out | None, chunks: int = 1) -> Out:
    """Make room for at least one more step: arrays that are short get twice what the step needs."""
    p = w.settings[0]
    more = int(p["contexts"] + p["held"]) + int(flow.ROWS_PER_CHUNK) * (chunks + 2)
    need = {
        "rows": int(p["rows"]) + more,
        "positions": int(p["positions"] + p["nodes"] + p["contexts"]) + more,
        "messages": int(p["messages"]) + chunks + 2,
        "parts": int(p["parts"] + p["nodes"]) + chunks + 2,
        "levels": int(p["levels"] + p["consumers"]) + 1,
        "missing": int(p["missing"] + p["contexts"] + p["listing"]) + 1,
        "windows": int(p["windows"]) + 2,
    }
    arrays: dict[str, Array] = {}
    for name, _, layout in _FIELDS:
        have = getattr(old, name) if old is not None else np.zeros(0, layout)
        if need[name] > len(have):
            have = grown(have, 2 * need[name] + 64)
        arrays[name] = have
    pairs = {"positions": need["positions"], "gone": int(p["gone"] + p["listing_gone"])}
    for name, wanted in pairs.items():
        have = getattr(old, name) if old is not None else np.zeros((0, 2), np.int64)
        arrays[name] = grown(have, 2 * wanted + 64) if wanted > len(have) else have
    return Out(**arrays)
