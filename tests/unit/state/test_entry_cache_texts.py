"""Positions read from the bytes of names, against the pattern that they follow."""

from __future__ import annotations

import re
from itertools import product

import numpy as np

from state.engine.names import Names
from state.entry_cache.texts import read_positions

POSITION = re.compile(r"(-?[0-9]{1,18}):(-?[0-9]{1,18})")
NUMBERS = (
    "0",
    "-0",
    "7",
    "-12",
    "007",
    "9" * 18,
    "-" + "9" * 18,
    "9" * 19,
    "-",
    "--1",
    "",
    "x",
    "1x",
    " 1",
    "1\n",
    "+1",
    "\u0661",
    "1:2",
    "/",
    ";",
)


def test_a_position_is_two_numbers_of_at_most_18_digits() -> None:
    texts = [f"{ledger}:{entry}" for ledger, entry in product(NUMBERS, NUMBERS)] + list(NUMBERS)
    names = Names()
    ids = [-1, *(names.intern_one(text) for text in texts)]
    found = np.zeros((3, len(ids)), np.int64)
    read_positions(*names.utf8(), np.array(ids), found)
    matches = [POSITION.fullmatch(text) for text in texts]
    assert found.T.tolist() == [
        [0, 0, 0],
        *([1, int(m[1]), int(m[2])] if m else [0, 0, 0] for m in matches),
    ]
    assert 40 < int(found[0].sum()) < len(texts) - 40
