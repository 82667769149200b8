"""What incidents add to normal traffic, and what of it they hold back."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

SECOND = 1_000_000_000
MS = 1_000_000


@dataclass
class Publishes:
    """Publish requests as arrays: time, producer, size, and how long the entry takes (ns)."""

    at_ns: np.ndarray
    producer: np.ndarray
    messages: np.ndarray
    bytes: np.ndarray
    stored_after_ns: np.ndarray
    fixed: np.ndarray
    """Not to be delayed by the feed: an incident depends on it."""

    def take(self, chosen: np.ndarray) -> Publishes:
        """Some of them, by mask or order."""
        return Publishes(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))

    @staticmethod
    def concat(parts: list[Publishes]) -> Publishes:
        """All of them, one part after another."""
        names = Publishes.__dataclass_fields__
        return Publishes(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


@dataclass
class IncidentPlan:
    """All incidents of a trace together; times are ns since its start."""

    publishes: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    """Time, producer, messages, bytes, time until stored."""
    holds: list[tuple[int, int, int]] = field(default_factory=list)
    """Connection, from, until: its clients do not get to publish."""
    mutes: list[tuple[int, int, int]] = field(default_factory=list)
    """Topic, from, until: its normal traffic gives way to that of the incident."""
    rows: list[np.ndarray] = field(default_factory=list)
    down: list[tuple[int, int, int]] = field(default_factory=list)
    """Broker, from, until: it is not running and reports nothing."""

    def publish(
        self, at_ns: int, producer: int, size: tuple[int, int], stored_after_ns: int = 5 * MS
    ) -> None:
        """One publish request of an incident; `size` is messages and bytes."""
        self.publishes.append((at_ns, producer, *size, stored_after_ns))

    def scheduled(self) -> Publishes:
        """The incidents' publishes in order of time."""
        table = np.array(sorted(self.publishes), dtype=np.int64).reshape(-1, 5)
        at_ns, producer, messages, size, stored_after_ns = table.T
        fixed = np.ones(len(table), dtype=np.int64)
        return Publishes(at_ns, producer, messages, size, stored_after_ns, fixed)


def held_back(
    publishes: Publishes,
    holds: list[tuple[int, int, int]],
    mutes: list[tuple[int, int, int]],
    connection: np.ndarray,
    topic: np.ndarray,
    begin: int,
    end: int,
) -> Publishes:
    """Normal traffic of [begin, end) as the incidents leave it.

    A paused client queues what it can: the last half second of a pause is sent when it ends, what
    came before found the client's queue full and was never published.
    """
    keep = np.ones(publishes.at_ns.size, dtype=bool)
    for muted, since, until in mutes:
        if since < end and until > begin:
            inside = (publishes.at_ns >= since) & (publishes.at_ns < until)
            keep &= ~(inside & (topic == muted))
    for held, since, until in holds:
        if since < end and until > begin:
            inside = (publishes.at_ns >= since) & (publishes.at_ns < until) & (connection == held)
            queued = inside & (publishes.at_ns >= until - SECOND // 2)
            keep &= ~inside | queued
            waited = publishes.at_ns[queued] - (until - SECOND // 2)
            publishes.at_ns[queued] = until + waited // 5
    return publishes.take(keep)
