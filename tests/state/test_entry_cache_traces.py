"""Whole traces of entry caches: as the reference has it, whatever the cuts and the arrival."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from state.engine.names import Names
from state.entry_cache.belady import compare
from state.entry_cache.operator import EntryCache
from state.entry_cache.store import pack
from tests.effort import examples
from tests.reference.entry_cache import TABLES, bakeoff, judge
from tests.state.cache_trace import PARAMS, Row, blob, numbered, play
from tests.state.cache_traces import Trace, traces
from tests.state.test_reference import CHECKED
from tests.state.trace import START_MS

LATENESS_MS = 490
"""Less than allowed_lateness_ms, so that nothing is too late."""


def sorted_rows(rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """Rows by key, time and row number; every table present."""
    return {
        table: sorted(
            rows.get(table, []),
            key=lambda r: (
                r["cluster"], r["broker"], r["ts_wall_ms"] or 0, r.get("ts_mono_ns", 0),
                r.get("row_no", r.get("seq")) or 0,
            ),
        )
        for table in (*TABLES, "quarantine")
    }


def assert_same(got: dict[str, list[Row]], expected: dict[str, list[Row]]) -> None:
    """Whole rows of all tables; the first difference is shown, not all of them."""
    got, expected = sorted_rows(got), sorted_rows(expected)
    for table in expected:
        pairs = zip(got[table], expected[table], strict=False)
        for i, (mine, wanted) in enumerate(pairs):
            assert mine == wanted, (table, i)
        shorter, longer = sorted((got[table], expected[table]), key=len)
        assert longer[len(shorter) :] == [], table


def closing(records: Sequence[Row]) -> list[Row]:
    """A record without effect just behind all others of each broker: the clock reaches it."""
    found = []
    for broker in sorted({r["broker"] for r in records} - {"*"}):
        mine = [r for r in records if r["broker"] == broker and r["ts_mono_ns"] is not None]
        starts = [i for i, r in enumerate(mine) if r["event_type"] == "broker_started"]
        run = mine[starts[-1] if starts else 0 :]
        walls = [r["ts_wall_ms"] for r in mine if r["ts_wall_ms"] is not None]
        if run:
            found.append({
                **run[-1], "event_type": "cursor_deleted", "seq": 10**6, "topic": "nothing",
                "ts_mono_ns": max(r["ts_mono_ns"] for r in run) + 1,
                "ts_wall_ms": max(walls, default=None), "subscription": "nobody",
            })
    return found


@CHECKED
@given(traces())
def test_as_the_reference(trace: Trace) -> None:
    records = numbered([*trace.records, *closing(trace.records)])
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    params = {**trace.params, "allowed_lateness_ms": 0}
    got = play([records], params, trace.configured, until)
    assert_same(got, judge(records, {**PARAMS, **params}, trace.configured, until))


# -- cuts and arrival ------------------------------------------------------------------------


def with_walls(records: Sequence[Row]) -> list[Row]:
    """The records of a trace, each with a wall time: else they do not say which are late."""
    found: list[Row] = []
    apart: dict[str, int] = {}
    wall = START_MS
    for r in records:
        if r["ts_wall_ms"] is not None:
            wall = r["ts_wall_ms"]
        elif r["broker"] in apart:
            wall = r["ts_mono_ns"] // 1_000_000 + apart[r["broker"]]
        if r["ts_mono_ns"] is not None:
            apart[r["broker"]] = wall - r["ts_mono_ns"] // 1_000_000
        found.append({**r, "ts_wall_ms": wall})
    return found


def arrivals(records: Sequence[Row], order: random.Random, jitter_ms: int) -> list[Row]:
    """The records as they come in; a broker start comes on time."""
    came = [
        (
            r["ts_wall_ms"] + order.random() * jitter_ms * (r["event_type"] != "broker_started"),
            i,
        )
        for i, r in enumerate(records)
    ]
    return [records[i] for _, i in sorted(came)]


def cut(records: Sequence[Row], order: random.Random) -> list[list[Row]]:
    """Batches of random lengths, empty ones among them."""
    batches: list[list[Row]] = [[]]
    often = order.choice((0.05, 0.3, 0.6))
    for record in records:
        if order.random() < often:
            batches.append([])
        if order.random() < 0.05:
            batches.append([])
        batches[-1].append(record)
    return batches


def known(data: bytes, params: dict[str, Any], configured: Sequence[str]) -> dict[Any, Any]:
    """What a state says of each broker, by names."""
    shard = EntryCache({**PARAMS, **params}, configured).shard_of(data)
    found = {}
    for b in shard.brokers.values():
        parts = pack(b.world)
        cursors = [
            (text(shard.names, c["name"]), *(int(c[f]) for f in (
                "topic", "known", "active", "has_read", "has_mark", "told", "durable", "backlog",
            )), *(int(c[f]) for f in ("read_ledger", "read_entry") if c["has_read"]))
            for c in parts["cursors"]
        ]
        flags = sorted(
            (cursors[int(f["cursor"])][:2], int(f["ledger"]), int(f["entry"]))
            for f in parts["flags"]
        )
        levels = ("used", "count", "wanted", "bare", "held", "hits", "inserted", "extended")
        caches = ("policy", "used", "wanted", "aside", "topics", "passed_ns", "hits",
                  "entries_visited", "max_used", "most_used", "most_wanted", "passes", "work")
        key = ("clock_ns", "last_ns", "window_start_ms", "started_ns", "touched", "entries",
               "eviction_ns", "eviction_no", "read_ns", "read_no", "pages")
        found[text(shard.names, b.key["broker"])] = {
            "key": [int(b.key[f]) for f in key],
            "topics": [
                (text(shard.names, t["name"]), *(int(t[f]) for f in (
                    "cursors", "active", "flags", "seen_ns", "left_ns", "has_persisted", "event",
                    "check_ns",
                )))
                for t in parts["topics"]
            ],
            "cells": [[int(c[f]) for f in levels] for c in parts["cells"]],
            "caches": [[int(c[f]) for f in caches] for c in parts["variants"]],
            "ledgers": parts["ledgers"].tolist(),
            "entries": parts["entries"].tolist(), "cursors": sorted(cursors), "flags": flags,
        }
    return found


def text(names: Names, name: int) -> str:
    return names.get(int(name))


@settings(CHECKED, max_examples=examples(50))
@given(traces(), st.integers(0, 2**32 - 1), st.sampled_from((0, LATENESS_MS)),
       st.sampled_from((600, 3_000, 120_000)))
def test_any_cut_and_arrival(trace: Trace, seed: int, jitter_ms: int, rest_ms: int) -> None:
    order = random.Random(seed)
    records = with_walls(numbered(trace.records))
    end = max(r["ts_wall_ms"] for r in records) + rest_ms
    whole_states: list[bytes] = []
    states: list[bytes] = []
    whole = play([records], trace.params, trace.configured, end, whole_states)
    batches = cut(arrivals(records, order, jitter_ms), order)
    split = play(batches, trace.params, trace.configured, end, states)
    assert_same(split, whole)
    assert known(states[-1], trace.params, trace.configured) == known(
        whole_states[-1], trace.params, trace.configured
    )


# -- the farthest next read ------------------------------------------------------------------

MEASURES = (
    "hits", "misses", "hit_ratio", "hit_bytes", "storage_bytes", "evicted_wanted",
    "evicted_wanted_bytes", "max_used_bytes", "passes", "work",
)


@settings(CHECKED, max_examples=examples(20))
@given(traces())
def test_comparison_of_caches_as_the_reference(trace: Trace) -> None:
    """Every cache of a whole trace, those with foresight included."""
    records = numbered([*trace.records, *closing(trace.records)])
    until = trace.end_ms + 2 * trace.params["stats_window_ms"]
    sizes = (trace.params.get("max_bytes", 1000), 400, None)
    variants = [*({"policy": "belady", "max_bytes": size} for size in sizes),
                *trace.params["variants"]]
    params = {**PARAMS, **trace.params, "variants": variants}
    got = compare([blob(records)], params, trace.configured, until)
    expected = bakeoff(records, params, variants, trace.configured, until)
    for mine, wanted in zip(got, expected, strict=True):
        assert {k: mine.get(k) for k in MEASURES} == {k: wanted[k] for k in MEASURES}
        # the reference does not look at the level after a merge
        assert mine["wanted_bytes"] >= wanted["wanted_bytes"]
