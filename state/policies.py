"""The content of policy documents: scopes, limit keys and the type of each limit.

One definition for documents on the stream (`BAD_POLICY`) and in the configuration. Source: event
contract, section 5; the broker keys are those of the jobs' specifications.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from udfs.topics import split_topic

NUMBER, FLAG, TEXT, QUOTA, RETENTION = "number", "flag", "text", "backlog quota", "retention policy"

RETENTION_POLICIES: tuple[str, ...] = (
    "producer_request_hold",
    "producer_exception",
    "consumer_backlog_eviction",
)
QUOTA_TYPES: tuple[str, ...] = ("destination_storage", "message_age")
_QUOTA_LIMITS = ("limitSize", "limitTime")

_PUBLISH_RATES = {"publishRateInMsgs": NUMBER, "publishRateInBytes": NUMBER}

_BACKLOG = {"backlog_quota": QUOTA, "message_ttl_in_seconds": NUMBER}

QUOTA_KINDS = "quota_kinds"
"""The key of a document of client quotas that says what its broker does when the last limit of a kind
goes."""
CLIENT_QUOTAS: tuple[str, ...] = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
"""Limits of users, clients and both together, in the order of `events.QUOTA_TYPES`."""
CLIENT_ID = "client_id"
"""Key of a document of a user that makes it one of the user with this client."""

_BROKER = {
    # rate_limits
    "maxPublishRatePerTopicInMessages": NUMBER,
    "maxPublishRatePerTopicInBytes": NUMBER,
    "brokerPublisherThrottlingMaxMessageRate": NUMBER,
    "brokerPublisherThrottlingMaxByteRate": NUMBER,
    "resourceUsageTransportPublishIntervalInSecs": NUMBER,
    "maxPendingPublishRequestsPerConnection": NUMBER,
    "maxMessagePublishBufferSizeInMB": NUMBER,
    "numIOThreads": NUMBER,
    "throttleProducerReceiptWaitTimeMillis": NUMBER,
    "connectionsPerBroker": NUMBER,
    "topicPublisherThrottlingTickTimeMillis": NUMBER,
    "brokerPublisherThrottlingTickTimeMillis": NUMBER,
    "preciseTopicPublishRateLimiterEnable": FLAG,
    # backlog
    "backlogQuotaCheckEnabled": FLAG,
    "backlogQuotaCheckIntervalInSeconds": NUMBER,
    "backlogQuotaDefaultLimitBytes": NUMBER,
    "backlogQuotaDefaultLimitGB": NUMBER,
    "backlogQuotaDefaultLimitSecond": NUMBER,
    "backlogQuotaDefaultRetentionPolicy": RETENTION,
    "preciseTimeBasedBacklogQuotaCheck": FLAG,
    "ttlDurationDefaultInSeconds": NUMBER,
    "messageExpiryCheckIntervalInMinutes": NUMBER,
    "exposeTopicLevelMetricsInPrometheus": FLAG,
    # entry_cache
    "cacheEvictionByExpectedReadCount": FLAG,
    "cacheEvictionByMarkDeletedPosition": FLAG,
    "managedLedgerCacheSizeMB": NUMBER,
    "managedLedgerCacheEvictionWatermark": NUMBER,
    "cacheEvictionWatermark": NUMBER,
    "managedLedgerCacheEvictionIntervalMs": NUMBER,
    "managedLedgerCacheEvictionTimeThresholdMillis": NUMBER,
    "managedLedgerCacheEvictionTimeThresholdMillisMax": NUMBER,
    "managedLedgerCacheEvictionExtendTTLOfEntriesWithRemainingExpectedReadsMaxTimes": NUMBER,
    "managedLedgerCacheEvictionExtendTTLOfRecentlyAccessed": FLAG,
    "managedLedgerMinimumBacklogCursorsForCaching": NUMBER,
    "managedLedgerMinimumBacklogEntriesForCaching": NUMBER,
    "managedLedgerMaxBacklogBetweenCursorsForCaching": NUMBER,
    "managedLedgerCacheCopyEntries": FLAG,
    "brokerAdaptiveRecvByteBufAllocatorMinimumSize": NUMBER,
    "brokerAdaptiveRecvByteBufAllocatorInitialSize": NUMBER,
    "brokerAdaptiveRecvByteBufAllocatorMaximumSize": NUMBER,
    # producer_ids
    "producer.id.quota.window.num": NUMBER,
    "producer.id.quota.window.size.seconds": NUMBER,
    "producer.id.quota.cache.cleanup.scheduler.interval.ms": NUMBER,
    "producer.id.quota.window.count": NUMBER,
    "producer.id.expiration.ms": NUMBER,
    "producer.id.expiration.check.interval.ms": NUMBER,
    "transactional.id.expiration.ms": NUMBER,
}

LIMIT_TYPES: dict[str, dict[str, str]] = {
    "broker": _BROKER,
    "resource_group": _PUBLISH_RATES,
    "namespace": {**_PUBLISH_RATES, "resource_group": TEXT, **_BACKLOG},
    "topic": {**_PUBLISH_RATES, **_BACKLOG},
    "user": {"producer_ids_rate": NUMBER, **dict.fromkeys(CLIENT_QUOTAS, NUMBER)},
    "client": dict.fromkeys(CLIENT_QUOTAS, NUMBER),
}
"""Type of each limit key, by scope."""

WITHOUT_EFFECT: tuple[str, ...] = (
    "resourceUsageTransportPublishIntervalInSecs",
    "connectionsPerBroker",
    "topicPublisherThrottlingTickTimeMillis",
    "brokerPublisherThrottlingTickTimeMillis",
    "preciseTopicPublishRateLimiterEnable",
    "exposeTopicLevelMetricsInPrometheus",
    "managedLedgerCacheCopyEntries",
    "brokerAdaptiveRecvByteBufAllocatorMinimumSize",
    "brokerAdaptiveRecvByteBufAllocatorInitialSize",
    "brokerAdaptiveRecvByteBufAllocatorMaximumSize",
    "producer.id.quota.cache.cleanup.scheduler.interval.ms",
    "producer.id.expiration.check.interval.ms",
    "transactional.id.expiration.ms",
)
"""Broker keys that documents may have and that have no effect on any decision."""

_KAFKA_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

SCOPES: dict[str, frozenset[str]] = {scope: frozenset(keys) for scope, keys in LIMIT_TYPES.items()}
"""Limit keys of each scope."""


def problem(document: object) -> str | None:
    """Why a decoded policy document cannot be applied, in one phrase, or None.

    An unknown limit key is no reason: see `unknown_limits`.
    """
    if not isinstance(document, dict):
        return "not an object"
    scope, name = document.get("scope"), document.get("name")
    if not isinstance(scope, str) or scope not in SCOPES:
        return f"unknown scope {_shown(scope)}"
    if not _is_text(name) or not name:
        return "name is not a string"
    wrong = name_problem(scope, str(name))
    if wrong is not None:
        return wrong
    if CLIENT_ID in document:
        wrong = client_id_problem(scope, document[CLIENT_ID])
        if wrong is not None:
            return wrong
    limits = document.get("limits", {})
    if not isinstance(limits, dict):
        return "limits is not an object"
    for key, value in limits.items():
        wrong = limit_problem(scope, key, value) if key in SCOPES[scope] else None
        if wrong is not None:
            return f"{key} {wrong}"
    return None


def client_id_problem(scope: str, client_id: object) -> str | None:
    """Why a document of the scope cannot have a client id, or None."""
    if scope != "user":
        return f"client_id in scope {scope}, which has none"
    return None if _is_text(client_id) and client_id else "client_id is not a string"


def limit_problem(scope: str, key: str, value: object) -> str | None:
    """Why a limit of the scope cannot have a value, in one phrase without the key, or None."""
    if key in CLIENT_QUOTAS and isinstance(value, int | float) and value <= 0:
        return "is not above 0"
    return _limit_problem(LIMIT_TYPES[scope][key], value)


def name_problem(scope: str, name: str) -> str | None:
    """Why a scope cannot have a name, or None. A topic is one of Pulsar or of Kafka."""
    if scope == "namespace":
        parts = name.split("/")
        if len(parts) != 2 or not all(parts):
            return f"name {_shown(name)} is not tenant/namespace"
    if scope == "topic" and not split_topic(name) and not _KAFKA_TOPIC.fullmatch(name):
        return f"name {_shown(name)} is not a topic ([scheme://]tenant/namespace/name)"
    return None


def unknown_limits(document: dict[str, Any]) -> str | None:
    """The limit keys of an applicable document that its scope does not have, in one phrase.

    Such a key is ignored and the rest of the document applies, because brokers get new settings
    with every release.
    """
    scope = document["scope"]
    unknown = [_shown(key) for key in document.get("limits", {}) if key not in SCOPES[scope]]
    if not unknown:
        return None
    return f"unknown limit{'s' * (len(unknown) > 1)} {','.join(unknown)} in scope {scope}"


def parse_document(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """Decode a `policy_json`: the document and None, or None and why it cannot be applied."""
    try:
        document = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        # also an integer of more digits than Python converts
        return None, "not JSON"
    wrong = problem(document)
    return (document, None) if wrong is None else (None, wrong)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _limit_problem(kind: str, value: object) -> str | None:
    if kind == FLAG:
        return None if isinstance(value, bool) else "is not true or false"
    if kind == TEXT:
        return None if _is_text(value) else "is not a string"
    if kind == RETENTION:
        if isinstance(value, str) and value in RETENTION_POLICIES:
            return None
        return f"is not one of {', '.join(RETENTION_POLICIES)}"
    if kind == QUOTA:
        return _quota_problem(value)
    return None if _is_number(value) else "is not a number of 64 bits"


def _quota_problem(value: object) -> str | None:
    if not isinstance(value, dict):
        return "is not an object"
    for quota_type, quota in value.items():
        if quota_type not in QUOTA_TYPES:
            return f"has unknown type {_shown(quota_type)}"
        if not isinstance(quota, dict):
            return f"{quota_type} is not an object"
        for key, limit in quota.items():
            if key == "policy":
                wrong = _limit_problem(RETENTION, limit)
            elif key in _QUOTA_LIMITS:
                wrong = _limit_problem(NUMBER, limit)
            else:
                wrong = "is unknown"
            if wrong is not None:
                return f"{quota_type} {_shown(key)} {wrong}"
    return None


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # NaN and the infinities fail the comparison as well
    return -(2**63) <= value <= 2**63 - 1


def _is_text(value: object) -> bool:
    """Whether a value is a string that can be written (no lone surrogate)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(value: object) -> str:
    """A value in a message: short and printable."""
    return ascii(value)[:60]
