"""What the router ships to a core: from columns that are made here, or from lines of JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.engine.routing import Route, packer
from app.sources.clocks import ClockLimits
from state.events import KIND_INDEX, SCHEMA
from tests.support.blobs_of_columns import of_columns

IDLE_ADVANCE_MS = 10_000
"""How far a silent broker's clock stays behind the latest record, as in `run` and `replay`."""


def shipped(names: Sequence[str], kinds: pa.Array, columns: Mapping[str, pa.Array]) -> bytes:
    """Records as one blob of a job that reads `names`; columns that are not given are null."""
    n = len(kinds)
    ready: dict[str, pa.Array] = {}
    for name in names:
        if name == "event_type":
            ready[name] = pc.index_in(kinds, pa.array(list(KIND_INDEX)))
        else:
            ready[name] = columns.get(name, pa.nulls(n, SCHEMA.field(name).type))
    ready["source_partition"] = pa.repeat(pa.scalar("0"), n)
    ready["source_offset"] = pa.array(np.arange(n))
    seq = columns.get("seq")
    ready["has_seq"] = pa.array(
        np.zeros(n, np.int64) if seq is None else seq.is_valid().to_numpy(False).astype(np.int64)
    )
    ready["home"] = pa.array(np.ones(n, np.int64))
    ready["ingest_ms"] = pa.array(np.ones(n, np.int64))
    return of_columns(ready)


def parsed(
    lines: Sequence[bytes], job: str, route: Route, shards: int
) -> tuple[dict[int, list[bytes]], int]:
    """The records of a job by shard, parsed and validated as a task does it; the stream time (ms)
    after the last of them."""
    pack = packer({job: route}, shards, ClockLimits())
    table = pa.table(
        {
            "value": pa.array(lines, pa.binary()),
            "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
            "source_offset": pa.array(np.arange(len(lines))),
        }
    )
    found: dict[int, list[bytes]] = {}
    latest_us = 0
    for packed in pack(iter(table.to_batches(max_chunksize=50_000))):
        columns = (packed.column(c).to_pylist() for c in ("job", "shard", "blob"))
        latest_us = max(latest_us, pc.max(packed.column("ts").cast(pa.int64())).as_py() or 0)
        for name, shard, blob in zip(*columns, strict=True):
            if name == job:
                found.setdefault(shard, []).append(blob)
    return found, latest_us // 1000 - IDLE_ADVANCE_MS
