"""Quotas of users as manifests of Strimzi: `spec.quotas` of a `KafkaUser`."""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from app.show.policy.export.exported import (
    MOST_OF_INT,
    ClientQuota,
    Document,
    Exported,
    NotExported,
    kafka_entities,
)
from app.terminal.program import PROGRAM
from state.engine.globs import DEFAULT_USER

KEYS = {
    "producer_byte_rate": "producerByteRate",
    "consumer_byte_rate": "consumerByteRate",
    "request_percentage": "requestPercentage",
    "controller_mutation_rate": "controllerMutationRate",
}
FRACTIONS = ("controller_mutation_rate",)
"""The other limits are integers of 32 bits in a `KafkaUser`."""
HEAD = f"""\
# Written by {PROGRAM} policy export. Apply with kubectl apply --server-side, which leaves the other
# sections of a user as they are.
"""
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
TLS = "CN="
"""What the name of a user with a certificate begins with in Kafka, and not in Kubernetes."""


def strimzi(documents: Sequence[Document]) -> Exported:
    """A manifest for each user."""
    quotas, left_out = kafka_entities(documents)
    manifests = []
    names: set[str] = set()
    for quota in quotas:
        name = str(quota.user).removeprefix(TLS)
        why = _why_no_user(quota)
        if why is None and name in names:
            why = f"the KafkaUser {name} is another user, with or without a certificate"
        names.add(name)
        kept = {}
        for key, limit in quota.limits.items():
            reason = why or _why_no_value(key, limit)
            if reason is None:
                kept[KEYS[key]] = limit
            else:
                left_out.append(NotExported(quota.about, key, reason))
        if kept:
            manifests.append(
                {
                    "apiVersion": "kafka.strimzi.io/v1",
                    "kind": "KafkaUser",
                    "metadata": {"name": name},
                    "spec": {"quotas": kept},
                }
            )
    if not manifests:
        return Exported("", left_out)
    return Exported(HEAD + yaml.safe_dump_all(manifests, sort_keys=False), left_out)


def _why_no_user(quota: ClientQuota) -> str | None:
    """Why no KafkaUser is an entity, or None."""
    if quota.client_id is not None:
        return "a KafkaUser has no quotas of client ids"
    if quota.user == DEFAULT_USER:
        return "a KafkaUser is no default; spec.kafka.quotas of the Kafka resource has one"
    name = str(quota.user).removeprefix(TLS)
    if len(name) > 253 or not _NAME.fullmatch(name):
        return "Kubernetes allows no such name"
    return None


def _why_no_value(key: str, limit: float) -> str | None:
    if key in FRACTIONS:
        return None
    if not isinstance(limit, int):
        return f"{KEYS[key]} is a whole number, not {limit}"
    return f"{KEYS[key]} is at most {MOST_OF_INT}" if limit > MOST_OF_INT else None
