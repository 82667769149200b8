"""Small traces of backlogs, shipped to the core as the router ships them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.reference.backlog import topic_of
from tests.support import records as by_hand
from tests.unit.state.shipping import Row, Shipper, params_of

PARAMS = params_of("backlog")

T0 = 1_767_621_600_000
TOPIC = "persistent://t/a/x"
EVICTION = "consumer_backlog_eviction"


def record(kind: str, at_ms: int, **columns: Any) -> Row:
    """A record of the one topic, `at_ms` after the start."""
    at = T0 + at_ms
    return by_hand.record(kind, at, at * 1_000_000, **{"topic": TOPIC, **columns})


def ledger(
    at_ms: int, number: int, entries: int, size: int, close: int | None = None, **columns: Any
) -> Row:
    return record(
        "ledger_state",
        at_ms,
        ledger_id=number,
        ledger_entries=entries,
        ledger_bytes=size,
        ledger_close_ms=close,
        **columns,
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
    size: float | None = None,
    seconds: float | None = None,
    retention: str = "producer_request_hold",
) -> Row:
    """Limits of a topic or namespace."""
    by_size = {} if size is None else quota_of("destination_storage", size, retention)
    by_age = {} if seconds is None else quota_of("message_age", seconds, retention)
    return {"backlog_quota": by_size | by_age}


def quota_of(kind: str, limit: float, retention: str = "producer_request_hold") -> Row:
    """One limit of `backlog_quota`."""
    key = "limitSize" if kind == "destination_storage" else "limitTime"
    return {kind: {key: limit, "policy": retention}}


def _full_names(records: Sequence[Row]) -> dict[str, pa.Array]:
    """A topic goes by its full name."""
    full = [None if r.get("topic") is None else topic_of(r) for r in records]
    return {"topic": pa.array(full, pa.string()).dictionary_encode()}


_SHIPPER = Shipper("backlog", PARAMS, _full_names)
blob, numbered, play = _SHIPPER.blob, _SHIPPER.numbered, _SHIPPER.play
