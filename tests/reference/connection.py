"""A connection of the reference: its producers, its throttle states and who pays for a pause."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from tests.reference.tracker import TYPES, Tracker

IN_FLIGHT, BUFFER, TOPIC, GROUP, BROKER = TYPES[:5]
REASONS = {
    IN_FLIGHT: "ConnectionPendingMessagesBreach",
    BUFFER: "MessageBufferSizeBreach",
    TOPIC: "TopicProduceQuotaExceeded",
    GROUP: "ResourceGroupProduceQuotaExceeded",
    BROKER: "BrokerProduceQuotaExceeded",
}
NUMBERS = {IN_FLIGHT: 2, BUFFER: 3, TOPIC: 0, GROUP: 1, BROKER: 4}
LIMITERS = {
    IN_FLIGHT: "connection", BUFFER: "io_thread", TOPIC: "topic", GROUP: "resource_group",
    BROKER: "broker",
}


@dataclass(frozen=True)
class Producer:
    """Identity of a producer; its name is kept by the key."""

    cnx: str
    topic: str
    id: int


@dataclass
class TopicStats:
    """What one window counts for one topic."""

    messages: int = 0
    bytes: int = 0
    culprit_times: int = 0
    collateral_times: int = 0
    culprit_ns: int = 0
    collateral_ns: int = 0
    by_reason: Counter[str] = field(default_factory=Counter)
    limited: Counter[str] = field(default_factory=Counter)


@dataclass
class Connection:
    """An open connection."""

    name: str
    thread: int | None = None
    tracker: Tracker = field(default_factory=Tracker)
    producers: dict[Producer, str | None] = field(default_factory=dict)
    in_flight: int = 0
    resume_at: int = 0
    buffered: int = 0
    since_ns: int = 0
    began_ns: int = 0
    culprits: set[str] = field(default_factory=set)
    flags: dict[str, tuple[Producer | None, str]] = field(default_factory=dict)
    """Producer and culprit of the mark that set the connection or IO-thread flag."""
    seen_paused: int | None = None
    seen_resumed: int | None = None

    @property
    def topics(self) -> list[str]:
        return sorted({p.topic for p in self.producers}, key=str.encode)

    def settle(self, now: int, stats: dict[str, TopicStats]) -> None:
        """Count paused time up to now."""
        passed = now - self.since_ns
        if not self.tracker.active or passed <= 0:
            return
        self.since_ns = now
        for topic in self.topics:
            s = stats.setdefault(topic, TopicStats())
            if topic in self.culprits:
                s.culprit_ns += passed
            else:
                s.collateral_ns += passed
            for kind, reason in REASONS.items():
                if self.tracker.is_active(kind):
                    s.by_reason[reason] += passed

    def mark(self, kind: str, culprit: str, now: int, stats: dict[str, TopicStats]) -> str:
        """Mark; a pause that begins is counted for every topic."""
        self.settle(now, stats)
        was = self.tracker.active
        transition = self.tracker.mark(kind)
        if self.tracker.active and not was:
            self.since_ns = self.began_ns = now
            self.culprits = set()
            for topic in self.topics:
                s = stats.setdefault(topic, TopicStats())
                s.limited[LIMITERS[kind]] += 1
                if topic == culprit:
                    s.culprit_times += 1
                else:
                    s.collateral_times += 1
        if self.tracker.active and culprit in self.topics:
            self.culprits.add(culprit)
        return transition

    def unmark(self, kind: str, now: int, stats: dict[str, TopicStats]) -> tuple[str, int | None]:
        """Unmark; where that resumes reads, also the observed length of the pause (ns)."""
        self.settle(now, stats)
        was = self.tracker.active
        transition = self.tracker.unmark(kind)
        observed = None
        resumes = was and not self.tracker.active
        if resumes and self.seen_resumed is not None and self.seen_resumed >= self.began_ns:
            assert self.seen_paused is not None
            observed = self.seen_resumed - self.seen_paused
            self.seen_paused = self.seen_resumed = None
        return transition, observed
