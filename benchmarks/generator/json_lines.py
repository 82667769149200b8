"""Writes rows as JSON lines in one compiled loop; `json.dumps` per record would cost ten times."""

from __future__ import annotations

from functools import cache

import numba
import numpy as np

from benchmarks.generator.trace_rows import (
    NULL,
    NUMBER,
    PAYLOAD,
    PLACE,
    POSITION,
    TAIL,
    TEXT,
    UUID,
    WRITTEN,
    TraceTexts,
)

LONGEST_NUMBER = 20
POWERS = np.array([10**i for i in range(19)], dtype=np.uint64)
PAIRS = np.frombuffer(b"".join(b"%02d" % i for i in range(100)), dtype=np.uint8)
BASE64 = np.frombuffer(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", dtype=np.uint8
)


@cache
def _layout() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Place and manner of each written column, and its key as `,"name":` with where it begins."""
    keys = [f',"{name}":'.encode() if how != TAIL else b"" for name, how in WRITTEN]
    starts = np.zeros(len(keys) + 1, dtype=np.int64)
    np.cumsum([len(k) for k in keys], out=starts[1:])
    places = np.array([PLACE[name] for name, _ in WRITTEN], dtype=np.int64)
    manners = np.array([how for _, how in WRITTEN], dtype=np.int64)
    return places, manners, np.frombuffer(b"".join(keys), dtype=np.uint8), starts


@numba.njit(cache=True, inline="always")
def _copy(out, at, source, begin, end):  # type: ignore[no-untyped-def]
    for i in range(begin, end):
        out[at + i - begin] = source[i]
    return at + end - begin


@numba.njit(cache=True)
def _number(out, at, value):  # type: ignore[no-untyped-def]
    if value < 0:
        out[at] = 45
        at += 1
        value = -value
    rest = np.uint64(value)
    digits = 1
    while digits < POWERS.size and rest >= POWERS[digits]:
        digits += 1
    p = at + digits
    while rest >= np.uint64(100):  # two digits per division
        above = rest // np.uint64(100)
        pair = np.int64(rest - above * np.uint64(100)) * 2
        out[p - 1] = PAIRS[pair + 1]
        out[p - 2] = PAIRS[pair]
        p -= 2
        rest = above
    pair = np.int64(rest) * 2
    out[p - 1] = PAIRS[pair + 1]
    if p - 1 > at:
        out[p - 2] = PAIRS[pair]
    return at + digits


@numba.njit(cache=True)
def _base64(out, at, source, begin, size):  # type: ignore[no-untyped-def]
    for i in range(begin, begin + size // 3 * 3, 3):
        bits = np.uint32(source[i]) << 16 | np.uint32(source[i + 1]) << 8 | np.uint32(source[i + 2])
        out[at] = BASE64[bits >> 18]
        out[at + 1] = BASE64[bits >> 12 & 63]
        out[at + 2] = BASE64[bits >> 6 & 63]
        out[at + 3] = BASE64[bits & 63]
        at += 4
    left = size % 3
    if left:
        bits = np.uint32(source[begin + size - left]) << 16
        if left == 2:
            bits |= np.uint32(source[begin + size - 1]) << 8
        out[at] = BASE64[bits >> 18]
        out[at + 1] = BASE64[bits >> 12 & 63]
        out[at + 2] = BASE64[bits >> 6 & 63] if left == 2 else 61
        out[at + 3] = 61
        at += 4
    return at


@numba.njit(cache=True)
def _size(rows, order, places, manners, key_starts, text_starts):  # type: ignore[no-untyped-def]
    total = 0
    for at in range(order.size):
        row = rows[order[at]]
        for c in range(places.size):
            value = row[places[c]]
            if value == NULL:
                continue
            total += key_starts[c + 1] - key_starts[c]
            if manners[c] == TEXT or manners[c] == TAIL:
                total += text_starts[value + 1] - text_starts[value]
            elif manners[c] == UUID:
                total += text_starts[value + 1] - text_starts[value] + LONGEST_NUMBER + 1
            elif manners[c] == PAYLOAD:
                total += (row[places[c] + 1] + 2) // 3 * 4 + 2
            else:
                total += 2 * LONGEST_NUMBER + 3
        total += 2
    return total


@numba.njit(cache=True)
def _write(rows, order, layout, texts, text_starts, payloads, out, ends):  # type: ignore[no-untyped-def]
    places, manners, keys, key_starts = layout
    p = 0
    for at in range(order.size):
        row = rows[order[at]]
        begin = p
        closed = False
        for c in range(places.size):
            value = row[places[c]]
            if value == NULL:
                continue
            p = _copy(out, p, keys, key_starts[c], key_starts[c + 1])
            if manners[c] == NUMBER:
                p = _number(out, p, value)
            elif manners[c] == POSITION:
                out[p] = 34
                p = _number(out, p + 1, value)
                out[p] = 58
                p = _number(out, p + 1, row[places[c] + 1])
                out[p] = 34
                p += 1
            elif manners[c] == UUID:  # the name without its closing quote, a dash, the number
                p = _copy(out, p, texts, text_starts[value], text_starts[value + 1] - 1)
                out[p] = 45
                p = _number(out, p + 1, row[places[c] + 1])
                out[p] = 34
                p += 1
            elif manners[c] == PAYLOAD:
                out[p] = 34
                p = _base64(out, p + 1, payloads, value, row[places[c] + 1])
                out[p] = 34
                p += 1
            else:
                p = _copy(out, p, texts, text_starts[value], text_starts[value + 1])
                closed = manners[c] == TAIL
        out[begin] = 123  # every key starts with a comma: the first one becomes the brace
        if not closed:
            out[p] = 125
            p += 1
        out[p] = 10
        p += 1
        ends[at] = p
    return p


def write_lines(
    rows: np.ndarray, order: np.ndarray, texts: TraceTexts
) -> tuple[np.ndarray, np.ndarray]:
    """The lines of `rows[order]` as one array of bytes, and where each ends, newline included."""
    places, manners, _, key_starts = layout = _layout()
    values, starts = texts.arrays()
    room = _size(rows, order, places, manners, key_starts, starts)
    out, ends = np.empty(room, dtype=np.uint8), np.empty(order.size, dtype=np.int64)
    used = _write(rows, order, layout, values, starts, texts.payloads, out, ends)
    return out[:used], ends


@numba.njit(cache=True)
def running_number(group, counters, order):  # type: ignore[no-untyped-def]
    """For each row, taken in `order`, the counter of its group; the counters go on from there."""
    out = np.empty(group.size, dtype=np.int64)
    for i in order:
        out[i] = counters[group[i]]
        counters[group[i]] += 1
    return out
