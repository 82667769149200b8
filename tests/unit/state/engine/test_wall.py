"""Tuples get their positions in order of appearance, however many there are."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from state.engine.wall import intern_tuples

Tuple = tuple[int, int, int]


def interned(
    known: list[Tuple], rows: list[Tuple], create: list[bool]
) -> tuple[list[Tuple], list[int]]:
    every = np.zeros((len(known) + len(rows), 3), np.int64)
    every[: len(known)] = np.array(known, np.int64).reshape(-1, 3)
    a, b, c = np.array(rows, np.int64).reshape(-1, 3).T.copy()
    found = np.empty(len(rows), np.int64)
    made = intern_tuples(every, len(known), a, b, c, np.array(create, bool), found)
    return [(int(x), int(y), int(z)) for x, y, z in every[:made]], found.tolist()


def expected(
    known: list[Tuple], rows: list[Tuple], create: list[bool]
) -> tuple[list[Tuple], list[int]]:
    place = {one: i for i, one in enumerate(known)}
    found = []
    for row, new in zip(rows, create, strict=True):
        if new:
            place.setdefault(row, len(place))
        found.append(place.get(row, -1))
    return list(place), found


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    rows=st.sampled_from([0, 1, 50, 3_000]),
    values=st.sampled_from([2, 20, 10**6]),
    known=st.sampled_from([0, 3, 2_000]),
)
def test_positions_are_those_of_a_dictionary(seed: int, rows: int, values: int, known: int) -> None:
    rng = np.random.default_rng(seed)
    drawn = [
        (int(a), int(b), int(c)) for a, b, c in rng.integers(-values, values, (rows + known, 3))
    ]
    there, looked_up = list(dict.fromkeys(drawn[:known])), drawn[known:]
    create = (rng.random(rows) < rng.random()).tolist()
    assert interned(there, looked_up, create) == expected(there, looked_up, create)
