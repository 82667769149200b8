"""Bloom filters of producer ids: sizes, membership, rates of false positives, lists of ids."""

from __future__ import annotations

import gzip
import json
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from state.producer_ids import bloom
from state.producer_ids.bloom import Shape, shape_of
from state.producer_ids.murmur import murmur3
from tests.support import bloom_filters
from tests.unit.state.recorded import VECTORS, vectors

VECTOR_FILE = "producer_ids.json"
SMALL = Shape(957, 7)
FIXED = ["920c0d440befa66f", "000000006b4c33ec"]
"""The filter of ids 0 to 9 for 10 ids at 0.01."""


def _filters(shape: Shape, count: int = 1) -> np.ndarray:
    return np.zeros(shape.words * count, np.uint64)


def _ids(seed: int, count: int) -> np.ndarray:
    """Different ids: of so many numbers no two are equal."""
    return np.random.default_rng(seed).integers(0, 2**63 - 1, count)


def _hash(pid: int) -> tuple[np.uint64, np.uint64]:
    """Halves as they are in compiled code; to Python they come back as plain integers."""
    low, high = murmur3(np.int64(pid))
    return np.uint64(low), np.uint64(high)


def _insert(words: np.ndarray, at: int, shape: Shape, pids: np.ndarray) -> int:
    """How many bits are new."""
    return int(bloom.densify(pids.astype(np.uint64), 0, len(pids), words, at, *shape))


def _found(words: np.ndarray, at: int, shape: Shape, pids: np.ndarray) -> np.ndarray:
    found = np.zeros(len(pids), bool)
    count = bloom_filters.contains_ids(words, at, *shape, pids, found)
    assert count == found.sum()
    return found


@pytest.mark.parametrize("vector", vectors(VECTOR_FILE, "bloom_size"), ids=lambda v: v["id"])
def test_vector(vector: dict[str, Any]) -> None:
    n, p, expect = vector["given"]["n"], vector["given"]["p"], vector["expect"]
    up, down = shape_of(n, p, "ceil"), shape_of(n, p, "trunc")
    assert {"m_ceil": up.bits, "m_trunc": down.bits, "k": up.hashes, "bytes": up.bytes} == expect
    assert down.hashes == up.hashes
    assert up.words == bloom.words_of(up.bits) == -(-up.bits // 64)


def test_recorded_shapes() -> None:
    with gzip.open(VECTORS / "hash.jsonl.gz", "rt") as lines:
        cases = [case for case in map(json.loads, lines) if "p_actual" in case]
    assert len(cases) == 56
    for case in cases:
        shape = shape_of(case["n"], case["p"])
        assert shape == (case["m"], case["k"]), case["id"]
        assert bloom_filters.expected_fpp(case["n"], shape) == pytest.approx(
            case["p_actual"], rel=1e-9
        )


@pytest.mark.parametrize(
    ("items", "fpp", "rounding"),
    [
        (0, 0.01, "ceil"),
        (-1, 0.01, "ceil"),
        (1, 0.0, "ceil"),
        (1, 1.0, "ceil"),
        (1, float("nan"), "ceil"),
        (1, 0.5, "floor"),
        (10**9, 0.01, "ceil"),
    ],
)
def test_impossible_sizes_are_refused(items: int, fpp: float, rounding: str) -> None:
    with pytest.raises(ValueError):
        shape_of(items, fpp, rounding)


def test_a_filter_has_at_least_one_bit() -> None:
    assert shape_of(1, 0.99, "trunc") == (1, 1)


def test_positions_are_the_stated_ones() -> None:
    # the scheme belongs to the state version: filters in stored state depend on it
    for shape in (SMALL, shape_of(1000, 0.01), Shape(1, 3), Shape(64, 2), Shape(2**20 + 7, 10)):
        for pid in (0, 1, 7, 2**40 + 3, -5):
            words = _filters(shape)
            low, high = _hash(pid)
            new = bloom.insert(words, 0, *shape, low, high)
            x, expected = int(low), set()
            for _ in range(shape.hashes):
                expected.add((x * shape.bits) >> 64)
                x = (x * 0x5851F42D4C957F2D + (int(high) | 1)) % 2**64
            bits = np.unpackbits(words.view(np.uint8), bitorder="little")
            assert set(np.flatnonzero(bits).tolist()) == expected
            assert new == len(expected) == bloom_filters.bits_set(words, 0, shape.bits)


def test_the_bits_of_one_filter_are_fixed() -> None:
    shape = shape_of(10, 0.01)
    words = _filters(shape)
    _insert(words, 0, shape, np.arange(10))
    assert [f"{w:016x}" for w in words.tolist()] == FIXED


@pytest.mark.parametrize("fpp", [0.3, 0.01, 0.001])
@pytest.mark.parametrize("items", [1, 10, 1000, 20_000])
def test_no_false_negatives(items: int, fpp: float) -> None:
    shape = shape_of(items, fpp)
    for seed in range(5):
        words, ids = _filters(shape), _ids(seed, items)
        _insert(words, 0, shape, ids)
        assert _found(words, 0, shape, ids).all()


def test_no_false_negatives_beyond_the_stated_number() -> None:
    shape = shape_of(100, 0.01)
    words, ids = _filters(shape), _ids(3, 5000)
    _insert(words, 0, shape, ids)
    assert _found(words, 0, shape, ids).all()


@pytest.mark.parametrize("kind", ["random", "counted", "blocks"])
@pytest.mark.parametrize(
    ("items", "fpp", "seeds"),
    [
        (100, 0.01, 400),
        (1000, 0.01, 100),
        (1000, 0.001, 300),
        (5000, 0.01, 40),
        (20_000, 0.001, 20),
    ],
)
@pytest.mark.parametrize("rounding", bloom.ROUNDINGS)
def test_false_positives_are_at_most_1_1_times_those_stated(
    items: int, fpp: float, seeds: int, rounding: str, kind: str
) -> None:
    shape = shape_of(items, fpp, rounding)
    tests, wrong, total = 20_000, 0, 0
    for seed in range(seeds):
        if kind == "random":
            ids = _ids(seed, items + tests)
        elif kind == "counted":
            ids = np.arange(items + tests) + seed * (items + tests)
        else:  # as brokers draw them: blocks of 1000 in turn, half of each used
            ids = (np.arange(items + tests) // 500 * 1000 + np.arange(items + tests) % 500) + (
                seed << 32
            )
        words = _filters(shape)
        _insert(words, 0, shape, ids[:items])
        wrong += int(_found(words, 0, shape, ids[items:]).sum())
        total += tests
    assert 0.8 * fpp <= wrong / total <= 1.1 * fpp


def test_new_bits_add_up_to_the_bits_set() -> None:
    shape = shape_of(1000, 0.01)
    words = _filters(shape)
    count, once = 0, 0
    for pid in _ids(5, 1500).tolist():
        low, high = _hash(pid)
        looked_in = bloom.contains(words, 0, *shape, low, high)
        new = bloom.insert(words, 0, *shape, low, high)
        assert (new == 0) == looked_in
        assert bloom.insert(words, 0, *shape, low, high) == 0
        count += new
        once += new > 0
    assert count == bloom_filters.bits_set(words, 0, shape.bits)
    assert once > 1400
    rate = bloom.estimated_fpp(count, *shape)
    assert rate == pytest.approx((count / shape.bits) ** shape.hashes, rel=1e-12)
    tests = _ids(99, 200_000)
    assert _found(words, 0, shape, tests).mean() == pytest.approx(rate, rel=0.1)


def test_fill_edges() -> None:
    assert bloom.estimated_fpp(0, 9586, 7) == 0.0
    assert bloom.estimated_fpp(9586, 9586, 7) == 1.0


@pytest.mark.parametrize("bits", [1, 63, 64, 65, 128, 957])
def test_filters_keep_to_their_words(bits: int) -> None:
    shape = Shape(bits, 4)
    words = np.full(shape.words * 3, 2**64 - 1, np.uint64)
    bloom.clear(words, shape.words, shape.bits)
    assert bloom_filters.bits_set(words, shape.words, bits) == 0
    ids = _ids(1, 50 * bits)
    _insert(words, shape.words, shape, ids)
    assert bloom_filters.bits_set(words, shape.words, bits) == bits, "every bit below m, none above"
    edges = np.concatenate([words[: shape.words], words[2 * shape.words :]])
    assert (edges == np.uint64(2**64 - 1)).all()


def test_densify_takes_the_ids_of_its_list_alone() -> None:
    shape = shape_of(1000, 0.01)
    ids = _ids(4, 100)
    listed = np.full(128, 7, np.uint64)
    listed[3:103] = ids
    words, expected = _filters(shape, 2), _filters(shape, 2)
    new = bloom.densify(listed, 3, 100, words, shape.words, *shape)
    assert new == sum(bloom.insert(expected, shape.words, *shape, *_hash(pid)) for pid in ids)
    assert (words == expected).all()


def test_a_list_adds_the_bits_that_an_insert_would_set() -> None:
    """In a filter so small that an id has the same bit twice."""
    bits, hashes = 16, 6
    words, listed = np.zeros(1, np.uint64), np.zeros(20, np.uint64)
    for count in range(len(listed)):
        low, high = _hash(count)
        added = bloom.listed_bits_added(listed, 0, count, bits, hashes, low, high)
        assert added == bloom.insert(words, 0, bits, hashes, low, high)
        listed[count] = count


def test_fill_is_that_of_independent_positions() -> None:
    shape = shape_of(1000, 0.01)
    total = 0
    for seed in range(200):
        words = _filters(shape)
        total += _insert(words, 0, shape, _ids(seed, 1000))
    expected = 1 - float((1 - Fraction(1, shape.bits)) ** (1000 * shape.hashes))
    assert total / 200 / shape.bits == pytest.approx(expected, rel=2e-3)
