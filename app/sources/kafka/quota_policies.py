"""Kafka's client quotas, as DescribeClientQuotas answers, as policy documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.sources.kafka.kafka_client import Quota
from app.sources.poll_records import policy_record
from state.engine.globs import name_text
from state.policies import QUOTA_KINDS

FEED = "kafka_quotas"
LIMITS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
USER, CLIENT_ID = "user", "client-id"
LARGEST = 2**63 - 1
OF_4_2 = 28
"""The first level of the feature metadata.version in Kafka 4.2."""
Entity = tuple[str | None, str | None]
"""User and client id as documents have them; None where an entity has none."""
Limits = dict[str, float]


def limits_by_entity(quotas: Iterable[Quota]) -> dict[Entity, Limits]:
    """The limits of clients; those of addresses (`ip`) are none."""
    found: dict[Entity, Limits] = {}
    for names, values in quotas:
        user, client_id = (name_text(names[k]) if k in names else None for k in (USER, CLIENT_ID))
        entity = user, client_id
        limits = {key: _number(values[key]) for key in LIMITS if key in values}
        if entity != (None, None) and limits:
            found[entity] = limits
    return found


def policy_documents(
    before: Mapping[Entity, Limits], now: Mapping[Entity, Limits]
) -> list[dict[str, Any]]:
    """Documents of the entities whose limits differ between two answers: removed ones first, without
    limits, then those that hold."""
    gone = [_document(entity, {}) for entity in _sorted(before.keys() - now.keys())]
    changed = [each for each, limits in now.items() if before.get(each) != limits]
    return gone + [_document(entity, now[entity]) for entity in _sorted(changed)]


def quota_kinds(features: Mapping[str, int]) -> str:
    """What a broker with these features does when the last limit of a kind goes (KAFKA-19282)."""
    return "in_force" if features.get("metadata.version", 0) >= OF_4_2 else "remembered"


def policy_records(
    documents: Iterable[dict[str, Any]], now_ms: int, cluster: str, kinds: str | None
) -> list[Any]:
    """The documents as records of the contract; they hold on every broker. `kinds` is what brokers do
    when the last limit of a kind goes, as far as it is known."""
    said = {} if kinds is None else {QUOTA_KINDS: kinds}
    return [
        policy_record(FEED, cluster, now_ms, json.dumps(document | said)) for document in documents
    ]


def _number(value: float | str) -> float:
    """A whole number as such. A limit under which nothing is throttled is the largest number of a
    policy: NaN, which Kafka takes and JSON writes as text; -1 and 0, which brokers before 3.5 took:
    by them a throttle time is negative, or divided by zero."""
    number = float(value)
    if not 0 < number < LARGEST:
        return LARGEST
    return int(number) if number.is_integer() else number


def _sorted(entities: Iterable[Entity]) -> Sequence[Entity]:
    return sorted(entities, key=lambda entity: tuple(name or "" for name in entity))


def _document(entity: Entity, limits: Limits) -> dict[str, Any]:
    user, client_id = entity
    if user is None:
        return {"scope": "client", "name": client_id, "limits": limits}
    by_client = {} if client_id is None else {"client_id": client_id}
    return {"scope": "user", "name": user, **by_client, "limits": limits}
