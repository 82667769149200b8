"""The arithmetic of a comparison with Kafka: what a number can be between two readings.

Two readings have the end of a log at 100 and at 130, and a group at 90 and at 95: its lag at a poll
between them was 5 to 40. A log starts at 10 and then at 50, and a group stands at 30: 20 offsets
were deleted before it read them, neither more nor less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.show.reconcile.cluster_reading import Reading
from app.show.reconcile.measures import LAG, LOG_END, LOG_START, LOST, OF_KAFKA, job_of_groups
from app.show.reconcile.spans import Row
from app.sources.kafka.offsets import Place

Key = tuple[str, Place]
"""A group in a partition."""


class Lost(NamedTuple):
    """A row of `lost_messages`: the offsets that were deleted unread."""

    begin: int
    end: int


class Empty(NamedTuple):
    """A poll read from an offset to the end of the log and found no record."""

    begin: int
    end: int


@dataclass(frozen=True)
class WeirNumber:
    """Weir's side: what a check has whose poll lies between the readings, and what was lost."""

    check: int | None = None
    """The time of that check; None without one."""
    reached: bool = False
    """Whether there is a check whose poll began after the second reading."""
    lags: Mapping[Key, int] = field(default_factory=dict)
    """At the check, other than 0."""
    logs: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """Start and end at the check, where a group lags."""
    before: frozenset[Key] = frozenset()
    """Groups that lagged at the last check before the first reading."""
    stale: frozenset[tuple[str | None, Place]] = frozenset()
    """Partitions and groups that the poll of the check left out, and an earlier one had."""
    lost: Mapping[Key, list[Lost]] = field(default_factory=dict)
    """Since the first reading."""
    empty: Mapping[Key, list[Empty]] = field(default_factory=dict)
    later: Mapping[Key, list[int | None]] = field(default_factory=dict)
    """Offsets at the two polls after the second reading; None = none."""


class KafkaNumber(NamedTuple):
    """Kafka's number: anything from `least` to `most`, or why there is none."""

    least: int | None = None
    most: int | None = None
    reason: str | None = None


def rows_of(before: Reading, after: Reading, weir: WeirNumber) -> list[Row]:
    """A row for every number that is not 0 on both sides, by measure, topic, partition, group."""
    keys = {
        (group, Place.of_text(place))
        for reading in (before, after)
        for group, offsets in reading.offsets.items()
        for place in offsets
    }
    found: list[Row] = []
    for key in {*keys, *weir.lags, *weir.lost}:
        found += _row(LAG, key, _lag(before, after, key, weir), weir.lags.get(key, 0), weir)
        found += _lost(before, after, key, weir)
    for place, (start, end) in weir.logs.items():
        for measure, which, value in ((LOG_START, 0, start), (LOG_END, 1, end)):
            found += _row(measure, (None, place), _log(before, after, place, which), value, weir)
    span = {"window_start_ms": before.at_ms, "window_ms": after.at_ms - before.at_ms}
    places = list(OF_KAFKA)
    found.sort(
        key=lambda row: (
            places.index(row["measure"]),
            row["topic"],
            row["partition"],
            row["group"] or "",
        )
    )
    return [{**row, **span} for row in found]


def _row(
    measure: str, key: tuple[str | None, Place], kafka: KafkaNumber, value: int, weir: WeirNumber
) -> list[Row]:
    """The row of a number, unless it is 0 on both sides."""
    group, place = key
    own = (
        kafka.least
        if kafka.least is None or kafka.most is None
        else (min(max(value, kafka.least), kafka.most))
    )
    if not own and not value:
        return []
    difference = None if own is None else own - value
    reason = kafka.reason
    if reason is None and measure != LOST and weir.check is None:
        reason = "NO_CHECK"
    elif reason is None and difference:
        if measure != LOST and weir.stale & {(group, place), (None, place)}:
            reason = "NOT_POLLED"
        elif not weir.reached:
            reason = "NOT_REACHED"
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "group": group,
            "measure": measure,
            "compared_job": job_of_groups(),
            "broker_value": own,
            "weir_value": value,
            "difference": difference,
            "bound": 0,
            "reason": reason,
        }
    ]


def _apart(before: Reading, after: Reading, place: Place, group: str | None) -> str | None:
    """Why two readings of a partition, or of a group in it, have nothing between them."""
    if not (before.has_answer(place, group) and after.has_answer(place, group)):
        return "NO_ANSWER"
    old, new = before.log(place), after.log(place)
    ids = before.ids.get(place.topic), after.ids.get(place.topic)
    if (old is None) is not (new is None) or (None not in ids and ids[0] != ids[1]):
        return "LOG_ANEW"
    shorter = old is not None and new is not None and (new[0] < old[0] or new[1] < old[1])
    return "LOG_ANEW" if shorter else None


def _log(before: Reading, after: Reading, place: Place, which: int) -> KafkaNumber:
    reason = _apart(before, after, place, None)
    old, new = before.log(place), after.log(place)
    if reason is not None or old is None or new is None:
        return KafkaNumber(reason=reason or "LOG_ANEW")
    return KafkaNumber(old[which], new[which])


def _lag(before: Reading, after: Reading, key: Key, weir: WeirNumber) -> KafkaNumber:
    group, place = key
    reason = _apart(before, after, place, group)
    if reason is not None:
        return KafkaNumber(reason=reason)
    old, new = before.position(place, group), after.position(place, group)
    if old is None and new is None:
        # A group that came and went between the readings may have been there at the check.
        return KafkaNumber(0, 0, None if key in weir.before else "GROUP_CHANGED")
    if old is None or new is None:
        return KafkaNumber(reason="GROUP_CHANGED")
    return KafkaNumber(old.end - max(old.offset, new.offset), new.end - min(old.offset, new.offset))


def _lost(before: Reading, after: Reading, key: Key, weir: WeirNumber) -> list[Row]:
    """Offsets that were deleted between the readings and that the group had not read.

    Kafka vouches for a group that stands still. One that moves may have read up to its later offset
    before the deletion, or have jumped there after it; one that comes may have been anywhere. What
    a poll found to hold no record is no loss.
    """
    group, place = key
    if _apart(before, after, place, group) is not None:
        return []
    from_, to = before.log(place), after.log(place)
    if from_ is None or to is None or to[0] <= from_[0]:
        return []
    old, new = before.position(place, group), after.position(place, group)
    offsets = [each.offset for each in (old, new) if each is not None]
    if not offsets:
        return []
    empty = sorted(weir.empty.get(key, []))
    perhaps = _beyond(max(min(offsets) if old is not None else 0, from_[0]), empty)
    surely = _beyond(max(*offsets, from_[0]), empty)
    if new is None or any(at != new.offset for at in weir.later.get(key, [])):
        surely = to[0]  # by Weir's next poll it had read what was deleted, or jumped over it
    own = sum(
        max(min(row.end, to[0]) - max(row.begin, from_[0]), 0) for row in weir.lost.get(key, [])
    )
    kafka = KafkaNumber(max(to[0] - surely, 0), max(to[0] - perhaps, 0))
    return _row(LOST, key, kafka, own, weir)


def _beyond(offset: int, empty: list[Empty]) -> int:
    """An offset, or the next one that may hold a record."""
    for begin, end in empty:
        if begin <= offset:
            offset = max(offset, end)
    return offset
