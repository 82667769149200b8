"""Small traces of producer ids, shipped to the core as the router ships them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from state.producer_ids.operator import ProducerIds
from state.producer_ids.shard import COLUMNS, NAME
from tests.state.shipping import Row, called, params_of, read_by, shipped

PARAMS = params_of("producer_ids")
T0 = 1_767_621_600_000


def batch(pid: int, at_ms: int, user: str = "u1", **columns: Any) -> Row:
    """A batch of a user of broker b1."""
    return {
        "event_type": "produce_batch", "source_feed": "contract", "cluster": "c", "broker": "b1",
        "seq": None, "ts_mono_ns": at_ms * 1_000_000, "ts_wall_ms": at_ms,
        "principal": f"User:{user}", "client_id": "c1", "topic": "t", "partition": 0,
        "producer_id": pid, **columns,
    }


def other(kind: str, at_ms: int, **columns: Any) -> Row:
    return {
        "event_type": kind, "source_feed": "contract", "cluster": "c", "broker": "b1",
        "seq": None, "ts_mono_ns": at_ms * 1_000_000, "ts_wall_ms": at_ms, **columns,
    }


def quota(name: str, bound: float | None) -> str:
    limits = {} if bound is None else {"producer_ids_rate": bound}
    return json.dumps({"scope": "user", "name": name, "limits": limits})


def policy(name: str, bound: float | None, at_ms: int, **columns: Any) -> Row:
    return other("policy", at_ms, policy_json=quota(name, bound), **columns)


def blob(records: Sequence[Row], home: int = 1) -> bytes:
    """Records as one blob of `producer_ids`."""
    return shipped(records, COLUMNS, home)


def numbered(records: Iterable[Row]) -> list[Row]:
    """The records that the job reads, with an identity each."""
    return read_by(NAME, records)


def play(
    batches: Iterable[Sequence[Row]], params: dict[str, Any] | None = None,
    policies: Sequence[str] = (), until_ms: int | None = None, states: list[bytes] | None = None,
) -> dict[str, list[Row]]:
    """Rows by table of the core; see `shipping.called`."""
    chosen = {**PARAMS, **(params or {})}
    return called(
        ProducerIds(chosen, policies), batches, blob, chosen["idle_advance_ms"], until_ms, states
    )
