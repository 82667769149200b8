"""The fast path from JSON lines to columns: one compiled pass over the bytes of an Arrow array.

It accepts plain records only: one flat object of ASCII strings without escapes, integers, booleans
and nulls, no known key twice, every value fitting its column. It declines any other row, which
`app.contract.parsing.decoder` then decodes. The decoder is the authority: this pass must never accept
a row that the decoder reads differently (a property test compares the two).
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from app.contract.parsing.layout import (
    BINARY,
    COLUMN_KIND,
    COLUMN_SLOT,
    FLAG,
    LONG,
    NAMES,
    SHORT,
    TEXT,
)
from app.contract.parsing.tokens import (
    KEY_BYTES,
    find_key,
    hash_text,
    is_key,
    key_hash,
    read_number,
    skip_fraction,
    skip_space,
)
from udfs.words import byte, load, same_bytes, word_at

Array = np.ndarray
OK, DECLINED, NULL = 0, 1, 2
"""Status of a row: scanned, left to the decoder, or without a value."""

_U0, _U1, _U32 = np.uint64(0), np.uint64(1), np.uint64(32)
_BELOW, _BLANK, _LATER = np.uint64(21), np.uint64(42), np.uint64(2**21 - 1)
"""In one word, which columns after the 64th are present, below 0 and blank: up to 21 of them."""
_LOW32 = np.uint64(0xFFFFFFFF)
_TRUE, _ALSE, _NULL = (np.uint64(int.from_bytes(w, "little")) for w in (b"true", b"alse", b"null"))
_QUOTE, _COMMA, _COLON, _OPEN, _CLOSE, _MINUS = (ord(c) for c in '",:{}-')
_F, _DIGIT_0, _DIGIT_9 = (ord(c) for c in "f09")
_MAX_SHORT, _MIN_SHORT = 2**31 - 1, -(2**31)


class Keys(NamedTuple):
    """The column names in the form that the scanner compares. They are an argument, so that no
    compiled cache outlives them.
    """

    names: Array
    """One row per column: the name and its closing quote as 3 words, their masks, their length."""
    table: Array
    """Open-addressing table of 256 places over the names; -1 marks a free place."""
    kind: Array
    slot: Array


class KeyAddresses(NamedTuple):
    """Addresses of the arrays of `Keys`, and how many columns they have."""

    names: np.int64
    table: np.int64
    columns: int


def _keys() -> Keys:
    names = np.zeros((len(NAMES), KEY_BYTES // 8), np.uint64)
    table = np.full(256, -1, np.int64)
    for c, name in enumerate(NAMES):
        text = name.encode() + b'"'
        names[c, :3] = np.frombuffer(text.ljust(24, b"\0"), "<u8")
        names[c, 3:6] = np.frombuffer((b"\xff" * len(text)).ljust(24, b"\0"), "<u8")
        names[c, 6] = len(text)
        at = key_hash(int.from_bytes(name.encode()[:8], "little"), len(name))
        while table[at] >= 0:
            at = (at + 1) % 256
        table[at] = c
    return Keys(names, table, COLUMN_KIND, COLUMN_SLOT)


KEYS = _keys()


class Distinct(NamedTuple):
    """The distinct values of all text columns, in order of first appearance."""

    owners: Array
    """Text slot of each value."""
    starts: Array
    lengths: Array


@numba.njit(cache=True, nogil=True)
def _grown(array: Array, room: int) -> Array:
    bigger = np.empty(room, array.dtype)
    # a slice would be assigned in one line, and take three seconds more to compile
    for i in range(len(array)):
        bigger[i] = array[i]
    return bigger


@numba.njit(cache=True, nogil=True)
def _rehash(hashes: Array, count: int, slot_count: int) -> Array:
    slots = np.zeros(slot_count, np.uint64)
    mask = np.uint64(slot_count - 1)
    for e in range(count):
        at = hashes[e] & mask
        while slots[at] != _U0:
            at = (at + _U1) & mask
        slots[at] = ((hashes[e] >> _U32) << _U32) | np.uint64(e + 1)
    return slots


class Scanned(NamedTuple):
    """What the scanner writes by row; the first five as `block.Block` has them."""

    numbers: Array
    codes: Array
    present: Array
    empty: Array
    negative: Array
    payload: Array
    """(row, 2): start and length of the payload's text."""


@numba.njit(forceinline=True)
def _read_key(p: int, end: int, limit: int, expected: int, keys: KeyAddresses) -> tuple[int, int]:
    """Column of the key at a position (`keys.columns` if none has it) and the position of its value;
    -1 if that is not plain.
    """
    c = expected
    if is_key(p, limit, keys.names + KEY_BYTES * c):
        p += np.int64(word_at(keys.names + KEY_BYTES * c + 48))
    else:
        c, p = find_key(p, end, limit, keys.names, keys.table, keys.columns)
        if p < 0:
            return c, p
    p = skip_space(p, end)
    if p >= end or byte(p) != _COLON:
        return c, -1
    p = skip_space(p + 1, end)
    return c, p if p < end else -1


@numba.njit(forceinline=True)
def _find_text(
    h: np.uint64,
    text: tuple[int, int, int],
    data: tuple[int, int],
    places: Array,
    distinct: Distinct,
) -> tuple[np.uint64, int]:
    """Place of a text in the hash table, and its number among the distinct values; -1 for a new one.

    `text` is its slot, position and length; `data` the positions of the first byte and after the last.
    """
    slot, start, length = text
    base, limit = data
    place_mask = np.uint64(len(places) - 1)
    at = h & place_mask
    while places[at] != _U0:
        if (places[at] >> _U32) == (h >> _U32):
            e = np.int64(places[at] & _LOW32) - 1
            # exact: one hash never makes two names one
            if (
                distinct.lengths[e] == length
                and distinct.owners[e] == slot
                and same_bytes(base + distinct.starts[e], start, length, limit)
            ):
                return at, e
        at = (at + _U1) & place_mask
    return at, -1


@numba.njit(forceinline=True)
def _read_word(p: int, limit: int) -> tuple[int, int]:
    """Position after `true`, `false` or `null`, and 1, 0 or -1; position -1 for anything else."""
    word = load(p, limit) & _LOW32
    if word == _TRUE:
        return p + 4, 1
    if word == _NULL:
        return p + 4, -1
    if byte(p) == _F and (load(p + 1, limit) & _LOW32) == _ALSE:
        return p + 5, 0
    return -1, -1


@numba.njit(cache=True, nogil=True)
def scan(data: Array, offsets: Array, keys: Keys, status: Array, scanned: Scanned) -> Distinct:
    """Scan every row whose status is OK; a row that is not plain gets the status DECLINED.

    Row i is the bytes `offsets[i]` to `offsets[i + 1]`. Codes are into the distinct values of a slot.
    """
    numbers, codes, present, empty, negative, where = scanned
    base = np.int64(data.ctypes.data)
    limit = base + len(data)
    kinds, slots = keys.kind, keys.slot
    columns, text_slots = len(keys.names), len(codes)
    at_keys = KeyAddresses(
        np.int64(keys.names.ctypes.data), np.int64(keys.table.ctypes.data), columns
    )
    room = 1024
    hashes = np.empty(room, np.uint64)
    starts = np.empty(room, np.int64)
    lengths = np.empty(room, np.int64)
    owners = np.empty(room, np.int64)
    ranks = np.empty(room, np.int32)
    count = 0
    places = np.zeros(4096, np.uint64)
    per_slot = np.zeros(text_slots, np.int32)
    # one producer writes its keys in one order: expect the key that came next the last time
    follower = np.zeros(columns + 1, np.int64)
    for i in range(len(status)):
        if status[i] != OK:
            continue
        if count + text_slots > room:
            room *= 2
            hashes, starts = _grown(hashes, room), _grown(starts, room)
            lengths, owners = _grown(lengths, room), _grown(owners, room)
            ranks = _grown(ranks, room)
        if 2 * (count + text_slots) > len(places):
            places = _rehash(hashes, count, 4 * len(places))
        end = base + np.int64(offsets[i + 1])
        seen, blank, below = _U0, _U0, _U0
        later = _U0
        previous = columns
        good = False
        p = skip_space(base + np.int64(offsets[i]), end)
        if p < end and byte(p) == _OPEN:
            p = skip_space(p + 1, end)
            good = p < end and byte(p) == _CLOSE
            while not good:
                if p >= end or byte(p) != _QUOTE:
                    break
                c, p = _read_key(p + 1, end, limit, follower[previous], at_keys)
                if p < 0:
                    break
                bit, more = _U0, _U0
                if c < columns:
                    if c < 64:
                        bit = _U1 << np.uint64(c)
                        if (seen | blank) & bit:
                            break
                    else:
                        more = _U1 << np.uint64(c - 64)
                        if (later | later >> _BLANK) & more:
                            break
                    follower[previous] = c
                    previous = c
                kind, slot = kinds[c], slots[c]
                first = byte(p)
                if first == _QUOTE:
                    start = p + 1
                    p, h = hash_text(start, end, limit, np.uint64(c))
                    if p < 0:
                        break
                    length = p - 1 - start
                    if kind == TEXT:
                        at, e = _find_text(
                            h,
                            (slot, start, length),
                            (base, limit),
                            places,
                            Distinct(owners, starts, lengths),
                        )
                        if e >= 0:
                            code = ranks[e]
                        else:
                            code = per_slot[slot]
                            per_slot[slot] += 1
                            places[at] = ((h >> _U32) << _U32) | np.uint64(count + 1)
                            hashes[count], starts[count], lengths[count] = h, start - base, length
                            owners[count], ranks[count] = slot, code
                            count += 1
                        codes[slot, i] = code
                        if length == 0:
                            blank |= bit
                            later |= more << _BLANK
                    elif kind == BINARY:
                        where[i, 0], where[i, 1] = start - base, length
                    elif c < columns:
                        break
                    seen |= bit
                    later |= more
                elif first == _MINUS or (first >= _DIGIT_0 and first <= _DIGIT_9):
                    p, number = read_number(p, end, limit)
                    if p < 0:
                        break
                    if kind == LONG or (
                        kind == SHORT and number <= _MAX_SHORT and number >= _MIN_SHORT
                    ):
                        numbers[slot, i] = number
                    elif c < columns:
                        break
                    else:
                        p = skip_fraction(p, end)
                    if number < 0:
                        below |= bit
                        later |= more << _BELOW
                    seen |= bit
                    later |= more
                else:
                    p, flag = _read_word(p, limit)
                    if p < 0:
                        break
                    if flag < 0:
                        # not present, but its key must not come again
                        blank |= bit
                        later |= more << _BLANK
                    elif kind == FLAG or c == columns:
                        if c < columns:
                            numbers[slot, i] = flag
                        seen |= bit
                        later |= more
                    else:
                        break
                p = skip_space(p, end)
                if p >= end:
                    break
                if byte(p) == _COMMA:
                    p = skip_space(p + 1, end)
                    continue
                good = byte(p) == _CLOSE
                break
            good = good and skip_space(p + 1, end) == end
        if good:
            present[0, i], empty[0, i], negative[0, i] = seen, blank & seen, below
            if later:
                seen, below, blank = later & _LATER, later >> _BELOW & _LATER, later >> _BLANK
                present[1, i], empty[1, i], negative[1, i] = seen, blank & seen, below
        else:
            status[i] = DECLINED
            for s in range(text_slots):
                codes[s, i] = -1
    return Distinct(owners[:count], starts[:count], lengths[:count])


@numba.njit(cache=True, nogil=True)
def gather(data: Array, distinct: Distinct, slot_count: int) -> tuple[Array, Array, Array, Array]:
    """The distinct values of each text slot as the buffers of an Arrow string array.

    Returns the starts of the offsets and of the bytes of each slot (length slot_count + 1 each),
    the offsets (32 bits, from 0 in each slot, one more than values) and the bytes of all slots.
    """
    owners, starts, lengths = distinct
    first = np.zeros(slot_count + 1, np.int64)
    base = np.zeros(slot_count + 1, np.int64)
    for e in range(len(owners)):
        first[owners[e] + 1] += 1
        base[owners[e] + 1] += lengths[e]
    for s in range(slot_count):
        first[s + 1] += first[s] + 1
        base[s + 1] += base[s]
    offsets = np.zeros(first[slot_count], np.int32)
    values = np.empty(base[slot_count], np.uint8)
    at = first.copy()
    for e in range(len(owners)):
        s = owners[e]
        begin = np.int64(offsets[at[s]])
        for b in range(lengths[e]):
            values[base[s] + begin + b] = data[starts[e] + b]
        at[s] += 1
        offsets[at[s]] = begin + lengths[e]
    return first, base, offsets, values
