"""CRC-32 (IEEE 802.3, as zlib computes it) of two consecutive byte ranges, from the CRC-32 of each.

The remainder of the first is moved past the second by multiplying with x to the power of its
length, modulo the polynomial, so no byte is read again.
"""

from __future__ import annotations

import numpy as np

from state.engine.kernel import Int, compiled

_POLYNOMIAL = np.int64(0xEDB88320)
_ONE = np.int64(0x80000000)
"""x to the power of 0; bits run from the highest power down."""


@compiled
def _times(a: Int, b: Int) -> Int:
    """Product of two remainders."""
    product, bit = np.int64(0), _ONE
    while True:
        if a & bit:
            product ^= b
            if a & (bit - 1) == 0:
                return product
        bit >>= 1
        if bit == 0:
            return product
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1


@compiled
def combine(first: Int, second: Int, length: Int) -> Int:
    """CRC-32 of both stretches together; `length` is that of the second, in bytes."""
    power, square, bits = _ONE, np.int64(0x40000000) >> 7, length
    while bits > 0:
        if bits & 1:
            power = _times(square, power)
        bits >>= 1
        if bits > 0:
            square = _times(square, square)
    return _times(power, first) ^ second
