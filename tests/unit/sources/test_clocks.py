"""Which records move no clock: by the plan of their batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from app.sources.batches import regrouped
from app.sources.clocks import is_ahead, plan_of, stamped
from state.events import NULL

HOUR = 3_600_000


def test_the_plan_stays_with_batches_that_are_joined() -> None:
    batch = pa.record_batch({"value": pa.array([b"x"])})
    assert plan_of(batch) is None
    (joined,) = regrouped(iter([stamped(batch, 7), stamped(batch, 7)]))
    assert (joined.num_rows, plan_of(joined)) == (2, 7)


def test_only_what_is_further_ahead_than_clocks_may_differ_moves_no_clock() -> None:
    walls = np.array([NULL, 0, HOUR, HOUR + 9_999, HOUR + 10_000, HOUR + 10_001, 2**63 - 1])
    assert is_ahead(walls, HOUR, 10_000).tolist() == [False] * 5 + [True] * 2
    plans = np.array([HOUR - 1] * len(walls))
    assert is_ahead(walls, plans, 10_000).tolist() == [False] * 4 + [True] * 3
