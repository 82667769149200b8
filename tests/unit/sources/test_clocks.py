"""Which records move no clock: by the plan of their batch."""

from __future__ import annotations

import pyarrow as pa

from app.sources.batches import regrouped
from app.sources.clocks import plan_of, stamped

HOUR = 3_600_000
MOST = 2**63 - 1


def test_the_plan_stays_with_batches_that_are_joined() -> None:
    batch = pa.record_batch({"value": pa.array([b"x"])})
    assert plan_of(batch) is None
    (joined,) = regrouped(iter([stamped(batch, 7), stamped(batch, 7)]))
    assert (joined.num_rows, plan_of(joined)) == (2, 7)
