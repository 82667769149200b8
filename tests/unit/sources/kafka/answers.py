"""Answers of a small cluster, and what is compared in tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.sources.kafka.offsets import (
    KafkaTopic,
    KnownPartition,
    Log,
    LogPosition,
    MappedOffsets,
    OffsetAnswers,
    OffsetRules,
    Oldest,
    Place,
    map_answers,
)
from tests.support import polled
from tests.unit.sources.pulsar.documents import valid

AT = 1_795_213_060_000
RULES = OffsetRules("east", "k1")
P0, P1 = Place("orders", 0), Place("orders", 1)
WEEK = {"cleanup.policy": "delete", "retention.ms": "604800000", "retention.bytes": "-1"}
Json = dict[str, Any]


def answers(**changes: Any) -> OffsetAnswers:
    """Two partitions of orders; `fast` has read all of both, `slow` is behind in the first."""
    given: Json = {
        "polled_ms": AT,
        "topics": {"orders": KafkaTopic("id1", (0, 1))},
        "committed": {"fast": {P0: 100, P1: 50}, "slow": {P0: 40}},
        "logs": {P0: Log(10, 100), P1: Log(0, 50)},
        "oldest": {LogPosition(P0, 40): Oldest(AT - 9000, 2, 60)},
        "read": {LogPosition(P0, 40): Oldest(AT - 9000, 2, 60)},
        **changes,
    }
    return OffsetAnswers(**given)


def mapped(
    given: OffsetAnswers,
    before: Mapping[Place, KnownPartition] | None = None,
    policies: Mapping[str, Json] | None = None,
    rules: OffsetRules = RULES,
) -> MappedOffsets:
    """The mapping of a poll; its records must be valid and of one time."""
    done = map_answers(given, before or {}, policies or {}, rules)
    done.states = list(done.states)
    valid(records(done))
    assert {record["ts_wall_ms"] for record in records(done)} <= {given.polled_ms}
    return done


def records(done: MappedOffsets) -> list[Json]:
    """All records of a mapping."""
    return [*done.changes, *done.states]


def of_kind(done: MappedOffsets, kind: str, *columns: str) -> list[tuple[Any, ...]]:
    """Columns of the records of a kind."""
    return polled.of_kind(records(done), kind, *columns)


def kinds(done: MappedOffsets) -> list[str]:
    """The kinds of the records in their order."""
    return [record["event_type"] for record in records(done)]
