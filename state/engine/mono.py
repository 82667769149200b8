"""The step of a job on the monotonic clock, whose key is (cluster, broker).

A batch is read, configured documents that changed are applied, stars are taken out of it, the rest
is admitted by the clocks of the keys and judged; a job adds what a key does with its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine import cluster_policies, moving
from state.engine.admission import Admission
from state.engine.documents import (
    Configured,
    Policy,
    Version,
    agreed,
    first_and_number,
    policy_of,
)
from state.engine.job import Step
from state.engine.kernel import NULL
from state.engine.key import Key
from state.engine.mono_shard import (
    KEYS,
    Form,
    Shard,
    cluster_policy_rows,
    versions_as_cluster_policies,
)
from state.engine.names import Names
from state.engine.reach import Reach
from state.engine.records import concat, length, read_blobs, take
from state.engine.refused import Refused

PAIR = ("cluster", "broker")
"""The columns of a key."""


class MonoJob:
    """A job whose keys have clocks of monotonic time; keeps nothing between calls."""

    name: str
    form: Form
    _policies: Configured

    def follow(self, versions: Iterable[Version]) -> None:
        """See `state.engine.job`."""
        self._policies = self._policies.followed_by(versions)

    def pieces(self, state: bytes, shards: int, everywhere: Iterable[int]) -> dict[int, bytes]:
        """See `state.engine.job`."""
        values, names = self.form.store.read(state)
        s, waiting = Arrays(values), values["waiting"]
        keys_to, waiting_to = (
            moving.places(x, PAIR, names, shards) for x in (values[KEYS], waiting)
        )
        return {
            shard: self.form.store.write(
                {
                    **values,
                    **moving.cut(s, KEYS, self.form.owned, keys),
                    "waiting": take(waiting, waits),
                },
                names,
            )
            for shard, (keys, waits) in moving.spread(keys_to, waiting_to, everywhere).items()
        }

    def joined(self, pieces: Sequence[bytes]) -> bytes:
        """See `state.engine.job`."""
        names = Names()
        every = [self.form.store.read(piece, names)[0] for piece in pieces]
        for values in every:
            self._follow(values, names)
        found = cluster_policies.united(every)
        parts = moving.join(every, KEYS, self.form.owned)
        moving.require_distinct(self.name, parts[KEYS], PAIR, names)
        configs = [tuple(names.texts(values["config"])) for values in every]
        first = agreed([first_and_number(config)[0] for config in configs], self._policies)
        kept = Configured(first).followed_by(self._policies.versions).kept
        config = [names.intern_one(text) for text in kept]
        return self.form.store.write(
            {
                **parts,
                **found,
                "config": np.array(config, np.int64),
                "waiting": concat([values["waiting"] for values in every]),
            },
            names,
        )

    def _follow(self, values: dict[str, Any], names: Names) -> None:
        """Bring a shard, as it is kept, up to the last version of the configuration."""
        _, number = first_and_number(names.texts(values["config"]))
        next_star = int(values["next_star"][0]) if len(values["next_star"]) else 0
        more = versions_as_cluster_policies(self._policies, number, next_star, names)
        if more:
            values["stars"] = np.concatenate([values["stars"], cluster_policy_rows(more)])
            values["next_star"] = np.array([next_star + len(more)], np.int64)


@dataclass(frozen=True)
class Arrays:
    """A shard as it is kept."""

    parts: dict[str, Any]


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
