"""What tests share of entry cache input."""

from __future__ import annotations

import json
from typing import Any

from tests.reference.entry_cache import judge
from tests.support import records as by_hand
from tests.unit.state.cache_trace import PARAMS, Row, play
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.trace import START_MS, START_NS

MS = 1_000_000
TOPIC = "persistent://t/ns/a"
READS: dict[str, Any] = {
    "extra_outputs": ("cache_evictions", "cache_reads"),
    "release_event": "entry_released",
    "storage_reads": "all",
}


def record(kind: str, at_ms: float, **columns: Any) -> Row:
    topic = {} if kind in ("broker_started", "policy") else {"topic": TOPIC}
    at = START_MS + int(at_ms), START_NS + int(at_ms * MS)
    return by_hand.record(kind, *at, **{"source_offset": 0, **topic, **columns})


def cursor(at_ms: float, subscription: str = "s", read_pos: str | None = "1:0", **more: Any) -> Row:
    return record("cursor_state", at_ms, subscription=subscription, read_pos=read_pos, **more)


def added(at_ms: float, entry: int, size: int = 100, **more: Any) -> Row:
    return record("entry_added", at_ms, ledger_id=1, entry_id=entry, entry_bytes=size, **more)


def read(at_ms: float, entry: int, subscription: str = "s", **more: Any) -> Row:
    return record(
        "entry_read",
        at_ms,
        ledger_id=1,
        entry_id=entry,
        entry_bytes=100,
        subscription=subscription,
        **more,
    )


def of_entry(kind: str, at_ms: float, entry: int | None, **more: Any) -> Row:
    return record(kind, at_ms, ledger_id=1, entry_id=entry, **more)


def limits(at_ms: float, **values: Any) -> Row:
    document = {"scope": "broker", "name": "b1", "limits": values}
    return record("policy", at_ms, policy_json=json.dumps(document))


def same(records: list[Row], params: dict[str, Any], end_ms: int = 200_000) -> dict[str, list[Row]]:
    """Rows of the core, once they are those of the reference."""
    until = START_MS + end_ms
    got = play([records], params, until_ms=until)
    JOBS["entry_cache"].assert_same(got, judge(records, {**PARAMS, **params}, until_ms=until))
    return got
