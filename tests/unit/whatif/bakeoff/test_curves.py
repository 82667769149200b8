"""Every policy at every size: as the job itself counts, and as theory has it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.jobs.entry_cache.whatif.curves import Curve, around
from app.jobs.entry_cache.whatif.trace import read_trace
from state.engine.reach import Reach
from state.entry_cache.belady import compare
from state.entry_cache.declaration import NAME as JOB
from state.entry_cache.operator import EntryCache
from state.entry_cache.outputs import POLICIES
from tests.support.effort import drawn
from tests.unit.state.cache_trace import PARAMS, blob, numbered
from tests.unit.state.trace import START_MS
from tests.unit.whatif.bakeoff.traces import (
    SETTINGS,
    bake_off,
    cache_records,
    generated,
    write_lines,
)

MS = 1_000_000
STATS = {
    "hits": "hits",
    "misses": "misses",
    "hit_bytes": "hit_bytes",
    "storage_bytes": "miss_bytes",
    "evicted_wanted": "evicted_wanted",
    "passes": "passes_size",
}
ONLINE = POLICIES[:-1]
ENTRY = 100


def test_a_bake_off_counts_what_the_job_counts(tmp_path: Path) -> None:
    trace = generated(tmp_path / "events", "cache-key-shared", 12_000)
    size = 8_000
    points = bake_off(trace).points([Curve(policy) for policy in ONLINE], [size])
    counted: dict[str, Counter[str]] = {policy: Counter() for policy in ONLINE}
    params = {
        **SETTINGS.job_params(JOB),
        "storage_reads": "as_broker",
        "variants": [{"policy": policy, "max_bytes": size} for policy in ONLINE],
    }
    job = EntryCache(params)
    for blobs in trace.shards:
        state = None
        for new, stream_ms in ((blobs, 0), ((), trace.latest_ms + 10**6)):
            step = job.step(state, new, Reach(stream_ms))
            state = step.state
            for row in step.tables["cache_stats"].to_pylist():
                if row["topic"] is None:
                    counted[row["policy"]].update({k: row[k] for k in STATS.values()})
    found = {p.curve.policy: {STATS[k]: p.total[k] for k in STATS} for p in points}
    assert found == counted
    assert min(own["hits"] for own in found.values()) > 1000
    assert max(own["misses"] for own in found.values()) > 100
    assert len({own["misses"] for own in found.values()}) == len(ONLINE)


def test_each_broker_has_a_cache_of_its_own(tmp_path: Path) -> None:
    one = cache_records()
    both = [*one, *({**r, "broker": "another"} for r in one)]
    alone = bake_off(read_trace(SETTINGS, write_lines(tmp_path / "one.jsonl", one)))
    together = bake_off(read_trace(SETTINGS, write_lines(tmp_path / "two.jsonl", both)))
    curves, sizes = [Curve("expected_reads"), Curve("belady")], [20_000, 80_000]
    for single, double in zip(
        alone.points(curves, sizes), together.points(curves, sizes), strict=True
    ):
        (own,) = single.brokers.values()
        assert list(double.brokers.values()) == [own, own]
        assert {k: 2 * v for k, v in own.items()} == double.total
        assert single.hit_ratio == double.hit_ratio
    curve = Curve("expected_reads")
    assert together.working_set(curve) == alone.working_set(curve)


# -- what theory says ------------------------------------------------------------------------

Trace = list[dict[str, Any]]


@st.composite
def even_traces(draw: st.DrawFn) -> Trace:
    """Entries of one size on two topics, read in any order, again and again."""
    at, found = 0, []

    def record(kind: str, topic: int, **columns: Any) -> None:
        found.append(
            {
                "event_type": kind,
                "source_feed": "f",
                "cluster": "c",
                "broker": "b",
                "seq": len(found),
                "ts_mono_ns": 10**12 + at * MS,
                "ts_wall_ms": START_MS + at,
                "topic": f"persistent://a/b/{topic}",
                **columns,
            }
        )

    for topic in (0, 1):
        for name in "st"[: draw(st.integers(1, 2))]:
            record("cursor_state", topic, subscription=name, read_pos="1:0", active=True)
    added = [0, 0]
    for _ in range(draw(st.integers(20, 120))):
        at += draw(st.sampled_from((0, 1, 7, 120, 700)))
        topic = draw(st.integers(0, 1))
        entry = {"ledger_id": 1, "entry_bytes": ENTRY}
        if not added[topic] or draw(st.integers(0, 2)) == 0:
            record("entry_added", topic, entry_id=added[topic], **entry)
            added[topic] += 1
        else:
            read = draw(st.integers(max(added[topic] - 6, 0), added[topic] - 1))
            record(
                "entry_read",
                topic,
                subscription=draw(st.sampled_from("st")),
                entry_id=read,
                **entry,
            )
            if draw(st.booleans()):
                record("entry_released", topic, ledger_id=1, entry_id=read)
    return found


def hit_ratios(trace: Trace, policies: tuple[str, ...], sizes: list[int]) -> list[list[float]]:
    variants = [{"policy": p, "max_bytes": size} for p in policies for size in sizes]
    params = {
        **PARAMS,
        "release_event": "entry_released",
        "variants": variants,
        "managedLedgerCacheEvictionWatermark": 0.98,
    }
    rows = compare([blob(numbered(trace))], params, (), START_MS + 10**6)
    ratios = [row["hit_ratio"] or 0.0 for row in rows]
    return [ratios[i : i + len(sizes)] for i in range(0, len(ratios), len(sizes))]


SIZES = [ENTRY * n * 100 // 98 + 2 for n in (1, 2, 3, 5, 8, 13)]
"""Room for so many entries below the trigger."""


@settings(drawn(40), max_examples=40)
@given(even_traces())
def test_no_policy_that_keeps_to_its_size_beats_foresight(trace: Trace) -> None:
    bounded = tuple(policy for policy in POLICIES if policy != "expected_reads_stash")
    *others, best = hit_ratios(trace, bounded, SIZES)
    for policy, own in zip(bounded, others, strict=False):
        assert all(mine <= most for mine, most in zip(own, best, strict=True)), policy


@settings(drawn(40), max_examples=40)
@given(even_traces())
def test_a_larger_lru_cache_finds_all_that_a_smaller_one_finds(trace: Trace) -> None:
    lru, belady = hit_ratios(trace, ("lru", "belady"), SIZES)
    assert lru == sorted(lru)
    assert belady == sorted(belady)


@pytest.mark.parametrize(
    ("working_set", "first"),
    [
        (32_000, 1000),
        (1_234_567, 39_000),
        (1, 1),
        (0, 1),
        (250 << 20, 8_200_000),
    ],
)
def test_sizes_go_from_a_part_of_the_working_set_to_its_double(
    working_set: int, first: int
) -> None:
    assert around(working_set) == [first * 2**i for i in range(7)]
