"""Small traces of chunked messages, shipped to the core as the router ships them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from state.chunks.operator import PARTS, RELEASES, Chunks
from state.chunks.shard import COLUMNS, NAME
from state.events import KIND_INDEX, KINDS, SCHEMA
from state.records import INGEST_KEY

PARAMS: dict[str, Any] = {
    "allowed_lateness_ms": 500, "idle_advance_ms": 10_000, "idle_state_ms": 3_600_000,
    "stats_window_ms": 60_000,
}
Row = dict[str, Any]


def blob(records: Sequence[Row], payloads: bool = True) -> bytes:
    """Records as one blob of `chunks`."""
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        values: list[Any]
        if name == "event_type":
            columns[name] = pa.array([KIND_INDEX[r[name]] for r in records], pa.int8())
            continue
        if name.startswith("payload_"):
            columns[name] = _about_payload(name, records)
            continue
        values = [r.get(name) for r in records]
        if name == "marker_ids":
            values = [None if v is None else ",".join(v) for v in values]
        if name == "marker_ids" or pa.types.is_string(SCHEMA.field(name).type):
            columns[name] = pa.array(values, pa.string()).dictionary_encode()
        else:
            columns[name] = pa.array(values, SCHEMA.field(name).type)
    n = len(records)
    columns["source_partition"] = pa.array(
        [str(r.get("source_partition", "0")) for r in records]
    ).dictionary_encode()
    columns["source_offset"] = pa.array([int(r["source_offset"]) for r in records], pa.int64())
    columns["home"] = pa.array([1] * n, pa.int8())
    if payloads:
        columns["payload"] = pa.array([r.get("payload") for r in records], pa.binary())
    batch = pa.record_batch(columns).replace_schema_metadata({INGEST_KEY: b"1767621600000"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def _about_payload(name: str, records: Sequence[Row]) -> pa.Array:
    payloads = [r.get("payload") for r in records]
    if name == "payload_bytes":
        return pa.array([None if p is None else len(p) for p in payloads], pa.int64())
    if name == "payload_crc32":
        return pa.array([None if p is None else zlib.crc32(p) for p in payloads], pa.int64())
    if name == "payload_file":
        return pa.nulls(len(records), pa.string()).dictionary_encode()
    return pa.nulls(len(records), pa.int64())


READ = {kind.name for kind in KINDS if NAME in kind.jobs}


def numbered(records: Iterable[Row]) -> list[Row]:
    """The records that the job reads, with an identity each."""
    return [{**r, "source_offset": i} for i, r in enumerate(records) if r["event_type"] in READ]


def play(
    batches: Iterable[Sequence[Row]], params: dict[str, Any] | None = None,
    until_ms: int | None = None, states: list[bytes] | None = None, **more: Any,
) -> dict[str, list[Row]]:
    """Rows by table of a core that is called once per batch, as a query calls it; at the end the
    stream's clock is moved to `until_ms`, if given."""
    job = Chunks({**PARAMS, **(params or {})}, **more)
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
            rows.setdefault(name, []).extend(_plain(table))

    for batch in batches:
        call([blob(batch)] if batch else [])
        latest = max([latest, *[r["ts_wall_ms"] for r in batch]])
        stream = max(latest - job._idle_advance_ms, 0)
    call([])
    if until_ms is not None:
        stream = until_ms
        call([])
    return rows


def _plain(table: pa.Table) -> list[Row]:
    rows = table.to_pylist()
    for row in rows:
        parts = row.pop(PARTS[2], None)
        for name in PARTS[:2]:
            row.pop(name, None)
        if PARTS[2] in table.column_names:
            row["payload"] = None if parts is None else b"".join(parts)
    return rows


__all__ = ["PARAMS", "RELEASES", "blob", "numbered", "play"]
