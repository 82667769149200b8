"""Arrow batches joined to the size that parsing wants."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from app.sources.batches import regrouped


def batch(values: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(values, pa.binary())})


@given(
    st.lists(st.lists(st.binary(max_size=40), max_size=9), max_size=30),
    st.integers(1, 20),
    st.integers(1, 400),
)
def test_every_row_comes_once_in_its_order_and_within_the_limits(
    parts: list[list[bytes]], rows: int, most_bytes: int
) -> None:
    given_ = [batch(part) for part in parts]

    found = list(regrouped(iter(given_), rows, most_bytes))

    assert [v for b in found for v in b["value"].to_pylist()] == [v for p in parts for v in p]
    whole = {p.num_rows for p in given_}
    assert all(b.num_rows <= rows or b.num_rows in whole for b in found)
    joined = [b for b in found if b not in given_]
    assert all(b["value"].nbytes <= most_bytes + 8 * len(parts) for b in joined)


def test_small_batches_become_one() -> None:
    found = list(regrouped(batch([b"%d" % n]) for n in range(1000)))

    assert [b.num_rows for b in found] == [1000]


def test_batches_with_other_columns_are_not_joined() -> None:
    other = pa.record_batch({"topic": ["a"]})

    found = list(regrouped(iter([batch([b"1"]), other, other])))

    assert [b.schema.names for b in found] == [["value"], ["topic"]]
