"""Base64 text to bytes for whole columns."""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa

from udfs.arrow import bytes_of, offsets_of

Array = np.ndarray
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_DIGIT = np.full(256, -1, np.int64)
_DIGIT[list(_ALPHABET)] = np.arange(64)
_PAD = ord("=")


@numba.njit(cache=True, nogil=True)
def _decode(
    data: Array, starts: Array, lengths: Array, digit: Array, offsets: Array, out: Array, ok: Array
) -> None:
    at = 0
    for i in range(len(starts)):
        begin, n = starts[i], lengths[i]
        good = n % 4 == 0
        pads = 0
        if good and n > 0:
            pads = 1 if data[begin + n - 1] == _PAD else 0
            pads += 1 if pads == 1 and data[begin + n - 2] == _PAD else 0
        word, target = np.int64(0), at
        for b in range(n - pads if good else 0):
            value = digit[data[begin + b]]
            if value < 0:
                good = False
                break
            word = (word << 6) | value
            if b % 4 == 3:
                out[target] = (word >> 16) & 255
                out[target + 1] = (word >> 8) & 255
                out[target + 2] = word & 255
                target += 3
        if good and pads == 1:
            out[target] = (word >> 10) & 255
            out[target + 1] = (word >> 2) & 255
            target += 2
        elif good and pads == 2:
            out[target] = (word >> 4) & 255
            target += 1
        ok[i] = good
        if good:
            at = target
        offsets[i + 1] = at


def decode_stretches(data: Array, starts: Array, lengths: Array) -> tuple[pa.BinaryArray, Array]:
    """Decode stretches of a byte array; the second result (bool) marks the valid ones.

    Standard alphabet, padded, nothing around it. What is not valid gives empty bytes.
    """
    room = int(lengths.sum()) // 4 * 3 + 3 * len(lengths)
    offsets, out = np.zeros(len(starts) + 1, np.int32), np.empty(room, np.uint8)
    ok = np.zeros(len(starts), np.bool_)
    _decode(data, starts, lengths, _DIGIT, offsets, out, ok)
    decoded = pa.BinaryArray.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(out)]
    )
    return decoded, ok


def decode_base64(texts: pa.StringArray) -> tuple[pa.BinaryArray, Array]:
    """Decode an array without nulls; see `decode_stretches`."""
    offsets = offsets_of(texts).astype(np.int64)
    return decode_stretches(bytes_of(texts), offsets[:-1], np.diff(offsets))
