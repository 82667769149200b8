"""Keys, strings and integers of plain JSON, eight bytes at a time.

Positions are addresses; nothing is read from `limit` on. Every function returns -1 for anything
that is not plain: escapes, control characters, bytes that are not ASCII, numbers with a fraction or
beyond 64 bits, malformed JSON. A token may be read past the end of its row; the caller detects
that.
"""

from __future__ import annotations

import numba
import numpy as np

from udfs.words import byte, first_bytes, load, low_byte, word_at

_U0, _U8, _U16, _U32 = np.uint64(0), np.uint64(8), np.uint64(16), np.uint64(32)
KEY_BYTES = 56
"""A row of the key table: name and closing quote as 3 words, their masks, their length."""
_EVERY = np.uint64(0x0101010101010101)
_HIGH = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.uint64(0x2020202020202020)
_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x4646464646464646)
_PAIRS = np.uint64(0x000000FF000000FF)
_WEIGHTS_HIGH = np.uint64(100 + (1000000 << 32))
_WEIGHTS_LOW = np.uint64(1 + (10000 << 32))
_POWERS = np.array([10**i for i in range(9)], np.uint64)
_MIX_1 = np.uint64(0x87C37B91114253D5)
_MIX_2 = np.uint64(0x4CF5AD432745937F)
_MIX_3 = np.uint64(0xFF51AFD7ED558CCD)
_MAX_LONG = np.uint64(2**63 - 1)
_QUOTE, _MINUS, _POINT, _DIGIT_0, _DIGIT_9 = (ord(c) for c in '"-.09')
_SPACE, _LINE_FEED, _RETURN, _TAB = (ord(c) for c in " \n\r\t")


def key_hash(first: int, length: int) -> int:
    """Place of a name in the key table, from its first 8 bytes and its length."""
    return (((first ^ (length << 56)) * int(_MIX_1)) & (2**64 - 1)) >> 56


@numba.njit(forceinline=True)
def skip_space(p: int, end: int) -> int:
    """The next position that is not JSON white space."""
    while p < end and byte(p) <= _SPACE:
        ch = byte(p)
        if ch != _SPACE and ch != _LINE_FEED and ch != _RETURN and ch != _TAB:
            break
        p += 1
    return p


@numba.njit(forceinline=True)
def is_key(at: int, limit: int, key: int) -> bool:
    """Whether the key at a position is the one with this row of the key table (an address)."""
    if (load(at, limit) & word_at(key + 24)) != word_at(key):
        return False
    length = word_at(key + 48)
    if length > _U8 and (load(at + 8, limit) & word_at(key + 32)) != word_at(key + 8):
        return False
    return length <= _U16 or (load(at + 16, limit) & word_at(key + 40)) == word_at(key + 16)


@numba.njit(forceinline=True)
def _special(word: np.uint64) -> np.uint64:
    """Flags from the first byte on that is a quote, a backslash, a control character or not ASCII."""
    quote = word ^ _QUOTES
    backslash = word ^ _BACKSLASHES
    return (
        word
        | ((quote - _EVERY) & ~quote)
        | ((backslash - _EVERY) & ~backslash)
        | ((word - _SPACES) & ~word)
    ) & _HIGH


@numba.njit(forceinline=True)
def _mix(h: np.uint64, word: np.uint64) -> np.uint64:
    word = word * _MIX_1
    word = ((word << np.uint64(31)) | (word >> np.uint64(33))) * _MIX_2
    h = h ^ word
    return ((h << np.uint64(27)) | (h >> np.uint64(37))) * np.uint64(5) + np.uint64(0x52DCE729)


@numba.njit(forceinline=True)
def hash_text(start: int, end: int, limit: int, seed: np.uint64) -> tuple[int, np.uint64]:
    """Position after the closing quote of a plain string, and a hash of its bytes."""
    h = seed
    p = start
    while p < end:
        word = load(p, limit)
        flags = _special(word)
        if flags == _U0:
            h = _mix(h, word)
            p += 8
            continue
        rest = low_byte(flags)
        if rest > 0:
            h = _mix(h, first_bytes(word, rest))
        p += rest
        break
    if p >= end or byte(p) != _QUOTE:
        return -1, h
    h = (h ^ np.uint64(p - start)) * _MIX_3
    return p + 1, h ^ (h >> _U32)


@numba.njit(forceinline=True)
def read_number(p: int, end: int, limit: int) -> tuple[int, int]:
    """Position after an integer, and the integer."""
    minus = byte(p) == _MINUS
    if minus:
        p += 1
    first = p
    value = _U0
    while p < end:
        word = load(p, limit)
        other = ((word + _ABOVE_NINE) | (word - _ZEROS)) & _HIGH
        here = 8 if other == _U0 else low_byte(other)
        if here == 0:
            break
        digits = (word - _ZEROS) << np.uint64(64 - 8 * here)
        digits = digits * np.uint64(10) + (digits >> np.uint64(8))
        digits = (
            (digits & _PAIRS) * _WEIGHTS_HIGH + ((digits >> np.uint64(16)) & _PAIRS) * _WEIGHTS_LOW
        ) >> _U32
        value = value * _POWERS[here] + digits
        p += here
        if here < 8 or p - first > 19:
            break
    count = p - first
    # a leading zero is malformed; "-0" and -2**63 are left to the decoder
    if count == 0 or count > 19 or value > _MAX_LONG:
        return -1, np.int64(0)
    if byte(first) == _DIGIT_0 and (count > 1 or minus):
        return -1, np.int64(0)
    number = np.int64(value)
    return p, -number if minus else number


@numba.njit(forceinline=True)
def skip_fraction(p: int, end: int) -> int:
    """Position after the fraction of a number of an unknown key, if it has one."""
    if p + 1 >= end or byte(p) != _POINT or byte(p + 1) < _DIGIT_0 or byte(p + 1) > _DIGIT_9:
        return p
    p += 2
    while p < end and byte(p) >= _DIGIT_0 and byte(p) <= _DIGIT_9:
        p += 1
    return p


@numba.njit
def find_key(at: int, end: int, limit: int, keys: int, table: int, columns: int) -> tuple[int, int]:
    """Column of the key at a position (`columns` if none has it) and the position after it."""
    p, _ = hash_text(at, end, limit, _U0)
    if p < 0:
        return columns, p
    length = p - 1 - at
    first = load(at, limit)
    if length < 8:
        first = first_bytes(first, length)
    place = np.int64(((first ^ (np.uint64(length) << np.uint64(56))) * _MIX_1) >> np.uint64(56))
    while True:
        c = np.int64(word_at(table + 8 * place))
        if c < 0:
            return columns, p
        key = keys + KEY_BYTES * c
        if np.int64(word_at(key + 48)) == length + 1 and is_key(at, limit, key):
            return c, p
        place = (place + 1) & 255
