"""Buffers of Arrow arrays as numpy arrays: what Arrow's own cast and fill_null would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from udfs.arrow import integers

NULL = -(2**63)
TYPES = {
    pa.int8(): (-(2**7), 2**7 - 1),
    pa.int16(): (-(2**15), 2**15 - 1),
    pa.int32(): (-(2**31), 2**31 - 1),
    pa.int64(): (-(2**63), 2**63 - 1),
    pa.uint8(): (0, 255),
}


@st.composite
def arrays(draw: st.DrawFn) -> tuple[pa.Array, list[Any]]:
    """An array that may begin within its buffers, and its values."""
    kind = draw(st.sampled_from([*TYPES, pa.bool_()]))
    values = st.booleans() if kind == pa.bool_() else st.integers(*TYPES[kind])
    whole = draw(st.lists(st.none() | values, max_size=40))
    start = draw(st.integers(0, len(whole)))
    end = draw(st.integers(start, len(whole)))
    return pa.array(whole, kind)[start:end], whole[start:end]


@given(arrays())
def test_numbers_and_nulls_are_those_of_the_array(drawn: tuple[pa.Array, list[Any]]) -> None:
    array, values = drawn
    found = integers(array, NULL)
    assert found.dtype == np.int64
    assert found.tolist() == [NULL if v is None else int(v) for v in values]


@pytest.mark.parametrize("kind", [*TYPES, pa.bool_()])
def test_an_array_without_elements_or_with_nulls_alone(kind: pa.DataType) -> None:
    assert integers(pa.array([], kind), NULL).tolist() == []
    assert integers(pa.nulls(9, kind), 7).tolist() == [7] * 9
