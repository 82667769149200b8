"""The stateful operator `backlog`: size, age and quota of topic backlogs (PIP-323).

Key: (cluster, topic), a partition being a topic of its own. Clock: wall time. State: ledgers,
cursors, times of entries and producers of topics, the cached oldest message, policies and broker
starts, waiting records. Timers: passes at the multiples of the interval. Tables: `backlog_checks`,
`backlog_evictions`, `backlog_subscriptions`, `producer_refusals`, `group_lag`, `group_states`,
`lost_messages` and its late or repeated records for `quarantine`.

Every `policy` holds for all of its cluster and `broker_started` for the topics whose last record is
from that broker, so every shard must be given them; one copy is at `home` and reports a repetition.
A topic without a scheme is a partition of Kafka, judged by `state.backlog.groups`.

Memory of a shard before compression: for each topic 280 bytes (130 more while a batch is judged)
and 8 for each of `forecast_checks`; for each cursor 312 bytes (100 more), 16 for each of
`forecast_checks` and 24 for each range of entries acknowledged one by one, of which a cursor keeps
at most 10,000; for each ledger 32 bytes (16 more); for each sample of the times of entries 32, of
which a topic keeps those since the oldest entry that a cursor still needs, at most 4 for each
second in which records came; for each producer 24 (30 more). Pools and tables are up to four times
as large while a batch is judged. All of it is forgotten by events and, for samples, at each pass; a topic is
forgotten once it has none of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.backlog import flow, resting
from state.backlog import layout as L
from state.backlog import outputs as O
from state.backlog import shard as shards
from state.backlog import shared as common
from state.backlog.declaration import COLUMNS, DECLARATION, NAME
from state.backlog.layout import NULL, Array, BacklogRecord, Out, Store, World
from state.backlog.rows import tables as tables_of
from state.backlog.sequence import SEQUENCE
from state.backlog.shard import Shard
from state.engine import broker_changes
from state.engine.documents import Configured, parsed
from state.engine.feed import fed
from state.engine.kernel import Int
from state.engine.names import NONE, Names
from state.engine.reach import Reach
from state.engine.records import Records
from state.engine.structs import grown
from state.engine.wall_job import Batch, SharedWallJob, least
from udfs.hashing import hash64
from udfs.topics import is_system_topic

CHECKS = "forecast_checks"
_PARTITION = r"-partition-\d+$"
_NAMESPACE = r"^[a-z-]+://(?P<namespace>[^/]+/[^/]+)/"
_NEVER = "non-persistent://"
_SCHEME = "://"
"""What a topic of Kafka lacks."""
_REPLICATORS = "pulsar.repl"
_CURSORS = pa.array([None, _REPLICATORS, "pulsar.dedup", "__compaction"], pa.string())
"""The names of cursors, by what they are for."""
_STATES = pa.array(L.GROUP_STATES, pa.string())
_ZERO, _NINE, _COLON, _MINUS = (np.uint8(ord(c)) for c in "09:-")


class Backlog(SharedWallJob[Shard]):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    key = DECLARATION.key
    row = L.BacklogTopic
    columns = COLUMNS
    order = SEQUENCE
    standing = common.POLICIES

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ms = int(params["allowed_lateness_ms"])
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._policies = Configured({parsed(text)[:2]: text for text in policies}.values())
        self._checks = int(params[CHECKS])
        self._base = common.settings_of(params)

        def chosen(name: str, value: str) -> int:
            return int(params[name] == value)

        self._settings = {
            "ledger_sum": chosen("size_estimate", "ledger_sum"),
            "quota_only": chosen("age_without_quota", "quota_only"),
            "keep": chosen("age_reset", "keep"),
            "zero": chosen("age_when_empty", "zero"),
            "every_call": chosen("eviction_count_rule", "every_call"),
            "apply": int(bool(params["apply_evictions"])),
            "all_rows": chosen("check_rows", "all"),
        }
        self._hash = hash64(repr((self._base, self._settings)))

    def _open(self, state: bytes | None) -> Shard:
        return shards.read(state, self._checks) if state else shards.new(self._checks)

    def _write(self, s: Shard) -> bytes:
        return shards.write(s)

    def _wake(self, s: Shard, own: Records, reach: Reach, changed: bool) -> None:
        changed |= s.settings != self._hash
        resting.wake(s, own, reach, self._idle_advance_ms, everything=changed)
        s.settings = self._hash

    def _keys(self, s: Shard, records: Records) -> tuple[Array, Array]:
        old = len(s.parts["keys"])
        keys, key = super()._keys(s, records)
        if len(keys) > old:
            _derive(keys[old:], s.names)
        return keys, key

    def _judge(self, s: Shard, batch: Batch, reach: Reach) -> dict[str, pa.Table]:
        w, o = self._play(s, batch)
        tables = tables_of(w, o, batch.records, s.names)
        s.parts, s.due_ms = shards.pack(w, reach.stays(batch.keys))
        return tables

    def _settle(self, s: Shard, tables: dict[str, pa.Table], reach: Reach) -> Iterable[int]:
        self._forget(s, reach)
        due = resting.rest(s, s.due_ms, reach)
        return [*least(s.resting.about["due_ms"]), *least(due)]

    def _play(self, s: Shard, batch: Batch) -> tuple[World, Out]:
        keys, r = batch.keys, batch.records
        places, place = broker_changes.places(
            np.concatenate([keys["cluster"], r["cluster"]]),
            np.concatenate([keys["broker"], r["broker"]]),
        )
        timeline = common.timeline(s.shared, s.meaning, keys, places, s.names, self._base)
        states = zip(L.STATE_FIELDS, s.names.intern(_STATES).tolist(), strict=True)
        w = shards.unpack(
            {**s.parts, "keys": keys},
            self._settings | dict(states),
            s.names,
            timeline,
            place[: len(keys)],
        )
        if len(batch.key):
            w = shards.more_room(w)
        rank = SEQUENCE.ranks(r, s.shared, s.names)
        records, store = _records(r, batch.key, place[len(keys) :], rank, s.names, w.store)
        w = w._replace(store=store)
        flow.prepare(w, batch.begin_ms)
        o = _more_rows(w, None)
        at = np.int64(0)
        while True:
            at = flow.judge(w, o, records, at, batch.next_ns, batch.next_broker)
            if at < 0:
                return w, o
            w, o = shards.more_room(w), _more_rows(w, o)


def _derive(fresh: Array, names: Names) -> None:
    """For new keys, the name of the topic in policies, and its namespace."""
    topics = pc.fill_null(names.lookup(fresh["topic"]), "")
    fresh["kafka"] = ~pc.match_substring(topics, _SCHEME).to_numpy(zero_copy_only=False)
    whole = pc.replace_substring_regex(topics, _PARTITION, "")
    fresh["policy_topic"] = np.where(
        pc.starts_with(topics, _NEVER).to_numpy(zero_copy_only=False),
        L.NOBODY,
        names.intern(whole),
    )
    namespaces = pc.struct_field(pc.extract_regex(whole, _NAMESPACE), "namespace")
    fresh["namespace"] = names.intern(namespaces)
    fresh["system"] = [is_system_topic(topic) for topic in topics.to_pylist()]


def _records(
    r: Records, key: Array, place: Array, rank: Array, names: Names, e: Store
) -> tuple[Array, Store]:
    """Records as the kernel reads them, and the store with the ranges that they state."""
    n, moves = len(key), np.flatnonzero(r["event_type"] == flow.CURSOR_STATE)
    ledger, entry, kind = r["ledger_id"].copy(), r["entry_id"].copy(), np.zeros(n, np.int64)
    kind[moves] = _kinds(r["subscription"][moves], names) if len(moves) else 0
    marks, begin, end = _rows_of(r["mark_delete"][moves], 2, e)
    known = end > begin
    ledger[moves] = entry[moves] = NULL
    ledger[moves[known]], entry[moves[known]] = marks[begin[known]].T
    acked, begin, end = _rows_of(r["acked_ranges"][moves], 3, e)
    states, ranges = r["acked_ranges"][moves] != NONE, np.full((2, n), NONE)
    ranges[:, moves[states]] = begin[states], end[states]
    records = fed(
        BacklogRecord,
        r,
        record=np.arange(n),
        key=key,
        place=place,
        rank=rank,
        kind=kind,
        ledger_id=ledger,
        entry_id=entry,
        ranges_begin=ranges[0],
        ranges_end=ranges[1],
    )
    return records, e._replace(acked=acked)


def _rows_of(texts: Array, width: int, e: Store) -> tuple[Array, Array, Array]:
    """The integers in some texts (names, -1: none) as rows of so many, and which rows each text has:
    the first one, and the one behind the last."""
    known = texts[texts >= 0]
    numbers = np.empty(int((e.text_start[known + 1] - e.text_start[known]).sum()), np.int64)
    ends = np.empty(len(texts), np.int64)
    _parse(texts, width, e.text, e.text_start, numbers, ends)
    end = ends // width
    rows = numbers[: int(ends.max(initial=0))].reshape(-1, width)
    return rows, np.append(np.zeros(1, np.int64), end)[:-1], end


@numba.njit(cache=True, nogil=True)
def _parse(
    texts: Array, width: Int, text: Array, start: Array, numbers: Array, ends: Array
) -> None:
    """Integers of texts, a multiple of `width` of each, and where those of each text end."""
    count = np.int64(0)
    for i in range(len(texts)):
        begin, value, sign, digits = count, np.int64(0), np.int64(1), False
        last = start[texts[i] + 1] if texts[i] >= 0 else np.int64(-1)
        for at in range(start[texts[i]] if texts[i] >= 0 else np.int64(0), last + 1):
            c = text[at] if at < last else _COLON
            if _ZERO <= c <= _NINE:
                value, digits = value * 10 + np.int64(c - _ZERO), True
            elif digits:
                numbers[count] = sign * value
                count, value, sign, digits = count + 1, np.int64(0), np.int64(1), False
            if c == _MINUS:
                sign = np.int64(-1)
        count -= (count - begin) % width
        ends[i] = count


def _kinds(subscription: Array, names: Names) -> Array:
    """What cursors of these names are for. Brokers refuse subscriptions that begin like a
    replicator."""
    distinct = np.flatnonzero(np.bincount(subscription[subscription >= 0]))
    texts, found = names.lookup(distinct), np.full(len(names) + 1, L.SUBSCRIPTION_KIND)
    kinds = pc.fill_null(pc.index_in(texts, _CURSORS), L.SUBSCRIPTION_KIND)
    found[distinct] = pc.if_else(pc.starts_with(texts, _REPLICATORS), int(L.REPLICATOR), kinds)
    of_each: Array = found[subscription]
    return of_each


def _more_rows(w: World, old: Out | None) -> Out:
    """Room for the rows of at least one more pass, and twice as much as before."""
    p = w.store.settings[0]
    cursors = int(w.store.links["cursors"].max(initial=0))
    need = {
        "checks": (O.CHECK, int(p["checks"]) + 1),
        "evictions": (O.EVICTED, int(p["evictions"]) + cursors + 1),
        "subscriptions": (O.SUBSCRIPTION, int(p["subscriptions"]) + cursors),
        "refusals": (O.REFUSAL, int(p["refusals"]) + 1),
        "lags": (O.GROUP_LAG, int(p["lags"]) + cursors + 1),
        "states": (O.GROUP_STATE, int(p["states"]) + 2 * cursors),
        "lost": (O.LOSS, int(p["lost"]) + 1),
    }
    arrays = {}
    for name, (layout, rows) in need.items():
        have = np.zeros(0, layout) if old is None else getattr(old, name)
        if rows > len(have):
            have = grown(have, 2 * rows + 64)
        arrays[name] = have
    return Out(**arrays)
