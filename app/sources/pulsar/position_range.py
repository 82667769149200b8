"""A range of a Pulsar partition as Arrow batches: read by a task, with the same result in every
reading.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from app.sources.pulsar.message_positions import Position, offset
from app.sources.pulsar.topic_client import Options, client_of_process

if TYPE_CHECKING:
    import pulsar

SCHEMA = "topic string, name string, begin string, end string, queue bigint"
ROWS, BYTES = 20_000, 16 << 20
"""Most rows and bytes of a batch."""
SILENCE_S, PATIENCE_S = 5.0, 60.0
"""A range without a further message for SILENCE_S is read again from further back; after PATIENCE_S
the task fails and the query starts again.
"""
BACK_ENTRIES = 1000
"""Most entries between a range and the first chunk of a message in it."""
WAIT_MS = 1000


class Range(NamedTuple):
    """Messages of a partition after `begin`, up to and with `end`."""

    topic: str
    """The partition's own topic."""
    name: str
    """The partition, as the identity of its records begins."""
    begin: str
    end: str
    queue: int
    """Messages that the client prefetches."""


def read(options: Options, range_: Range) -> Iterator[pa.RecordBatch]:
    """The messages of a range: value, source_partition and source_offset."""
    values: list[bytes] = []
    names: list[str] = []
    offsets: list[int] = []
    size = 0
    for one in messages(options, range_):
        value = one.message.data()
        values.append(value)
        names.append(f"{range_.name}:{one.ledger}")
        offsets.append(offset(one.entry, one.batch_index))
        size += len(value)
        if len(values) >= ROWS or size >= BYTES:
            yield _batch(values, names, offsets)
            values, names, offsets, size = [], [], [], 0
    if values:
        yield _batch(values, names, offsets)


def _batch(values: list[bytes], names: list[str], offsets: list[int]) -> pa.RecordBatch:
    columns = (values, pa.binary()), (names, pa.string()), (offsets, pa.int64())
    return pa.record_batch(
        [pa.array(column, type_) for column, type_ in columns],
        ["value", "source_partition", "source_offset"],
    )


def messages(options: Options, range_: Range) -> Iterator[FoundMessage]:
    """The messages of a range, in order, with their positions.

    The client shows a message in chunks at the position of its last chunk, and not at all unless it
    has read the first one. Entries without a message are therefore read a second time from further
    back.
    """
    begin = Position.of(range_.begin)
    seen = Seen(begin)
    complete = False
    for one in read_once(options, range_, begin, SILENCE_S):
        complete = one is None
        if one is not None:
            seen.add(one)
            yield one
    if complete and not seen.gaps:
        return
    back = Position(begin.ledger, max(begin.entry - BACK_ENTRIES, -1))
    for one in read_once(options, range_, back, PATIENCE_S):
        if one is None:
            return
        if seen.lacks(one):
            yield one
    import pulsar

    raise pulsar.Timeout(f"{range_.topic}: no message of {range_.begin} to {range_.end} comes")


class FoundMessage(NamedTuple):
    """A message and its position; `batch_index` is its place in its batch, -1 for a single message."""

    message: pulsar.Message
    ledger: int
    entry: int
    batch_index: int


class Seen:
    """Entries of a range that have returned a message."""

    def __init__(self, begin: Position) -> None:
        self._last = begin.place
        self.gaps: set[tuple[int, int]] = set()

    def add(self, one: FoundMessage) -> None:
        """Record the next message."""
        ledger, entry = self._last
        first = entry + 1 if ledger == one.ledger else 0
        self.gaps |= {(one.ledger, missing) for missing in range(first, one.entry)}
        self._last = one.ledger, one.entry

    def lacks(self, one: FoundMessage) -> bool:
        """Whether a message was not among them."""
        place = one.ledger, one.entry
        return place in self.gaps or place > self._last


def read_once(
    options: Options, range_: Range, start: Position, silence_s: float
) -> Iterator[FoundMessage | None]:
    """The messages of a range, read from `start`, and None when its end is reached.

    The end is the last message of its last entry, if its index is known, or the first message after
    the range.
    """
    import pulsar

    begin, end = Position.of(range_.begin), Position.of(range_.end)
    first = pulsar.MessageId.earliest
    if start.ledger >= 0:
        first = pulsar.MessageId(-1, start.ledger, start.entry, -1)._msg_id
    reader = client_of_process(options).create_reader(
        range_.topic, first, receiver_queue_size=range_.queue
    )
    deadline = time.monotonic() + silence_s
    try:
        while time.monotonic() < deadline:
            try:
                message = reader.read_next(WAIT_MS)
            except pulsar.Timeout:
                continue
            deadline = time.monotonic() + silence_s
            at = message.message_id()
            found = FoundMessage(message, at.ledger_id(), at.entry_id(), at.batch_index())
            place = found.ledger, found.entry
            if place > end.place:
                yield None
                return
            if place > begin.place:  # the entry of `begin` comes again where it is a batch
                yield found
                if place == end.place and found.batch_index == (
                    -1 if end.last is None else end.last
                ):
                    yield None
                    return
    finally:
        reader.close()
