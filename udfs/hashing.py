"""MurmurHash3 (x64, 128 bit, initial value 0), its first 64 bits: maps names to numbers and shards.

The same bits as `mmh3.hash64(name, 0)[0]`, for whole columns. A hash finds a name and never
replaces it: code that merges by hash also compares the names.
"""

from __future__ import annotations

import mmh3
import numba
import numpy as np
import pyarrow as pa

from udfs.arrow import bytes_of, null_mask, offsets_of, plain
from udfs.words import first_bytes, load, word_at

Array = np.ndarray
NULL_HASH = 0
"""Hash of a null name."""

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_ADD_1, _ADD_2 = np.uint64(0x52DCE729), np.uint64(0x38495AB5)
_FINAL_1, _FINAL_2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_FIVE, _U33 = np.uint64(5), np.uint64(33)


@numba.njit(forceinline=True)
def _rotate(word: np.uint64, by: int) -> np.uint64:
    return (word << np.uint64(by)) | (word >> np.uint64(64 - by))


@numba.njit(forceinline=True)
def _final(word: np.uint64) -> np.uint64:
    word = (word ^ (word >> _U33)) * _FINAL_1
    word = (word ^ (word >> _U33)) * _FINAL_2
    return word ^ (word >> _U33)


@numba.njit(forceinline=True)
def _hash(at: int, length: int, limit: int) -> np.uint64:
    h1, h2 = np.uint64(0), np.uint64(0)
    end = at + length
    while at + 16 <= end:
        h1 ^= _rotate(word_at(at) * _C1, 31) * _C2
        h1 = (_rotate(h1, 27) + h2) * _FIVE + _ADD_1
        h2 ^= _rotate(word_at(at + 8) * _C2, 33) * _C1
        h2 = (_rotate(h2, 31) + h1) * _FIVE + _ADD_2
        at += 16
    rest = end - at
    if rest > 8:
        h2 ^= _rotate(first_bytes(load(at + 8, limit), rest - 8) * _C2, 33) * _C1
    if rest >= 8:
        h1 ^= _rotate(word_at(at) * _C1, 31) * _C2
    elif rest > 0:
        h1 ^= _rotate(first_bytes(load(at, limit), rest) * _C1, 31) * _C2
    h1 ^= np.uint64(length)
    h2 ^= np.uint64(length)
    h1 += h2
    h2 += h1
    return _final(h1) + _final(h2)


@numba.njit(cache=True, nogil=True)
def _hash_all(data: Array, offsets: Array, out: Array) -> None:
    base = np.int64(data.ctypes.data)
    for i in range(len(out)):
        start = np.int64(offsets[i])
        out[i] = np.int64(_hash(base + start, offsets[i + 1] - start, base + len(data)))


@numba.njit(cache=True, nogil=True)
def _combine(first: Array, second: Array) -> Array:
    out = np.empty(len(first), np.int64)
    for i in range(len(first)):
        h = _final(np.uint64(first[i])) + np.uint64(second[i])
        out[i] = np.int64(_final(h * _C1))
    return out


def hash64(value: str | bytes) -> int:
    """Hash of one value, as a signed 64-bit integer."""
    return mmh3.hash64(value, 0)[0]


def hash_strings(values: pa.Array | pa.ChunkedArray) -> Array:
    """Hashes (int64) of a string or binary array, NULL_HASH for null; a dictionary's once each."""
    if isinstance(values, pa.ChunkedArray):
        values = values.unify_dictionaries().combine_chunks()
    if pa.types.is_dictionary(values.type):
        distinct = np.append(hash_strings(values.dictionary), NULL_HASH)
        codes = values.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return distinct[codes]
    strings = plain(values)
    out = np.empty(len(strings), np.int64)
    _hash_all(bytes_of(strings), offsets_of(strings), out)
    if strings.null_count:
        out[null_mask(strings)] = NULL_HASH
    return out


def combine_hashes(*hashes: Array) -> Array:
    """One hash (int64) per row for a name of several parts, from the hashes of the parts."""
    combined = hashes[0]
    for more in hashes[1:]:
        combined = _combine(combined, more)
    return combined


def shard_of(hashes: Array, shards: int) -> Array:
    """Shard (int32, 0 to shards - 1) of each hash: its unsigned value modulo the number."""
    return (np.asarray(hashes, np.int64).view(np.uint64) % np.uint64(shards)).astype(np.int32)
