"""Which records a job does not get: those that the live run refused as late or repeated."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.read.relations import Warehouse
from state.events import DUPLICATE, OUT_OF_RANGE, TOO_LATE

Array = np.ndarray
REFUSED = (TOO_LATE, DUPLICATE, OUT_OF_RANGE)
COLUMNS = ["source_partition", "source_offset", "job"]


class LeftOut:
    """The refused records of a span of event time, by the place they came from."""

    def __init__(
        self,
        warehouse: Warehouse,
        jobs: Sequence[str],
        begin_ms: int,
        end_ms: int,
    ) -> None:
        self._by_job: dict[str, dict[str, Array]] = {}
        delta = warehouse.open("quarantine") if jobs else None
        if delta is None:
            return
        wall = pc.field("ts_wall_ms")
        wanted = pc.field("reason_code").isin(REFUSED) & pc.field("job").isin(list(jobs))
        wanted &= wall.is_null() | ((wall >= begin_ms) & (wall < end_ms))
        rows = delta.to_pyarrow_dataset().to_table(columns=COLUMNS, filter=wanted)
        for job in pc.unique(rows.column("job")).to_pylist():
            mine = rows.filter(pc.equal(rows.column("job"), job))
            self._by_job[job] = _offsets(mine)

    def rows(self, batch: pa.RecordBatch) -> dict[str, Array]:
        """By job, which rows of `events` it does not get (bool); only jobs that miss some."""
        if not self._by_job:
            return {}
        partition = batch.column("source_partition").dictionary_encode()
        offsets = batch.column("source_offset").to_numpy(zero_copy_only=False)
        codes = partition.indices.to_numpy(zero_copy_only=False)
        names = partition.dictionary.to_pylist()
        found: dict[str, Array] = {}
        for job, refused in self._by_job.items():
            missing = np.zeros(batch.num_rows, bool)
            for code, name in enumerate(names):
                if name in refused:
                    mine = np.flatnonzero(codes == code)
                    missing[mine] = np.isin(offsets[mine], refused[name])
            if missing.any():
                found[job] = missing
        return found


def _offsets(rows: pa.Table) -> dict[str, Array]:
    """Offsets by partition."""
    partition = rows.column("source_partition").combine_chunks().dictionary_encode()
    codes = partition.indices.to_numpy(zero_copy_only=False)
    offsets = rows.column("source_offset").to_numpy()
    return {
        name: np.unique(offsets[codes == code])
        for code, name in enumerate(partition.dictionary.to_pylist())
    }
