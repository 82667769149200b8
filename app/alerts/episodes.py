"""From stretches of time in which something held to the changes of an alert's state.

Nothing here depends on when or how often a check runs: what fires at a time follows from the
stretches and that time alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Labels = tuple[tuple[str, str], ...]
FIRING, RESOLVED = "firing", "resolved"


@dataclass(frozen=True)
class Stretch:
    """Something held for `labels` from start to end (ms, end open), `value` at most."""

    labels: Labels
    start_ms: int
    end_ms: int
    value: float


@dataclass(frozen=True)
class Change:
    """An alert began to fire or was resolved at `at_ms`, by a stretch that began at `since_ms`."""

    labels: Labels
    state: str
    at_ms: int
    since_ms: int
    until_ms: int
    value: float


def joined(stretches: Iterable[Stretch], now_ms: int) -> list[Stretch]:
    """Stretches of the same labels that touch or overlap as one; what begins after now is left out.

    The end stays as it is given, also where it lies after now.
    """
    result: list[Stretch] = []
    begun = [s for s in stretches if s.start_ms < now_ms]
    for stretch in sorted(begun, key=lambda s: (s.labels, s.start_ms, s.end_ms)):
        last = result[-1] if result else None
        if last and last.labels == stretch.labels and stretch.start_ms <= last.end_ms:
            end = max(last.end_ms, stretch.end_ms)
            value = max(last.value, stretch.value)
            result[-1] = Stretch(last.labels, last.start_ms, end, value)
        else:
            result.append(stretch)
    return result


def changes(stretches: Iterable[Stretch], for_ms: int, now_ms: int) -> list[Change]:
    """Every change up to now, oldest first for each labels: firing `for_ms` after the start of a
    stretch that lasts so long, resolved at its end once that lies before now."""
    result: list[Change] = []
    for s in joined(stretches, now_ms):
        until = min(s.end_ms, now_ms)
        if until - s.start_ms < for_ms:
            continue
        result.append(
            Change(s.labels, FIRING, s.start_ms + for_ms, s.start_ms, until, s.value)
        )
        if s.end_ms < now_ms:
            result.append(Change(s.labels, RESOLVED, s.end_ms, s.start_ms, until, s.value))
    return result


def latest(history: Iterable[Change]) -> dict[Labels, Change]:
    """The change that holds for each labels."""
    return {change.labels: change for change in history}


def unrecorded(
    history: list[Change], recorded: dict[Labels, tuple[int, str]], now_ms: int
) -> list[Change]:
    """The changes that the recorded state (time and state of the last one) does not know yet.

    Records are never rewritten. Where a stretch that had been called resolved went on, because
    its rows came late, the alert is recorded as firing again from now.
    """
    never = (-(2**63), RESOLVED)
    # A stretch of just for_ms fires and ends at one time; by its name, resolved comes second.
    new = [c for c in history if (c.at_ms, c.state) > recorded.get(c.labels, never)]
    state = {labels: state for labels, (_, state) in recorded.items()}
    state |= {change.labels: change.state for change in new}
    for change in latest(history).values():
        if change.state == FIRING != state.get(change.labels):
            again = Change(change.labels, FIRING, now_ms, change.since_ms, change.until_ms,
                           change.value)
            new.append(again)
    return new
