"""Lines of files: every byte kept, numbered alike however the file is read."""

from __future__ import annotations

import gzip

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.sources.files.lines import numbered

Lines = list[tuple[int, bytes]]


def read(data: bytes, block_bytes: int = 4 << 20) -> Lines:
    """(number, line) of every line, plain."""
    return [
        (number, value)
        for values, numbers in numbered(pa.BufferReader(data), block_bytes)
        for value, number in zip(values.to_pylist(), numbers.to_pylist(), strict=True)
    ]


def test_bytes_stay_and_blank_lines_only_count() -> None:
    data = b"\xef\xbb\xbffirst\n\n\r\n  \nnot utf-8 \xff\xfe\r\nlast"
    expected = [(0, b"first"), (3, b"  "), (4, b"not utf-8 \xff\xfe\r"), (5, b"last")]
    assert read(data) == expected
    assert read(gzip.compress(data)) == expected


@pytest.mark.parametrize("data", [b"", b"\n", b"\r\n\n", gzip.compress(b"", mtime=0)])
def test_a_file_without_lines_has_no_records(data: bytes) -> None:
    assert read(data) == []


def test_gzip_of_several_members_is_one_file() -> None:
    data = gzip.compress(b"a\nb") + gzip.compress(b"c\nd\n")
    assert read(data) == [(0, b"a"), (1, b"bc"), (2, b"d")]


@given(
    lines=st.lists(st.binary(max_size=12).map(lambda b: b.replace(b"\n", b"")), max_size=40),
    block_bytes=st.integers(3, 64),
    packed=st.booleans(),
    ended=st.booleans(),
)
def test_the_size_of_blocks_changes_nothing(
    lines: list[bytes], block_bytes: int, packed: bool, ended: bool
) -> None:
    data = b"[" + b"\n".join(lines) + (b"\n" if ended else b"")
    expected = [(n, line) for n, line in enumerate(data.split(b"\n")) if line not in (b"", b"\r")]
    assert read(gzip.compress(data) if packed else data, block_bytes) == expected


@pytest.mark.parametrize("cut", [10, 30, -4, -9])
def test_a_damaged_gzip_file_is_an_error(cut: int) -> None:
    with pytest.raises(OSError, match=r"compressed|inflate|incorrect"):
        read(gzip.compress(bytes(range(256)) * 40)[:cut])
