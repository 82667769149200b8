"""The step of a job on the monotonic clock, whose key is (cluster, broker).

A batch is read, configured documents that changed are applied, stars are taken out of it, the rest
is admitted by the clocks of the keys and judged; a job adds what a key does with its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine import cluster_policies
from state.engine.admission import Admission
from state.engine.documents import (
    Configured,
    Policy,
    Version,
    policy_of,
)
from state.engine.job import Step
from state.engine.kernel import NULL
from state.engine.key import Key
from state.engine.mono_shard import (
    Form,
    Shard,
)
from state.engine.reach import Reach
from state.engine.records import length, read_blobs
from state.engine.refused import Refused


class MonoJob:
    """A job whose keys have clocks of monotonic time; keeps nothing between calls."""

    name: str
    form: Form
    _policies: Configured

    def follow(self, versions: Iterable[Version]) -> None:
        """See `state.engine.job`."""
        self._policies = self._policies.followed_by(versions)


def step(
    s: Shard[Any],
    blobs: Sequence[bytes],
    reach: Reach,
    lateness_ns: int,
    idle_advance_ms: int,
    clock_skew_ms: int,
) -> Step:
    """Judge a batch of one shard; see `state.engine.job`. `clock_skew_ms`: how far the two clocks
    of a record may be from where those of its key stand."""
    refused = Refused(s.form.store.job)
    records = read_blobs(blobs, s.names, s.form.columns, room=length(s.waiting))
    kind = records["event_type"]
    read = np.ones(len(kind), bool) if s.kinds is None else s.kinds[kind]
    _change_configured(s)
    mine = read & ~cluster_policies.taken(s, records, read, refused)
    Admission(s, records, mine, reach, lateness_ns, idle_advance_ms, clock_skew_ms, refused).admit()
    tables: dict[str, list[pa.Table]] = {}
    for b in s.keys.values():
        if isinstance(b, Key):
            for name, table in s.rows(b).items():
                tables.setdefault(name, []).append(table)
    quarantine = refused.table(s.names)
    if quarantine is not None:
        tables["quarantine"] = [quarantine]
    clocks = [b.key["clock_wall_ms"] for b in s.keys.values() if b.key["has_clock"]]
    cluster_policies.forget(s, reach.past(np.array(clocks, np.int64)))
    wake = _wake_ms(s)
    return Step(
        s.write(),
        {name: pa.concat_tables(t) for name, t in tables.items()},
        wake,
        refused.needed_idle_advance_ms,
    )


def _change_configured(s: Shard[Any]) -> None:
    """Configured documents that changed since the last run hold from each key's clock on."""
    for source, text in s.changed.items():
        for b in s.brokers.values():
            k = b.key
            wall = int(k["clock_wall_ms"])
            old = b.documents.get(source)
            wall = max(wall, old.wall_ms if old else wall)
            if text is None:
                policy = Policy(*source, {}, -1, int(NULL), "")
            else:
                policy = policy_of(s.names, s.names.intern_one(text), int(NULL))
            at = int(k["clock_ns"]) if k["has_clock"] else int(k["last_ns"])
            b.documents = {key: p for key, p in b.documents.items() if key != source}
            b.apply(policy, at, wall)
            if text is None:
                b.documents = {key: p for key, p in b.documents.items() if key != source}
            b.reconfigured(source)


def _wake_ms(s: Shard[Any]) -> int | None:
    """The first wall time of the stream at which a shard would do something by itself."""
    wall = s.waiting["ts_wall_ms"]
    times = wall[wall != NULL].tolist()
    for b in s.keys.values():
        k = b.key
        if k["any"] and k["last_wall_ms"] != NULL:
            times += s.due_ms(b)
            times += [x.policy.wall_ms for x in cluster_policies.pending(s, b)]
    return max(min(times), 0) if times else None
