"""Small traces of backlogs, shipped to the core as the router ships them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from state.backlog.operator import Backlog
from state.backlog.sequence import COLUMNS
from state.backlog.shard import NAME
from state.events import KIND_INDEX, KINDS, SCHEMA
from state.records import INGEST_KEY
from tests.reference.backlog import topic_of

PARAMS: dict[str, Any] = {
    "allowed_lateness_ms": 500, "idle_advance_ms": 10_000, "idle_state_ms": 3_600_000,
    "stats_window_ms": 60_000,
}
Row = dict[str, Any]
T0 = 1_767_621_600_000
TOPIC = "persistent://t/a/x"
EVICTION = "consumer_backlog_eviction"
READ = {kind.name for kind in KINDS if NAME in kind.jobs}


def record(kind: str, at_ms: int, **columns: Any) -> Row:
    """A record of the one topic, `at_ms` after the start."""
    return {
        "event_type": kind, "source_feed": "contract", "cluster": "c", "broker": "b1",
        "seq": None, "ts_mono_ns": (T0 + at_ms) * 1_000_000, "ts_wall_ms": T0 + at_ms,
        "topic": TOPIC, **columns,
    }


def ledger(
    at_ms: int, number: int, entries: int, size: int, close: int | None = None, **columns: Any
) -> Row:
    return record(
        "ledger_state", at_ms, ledger_id=number, ledger_entries=entries, ledger_bytes=size,
        ledger_close_ms=close, **columns,
    )


def cursor(at_ms: int, name: str, mark_delete: str, **columns: Any) -> Row:
    return record("cursor_state", at_ms, subscription=name, mark_delete=mark_delete, **columns)


def entry(at_ms: int, ledger_id: int, entry_id: int, **columns: Any) -> Row:
    columns = {"entry_bytes": 100, "publish_time_ms": T0 + at_ms, **columns}
    return record("entry_added", at_ms, ledger_id=ledger_id, entry_id=entry_id, **columns)


def ack(at_ms: int, name: str, ledger_id: int, entry_id: int, **columns: Any) -> Row:
    return record(
        "ack", at_ms, subscription=name, ledger_id=ledger_id, entry_id=entry_id, **columns
    )


def created(at_ms: int, number: int, **columns: Any) -> Row:
    return record("producer_created", at_ms, cnx_id="c", producer_id=number, **columns)


def document(scope: str, name: str, **limits: Any) -> str:
    return json.dumps({"scope": scope, "name": name, "limits": limits})


def policy(at_ms: int, scope: str, name: str, **limits: Any) -> Row:
    return record("policy", at_ms, topic=None, policy_json=document(scope, name, **limits))


def quota(
    size: float | None = None, seconds: float | None = None,
    retention: str = "producer_request_hold",
) -> Row:
    """Limits of a topic or namespace."""
    found: Row = {}
    if size is not None:
        found["destination_storage"] = {"limitSize": size, "policy": retention}
    if seconds is not None:
        found["message_age"] = {"limitTime": seconds, "policy": retention}
    return {"backlog_quota": found}


def blob(records: Sequence[Row], home: int = 1) -> bytes:
    """Records as one blob of `backlog`; a topic goes by its full name."""
    columns: dict[str, pa.Array] = {}
    for name in COLUMNS:
        values = [r.get(name) for r in records]
        if name == "event_type":
            columns[name] = pa.array([KIND_INDEX[v] for v in values], pa.int8())
        elif name == "topic":
            full = [None if r.get("topic") is None else topic_of(r) for r in records]
            columns[name] = pa.array(full, pa.string()).dictionary_encode()
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
    job = Backlog({**PARAMS, **(params or {})}, policies)
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
        latest = max([latest, *[r["ts_wall_ms"] for r in batch]])
        stream = max(latest - job._idle_advance_ms, 0)
    call([])
    if until_ms is not None:
        stream = until_ms
        call([])
    return rows
