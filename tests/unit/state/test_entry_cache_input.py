"""Input that is late, repeated, wrong or extreme, and what stays in the state."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from state.engine.reach import Reach
from state.entry_cache.operator import EntryCache
from state.entry_cache.settings import SIZE_MB, TTL_MS
from tests.unit.state.cache_trace import PARAMS, Row, blob, play
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.entry_cache_input import (
    MS,
    READS,
    TOPIC,
    added,
    cursor,
    limits,
    of_entry,
    read,
    record,
    same,
)
from tests.unit.state.trace import START_MS, START_NS

LARGEST = 2**63 - 1


def reads(rows: dict[str, list[Row]], *names: str) -> list[Any]:
    return [tuple(r[n] for n in names) for r in rows.get("cache_reads", [])]


# -- late and repeated -----------------------------------------------------------------------


def test_kinds_of_other_jobs_move_no_clock() -> None:
    other = {**record("publish", 5000), "topic": TOPIC}
    rows = play([[cursor(0), added(1, 0), other], [read(2, 0)], [added(10_000, 1)]], READS)
    assert "quarantine" not in rows
    assert reads(rows, "position", "hit") == [("1:0", True)]


# -- wrong and strange -----------------------------------------------------------------------


def test_an_entry_larger_than_the_cache_is_evicted_by_its_own_pass() -> None:
    rows = same(
        [cursor(0), added(1, 0, 60), added(2, 1, 5000), read(3, 1)],
        {**READS, "max_bytes": 1000, "policy": "fifo"},
    )
    assert [(r["entry_id"], r["cause"]) for r in rows["cache_evictions"]] == [
        (0, "size"),
        (1, "size"),
        (1, "invalidated"),
    ]
    assert max(r["max_used_bytes"] for r in rows["cache_stats"] if r["topic"] is None) == 5060


def test_a_large_topic_frees_its_share_of_the_bytes_of_the_largest_ones() -> None:
    """Two topics have 700 of 1000 bytes: of 100 too many, c frees 57 and a 43, in entries of 20."""
    topics = [f"persistent://t/ns/{name}" for name in "abc"]
    records = [{**cursor(0), "topic": topic} for topic in topics]
    records += [{**added(1, entry, 20), "topic": topic} for entry in range(15) for topic in topics]
    records += [{**added(2, entry, 20), "topic": topics[2]} for entry in range(15, 20)]
    rows = same(records, {**READS, "max_bytes": 1000, "policy": "proportional"})
    gone = [r["topic"] for r in rows["cache_evictions"] if r["cause"] == "size"]
    assert [gone.count(topic) for topic in topics] == [3, 0, 3]


def test_visits_are_those_of_the_window() -> None:
    entries = [added(1, 0), added(61_000, 1), added(121_000, 2)]
    rows = same([cursor(0), *entries], {**READS, "policy": "fifo"})
    visited = [r["entries_visited"] for r in rows["cache_stats"] if r["topic"] is None]
    assert visited[0] == visited[1] > 0


def test_reads_and_releases_that_nothing_preceded() -> None:
    rows = same(
        [
            of_entry("entry_released", 0, 7),
            read(1, 5),
            read(2, 5, "nobody"),
            of_entry("replay_queued", 3, 9, subscription="nobody"),
            read(4, 9, "nobody"),
            of_entry("entry_released", 5, 5),
            of_entry("entry_invalidated", 6, 77),
            of_entry("entry_invalidated", 7, None),
            of_entry("ledger_deleted", 8, None),
            cursor(9),
            added(10, 3),
            *(of_entry("entry_released", 11 + i, 3) for i in range(4)),
            of_entry("replay_queued", 20, 3, subscription="s"),
            read(21, 3),
        ],
        READS,
    )
    assert reads(rows, "position", "hit", "expected_after", "reader_kind") == [
        ("1:5", False, None, "catch_up"),
        ("1:5", True, None, "catch_up"),
        ("1:9", False, None, "replay"),
        ("1:3", True, -2, "replay"),
    ]


def test_cursors_that_vanish_and_come_back() -> None:
    for policy in ("expected_reads", "fifo", "proportional"):
        same(
            [
                cursor(0, "s"),
                cursor(0, "t"),
                added(1, 0),
                added(2, 1),
                read(3, 0, "s"),
                record("cursor_deleted", 4, subscription="t"),
                read(5, 1, "t"),
                record("cursor_deleted", 6, subscription="t"),
                cursor(7, "t", None),
                added(8, 2),
                record("cursor_deleted", 9, subscription="s"),
                added(10, 3),
                record("cursor_deleted", 11, subscription="t"),
                added(12, 4),
                read(13, 4, "s"),
                cursor(14, "s", "1:2", mark_delete="1:1"),
                cursor(15, "s", None),
            ],
            {**READS, "policy": policy, "grace_ms": 2},
        )


def test_a_broker_restart_empties_every_cache() -> None:
    rows = same(
        [
            cursor(0),
            added(1, 0),
            of_entry("replay_queued", 2, 0, subscription="s"),
            record("broker_started", 3, ts_mono_ns=5),
            read(4, 0, ts_mono_ns=1_000_005),
            cursor(5, ts_mono_ns=2_000_005),
            added(6, 1, ts_mono_ns=3_000_005),
            record("broker_started", 7, ts_mono_ns=-(10**15)),
            read(8, 1, ts_mono_ns=-(10**15) + MS),
        ],
        {**READS, "variants": [{}, {"policy": "proportional"}]},
    )
    assert reads(rows, "hit", "reader_kind") == [(False, "catch_up")] * 4


@pytest.mark.parametrize("policy", ["expected_reads", "expected_reads_stash", "proportional"])
def test_a_long_silence_costs_nothing(policy: str) -> None:
    """Ten billion passes are due before the entries expire."""
    forever = {TTL_MS: 10**11, "managedLedgerCacheEvictionTimeThresholdMillisMax": 10**11}
    records = [cursor(0), added(1, 0), added(2, 1)]
    params = {
        **READS,
        **forever,
        "policy": policy,
        "stats_window_ms": 10**10,
        "idle_advance_ms": 10**14,
        "max_bytes": 1000,
    }
    rows = play([records], params, until_ms=START_MS + 2 * 10**11)
    visited = sum(r["entries_visited"] for r in rows["cache_stats"] if r["topic"] is None)
    # one in each pass before they expire, if the policy does not extend them
    assert visited >= 10**10
    if policy == "expected_reads_stash":
        assert [r["ts_wall_ms"] - START_MS for r in rows["cache_evictions"]] == [
            10**11 + 10,
            10**11 + 10,
        ]


def test_settings_beyond_64_bits_are_cut() -> None:
    records = [
        cursor(0),
        limits(1, **{SIZE_MB: 2**62, TTL_MS: 2**63 - 1}),
        added(2, 0, LARGEST // 4),
        limits(3, managedLedgerCacheEvictionIntervalMs=2**63 - 1),
        added(4, 1),
        read(5, 0),
        limits(6, managedLedgerCacheEvictionWatermark=2.0**63, **{SIZE_MB: 0.0001}),
        added(7, 2),
    ]
    rows = play([records], READS, until_ms=START_MS + 200_000)
    assert reads(rows, "hit") == [(True,)]


def test_both_ends_of_the_clock() -> None:
    for first in (-(2**63), LARGEST - 2_000 * MS):
        records = [
            {**r, "ts_mono_ns": first + r["ts_mono_ns"] - START_NS}
            for r in (cursor(0), added(1, 0), read(2, 0), added(1900, LARGEST // 2 + 1))
        ]
        rows = play([records], READS)
        assert reads(rows, "hit") == [(True,)]


@pytest.mark.parametrize(
    "given",
    [
        {"policy": "fifth"},
        {"policy": "belady"},
        {"duplicate_insert": "both"},
        {"time_pass_pending": "go"},
        {"release_event": "ack"},
        {"variants": [{"policy": "none"}]},
    ],
)
def test_unknown_values_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="allowed: "):
        EntryCache({**PARAMS, **given})


# -- state -----------------------------------------------------------------------------------


def many(entries: int, gap_ms: float = 0.01) -> list[Row]:
    return [cursor(0, "s"), cursor(0, "t"), *(added(1 + i * gap_ms, i) for i in range(entries))]


def test_bytes_of_state_per_entry() -> None:
    states: list[bytes] = []
    play([[*many(20_000), cursor(900)]], {**READS, TTL_MS: 10**6}, states=states)
    small: list[bytes] = []
    play([[*many(10), cursor(900)]], {**READS, TTL_MS: 10**6}, states=small)
    assert (len(states[-1]) - len(small[-1])) / 20_000 < 60


def test_caches_that_come_and_go_between_runs() -> None:
    """One that stays goes on with what it holds, a new one begins empty."""
    stays, goes, comes = {"max_bytes": 1000}, {"policy": "lru"}, {"policy": "fifo"}
    first = EntryCache({**PARAMS, **READS, "variants": [goes, stays]})
    state = first.step(None, [blob([cursor(0), added(1, 0), added(600, 1)])], Reach(0)).state
    second = EntryCache({**PARAMS, **READS, "variants": [comes, stays]})
    more = [read(700, 0), read(701, 0), added(5000, 2)]
    rows = second.step(state, [blob(more)], Reach(0)).tables["cache_reads"].to_pylist()
    assert [(r["policy"], r["hit"]) for r in rows] == [
        ("fifo", False),
        ("expected_reads", True),
        ("fifo", False),
        ("expected_reads", True),
    ]


def test_configuration_that_changes_holds_from_the_clock_on() -> None:
    document = '{"scope": "broker", "name": "*", "limits": {"managedLedgerCacheSizeMB": 0}}'
    first = EntryCache({**PARAMS, **READS}, [document])
    state = first.step(None, [blob([cursor(0), added(1, 0), added(600, 1)])], Reach(0)).state
    second = EntryCache({**PARAMS, **READS})
    more = [read(700, 0), read(701, 0), added(5000, 2)]
    rows = second.step(state, [blob(more)], Reach(0)).tables["cache_reads"].to_pylist()
    assert [(r["max_bytes"], r["hit"]) for r in rows] == [(None, False), (None, True)]


def test_the_shard_asks_to_be_woken_for_windows_and_asked_for_removals() -> None:
    for params, wanted in ((READS, 1010), ({}, 60_000)):
        job = EntryCache({**PARAMS, **params})
        step = job.step(None, [blob([cursor(0), added(1, 0)])], Reach(0))
        assert step.wake_at_ms == START_MS  # both still wait for the clock
        step = job.step(step.state, [], Reach(START_MS + 500))
        assert step.wake_at_ms is not None
        assert abs(step.wake_at_ms - START_MS - wanted) <= 1
        assert not step.tables


def test_rows_are_in_order() -> None:
    rows = JOBS["entry_cache"].in_order(play([many(2000, 1.0)], READS, until_ms=START_MS + 200_000))
    evictions = rows["cache_evictions"]
    assert len(evictions) == 2000
    for before, after in pairwise(evictions):
        if before["ts_mono_ns"] == after["ts_mono_ns"]:
            assert after["row_no"] == before["row_no"] + 1
