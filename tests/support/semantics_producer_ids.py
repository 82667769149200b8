"""What tests share of semantics producer ids."""

from __future__ import annotations

import json
from typing import Any

from tests.support import records
from tests.unit.state.producer_id_trace import numbered, play

START_MS = 1_767_621_600_000
SAMPLES = "producer.id.quota.window.num"
Rows = dict[str, list[dict[str, Any]]]


def record(kind: str, second: float, **columns: Any) -> dict[str, Any]:
    """A record of the one broker of the example."""
    return records.record(kind, START_MS + int(second * 1000), **columns)


def batch(second: float, pid: int) -> dict[str, Any]:
    """A batch of alice with a producer id."""
    return record(
        "produce_batch",
        second,
        principal="User:alice",
        client_id="app",
        topic="orders",
        partition=0,
        producer_id=pid,
    )


def quota(bound: float) -> str:
    return json.dumps({"scope": "user", "name": "alice", "limits": {"producer_ids_rate": bound}})


FEED = numbered(
    [
        *(batch(0, pid) for pid in range(1, 7)),
        batch(1200, 1),
        batch(1200, 6),
        batch(1800, 6),
        batch(1801, 6),
        batch(2100, 7),
        record("policy", 3600, policy_json=quota(4)),
        batch(5399, 1),
        batch(5400, 1),
        record("broker_started", 5500),
        batch(5501, 1),
    ]
)


def example(
    enforcement: str = "strict", membership: str = "exact", bound: float = 2, **params: Any
) -> Rows:
    params |= {SAMPLES: 2, "enforcement": enforcement, "membership": membership}
    return play([FEED], params, [quota(bound)], until_ms=START_MS + 5_560_001)
