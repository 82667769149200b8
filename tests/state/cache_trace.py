"""Small traces of entry caches, shipped to the core as the router ships them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from state.entry_cache.operator import EntryCache
from state.entry_cache.shard import COLUMNS
from state.events import KIND_INDEX, SCHEMA
from state.records import INGEST_KEY
from tests.reference.entry_cache import READ

PARAMS: dict[str, Any] = {
    "allowed_lateness_ms": 500, "idle_advance_ms": 10_000, "idle_state_ms": 3_600_000,
    "stats_window_ms": 60_000,
}
Row = dict[str, Any]


def blob(records: Sequence[Row], home: int = 1) -> bytes:
    """Records as one blob of `entry_cache`."""
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        values = [r.get(name) for r in records]
        if name == "event_type":
            columns[name] = pa.array([KIND_INDEX[v] for v in values], pa.int8())
        elif pa.types.is_string(SCHEMA.field(name).type):
            columns[name] = pa.array(values, pa.string()).dictionary_encode()
        else:
            columns[name] = pa.array(values, SCHEMA.field(name).type)
    columns["source_partition"] = pa.array(
        [str(r.get("source_partition", "0")) for r in records]
    ).dictionary_encode()
    columns["source_offset"] = pa.array([int(r["source_offset"]) for r in records], pa.int64())
    columns["home"] = pa.array([home] * len(records), pa.int8())
    batch = pa.record_batch(columns).replace_schema_metadata({INGEST_KEY: b"1767621600000"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def numbered(records: Iterable[Row]) -> list[Row]:
    """The records that the job reads, with an identity each."""
    return [{**r, "source_offset": i} for i, r in enumerate(records) if r["event_type"] in READ]


def play(
    batches: Iterable[Sequence[Row]], params: dict[str, Any] | None = None,
    policies: Sequence[str] = (), until_ms: int | None = None, states: list[bytes] | None = None,
) -> dict[str, list[Row]]:
    """Rows by table of a core that is called once per batch, as a query calls it; at the end the
    stream's clock is moved to `until_ms`, if given."""
    job = EntryCache({**PARAMS, **(params or {})}, policies)
    state: bytes | None = None
    stream, latest = 0, 0
    rows: dict[str, list[Row]] = {}

    def call(blobs: list[bytes]) -> None:
        nonlocal state
        step = job.step(state, blobs, stream)
        state = step.state
        if states is not None:
            states.append(state)
        for name, table in step.tables.items():
            rows.setdefault(name, []).extend(table.to_pylist())

    for batch in batches:
        call([blob(batch)] if batch else [])
        latest = max([latest, *[r["ts_wall_ms"] for r in batch if r["ts_wall_ms"] is not None]])
        stream = max(latest - job._idle_advance_ms, 0)
    call([])
    if until_ms is not None:
        stream = until_ms
        call([])
    return rows
