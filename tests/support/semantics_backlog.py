"""What tests share of semantics backlog."""

from __future__ import annotations

from typing import Any

from tests.unit.state.backlog_trace import (
    EVICTION,
    T0,
    TOPIC,
    created,
    cursor,
    document,
    ledger,
    numbered,
    play,
    policy,
    quota,
)

PRECISE = "preciseTimeBasedBacklogQuotaCheck"
Rows = dict[str, list[dict[str, Any]]]


def at(second: float) -> int:
    """Milliseconds after the start."""
    return int(second * 1000)


def stands(
    second: float, name: str, mark_delete: str, since: int | None = None, **columns: Any
) -> dict[str, Any]:
    """A cursor; `since` is the second at which the first message after it was published."""
    published = None if since is None else T0 + at(since)
    return cursor(at(second), name, mark_delete, publish_time_ms=published, **columns)


BEGIN = [
    created(at(0), 1),
    ledger(at(0), 1, 100, 10_000, T0 - at(300)),
    ledger(at(0), 2, 100, 20_000, T0 - at(60)),
    ledger(at(0), 3, 10, 5_000),
    stands(0, "billing", "1:49", -500),
    stands(0, "audit", "3:4", -10),
    stands(0, "tail", "1:-1", -600, durable=False),
]
FEED = numbered(
    [
        *BEGIN,
        ledger(at(30), 3, 30, 15_000),
        created(at(70), 2),
        stands(100, "billing", "1:99", -290),
        stands(100, "audit", "3:9", 20),
        stands(150, "billing", "3:4", 10),
        policy(at(200), "topic", TOPIC, **quota(8_000, 900, EVICTION)),
        stands(350, "billing", "3:29"),
        stands(350, "audit", "3:29"),
        ledger(at(480), 3, 30, 15_000),
    ]
)


def example(
    limits: dict[str, Any] | None = None, more: list[dict[str, Any]] | None = None, **params: Any
) -> Rows:
    """The feed, or that of the tests which add records to it, with the quota of its namespace."""
    feed = FEED if more is None else numbered(sorted([*more, *FEED], key=lambda r: r["ts_wall_ms"]))
    limits = quota(40_000, 900) if limits is None else limits
    return play([feed], params, [document("namespace", "t/a", **limits)], T0 + at(480))
