"""What the references of jobs on a broker's monotonic clock share: its wall time, and policies that
have a wall time alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.reference.order import Record

NS_PER_MS = 1_000_000


class TwoClocks(ABC):
    """A broker after its last record."""

    last: Record | None = None

    def wall_at(self, ns: int, following: Record | None) -> int | None:
        """Wall time of a moment after the last record, not beyond the next record's."""
        if self.last is None or self.last["ts_wall_ms"] is None:
            return None
        wall: int = self.last["ts_wall_ms"] + (ns - self.last["ts_mono_ns"]) // NS_PER_MS
        limit = following["ts_wall_ms"] if following else None
        return wall if limit is None else min(wall, limit)

    def ns_at(self, wall: int) -> int:
        """Monotonic time of a wall time after the last record."""
        assert self.last is not None
        if self.last["ts_wall_ms"] is None:
            return int(self.last["ts_mono_ns"])
        passed: int = (wall - self.last["ts_wall_ms"]) * NS_PER_MS
        return int(self.last["ts_mono_ns"]) + passed

    @abstractmethod
    def advance(self, to: int, following: Record | None) -> None:
        """Do what is due before a moment, and end the windows up to it."""

    @abstractmethod
    def take(self, record: Record) -> None:
        """Carry out the next record of the key."""

    @abstractmethod
    def take_floating(self, policy: Record, ns: int | None) -> None:
        """A policy that has only a wall time takes effect, at a time of both clocks if known."""


def play(
    b: TwoClocks,
    records: Sequence[Record],
    floating: Iterable[Record],
    until_ms: int | None,
    watch: Callable[[Any], None] | None = None,
) -> None:
    """Take ordered records, and policies without monotonic time between them; then move on to
    `until_ms`. `watch` is called after each record."""
    waiting = sorted(floating, key=lambda r: r["ts_wall_ms"])
    for record in records:
        wall = record["ts_wall_ms"]
        while waiting and wall is not None and waiting[0]["ts_wall_ms"] <= wall:
            _apply(b, waiting.pop(0), record)
        b.take(record)
        if watch is not None:
            watch(b)
    if until_ms is None or b.last is None:
        return
    end = b.ns_at(until_ms)
    for policy in waiting:
        if b.ns_at(policy["ts_wall_ms"]) < end:
            _apply(b, policy, None)
    b.advance(end, None)


def _apply(b: TwoClocks, policy: Record, following: Record | None) -> None:
    """A policy that has only a wall time; after the first record it has one on both clocks."""
    ns = None
    if b.last is not None:
        ns = b.ns_at(policy["ts_wall_ms"])
        if following is not None and following["event_type"] == "broker_started":
            # its time belongs to another run
            following = {**following, "ts_mono_ns": ns}
        elif following is not None:
            # behind a record without a wall time it stands at the first that is not before it
            known = b.last["ts_wall_ms"] is not None
            ns = min(ns, following["ts_mono_ns"]) if known else following["ts_mono_ns"]
        ns = max(ns, b.last["ts_mono_ns"])
        b.advance(ns, following)
    b.take_floating(policy, ns)
