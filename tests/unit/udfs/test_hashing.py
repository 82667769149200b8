"""Hashes are mmh3's, bit for bit."""

from __future__ import annotations

import random

import mmh3
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.hashes import name_hash
from udfs.hashing import combine_hashes, hash64, hash_strings, shard_of


def test_hashes_of_every_length_equal_mmh3() -> None:
    r = random.Random(5)
    values = [r.randbytes(n) for n in range(101)] + [b"\x00" * n for n in range(40)]
    values += [r.randbytes(r.randrange(300)) for _ in range(2000)]
    expected = [mmh3.hash64(v, 0, True)[0] for v in values]
    for kind in (pa.binary(), pa.large_binary()):
        assert hash_strings(pa.array(values, kind)).tolist() == expected
    assert [hash64(v) for v in values] == expected


@settings(deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), max_size=20))
def test_hashes_of_text_equal_mmh3_in_every_form(values: list[str | None]) -> None:
    expected = [0 if v is None else mmh3.hash64(v.encode(), 0)[0] for v in values]
    array = pa.array(values, pa.string())
    assert hash_strings(array).tolist() == expected
    assert hash_strings(array.dictionary_encode()).tolist() == expected
    assert hash_strings(array.slice(1)).tolist() == expected[1:]
    assert hash_strings(pa.chunked_array([array, array])).tolist() == expected * 2


def test_a_name_of_parts_hashes_alike_one_by_one_and_in_columns() -> None:
    clusters, brokers = ["a", "a", "ab", None, ""], ["bc", "c", "c", "c", None]
    columns = [hash_strings(pa.array(column, pa.string())) for column in (clusters, brokers)]
    hashes = combine_hashes(*columns)
    assert hashes.tolist() == [name_hash(*pair) for pair in zip(clusters, brokers, strict=True)]
    assert len(set(hashes.tolist())) == 5
    assert name_hash("a", "b") != name_hash("b", "a")
    assert name_hash("orders") == hash64("orders")


def test_a_shard_is_the_unsigned_hash_modulo_the_number() -> None:
    hashes = np.array([0, 1, -1, 2**63 - 1, -(2**63), 17], np.int64)
    assert shard_of(hashes, 16).tolist() == [0, 1, 15, 15, 0, 1]
    assert shard_of(hashes, 7).tolist() == [int(h) % 2**64 % 7 for h in hashes]
    assert shard_of(hashes, 1).tolist() == [0] * 6
    spread = shard_of(hash_strings(pa.array([f"b{i}" for i in range(16_000)])), 16)
    assert np.bincount(spread, minlength=16).min() > 800
