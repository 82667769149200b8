"""Connection throttle states of the specification, section 5."""

from __future__ import annotations

from tests.reference.words import words

TYPES = words(
    "ConnectionMaxPendingPublishRequestsExceeded IOThreadMaxPendingPublishBytesExceeded"
    " TopicPublishRate ResourceGroupPublishRate BrokerPublishRate ConnectionOutboundBufferFull"
    " ConnectionPauseReceivingCooldownRateLimit"
)
UNKNOWN = "Unknown"
"""Beside the broker's types: an observed pause for which no limit is known."""
REENTRANT = frozenset({"TopicPublishRate", "ResourceGroupPublishRate"})


class Tracker:
    """`per_type`: a state per type; the connection is throttled while any is above 0."""

    reentrant = REENTRANT

    def __init__(self) -> None:
        self._states = dict.fromkeys((*TYPES, UNKNOWN), 0)

    @property
    def states(self) -> list[int]:
        return [self._states[kind] for kind in TYPES]

    @property
    def active(self) -> bool:
        return any(state > 0 for state in self._states.values())

    def mark(self, kind: str) -> str:
        before = self.active
        old = self._states[kind]
        self._states[kind] = old + 1 if kind in self.reentrant else 1
        if kind not in self.reentrant and old != 0:
            return "Dropped"
        return "TypeStateChanged" if before else "ConnectionStateChanged"

    def unmark(self, kind: str) -> str:
        old = self._states[kind]
        self._states[kind] = old - 1 if kind in self.reentrant else 0
        if kind not in self.reentrant and old != 1:
            return "Dropped"
        return "TypeStateChanged" if self.active else "ConnectionStateChanged"


class SharedCounter:
    """`shared_counter`: one counter for everything, and flags for what is no publish rate."""

    reentrant = REENTRANT | {"BrokerPublishRate"}

    def __init__(self) -> None:
        self._count = 0
        self._flags: set[str] = set()

    @property
    def active(self) -> bool:
        return self._count > 0

    def mark(self, kind: str) -> str:
        if kind not in self.reentrant:
            if kind in self._flags:
                return "Dropped"
            self._flags.add(kind)
        self._count += 1
        return "ConnectionStateChanged" if self._count == 1 else "TypeStateChanged"

    def unmark(self, kind: str) -> str:
        if kind not in self.reentrant:
            if kind not in self._flags:
                return "Dropped"
            self._flags.remove(kind)
        self._count -= 1
        return "ConnectionStateChanged" if self._count == 0 else "TypeStateChanged"


TRACKERS: dict[str, type[Tracker] | type[SharedCounter]] = {
    "per_type": Tracker,
    "shared_counter": SharedCounter,
}
"""By value of `throttle_tracker`."""
