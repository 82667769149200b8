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
from state.chunks.layout import NULL, Array, ChunkRecord, Out, World
from state.chunks.outputs import CLOSED, EVENT, LEVEL, MESSAGE, MISSING, TOO_LARGE
from state.chunks.pending import most_pending, rules_of
from state.chunks.rows import Rows
from state.chunks.sequence import SEQUENCE
from state.chunks.shard import PAYLOAD, Shard
from state.engine import wall
from state.engine.documents import Configured, Version
from state.engine.feed import fed
from state.engine.names import Names
from state.engine.payloads import PARTS, RELEASES
from state.engine.reach import Reach
from state.engine.records import Records, length, read_blobs
from state.engine.structs import grown
from state.engine.wall_job import Batch, SharedWallJob, least
from udfs.hashing import hash_strings

Stage = Callable[[pa.Table], str]
_KINDS = {
    "rows": EVENT,
    "messages": MESSAGE,
    "parts": L.BufferedChunk.dtype,
    "levels": LEVEL,
    "missing": MISSING,
    "windows": CLOSED,
}
"""Rows of `Out`."""


class Chunks(SharedWallJob[Shard]):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    key = DECLARATION.key
    row = L.ChunkTopic
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
            tables["chunk_messages"] = self._with_parts(tables["chunk_messages"], rows, s)
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
        window = keys["window"][keys["open"] != 0]
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
        begin, ids = self._ids(s.names, r)
        records, parts = self._feed(s, batch, place[len(keys) :], begin)
        w = shards.unpack(
            {**s.parts, **parts},
            self.settings,
            s.next_order,
            timeline,
            place[: len(keys)],
            most_pending(self._pending, parts, s.names),
            ids,
        )
        flow.prepare(w, batch.begin_ms)
        o = no_rows()
        at = flow.judge(w, o, records, np.int64(0))
        while at >= 0:
            w = shards.more_room(w, int(records["ids_end"][at] - records["ids_begin"][at]) + 1)
            o = more_rows(o)
            at = flow.judge(w, o, records, at)
        w.links["next_ns"], w.links["next_broker"] = batch.next_ns, batch.next_broker
        at = flow.move_on(w, o, np.int64(0))
        while at >= 0:
            o = more_rows(o)
            at = flow.move_on(w, o, at)
        return w, o

    def _feed(
        self, s: Shard, batch: Batch, place: Array, begin: Array
    ) -> tuple[Array, dict[str, Array]]:
        """Records as the kernel takes them, and the topics, subscriptions, consumers and producers of
        the shard, those that they name included; `place` is the broker of each, `begin` where the
        positions that it lists begin and, at the next, end."""
        r, key, kind = batch.records, batch.key, batch.records["event_type"]
        is_chunk = r["num_chunks"] > 1
        shared = self._shared(s.names, r["sub_type"])
        mark_ledger, mark_entry, marked = self._marks(s.names, r, kind == flow.CURSOR)
        seated = (kind == flow.DISPATCH) & (is_chunk | (np.diff(begin) > 0))
        seated |= (kind == flow.CREATED) & self._hashed
        subs, sub = _interned(s, "subs", (key, r["subscription"]), seated | (shared > 0) | marked)
        sub = np.where(r["subscription"] >= 0, sub, -1)
        consumers, consumer = _interned(s, "consumers", (sub, r["consumer"]), seated)
        consumers["key"] = subs["key"][consumers["sub"]]
        sends = (kind == flow.ENTRY_ADDED) & is_chunk & (r["producer_name"] >= 0)
        producers, sender = _interned(s, "producers", (key, r["producer_name"]), sends)
        uuid = np.where(is_chunk, r["uuid"], -1)
        hashes, picks = self._hashes(s.names, uuid, length(r))
        none = np.full(length(r), NULL)
        records = fed(
            ChunkRecord,
            r,
            key=key,
            place=place,
            rank=SEQUENCE.ranks(r, s.shared, s.names),
            sub=sub,
            consumer=np.where((sub >= 0) & (r["consumer"] >= 0), consumer, -1),
            shared=shared,
            uuid=uuid,
            hash=hashes,
            pick=picks,
            sender=sender,
            mark_ledger=mark_ledger,
            mark_entry=mark_entry,
            marker_ledger=none,
            marker_entry=none,
            ids_begin=begin[:-1],
            ids_end=np.where(is_chunk, begin[:-1], begin[1:]),
        )
        parts = {"keys": batch.keys, "subs": subs, "consumers": consumers, "producers": producers}
        return records, parts

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

    def _ids(self, names: Names, r: Records) -> tuple[Array, Array]:
        """Where the positions that each delivered marker lists begin, and all of them."""
        count = np.zeros(length(r) + 1, np.int64)
        flat: list[list[str]] = []
        for i in np.flatnonzero((r["marker_ids"] >= 0) & (r["event_type"] == flow.DISPATCH)):
            text = names.get(int(r["marker_ids"][i]))
            pairs = [p.split(":") for p in text.split(",")] if text else []
            flat += pairs
            count[i + 1] = len(pairs)
        return np.cumsum(count), np.array(flat, np.int64).reshape(-1, 2)

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

    def _with_parts(self, table: pa.Table, rows: Rows, s: Shard) -> pa.Table:
        """Completed messages with where their chunks are; null where none is to be assembled."""
        messages, parts = rows.emitted.messages, rows.emitted.parts
        wanted = (messages["has_crc"] != 0) & (rows.integrity(messages) != TOO_LARGE)
        offsets = np.concatenate([[0], np.cumsum(messages["parts"])])
        ids = np.where(parts["payload_file"] >= 0, parts["payload_file"], -1)
        places = np.where(parts["payload"] >= 0, parts["payload"], -1)
        columns = (
            s.names.lookup(ids),
            pa.array(parts["payload_row"]),
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
        every: list[Any] = [s.parts["buffered"], s.parts["held"], *records]
        files = np.concatenate([r["payload_file"] for r in every])
        staged = files >= 0
        if not staged.any():
            return files[staged]
        rows = np.concatenate([r["payload_row"] for r in every])
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
        buffered, held, waiting = s.parts["buffered"], s.parts["held"], s.waiting
        lengths = np.append(pc.binary_length(s.store).to_numpy(), 0)
        owner = s.parts["contexts"]["consumer"][buffered["context"]]
        inline = buffered[PAYLOAD] >= 0
        size = np.where(inline, lengths[buffered[PAYLOAD]], 0)
        total = np.bincount(owner, size, minlength=len(s.parts["consumers"]))
        full = int(total.sum()) > self._max_shard_bytes
        many = inline & (full | (total[owner] > self._max_bytes))
        loose = sum(int(lengths[at][at >= 0].sum()) for at in (held[PAYLOAD], waiting[PAYLOAD]))
        if loose > self._max_bytes:
            groups: list[tuple[Any, Array]] = [
                (buffered, many),
                (held, held[PAYLOAD] >= 0),
                (waiting, waiting[PAYLOAD] >= 0),
            ]
        else:
            groups = [(buffered, many)]
        picked = [np.flatnonzero(mask) for _, mask in groups]
        if not sum(len(p) for p in picked):
            return
        places = np.concatenate([g[PAYLOAD][p] for (g, _), p in zip(groups, picked, strict=True)])
        file = self._stage(self._staged_rows(s, groups, picked, places))
        name, row = s.names.intern_one(file), 0
        for (group, _), rows in zip(groups, picked, strict=True):
            group["payload_file"][rows] = name
            group["payload_row"][rows] = np.arange(row, row + len(rows))
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
            else:
                key = (
                    consumers["key"][contexts["consumer"][group["context"][rows]]]
                    if group is s.parts["buffered"]
                    else group["key"][rows]
                )
                clusters.append(keys["cluster"][key])
                topics.append(keys["topic"][key])
            ledgers.append(group["ledger_id"][rows])
            entries.append(group["entry_id"][rows])
        return pa.table(
            {
                "cluster": s.names.lookup(np.concatenate(clusters)),
                "topic": s.names.lookup(np.concatenate(topics)),
                "ledger_id": pa.array(np.concatenate(ledgers)),
                "entry_id": pa.array(np.concatenate(entries)),
                "payload": s.store.take(pa.array(places)).cast(pa.binary()),
            }
        )


def _interned(s: Shard, name: str, values: Sequence[Array], create: Array) -> tuple[Array, Array]:
    """The rows of a part, with new ones for identities that it does not have (where `create` is
    true), and the place of each identity, -1 without one."""
    return wall.interned(shards.STANDING[name], s.parts[name], values, create)


def no_rows() -> Out:
    """No rows, and no room for any."""
    pairs = np.zeros((0, 2), np.int64)
    return Out(
        used=L.Lengths.blank.copy(),
        need=L.Lengths.blank.copy(),
        positions=pairs,
        gone=pairs,
        **{name: np.zeros(0, kind) for name, kind in _KINDS.items()},
    )


def more_rows(o: Out) -> Out:
    """Make room for the step for which there was none: arrays that are short get twice what it
    needs."""
    need = {name: int(o.need[name][0]) for name in L.Lengths.fields}
    return o._replace(
        **{
            name: grown(getattr(o, name), 2 * count + 64)
            for name, count in need.items()
            if count > len(getattr(o, name))
        }
    )
