"""The stateful operator `producer_ids`: rate of new producer ids per user (KIP-936).

Key: (cluster, broker, user), where the user is what follows the first colon of `principal`. Clock:
wall time. State: filters, quota sensors and counted ids of users, policies and broker starts,
waiting records. Timers: window ends. Tables: `producer_id_decisions`, `producer_id_stats`,
`producer_id_owners` and its late or repeated records for `quarantine`.

`policy` and `broker_started` hold for every user of their broker (a policy of broker `*`, for all
of its cluster), so every shard must be given them; one copy is at `home` and reports a repetition.

Memory of a shard before compression: for each user 208 bytes (72 more while a batch is judged), 24
for each sample of its rate (at most `producer.id.quota.window.num` + 1) and, for each live filter,
40 bytes (up to 200 while a batch is judged) and its bits; up to 8 ids are listed in 8 bytes each instead.
A user has at most 3 live filters, with window_mode L as many as `producer.id.quota.window.count`
and one for each `bloom_items` ids. It is forgotten once it has no filter, no open window and a
sensor that is idle. With membership=exact each id in a live filter takes 8 bytes and each that was
counted within `producer.id.expiration.ms` 24; while a batch is judged, up to 56 each.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine import kafka_quota
from state.engine.documents import Configured
from state.engine.feed import fed
from state.engine.reach import Reach
from state.engine.records import Records, length
from state.engine.structs import grown
from state.engine.wall_job import Batch, SharedWallJob
from state.producer_ids import bloom, flow, quota
from state.producer_ids import layout as L
from state.producer_ids import shard as shards
from state.producer_ids import shared as common
from state.producer_ids.declaration import COLUMNS, DECLARATION, NAME, USER
from state.producer_ids.layout import Array, Out, User, UserRecord, World
from state.producer_ids.outputs import DECISION, OWNER, STATISTICS
from state.producer_ids.rows import tables as tables_of
from state.producer_ids.sequence import SEQUENCE
from state.producer_ids.shard import Shard
from udfs.users import user_of


class ProducerIds(SharedWallJob[Shard]):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    key = DECLARATION.key
    row = User
    columns = COLUMNS
    order = SEQUENCE
    standing = common.POLICIES

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ms = int(params["allowed_lateness_ms"])
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._window_ms = int(params["stats_window_ms"])
        self._policies = Configured(policies)
        exact = params["membership"] == "exact"
        items = int(params["bloom_items"])
        shape = (
            bloom.Shape(0, 0)
            if exact
            else bloom.shape_of(items, float(params["bloom_fpp"]), params["bloom_rounding"])
        )
        self._shape = (shape.bits, shape.hashes, int(exact))
        self._settings = {
            "mode": L.MODES.index(params["window_mode"]),
            "refresh": int(bool(params["refresh_on_hit"])),
            "exact": int(exact),
            "bits": shape.bits,
            "hashes": shape.hashes,
            "bits_words": shape.words,
            "listed_most": min(int(L.LISTED_MOST), shape.words // 2),
            "most_items": items,
            "enforcement": kafka_quota.ENFORCEMENTS.index(params["enforcement"]),
            "insert_rejected": int(bool(params["insert_rejected"])),
            "math": quota.MATHS.index(params["quota_math"]),
            "unit": quota.UNITS.index(params["rate_unit"]),
            "stat": kafka_quota.STATS.index(params["sampled_stat"]),
            "wraps": int("Q1" in params["defects"]),
            "unlimited": quota.UNLIMITED[params["unlimited_default"]],
            "window_ms": self._window_ms,
            "idle_ms": int(params["idle_state_ms"]),
        }
        self._broker = {
            field: min(int(params[key]), most)
            for field, (key, most) in zip(
                ("samples", "span_s", "layers", "expiration_ms"),
                common.BROKER_KEYS.items(),
                strict=True,
            )
        }

    def _open(self, state: bytes | None) -> Shard:
        s = shards.read(state)
        self._fit(s)
        return s

    def _write(self, s: Shard) -> bytes:
        return shards.write(s)

    def _fit(self, s: Shard) -> None:
        """Discard filters of another shape: every id is unseen again."""
        if s.shape != self._shape:
            fresh = shards.read(None).parts
            s.parts |= {name: fresh[name] for name in ("filters", "words", "ids", "counted")}
            s.shape = self._shape

    # -- records -----------------------------------------------------------------------------

    def _read(self, s: Shard, blobs: Sequence[bytes]) -> Records:
        records = super()._read(s, blobs)
        records[USER] = self._users(s, records["principal"])
        return records

    def _users(self, s: Shard, principal: Array) -> Array:
        """Names of users by those of principals."""
        user = np.full(len(s.names) + 1, -1, np.int64)
        marks = np.zeros(len(user), bool)
        marks[principal] = True
        distinct = np.flatnonzero(marks[:-1])
        if len(distinct):
            texts = s.names.lookup(distinct)
            user[distinct] = s.names.intern(user_of(texts))
        return user[principal]

    # -- judging -----------------------------------------------------------------------------

    def _judge(self, s: Shard, batch: Batch, reach: Reach) -> dict[str, pa.Table]:
        w, o = self._play(s, batch)
        tables = tables_of(w, o, batch.records, s.names)
        s.parts = shards.pack(w, reach.stays(batch.keys))
        return tables

    def _settle(self, s: Shard, tables: dict[str, pa.Table], reach: Reach) -> Iterable[int]:
        self._forget(s, reach)
        keys = s.parts["keys"]
        window = keys["window_ms"][keys["open"] != 0]
        if len(window):
            yield (int(window.min()) // self._window_ms + 1) * self._window_ms - 1

    def _play(self, s: Shard, batch: Batch) -> tuple[World, Out]:
        r, n = batch.records, length(batch.records)
        timeline = common.timeline(s.shared, s.meaning, batch.keys, s.names, self._broker)
        records = fed(
            UserRecord,
            r,
            record=np.arange(n),
            key=batch.key,
            rank=SEQUENCE.ranks(r, s.shared, s.names),
        )
        w = shards.unpack({**s.parts, "keys": batch.keys}, self._settings, timeline)
        flow.prepare(w, batch.begin_ms)
        o = Out(np.zeros(n, DECISION), np.zeros(n, OWNER), np.zeros(0, STATISTICS))
        at = np.int64(0)
        while at >= 0:
            w, o = shards.more_room(w), _more_stats(w, o)
            at = flow.judge(w, o, records, at)
        at = np.int64(0)
        while True:
            at = flow.move_on(w, o, at, batch.next_ns)
            if at < 0:
                return w, o
            o = _more_stats(w, o)


def _more_stats(w: World, o: Out) -> Out:
    used = int(w.settings[0]["stats"])
    if used < len(o.stats):
        return o
    return o._replace(stats=grown(o.stats, len(o.stats) + 2 * used + 64))
