"""The publish limits of a fleet: multiples of its normal traffic, as policy documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.generator.fleet import Fleet

Policy = dict[str, Any]


@dataclass
class PublishLimits:
    """What each limiter allows per second; 0 = off."""

    messages: np.ndarray
    """By topic."""
    bytes: np.ndarray
    """By topic."""
    groups: dict[str, int]
    brokers: dict[int, int]
    policies: list[Policy]

    def size(self, fleet: Fleet, topic: int, factor: float) -> tuple[int, int]:
        """Messages and bytes that take `factor` seconds' worth of a topic's limit."""
        per_message = int(fleet.topics.message_bytes[topic])
        if self.messages[topic] > 0:
            messages = int(np.ceil(factor * self.messages[topic]))
            return messages, messages * per_message
        size = int(np.ceil(factor * self.bytes[topic]))
        return max(1, size // per_message), size

    def policy(self, scope: str, name: str) -> Policy:
        """The document of a scope and name."""
        return next(p for p in self.policies if (p["scope"], p["name"]) == (scope, name))


def rounded_up(value: float) -> int:
    """The next number with two significant digits, as an operator would write it."""
    step = 10.0 ** max(0, np.floor(np.log10(max(value, 1))) - 1)
    return int(np.ceil(value / step) * step)


def build_limits(fleet: Fleet, publishes_per_s: float) -> PublishLimits:
    """Limits that normal traffic stays below: a multiple of its mean and room for chance."""
    spec, traffic = fleet.scenario.limits, fleet.scenario.traffic
    topics, biggest = fleet.topics, traffic.max_batch
    rate = topics.weight * publishes_per_s * traffic.mean_batch
    messages = np.zeros(len(topics.names), dtype=np.int64)
    sizes = np.zeros(len(topics.names), dtype=np.int64)
    group_of = {space: g for g, spaces in spec.resource_groups.items() for space in spaces}
    policies: list[Policy] = []
    for space in sorted(set(topics.namespaces)):
        own = np.array([s == space for s in topics.namespaces])
        limit = rounded_up(spec.headroom * rate[own].max() + 8 * biggest)
        limits: dict[str, Any] = {}
        # Never tighter in bytes than in messages, so that one bucket decides.
        size = rounded_up(limit * int(topics.message_bytes[own].max()) * 1.5)
        if space.split("/")[0] not in spec.byte_only:
            limits["publishRateInMsgs"] = messages[own] = limit
        limits["publishRateInBytes"] = sizes[own] = size
        if space in group_of:
            limits["resource_group"] = group_of[space]
        policies.append({"scope": "namespace", "name": space, "limits": limits})
    groups = {}
    for group, spaces in spec.resource_groups.items():
        member = np.array([s in spaces for s in topics.namespaces])
        busiest = max(rate[member & (topics.broker == b)].sum() for b in range(len(fleet.brokers)))
        groups[group] = rounded_up(2 * busiest + 12 * biggest)
        policies.append(
            {
                "scope": "resource_group",
                "name": group,
                "limits": {"publishRateInMsgs": groups[group]},
            }
        )
    brokers = {}
    for b in spec.brokers:
        brokers[b] = rounded_up(2 * rate[topics.broker == b].sum() + 20 * biggest)
        policies.append(
            {
                "scope": "broker",
                "name": fleet.brokers[b],
                "limits": {"brokerPublisherThrottlingMaxMessageRate": brokers[b]},
            }
        )
    return PublishLimits(messages, sizes, groups, brokers, policies)
