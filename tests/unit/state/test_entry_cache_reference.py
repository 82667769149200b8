"""The reference of entry_cache against its vectors, Pulsar's classes, and random traces."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given

from tests.reference.entry_cache import (
    BY_CURSOR,
    MAX_TIMES,
    NS_PER_MS,
    RECENT,
    REQUEUES,
    SIZE_MB,
    STASHES,
    TABLES,
    Broker,
    Cache,
    Entry,
    Row,
    Settings,
    bakeoff,
    judge,
    play,
)
from tests.reference.words import words
from tests.support.effort import drawn
from tests.unit.state.cache_traces import POLICIES, Trace, traces
from tests.unit.state.entry_cache_input import (
    READS,
    TOPIC,
    added,
    cursor,
    limits,
    of_entry,
    read,
    record,
)
from tests.unit.state.trace import START_MS, START_NS

random_traces = drawn(60)


# -- whole traces ----------------------------------------------------------------------------

EVERY_ROW = {"extra_outputs": ("cache_evictions", "cache_reads")}


def reads(rows: dict[str, list[Row]], *names: str) -> list[Any]:
    return [tuple(r[n] for n in names) for r in rows["cache_reads"]]


def gone(rows: dict[str, list[Row]]) -> list[tuple[int, str, float]]:
    """Entry, rule and time in ms of every removal."""
    return [
        (r["entry_id"], r["rule"], (r["ts_mono_ns"] - START_NS) / NS_PER_MS)
        for r in rows["cache_evictions"]
    ]


def test_an_unread_entry_lives_as_long_as_its_budget_lets() -> None:
    rows = judge([cursor(0), added(5, 0)], READS, until_ms=START_MS + 60_000)
    # inserted at 5, extended by the passes at 1010, 2010 ... 5010
    assert gone(rows) == [(0, "time+extended_out", 6010.000001)]
    eviction = rows["cache_evictions"][0]
    assert eviction["expected_remaining"] == 1
    assert eviction["requeue_count"] == 5
    assert eviction["age_ns"] == 6005 * NS_PER_MS + 1
    (whole, topic) = rows["cache_stats"]
    assert whole["topic"] is None and topic["topic"] == TOPIC
    assert (whole["extended"], whole["evicted_time"], whole["evicted_wanted"]) == (5, 1, 1)
    # one entry to look at in each pass from 10 to 6010 ms
    assert whole["entries_visited"] == 601 + 5
    assert topic["entries_visited"] is topic["passes_size"] is topic["max_used_bytes"] is None


def test_readers_who_come_late_find_what_is_expected_of_them() -> None:
    records = [
        cursor(0, "s"),
        cursor(0, "t"),
        cursor(0, "u", active=False),
        added(1, 0),
        read(2, 0),
        of_entry("entry_released", 3, 0),
        of_entry("replay_queued", 4, 0, subscription="s"),
        read(1500, 0, "t"),
        of_entry("entry_released", 1501, 0),
        read(1600, 0, "s"),
        of_entry("entry_released", 1601, 0),
        read(20_000, 0, "t"),
        read(20_000, 1, "s"),
        read(20_001, 0, "nobody"),
        read(20_002, 0, "u"),
    ]
    assert reads(judge(records, READS), "subscription", "hit", "expected_after", "reader_kind") == [
        ("s", True, 2, "tail"),
        ("t", True, 2, "tail"),
        ("s", True, 1, "replay"),
        # both stand at 1:1, then s reads on
        ("t", False, 2, "tail"),
        ("s", False, 2, "tail"),
        ("nobody", True, 2, "tail"),
        ("u", True, 2, "tail"),
    ]


def test_dispatch_is_read_and_release() -> None:
    sent = record("dispatch", 2, ledger_id=1, entry_id=0, entry_bytes=7, subscription="s")
    records = [
        cursor(0, "s"),
        cursor(0, "t"),
        added(1, 0),
        sent,
        read(3, 0),
        of_entry("entry_released", 4, 0),
    ]
    assert reads(judge(records, EVERY_ROW), "position", "hit", "expected_after") == [
        ("1:0", True, 1)
    ]
    sent = {**sent, "entry_bytes": None, "entry_id": 5}
    rows = judge([cursor(0), sent], EVERY_ROW, until_ms=START_MS + 60_000)
    assert reads(rows, "hit", "expected_after") == [(False, None)]
    assert rows["cache_stats"][0]["inserted"] == 0


def test_nothing_is_cached_without_active_cursors_or_with_size_0() -> None:
    records = [cursor(0), cursor(1, active=False), added(6, 0), read(7, 0)]
    assert reads(judge(records, READS), "hit", "expected_after") == [(False, None)]
    late = {**READS, "grace_ms": 6}
    assert reads(judge(records, late), "hit", "expected_after") == [(True, None)]
    late["grace_ms"] = 5
    assert reads(judge(records, late), "hit") == [(False,)]
    records = [
        cursor(0),
        added(1, 0),
        read(2, 0),
        limits(3, **{SIZE_MB: 0}),
        read(4, 0),
        added(5, 1),
        read(20, 0),
        read(21, 0),
    ]
    rows = judge(records, READS)
    assert reads(rows, "hit", "max_bytes") == [(True, None), (True, 0), (False, 0), (False, 0)]
    assert gone(rows) == [(0, "size+extended_out", 10.000001)]


def test_a_restart_empties_caches_and_forgets_cursors() -> None:
    records = [
        cursor(0),
        added(1, 0),
        record("broker_started", 2, ts_mono_ns=START_NS + 5),
        read(3, 0, ts_mono_ns=START_NS + 1_000_005),
        added(4, 1, ts_mono_ns=START_NS + 2_000_005),
        read(5, 1, ts_mono_ns=START_NS + 3_000_005),
    ]
    rows = judge(records, READS, until_ms=START_MS + 60_000)
    assert reads(rows, "hit", "expected_after", "reader_kind") == [
        (False, None, "catch_up"),
        (False, None, "tail"),
    ]
    # passes are due from the start on
    assert [t for _, _, t in gone(rows)] == [pytest.approx(1010.000006)] * 2
    assert rows["cache_stats"][0]["inserted"] == 3


def test_cursors_take_entries_from_baselines_only() -> None:
    variants = [{"policy": p} for p in (*POLICIES, "belady")]
    records = [
        cursor(0, "s"),
        cursor(0, "t"),
        added(1, 0),
        added(1, 1),
        read(2, 0, "s"),
        read(3, 0, "t"),
        record("cursor_deleted", 4, subscription="t"),
        read(5, 1, "s"),
    ]
    rows = judge(records, {**READS, "variants": variants})
    found = defaultdict(list)
    for r in rows["cache_evictions"]:
        found[r["policy"]].append(
            (r["entry_id"], r["rule"], (r["ts_mono_ns"] - START_NS) // NS_PER_MS)
        )
    assert found == {policy: [(0, "invalidated", 3), (1, "invalidated", 5)] for policy in BY_CURSOR}
    marked = [
        cursor(0, mark_delete="1:-1"),
        added(1, 0),
        added(1, 1),
        read(2, 0),
        cursor(3, read_pos="1:1", mark_delete="1:0"),
        cursor(4, active=False),
    ]
    params = {**READS, "policy": "fifo", "cacheEvictionByMarkDeletedPosition": True}
    assert gone(judge(marked, params)) == [
        (0, "invalidated", 3),
        (1, "invalidated+never_wanted", 4),
    ]


def test_shares_of_the_proportional_policy() -> None:
    cache = Cache(Settings(policy="proportional", max_bytes=1000))
    for topic, sizes in (("b", (100, 100, 100)), ("a", (100, 200)), ("c", (270, 30)), ("d", (50,))):
        for i, size in enumerate(sizes):
            cache.insert(topic, (1, i), size, 0, i)
    # 950 bytes: a and b (300 each, ties by name) cover more than half of it
    assert cache.used == 950 and not cache.removed
    cache.insert("d", (1, 1), 50, 0, 9)
    assert [(r.entry.topic, r.entry.position[1]) for r in cache.removed] == [("a", 0), ("b", 0)]
    assert cache.passes_size == 1 and cache.entries_visited == 2


def test_the_retention_settings_may_not_reach_the_cache_at_start() -> None:
    configured = [json.dumps({"scope": "broker", "name": "*", "limits": {MAX_TIMES: 0}})]
    records = [cursor(0), added(0, 0)]
    end = START_MS + 60_000
    assert gone(judge(records, READS, configured, end)) == [(0, "time+unread", 1000.000001)]
    params = {**READS, "settings_applied_at_start": False}
    assert gone(judge(records, params, configured, end)) == [(0, "time+extended_out", 6000.000001)]
    records.insert(0, limits(0, **{MAX_TIMES: 1, RECENT: False}))
    assert gone(judge(records, params, configured, end)) == [(0, "time+extended_out", 2000.000001)]
    params["variants"] = [{MAX_TIMES: 3}, {MAX_TIMES: 3, "settings_applied_at_start": True}]
    assert [t for _, _, t in gone(judge(records, params, configured, end))] == [
        2000.000001,
        4000.000001,
    ]


# -- random traces ---------------------------------------------------------------------------


def rows_of(trace: Trace, **changed: Any) -> dict[str, list[Row]]:
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    return judge(trace.records, {**trace.params, **changed}, trace.configured, until)


def without(rows: list[Row], *names: str) -> list[Row]:
    return [{k: v for k, v in row.items() if k not in names} for row in rows]


@random_traces
@given(traces())
def test_the_cache_is_within_its_trigger_after_every_check(trace: Trace) -> None:
    with pytest.MonkeyPatch.context() as patch:
        check, remove = Cache.check_size, Cache._remove

        def checked(self: Cache, now: int, stamp: int | None = None) -> None:
            before, topics = self.used, len(self.topics)
            need = self.settings.need(before)
            check(self, now, stamp)
            s = self.settings
            if s.policy == "proportional":
                # asks the largest topics, once; their shares are cut to whole bytes
                assert before - self.used >= min(need, before // 2) - topics
            elif s.policy != STASHES and s.trigger is not None and s.goal is not None:
                assert self.used <= max(s.trigger, s.goal)

        def removed(self: Cache, entry: Entry, cause: str) -> int:
            if self.settings.policy == REQUEUES and cause != "invalidated":
                assert not entry.is_wanted or entry.requeue_count >= self.settings.max_requeue
            size = remove(self, entry, cause)
            assert self.used == sum(e.bytes for e in self.entries)
            assert sorted(map(id, self.entries)) == sorted(map(id, [*self.queue, *self.stash]))
            return size

        patch.setattr(Cache, "check_size", checked)
        patch.setattr(Cache, "_remove", removed)
        rows_of(trace)


@random_traces
@given(traces())
def test_the_queue_is_in_the_order_of_its_stamps(trace: Trace) -> None:
    def watch(b: Broker) -> None:
        for cache in b.caches:
            stamps = [e.ts for e in [*cache.stash, *cache.queue]]
            assert stamps == sorted(stamps)

    play(trace.records, trace.params, trace.configured, trace.end_ms, watch)


@random_traces
@given(traces())
def test_counts_add_up(trace: Trace) -> None:
    rows = rows_of(trace)
    whole = [r for r in rows["cache_stats"] if r["topic"] is None]
    topics = [r for r in rows["cache_stats"] if r["topic"] is not None]
    summed = words(
        "hits misses hit_bytes miss_bytes inserted evicted_time evicted_size invalidated"
        " evicted_wanted extended stashed entries used_bytes wanted_bytes non_evictable_bytes"
    )
    for name in summed:
        assert sum(r[name] for r in whole) == sum(r[name] for r in topics)
    if all(r["ts_wall_ms"] is not None for r in trace.records):
        # else the last window may be open: the stream's wall time says nothing to the key
        seen = rows["cache_reads"]
        assert sum(r["hits"] for r in whole) == sum(r["hit"] is True for r in seen)
        assert sum(r["misses"] for r in whole) == sum(r["hit"] is False for r in seen)
        unknown = sum(r["unknown_reads"] or 0 for r in whole)
        assert unknown == sum(r["hit"] is None for r in seen)
        left = sum(r["evicted_time"] + r["evicted_size"] + r["invalidated"] for r in whole)
        # an entry may go in the window that is open at the end
        until = trace.end_ms + 2 * trace.params["stats_window_ms"]
        ended = until - until % trace.params["stats_window_ms"]
        gone = [r for r in rows["cache_evictions"] if r["ts_wall_ms"] < ended]
        assert left == len(gone) <= sum(r["inserted"] for r in whole)
    for r in whole:
        assert r["wanted_bytes"] <= r["non_evictable_bytes"] <= r["used_bytes"]
        assert r["used_bytes"] <= r["max_used_bytes"]
        assert r["hit_ratio"] is None or 0 <= r["hit_ratio"] <= 1


@random_traces
@given(traces())
def test_variants_do_not_see_each_other(trace: Trace) -> None:
    together = rows_of(trace)
    apart: dict[str, list[Row]] = {table: [] for table in TABLES}
    for variant in trace.params["variants"] or [{}]:
        for table, found in rows_of(trace, variants=[variant]).items():
            apart[table].extend(found)
    for table in TABLES:
        assert sorted(map(str, without(together[table], "row_no"))) == sorted(
            map(str, without(apart[table], "row_no"))
        )


@random_traces
@given(traces())
def test_stash_and_requeue_agree_without_expected_reads(trace: Trace) -> None:
    """Cursors are there for a moment before the trace; what is added in the grace after it, and
    what is read by inactive cursors, has no counter."""
    records: list[dict[str, Any]] = []
    known: set[tuple[str, str | None]] = set()
    for r in trace.records:
        if r["event_type"] == "broker_started":
            known = {k for k in known if k[0] != r["broker"]}
        place = r["broker"], r.get("topic")
        if r["event_type"] == "cursor_state" and place not in known:
            known.add(place)
            start = {**r, "active": True, "seq": None}
            records += [start, {**start, "event_type": "cursor_deleted"}]
        records.append({**r, "active": False} if r["event_type"] == "cursor_state" else r)
    found = []
    for policy in (REQUEUES, STASHES):
        variant = {
            **{k: v for k, v in trace.params.items() if k not in ("policy", "variants")},
            "policy": policy,
            "extend_recently_accessed": False,
            "grace_ms": 10**9,
            "settings_applied_at_start": True,
            "max_bytes": 300,
        }
        rows = judge(records, {**trace.params, "variants": [variant]}, trace.configured)
        assert all(r["expected_remaining"] is None for r in rows["cache_evictions"])
        found.append({table: without(rows[table], "policy", "switches") for table in TABLES})
    assert found[0] == found[1]


@random_traces
@given(traces(plain=True))
def test_no_policy_has_more_hits_than_the_optimum(trace: Trace) -> None:
    """Entries of one size: with mixed sizes the farthest next read is only a heuristic."""
    size = trace.params.get("max_bytes", 1000)
    # a wanted entry makes the stash policy exceed its size
    others = [{"policy": p, "max_bytes": size} for p in POLICIES if p != STASHES]
    variants = [{"policy": "belady", "max_bytes": size}, *others]
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    best, *rest = bakeoff(trace.records, trace.params, variants, until_ms=until)
    for row in rest:
        assert row["hits"] + row["misses"] == best["hits"] + best["misses"]
        assert row["hits"] <= best["hits"]
