"""What tests share of poll."""

from __future__ import annotations

import time
from collections.abc import Collection, Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.config.kafka_groups import KafkaGroupsSettings
from app.sources.kafka.groups_client import GroupsClient
from app.sources.kafka.groups_poll import GroupPoller
from app.sources.kafka.offsets import (
    GroupConsumer,
    GroupMembers,
    Log,
    LogPosition,
    OffsetAnswers,
    Oldest,
    OpenTransaction,
    Place,
)
from app.sources.kafka.transactions import Held
from app.sources.polling import Unanswered
from tests.support.polled import lines
from tests.unit.sources.kafka.answers import AT, answers

__all__ = ["Scripted", "lines", "poller", "settings"]


class Scripted(GroupsClient):
    """Answers what a test says, and keeps what it was asked."""

    def __init__(self) -> None:
        self.now: OffsetAnswers | Unanswered = answers()
        self.asked: list[tuple[set[str], set[str]]] = []
        self.reads: list[list[LogPosition]] = []
        self.stable_now: dict[Place, int] | Unanswered = {}
        self.open_now: dict[Place, OpenTransaction] | Unanswered = {}
        self.held_now: dict[Held, OpenTransaction] | Unanswered = {}
        self.held_asked: list[tuple[set[Held], int]] = []
        self.stable_asked: list[set[Place]] = []
        self.open_asked: list[dict[Place, int]] = []
        self.consumers_now: dict[str, dict[Place, GroupConsumer]] | Unanswered = {}
        self.epochs: dict[str, tuple[int, int]] = {}
        self.consumers_asked: list[set[str]] = []

    def deadline_in(self, seconds: float) -> float:
        return time.monotonic() + seconds

    def close(self) -> None:
        """There is no client."""

    def ask(
        self, topics: Collection[str], groups: Collection[str], deadline: float
    ) -> OffsetAnswers:
        self.asked.append((set(topics), set(groups)))
        if isinstance(self.now, Unanswered):
            raise self.now
        return self.now

    def read(
        self,
        positions: Sequence[LogPosition],
        logs: Mapping[Place, Log],
        deadline: float,
        problems: list[str],
    ) -> dict[LogPosition, Oldest]:
        self.reads.append(list(positions))
        return {p: Oldest(AT - p.offset, 1, 10) for p in positions}

    def members(
        self, groups: Collection[str], share_groups: Container[str], deadline: float
    ) -> tuple[dict[str, GroupMembers], list[str]]:
        self.consumers_asked.append(set(groups))
        if isinstance(self.consumers_now, Unanswered):
            raise self.consumers_now
        there = self.consumers_now.items()
        members = {
            g: GroupMembers(places, *self.epochs.get(g, ())) for g, places in there if g in groups
        }
        return members, []

    def stable(
        self, places: Collection[Place], deadline: float, problems: list[str]
    ) -> dict[Place, int]:
        self.stable_asked.append(set(places))
        if isinstance(self.stable_now, Unanswered):
            raise self.stable_now
        return {p: offset for p, offset in self.stable_now.items() if p in places}

    def open_at(
        self, stable: Mapping[Place, int], deadline: float, problems: list[str]
    ) -> dict[Place, OpenTransaction]:
        self.open_asked.append(dict(stable))
        if isinstance(self.open_now, Unanswered):
            raise self.open_now
        return {p: t for p, t in self.open_now.items() if p in stable}

    def held(
        self,
        stood: Collection[Held],
        before: Mapping[Held, OpenTransaction],
        since_ms: int,
        deadline: float,
        problems: list[str],
    ) -> dict[Held, OpenTransaction]:
        self.held_asked.append((set(stood), since_ms))
        if isinstance(self.held_now, Unanswered):
            raise self.held_now
        return {key: t for key, t in self.held_now.items() if key in stood}


def settings(**keys: Any) -> KafkaGroupsSettings:
    return KafkaGroupsSettings.model_validate(
        {"cluster": "east", "options": {"bootstrap.servers": "h:1"}, "timeout_ms": 1000, **keys}
    )


def poller(
    folder: Path, client: GroupsClient, said: list[str] | None = None, **keys: Any
) -> GroupPoller:
    say = said.append if said is not None else None
    return GroupPoller(settings(**keys), folder, say, client=client)
