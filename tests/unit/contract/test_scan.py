"""The scanner never says anything else than the decoder."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.contract.parsing.block import Block, to_table
from app.contract.parsing.parser import parse_block
from tests.unit.contract.records import FRAGMENTS, damaged, line, record, wide_record


def parsed(lines: Sequence[bytes | None], fast: bool) -> tuple[Block, pa.Table]:
    block = parse_block(pa.array(lines, pa.binary()), fast=fast)
    table = to_table(block)
    table.validate(full=True)
    return block, table


def sets_of(block: Block) -> tuple[np.ndarray, ...]:
    return block.present, block.empty, block.negative, block.bad_type


def told(lines: Sequence[bytes | None], fast: bool) -> list[Any]:
    """Everything that parsing says of each line: its columns, bad types, reason and bit sets."""
    block, table = parsed(lines, fast)
    return [
        (row, *(tuple(s[:, i].tolist()) for s in sets_of(block)), block.unparseable.get(i))
        for i, row in enumerate(table.to_pylist())
    ]


def assert_the_same_to_both(lines: Sequence[bytes | None]) -> None:
    """As `told` says it: line by line only where the whole differs."""
    (fast, of_fast), (slow, of_slow) = parsed(lines, fast=True), parsed(lines, fast=False)
    sets = zip(sets_of(fast), sets_of(slow), strict=True)
    if (
        not of_fast.equals(of_slow)
        or fast.unparseable != slow.unparseable
        or not all(np.array_equal(one, other) for one, other in sets)
    ):
        assert told(lines, fast=True) == told(lines, fast=False)


def declined(lines: list[bytes]) -> list[bool]:
    """Which lines the scanner leaves to the decoder."""
    import app.contract.parsing.parser as parse

    seen: list[bytes] = []
    original = parse.decoder.decode
    parse.decoder.decode = lambda text: (seen.append(text), original(text))[1]
    try:
        parse_block(pa.array(lines, pa.binary()))
    finally:
        parse.decoder.decode = original
    return [text in seen for text in lines]


def test_plain_records_are_scanned_not_decoded() -> None:
    r = random.Random(1)
    lines = [line({**wide_record(r), "marker_ids": None}) for _ in range(500)]
    spaces = (" , ", " :\t")
    spaced = [line({**wide_record(r), "marker_ids": None}, separators=spaces) for _ in range(500)]
    # a shuffled policy document carries escapes
    lines = [text for text in lines + spaced if b"\\" not in text]
    assert len(lines) > 500
    assert not any(declined(lines))


@pytest.mark.parametrize("seed", range(8))
def test_damaged_records_mean_the_same_to_both(seed: int) -> None:
    r = random.Random(seed)
    lines: list[bytes | None] = []
    for _ in range(3000):
        options = {"separators": r.choice([(",", ":"), (", ", ": ")])}
        text = line(wide_record(r), **options)
        lines.append(text if r.random() < 0.1 else damaged(text, r))
    lines[17] = None
    assert_the_same_to_both(lines)


_small = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(["", "YQ==", "1:2", "publish", "é", "\x00", "\\", '"']),
    st.lists(st.sampled_from(["1:2", None, 3, "x"]), max_size=3),
)
_keys = st.sampled_from(
    [
        "seq",
        "topic",
        "partition",
        "durable",
        "payload",
        "marker_ids",
        "event_type",
        "extra",
        "supports_throttle",
        "total_chunk_bytes",
        "uuid",
        "",
        "se",
        "seqq",
        "é",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.dictionaries(_keys, _small, max_size=6), min_size=1, max_size=6), st.data())
def test_any_object_means_the_same_to_both(
    records: list[dict[str, Any]], data: st.DataObject
) -> None:
    spaces = data.draw(st.sampled_from([(",", ":"), (" ,", " : "), (",\r\n", ":\t")]))
    lines = [line(one, separators=spaces, ensure_ascii=data.draw(st.booleans())) for one in records]
    assert_the_same_to_both(lines)


_bytes = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map(b"".join)


@settings(max_examples=400, deadline=None)
@given(st.lists(_bytes, min_size=1, max_size=8))
def test_any_bytes_mean_the_same_to_both(texts: list[bytes]) -> None:
    lines = [*texts, *(b"{" + t + b"}" for t in texts), *(b'{"seq":' + t + b"}" for t in texts)]
    lines += [b'{"topic":"' + t + b'"}' for t in texts]
    assert_the_same_to_both(lines)


@pytest.mark.parametrize(
    "number",
    [
        0,
        1,
        -1,
        9,
        10,
        99999999,
        100000000,
        2**31 - 1,
        2**31,
        -(2**31),
        -(2**31) - 1,
        2**53 + 1,
        10**15,
        10**16 - 1,
        10**16,
        10**18,
        2**63 - 1,
        2**63,
        -(2**63) + 1,
        -(2**63),
        -(2**63) - 1,
        2**64,
        10**19,
        10**30,
    ],
)
def test_integers_keep_every_bit_or_are_bad(number: int) -> None:
    rows = told([line({"seq": number, "partition": number})], fast=True)
    wide = number if -(2**63) <= number < 2**63 else None
    short = number if -(2**31) <= number < 2**31 else None
    assert (rows[0][0]["seq"], rows[0][0]["partition"]) == (wide, short)
    assert rows == told([line({"seq": number, "partition": number})], fast=False)


def test_strings_of_every_length_survive_at_the_end_of_the_buffer() -> None:
    for length in range(70):
        text = "".join(chr(35 + (7 * i) % 57) for i in range(length))
        one = line({"uuid": text})
        # the last byte of the data is the last of the record, nothing may be read after it
        rows = told([one, one + b" "], fast=True)
        assert [row[0]["uuid"] for row in rows] == [text, text]


def test_slices_large_offsets_and_text_arrays_are_read_alike() -> None:
    lines = [line(record("publish", seq=i)) for i in range(20)]
    whole = pa.array([b"junk", *lines, None], pa.binary())
    expected = told(lines, fast=True)
    for kind in (pa.binary(), pa.large_binary(), pa.string(), pa.large_string(), pa.binary_view()):
        block = parse_block(whole.cast(kind).slice(1, 20))
        assert to_table(block).to_pylist() == [row[0] for row in expected]
    chunked = pa.chunked_array([whole.slice(1, 5), whole.slice(6, 15)])
    assert to_table(parse_block(chunked)).to_pylist() == [row[0] for row in expected]
    assert parse_block(pa.array([], pa.binary())).n == 0
    assert parse_block(pa.array([None, None], pa.binary())).unparseable == {0: "null", 1: "null"}


def test_many_distinct_values_stay_distinct() -> None:
    n = 60_000
    own = [f"u{i}" for i in range(n)]
    topics = [f"t{i % 1000}" for i in range(n)]
    records = zip(own, topics, strict=True)
    lines = [line({"uuid": one, "topic": topic, "consumer": one}) for one, topic in records]
    table = to_table(parse_block(pa.array(lines, pa.binary())))
    assert table["uuid"].to_pylist() == table["consumer"].to_pylist() == own
    assert len(table["topic"].chunk(0).dictionary) == 1000
    assert table["topic"].to_pylist() == topics


def test_hostile_lines_never_raise() -> None:
    lines = [
        b"",
        b"   ",
        b"null",
        b"[]",
        b"1",
        b'"x"',
        b"\xff\xfe",
        b"{" * 100_000,
        b"[" * 100_000,
        b'{"x":' * 50_000 + b"1" + b"}" * 50_000,
        b'{"topic":' + b"[" * 50_000 + b"}",
        b'{"seq":' + b"9" * 100_000 + b"}",
        b'{"seq":1e999999}',
        b'{"seq":NaN}',
        b'{"topic":"\\ud800"}',
        b'{"topic":"\\u0000"}',
        b'{"topic":"' + b"x" * 10_000_000 + b'"}',
        b'{"payload":"' + b"A" * 4_000_000 + b'"}',
        b'{"payload":"' + b"A" * 4_000_001 + b'"}',
        b'{"extra":"\xff"}',
        b'{"' + b"k" * 1_000_000 + b'":1}',
        b"{}",
        b'{"seq":1}x',
        b'{"seq":1',
        b'{"topic":"a',
        b'{"seq":1,"seq":2}',
        b'{"seq":"x","seq":2}',
        b'{"seq":2,"seq":"x"}',
    ]
    fast = told(lines, fast=True)
    assert fast == told(lines, fast=False)
    reasons = [row[-1] for row in fast]
    assert reasons[0] == reasons[1] == "blank"
    assert reasons[2] == reasons[3] == "not an object"
    assert reasons[6] == "not UTF-8"
    assert fast[15][0]["topic"] == "\x00"
    assert len(fast[16][0]["topic"]) == 10_000_000
    assert fast[17][0]["payload"] == bytes(3_000_000)
    assert fast[25][0]["seq"] == fast[26][0]["seq"] == 2
    assert np.array([any(row[4]) for row in fast]).nonzero()[0].tolist() == [11, 12, 18, 27]
