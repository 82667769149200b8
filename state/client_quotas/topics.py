"""Topics and bytes of requests, from the text of `topic_bytes`.

The text is a JSON object of names and whole numbers. One pass reads the usual form, names without
escapes; a text that it declines is read by `json`, and one that is no such object has no topics.
"""

from __future__ import annotations

import json
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa

from state.engine.kernel import Array
from state.engine.names import Names

_QUOTE, _COLON, _COMMA, _OPEN, _CLOSE, _ESCAPE = (ord(c) for c in '":,{}\\')
_SPACE, _ZERO, _NINE = ord(" "), ord("0"), ord("9")
_DIGITS = 18


class TopicBytes(NamedTuple):
    """The topics of some records: those of record i from `start[i]` to `start[i + 1]`."""

    start: Array
    topic: Array
    """Integers of names."""
    bytes: Array


@numba.njit(cache=True, nogil=True)
def _blank(data: Array, p: int, end: int) -> int:
    while p < end and data[p] == _SPACE:
        p += 1
    return p


@numba.njit(cache=True, nogil=True)
def _read(data: Array, p: int, end: int, found: Array, count: int) -> int:
    """Names (start and end) and bytes of an object of the usual form, from `count` on; returns how
    many there are then, -1 for another form."""
    p = _blank(data, p, end)
    if p >= end or data[p] != _OPEN:
        return -1
    p = _blank(data, p + 1, end)
    if p < end and data[p] == _CLOSE:
        return count if _blank(data, p + 1, end) == end else -1
    while p < end and data[p] == _QUOTE:
        begin = p + 1
        p = begin
        while p < end and data[p] != _QUOTE:
            if data[p] == _ESCAPE or data[p] < _SPACE:
                return -1
            p += 1
        stop = p
        p = _blank(data, p + 1, end)
        if p >= end or data[p] != _COLON:
            return -1
        p = _blank(data, p + 1, end)
        first, number = p, np.int64(0)
        while p < end and _ZERO <= data[p] <= _NINE:
            number = 10 * number + np.int64(data[p] - _ZERO)
            p += 1
        if p == first or p - first > _DIGITS or (data[first] == _ZERO and p - first > 1):
            return -1
        found[count, 0], found[count, 1], found[count, 2] = begin, stop, number
        count += 1
        p = _blank(data, p, end)
        if p < end and data[p] == _CLOSE:
            return count if _blank(data, p + 1, end) == end else -1
        if p >= end or data[p] != _COMMA:
            return -1
        p = _blank(data, p + 1, end)
    return -1


@numba.njit(cache=True, nogil=True)
def _read_all(
    data: Array, offsets: Array, texts: Array, found: Array, ends: Array, other: Array
) -> int:
    """Read the texts of some names one after the other; returns how many topics they have. `other`
    marks those of another form."""
    count = 0
    for i in range(len(texts)):
        read = _read(data, offsets[texts[i]], offsets[texts[i] + 1], found, count)
        other[i] = read < 0
        count = max(count, read)
        ends[i] = count
    return count


@numba.njit(cache=True, nogil=True)
def _picked(data: Array, found: Array, ends: Array, out: Array) -> None:
    at = 0
    for i in range(len(found)):
        for b in range(found[i, 0], found[i, 1]):
            out[at] = data[b]
            at += 1
        ends[i + 1] = at


def topics_of(texts: Array, names: Names) -> TopicBytes:
    """The topics of records, given by the names of their texts (-1 without). Equal texts are read
    once."""
    marks = np.zeros(len(names) + 1, np.bool_)
    marks[texts] = True
    marks[-1] = False
    distinct = np.flatnonzero(marks)
    found = _of_each(distinct, names)
    counts = np.zeros(len(marks), np.int64)
    counts[distinct] = np.diff(found.start)
    first = np.cumsum(counts) - counts
    start = np.zeros(len(texts) + 1, np.int64)
    np.cumsum(counts[texts], out=start[1:])
    place = np.repeat(first[texts] - start[:-1], counts[texts]) + np.arange(start[-1])
    return TopicBytes(start, found.topic[place], found.bytes[place])


def _of_each(texts: Array, names: Names) -> TopicBytes:
    """The topics of texts, given by their names."""
    start = np.zeros(len(texts) + 1, np.int64)
    if not len(texts):
        return TopicBytes(start, start[:0], start[:0])
    data, offsets = names.utf8()
    # every topic takes five bytes at least: "":0,
    found = np.empty((int((offsets[texts + 1] - offsets[texts]).sum()) // 5 + 1, 3), np.int64)
    other = np.zeros(len(texts), np.bool_)
    count = _read_all(data, offsets, texts, found, start[1:], other)
    found = found[:count]
    lengths = found[:, 1] - found[:, 0]
    picked = np.empty(int(lengths.sum()), np.uint8)
    ends = np.zeros(count + 1, np.int64)
    _picked(data, found, ends, picked)
    escaped = {i: _decoded(names.get(int(texts[i]))) for i in np.flatnonzero(other).tolist()}
    topic = names.intern_utf8(picked, ends)
    if not any(escaped.values()):
        return TopicBytes(start, topic, found[:, 2].copy())
    return _with_escaped(start, topic, found[:, 2], escaped, names)


def _decoded(text: str) -> dict[str, int]:
    try:
        given = json.loads(text)
        if not isinstance(given, dict):
            return {}
        if any(type(n) is not int or not 0 <= n < 10**_DIGITS for n in given.values()):
            return {}
        for topic in given:
            topic.encode()
    except (ValueError, RecursionError):
        return {}
    return given


def _with_escaped(
    start: Array, topic: Array, amount: Array, escaped: dict[int, dict[str, int]], names: Names
) -> TopicBytes:
    counts = np.diff(start)
    topics, amounts = np.split(topic, start[1:-1]), np.split(amount, start[1:-1])
    for i, given in escaped.items():
        counts[i] = len(given)
        topics[i] = names.intern(pa.array(list(given), pa.string()))
        amounts[i] = np.array(list(given.values()), np.int64)
    return TopicBytes(
        np.append(0, np.cumsum(counts)), np.concatenate(topics), np.concatenate(amounts)
    )
