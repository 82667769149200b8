"""The output of `kafka-dump-log` (kafka.tools.DumpLogSegments) for log segments: produced batches.

    Dumping /var/kafka/orders-0/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 ... producerId: 7 ... isControl: false ...

Topic and partition are the segment's folder. Known lines without batches are
skipped: those of indexes and snapshots, of single records, of the tool's own log and of what
it found at the end of a file. Any other line within a segment is not parsed, so that a
truncated line and a message that the dump ended early are reported.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from app.ingest.sources.kafka_request_log import MARKER, NotParsedError

HEADER, BATCH, RECORD = b"Dumping ", b"baseOffset: ", b"|"
_SEGMENT = re.compile(
    rb"(?:^|.*[/\\])(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d{1,10})"
    rb"(?:\.[0-9a-f]{32}-(?:delete|future|stray))?[/\\][^/\\]+$"
)
_QUIET = (b"Log starting offset:", b"Starting offset:", b"Found ", b"Mismatches in ",
          b"Non-consecutive offsets in ", b"[", b" ", b"\t")
_FIELD = re.compile(rb"(\w+): (\S+)")
_NEEDED = (b"baseOffset", b"count", b"baseSequence", b"producerId", b"size")
_TIMES = (b"CreateTime", b"LogAppendTime", b"NoTimestampType")
_INTEGER = re.compile(rb"-?\d{1,19}\Z")


class Batch(NamedTuple):
    """A batch of a partition; topic and partition are None where the dump does not have them."""

    topic: str | None
    partition: int | None
    base_offset: int
    messages: int
    base_sequence: int
    producer_id: int
    ts_ms: int
    size: int


def looks_like(values: pa.Array) -> pa.Array:
    """Where a line is the beginning of a dump or of a batch (bool)."""
    return pc.or_(pc.starts_with(values, HEADER), pc.starts_with(values, BATCH))


class Dump:
    """The lines of one dump, in their order, with the segment that they are of."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._partition: int | None = None
        self._in_log = False
        self._with_records = False

    def parse(self, line: bytes) -> Batch | None:
        """The batch of a line; None where it has none.

        NotParsedError for a malformed line.
        """
        line = line.rstrip(b"\r")
        if line.startswith(BATCH):
            return self._batch(line)
        if line.startswith(HEADER):
            self._begin(line[len(HEADER) :].rstrip())
        elif line.startswith(RECORD):
            self._with_records = True
        elif not self._with_records and self._strange(line):
            raise NotParsedError("neither a batch nor a heading")
        return None

    def _strange(self, line: bytes) -> bool:
        return MARKER in line or (self._in_log and not line.startswith(_QUIET))

    def _begin(self, path: bytes) -> None:
        found = _SEGMENT.match(path)
        self._topic = found["topic"].decode() if found else None
        self._partition = int(found["partition"]) if found else None
        self._in_log = path.endswith(b".log")
        self._with_records = False

    def _batch(self, line: bytes) -> Batch | None:
        fields: dict[bytes, bytes] = dict(_FIELD.findall(line))
        time = next((fields[name] for name in _TIMES if name in fields), None)
        texts = [fields.get(name) for name in _NEEDED]
        if time is None or None in texts:
            raise NotParsedError("a batch without all of its fields")
        if fields.get(b"isvalid") == b"false":
            raise NotParsedError("the batch is damaged (isvalid: false)")
        if fields.get(b"isControl") == b"true":
            return None
        offset, count, sequence, producer, size = (_integer(text) for text in texts)
        return Batch(
            self._topic, self._partition, offset, count, sequence, producer, _integer(time), size
        )


def _integer(text: bytes | None) -> int:
    if text is None or not _INTEGER.match(text):
        raise NotParsedError("a field of the batch is not an integer")
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise NotParsedError("a field of the batch exceeds 64 bits")
    return value
