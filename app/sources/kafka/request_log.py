"""Lines of a Kafka broker's request log (`kafka.request.logger`): the assignments of producer ids.

A line is a prefix with the time, by Kafka's own layout `[%d] %p %m (%c)%n`, then `Completed
request:` and a JSON object. Only answers to INIT_PRODUCER_ID matter. The JSON has no time: that of
the prefix is the completion, and `totalTimeMs` before it the request arrived.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

MARKER = b"Completed request:"
INIT_PRODUCER_ID = 22
_KEY = rb'"requestApiKey"\s*:\s*'
"""A marker that clients cannot forge: within a JSON string its quotes would be escaped."""
_ANY_KEY, _OUR_KEY = (_KEY + end for end in (rb"[0-9]+\s*[,}]", rb"22\s*[,}]"))
_TIME = re.compile(
    rb"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?\s?(Z|[+-]\d\d:?(?:\d\d)?)?(?=[]\s])"
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)


_CONTAINER = re.compile(rb'\s*\{"(?:log|stream|time)":"')
_PART = re.compile(rb"\S+ std(?:out|err) P ")


class NotParsedError(ValueError):
    """A malformed line of the format."""


class Assigned(NamedTuple):
    """A producer id that a broker gave out."""

    principal: str | None
    client_id: str | None
    producer_id: int
    completed_ms: int
    arrived_ms: int


class _Header(msgspec.Struct):
    requestApiKey: int
    clientId: str | None = None


class _Response(msgspec.Struct):
    errorCode: int
    producerId: int


class _Completed(msgspec.Struct):
    requestHeader: _Header
    response: _Response | str
    """Text; empty without a logged response."""
    principal: str | None = None
    totalTimeMs: float = 0.0


_DECODER = msgspec.json.Decoder(_Completed)
_LARGEST = 2**63 - 1
LONGEST_MS = 7 * 86_400_000
"""Longer than any request: the time of a line that says so is not known."""


def looks_like(values: pa.Array) -> pa.Array:
    """Lines of completed requests (bool)."""
    return pc.match_substring(values, MARKER)


def candidates(values: pa.Array) -> pa.Array:
    """Lines that have to be parsed (bool): completed, and INIT_PRODUCER_ID or unknown."""
    ours = pc.match_substring_regex(values, _OUR_KEY)
    known = pc.match_substring_regex(values, _ANY_KEY)
    return pc.and_(looks_like(values), pc.or_(ours, pc.invert(known)))


def wrapping(line: bytes) -> str | None:
    """Why no line like this one can be parsed: what a container's runtime made of it."""
    if _CONTAINER.match(line):
        return (
            "a container's JSON log, in which the lines of the broker are escaped; this and all"
            " such lines of the file are left out: give its log field (jq -r .log)"
        )
    if _PART.match(line):
        return (
            "a part of a line that a container's runtime has split; this and all such lines of the"
            " file are left out: join the parts"
        )
    return None


def parse(line: bytes, zone: tzinfo) -> Assigned | None:
    """The id in a line of `candidates`; None if the answer has none.

    NotParsedError for a malformed line.
    """
    prefix, _, rest = line.partition(MARKER)
    completed_ms = int(time_of(prefix, zone))
    request = _decoded(rest)
    if request.requestHeader.requestApiKey != INIT_PRODUCER_ID:
        raise NotParsedError("more than one request in the line")
    answer = request.response
    if isinstance(answer, str) or answer.errorCode != 0 or answer.producerId < 0:
        return None
    if answer.producerId > _LARGEST:
        raise NotParsedError("producerId exceeds 64 bits")
    took_ms = max(request.totalTimeMs, 0.0)
    if took_ms > LONGEST_MS:
        raise NotParsedError(f"totalTimeMs is longer than a request takes: {took_ms:g}")
    arrived_ms = int(completed_ms - took_ms)
    return Assigned(
        request.principal,
        request.requestHeader.clientId,
        answer.producerId,
        completed_ms,
        arrived_ms,
    )


def _decoded(rest: bytes) -> _Completed:
    """The object after the marker; the logger's name follows it."""
    end = rest.rfind(b"}") + 1
    try:
        return _DECODER.decode(rest[:end])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise NotParsedError(f"not the JSON of a request: {error}") from None


def time_of(prefix: bytes, zone: tzinfo) -> float:
    """Milliseconds since the epoch of the first time in the prefix, to the digits that it has (at most
    microseconds); an offset in it counts."""
    found = _TIME.search(prefix)
    if found is None:
        raise NotParsedError("no time before the request")
    day, clock, fraction, offset = found.groups()
    return (
        _second(day, clock, offset or b"", zone) + int((fraction or b"").ljust(6, b"0")[:6]) / 1000
    )


@lru_cache(1024)
def _second(day: bytes, clock: bytes, offset: bytes, zone: tzinfo) -> int:
    try:
        at: Any = datetime.fromisoformat(f"{day.decode()}T{clock.decode()}{offset.decode()}")
        at = at if at.tzinfo else at.replace(tzinfo=zone)
        return int((at - _EPOCH) // _MS)
    except (ValueError, OverflowError) as error:
        raise NotParsedError(f"no time before the request: {error}") from None
