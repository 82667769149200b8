"""Derives the changes of an alert's state from the time ranges in which its condition held.

The result does not depend on when or how often rules are evaluated: the alerts that fire at a time
follow from the stretches and that time alone. Recorded changes only decide which changes are new.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

Labels = tuple[tuple[str, str], ...]
PENDING, FIRING, INACTIVE, RESOLVED = "pending", "firing", "inactive", "resolved"
ACTIVE = (PENDING, FIRING)
ORDER = {PENDING: 0, FIRING: 1, INACTIVE: 2, RESOLVED: 2}
"""Order of the changes of one time."""
FOLLOWS = {
    PENDING: (INACTIVE, RESOLVED),
    FIRING: (PENDING, INACTIVE, RESOLVED),
    # A stretch that continued and ended after it was recorded as resolved: its end is recorded.
    INACTIVE: (PENDING,),
    RESOLVED: (FIRING, RESOLVED),
}
"""The states that each state can follow; without a record an alert is resolved (`NEVER`)."""
SEVERITIES = ("info", "warning", "critical")
"""In the order in which an alert rises; it falls only by being resolved."""


@dataclass(frozen=True)
class Stretch:
    """A condition held for `labels` from start to end (ms, end exclusive), `value` at most."""

    labels: Labels
    start_ms: int
    end_ms: int
    value: float
    words: Labels = ()
    """Further columns, for the summary."""
    severity: str = SEVERITIES[0]
    rises: tuple[tuple[int, str], ...] = ()
    """Later times at which the severity rose, and the severities from then on."""

    def severity_at(self, at_ms: int) -> str:
        """The highest severity up to a time."""
        return [self.severity, *(to for since, to in self.rises if since <= at_ms)][-1]


@dataclass(frozen=True)
class AlertChange:
    """An alert changed its state or rose in severity at `at_ms`, by a stretch that began at
    `since_ms`."""

    labels: Labels
    state: str
    at_ms: int
    since_ms: int
    until_ms: int
    value: float
    words: Labels = ()
    severity: str = SEVERITIES[0]


@dataclass(frozen=True)
class Last:
    """The newest recorded change of an alert."""

    state: str
    at_ms: int
    since_ms: int
    value: float = float("nan")
    severity: str = SEVERITIES[0]


NEVER = Last(RESOLVED, -(2**63), 0)


def joined(stretches: Iterable[Stretch], now_ms: int) -> list[Stretch]:
    """Stretches of the same labels that touch or overlap as one, without those after now.

    The end is kept, even after now. Words are those of the last stretch. One that begins now counts
    where it continues another: an alert that fires now has its severity.
    """
    result: list[Stretch] = []
    begun = [s for s in stretches if s.start_ms <= now_ms]
    for stretch in sorted(begun, key=lambda s: (s.labels, s.start_ms, s.end_ms)):
        last = result[-1] if result else None
        if last and last.labels == stretch.labels and stretch.start_ms <= last.end_ms:
            end = max(last.end_ms, stretch.end_ms)
            value = max(last.value, stretch.value)
            rises = last.rises
            if is_above(stretch.severity, last.severity_at(stretch.start_ms)):
                earlier = (rise for rise in rises if rise[0] < stretch.start_ms)
                rises = (*earlier, (stretch.start_ms, stretch.severity))
            result[-1] = replace(last, end_ms=end, value=value, words=stretch.words, rises=rises)
        elif stretch.start_ms < now_ms:
            result.append(stretch)
    return result


def is_above(severity: str, other: str) -> bool:
    """Whether a severity is higher than another."""
    return SEVERITIES.index(severity) > SEVERITIES.index(other)


def changes(stretches: Iterable[Stretch], for_ms: int, now_ms: int) -> list[AlertChange]:
    """Every change up to now, oldest first for each set of labels.

    Pending at the start of a stretch, firing `for_ms` later if it lasts so long (at once without a
    wait), firing again where its severity rises, resolved at its end once that lies before now;
    inactive, if it ends without having fired.
    """
    result: list[AlertChange] = []
    for s in joined(stretches, now_ms):
        until = min(s.end_ms, now_ms)
        ended, fires = s.end_ms < now_ms, until - s.start_ms >= for_ms
        states = [(PENDING, s.start_ms)] if for_ms else []
        if fires:
            fired_ms = s.start_ms + for_ms
            states += [(FIRING, fired_ms)]
            states += [(FIRING, at) for at, _ in s.rises if fired_ms < at < now_ms]
        states += [(RESOLVED if fires else INACTIVE, s.end_ms)] if ended else []
        result += [
            AlertChange(s.labels, state, at, s.start_ms, until, s.value, s.words, s.severity_at(at))
            for state, at in states
        ]
    return result


def by_labels(history: Iterable[AlertChange]) -> dict[Labels, list[AlertChange]]:
    """The changes of each set of labels, in their order."""
    result: dict[Labels, list[AlertChange]] = {}
    for change in history:
        result.setdefault(change.labels, []).append(change)
    return result


def latest(history: Iterable[AlertChange]) -> dict[Labels, AlertChange]:
    """The newest change of each set of labels."""
    return {change.labels: change for change in history}


def unrecorded(
    history: Iterable[AlertChange], recorded: Mapping[Labels, Last], now_ms: int
) -> list[AlertChange]:
    """The changes that are not recorded yet, oldest first for each set of labels.

    Records are never rewritten. If a stretch that is recorded as resolved continued, because its
    rows arrived late, the alert is recorded as firing again from now; if the rows of a firing
    alert have disappeared, as resolved now. An alert whose newest record is later than now has
    no new change: the tables were further ahead before.
    """
    grouped = by_labels(history)
    new: list[AlertChange] = []
    for labels in [*grouped, *(known for known in recorded if known not in grouped)]:
        last = recorded.get(labels, NEVER)
        if now_ms >= last.at_ms:
            new += _new_of_one(labels, grouped.get(labels, []), last, now_ms)
    return new


def _new_of_one(
    labels: Labels, history: list[AlertChange], last: Last, now_ms: int
) -> list[AlertChange]:
    new: list[AlertChange] = []
    state, since_ms, severity = last.state, last.since_ms, last.severity
    for change in history:
        if (change.at_ms, ORDER[change.state]) <= (last.at_ms, ORDER[last.state]):
            continue
        rises = state == change.state == FIRING and is_above(change.severity, severity)
        if state not in FOLLOWS[change.state] and not rises:
            continue
        # Of a stretch that continues perhaps only the end is still read.
        since_ms = min(since_ms, change.since_ms) if state in ACTIVE else change.since_ms
        new.append(replace(change, since_ms=since_ms))
        state, severity = change.state, change.severity
    holds = history[-1] if history else None
    if holds is not None and holds.state in ACTIVE:
        rises = holds.state == state == FIRING and is_above(holds.severity, severity)
        if ORDER[holds.state] > ORDER[state] or state not in ACTIVE or rises:
            new.append(replace(holds, at_ms=now_ms))
    elif state in ACTIVE:
        end = RESOLVED if state == FIRING else INACTIVE
        if holds is None:
            new.append(
                AlertChange(
                    labels, end, now_ms, since_ms, now_ms, last.value, severity=last.severity
                )
            )
        else:
            new.append(replace(holds, state=end, at_ms=now_ms, since_ms=since_ms))
    return new


def bounded(
    history: list[AlertChange], recorded: Mapping[Labels, Last], limit: int
) -> tuple[list[AlertChange], int]:
    """The changes of at most `limit` alerts that hold, and the number of those suppressed.

    Alerts that are recorded as holding are kept first, then those that began first. Of alerts that
    have ended the newest `limit` are kept.
    """
    grouped = by_labels(history)

    def place(labels: Labels) -> tuple[bool, int, Labels]:
        is_new = recorded.get(labels, NEVER).state not in ACTIVE
        return is_new, grouped[labels][-1].since_ms, labels

    holding = sorted((k for k, v in grouped.items() if v[-1].state in ACTIVE), key=place)
    ended = sorted(
        (k for k, v in grouped.items() if v[-1].state not in ACTIVE),
        key=lambda labels: (-grouped[labels][-1].at_ms, labels),
    )
    known = {k for k in grouped if recorded.get(k, NEVER).state in ACTIVE}
    kept = {*holding[:limit], *ended[:limit], *known}
    left_out = sum(labels not in kept for labels in holding)
    return [change for change in history if change.labels in kept], left_out
