"""Limits in the polled documents of namespaces, topics, resource groups and brokers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from app.sources.poll_records import policy_key
from app.sources.pulsar.document_values import is_text
from state.events import EVERY_BROKER
from state.policies import FLAG, LIMIT_TYPES, NUMBER, limit_problem
from udfs.topics import split_topic

QUOTA_LIMIT = {"destination_storage": "limitSize", "message_age": "limitTime"}
"""The limit that counts in each type of backlog quota; the document repeats the other one."""
PUBLISH_RATES = {
    "publishThrottlingRateInMsg": "publishRateInMsgs",
    "publishThrottlingRateInByte": "publishRateInBytes",
}
TTL = "message_ttl_in_seconds"

Limits = dict[str, Any]
Problem = Callable[[str, str], None]
"""Takes a place in the documents, and what is wrong there."""


@dataclass(frozen=True)
class PollNames:
    """Names that the documents lack: the cluster, and the broker if configured."""

    cluster: str
    broker: str | None = None


def changed_limits(
    topic: str,
    answered: dict[str, Any],
    before: Mapping[str, Limits],
    names: PollNames,
    problem: Problem,
) -> Iterator[tuple[str, str, Limits]]:
    """Scope, name and limits of the policies of a topic that differ from those `before`.

    `answered` has the documents of a poll (`app.sources.pulsar.admin_documents`).
    """
    for scope, name, document, limits_of in _documents(topic, answered, names, problem):
        if document is None:
            continue
        place = f"policies.{scope} {name}"
        if not isinstance(document, dict) or not is_text(name):
            problem(place, "is not an object with a name")
            continue
        if isinstance(document.get("reason"), str):
            problem(place, f"is an error: {document['reason'][:200]}")
            continue
        earlier = before.get(policy_key(scope, name), {})
        limits = _merged(scope, place, limits_of(document), earlier, problem)
        if limits != earlier:
            yield scope, name, limits


def _documents(
    topic: str, answered: dict[str, Any], names: PollNames, problem: Problem
) -> list[tuple[str, Any, Any, Callable[[dict[str, Any]], Limits]]]:
    """Scope, name, document and reader of every policy that may hold for a topic."""
    parts = split_topic(topic)
    if parts is None:
        return []
    namespace = f"{parts.tenant}/{parts.namespace}"
    groups = answered.get("resource_group")
    if groups is not None and not isinstance(groups, dict):
        problem("policies.resource_group", "is not an object")
        groups = None

    def of_namespace(document: dict[str, Any]) -> Limits:
        return _namespace_limits(document, answered, names, problem)

    return [
        ("broker", names.broker or EVERY_BROKER, answered.get("broker"), _broker_limits),
        *(("resource_group", name, group, _group_limits) for name, group in (groups or {}).items()),
        ("namespace", namespace, answered.get("namespace"), of_namespace),
        (
            "topic",
            f"{parts.scheme}://{namespace}/{parts.name}",
            answered.get("topic"),
            _topic_limits,
        ),
    ]


def _merged(scope: str, place: str, new: Limits, earlier: Limits, problem: Problem) -> Limits:
    """The limits in force: those of this poll, and earlier ones where it has none."""
    limits = {}
    for key in LIMIT_TYPES[scope]:
        value = new.get(key, earlier.get(key))
        if value is None:
            continue
        wrong = limit_problem(scope, key, value)
        if wrong is not None:
            problem(place, f"{key} {wrong}")
            value = earlier.get(key)
        if value is not None:
            limits[key] = value
    return limits


def _namespace_limits(
    document: dict[str, Any], answered: dict[str, Any], names: PollNames, problem: Problem
) -> Limits:
    limits: Limits = {}
    if "publishMaxMessageRate" in document:
        limits.update(_rates(_own_rates(document, answered, names, problem), PUBLISH_RATES))
    if "backlog_quota_map" in document:
        limits["backlog_quota"] = _quotas(document["backlog_quota_map"])
    if limits or "resource_group_name" in document or TTL in document:
        # Left out of the document where a namespace has none.
        limits["resource_group"] = document.get("resource_group_name") or None
        limits[TTL] = _on(document.get(TTL))
    return limits


def _own_rates(
    document: dict[str, Any], answered: dict[str, Any], names: PollNames, problem: Problem
) -> Any:
    """The publish rates of a namespace under the name that its cluster has for Pulsar."""
    rates = document["publishMaxMessageRate"] or {}
    if not isinstance(rates, dict):
        return rates
    known = pulsar_cluster(names.cluster, answered)
    if known is None and rates and names.cluster not in rates:
        problem(
            "policies.namespace.publishMaxMessageRate",
            f"has rates of {', '.join(map(repr, rates))}, none of cluster"
            f" {names.cluster!r}; source.admin.cluster is the name in Pulsar",
        )
    return rates.get(known or names.cluster)


def _topic_limits(document: dict[str, Any]) -> dict[str, Any]:
    """Each limit of a topic's own policies; None where it is off."""
    limits: dict[str, Any] = {}
    if "publishRate" in document:
        limits.update(_rates(document["publishRate"], PUBLISH_RATES))
    if "backlogQuotaMap" in document:
        limits["backlog_quota"] = _quotas(document["backlogQuotaMap"])
    if "messageTTL" in document:
        limits[TTL] = _on(document["messageTTL"])
    return limits


def _group_limits(document: dict[str, Any]) -> dict[str, Any]:
    names = {key: key for key in LIMIT_TYPES["resource_group"] if key in document}
    return _rates(document, names)


def _broker_limits(document: dict[str, Any]) -> dict[str, Any]:
    """Limits of the broker's configuration, in which every value is text."""
    return {
        key: _value(document[key], kind)
        for key, kind in LIMIT_TYPES["broker"].items()
        if document.get(key) not in (None, "")
    }


def _rates(document: Any, names: dict[str, str]) -> dict[str, Any]:
    """Rates under our names; of what is no object, values that will be refused."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        return {name: {} for name in names.values()}
    return {name: _on(document.get(key)) for key, name in names.items()}


def _quotas(document: Any) -> Any:
    """The backlog quotas of a level; None if it has none. One below 0 switches its type off."""
    if document is None:
        document = {}
    if not isinstance(document, dict):
        return document
    kept = {kind: _quota(document.get(kind), key) for kind, key in QUOTA_LIMIT.items()}
    return {kind: quota for kind, quota in kept.items() if quota is not None} or None


def _quota(quota: Any, key: str) -> Any:
    """A backlog quota with the limit that counts; None where it has no limit."""
    if not isinstance(quota, dict):
        return quota
    limit = quota.get(key)
    if limit is None and key == "limitSize":
        limit = quota.get("limit")  # its name before release 2.8
    if limit is None:
        return None
    return {key: limit, **({"policy": quota["policy"]} if quota.get("policy") else {})}


def _on(limit: Any) -> Any:
    """A limit; None for one below 0, by which the broker shows that there is none."""
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    return None if number and limit < 0 else limit


def _value(value: Any, kind: str) -> Any:
    """A value of the configuration in its type; as it is where it does not have it."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if kind == FLAG:
        return {"true": True, "false": False}.get(text.lower(), text)
    if kind != NUMBER:
        return text
    try:
        return int(text) if re.fullmatch(r"[+-]?[0-9]{1,19}", text) else float(text)
    except ValueError:
        return text


def pulsar_cluster(configured: str, policies: dict[str, Any]) -> str | None:
    """The name that a cluster has for Pulsar, by the configuration of a broker or the list of
    clusters; None where neither was answered.
    """
    broker, clusters = policies.get("broker"), policies.get("clusters")
    name = broker.get("clusterName") if isinstance(broker, dict) else None
    if is_text(name):
        return name
    names = [n for n in clusters if is_text(n)] if isinstance(clusters, list) else []
    if configured in names:
        return configured
    return names[0] if len(names) == 1 else None


def other_name(configured: str, policies: dict[str, Any]) -> str | None:
    """The note about a cluster that has another name for Pulsar, in one sentence; None for none."""
    name = pulsar_cluster(configured, policies)
    if name is None or name == configured:
        return None
    return (
        f"source.admin.cluster is {configured}, Pulsar's clusterName is {name}; publish rates of"
        f" namespaces are read under {name}, and records keep {configured}"
    )


def estimated_ages(policies: dict[str, Any]) -> str | None:
    """The note about brokers that estimate ages, in one sentence; None for none."""
    broker = policies.get("broker")
    precise = broker.get("preciseTimeBasedBacklogQuotaCheck") if isinstance(broker, dict) else None
    if str(precise).lower() != "false":
        return None
    return (
        "age_s is -1 while the oldest message is in the open ledger, as at the brokers;"
        " preciseTimeBasedBacklogQuotaCheck=true in broker.conf gives its age"
    )
