"""Broker starts that come out of turn (event contract, 2)."""

from __future__ import annotations

from typing import Any

from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.trace import START_MS, START_NS, play, publish, record

S = 1_000_000_000
LIMIT = '{"scope": "topic", "name": "t/ns/a", "limits": {"publishRateInMsgs": 10}}'


def refused(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, int, int | None]]:
    return sorted(
        (r["reason_code"], r["seq"], r["source_offset"]) for r in rows.get("quarantine", [])
    )


def restarted(ns: int, wall_ms: int, **columns: Any) -> dict[str, Any]:
    """A record of a run whose clock is far behind the old run's."""
    return {
        **publish(0, **columns),
        "ts_mono_ns": START_NS - 5_000 * S + ns,
        "ts_wall_ms": START_MS + wall_ms,
    }


def start(wall_ms: int, seq: int) -> dict[str, Any]:
    return {
        **record("broker_started", 0, seq=seq),
        "ts_mono_ns": START_NS - 5_000 * S,
        "ts_wall_ms": START_MS + wall_ms,
    }


def test_a_start_may_come_after_records_of_its_run_and_before_the_last_of_the_old_one() -> None:
    old = [publish(i * S // 10, seq=i, messages=3) for i in range(20)]
    new = [restarted(i * S // 10, 2_010 + i * 100, seq=30 + i, messages=3) for i in range(20)]
    begin = start(2_000, 29)
    arguments: dict[str, Any] = {"policies": [LIMIT], "drain_ms": 60_000}
    expected = play([[*old, begin, *new]], **arguments)
    assert refused(expected) == []
    for batches in (
        [old, [new[0]], [begin], new[1:]],
        [old[:18], [begin], [old[19]], [old[18], new[0]], new[1:]],
        [old[:18], [new[1]], [new[0]], [begin, old[18]], [old[19]], new[2:]],
    ):
        JOBS["rate_limits"].assert_same(play(batches, **arguments), expected)


def test_a_record_of_the_old_run_after_the_lateness_is_too_late() -> None:
    old = [publish(i * S // 10, seq=i) for i in range(20)]
    new = [restarted(i * S // 10, 2_010 + i * 100, seq=30 + i) for i in range(20)]
    rows = play([old[:19], [start(2_000, 29)], new, [old[19]]], policies=[LIMIT], drain_ms=60_000)
    assert refused(rows) == [("TOO_LATE", 19, 0)]
