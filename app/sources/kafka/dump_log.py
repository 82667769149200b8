"""The output of `kafka-dump-log` (kafka.tools.DumpLogSegments) for log segments: produced batches.

    Dumping /var/kafka/orders-0/00000000000000000000.log
    Log starting offset: 0
    baseOffset: 0 lastOffset: 2 count: 3 baseSequence: 0 ... producerId: 7 ... isControl: false ...

Topic and partition are the segment's folder. Known lines without batches are
skipped: those of indexes and snapshots, of single records, of the tool's own log and of what
it found at the end of a file. Any other line within a segment is not parsed, so that a
truncated line and a message that the dump ended early are reported. White space before a line
does not matter.

Batch lines differ by release. Before 1.1 they have neither `count` nor `isControl`; a batch of an
idempotent producer without a sequence is a control batch there. Before 1.1 a dump of records has no
batch lines: each record is a batch of one. Messages of the formats before 0.11 (`magic` 0 and 1)
have no producer id and are not parsed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from app.sources.kafka.request_log import MARKER, NotParsedError

HEADER, BATCH, RECORD, OFFSET = b"Dumping ", b"baseOffset: ", b"|", b"offset: "
_SEGMENT = re.compile(
    rb"(?:^|.*[/\\])(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>\d{1,10})"
    rb"(?:\.[0-9a-f]{32}-(?:delete|future|stray))?[/\\][^/\\]+$"
)
_QUIET = (
    b"Log starting offset:",
    b"Starting offset:",
    b"Found ",
    b"Mismatches in ",
    b"Non-consecutive offsets in ",
    b"[",
    b"$",
    b"#",
)
_HAS = re.compile(rb"\b\w*[oO]ffset: ")
_FIELD = re.compile(rb"(\w+): (\S+)")
_NEEDED = (b"baseOffset", b"lastOffset", b"baseSequence", b"producerId", b"size")
_OF_RECORD = (b"offset", b"sequence", b"producerId")
_LARGEST_COUNT = 2**31 - 1
_TIMES = (b"CreateTime", b"LogAppendTime", b"NoTimestampType")
_INTEGER = re.compile(rb"-?\d{1,19}\Z")


class DumpedBatch(NamedTuple):
    """A batch of a partition; topic and partition are None where the dump does not have them."""

    topic: str | None
    partition: int | None
    base_offset: int
    messages: int
    base_sequence: int
    producer_id: int
    ts_ms: int
    size: int | None
    """None of a single record."""


def looks_like(values: pa.Array) -> pa.Array:
    """Where a line is the beginning of a dump or of a batch (bool)."""
    return pc.match_substring_regex(values, rb"^\s*(Dumping |baseOffset: )")


class Dump:
    """The lines of one dump, in their order, with the segment that they are of."""

    def __init__(self) -> None:
        self._topic: str | None = None
        self._partition: int | None = None
        self._in_log = False
        self._with_records = False
        self._is_indented = False
        """Of the lines of records."""

    def parse(self, line: bytes) -> DumpedBatch | None:
        """The batch of a line; None where it has none.

        NotParsedError for a malformed line.
        """
        is_indented = line[:1].isspace()
        if self._with_records and is_indented and not self._is_indented:
            return None  # a further line of a record's payload
        line = line.strip()
        if line.startswith(BATCH):
            return self._batch(line)
        if line.startswith(OFFSET) and self._in_log and not self._with_records:
            return self._single(line)
        if line.startswith(HEADER):
            self._begin(line[len(HEADER) :].rstrip())
        elif line.startswith(RECORD):
            self._with_records, self._is_indented = True, is_indented
        elif not self._with_records and self._strange(line, is_indented):
            raise NotParsedError("neither a batch nor a heading")
        return None

    def _strange(self, line: bytes, is_indented: bool) -> bool:
        """Whether a line may hold what is lost; indented ones are lists and traces of the tool,
        unless they have an offset."""
        is_quiet = not line or line.startswith(_QUIET) or (is_indented and not _HAS.search(line))
        return MARKER in line or (self._in_log and not is_quiet)

    def _begin(self, path: bytes) -> None:
        found = _SEGMENT.match(path)
        self._topic = found["topic"].decode() if found else None
        self._partition = int(found["partition"]) if found else None
        self._in_log = path.endswith(b".log")
        self._with_records = False

    def _batch(self, line: bytes) -> DumpedBatch | None:
        fields: dict[bytes, bytes] = dict(_FIELD.findall(line))
        time = next((fields[name] for name in _TIMES if name in fields), None)
        texts = [fields.get(name) for name in _NEEDED]
        if time is None or None in texts:
            raise NotParsedError("a batch without all of its fields")
        if fields.get(b"isvalid") == b"false":
            raise NotParsedError("the batch is damaged (isvalid: false)")
        if fields.get(b"isControl") == b"true":
            return None
        offset, last, sequence, producer, size = (_integer(text) for text in texts)
        if b"isControl" not in fields and producer >= 0 > sequence:
            return None
        count = _integer(fields[b"count"]) if b"count" in fields else last - offset + 1
        if b"count" not in fields and not 0 < count <= _LARGEST_COUNT:
            raise NotParsedError("lastOffset is not an offset of the batch")
        return DumpedBatch(
            self._topic, self._partition, offset, count, sequence, producer, _integer(time), size
        )

    def _single(self, line: bytes) -> DumpedBatch | None:
        """A record of a dump before 1.1, whose batches have no lines."""
        fields: dict[bytes, bytes] = dict(_FIELD.findall(line))
        time = next((fields[name] for name in _TIMES if name in fields), None)
        texts = [fields.get(name) for name in _OF_RECORD]
        if fields.get(b"magic") in (b"0", b"1"):
            raise NotParsedError("a message of the format before 0.11, which has no producer id")
        if time is None or None in texts:
            raise NotParsedError("a record without all of its fields")
        if b"endTxnMarker" in fields:
            return None
        offset, sequence, producer = (_integer(text) for text in texts)
        return DumpedBatch(
            self._topic, self._partition, offset, 1, sequence, producer, _integer(time), None
        )


def _integer(text: bytes | None) -> int:
    if text is None or not _INTEGER.match(text):
        raise NotParsedError("a field of the batch is not an integer")
    value = int(text)
    if not -(2**63) <= value < 2**63:
        raise NotParsedError("a field of the batch exceeds 64 bits")
    return value
