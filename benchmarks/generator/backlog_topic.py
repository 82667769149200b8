"""What happens to one topic with a quota: entries, acknowledgements, checks and what they do.

The broker's check is played along at every multiple of its interval, so that producers that it
disconnects send nothing and cursors that it moves are found further on by the next poll.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.generator.backlog_spec import BacklogTopicSpec, KeepUpSpec, QuotaSpec
from benchmarks.generator.plan import MS, SECOND

NEVER = np.iinfo(np.int64).max
EVICTS = "consumer_backlog_eviction"
REDUCTION = 0.9
ACK_EVERY = 10
"""A cumulative subscription acknowledges every tenth entry."""
FIRST_ENTRY_NS = 3 * SECOND
ACK_AFTER = (5 * MS, 300 * MS)
PRODUCERS_GONE_NS = 20 * MS
MOVED_NS = 5 * MS
RETRIES_S = (5, 10, 20, 40)
"""A producer that is refused tries again after these times, the last one again and again."""


def ledger_of(spec: BacklogTopicSpec, at: np.ndarray) -> np.ndarray:
    """The number of the ledger that is open at given times."""
    place: np.ndarray = np.maximum(at - FIRST_ENTRY_NS, 0) // int(spec.ledger_s * SECOND)
    return place


@dataclass
class Marks:
    """How far a subscription has come: entries acknowledged in order, by time."""

    at_ns: np.ndarray
    count: np.ndarray

    def until(self, at: int) -> int:
        """Entries before its mark-delete at a time."""
        place = int(np.searchsorted(self.at_ns, at, side="right"))
        return int(self.count[place - 1]) if place else 0


@dataclass
class Played:
    """One topic from beginning to end."""

    at_ns: np.ndarray
    bytes: np.ndarray
    acks: list[np.ndarray]
    """By subscription: when each entry is acknowledged, `NEVER` if it is not."""
    marks: list[Marks]
    limit_bytes: int | None
    closed_ns: list[int] = field(default_factory=list)
    """When its producer was disconnected."""
    refused_ns: list[int] = field(default_factory=list)
    created_ns: list[int] = field(default_factory=list)
    """When its producer came back."""


class _Keeping:
    """One subscription that keeps up as well as it can, advanced step by step."""

    def __init__(self, name: str, spec: KeepUpSpec, step_ns: int, rng: np.random.Generator) -> None:
        self.name, self.spec = name, spec
        self.count = 0
        self._step, self._rng = step_ns, rng
        self._last = 0
        self._stop = NEVER if spec.stops_s is None else int(spec.stops_s * SECOND)
        self._return = NEVER if spec.returns_s is None else int(spec.returns_s * SECOND)
        self._acks: list[np.ndarray] = []
        self._at: list[np.ndarray] = []
        self._counts: list[np.ndarray] = []
        self._due = np.empty(0, dtype=np.int64)

    def add(self, at: np.ndarray) -> None:
        """More entries."""
        self._due = np.append(self._due, at + self._rng.integers(*ACK_AFTER, at.size))

    def advance(self, until: int) -> None:
        """Acknowledge what there is time for."""
        own = np.arange(self.count, self._due.size)
        if self.spec.speed is None:
            return self._acknowledge_at_once(own, until)
        at = self._served(self._due[own])
        late = at >= self._stop
        if late.any():
            pushed = np.where(late, np.maximum(self._due[own], self._return), self._due[own])
            at = self._served(pushed) if self._return < NEVER else np.where(late, NEVER, at)
        done = int(np.searchsorted(at, until, side="right"))
        if done:
            self._last = int(at[done - 1])
            self._at.append(at[:done])
            self._counts.append(self.count + 1 + np.arange(done))
            self._acks.append(np.stack([own[:done], at[:done]]))
            self.count += done
        return None

    def _served(self, due: np.ndarray) -> np.ndarray:
        """One after another, a step apart."""
        turn = np.arange(due.size) * self._step
        first = np.maximum(due, self._last + self._step)
        served: np.ndarray = np.maximum.accumulate(first - turn) + turn
        return served

    def _acknowledge_at_once(self, own: np.ndarray, until: int) -> None:
        """Each entry after its delay; the mark-delete follows the slowest of them."""
        whole = np.maximum.accumulate(np.maximum(self._due[own], self._last))
        done = int(np.searchsorted(whole, until, side="right"))
        if self.spec.cumulative:
            done -= (self.count + done) % ACK_EVERY
        if done <= 0:
            return
        chosen = np.arange(done)
        if self.spec.cumulative:
            chosen = chosen[(self.count + chosen) % ACK_EVERY == ACK_EVERY - 1]
        self._last = int(whole[done - 1])
        self._at.append(whole[chosen])
        self._counts.append(self.count + 1 + chosen)
        at = whole[chosen] if self.spec.cumulative else self._due[own[:done]]
        self._acks.append(np.stack([own[chosen], at]))
        self.count += done

    def skip(self, entries: int, at: int) -> None:
        """An eviction moves the cursor on."""
        self.count += entries
        self._at.append(np.array([at + MOVED_NS]))
        self._counts.append(np.array([self.count]))
        self._last = max(self._last, at + MOVED_NS)

    def marks(self) -> Marks:
        """How far it had come, by time."""
        empty = [np.empty(0, dtype=np.int64)]
        return Marks(np.concatenate([*empty, *self._at]), np.concatenate([*empty, *self._counts]))

    def acks(self, entries: int) -> np.ndarray:
        """When each entry was acknowledged."""
        found = np.full(entries, NEVER)
        for own, at in self._acks:
            found[own] = at
        return found


class _Player:
    """Plays one topic; times are ns since the start of the trace."""

    def __init__(
        self,
        spec: BacklogTopicSpec,
        candidates: np.ndarray,
        sizes: np.ndarray,
        rate: float,
        active_s: float,
        rng: np.random.Generator,
    ) -> None:
        self._spec, self._candidates, self._sizes = spec, candidates, sizes
        self._taken = 0
        self._at: list[np.ndarray] = []
        self._bytes: list[np.ndarray] = []
        self._all_at = np.empty(0, dtype=np.int64)
        self._total = np.zeros(1, dtype=np.int64)
        self._place = np.empty(0, dtype=np.int64)
        self._subs = [
            _Keeping(name, sub, int(SECOND / (rate * (sub.speed or 1))), rng)
            for name, sub in spec.subscriptions.items()
        ]
        quota = spec.quota or QuotaSpec.model_validate({"policy": EVICTS})
        self._quota = quota
        self.limit_bytes = quota.size_bytes
        if quota.size_s is not None:
            self.limit_bytes = int(quota.size_s * sizes.sum() / active_s)
        self._open = True
        self._retries = 0
        self._next_try = NEVER
        self.played = Played(candidates, sizes, [], [], self.limit_bytes)

    def run(self, passes: list[int], end: int) -> Played:
        """From pass to pass, and from try to try of a producer that is refused."""
        for at in [*passes, end]:
            while self._next_try <= at:
                self._advance(self._next_try)
                self._try(self._next_try)
            self._advance(at)
            if at < end:
                self._check(at)
        played = self.played
        played.at_ns, played.bytes = self._all_at, np.diff(self._total)
        played.acks = [sub.acks(self._all_at.size) for sub in self._subs]
        played.marks = [sub.marks() for sub in self._subs]
        return played

    def _advance(self, until: int) -> None:
        end = int(np.searchsorted(self._candidates, until, side="right"))
        new = np.arange(self._taken, end)
        self._taken = end
        if not self._open:
            new = new[self._candidates[new] <= self.played.closed_ns[-1]]
        at = self._candidates[new]
        self._all_at = np.append(self._all_at, at)
        total = self._total[-1] + np.cumsum(self._sizes[new])
        self._total = np.append(self._total, total)
        self._place = np.append(self._place, ledger_of(self._spec, at))
        for sub in self._subs:
            sub.add(at)
            sub.advance(until)

    @property
    def _durable(self) -> list[_Keeping]:
        return [sub for sub in self._subs if sub.spec.durable]

    def _slowest(self) -> _Keeping:
        return min(self._durable, key=lambda sub: (sub.count, sub.name.encode()))

    def _backlog(self) -> int:
        """Bytes behind the slowest cursor as a broker estimates them, from averages of ledgers."""
        count, entries = self._slowest().count, self._all_at.size
        if count in (0, entries):
            return int(self._total[-1]) if count == 0 else 0
        place = self._place[count - 1]
        begin, end = np.searchsorted(self._place, [place, place + 1])
        own = int(self._total[end] - self._total[begin])
        consumed = (count - int(begin)) * (own // int(end - begin))
        return int(self._total[-1] - self._total[begin]) - consumed

    def _over(self, now: int) -> tuple[bool, bool]:
        """Whether size and time are exceeded."""
        size = self.limit_bytes is not None and self._backlog() >= self.limit_bytes
        first, limit = self._slowest().count, self._quota.time_s
        waits = first < self._all_at.size
        old = waits and limit is not None and now > int(self._all_at[first]) + limit * SECOND
        return size, bool(old)

    def _check(self, now: int) -> None:
        size, time = self._over(now)
        if not size and not time:
            return
        if self._quota.policy == EVICTS:
            (self._evict_size if size else self._evict_time)(now)
        elif self._open:
            self._open = False
            self.played.closed_ns.append(now + PRODUCERS_GONE_NS)
            self._next_try, self._retries = now + RETRIES_S[0] * SECOND, 1

    def _try(self, now: int) -> None:
        if any(self._over(now)):
            self.played.refused_ns.append(now)
            wait = RETRIES_S[min(self._retries, len(RETRIES_S) - 1)]
            self._next_try, self._retries = now + wait * SECOND, self._retries + 1
        else:
            self.played.created_ns.append(now)
            self._open, self._next_try = True, NEVER

    def _evict_size(self, now: int) -> None:
        assert self.limit_bytes is not None
        target, before = REDUCTION * self.limit_bytes, None
        while self._backlog() > target:
            sub = self._slowest()
            factor = (self._backlog() - target) / self._backlog()
            skipped = int(factor * (self._all_at.size - sub.count))
            if sub is before or skipped == 0:
                break
            before = sub
            sub.skip(skipped, now)

    def _evict_time(self, now: int) -> None:
        assert self._quota.time_s is not None
        oldest = now - int(REDUCTION * self._quota.time_s) * SECOND
        place = int(np.searchsorted(self._all_at, oldest))
        for sub in self._subs:
            if sub.count < place:
                sub.skip(place - sub.count, now)


def play_topic(
    spec: BacklogTopicSpec,
    candidates: np.ndarray,
    sizes: np.ndarray,
    rate: float,
    passes: list[int],
    span_s: tuple[float, float],
    rng: np.random.Generator,
) -> Played:
    """A topic to which producers would send such entries, if nobody disconnected them.

    `span_s` is how long they send and how long the trace is.
    """
    player = _Player(spec, candidates, sizes, rate, span_s[0], rng)
    return player.run(passes, int(span_s[1] * SECOND))
