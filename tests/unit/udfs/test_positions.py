"""Positions `ledger:entry`."""

from __future__ import annotations

import re

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from udfs.positions import parse_positions


def _expected(text: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"(-?[0-9]+):(-?[0-9]+)", text, re.ASCII)
    if found is None or any(abs(int(part)) >= 2**63 for part in found.groups()):
        return None
    return int(found[1]), int(found[2])


def test_two_integers_joined_by_a_colon() -> None:
    texts = [
        "55:-1",
        "0:0",
        "9223372036854775807:1",
        "9223372036854775808:1",
        "1",
        "1:",
        ":1",
        "1:2:3",
        "",
        "a:1",
        " 1:2",
        "1:2 ",
        "+1:2",
        "1.0:2",
        "-:1",
        "1:-",
        "٣:1",
    ]
    ledger, entry, ok = (found.tolist() for found in parse_positions(pa.array(texts, pa.string())))
    parsed = [pair if good else None for *pair, good in zip(ledger, entry, ok, strict=True)]
    assert parsed == [[55, -1], [0, 0], [2**63 - 1, 1], *(None,) * 14]


@settings(deadline=None)
@given(st.lists(st.text("0123456789:- +", max_size=24), max_size=10))
def test_columns_of_positions(texts: list[str]) -> None:
    ledger, entry, ok = parse_positions(pa.array([None, *texts], pa.string()))
    pairs = zip(ledger.tolist(), entry.tolist(), ok, strict=True)
    told = [(first, second) if good else None for first, second, good in pairs]
    assert told == [None, *map(_expected, texts)]
