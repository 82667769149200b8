"""A connection of the reference: its producers, its marks and who pays for a pause."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.reference.client import Client
from tests.reference.tracker import TYPES, UNKNOWN, SharedCounter, Tracker

IN_FLIGHT, BUFFER, TOPIC, GROUP, BROKER = TYPES[:5]
REASONS = {
    UNKNOWN: "UNMAPPED",
    IN_FLIGHT: "ConnectionPendingMessagesBreach",
    BUFFER: "MessageBufferSizeBreach",
    TOPIC: "TopicProduceQuotaExceeded",
    GROUP: "ResourceGroupProduceQuotaExceeded",
    BROKER: "BrokerProduceQuotaExceeded",
}
NUMBERS = {UNKNOWN: None, IN_FLIGHT: 2, BUFFER: 3, TOPIC: 0, GROUP: 1, BROKER: 4}
CULPRIT, SHARED, COLLATERAL = CLASSES = ("culprit", "shared", "collateral")
LIMITERS = {
    IN_FLIGHT: "connection",
    BUFFER: "io_thread",
    TOPIC: "topic",
    GROUP: "resource_group",
    BROKER: "broker",
    UNKNOWN: "unknown",
}


@dataclass(frozen=True)
class Producer:
    """Identity of a producer; its name is kept by the key."""

    cnx: str
    topic: str
    id: int


@dataclass(eq=False)
class Mark:
    """A throttle of a connection; one that was `Dropped` never becomes active."""

    kind: str
    producer: Producer | None
    trigger: str | None
    """Topic of the publish at which the limiter acted."""
    limiter_name: str | None
    """Whose limit it is."""
    ns: int = 0
    active: bool = False
    blocks: bool = True
    """Reads are paused while it is active."""
    request_id: int | None = None
    receipt: str | None = None
    """State of the receipt; None while the broker waits for it, or without the exchange."""
    wait_ends_ns: int | None = None
    """The last moment for a receipt; None unless the broker waits."""

    @property
    def culprit(self) -> str | None:
        """The topic whose own limit is used up; no one topic where a limit is shared."""
        return self.trigger if self.kind == TOPIC else None


@dataclass
class TopicStats:
    """What one window counts for one topic."""

    messages: int = 0
    bytes: int = 0
    times: Counter[str] = field(default_factory=Counter)
    """Pauses by CLASSES."""
    paused_ns: Counter[str] = field(default_factory=Counter)
    """Paused time by CLASSES (ns)."""
    by_reason: Counter[str] = field(default_factory=Counter)
    limited: Counter[str] = field(default_factory=Counter)


@dataclass
class Connection:
    """An open connection."""

    name: str
    tracker: Tracker | SharedCounter
    group_of: Callable[[str], str | None]
    """Resource group of a topic."""
    thread: int | None = None
    supports_throttle: bool = False
    producers: dict[Producer, Client] = field(default_factory=dict)
    in_flight: int = 0
    resume_at: int = 0
    buffered: int = 0
    since_ns: int = 0
    began_ns: int = 0
    culprits: set[str] = field(default_factory=set)
    marks: list[Mark] = field(default_factory=list)
    """Active marks."""
    flags: dict[str, Mark] = field(default_factory=dict)
    """By type that is not re-entrant, the mark that set its flag."""
    requests: int = 0
    """Commands sent."""
    throttled_ms: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Sum of the pauses sent, by topic and reason."""
    seen_paused: int | None = None
    seen_resumed: int | None = None
    observed: bool = False
    """Its pauses are reported."""
    stopped: bool = False
    """One was reported that lasts."""
    charged: dict[str, tuple[int, Producer]] = field(default_factory=dict)
    """By topic published to since the last resume: number and producer of the last publish."""
    publishes: int = 0
    looks: int = 0
    """Looks for marks without a pause that were scheduled; only the newest does something."""
    awaits_look: bool = False
    closed: bool = False

    @property
    def paused(self) -> bool:
        """Reads are paused: on an observed connection, as long as that is reported."""
        if self.observed and not self.stopped:
            return False
        return any(mark.blocks for mark in self.marks)

    @property
    def topics(self) -> list[str]:
        return sorted({p.topic for p in self.producers}, key=str.encode)

    def forget_pauses(self, topic: str) -> None:
        """The sums of a topic begin anew."""
        for key in [key for key in self.throttled_ms if key[0] == topic]:
            del self.throttled_ms[key]

    def settle(self, now: int, stats: dict[str, TopicStats]) -> None:
        """Count paused time up to now."""
        passed = now - self.since_ns
        if not self.paused or passed <= 0:
            return
        self.since_ns = now
        reasons = {REASONS[mark.kind] for mark in self.marks if mark.blocks}
        for topic in self.topics:
            s = stats.setdefault(topic, TopicStats())
            s.paused_ns[self._class_now(topic)] += passed
            for reason in reasons:
                s.by_reason[reason] += passed

    def _begin_pause(self, mark: Mark, now: int, stats: dict[str, TopicStats]) -> None:
        """A pause that begins is counted for every topic."""
        self.since_ns = self.began_ns = now
        self.culprits = set()
        for topic in self.topics:
            s = stats.setdefault(topic, TopicStats())
            s.limited[LIMITERS[mark.kind]] += 1
            if mark.culprit == topic:
                s.times[CULPRIT] += 1
            elif self._is_shared(mark, topic):
                s.times[SHARED] += 1
            else:
                s.times[COLLATERAL] += 1

    def _is_shared(self, mark: Mark, topic: str) -> bool:
        """The limit of a mark is one that a topic of this connection shares."""
        if mark.kind == GROUP:
            return self.group_of(topic) == mark.limiter_name
        return mark.kind in (BROKER, IN_FLIGHT, BUFFER, UNKNOWN)

    def _class_now(self, topic: str) -> str:
        """What a topic is in the pause that lasts."""
        if topic in self.culprits:
            return CULPRIT
        if any(mark.blocks and self._is_shared(mark, topic) for mark in self.marks):
            return SHARED
        return COLLATERAL

    def _look_for_culprit(self, mark: Mark) -> None:
        if self.paused and mark.culprit is not None and mark.culprit in self.topics:
            self.culprits.add(mark.culprit)

    def add(self, mark: Mark, now: int, stats: dict[str, TopicStats]) -> None:
        """A mark that was not `Dropped`."""
        self.settle(now, stats)
        was = self.paused
        mark.active = True
        self.marks.append(mark)
        if mark.kind not in self.tracker.reentrant:
            self.flags[mark.kind] = mark
        if self.paused and not was:
            self._begin_pause(mark, now, stats)
        self._look_for_culprit(mark)

    def stop(self, now: int, stats: dict[str, TopicStats]) -> bool:
        """A pause is reported: it begins with the marks that there are, if any."""
        was = self.paused
        self.stopped, self.seen_paused = True, now
        if self.paused and not was:
            first = next(mark for mark in self.marks if mark.blocks)
            self._begin_pause(first, now, stats)
            for mark in self.marks:
                self._look_for_culprit(mark)
        return self.paused

    def time_out(self, mark: Mark, now: int, stats: dict[str, TopicStats]) -> bool:
        """A mark waits no longer for its receipt; answers whether this pauses reads."""
        self.settle(now, stats)
        was = self.paused
        mark.blocks = True
        if not was:
            self._begin_pause(mark, now, stats)
        self._look_for_culprit(mark)
        return not was

    def unmark(
        self, kind: str, own: Mark, now: int, stats: dict[str, TopicStats]
    ) -> tuple[str, Mark | None, int | None]:
        """Unmark for a mark: the transition, the mark that ends, and where that resumes reads
        the observed length of the pause (ns)."""
        self.settle(now, stats)
        was = self.paused
        transition = self.tracker.unmark(kind)
        if transition == "Dropped":
            return transition, None, None
        ended = own if kind in self.tracker.reentrant else self.flags.pop(kind)
        ended.active = False
        self.marks.remove(ended)
        observed = None
        resumes = was and not self.paused
        if self.observed:
            if resumes and self.seen_paused is not None:
                observed = now - self.seen_paused
        elif resumes and self.seen_resumed is not None and self.seen_resumed >= self.began_ns:
            assert self.seen_paused is not None
            observed = self.seen_resumed - self.seen_paused
            self.seen_paused = self.seen_resumed = None
        return transition, ended, observed
