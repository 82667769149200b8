"""Samples of a trace: whole entries, and nearly the hit ratios of all entries."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from app.whatif.bakeoff.curves import LEAST_ENTRIES, Curve, around, measured
from app.whatif.bakeoff.sampling import OF_ENTRIES, sampled
from app.whatif.bakeoff.trace import Trace, read_trace
from state.engine.blobs import Blob
from state.entry_cache.layout import POLICIES
from tests.unit.whatif.bakeoff.traces import (
    SETTINGS,
    bake_off,
    cache_records,
    generated,
    write_lines,
)

RATE = 0.1


def rows_of(blob: bytes) -> list[dict[str, Any]]:
    return Blob(blob).table().to_pylist()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """A trace whose caches hold thousands of entries."""
    return generated(tmp_path_factory.mktemp("large") / "events", "cache-fan-out", 300_000)


def test_a_sample_has_an_entry_with_all_that_happens_to_it_or_not_at_all(tmp_path: Path) -> None:
    trace = read_trace(SETTINGS, write_lines(tmp_path / "t.jsonl", cache_records()))
    (blobs,) = trace.shards
    whole = [row for blob in blobs for row in rows_of(blob)]
    by_entry: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    others = []
    for row in whole:
        if row["event_type"] in OF_ENTRIES and row["entry_id"] is not None:
            by_entry[row["topic"], row["ledger_id"], row["entry_id"]].append(row)
        else:
            others.append(row)
    parts = [
        [row for blob in blobs for row in rows_of(sampled(blob, 0.25, start))]
        for start in (0, 0.25, 0.5, 0.75)
    ]
    assert sum(map(len, parts)) == len(whole) + 3 * len(others)
    for part in parts:
        kept: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        rest = []
        for row in part:
            place = row["topic"], row["ledger_id"], row["entry_id"]
            (kept[place] if place in by_entry else rest).append(row)
        assert rest == others
        assert all(rows == by_entry[place] for place, rows in kept.items())
        assert len(kept) == pytest.approx(len(by_entry) / 4, rel=0.25)


def test_a_smaller_sample_is_part_of_a_larger_one(large: Trace) -> None:
    counts = [large.sample(rate).counts["entry_added"] for rate in (0.01, 0.1, 1.0)]
    assert counts[2] == large.counts["entry_added"]
    assert counts[1] == pytest.approx(0.1 * counts[2], rel=0.1)
    first, second = (large.sample(rate).shards[0][0] for rate in (0.01, 0.1))
    offsets = [{row["source_offset"] for row in rows_of(blob)} for blob in (first, second)]
    assert offsets[0] < offsets[1]


def test_sampled_hit_ratios_are_near_the_exact_ones(large: Trace) -> None:
    off = bake_off(large)
    curves = [Curve(policy) for policy in POLICIES]
    sizes = around(off.working_set(curves[0], RATE))
    estimated, exact = off.curves(curves, sizes, RATE), off.exact(curves, sizes)
    points, error = measured(estimated, exact)
    assert {p.rate for p in estimated if p.max_bytes == sizes[-1]} == {RATE}
    assert {p.rate for p in estimated if p.max_bytes == sizes[0]} == {1.0}
    assert 0 < error < 0.02
    by_place = {(p.curve, p.max_bytes): p for p in exact}
    off_by = [abs(p.hit_ratio - by_place[p.curve, p.max_bytes].hit_ratio) for p in estimated]
    assert max(off_by) == error and sum(off_by) / len(off_by) < 0.003
    assert points == [by_place[p.curve, p.max_bytes] for p in estimated]
    for point in estimated:
        known = by_place[point.curve, point.max_bytes].total
        assert point.total["hits"] + point.total["misses"] == pytest.approx(
            known["hits"] + known["misses"], rel=0.01
        )
        read = known["hit_bytes"] + known["storage_bytes"]
        assert abs(point.total["storage_bytes"] - known["storage_bytes"]) < 0.02 * read


def test_an_error_is_that_of_its_own_curve(large: Trace) -> None:
    off = bake_off(large)
    curves = [Curve("fifo"), Curve("lru")]
    sizes = around(off.working_set(Curve("expected_reads"), RATE))[-3:]
    estimated = off.curves(curves, sizes, RATE)
    exact = off.exact(curves, sizes[:1])
    points, error = measured(estimated, exact)
    errors = [abs(a.hit_ratio - b.hit_ratio) for a, b in zip(estimated[::3], exact, strict=True)]
    assert [p.error for p in points] == [None, errors[0], errors[0], None, errors[1], errors[1]]
    assert error == max(errors)
    assert [p.rate for p in points] == [1.0, 2 * RATE, RATE] * 2


def test_a_small_cache_gets_a_larger_sample(large: Trace) -> None:
    off = bake_off(large)
    entry = sum(r["entry_bytes"] for r in rows_of(large.shards[0][0]) if r["entry_bytes"]) / sum(
        1 for r in rows_of(large.shards[0][0]) if r["entry_bytes"]
    )
    enough = round(1.2 * LEAST_ENTRIES * entry)
    assert off.rate_of(enough, 0.1) == 1.0
    assert off.rate_of(3 * enough, 0.1) == 0.4
    assert off.rate_of(10 * enough, 0.1) == 0.1
