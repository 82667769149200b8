"""The limits of a topic, a resource group, a broker and its connections.

A publish rate comes from the topic's document, else the namespace's, else the broker's defaults. A
level counts if its document has a rate above 0; its other rate is then off. Topics that the broker
keeps for itself have no limit of a topic, namespace, group or broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from state.engine.documents import Source, is_gone, parsed
from state.engine.globs import NAMESPACES, TENANTS, Patterns
from state.events import EVERY_BROKER
from udfs.topics import is_system_topic

Array = np.ndarray
Documents = Mapping[Source, Mapping[str, Any]]
"""Limits in force by scope and name."""

MSGS, BYTES = "publishRateInMsgs", "publishRateInBytes"
DEFAULTS = ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")
GROUPING = ("namespace", "resource_group", NAMESPACES, TENANTS)
"""Scopes of documents that change the groups of topics."""
MAX_IN_FLIGHT_DEFAULT = 1000
MOST_RECEIPT_WAIT_MS = 3_600_000
"""An hour. A longer wait is not realistic and must not overflow the clock."""
_PARTITION = re.compile(r"-partition-[0-9]+\Z")
_NAMESPACE = re.compile(r"[a-z-]+://([^/]+/[^/]+)/")
_MIB = 1024 * 1024
_LARGEST = 2**63 - 1


def _number(value: Any) -> int:
    return max(-1, min(int(value), _LARGEST))


def _rates(limits: Mapping[str, Any] | None, keys: tuple[str, str]) -> tuple[int, int] | None:
    """Message and byte rate of a document, None if neither is above 0; 0 = off."""
    if limits is None:
        return None
    msgs, size = (max(_number(limits.get(key) or 0), 0) for key in keys)
    return (msgs, size) if msgs > 0 or size > 0 else None


class Limits:
    """The documents of one broker, resolved."""

    def __init__(self, documents: Documents, broker: str) -> None:
        """`documents` are those in force; only the broker's own and `*` broker documents count."""
        self._topics: dict[str, tuple[int, int]] = {}
        self._namespaces: dict[str, tuple[int, int]] = {}
        self._group_of: dict[str, str] = {}
        self._groups: dict[str, tuple[int, int]] = {}
        for (scope, name), limits in documents.items():
            rates = _rates(limits, (MSGS, BYTES))
            if scope == "topic" and rates is not None:
                self._topics[name] = rates
            elif scope == "resource_group" and rates is not None:
                self._groups[name] = rates
            elif scope == "namespace":
                if rates is not None:
                    self._namespaces[name] = rates
                if limits.get("resource_group"):
                    self._group_of[name] = str(limits["resource_group"])
        self._patterns = Patterns(documents)
        self._documents = documents
        self._every = documents.get(("broker", EVERY_BROKER), {})
        self._own = documents.get(("broker", broker), {}) if broker != EVERY_BROKER else {}
        self._broker = broker
        more = {
            str(limits["resource_group"])
            for limits in self._patterns.limits
            if limits.get("resource_group")
        }
        self._group_names = sorted({*self._group_of.values(), *more})
        self._group_places: dict[str | None, int] = {
            namespace: self._group_names.index(group) for namespace, group in self._group_of.items()
        }

    def _broker_limit(self, key: str, default: int) -> int:
        for limits in (self._own, self._every):
            if limits.get(key) is not None and _number(limits[key]) != -1:
                return _number(limits[key])
        return default

    def _broker_sources(self, keys: tuple[str, ...]) -> tuple[Source, ...]:
        found: list[Source] = []
        for key in keys:
            for name, limits in ((self._broker, self._own), (EVERY_BROKER, self._every)):
                if limits.get(key) is not None and _number(limits[key]) != -1:
                    found.append(("broker", name))
                    break
        return tuple(found)

    def broker(self) -> tuple[int, int, tuple[Source, ...]]:
        """Message and byte rate of the whole broker and the documents they come from."""
        keys = ("brokerPublisherThrottlingMaxMessageRate", "brokerPublisherThrottlingMaxByteRate")
        return (
            self._broker_limit(keys[0], 0),
            self._broker_limit(keys[1], 0),
            self._broker_sources(keys),
        )

    def max_in_flight(self) -> int:
        """Publish requests that a connection may have in flight; 0 = off."""
        return self._broker_limit("maxPendingPublishRequestsPerConnection", MAX_IN_FLIGHT_DEFAULT)

    def receipt_wait_ms(self, default: int) -> int:
        """How long a broker waits for the receipt of a throttle command."""
        wait = self._broker_limit("throttleProducerReceiptWaitTimeMillis", default)
        return min(max(wait, 0), MOST_RECEIPT_WAIT_MS)

    def buffer_share(self) -> int:
        """Bytes that one IO thread may buffer; 0 = off, unless both of its limits are set."""
        size = self._broker_limit("maxMessagePublishBufferSizeInMB", 0)
        threads = self._broker_limit("numIOThreads", 0)
        return size * _MIB // threads if size > 0 and threads > 0 else 0

    @property
    def by_name(self) -> bool:
        """Whether the rates of a topic depend on its name, besides being exempt."""
        return bool(self._topics or self._namespaces or self._patterns)

    def default(self) -> tuple[int, int]:
        """Message and byte rate of a topic without a document, 0 = off."""
        msgs, size = (self._broker_limit(key, 0) for key in DEFAULTS)
        return msgs, size

    def topics(self, names: Sequence[str]) -> tuple[Array, Array, list[tuple[Source, ...]]]:
        """Message and byte rates per topic, 0 = off, and the documents that give them."""
        default = self.default()
        msgs = np.full(len(names), default[0], np.int64)
        size = np.full(len(names), default[1], np.int64)
        sources: list[tuple[Source, ...]] = [self._broker_sources(DEFAULTS)] * len(names)
        if not self.by_name and default == (0, 0):
            return msgs, size, sources
        for row, name in enumerate(names):
            found = ((0, 0), ()) if is_exempt(name) else self._of_topic(name)
            if found is not None:
                (msgs[row], size[row]), sources[row] = found
        return msgs, size, sources

    def _of_topic(self, name: str) -> tuple[tuple[int, int], tuple[Source, ...]] | None:
        """The rates of a topic and the documents that give them, None if they are the broker's
        defaults."""
        base, namespace = unpartitioned(name)
        for scope, each, table in (
            ("topic", base, self._topics),
            ("namespace", namespace, self._namespaces),
        ):
            if each is None:
                continue
            if each in table:
                return table[each], ((scope, each),)
            if self._patterns and (scope, each) not in self._documents:
                limits, sources = self._patterns.of(scope, each)
                rates = _rates(limits, (MSGS, BYTES))
                if rates is not None:
                    # a document for the name itself would be in the place of theirs
                    return rates, (*sources, (scope, each))
        return None

    @property
    def has_groups(self) -> bool:
        """Whether a namespace belongs to a resource group."""
        return bool(self._group_names)

    def groups(self, names: Sequence[str]) -> tuple[Array, list[str]]:
        """Resource group per topic as a position in the list of groups, -1 without one."""
        if not self._group_names:
            return np.full(len(names), -1, np.int64), []
        found = [
            -1 if is_exempt(name) else self._group_place(unpartitioned(name)[1]) for name in names
        ]
        return np.array(found, np.int64), self._group_names

    def _group_place(self, namespace: str | None) -> int:
        """The position of a namespace's group, -1 without one."""
        place = self._group_places.get(namespace, -1)
        if place >= 0 or not self._patterns or namespace is None:
            return place
        if ("namespace", namespace) in self._documents:
            return -1
        group = self._patterns.of("namespace", namespace)[0].get("resource_group")
        return self._group_names.index(str(group)) if group else -1

    def group(self, name: str) -> tuple[int, int]:
        """Message and byte rate of a resource group; 0 = off."""
        return self._groups.get(name, (0, 0))


@lru_cache(maxsize=1024)
def limits_of(documents: tuple[tuple[Source, str], ...], broker: str) -> Limits:
    """The limits of a broker from the texts of the documents in force; removed documents do not
    count.
    """
    return Limits({s: parsed(text)[2] for s, text in documents if not is_gone(text)}, broker)


@lru_cache(maxsize=65536)
def is_exempt(topic: str) -> bool:
    """Whether no publish rate holds for a topic, since the broker keeps it for itself."""
    return is_system_topic(topic)


@lru_cache(maxsize=65536)
def unpartitioned(topic: str) -> tuple[str, str | None]:
    """A topic's name without its partition, and its namespace: tenant/namespace of Pulsar names,
    None for others."""
    found = _NAMESPACE.match(topic)
    return _PARTITION.sub("", topic), found[1] if found else None
