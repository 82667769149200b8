"""Which policy documents there are, and what is wrong with one (event contract, section 5)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from app.errors import did_you_mean

RATES = ("publishRateInMsgs", "publishRateInBytes")
RETENTION = ("producer_request_hold", "producer_exception", "consumer_backlog_eviction")
QUOTA_LIMITS = {"destination_storage": "limitSize", "message_age": "limitTime"}

Check = Callable[[Any], str]
"""What is wrong with a value, or an empty string."""


def _whole(value: Any) -> str:
    """A rate or limit counted in whole units; -1 and 0 are off or as the job defines."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f"{value!r} is not a number"
    if not math.isfinite(value) or value != math.floor(value):
        return f"{value!r} is not a whole number"
    return "" if value >= -1 else f"{value} is below -1 (-1 and 0 are off)"


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return f"{value!r} is not a number"
    return "" if value >= -1 else f"{value} is below -1 (-1 is off)"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else f"{value!r} is not true or false"


def _text(value: Any) -> str:
    return "" if isinstance(value, str) and value else f"{value!r} is not a name"


def _retention(value: Any) -> str:
    return "" if value in RETENTION else f"{value!r} is not one of {', '.join(RETENTION)}"


def _quota(value: Any) -> str:
    if not isinstance(value, dict):
        return f"{value!r} is not an object"
    for kind, quota in value.items():
        if kind not in QUOTA_LIMITS:
            return f"{kind}: unknown quota ({did_you_mean(str(kind), tuple(QUOTA_LIMITS))})"
        if not isinstance(quota, dict):
            return f"{kind}: {quota!r} is not an object"
        limit = QUOTA_LIMITS[kind]
        for key, item in quota.items():
            if key not in (limit, "policy"):
                return f"{kind}.{key}: unknown key ({did_you_mean(str(key), (limit, 'policy'))})"
            wrong = _retention(item) if key == "policy" else _whole(item)
            if wrong:
                return f"{kind}.{key}: {wrong}"
    return ""


BROKER_LIMITS: dict[str, Check] = {
    # rate_limits
    "maxPublishRatePerTopicInMessages": _whole,
    "maxPublishRatePerTopicInBytes": _whole,
    "brokerPublisherThrottlingMaxMessageRate": _whole,
    "brokerPublisherThrottlingMaxByteRate": _whole,
    "maxPendingPublishRequestsPerConnection": _whole,
    "maxMessagePublishBufferSizeInMB": _whole,
    "numIOThreads": _whole,
    "resourceUsageTransportPublishIntervalInSecs": _whole,
    "throttleProducerReceiptWaitTimeMillis": _whole,
    "connectionsPerBroker": _whole,
    "topicPublisherThrottlingTickTimeMillis": _whole,
    "brokerPublisherThrottlingTickTimeMillis": _whole,
    "preciseTopicPublishRateLimiterEnable": _flag,
    # backlog
    "backlogQuotaCheckEnabled": _flag,
    "backlogQuotaCheckIntervalInSeconds": _whole,
    "backlogQuotaDefaultLimitBytes": _whole,
    "backlogQuotaDefaultLimitGB": _number,
    "backlogQuotaDefaultLimitSecond": _whole,
    "backlogQuotaDefaultRetentionPolicy": _retention,
    "preciseTimeBasedBacklogQuotaCheck": _flag,
    "exposeTopicLevelMetricsInPrometheus": _flag,
    # producer_ids
    "producer.id.quota.window.num": _whole,
    "producer.id.quota.window.size.seconds": _whole,
    "producer.id.quota.cache.cleanup.scheduler.interval.ms": _whole,
    "producer.id.quota.window.count": _whole,
}
"""Limits of scope `broker`: the broker keys of the jobs that read policies."""

SCOPES: dict[str, dict[str, Check]] = {
    "broker": BROKER_LIMITS,
    "resource_group": dict.fromkeys(RATES, _whole),
    "namespace": {**dict.fromkeys(RATES, _whole), "resource_group": _text, "backlog_quota": _quota},
    "topic": {**dict.fromkeys(RATES, _whole), "backlog_quota": _quota},
    "user": {"producer_ids_rate": _number},
}


def problems(document: Any) -> Iterator[tuple[str, str]]:
    """Every mistake of a policy document as (key, what is wrong with it)."""
    if not isinstance(document, dict):
        yield "", f"{document!r} is not an object with scope, name and limits"
        return
    keys = ("scope", "name", "limits")
    for key in document:
        if key not in keys:
            yield str(key), f"unknown key ({did_you_mean(str(key), keys)})"
    for key in keys:
        if key not in document:
            yield key, "is missing"
    if "name" in document and (wrong := _text(document["name"])):
        yield "name", wrong
    scope, limits = document.get("scope"), document.get("limits", {})
    if "scope" in document and (not isinstance(scope, str) or scope not in SCOPES):
        yield "scope", f"{scope!r} is not one of {', '.join(SCOPES)}"
        return
    if not isinstance(limits, dict):
        yield "limits", f"{limits!r} is not an object"
        return
    known = SCOPES.get(str(scope), {})
    for key, value in limits.items() if known else ():
        if key not in known:
            hint = did_you_mean(str(key), tuple(known))
            yield f"limits.{key}", f"no limit of scope {scope} ({hint})"
        elif wrong := known[key](value):
            yield f"limits.{key}", wrong
