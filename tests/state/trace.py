"""Small traces for tests: records as dictionaries, shipped to a core as the router ships them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from state.events import KIND_INDEX, SCHEMA
from state.rate_limits.operator import RateLimits
from state.rate_limits.shard import COLUMNS
from state.records import INGEST_KEY

PARAMS: dict[str, Any] = {
    "allowed_lateness_ms": 500, "idle_advance_ms": 10_000, "idle_state_ms": 3_600_000,
    "stats_window_ms": 60_000, "extra_outputs": ("publish_verdicts",),
}
START_MS = 1_767_621_600_000
START_NS = 10_368_000_000_000_001
"""120 days of uptime and one nanosecond: above 2**53."""


def record(kind: str, at_ns: int, seq: int | None = None, **columns: Any) -> dict[str, Any]:
    """A record of broker b1 at `at_ns` after the start of the trace."""
    return {
        "event_type": kind, "source_feed": "contract", "cluster": "c", "broker": "b1",
        "seq": seq, "ts_mono_ns": START_NS + at_ns,
        "ts_wall_ms": START_MS + at_ns // 1_000_000, **columns,
    }


def publish(
    at_ns: int, topic: str = "persistent://t/ns/a", cnx: str = "c1", producer: int = 1,
    messages: int = 1, size: int = 1, **columns: Any,
) -> dict[str, Any]:
    """A publish request."""
    return record(
        "publish", at_ns, cnx_id=cnx, topic=topic, producer_id=producer, num_messages=messages,
        entry_bytes=size, producer_name=f"p{producer}", **columns,
    )


def blob(records: Sequence[dict[str, Any]], home: int = 1) -> bytes:
    """Records as one blob of `rate_limits`."""
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
    columns["source_offset"] = pa.array(
        [int(r.get("source_offset", i)) for i, r in enumerate(records)], pa.int64()
    )
    columns["home"] = pa.array([home] * len(records), pa.int8())
    batch = pa.record_batch(columns)
    batch = batch.replace_schema_metadata({INGEST_KEY: b"1767621600000"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def play(
    batches: Iterable[Sequence[dict[str, Any]]], params: dict[str, Any] | None = None,
    policies: Sequence[str] = (), drain_ms: int | None = None, states: list[bytes] | None = None,
) -> dict[str, list[dict[str, Any]]]:
    """Rows by table of a core that is called once per batch, as a query calls it.

    At the end the stream's clock is moved to `drain_ms` after the trace's start, if given.
    `states` collects the state after every call.
    """
    job = RateLimits({**PARAMS, **(params or {})}, policies)
    state, stream, latest = None, 0, 0
    rows: dict[str, list[dict[str, Any]]] = {}

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
    if drain_ms is not None:
        stream = START_MS + drain_ms
        call([])
    return rows
