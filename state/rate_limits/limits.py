"""Which limits hold for a topic, a resource group, a broker and its connections.

A publish rate comes from the topic's document, else the namespace's, else the broker's defaults.
A level counts if its document has `publishRateInMsgs` or `publishRateInBytes`; the limit that it
lacks is then off. -1 is like a missing limit, 0 switches off at that level.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine.documents import EVERY_BROKER, Source

Array = np.ndarray
Documents = Mapping[Source, Mapping[str, Any]]
"""Limits in force by scope and name."""

MSGS, BYTES = "publishRateInMsgs", "publishRateInBytes"
MAX_IN_FLIGHT_DEFAULT = 1000
RECEIPT_WAIT_MS_DEFAULT = 100
MOST_RECEIPT_WAIT_MS = 3_600_000
"""An hour: a longer wait is no wait for a receipt, and must not overflow the clock."""
_MIB = 1024 * 1024
_LARGEST = 2**63 - 1


def _number(value: Any) -> int:
    return max(-1, min(int(value), _LARGEST))


def _rates(limits: Mapping[str, Any] | None, keys: tuple[str, str]) -> tuple[int, int] | None:
    """Message and byte rate of a document, None if it does not set them; 0 = off."""
    if limits is None:
        return None
    values = [_number(limits[key]) if limits.get(key) is not None else -1 for key in keys]
    if values == [-1, -1]:
        return None
    return max(values[0], 0), max(values[1], 0)


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
        self._every = documents.get(("broker", EVERY_BROKER), {})
        self._own = documents.get(("broker", broker), {}) if broker != EVERY_BROKER else {}
        self._broker = broker

    def _broker_limit(self, key: str, default: int) -> int:
        for limits in (self._own, self._every):
            if limits.get(key) is not None and _number(limits[key]) != -1:
                return _number(limits[key])
        return default

    def _broker_sources(self, keys: tuple[str, ...]) -> tuple[Source, ...]:
        """Broker documents that give these limits."""
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
            self._broker_limit(keys[0], 0), self._broker_limit(keys[1], 0),
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

    def topics(self, names: pa.StringArray) -> tuple[Array, Array, list[tuple[Source, ...]]]:
        """Message and byte rates per topic, 0 = off, and the documents that give them."""
        keys = ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes")
        default = (self._broker_limit(keys[0], 0), self._broker_limit(keys[1], 0))
        msgs = np.full(len(names), default[0], np.int64)
        size = np.full(len(names), default[1], np.int64)
        fallback = self._broker_sources(keys)
        sources: list[tuple[Source, ...]] = [fallback] * len(names)
        if not self._topics and not self._namespaces:
            return msgs, size, sources
        base = pc.replace_substring_regex(names, r"-partition-\d+$", "")
        for table, keys_of, scope in (
            (self._namespaces, _namespaces(base), "namespace"),
            (self._topics, base, "topic"),
        ):
            if not table:
                continue
            encoded = keys_of.dictionary_encode()
            codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
            for code, value in enumerate(encoded.dictionary.to_pylist()):
                rates = table.get(value)
                if rates is None:
                    continue
                rows = np.flatnonzero(codes == code)
                msgs[rows], size[rows] = rates
                for row in rows:
                    sources[row] = ((scope, value),)
        return msgs, size, sources

    @property
    def has_groups(self) -> bool:
        """Some namespace belongs to a resource group."""
        return bool(self._group_of)

    def groups(self, names: pa.StringArray) -> tuple[Array, list[str]]:
        """Resource group per topic as a position in the list of groups, -1 without one."""
        if not self._group_of:
            return np.full(len(names), -1, np.int64), []
        encoded = _namespaces(names).dictionary_encode()
        groups = sorted(set(self._group_of.values()))
        position = np.array(
            [
                groups.index(self._group_of[ns]) if ns in self._group_of else -1
                for ns in encoded.dictionary.to_pylist()
            ]
            + [-1],
            np.int64,
        )
        codes = encoded.indices.fill_null(len(position) - 1)
        return position[codes.to_numpy(zero_copy_only=False)], groups

    def group(self, name: str) -> tuple[int, int]:
        """Message and byte rate of a resource group; 0 = off."""
        return self._groups.get(name, (0, 0))


def _namespaces(topics: pa.StringArray) -> pa.StringArray:
    """tenant/namespace of Pulsar names, null for other names."""
    found = pc.extract_regex(topics, r"^[a-z-]+://(?P<ns>[^/]+/[^/]+)/")
    return found.field("ns")
