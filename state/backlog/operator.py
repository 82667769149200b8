"""The stateful operator `backlog`: size, age and quota of topic backlogs (PIP-323).

Key: (cluster, topic), a partition being a topic of its own. Clock: wall time. State: ledgers,
cursors, times of entries and producers of topics, the cached oldest message, policies and broker
starts, waiting records. Timers: passes at the multiples of the interval. Tables: `backlog_checks`,
`backlog_evictions`, `backlog_subscriptions`, `producer_refusals` and its late or repeated records
for `quarantine`.

Every `policy` holds for all of its cluster and `broker_started` for the topics whose last record is
from that broker, so every shard must be given them; one copy is at `home` and reports a repetition.

Memory of a shard before compression: for each topic 232 bytes (160 more while a batch is judged)
and 8 for each of `forecast_checks`; for each cursor 112 bytes (80 more), 16 for each of
`forecast_checks` and 24 for each range of entries acknowledged one by one, of which a cursor keeps
at most 10,000; for each ledger 32 bytes (16 more); for each sample of the times of entries 32, of
which a topic keeps those since the oldest entry that a cursor still needs, at most 4 for each
second in which records came; for each producer 16. Pools are up to four times as large while a
batch is judged. All of it is forgotten by events and, for samples, at each pass; a topic is
forgotten once it has none of these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numba
import numpy as np
import pyarrow.compute as pc

from state.backlog import flow, resting
from state.backlog import layout as L
from state.backlog import shard as shards
from state.backlog import shared as common
from state.backlog.layout import NULL, Array, Feed, Out, World
from state.backlog.rows import Rows
from state.backlog.sequence import COLUMNS, SEQUENCE
from state.backlog.shard import NAME, Shard
from state.engine import standing, wall
from state.engine.job import Step
from state.engine.names import NONE, Names
from state.engine.records import Records, concat, empty, length, read_blob, take
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.events import WALL
from udfs.hashing import hash64

CHECKS = "forecast_checks"
DEFAULTS: dict[str, Any] = {
    "backlogQuotaCheckEnabled": True, "backlogQuotaCheckIntervalInSeconds": 60,
    "backlogQuotaDefaultRetentionPolicy": L.POLICIES[0],
    "preciseTimeBasedBacklogQuotaCheck": False,
}
"""Settings of a broker that neither the parameters nor a policy set."""
_KEY = "key"
"""Column of records while they are put in order: the place of their key."""
_PARTITION = r"-partition-\d+$"
_NAMESPACE = r"^[a-z-]+://(?P<namespace>[^/]+/[^/]+)/"
_NEVER = "non-persistent://"
_ZERO, _NINE, _COLON, _MINUS = (np.uint8(ord(c)) for c in "09:-")


class Backlog:
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    version = shards.VERSION
    key = ("cluster", "topic")
    everywhere: tuple[str, ...] = ("policy", "broker_started")
    clock = WALL
    tables = (
        "backlog_checks", "backlog_evictions", "backlog_subscriptions", "producer_refusals",
    )
    columns = COLUMNS

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ms = int(params["allowed_lateness_ms"])
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._policies = tuple({common.source_of(text): text for text in policies}.values())
        self._checks = int(params.get(CHECKS, 10))
        self._base = common.settings_of({**DEFAULTS, **params})

        def chosen(name: str, value: str) -> int:
            return int(params.get(name) == value)

        self._settings = {
            "ledger_sum": chosen("size_estimate", "ledger_sum"),
            "quota_only": chosen("age_without_quota", "quota_only"),
            "keep": chosen("age_reset", "keep"), "zero": chosen("age_when_empty", "zero"),
            "every_call": 1 - chosen("eviction_count_rule", "evicted_only"),
            "apply": int(bool(params.get("apply_evictions", False))),
            "all_rows": chosen("check_rows", "all"),
        }
        self._hash = hash64(repr((self._base, self._settings)))

    def step(self, state: bytes | None, blobs: Sequence[bytes], stream_ms: int) -> Step:
        """Judge a batch of one shard; see `state.engine.job`."""
        s = shards.read(state, self._checks) if state else shards.new(self._checks)
        refused = Refused(NAME)
        parts = [read_blob(blob, s.names, COLUMNS) for blob in blobs]
        records = concat(parts) if parts else empty(COLUMNS)
        is_shared = (records["event_type"] == POLICY) | (
            records["event_type"] == common.STARTED
        )
        own = take(records, ~is_shared)
        anew = s.config != self._policies or s.settings != self._hash
        resting.wake(s, own, stream_ms, everything=anew or bool(is_shared.any()))
        s.settings = self._hash
        self._take_shared(s, take(records, is_shared), stream_ms, refused)
        both = concat([s.waiting, own])
        is_new = np.zeros(length(both), bool)
        is_new[length(s.waiting):] = True
        keys, key = _keys_of(s.parts["keys"], both, s.names)
        both = {**both, _KEY: key}
        begin_ms = np.where(keys["has_clock"] != 0, keys["clock_ms"], NULL)
        judged, key, waiting = wall.admit(
            keys, key, both, is_new, stream_ms, self._lateness_ms, self._idle_advance_ms,
            COLUMNS, s.names, refused, SEQUENCE.ordered,
        )
        waits = waiting.pop(_KEY)
        judged.pop(_KEY)
        w, o = self._play(
            s, keys, begin_ms, judged, key, wall.first_waiting(len(keys), waits, waiting)
        )
        tables = Rows(w, o, judged, s.names).tables()
        quarantine = refused.table(s.names)
        if quarantine is not None:
            tables["quarantine"] = quarantine
        s.parts, due = shards.pack(w, stream_ms)
        s.waiting = waiting
        needed = common.needed(s.shared, s.meaning, stream_ms)
        if not needed.all():
            s.shared, s.meaning = take(s.shared, needed), s.meaning[needed]
        due = resting.rest(s, due, stream_ms)
        first = resting.first_due(s.resting, due)
        return Step(
            shards.write(s), tables, _wake(waiting, first), refused.needed_idle_advance_ms
        )

    # -- policies ----------------------------------------------------------------------------

    def _take_shared(
        self, s: Shard, records: Records, stream_ms: int, refused: Refused
    ) -> None:
        """Policies and starts that came, and what has changed in the configuration."""
        if s.config is None:
            texts, at_ms = list(self._policies), int(NULL)
        else:
            texts = standing.changes(s.config, self._policies, common.source_of)
            clocks = s.parts["keys"]["clock_ms"][s.parts["keys"]["has_clock"] != 0]
            at_ms = max(stream_ms, int(clocks.min())) if len(clocks) else stream_ms
        s.config = self._policies
        if texts:
            documents = standing.configured(texts, at_ms, s.shared, SEQUENCE, s.names)
            records = concat([documents, records]) if length(records) else documents
        s.shared, s.meaning = common.merged(s.shared, s.meaning, records, s.names, refused)

    # -- judging -----------------------------------------------------------------------------

    def _play(
        self, s: Shard, keys: Array, begin_ms: Array, r: Records, key: Array,
        following: tuple[Array, Array],
    ) -> tuple[World, Out]:
        places, place = _places(
            np.concatenate([keys["cluster"], r["cluster"]]),
            np.concatenate([keys["broker"], r["broker"]]),
        )
        timeline = common.timeline(s.shared, s.meaning, keys, places, s.names, self._base)
        settings = {**self._settings, "deduplication": s.names.intern_one(L.DEDUPLICATION)}
        w = shards.unpack({**s.parts, "keys": keys}, settings, s.names, timeline,
                          place[: len(keys)])
        feed = _feed(r, key, place[len(keys):], SEQUENCE.ranks(r, s.shared, s.names), w)
        flow.prepare(w, begin_ms)
        o = _more_rows(w, None)
        at = np.int64(0)
        while True:
            at = flow.judge(w, o, feed, at, *following)
            if at < 0:
                return w, o
            w, o = shards.more_room(w), _more_rows(w, o)


def _wake(waiting: Records, due_ms: int | None) -> int | None:
    """The first wall time of the stream at which a shard would do something by itself."""
    times = [] if due_ms is None else [due_ms]
    if length(waiting):
        times.append(int(waiting["ts_wall_ms"].min()))
    return max(min(times), 0) if times else None


def _keys_of(keys: Array, r: Records, names: Names) -> tuple[Array, Array]:
    """The keys of a shard, those of new records included, and the key of each record."""
    n, count = length(r), len(keys)
    if not n:
        return keys, np.zeros(0, np.int64)
    known = np.zeros((count + n, 3), np.int64)
    known[:count, 0], known[:count, 1] = keys["cluster"], keys["topic"]
    found = np.empty(n, np.int64)
    made = wall.intern_tuples(
        known, count, r["cluster"], r["topic"], np.zeros(n, np.int64), np.ones(n, bool), found
    )
    if made == count:
        return keys, found
    fresh = np.zeros(made - count, L.KEY)
    fresh["cluster"], fresh["topic"] = known[count:made, 0], known[count:made, 1]
    for field in ("clock_ms", "latest_ms", "last_ms", "last_ns", "seen_ledger", "woken_ms"):
        fresh[field] = NULL
    for field in ("broker", "feed", "cached_name"):
        fresh[field] = NONE
    topics = names.lookup(fresh["topic"])
    whole = pc.replace_substring_regex(topics, _PARTITION, "")
    fresh["base"] = np.where(
        pc.starts_with(topics, _NEVER).to_numpy(zero_copy_only=False), L.NOBODY,
        names.intern(whole),
    )
    namespaces = pc.struct_field(pc.extract_regex(whole, _NAMESPACE), "namespace")
    fresh["namespace"] = names.intern(namespaces)
    return np.concatenate([keys, fresh]), found


def _places(cluster: Array, broker: Array) -> tuple[Array, Array]:
    """Clusters and brokers, and which of them each pair is."""
    n = len(cluster)
    known, place = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
    count = wall.intern_tuples(
        known, 0, cluster, broker, np.zeros(n, np.int64), np.ones(n, bool), place
    )
    return known[:count], place


@numba.njit(cache=True, nogil=True)
def _parse(ids: Array, text: Array, start: Array, ledger: Array, entry: Array) -> None:
    """Ledgers and entries of positions that are written out, NULL where there is none."""
    for i in range(len(ids)):
        if ids[i] < 0:
            ledger[i], entry[i] = NULL, NULL
            continue
        value, sign = np.int64(0), np.int64(1)
        for at in range(start[ids[i]], start[ids[i] + 1]):
            c = text[at]
            if c == _COLON:
                ledger[i] = sign * value
                value, sign = np.int64(0), np.int64(1)
            elif c == _MINUS:
                sign = np.int64(-1)
            elif _ZERO <= c <= _NINE:
                value = value * 10 + np.int64(c - _ZERO)
        entry[i] = sign * value


def _feed(r: Records, key: Array, place: Array, rank: Array, w: World) -> Feed:
    """Records as the kernel takes them."""
    kind = r["event_type"]
    moves, acks = kind == flow.CURSOR_STATE, kind == flow.ACK
    ledger, entry = np.empty(len(key), np.int64), np.empty(len(key), np.int64)
    _parse(np.where(moves, r["mark_delete"], NONE), w.store.text, w.store.text_start, ledger, entry)
    subscribes = moves | acks | (kind == flow.CURSOR_DELETED)
    columns = (
        key, kind, r["ts_wall_ms"], r["ts_mono_ns"], r["broker"], place, r["source_feed"], rank,
        np.where(moves, ledger, r["ledger_id"]), np.where(moves, entry, r["entry_id"]),
        np.where(kind == flow.LEDGER_STATE, r["ledger_bytes"], r["entry_bytes"]),
        r["ledger_entries"], r["ledger_close_ms"], r["publish_time_ms"], r["broker_time_ms"],
        np.where(subscribes, r["subscription"], r["cnx_id"]),
        np.where(acks, r["ack_cumulative"] == 1, r["durable"] != 0), r["producer_id"],
    )
    return Feed(*[np.ascontiguousarray(column, np.int64) for column in columns])


def _more_rows(w: World, old: Out | None) -> Out:
    """Room for the rows of at least one more pass, and twice as much as before."""
    p = w.store.settings[0]
    cursors = int(w.store.spans[L.SLOTS, :, 1].max(initial=0))
    need = {
        "checks": (L.CHECK, int(p["checks"]) + 1),
        "evictions": (L.EVICTED, int(p["evictions"]) + cursors + 1),
        "subscriptions": (L.SUBSCRIPTION, int(p["subscriptions"]) + cursors),
        "refusals": (L.REFUSAL, int(p["refusals"]) + 1),
    }
    arrays = {}
    for name, (layout, rows) in need.items():
        have = np.zeros(0, layout) if old is None else getattr(old, name)
        if rows > len(have):
            have = np.concatenate([have, np.zeros(2 * rows - len(have) + 64, layout)])
        arrays[name] = have
    return Out(**arrays)
