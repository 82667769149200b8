"""Base64 of whole columns."""

from __future__ import annotations

import base64
import re

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.base64 import decode_base64

FORM = re.compile(r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def _expected(text: str) -> bytes | None:
    return base64.b64decode(text) if FORM.fullmatch(text) else None


def _told(texts: list[str]) -> list[bytes | None]:
    values, ok = decode_base64(pa.array(texts, pa.string()))
    values.validate(full=True)
    return [value if good else None for value, good in zip(values.to_pylist(), ok, strict=True)]


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=10))
def test_what_was_encoded_comes_back(values: list[bytes]) -> None:
    assert _told([base64.b64encode(value).decode() for value in values]) == values


@settings(deadline=None)
@given(st.lists(st.text("AQaz09+/=-_ \n", max_size=9), max_size=10))
def test_valid_is_the_padded_standard_alphabet(texts: list[str]) -> None:
    assert _told(texts) == [_expected(text) for text in texts]
