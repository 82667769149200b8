"""Maps a publish to the name whose limit it is charged to: topic, namespace or resource group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from app.errors import UserError
from app.read.last_policies import last_policies
from app.read.relations import Warehouse
from state.engine.documents import full_topic_name
from state.rate_limits.limits import Limits, is_exempt, unpartitioned
from udfs.topics import normal_topic

Per = Literal["topic", "namespace", "group"]
SCOPES: Mapping[str, str] = {
    "topic": "topic",
    "namespace": "namespace",
    "group": "resource_group",
}
"""The scope of the documents of each."""


@dataclass(frozen=True)
class ChargedOwner:
    """The name and limiter that the publishes of one spelling of a topic are charged to."""

    topic: str
    """Its canonical spelling, with the partition."""
    name: str | None
    """The name that gets the limit; None if there is none."""
    limiter: str
    """The limiter of a broker; topics and namespaces have one for each partition."""


def required(text: str) -> Per:
    """UserError for a scope without a publish limit."""
    if text == "user":
        raise UserError(
            "--per user: a user has no publish limit\nallowed: "
            f"{', '.join(SCOPES)}; policy suggest producer-ids suggests limits of users"
        )
    if text not in SCOPES:
        raise UserError(f"--per {text}: has no publish limit\nallowed: {', '.join(SCOPES)}")
    return text  # type: ignore[return-value]


class TopicOwners:
    """The owners of topics; groups as they are at the end of the history."""

    def __init__(
        self, warehouse: Warehouse, policies: Sequence[Mapping[str, Any]], per: Per
    ) -> None:
        """`policies` are those of the configuration."""
        self._policies, self._per = policies, per
        self._by_cluster: dict[str, Limits] = {}
        self._stream = last_policies(warehouse)
        self.members: dict[str, str] = {}
        """The group of each namespace that was asked for."""

    def of(self, cluster: str, name: str, partition: int | None, kafka: bool) -> ChargedOwner:
        """The owner of a topic as a record spells it."""
        topic = normal_topic(name, partition, kafka)
        base, namespace = unpartitioned(topic)
        if is_exempt(topic):
            return ChargedOwner(topic, None, topic)
        if self._per == "topic":
            return ChargedOwner(topic, base, topic)
        if self._per == "namespace" or namespace is None:
            return ChargedOwner(topic, namespace, topic)
        places, names = self._limits(cluster).groups([topic])
        if places[0] < 0:
            return ChargedOwner(topic, None, topic)
        group = names[int(places[0])]
        self.members[namespace] = group
        return ChargedOwner(topic, group, group)

    def in_force(self, cluster: str, name: str) -> dict[str, int]:
        """The limits of a name at the end of the history, by rate; without those that are off."""
        limits = self._limits(cluster)
        if self._per == "group":
            rates = limits.group(name)
        else:
            # the limit of a namespace is that of its topics without one of their own
            topic = f"persistent://{name}/" if self._per == "namespace" else name
            msgs, size, _ = limits.topics([topic])
            rates = int(msgs[0]), int(size[0])
        return {
            rate: limit for rate, limit in zip(("messages", "bytes"), rates, strict=True) if limit
        }

    def _limits(self, cluster: str) -> Limits:
        """The documents of the configuration, overridden by the latest ones of the stream."""
        if cluster not in self._by_cluster:
            own = (
                (d["scope"], full_topic_name(d["name"]) if d["scope"] == "topic" else d["name"], d)
                for d in self._policies
            )
            said = ((s, n, last.document) for (s, n), last in self._stream.get(cluster, {}).items())
            self._by_cluster[cluster] = Limits(_limits_of([*own, *said]), "")
        return self._by_cluster[cluster]


def _limits_of(
    documents: Iterable[tuple[str, str, Mapping[str, Any]]],
) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(scope, name): document.get("limits") or {} for scope, name, document in documents}
