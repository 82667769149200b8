"""The slices of a replay: stretches of event time with about as many records each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.whatif.replay.archive import RecordCounts
from app.whatif.replay.event_span import FIRST_MS, EventSpan

Array = np.ndarray
RECORDS = 1_000_000
"""Records of a slice: more take more memory, fewer read and write states more often."""
BYTES = 128 << 20
"""Bytes of the archive that a slice may take, so that slices of large records are smaller."""


@dataclass(frozen=True)
class TimeSlice:
    """A stretch of event time that is judged and committed at once."""

    number: int
    begin_ms: int
    end_ms: int
    """Event times (ms since the epoch) of its records: from the one to before the other."""
    records: int
    latest_ms: int
    """The latest wall time of its records, and of those before."""
    warm_up: bool
    """Its rows are not written: it only fills the states."""


def slices(
    counted: RecordCounts,
    span: EventSpan,
    write_from_ms: int = FIRST_MS,
    records: int = RECORDS,
    latest_ms: int = FIRST_MS,
) -> list[TimeSlice]:
    """Slices over the whole span, cut between bins and at `write_from_ms`, where the warm-up ends.

    `latest_ms` is the stream's latest time before the span.
    """
    starts = _starts(counted, write_from_ms, records)
    found: list[TimeSlice] = []
    for first, end in zip(starts, [*starts[1:], len(counted.begin_ms)], strict=True):
        begin_ms = int(counted.begin_ms[first]) if found else span.begin_ms
        end_ms = span.end_ms if end == len(counted.begin_ms) else int(counted.begin_ms[end])
        if first < end:
            latest_ms = max(latest_ms, int(counted.latest_ms[first:end].max()))
        found.append(
            TimeSlice(
                len(found),
                max(begin_ms, span.begin_ms),
                end_ms,
                int(counted.records[first:end].sum()),
                latest_ms,
                first < end and int(counted.begin_ms[first]) < write_from_ms,
            )
        )
    return found


def edges(found: list[TimeSlice]) -> Array:
    """Where slices begin, and the end of the last (ms since the epoch)."""
    return np.array([*(one.begin_ms for one in found), found[-1].end_ms], np.int64)


def _starts(counted: RecordCounts, write_from_ms: int, records: int) -> list[int]:
    """The first bin of each slice."""
    starts, count = [0], 0
    for place, (begin_ms, more) in enumerate(
        zip(counted.begin_ms.tolist(), counted.records.tolist(), strict=True)
    ):
        warm_up_ends = place > 0 and counted.begin_ms[place - 1] < write_from_ms <= begin_ms
        if place > starts[-1] and (count + more > records or warm_up_ends):
            starts.append(place)
            count = 0
        count += more
    return starts
