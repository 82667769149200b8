"""What a bake-off says, from counts made by hand."""

from __future__ import annotations

import pytest

from app.whatif.bakeoff.advice import advised_size, sentence
from app.whatif.bakeoff.curves import Curve, Point

READS = 100


def point(policy: str, size: int, misses: int, **own: int) -> Point:
    counts = {"hits": READS - misses, "misses": misses, "storage_bytes": 1000 * misses}
    return Point(Curve(policy, tuple(own.items())), size, {("c", "b"): counts})


PAIR = [
    point("expected_reads", 2**8, 39),
    point("expected_reads", 2**9, 35),
    point("proportional", 2**8, 100),
    point("proportional", 2**9, 70),
]


@pytest.mark.parametrize(
    ("points", "says"),
    [
        (
            PAIR,
            "At 256 bytes `expected_reads` saves 61 % of storage reads against `proportional`; "
            "doubling the cache saves 4 % more.",
        ),
        (
            [*PAIR, point("belady", 2**8, 9)],
            "At 256 bytes `expected_reads` saves 61 % of storage reads "
            "against `proportional`; doubling the cache saves 4 % more; foresight could save another 30 % "
            "at this size.",
        ),
        (
            PAIR[::2],
            "At 256 bytes `expected_reads` saves 61 % of storage reads against `proportional`.",
        ),
        (
            [
                point("expected_reads", 256, 100),
                point("expected_reads", 512, 100),
                point("proportional", 256, 50),
            ],
            "At 256 bytes `expected_reads` reads 100 % more from storage than `proportional`; doubling "
            "the cache saves nothing more.",
        ),
        (
            [point("expected_reads", 256, 0), point("proportional", 256, 0)],
            "At 256 bytes `expected_reads` reads as little from storage as `proportional`: nothing.",
        ),
        (
            [point("expected_reads", 256, 40), point("proportional", 256, 40)],
            "At 256 bytes `expected_reads` reads as much from storage as `proportional`.",
        ),
        (
            [point("lru", 256, 30), point("fifo", 256, 60), point("belady", 256, 30)],
            "At 256 bytes `lru` saves 50 % of storage reads against `fifo`.",
        ),
        (
            [point("fifo", 256, 30, grace_ms=0), point("fifo", 256, 60, grace_ms=9)],
            "At 256 bytes `fifo, grace_ms 0` saves 50 % of storage reads against `fifo, grace_ms 9`.",
        ),
        (
            [point("belady", 256, 25)],
            "At 256 bytes `belady` answers 75 % of the reads and reads 25.0 kB from storage.",
        ),
    ],
)
def test_the_sentence(points: list[Point], says: str) -> None:
    assert sentence(points, 256) == says


def test_advice_is_about_the_size_beyond_which_nothing_is_won() -> None:
    sizes = {1: 60, 2: 30, 4: 11, 8: 10, 16: 10}
    points = [point("expected_reads", size, misses) for size, misses in sizes.items()]
    points += [point("proportional", size, 70) for size in sizes]
    assert advised_size(points, None) == 4
    assert advised_size(points, 8) == 8
    assert advised_size(points, 9) == 4  # was not replayed
    assert sentence(points, 16) == (
        "At 16 bytes `expected_reads` saves 86 % of storage reads against `proportional`; 4 bytes "
        "would answer nearly as much."
    )
