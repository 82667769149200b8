"""The place in time of records without a wall time: that of their broker's record before them on
the monotonic clock; where a broker has none, that of the record before in their partition.

Jobs on the monotonic clock need no wall time; a replay that goes slice by slice does.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from app.read.relations import ANY_ORDER, Warehouse, connect

Array = np.ndarray
Place = tuple[str, int]
SQL = """
WITH arrived AS (
  SELECT cluster, broker, source_partition, source_offset, ts_wall_ms, ts_mono_ns,
    count(*) FILTER (WHERE event_type = 'broker_started') OVER (
      PARTITION BY cluster, broker ORDER BY source_partition, source_offset
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS run,
    coalesce(
      last_value(ts_wall_ms IGNORE NULLS) OVER (
        PARTITION BY source_partition ORDER BY source_offset
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW),
      first_value(ts_wall_ms IGNORE NULLS) OVER (
        PARTITION BY source_partition ORDER BY source_offset
        ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING), 0) AS arrived_ms
  FROM events
), placed AS (
  SELECT *,
    last_value(ts_wall_ms IGNORE NULLS) OVER (
      PARTITION BY cluster, broker, run ORDER BY ts_mono_ns
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS before_ms,
    first_value(ts_wall_ms IGNORE NULLS) OVER (
      PARTITION BY cluster, broker, run ORDER BY ts_mono_ns
      ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS after_ms,
    max(arrived_ms) OVER (
      PARTITION BY cluster, broker, run ORDER BY ts_mono_ns
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS latest_ms
  FROM arrived
)
SELECT source_partition, source_offset,
  CASE WHEN ts_mono_ns IS NULL THEN arrived_ms
    ELSE coalesce(before_ms, after_ms, latest_ms) END AS at_ms
FROM placed WHERE ts_wall_ms IS NULL
"""


class Untimed:
    """The records of an archive without a wall time, each with a time (ms since the epoch)."""

    def __init__(self, warehouse: Warehouse) -> None:
        connection = connect(warehouse, SQL, config=ANY_ORDER)
        found = connection.execute(SQL).fetchall()
        self._at: dict[Place, int] = {(part, offset): at for part, offset, at in found}

    def filled(self, batch: pa.RecordBatch, wall: pa.Array) -> Array:
        """Wall times of rows of `events`, those that are null filled."""
        times: Array = wall.fill_null(0).to_numpy(zero_copy_only=False).copy()
        null = np.flatnonzero(wall.is_null().to_numpy(zero_copy_only=False))
        partitions, offsets = (
            batch.column(name).take(pa.array(null)).to_pylist()
            for name in ("source_partition", "source_offset")
        )
        times[null] = [self._at.get(place, 0) for place in zip(partitions, offsets, strict=True)]
        return times
