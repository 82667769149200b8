"""Small traces of producer ids, shipped to the core as the router ships them."""

from __future__ import annotations

import json
from typing import Any

from tests.support.records import record
from tests.unit.state.shipping import Row, Shipper, params_of

PARAMS = params_of("producer_ids")
T0 = 1_767_621_600_000


def other(kind: str, at_ms: int, **columns: Any) -> Row:
    return record(kind, at_ms, at_ms * 1_000_000, **columns)


def batch(pid: int, at_ms: int, user: str = "u1", **columns: Any) -> Row:
    """A batch of a user of broker b1."""
    of = {"principal": f"User:{user}", "client_id": "c1", "topic": "t", "partition": 0}
    return other("produce_batch", at_ms, **{**of, "producer_id": pid, **columns})


def quota(name: str, bound: float | None) -> str:
    limits = {} if bound is None else {"producer_ids_rate": bound}
    return json.dumps({"scope": "user", "name": name, "limits": limits})


def policy(name: str, bound: float | None, at_ms: int, **columns: Any) -> Row:
    return other("policy", at_ms, policy_json=quota(name, bound), **columns)


_SHIPPER = Shipper("producer_ids", PARAMS)
blob, numbered, play = _SHIPPER.blob, _SHIPPER.numbered, _SHIPPER.play
