"""When a policy of the stream takes force that has a wall time alone, on the monotonic clock."""

from __future__ import annotations

import pytest

from tests.unit.state.contract.jobs import (
    JOBS,
    MS,
    Job,
    Sample,
    assert_same,
    everywhere,
    publish,
    record,
    topic,
)
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS, START_NS

SUBSCRIPTION = {"topic": topic("x"), "subscription": "s"}


def entry(at_ms: int, number: int, **columns: object) -> Row:
    place = {"topic": topic("x"), "ledger_id": 1, "entry_id": number, "entry_bytes": 100}
    return record("entry_added", at_ms, number, **{**place, **columns})


CACHED = [
    record("cursor_state", 0, 0, read_pos="1:0", **SUBSCRIPTION),
    entry(10, 1),
    entry(1_000, 2, ts_wall_ms=None),
    everywhere("broker", "*", managedLedgerCacheSizeMB=0)(3_010, 1),
    entry(3_025, 3),
    entry(63_000, 4),
]
RESTARTED = [
    *CACHED[:4],
    record("broker_started", 3_500, 5, ts_mono_ns=START_NS + 10**15),
    entry(3_600, 6, ts_mono_ns=START_NS + 10**15 + 100 * MS),
    entry(63_000, 7, ts_mono_ns=START_NS + 10**15 + 60_000 * MS),
]
"""The first record that is not before the policy begins another run of the broker."""
PUBLISHED = [
    publish(0, 1),
    publish(1_000, 2, ts_wall_ms=None),
    everywhere("topic", "t/ns/x", publishRateInMsgs=1)(3_010, 3),
    publish(3_020, 4),
    publish(3_030, 5),
    publish(63_000, 6),
]


@pytest.mark.parametrize(
    ("mono", "records", "params", "evicted"),
    [
        (
            JOBS["entry_cache"],
            CACHED,
            {"extra_outputs": ["cache_evictions"], "release_event": "entry_released"},
            [3_030, 3_030],
        ),
        (
            JOBS["entry_cache"],
            RESTARTED,
            {"extra_outputs": ["cache_evictions"], "release_event": "entry_released"},
            [],
        ),
        (JOBS["rate_limits"], PUBLISHED, {}, []),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_behind_a_record_without_a_wall_time_it_holds_from_the_first_that_is_not_before_it(
    mono: Job, records: list[Row], params: dict[str, object], evicted: list[int]
) -> None:
    sample = Sample(mono.read(records), params, until_ms=START_MS + 70_000)
    whole = mono.play([sample.records], sample)
    assert_same(whole, mono.in_order(mono.judge(sample)))
    for place in range(1, len(sample.records)):
        parts = [sample.records[:place], sample.records[place:]]
        assert_same(mono.play(parts, sample), whole)
    at_ms = [(r["ts_mono_ns"] - START_NS) // MS for r in whole.get("cache_evictions", ())]
    assert at_ms[:2] == evicted  # by the first pass behind the record
