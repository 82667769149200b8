"""The stateful operator `client_quotas`: Kafka's own quotas on clients.

Key: (cluster, broker), since brokers judge alone and a limit may be shared by users and clients.
Clock: wall time. State: clocks of brokers, the sensors of entities, open windows of statistics and
use, policies and broker starts, waiting records. Timers: window ends. Tables:
`client_quota_decisions`, `client_quota_verdicts` (extra), `client_quota_stats`, `client_usage` and
its late or repeated records for `quarantine`.

Memory of a shard before compression: for each sensor, a type of an entity that was charged within
`idle_state_ms`, 88 bytes, and 24 for each of its samples (at most `quota_window_num` + 1) while one
of them has not expired; for each entity of an open window 144 bytes, and 96 for each user, client,
api and topic in it. While a batch is judged, a sensor has room for all of its samples. What an idle
entity has is passed on unread (`state.client_quotas.resting`). A broker is kept for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.client_quotas import flow, resting
from state.client_quotas import layout as L
from state.client_quotas import shard as shards
from state.client_quotas.declaration import COLUMNS, DECLARATION, NAME
from state.client_quotas.layout import NULL, Array, Out, QuotaRecord, World
from state.client_quotas.outputs import DECISIONS, VERDICT, VERDICT_ROWS
from state.client_quotas.rows import close_windows
from state.client_quotas.sequence import SEQUENCE
from state.client_quotas.shard import Shard
from state.client_quotas.shared import KINDS, LIMITS
from state.client_quotas.topics import TopicBytes, topics_of
from state.engine import kafka_quota, wall
from state.engine.documents import Configured
from state.engine.emitted import Emitted
from state.engine.feed import fed
from state.engine.reach import Reach
from state.engine.records import length
from state.engine.wall_job import Batch, SharedWallJob, least
from state.events import EVERY_BROKER, KIND_INDEX, QUOTA_TYPES

_RATE = KIND_INDEX["client_rate"]
_NAMES = pa.array(["", EVERY_BROKER, *L.APIS, *QUOTA_TYPES], pa.string())


class ClientQuotas(SharedWallJob[Shard]):
    """See the module; one instance serves all shards and keeps nothing between calls."""

    name = NAME
    key = DECLARATION.key
    row = L.QuotaBroker
    columns = COLUMNS
    order = SEQUENCE
    standing = LIMITS

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        """`params` are the job's resolved parameters, `policies` the configured documents as
        JSON."""
        self._lateness_ms = int(params["allowed_lateness_ms"])
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._period_ms = int(params["stats_window_ms"])
        self._usage_rows = int(params["usage_rows"])
        self._verdicts = VERDICT_ROWS.name in params["extra_outputs"]
        self._policies = Configured(policies)
        self._strict = params["controller_enforcement"] == "strict"
        self._settings = {
            "samples": int(params["quota_window_num"]),
            "window_ms": int(params["quota_window_ms"]),
            "mutation_samples": int(params["controller_window_num"]),
            "mutation_window_ms": int(params["controller_window_ms"]),
            "stat": kafka_quota.STATS.index(params["sampled_stat"]),
            "wraps": int("Q1" in params["defects"]),
            "forgets": KINDS.index(params["quota_kinds"]),
            "reports": int(params["broker_reports"] == "use"),
            "idle_ms": int(params["idle_state_ms"]),
            "period_ms": self._period_ms,
            "verdicts_too": int(self._verdicts),
            "stride": 1 + max(int(params[f"{of}_window_num"]) for of in ("quota", "controller")),
        }

    def _open(self, state: bytes | None) -> Shard:
        return shards.read(state)

    def _write(self, s: Shard) -> bytes:
        return shards.write(s)

    # -- judging -----------------------------------------------------------------------------

    def _judge(self, s: Shard, batch: Batch, reach: Reach) -> dict[str, pa.Table]:
        records, pairs, topics = self._feed(s, batch)
        resting.wake(s, pairs, batch.keys, batch.begin_ms, self._settings)
        w, o = self._play(
            self.world(s, batch.keys, pairs)._replace(topic=topics.topic, topic_bytes=topics.bytes),
            records,
            batch,
        )
        p, of = w.settings[0], Emitted(s.names, records=batch.records)
        rows = ((DECISIONS, o.decisions, "decisions"), (VERDICT_ROWS, o.verdicts, "verdicts"))
        tables = {out.name: of.table(out, all_[: p[n]]) for out, all_, n in rows if p[n]}
        s.parts = shards.pack(w)
        tables |= close_windows(s, self._period_ms, self._usage_rows)
        resting.rest(s, pairs)
        return tables

    def _settle(self, s: Shard, tables: dict[str, pa.Table], reach: Reach) -> Iterable[int]:
        self._forget(s, reach)
        open_ = s.resting.about["window"], *(s.parts[name]["window"] for name in ("stats", "usage"))
        for window in open_:
            for first in least(window):
                yield (first // self._period_ms + 1) * self._period_ms - 1

    def world(self, s: Shard, keys: Array, pairs: Array) -> World:
        """What the kernel takes of a shard, whose brokers are `keys`, and of the pairs (broker, user,
        client id) of a batch; see `shards.pack`."""
        empty, everywhere, *_ = s.names.intern(_NAMES).tolist()
        return shards.unpack(
            {**s.parts, "keys": keys},
            {**self._settings, "empty": empty, "everywhere": everywhere},
            pairs,
            shards.limits_of(s.shared, s.meaning, empty),
        )

    def _play(self, w: World, records: Array, batch: Batch) -> tuple[World, Out]:
        flow.prepare(w, batch.begin_ms)
        n = len(records)
        o = Out(
            np.zeros(n, VERDICT),
            np.zeros(n if self._verdicts else 0, VERDICT),
            np.zeros(1, VERDICT),
        )
        at = flow.judge(w, o, records, np.int64(0))
        while at >= 0:
            w = shards.more_room(w, int(records["topics_end"][at] - records["topics_begin"][at]))
            at = flow.judge(w, o, records, at)
        flow.move_on(w)
        return w, o

    def _feed(self, s: Shard, batch: Batch) -> tuple[Array, Array, TopicBytes]:
        """The records as the kernel takes them, and their brokers, users and clients."""
        empty, _, *others = s.names.intern(_NAMES).tolist()
        r, n = batch.records, length(batch.records)
        apis, types = others[: len(L.APIS)], others[len(L.APIS) :]
        rate = r["event_type"] == _RATE
        principal, client = (np.where(r[c] < 0, empty, r[c]) for c in ("principal", "client_id"))
        user = np.where(rate, principal, shards.users_of(s.names, principal))
        known, pair = np.zeros((n, 3), np.int64), np.empty(n, np.int64)
        key = np.ascontiguousarray(batch.key, np.int64)
        count = wall.intern_tuples(known, 0, key, user, client, np.ones(n, bool), pair)
        kind = np.full(len(s.names) + 1, L.OTHER_API)
        kind[apis] = list(L.APIS.values())
        since = np.zeros(len(s.names) + 1, np.int64)
        since[apis] = [L.STRICT_SINCE.get(api, 0) for api in L.APIS]
        version = r["api_version"]
        type_ = np.full(len(s.names) + 1, -1)
        type_[types] = np.arange(len(types))
        topics = topics_of(r["topic_bytes"], s.names)
        records = fed(
            QuotaRecord,
            r,
            record=np.arange(n),
            key=key,
            rank=SEQUENCE.ranks(r, s.shared, s.names),
            is_rate=rate,
            pair=pair,
            api_kind=kind[r["api"]],
            strict=np.where(version == NULL, self._strict, version >= since[r["api"]]),
            quota_type=type_[r["quota_type"]],
            topics_begin=topics.start[:-1],
            topics_end=topics.start[1:],
        )
        return records, known[:count], topics
