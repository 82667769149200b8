"""A small archive of clients of Kafka, and limits under which its decisions are known by hand."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.support.archive_rows import event


def clients_archive() -> Iterator[dict[str, Any]]:
    """A burst of a user, a client of two users, mutations, measured rates, and limits as a poll brings
    them, which the files replace."""
    none = {"subscription": None, "topic": None}
    for seq, (user, limits) in enumerate(
        (("a", {"producer_byte_rate": 1}), ("<default>", {"producer_byte_rate": 2}))
    ):
        about = {"scope": "user", "name": user, "limits": limits}
        policy = {"event_type": "policy", "policy_json": json.dumps(about), **none, "broker": "*"}
        yield event(0, seq, **policy)
    pair = {"scope": "user", "name": "a", "client_id": "app", "limits": {"producer_byte_rate": 3}}
    yield event(0, 2, event_type="policy", policy_json=json.dumps(pair), **none, broker="*")

    def request(at_ms: int, seq: int, user: str, client: str, **columns: Any) -> dict[str, Any]:
        who = {"principal": f"User:{user}", "client_id": client}
        return event(at_ms, seq, event_type="client_request", **none, **who, **columns)

    for seq, (at_ms, size) in enumerate(((0, 1000), (500, 50), (600, 100)), 10):
        yield request(at_ms, seq, "a", "app", api="PRODUCE", charged_bytes=size)
    for seq, user in enumerate(("b", "c"), 20):
        yield request(1000, seq, user, "web", api="FETCH", charged_bytes=600)
    for seq in (30, 31):
        yield request(2000 + seq, seq, "d", "ops", api="CREATE_TOPICS", mutations=30)
    rates = ((50_000, None), (150_000, 900_000), (250_000, 900_000))
    for seq, (value, bound) in enumerate(rates, 40):
        about = {"principal": "m", "client_id": "", "quota_type": "produce"}
        yield event(
            3000,
            seq,
            event_type="client_rate",
            **none,
            **about,
            value_milli=value,
            bound_milli=bound,
        )
    yield request(90_000, 50, "z", "z", api="METADATA")


def client_limits(produce: int, fetch: int, mutations: float) -> list[dict[str, Any]]:
    default = {"scope": "user", "name": "<default>", "limits": {"producer_byte_rate": produce}}
    return [
        default,
        {"scope": "user", "name": "a", "limits": {"producer_byte_rate": produce}},
        {"scope": "user", "name": "a", "client_id": "app", "limits": {}},
        {"scope": "client", "name": "web", "limits": {"consumer_byte_rate": fetch}},
        {"scope": "user", "name": "d", "limits": {"controller_mutation_rate": mutations}},
    ]
