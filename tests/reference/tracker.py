"""Connection throttle states of the specification, section 5 (`per_type`)."""

from __future__ import annotations

TYPES = (
    "ConnectionMaxPendingPublishRequestsExceeded",
    "IOThreadMaxPendingPublishBytesExceeded",
    "TopicPublishRate",
    "ResourceGroupPublishRate",
    "BrokerPublishRate",
    "ConnectionOutboundBufferFull",
    "ConnectionPauseReceivingCooldownRateLimit",
)
REENTRANT = frozenset({"TopicPublishRate", "ResourceGroupPublishRate"})


class Tracker:
    """A state per type; reads are paused while any is above 0."""

    def __init__(self) -> None:
        self._states = dict.fromkeys(TYPES, 0)

    @property
    def states(self) -> list[int]:
        return list(self._states.values())

    @property
    def active(self) -> bool:
        return any(state > 0 for state in self._states.values())

    def is_active(self, kind: str) -> bool:
        return self._states[kind] > 0

    def mark(self, kind: str) -> str:
        before = self.active
        old = self._states[kind]
        self._states[kind] = old + 1 if kind in REENTRANT else 1
        if kind not in REENTRANT and old != 0:
            return "Dropped"
        return "TypeStateChanged" if before else "ConnectionStateChanged"

    def unmark(self, kind: str) -> str:
        old = self._states[kind]
        self._states[kind] = old - 1 if kind in REENTRANT else 0
        if kind not in REENTRANT and old != 1:
            return "Dropped"
        return "TypeStateChanged" if self.active else "ConnectionStateChanged"
