"""However a trace is cut into batches and shuffled within the lateness: same rows, same state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from state.engine import names
from tests.state.canonical import canonical, differences
from tests.state.test_reference import CHECKED, assert_same, sorted_rows
from tests.state.trace import START_MS, play
from tests.state.traces import Trace, traces

LATENESS_MS = 490
"""Less than allowed_lateness_ms, so that nothing is too late."""


def arrivals(trace: Trace, order: random.Random, jitter_ms: int) -> list[dict[str, Any]]:
    """The records as they come in, each up to `jitter_ms` later than it happened.

    A broker start comes on time: until it is known, the records of its run cannot be told from
    those of the run before (test_lateness.py has the cases that can).
    """
    came = [
        (
            r["ts_wall_ms"] + order.random() * jitter_ms * (r["event_type"] != "broker_started"),
            i,
        )
        for i, r in enumerate(trace.records)
    ]
    return [trace.records[i] for _, i in sorted(came)]


def cut(records: Sequence[dict[str, Any]], order: random.Random) -> list[list[dict[str, Any]]]:
    """Batches of random lengths, empty ones among them."""
    batches: list[list[dict[str, Any]]] = [[]]
    often = order.choice((0.05, 0.3, 1.0))
    for record in records:
        if order.random() < often:
            batches.append([])
        if order.random() < 0.1:
            batches.append([])
        batches[-1].append(record)
    return batches


def compare(trace: Trace, seed: int, jitter_ms: int, drain_ms: int) -> None:
    order = random.Random(seed)
    last = trace.end_ms - 60_000 - START_MS
    whole_states: list[bytes] = []
    split_states: list[bytes] = []
    arguments: dict[str, Any] = {
        "params": trace.params, "policies": trace.configured, "drain_ms": last + drain_ms,
    }
    whole = play([trace.records], states=whole_states, **arguments)
    batches = cut(arrivals(trace, order, jitter_ms), order)
    split = play(batches, states=split_states, **arguments)
    assert_same(split, whole)
    config = tuple(trace.configured)
    different = differences(
        canonical(split_states[-1], config), canonical(whole_states[-1], config)
    )
    assert not different, different


SEEDS = st.integers(0, 2**32 - 1)
DRAINS = st.sampled_from((600, 3_000, 60_000))


@CHECKED
@given(traces(), SEEDS, st.sampled_from((0, LATENESS_MS)), DRAINS)
def test_one_broker(trace: Trace, seed: int, jitter_ms: int, drain_ms: int) -> None:
    compare(trace, seed, jitter_ms, drain_ms)


@CHECKED
@given(traces(brokers=("b1", "b2")), SEEDS, st.sampled_from((0, LATENESS_MS)), DRAINS)
def test_two_brokers_of_one_shard(
    trace: Trace, seed: int, jitter_ms: int, drain_ms: int
) -> None:
    compare(trace, seed, jitter_ms, drain_ms)


@CHECKED
@given(
    traces(brokers=("b1", "b2"), switches=True), SEEDS, st.sampled_from((0, LATENESS_MS)), DRAINS
)
def test_every_version_parameter(trace: Trace, seed: int, jitter_ms: int, drain_ms: int) -> None:
    compare(trace, seed, jitter_ms, drain_ms)


@CHECKED
@given(trace=traces(brokers=("b1", "b2"), most=30))
def test_names_of_one_hash_stay_apart(trace: Trace) -> None:
    drain = trace.end_ms - START_MS
    expected = play([trace.records], trace.params, trace.configured, drain_ms=drain)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(names.Names.__init__, "__defaults__", (None, None, 0))  # one hash for all
        got = play(
            [trace.records[:10], trace.records[10:]], trace.params, trace.configured,
            drain_ms=drain,
        )
    assert sorted_rows(got) == sorted_rows(expected)
