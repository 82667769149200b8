"""The step of a job that decides on wall time: one order of work, and what each job adds to it.

A batch is read, what holds for many keys is taken out of it, records are admitted by the clocks of
their keys, and what may be judged is judged; the rest waits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from state.engine import documents, wall, wall_policies
from state.engine.job import Step
from state.engine.names import Names
from state.engine.reach import Reach
from state.engine.records import NULL, Array, Records, after, concat, length, read_blobs, take
from state.engine.refused import Refused
from state.engine.sequence import POLICY
from state.engine.sequence import Sequence as Order
from state.engine.wall_policies import LOST, STARTED, SharedRecords


@dataclass
class Shard:
    """What one shard knows between two calls."""

    names: Names
    parts: dict[str, Array]
    """Arrays of the job; `keys` has a clock for each key."""
    waiting: Records


@dataclass
class SharedShard(Shard):
    """A shard with records that hold for many keys."""

    shared: Records
    """Policies, broker starts and gaps, in order."""
    meaning: Array
    """The content of each of them."""
    config: tuple[str, ...] | None
    """Documents of the configuration that `shared` has; None before the first call."""


@dataclass(frozen=True)
class Batch:
    """What a call judges."""

    keys: Array
    """The keys of the shard, those of new records included."""
    begin_ms: Array
    """Their clocks before this call; NULL for none."""
    records: Records
    """Those to judge, in order."""
    key: Array
    """The position of each record's key."""
    next_ns: Array
    """Monotonic time of the first record of each key that goes on waiting, NULL without one."""
    next_broker: Array
    """Its broker, -1 without one."""


S = TypeVar("S", bound=Shard)


class WallJob(ABC, Generic[S]):
    """A job whose keys have clocks of wall time; keeps nothing between calls."""

    name: str
    key: tuple[str, ...]
    """Columns that name the key of a record."""
    row: type[wall.Clocked]
    """A key, whose identity these are."""
    columns: tuple[str, ...]
    order: Order
    _lateness_ms: int
    _idle_advance_ms: int

    def step(self, state: bytes | None, blobs: Sequence[bytes], reach: Reach) -> Step:
        """Judge a batch of one shard; see `state.engine.job`."""
        s = self._open(state)
        refused = Refused(self.name)
        new = self._own(s, self._read(s, blobs), reach, refused)
        both = after(s.waiting, new)
        keys, key = self._keys(s, both)
        begin_ms = np.where(keys["has_clock"] != 0, keys["clock_ms"], NULL)
        now, later = wall.admit(
            keys,
            key,
            both,
            length(s.waiting),
            wall.Lateness(reach, self._lateness_ms, self._idle_advance_ms),
            self.order,
            s.names,
            refused,
        )
        s.waiting = take(both, later)
        following = wall.first_waiting(len(keys), key[later], s.waiting)
        batch = Batch(keys, begin_ms, take(both, now), key[now], *following)
        tables = self._judge(s, batch, reach)
        quarantine = refused.table(s.names)
        if quarantine is not None:
            tables["quarantine"] = quarantine
        times = list(self._settle(s, tables, reach))
        if length(s.waiting):
            times.append(int(s.waiting["ts_wall_ms"].min()))
        wake = max(min(times), 0) if times else None
        return Step(self._write(s), tables, wake, refused.needed_idle_advance_ms)

    # -- what a job adds ---------------------------------------------------------------------

    @abstractmethod
    def _open(self, state: bytes | None) -> S:
        """The shard behind its bytes, or a new one."""

    @abstractmethod
    def _judge(self, s: S, batch: Batch, reach: Reach) -> dict[str, pa.Table]:
        """Judge records, fire timers and leave in the shard what lives on; the rows by table."""

    @abstractmethod
    def _settle(self, s: S, tables: dict[str, pa.Table], reach: Reach) -> Iterable[int]:
        """What is left to do once a batch is judged; wall times at which to be called again."""

    @abstractmethod
    def _write(self, s: S) -> bytes:
        """The bytes of a shard."""

    def _keys(self, s: S, records: Records) -> tuple[Array, Array]:
        """The keys of a shard, those of new records included, and the key of each record."""
        return wall.interned(self.row, s.parts["keys"], [records[column] for column in self.key])

    def follow(self, versions: Iterable[documents.Version]) -> None:
        """See `state.engine.job`; policies decide nothing in a job that has none."""

    def _read(self, s: S, blobs: Sequence[bytes]) -> Records:
        return read_blobs(blobs, s.names, self.columns, room=length(s.waiting))

    def _own(self, s: S, records: Records, reach: Reach, refused: Refused) -> Records:
        """The records of single keys; others are taken."""
        return records


T = TypeVar("T", bound=SharedShard)


class SharedWallJob(WallJob[T]):
    """A job with records that hold for many keys: policies, broker starts, gaps."""

    standing: SharedRecords
    _policies: documents.Configured

    def follow(self, versions: Iterable[documents.Version]) -> None:
        """See `state.engine.job`."""
        self._policies = self._policies.followed_by(versions)

    def _own(self, s: T, records: Records, reach: Reach, refused: Refused) -> Records:
        kind = records["event_type"]
        is_shared = (kind == POLICY) | (kind == STARTED) | (kind == LOST)
        came = bool(is_shared.any())
        own = take(records, ~is_shared) if came else records
        shared = take(records, is_shared) if came else None
        config = self._policies.kept
        self._wake(s, own, reach, came or s.config != config)
        if s.config != config:
            told = [*self._told(s, reach), *([] if shared is None else [shared])]
            shared = concat(told) if told else None
            s.config = config
        if shared is None:
            s.meaning["fresh"] = 0
        else:
            s.shared, s.meaning = self.standing.merged(
                s.shared, s.meaning, shared, s.names, refused
            )
        return own

    def _told(self, s: T, reach: Reach) -> list[Records]:
        """What the configuration brings that the shard does not have, as records."""
        first, number = documents.first_and_number(s.config or ())
        texts: list[str] = []
        at_ms = int(NULL)
        if s.config is None:
            texts = list(self._policies)
        elif first != self._policies:
            texts = wall_policies.changes(first, self._policies)
            keys = s.parts["keys"][s.parts["keys"]["has_clock"] != 0]
            moved = reach.moved(keys, "latest_ms", self._idle_advance_ms)
            clocks = np.maximum(moved, keys["clock_ms"])
            at_ms = int(clocks.min()) if len(clocks) else reach.stream_ms
        found = wall_policies.following(self._policies, number, s.shared, s.names)
        if texts:
            found.insert(0, wall_policies.configured(texts, at_ms, s.shared, s.names))
        return found

    def _wake(self, s: T, own: Records, reach: Reach, changed: bool) -> None:
        """Bring back what this batch may need; `changed`: what holds for many keys may change."""

    def _forget(self, s: T, reach: Reach) -> None:
        """Leave out shared records that cannot matter any more."""
        keys = s.parts["keys"]
        needed = self.standing.needed(
            s.shared, s.meaning, reach.past(keys["clock_ms"][keys["has_clock"] != 0])
        )
        if not needed.all():
            s.shared, s.meaning = take(s.shared, needed), s.meaning[needed]


def least(values: Array) -> list[int]:
    """The least of some values that are not NULL, if there is one."""
    known: Any = values[values != NULL]
    return [int(known.min())] if len(known) else []
