"""What comes too late or twice, and broker starts that come out of turn (event contract, 2)."""

from __future__ import annotations

from typing import Any

from tests.state.test_reference import sorted_rows
from tests.state.trace import START_MS, START_NS, play, publish, record

S = 1_000_000_000
LIMIT = '{"scope": "topic", "name": "t/ns/a", "limits": {"publishRateInMsgs": 10}}'


def refused(rows: dict[str, list[dict[str, Any]]]) -> list[tuple[str, int, int | None]]:
    return sorted(
        (r["reason_code"], r["seq"], r["source_offset"]) for r in rows.get("quarantine", [])
    )


def times(rows: dict[str, list[dict[str, Any]]]) -> list[int]:
    return [r["ts_mono_ns"] - START_NS for r in rows["publish_verdicts"]]


def test_a_record_before_the_clock_is_too_late_and_one_at_the_clock_is_not() -> None:
    rows = play(
        [[publish(10 * S, seq=1)], [publish(9_500_000_000, seq=2), publish(9_499_999_999, seq=3)]],
        policies=[LIMIT], drain_ms=60_000,
    )
    assert times(rows) == [9_500_000_000, 10 * S]
    (row,) = rows["quarantine"]
    assert row == {
        "reason_code": "TOO_LATE", "detail": "1 ms before the clock of its key",
        "job": "rate_limits", "source_feed": "contract", "cluster": "c", "broker": "b1", "seq": 3,
        "ts_wall_ms": START_MS + 9_499, "source_partition": "0", "source_offset": 1, "raw": None,
        "ingest_ms": 1_767_621_600_000,
    }


def test_within_one_batch_nothing_is_too_late() -> None:
    rows = play(
        [[publish(10 * S, seq=1), publish(0, seq=2)]], policies=[LIMIT], drain_ms=60_000
    )
    assert times(rows) == [0, 10 * S]
    assert refused(rows) == []


def test_the_stream_closes_a_silent_key() -> None:
    other = {**publish(30 * S, seq=1), "broker": "b2"}
    rows = play(
        [[publish(0, seq=1)], [other], [publish(19 * S, seq=2), publish(21 * S, seq=3)]],
        policies=[LIMIT], drain_ms=60_000,
    )
    assert refused(rows) == [("TOO_LATE", 2, 0)]


def test_a_repeated_record_is_a_duplicate_while_it_waits_and_too_late_behind_the_clock() -> None:
    once, later = publish(S, seq=1), publish(2 * S, seq=2)
    rows = play([[once, once], [once], [later], [once]], policies=[LIMIT], drain_ms=60_000)
    assert times(rows) == [S, 2 * S]
    assert refused(rows) == [("DUPLICATE_RECORD", 1, 0), ("DUPLICATE_RECORD", 1, 1),
                             ("TOO_LATE", 1, 0)]


def test_one_seq_at_two_times_or_of_two_feeds_or_none_is_no_duplicate() -> None:
    same = publish(S)
    rows = play(
        [[publish(S, seq=1), publish(S + 1, seq=1), same, same,
          {**publish(S, seq=1), "source_feed": "pulsar_interceptor"}]],
        policies=[LIMIT], drain_ms=60_000,
    )
    assert times(rows) == [S, S, S, S, S + 1]
    assert refused(rows) == []


def restarted(ns: int, wall_ms: int, **columns: Any) -> dict[str, Any]:
    """A record of a run whose clock is far behind the old run's."""
    return {
        **publish(0, **columns), "ts_mono_ns": START_NS - 5_000 * S + ns,
        "ts_wall_ms": START_MS + wall_ms,
    }


def start(wall_ms: int, seq: int) -> dict[str, Any]:
    return {
        **record("broker_started", 0, seq=seq), "ts_mono_ns": START_NS - 5_000 * S,
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
        assert sorted_rows(play(batches, **arguments)) == sorted_rows(expected)


def test_a_record_of_the_old_run_after_the_lateness_is_too_late() -> None:
    old = [publish(i * S // 10, seq=i) for i in range(20)]
    new = [restarted(i * S // 10, 2_010 + i * 100, seq=30 + i) for i in range(20)]
    rows = play(
        [old[:19], [start(2_000, 29)], new, [old[19]]], policies=[LIMIT], drain_ms=60_000
    )
    assert refused(rows) == [("TOO_LATE", 19, 0)]
