"""One reading of a cluster of Kafka: what it answered for groups and logs, and when."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from app.sources.kafka.offsets import OffsetAnswers, Place


class GroupPosition(NamedTuple):
    """The offset of a group in a partition, and the log there."""

    offset: int
    start: int
    end: int


@dataclass(frozen=True)
class Reading:
    """What Kafka answered between `from_ms` and `to_ms`."""

    from_ms: int
    to_ms: int
    ids: dict[str, str | None] = field(default_factory=dict)
    """Ids of the topics that are there."""
    gone: list[str] = field(default_factory=list)
    """Topics that were requested and do not exist."""
    partitions: dict[str, list[int]] = field(default_factory=dict)
    logs: dict[str, list[int]] = field(default_factory=dict)
    """Start and end by partition, where both were answered."""
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    """By group that was answered its offsets by partition."""
    problems: list[str] = field(default_factory=list)

    @property
    def at_ms(self) -> int:
        """The middle of that time."""
        return (self.from_ms + self.to_ms) // 2

    def has_answer(self, place: Place, group: str | None = None) -> bool:
        """Whether it is known what is there, be it nothing."""
        if group is not None and group not in self.offsets:
            return False
        if place.topic not in self.ids:
            return place.topic in self.gone
        return place.partition not in self.partitions[place.topic] or place.text in self.logs

    def log(self, place: Place) -> tuple[int, int] | None:
        """Start and end of a log; None where there is none."""
        found = self.logs.get(place.text)
        return None if found is None else (found[0], found[1])

    def position(self, place: Place, group: str) -> GroupPosition | None:
        """Where a group is; None without an offset, or a log."""
        log, offset = self.log(place), self.offsets.get(group, {}).get(place.text)
        return None if log is None or offset is None else GroupPosition(offset, *log)


def reading_of(answers: OffsetAnswers, from_ms: int, to_ms: int) -> Reading:
    """The answers of a client, as plain values."""
    return Reading(
        from_ms,
        to_ms,
        {name: topic.id for name, topic in answers.topics.items()},
        sorted(answers.gone | answers.absent),
        {name: list(topic.partitions) for name, topic in answers.topics.items()},
        {place.text: [log.start, log.end] for place, log in answers.logs.items()},
        {
            group: {place.text: at for place, at in found.items()}
            for group, found in answers.committed.items()
        },
        list(answers.problems),
    )
