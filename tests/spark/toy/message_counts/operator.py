"""The core of `message_counts`: messages of each topic and window of wall time.

Key: (cluster, topic). State: clocks of topics, counts of open windows, waiting records. Timers:
window ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine import sequence, wall
from state.engine.emitted import Emitted, integers, shorts
from state.engine.kernel import NULL, Array
from state.engine.names import Names
from state.engine.reach import Reach
from state.engine.store import RecordSet, Store, Struct
from state.engine.tables import Key, Name
from state.engine.wall_job import Batch, Shard, WallJob, least
from state.message_counts.declaration import COLUMNS, COUNTS, DECLARATION, NAME

COUNT = COUNTS.row()


class Topic(wall.Clocked):
    """A topic, and where its last record came from."""

    cluster: Key[Name]
    topic: Key[Name]
    broker: Name
    feed: Name


KEPT = Store(NAME, 1, Topic.part("keys"), Struct("open", COUNT), RecordSet("waiting", COLUMNS))


class MessageCounts(WallJob[Shard]):
    """One instance serves all shards and keeps nothing between calls."""

    name, key, row, columns = NAME, DECLARATION.key, Topic, COLUMNS
    order = sequence.Sequence(
        (
            "ledger_id",
            "entry_id",
            "source_feed",
            "broker",
            "entry_bytes",
            "num_messages",
            "source_partition",
            "source_offset",
        ),
    )

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str] = ()) -> None:
        self._lateness_ms = int(params["allowed_lateness_ms"])
        self._idle_advance_ms = int(params["idle_advance_ms"])
        self._window_ms = int(params["stats_window_ms"])
        self._entries = params["count"] == "entries"

    def _open(self, state: bytes | None) -> Shard:
        found, names = KEPT.read(state) if state else (KEPT.blank(), Names())
        return Shard(names, {name: found[name] for name in ("keys", "open")}, found["waiting"])

    def _write(self, s: Shard) -> bytes:
        return KEPT.write({**s.parts, "waiting": s.waiting}, s.names)

    def _judge(self, s: Shard, batch: Batch, reach: Reach) -> dict[str, pa.Table]:
        keys, r = batch.keys, batch.records
        keys["broker"][batch.key], keys["feed"][batch.key] = r["broker"], r["source_feed"]
        counts = _summed(np.concatenate([s.parts["open"], self._counted(batch)]))
        ended = counts["start_ms"] + self._window_ms <= keys["clock_ms"][counts["key"]]
        s.parts = {"keys": keys, "open": counts[~ended]}
        return self._rows(keys, counts[ended], s.names) if ended.any() else {}

    def _settle(self, s: Shard, tables: dict[str, pa.Table], reach: Reach) -> Iterable[int]:
        return least(s.parts["open"]["start_ms"] + self._window_ms - 1)

    def _counted(self, batch: Batch) -> Array:
        r, found = batch.records, np.zeros(len(batch.key), COUNT)
        found["key"], found["bytes"] = batch.key, r["entry_bytes"]
        found["start_ms"] = r["ts_wall_ms"] - r["ts_wall_ms"] % self._window_ms
        single = self._entries | (r["num_messages"] == NULL)
        found["messages"] = np.where(single, 1, r["num_messages"])
        return found

    def _rows(self, keys: Array, counts: Array, names: Names) -> dict[str, pa.Table]:
        end_ms = counts["start_ms"] + self._window_ms
        table = Emitted(names, keys).table(
            COUNTS,
            counts,
            ts_wall_ms=integers(end_ms),
            window_ms=integers(np.full(len(counts), self._window_ms)),
            row_no=shorts(np.zeros(len(counts), np.int64)),
        )
        return {COUNTS.name: table}


def _summed(counts: Array) -> Array:
    """One count for each key and window, in order."""
    _, first, group = np.unique(counts[["key", "start_ms"]], return_index=True, return_inverse=True)
    found = counts[first]
    for name in ("messages", "bytes"):
        found[name] = 0
        np.add.at(found[name], group, counts[name])
    return found
