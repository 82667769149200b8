"""Queries a Kafka cluster for the states of its producers (KIP-664), with a deadline for every wait.

A missing answer costs its topic or partition alone, and comes first in the next poll.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence

from app.sources.kafka.kafka_client import KafkaClient
from app.sources.kafka.offsets import Place
from app.sources.kafka.producer_owners import Grant
from app.sources.kafka.producer_states import IdState
from app.sources.kafka.transactions import Coordinated, coordinated
from app.sources.turns import Turns


class ProducersClient:
    """Requests to one cluster, one poll after the other."""

    def __init__(
        self,
        options: Mapping[str, str],
        timeout_ms: int,
        stopping: threading.Event | None = None,
    ) -> None:
        """`options` are the client's own, secrets put in."""
        self._client = KafkaClient(options, timeout_ms, stopping=stopping)
        self._turns = Turns()

    def names(self, deadline: float) -> frozenset[str]:
        """All topics of the cluster, internal ones included; Unanswered without them."""
        return self._client.names(deadline)

    def leaders(
        self, topics: Collection[str], deadline: float, problems: list[str]
    ) -> dict[str, dict[int, str | None]]:
        """By topic and partition the id of the leading broker; what is missing is in `problems`."""
        names = sorted(topics)
        found = self._client.topics(names, deadline).result(deadline).of(names, "topic", problems)
        return {name: dict(leaders) for name, (_, leaders) in found.items()}

    def states(
        self, places: Sequence[Place], deadline: float, problems: list[str]
    ) -> dict[Place, list[IdState]]:
        """By partition the states of its leader; what is missing is in `problems`."""
        asked = self._turns.sorted(places)
        answered = self._client.producers(asked, deadline).result(deadline)
        found = answered.of(asked, "partition", problems)
        self._turns.end(found, asked)
        return {place: [IdState(*state) for state in states] for place, states in found.items()}

    def coordinated(self, ids: Collection[int], deadline: float) -> dict[int, Coordinated]:
        """By producer id what coordinators know of some of them; Unanswered where one does not answer."""
        return coordinated(self._client, ids, deadline)

    def grants(self, deadline: float) -> list[Grant]:
        """Who may write to which topics, by the cluster's ACLs; Unanswered without them."""
        return grants_of(self._client.acls(deadline))

    def close(self) -> None:
        """End the client."""
        self._client.close()


def grants_of(acls: Iterable[Sequence[str]]) -> list[Grant]:
    """The permissions to write in the ACLs of topics; deny rules are not asked for."""
    granted = [Grant(*acl) for acl in acls]
    return [each for each in granted if each.operation in ("WRITE", "ALL")]
