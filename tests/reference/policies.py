"""Which limit holds where: sections 2 of rate_limits and 5 of the event contract."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

PER_TOPIC = ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")
WHOLE_BROKER = ("brokerPublisherThrottlingMaxMessageRate", "brokerPublisherThrottlingMaxByteRate")
RECEIPT_WAIT = "throttleProducerReceiptWaitTimeMillis"
PUBLISH = ("publishRateInMsgs", "publishRateInBytes")
MOST_NAMES = 1000
"""Of which is remembered what they say: traces have few."""
Source = tuple[str, str]
Rates = tuple[int, int]


def full_name(topic: str) -> str:
    """No scheme = persistent."""
    return topic if "://" in topic or topic.count("/") < 2 else f"persistent://{topic}"


def source_of(document: Mapping[str, Any]) -> Source:
    """What a later document replaces: scope and name."""
    scope, name = document["scope"], document["name"]
    return scope, full_name(name) if scope == "topic" else name


@lru_cache(MOST_NAMES)
def without_partition(topic: str) -> str:
    return re.sub(r"-partition-\d+$", "", topic)


@lru_cache(MOST_NAMES)
def partition_of(topic: str) -> int | None:
    found = re.search(r"-partition-(\d+)$", topic)
    return int(found.group(1)) if found else None


@lru_cache(MOST_NAMES)
def namespace_of(topic: str) -> str | None:
    found = re.match(r"^[a-z-]+://([^/]+/[^/]+)/", topic)
    return found.group(1) if found else None


@lru_cache(MOST_NAMES)
def is_the_brokers(topic: str) -> bool:
    """A topic that the broker keeps for itself: by its name, or all of a namespace."""
    local = without_partition(topic).rsplit("/", 1)[-1]
    namespace = namespace_of(topic) or ""
    return (
        local == "__change_events"
        or re.fullmatch(r"__transaction_buffer_snapshot(_indexes|_segments)?", local) is not None
        or local.endswith("__transaction_pending_ack")
        or namespace == "pulsar/system"
        or re.fullmatch(r"(pulsar|sla-monitor)/[^/]+:[0-9]+", namespace) is not None
    )


class Policies:
    """Documents in force on one broker; each answer names the documents that it comes from."""

    def __init__(self, broker: str) -> None:
        self._broker = broker
        self._documents: dict[Source, tuple[int | None, dict[str, Any]]] = {}

    def copy(self) -> Policies:
        other = Policies(self._broker)
        other._documents = dict(self._documents)
        return other

    def put(self, document: Mapping[str, Any], wall_ms: int | None) -> bool:
        """A document replaces the earlier one of its scope and name, unless it is the older."""
        source = source_of(document)
        since = self._documents.get(source, (None, {}))[0]
        if since is not None and wall_ms is not None and wall_ms < since:
            return False
        self._documents[source] = (wall_ms, dict(document.get("limits") or {}))
        return True

    def _limits(self, scope: str, name: str | None) -> dict[str, Any]:
        """Limits of one document; -1 and null are like a missing limit."""
        limits = self._documents.get((scope, name or ""), (None, {}))[1]
        return {key: value for key, value in limits.items() if value is not None and value != -1}

    def _of_broker(self, key: str) -> tuple[Any, Source | None]:
        for name in (self._broker, "*"):
            limits = self._limits("broker", name)
            if key in limits:
                return limits[key], ("broker", name)
        return None, None

    def _pair(self, keys: tuple[str, str]) -> tuple[Rates, set[Source]]:
        found = [self._of_broker(key) for key in keys]
        rates = tuple(max(int(value or 0), 0) for value, _ in found)
        return (rates[0], rates[1]), {source for _, source in found if source is not None}

    def topic(self, topic: str) -> tuple[Rates, set[Source]]:
        if is_the_brokers(topic):
            return (0, 0), set()
        base = without_partition(topic)
        for scope, name in (("topic", base), ("namespace", namespace_of(base))):
            limits = self._limits(scope, name)
            rates = tuple(max(int(limits.get(key, 0)), 0) for key in PUBLISH)
            if name is not None and any(rate > 0 for rate in rates):
                return (rates[0], rates[1]), {(scope, name)}
        return self._pair(PER_TOPIC)

    def broker(self) -> tuple[Rates, set[Source]]:
        return self._pair(WHOLE_BROKER)

    def group_of(self, topic: str) -> str | None:
        if is_the_brokers(topic):
            return None
        return self._limits("namespace", namespace_of(topic)).get("resource_group") or None

    def group(self, name: str) -> Rates:
        limits = self._limits("resource_group", name)
        rates = tuple(max(int(limits.get(key, 0)), 0) for key in PUBLISH)
        return rates[0], rates[1]

    def in_flight(self) -> int:
        value, _ = self._of_broker("maxPendingPublishRequestsPerConnection")
        return 1000 if value is None else int(value)

    def buffer_share(self) -> int:
        size, _ = self._of_broker("maxMessagePublishBufferSizeInMB")
        threads, _ = self._of_broker("numIOThreads")
        if not size or not threads or size < 0 or threads < 0:
            return 0
        return int(size) * 1024 * 1024 // int(threads)

    def receipt_wait_ms(self) -> int:
        value, _ = self._of_broker(RECEIPT_WAIT)
        return 100 if value is None else max(int(value), 0)
