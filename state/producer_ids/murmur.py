"""MurmurHash3 x64 128 bit, initial value 0, of producer ids: 8 little-endian bytes each.

Bit for bit what `mmh3.hash64` returns. Eight bytes are less than one block of the hash, so only
its tail and its finaliser take part.
"""

from __future__ import annotations

import numpy as np

from state.engine.kernel import Int, compiled

_C1 = np.uint64(0x87C37B91114253D5)
_C2 = np.uint64(0x4CF5AD432745937F)
_MIX1 = np.uint64(0xFF51AFD7ED558CCD)
_MIX2 = np.uint64(0xC4CEB9FE1A85EC53)
_LEFT, _RIGHT = np.uint64(31), np.uint64(33)
_LENGTH = np.uint64(8)


@compiled
def _mixed(x: Int) -> Int:
    """The finaliser of one half."""
    x = (x ^ (x >> _RIGHT)) * _MIX1
    x = (x ^ (x >> _RIGHT)) * _MIX2
    return x ^ (x >> _RIGHT)


@compiled
def murmur3(pid: int) -> tuple[Int, Int]:
    """Low and high half (unsigned 64-bit) of the hash of one producer id (signed 64-bit)."""
    k = np.uint64(pid) * _C1
    k = ((k << _LEFT) | (k >> _RIGHT)) * _C2
    low = k ^ _LENGTH
    high = _LENGTH
    low += high
    high += low
    low = _mixed(low)
    high = _mixed(high)
    low += high
    high += low
    return low, high
