"""Blobs give back what was put into them, in as few bytes as their values differ."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from state.engine.blobs import COLUMNS, NULL, TEXTS, Blob, write
from state.engine.names import Names
from state.engine.records import SHIPPED, after, read_blobs
from tests.support.blobs_of_columns import of_columns

LEAST, MOST = -(2**63), 2**63 - 1
number = st.one_of(
    st.none(),
    st.integers(LEAST + 1, MOST),
    st.integers(-3, 300),
    st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**24, 2**32, 2**40, 2**48, 2**56, MOST]),
)
text = st.one_of(st.none(), st.sampled_from(["", "a", "ä", "topic", "\x00"]), st.text(max_size=6))


@st.composite
def tables(draw: st.DrawFn) -> dict[str, pa.Array]:
    """A few columns of up to forty records."""
    n = draw(st.integers(1, 40))
    found: dict[str, pa.Array] = {}
    for name in draw(st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1, max_size=6)):
        kind, values = (pa.string(), text) if name in TEXTS else (pa.int64(), number)
        narrow = draw(st.booleans())
        every = draw(st.lists(values, min_size=2 if narrow else n, max_size=2 if narrow else n))
        found[name] = pa.array((every * n)[:n], kind)
    return found


@settings(max_examples=400, deadline=None)
@given(tables())
def test_what_is_written_is_read(columns: dict[str, pa.Array]) -> None:
    blob = Blob(of_columns(columns))

    found = blob.table()

    assert found.column_names == list(columns)
    assert found.to_pydict() == {name: c.to_pylist() for name, c in columns.items()}


@settings(max_examples=100, deadline=None)
@given(tables(), st.lists(st.booleans(), min_size=40, max_size=40))
def test_a_filtered_blob_has_the_records_that_are_kept(
    columns: dict[str, pa.Array], keep: list[bool]
) -> None:
    blob = Blob(of_columns(columns))
    kept = np.array(keep[: blob.length])

    found = Blob(blob.filtered(kept)).table()

    wanted = pa.table(columns).filter(pa.array(kept))
    assert found.to_pydict() == wanted.to_pydict()


@pytest.mark.parametrize(
    "values, size",
    [
        ([5] * 64, 0),
        ([None] * 64, 0),
        ([7, 8] * 32, 64),
        ([None, 5] * 32, 64),
        ([LEAST + 1, LEAST + 2] * 32, 64),
        ([0, 256] * 32, 128),
        ([10**12, 10**12 + 65_536] * 32, 192),
        ([0, 2**40 - 1] * 32, 320),
        ([0, MOST] * 32, 512),
        ([LEAST + 1, MOST] * 32, 512),
        ([LEAST + 1, MOST, None, 0] * 16, 512),
    ],
)
def test_a_column_takes_as_many_bytes_as_its_values_differ(
    values: list[int | None], size: int
) -> None:
    def blob(column: list[int | None]) -> bytes:
        return of_columns({"entry_bytes": pa.array(column, pa.int64())})

    assert len(blob(values)) - len(blob([1] * 64)) == size
    assert Blob(blob(values)).table()["entry_bytes"].to_pylist() == values


def test_names_of_a_part_are_those_that_it_uses() -> None:
    names = pa.array(["a", "b", "c"])
    values = np.array([[0, 1, 1, 2, -1, 2]])
    data = np.frombuffer(b"abc", np.uint8)

    out, ends = write(("topic",), values, np.array([0, 3, 6]), data, np.array([0, 1, 2, 3]))

    parts = [Blob(out[: ends[0]].tobytes()), Blob(out[ends[0] : ends[1]].tobytes())]
    assert [part.texts().to_pylist() for part in parts] == [["a", "b"], ["c"]]
    assert [part.table()["topic"].to_pylist() for part in parts] == [
        ["a", "b", "b"],
        ["c", None, "c"],
    ]
    assert names.to_pylist() == ["a", "b", "c"]


def test_a_blob_may_need_more_room_than_was_thought() -> None:
    texts = pa.array([f"{i}".zfill(400) for i in range(300)])

    assert Blob(of_columns({"topic": texts})).table()["topic"].to_pylist() == texts.to_pylist()


def test_parts_of_which_a_later_one_needs_more_room_keep_their_names() -> None:
    text = b"".join(bytes([letter]) * 5_000 for letter in b"abc")
    values = np.array([[2, 0, -1, 1] * 9, list(range(36))])
    offsets = np.arange(4) * 5_000

    out, ends = write(
        ("topic", "seq"), values.copy(), np.arange(0, 37, 4), np.frombuffer(text, np.uint8), offsets
    )

    assert len(out) == ends[-1] > 9 * len(text) > 4 * len(text) + 9 * 300
    for part, (begin, end) in enumerate(pairwise([0, *ends.tolist()])):
        found = Blob(out[begin:end].tobytes()).table()
        assert [t and t[:1] for t in found["topic"].to_pylist()] == ["c", "a", None, "b"]
        assert found["seq"].to_pylist() == list(range(4 * part, 4 * part + 4))


def test_payloads_follow_at_the_end() -> None:
    payload = pa.array([b"x", None, b""], pa.binary())

    blob = Blob(of_columns({"entry_id": pa.array([1, 2, 3])}, payload))

    assert blob.payload().to_pylist() == [b"x", None, b""]
    assert Blob(of_columns({"entry_id": pa.array([1, 2])})).payload().to_pylist() == [None, None]


@pytest.mark.parametrize("data", [b"", b"no blob", b"x" * 100])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="not a blob of records"):
        Blob(data)


def _records(**columns: Any) -> bytes:
    n = len(next(iter(columns.values())))
    more = {name: pa.array(["p"] * n if name in TEXTS else [0] * n) for name in SHIPPED}
    return of_columns({**more, **columns})


def test_records_of_several_blobs_share_their_names() -> None:
    names = Names()
    one = _records(topic=pa.array(["a", None, "b"]), seq=pa.array([1, None, 3]))
    other = _records(topic=pa.array(["b", "c"]), seq=pa.array([4, 5]))

    found = read_blobs([one, other], names, ("topic", "seq"))

    assert names.lookup(found["topic"]).to_pylist() == ["a", None, "b", "b", "c"]
    assert found["seq"].tolist() == [1, NULL, 3, 4, 5]
    assert found["held"].tolist() == [0] * 5
    assert read_blobs([], names, ("topic", "seq")).data.shape == (len(found), 0)


@pytest.mark.parametrize("room", [0, 2, 3])
def test_records_behind_others_are_the_same_with_and_without_room_for_them(room: int) -> None:
    names = Names()
    first = read_blobs(
        [_records(seq=pa.array([1, None]), topic=pa.array(["a", "b"]))], names, ("seq", "topic")
    )
    blob = _records(topic=pa.array(["b", "c", None]), seq=pa.array([3, 4, 5]))
    more = read_blobs([blob], names, ("topic", "seq"), room=room)
    more["held"] = np.array([0, 1, 0])

    both = after(first, more)

    assert both["seq"].tolist() == [1, NULL, 3, 4, 5]
    assert names.lookup(both["topic"]).to_pylist() == ["a", "b", "b", "c", None]
    assert both["held"].tolist() == [0, 0, 0, 1, 0]
    assert np.shares_memory(both.data, more.data) == (room == 2)
    more["new"] = np.arange(3)
    first["new"] = np.arange(2)
    assert after(first, more)["new"].tolist() == [0, 1, 0, 1, 2]


def test_a_column_that_is_missing_is_an_error() -> None:
    with pytest.raises(ValueError, match="not all columns"):
        read_blobs([_records(topic=pa.array(["a"]))], Names(), ("topic", "seq"))
