"""What tests ask of a Bloom filter that no decision needs."""

from __future__ import annotations

import math

import numpy as np

from state.engine.kernel import Array, Int, compiled
from state.producer_ids import bloom
from state.producer_ids.bloom import contains
from state.producer_ids.murmur import murmur3


@compiled
def contains_ids(words: Array, at: int, bits: int, hashes: int, pids: Array, found: Array) -> Int:
    """Test producer ids (int64, (n,)); sets `found` (bool, (n,)) and returns how many are in."""
    count = np.int64(0)
    for i in range(len(pids)):
        low, high = murmur3(pids[i])
        found[i] = contains(words, at, bits, hashes, low, high)
        count += np.int64(found[i])
    return count


def bits_set(words: Array, at: int, bits: int) -> int:
    """How many bits of the filter at word `at` are set."""
    return int(np.bitwise_count(words[at : at + bloom.words_of(bits)]).sum())


def expected_fpp(items: int, shape: bloom.Shape) -> float:
    """The rate of false positives after `items` ids: (1 - exp(-k n / m)) ** k."""
    exponent = -shape.hashes * items / shape.bits
    return float((-math.expm1(exponent)) ** shape.hashes)
