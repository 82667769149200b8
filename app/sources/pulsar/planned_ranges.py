"""Spark's Python data source over Pulsar: a stream of ranges, which tasks then read.

The reader of a stream runs in one process of the driver. Spark asks it for the end of the next
batch, stores the answer in the offsets of the batch, and turns begin and end into ranges again if
the batch is repeated. Messages do not pass through here: a task reads those of its range where it
parses them, so that no record crosses from Python to the JVM and back.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.datasource import InputPartition

from app.sources.kafka.kafka_probe import mean_bytes
from app.sources.pulsar.message_positions import START, Position, entries_of_trigger
from app.sources.pulsar.partition import Partition
from app.sources.pulsar.position_range import Range
from app.sources.pulsar.shares import EARLIEST, Key, document_of, positions_of
from app.sources.pulsar.topic_client import Options, connect, partitions
from app.sources.python_source import PlanningReader, Rows
from app.sources.raw import Document, Shares

PARTITIONS_S = 10.0
"""Time between two looks for new partitions."""
IDLE_S = 0.1
"""Duration of a poll that finds nothing new, because Spark asks again at once."""
SAMPLE_S = 60.0
"""Time between two samples of the size of records, while a query lags."""
QUEUE_BYTES, QUEUE = 32 << 20, 5000
"""Most bytes and messages that a task's client prefetches."""


@dataclass(frozen=True)
class RangePlan:
    """How the ranges of a query are planned; passed to the processes that plan them."""

    options: Options
    topics: tuple[str, ...]
    shares: Shares
    max_records: int
    max_bytes: int
    subscription: str
    """Name of the query's own, which retains what it has not processed."""
    first: Document = field(default_factory=lambda: EARLIEST)
    """Start of the query, if no batch was planned."""
    planned: Document | None = None
    """End of the last planned batch."""
    ended: Document | None = None
    """End of the last batch that has ended."""
    ending: bool = False
    """Whether the query stops at the end that the topics have when it starts."""

    @property
    def strict(self) -> bool:
        """Whether no record may be missing."""
        return self.options.get("failOnDataLoss", "true") == "true"


class RangeReader(PlanningReader):
    """Plans the batches of one query."""

    def __init__(self, plan: RangePlan) -> None:
        self._plan = plan
        self._last = plan.planned or plan.first
        self._opened: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A task gets the reader, but not its connection.
        return {**self.__dict__, "_opened": None}

    @property
    def _planner(self) -> Planner:
        if self._opened is None:
            self._opened = Planner(self._plan)
        return self._opened

    def initialOffset(self) -> Document:  # noqa: N802
        """The start of the first batch."""
        return self._plan.first

    def latestOffset(self) -> Document:  # noqa: N802
        """The end of the next batch: after the last planned one, within the limits of a batch.

        Called when the batch before has ended; only then the subscriptions advance.
        """
        found = self._planner.next(self._last)
        if found == self._last:
            time.sleep(IDLE_S)
        return found

    def partitions(self, start: Document, end: Document) -> list[InputPartition]:
        """The ranges between two offsets."""
        self._last = end
        return [Rows([tuple(each)]) for each in self._planner.ranges(start, end)]

    def stop(self) -> None:
        """Close the connection."""
        if self._opened is not None:
            self._opened.close()


@dataclass
class Sizes:
    """Mean sizes of what waits, from the newest messages."""

    records_per_entry: float = 1.0
    bytes_per_record: float = 1000.0
    at_s: float = field(default=-SAMPLE_S)


class Planner:
    """The partitions of a query's topics, and the ranges of its batches."""

    def __init__(self, plan: RangePlan) -> None:
        self._plan = plan
        self._client = connect(plan.options)
        self._there: dict[Key, Partition] = {}
        self._sizes = Sizes()
        self._looked_s = -PARTITIONS_S
        self._until: Mapping[Key, Position] | None = None

    def next(self, before: Document) -> Document:
        """The end of a batch that begins at `before`; `before` itself if nothing is new."""
        self._look()
        self._go_to(before)
        lasts = {key: one.last() for key, one in self._there.items()}
        ends = self._ends_of_query(lasts)
        waiting = [key for key, one in self._there.items() if ends[key].place > one.position.place]
        found = self._ends(waiting, lasts, ends)
        for key, one in self._there.items():
            one.seen(lasts[key])
            one.acknowledge()
        if not found:
            return before
        positions = positions_of(before)
        more = any(end.place < ends[key].place for key, end in found.items())
        return document_of({**positions, **found}, more)

    def all(self) -> Document:
        """The ends of all partitions."""
        self._look()
        return document_of({key: one.last() for key, one in self._there.items()})

    def ranges(self, start: Document, end: Document) -> list[Range]:
        """The ranges between two offsets, one for each partition that advances."""
        begins, found = positions_of(start), []
        for key, position in positions_of(end).items():
            begin = begins.get(key, START)
            if position.place > begin.place:
                topic, number = key
                queue = min(max(int(QUEUE_BYTES / self._sizes.bytes_per_record), 2), QUEUE)
                found.append(
                    Range(
                        self._name(key),
                        self._plan.shares.name(topic, number),
                        str(begin),
                        str(position),
                        queue,
                    )
                )
        if found:
            self._go_to(end)
            for one in self._there.values():
                one.processed()
        return found

    def close(self) -> None:
        """Close the connection."""
        self._client.shutdown()

    def _look(self) -> None:
        """Find the partitions of the topics; new ones are added."""
        now_s = time.monotonic()
        if now_s - self._looked_s < PARTITIONS_S:
            return
        self._looked_s = now_s
        ended = positions_of(self._plan.ended or self._plan.first)
        for topic in self._plan.topics:
            for number, name in partitions(self._client, topic).items():
                key = topic, str(number)
                if key not in self._there:
                    self._there[key] = Partition(
                        self._client,
                        name,
                        self._plan.subscription,
                        ended.get(key),
                        self._plan.strict,
                    )

    def _name(self, key: Key) -> str:
        """The topic of a partition."""
        self._look()
        return self._there[key].topic

    def _go_to(self, document: Document) -> None:
        positions = positions_of(document)
        for key, one in self._there.items():
            if key in positions:
                one.planned(positions[key])

    def _ends_of_query(self, lasts: Mapping[Key, Position]) -> Mapping[Key, Position]:
        """The present limit of the query: the ends of the partitions, or those at its start."""
        if not self._plan.ending:
            return lasts
        if self._until is None:
            self._until = lasts
        return {
            key: min(last, self._until.get(key, START), key=lambda position: position.place)
            for key, last in lasts.items()
        }

    def _ends(
        self, waiting: list[Key], lasts: Mapping[Key, Position], ends: Mapping[Key, Position]
    ) -> dict[Key, Position]:
        """The end of a batch in each of the partitions with new records."""
        if not waiting:
            return {}
        self._sample(waiting, lasts)
        entries = entries_of_trigger(
            self._plan.max_records,
            self._plan.max_bytes,
            self._sizes.records_per_entry,
            self._sizes.records_per_entry * self._sizes.bytes_per_record,
            len(waiting),
        )
        found = {}
        for key in waiting:
            found[key] = self._there[key].next_end(ends[key], entries)
        return found

    def _sample(self, waiting: list[Key], lasts: Mapping[Key, Position]) -> None:
        """Sample the size of records at intervals."""
        now_s = time.monotonic()
        if now_s - self._sizes.at_s < SAMPLE_S:
            return
        messages = self._there[waiting[0]].sample(lasts[waiting[0]])
        mean = mean_bytes([size for _, size in messages])
        if mean is not None:
            per_entry = len(messages) / len({entry for entry, _ in messages})
            self._sizes = Sizes(per_entry, max(mean, 1.0), now_s)
