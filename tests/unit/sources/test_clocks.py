"""Which records move no clock: by the plan of their batch, and by their neighbours."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from app.sources.batches import regrouped
from app.sources.clocks import NULL, Jumps, is_ahead, plan_of, stamped

HOUR = 3_600_000
MOST = 2**63 - 1


def found(batches: list[list[tuple[str, int | None]]], most_ms: int = HOUR) -> list[list[bool]]:
    """Which records of each batch are far ahead of both neighbours; (partition, wall time)."""
    jumps = Jumps(most_ms)
    return [
        jumps.find(
            np.array([NULL if ms is None else ms for _, ms in batch], np.int64),
            pa.array([name for name, _ in batch], pa.string()),
        ).tolist()
        for batch in batches
    ]


def test_a_record_between_two_that_are_far_behind_it_is_one() -> None:
    far = HOUR + 2
    assert found([[("0", 0), ("0", far), ("0", 1)]]) == [[False, True, False]]
    assert found([[("0", 0), ("0", far - 1), ("0", 1)]]) == [[False, False, False]]
    assert found([[("0", 0), ("0", None), ("0", far), ("0", None), ("0", 1)]]) == [
        [False, False, True, False, False]
    ]


def test_neighbours_are_those_of_its_partition() -> None:
    assert found([[("0", 0), ("1", 9 * HOUR), ("0", 1), ("1", 9 * HOUR + 1)]]) == [[False] * 4]
    assert found([[("0", 0), ("1", 0), ("1", 9 * HOUR), ("0", 1), ("1", 1)]]) == [
        [False, False, True, False, False]
    ]


def test_without_both_neighbours_none_is_one() -> None:
    assert found([[("0", 9 * HOUR), ("0", 0), ("0", 9 * HOUR)]]) == [[False] * 3]
    assert found([[], [("0", None)], [("0", 5)]]) == [[], [False], [False]]


def test_the_one_before_may_be_of_the_batch_before() -> None:
    assert found([[("0", 0)], [("0", 9 * HOUR), ("0", 1)]]) == [[False], [True, False]]
    # a batch that ends with one, without a look ahead
    assert found([[("0", 0), ("0", 9 * HOUR)], [("0", 1)]]) == [[False, False], [False]]


def test_records_of_a_wrong_clock_in_a_row_are_all_of_them() -> None:
    far = [("0", 9 * HOUR + i) for i in range(3)]
    near = [("0", i) for i in range(4)]
    assert found([[*near, *far, *near, *far, *near]]) == [
        [False] * 4 + [True] * 3 + [False] * 4 + [True] * 3 + [False] * 4
    ]


def test_few_records_of_long_ago_make_none_of_the_others() -> None:
    ago, now = ("0", 0), [("0", 9 * HOUR + i) for i in range(50)]
    mixed = [now[0], *(one for at in range(0, 48, 3) for one in (*now[at + 1 : at + 4], ago))]
    assert found([mixed, mixed]) == [[False] * len(mixed)] * 2


def test_two_clocks_in_a_partition_leave_the_later_one_waiting_for_the_other() -> None:
    mixed = [("0", at + i) for i in range(40) for at in (0, 5 * HOUR)]
    (marked,) = found([mixed])
    assert not any(marked[::2]) and all(marked[3:-3:2])


def test_neighbours_may_be_of_the_batch_to_come() -> None:
    jumps, name = Jumps(HOUR), pa.array(["0", "0"])
    wall = np.array([0, 9 * HOUR], np.int64)
    coming = np.array([1, 2], np.int64)
    assert jumps.find(wall, name, {"0": coming}).tolist() == [False, True]
    assert jumps.find(wall, name, {"1": coming}).tolist() == [False, False]


def test_a_stream_that_goes_on_behind_a_pause_is_none() -> None:
    assert found([[("0", 0), ("0", 9 * HOUR), ("0", 9 * HOUR + 1), ("0", 9 * HOUR + 2)]]) == [
        [False] * 4
    ]


def test_the_largest_times_are_compared_without_overflow() -> None:
    assert found([[("0", 0), ("0", MOST), ("0", 0)]]) == [[False, True, False]]
    assert found([[("0", MOST), ("0", 0), ("0", MOST)]]) == [[False, False, False]]
    wall = np.array([NULL, 0, 100, 110, 111, MOST], np.int64)
    assert is_ahead(wall, 100, 10).tolist() == [False, False, False, False, True, True]


def test_the_plan_stays_with_batches_that_are_joined() -> None:
    batch = pa.record_batch({"value": pa.array([b"x"])})
    assert plan_of(batch) is None
    (joined,) = regrouped(iter([stamped(batch, 7), stamped(batch, 7)]))
    assert (joined.num_rows, plan_of(joined)) == (2, 7)
