"""The cache part of a trace: reads follow entries, and policies differ as they should."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import pytest

from app.errors import UserError
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from tests.reference import entry_cache
from tests.support.cache import EVENTS, MANY, SCENARIOS, Record, planned, records, slices

POLICIES = ("expected_reads", "fifo", "proportional")
MS = 1_000_000


def of_kind(scenario: str, kind: str) -> list[Record]:
    """The records of one kind."""
    return [r for r in records(scenario) if r["event_type"] == kind]


def entry_of(r: Record) -> tuple[str, int, int]:
    """Topic and position."""
    return r["topic"], r["ledger_id"], r["entry_id"]


def bytes_per_s(scenario: str) -> float:
    """What the cache would have to take in."""
    spec = planned(scenario).scenario
    return float(sum(r["entry_bytes"] for r in of_kind(scenario, "entry_added")) / spec.active_s)


def hits_of(scenario: str, max_bytes: int | None, events: int = EVENTS) -> dict[str, float]:
    """Hit ratios by policy."""
    spec = planned(scenario).scenario
    rows = entry_cache.bakeoff(
        records(scenario, events),
        {"release_event": "entry_released"},
        [{"policy": policy, "max_bytes": max_bytes} for policy in POLICIES],
        until_ms=spec.start_ms + spec.duration_s * 1000,
    )
    return {row["policy"]: row["hit_ratio"] for row in rows}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_trace_has_as_many_records_of_each_kind_as_it_says(scenario: str) -> None:
    trace = planned(scenario)
    assert trace.cache is not None
    written = sum(part.ends.size for part in slices(scenario))
    assert written == pytest.approx(EVENTS, rel=0.02)
    found = Counter(r["event_type"] for r in records(scenario))
    del found["broker_started"]
    assert found == +trace.cache.planted
    assert sum(found.values()) == trace.cache.records
    assert trace.cache.records == pytest.approx(trace.cache.spec.share * EVENTS, rel=0.02)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_reads_follow_their_entry_and_releases_their_read(scenario: str) -> None:
    open_copies: Counter[tuple[str, int, int]] = Counter()
    sizes: dict[tuple[str, int, int], int] = {}
    for r in sorted(records(scenario), key=lambda r: (r["broker"], r["ts_wall_ms"], r["seq"])):
        kind = r["event_type"]
        if kind == "entry_added":
            assert entry_of(r) not in sizes
            sizes[entry_of(r)] = r["entry_bytes"]
        elif kind == "entry_read":
            assert r["entry_bytes"] == sizes[entry_of(r)]
            open_copies[entry_of(r)] += 1
        elif kind == "entry_released":
            open_copies[entry_of(r)] -= 1
            assert open_copies[entry_of(r)] >= 0


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_readers_take_entries_in_order_and_cursors_tell_the_next_one(scenario: str) -> None:
    """But for replays, and for what a restart of the broker brings again."""
    last: dict[tuple[str, str], tuple[int, int]] = {}
    queued: set[tuple[Any, ...]] = set()
    for r in records(scenario):
        if "subscription" not in r:
            continue
        reader = r["topic"], r["subscription"]
        if r["event_type"] == "replay_queued":
            queued.add((*reader, r["ledger_id"], r["entry_id"]))
        elif r["event_type"] == "cursor_state" and "read_pos" in r:
            ledger, entry = map(int, r["read_pos"].split(":"))
            assert (ledger, entry) > last.get(reader, (0, 0))
        elif r["event_type"] == "entry_read":
            position = r["ledger_id"], r["entry_id"]
            if (*reader, *position) in queued:
                queued.discard((*reader, *position))
                continue
            before = last.get(reader)
            assert before is None or position > before
            assert before is None or position[0] != before[0] or position[1] == before[1] + 1
            last[reader] = position


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_ledgers_are_trimmed_after_their_last_read(scenario: str) -> None:
    gone: set[tuple[str, int]] = set()
    invalidated: set[tuple[str, int]] = set()
    for r in records(scenario):
        ledger = r.get("topic"), r.get("ledger_id")
        if r["event_type"] == "entry_invalidated":
            assert "entry_id" not in r
            invalidated.add(ledger)
        elif r["event_type"] == "ledger_deleted":
            assert ledger in invalidated
            gone.add(ledger)
        elif r["event_type"] in ("entry_added", "entry_read"):
            assert ledger not in gone
    assert gone


def test_delays_are_short_at_the_tail_and_long_after_an_absence() -> None:
    added = {entry_of(r): r["ts_mono_ns"] for r in of_kind("cache-catch-up", "entry_added")}
    delays: dict[str, list[float]] = defaultdict(list)
    down = planned("cache-catch-up").plan.down[0]
    origins = planned("cache-catch-up").fleet.origins
    for r in of_kind("cache-catch-up", "entry_read"):
        since = added[entry_of(r)] - int(origins[0, 0])
        if 0 <= since < down[1] - 2_000 * MS:
            delays[r["subscription"]].append((r["ts_mono_ns"] - added[entry_of(r)]) / MS)
    assert max(delays["tail"]) < 500
    for name, away_ms in (("app-0", 3000), ("app-1", 3000), ("report", 10_000)):
        assert away_ms * 0.7 < max(delays[name]) < away_ms + 1000
        assert sorted(delays[name])[len(delays[name]) // 3] < 1000


def test_cursor_is_inactive_while_nobody_is_connected() -> None:
    states = defaultdict(list)
    for r in of_kind("cache-catch-up", "cursor_state"):
        if r["subscription"] == "report":
            states[r["topic"]].append(r["active"])
    assert len(states) == 4
    assert all(own.count(False) == 2 for own in states.values())
    assert all(own[own.index(False) + 1] for own in states.values())


def test_broker_comes_back_with_all_cursors_and_new_ledgers() -> None:
    trace = planned("cache-catch-up")
    ((_, down, up),) = trace.plan.down
    start = trace.scenario.start_ms
    before, after = [], []
    for r in records("cache-catch-up"):
        (before if r["ts_wall_ms"] < start + up // MS else after).append(r)
    assert not [r for r in before if r["ts_wall_ms"] >= start + down // MS]
    first = next(i for i, r in enumerate(after) if r["event_type"] == "entry_added")
    told = {(r["topic"], r["subscription"]) for r in after if r["event_type"] == "cursor_state"}
    assert after[0]["event_type"] == "broker_started"
    assert len(told) == 16
    assert {r["ledger_id"] for r in after[first:] if r["event_type"] == "entry_added"}.isdisjoint(
        {r["ledger_id"] for r in before if r["event_type"] == "entry_added"}
    )


def test_replays_come_after_a_release_and_are_read_later() -> None:
    replays = of_kind("cache-key-shared", "replay_queued")
    share = len(replays) / len(of_kind("cache-key-shared", "entry_added"))
    assert 0.05 < share < 0.25
    reads: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for r in of_kind("cache-key-shared", "entry_read"):
        reads[(*entry_of(r), r["subscription"])].append(r["ts_wall_ms"])
    for r in replays:
        own = reads[(*entry_of(r), r["subscription"])]
        assert own[0] <= r["ts_wall_ms"] <= own[-1]
    later = [own[1] - own[0] for own in reads.values() if len(own) == 2]
    assert max(later) > 1500 and sorted(later)[len(later) // 2] > 200
    assert {r["subscription"] for r in replays} == {"workers"}


def test_rolling_restart_is_the_published_one_at_another_rate() -> None:
    trace = planned("cache-rolling-restart")
    assert trace.cache is not None
    spec = trace.cache.spec
    added = of_kind("cache-rolling-restart", "entry_added")
    assert {r["entry_bytes"] for r in added} == {8192}
    assert {r["topic"] for r in added} == {
        f"persistent://shop/restart/rolling-partition-{p}" for p in range(10)
    }
    assert len({r["subscription"] for r in of_kind("cache-rolling-restart", "entry_read")}) == 10
    assert spec.scale is not None and trace.cache.max_bytes is not None
    seconds = trace.cache.max_bytes / (trace.cache.entries_per_s * 8192)
    assert seconds == pytest.approx(250 * 2**20 / (12_500 * 8192), rel=0.01)
    assert spec.readers["sub"].lag_ms[1] / 1000 * 12_500 == 50_000  # its part of what is in flight
    more = planned("cache-rolling-restart", MANY).cache
    assert more is not None and more.max_bytes is not None
    assert more.max_bytes > 1.5 * trace.cache.max_bytes
    restarts = trace.scenario.incidents
    assert [i.at_s - restarts[0].at_s for i in restarts] == [0, 7.5, 15]
    assert len({r["broker"] for r in added}) == len({i.broker for i in restarts}) == 2


def test_rolling_restart_ranks_the_policies_as_published() -> None:
    trace = planned("cache-rolling-restart", MANY)
    assert trace.cache is not None
    found = hits_of("cache-rolling-restart", trace.cache.max_bytes, MANY)
    assert found["expected_reads"] > 0.95
    assert found["expected_reads"] > found["fifo"] + 0.15  # 98.4 and 76.85 % were published
    assert found["expected_reads"] > found["proportional"] + 0.1


@pytest.mark.parametrize(
    ("scenario", "seconds", "gain"),
    [
        ("cache-key-shared", 1.5, 0.05),
        ("cache-catch-up", 4, 0.005),
    ],
)
def test_expected_reads_find_more_than_other_policies(
    scenario: str, seconds: float, gain: float
) -> None:
    found = hits_of(scenario, int(bytes_per_s(scenario) * seconds))
    assert found["expected_reads"] > max(found["fifo"], found["proportional"]) + gain


def test_replays_are_hits_with_expected_reads_only() -> None:
    spec = planned("cache-key-shared").scenario
    size = int(bytes_per_s("cache-key-shared") * 4)
    rows = entry_cache.judge(
        records("cache-key-shared"),
        {
            "release_event": "entry_released",
            "extra_outputs": ["cache_reads"],
            "variants": [{"policy": p, "max_bytes": size} for p in ("expected_reads", "fifo")],
        },
        until_ms=spec.start_ms + spec.duration_s * 1000,
    )["cache_reads"]
    hits = Counter((r["policy"], r["hit"]) for r in rows if r["reader_kind"] == "replay")
    assert hits["expected_reads", True] > 0.95 * (hits["fifo", True] + hits["fifo", False])
    assert hits["fifo", True] < 0.2 * hits["fifo", False]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_least_number_of_events_is_enough(scenario: str) -> None:
    with pytest.raises(UserError, match=r"needs at least \d+") as refused:
        plan_trace(load_scenario(scenario), 100, 7)
    least = int(str(refused.value).rsplit(" ", 1)[1])
    plan_trace(load_scenario(scenario), least + 50, 7)
