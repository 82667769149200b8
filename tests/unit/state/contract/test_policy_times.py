"""When a policy of the stream takes force that has a wall time alone, on the monotonic clock."""

from __future__ import annotations

import pytest

from tests.unit.state.contract.jobs import (
    JOBS,
    Job,
    Sample,
    assert_same,
    everywhere,
    publish,
    record,
    topic,
)
from tests.unit.state.shipping import Row
from tests.unit.state.trace import START_MS

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
PUBLISHED = [
    publish(0, 1),
    publish(1_000, 2, ts_wall_ms=None),
    everywhere("topic", "t/ns/x", publishRateInMsgs=1)(3_010, 3),
    publish(3_020, 4),
    publish(3_030, 5),
    publish(63_000, 6),
]


@pytest.mark.parametrize(
    ("mono", "records", "params"),
    [
        (
            JOBS["entry_cache"],
            CACHED,
            {"extra_outputs": ["cache_evictions"], "release_event": "entry_released"},
        ),
        (JOBS["rate_limits"], PUBLISHED, {}),
    ],
    ids=lambda x: getattr(x, "name", ""),
)
def test_behind_a_record_without_a_wall_time_it_holds_from_the_first_that_is_not_before_it(
    mono: Job, records: list[Row], params: dict[str, object]
) -> None:
    sample = Sample(mono.read(records), params, until_ms=START_MS + 70_000)
    whole = mono.play([sample.records], sample)
    assert_same(whole, mono.in_order(mono.judge(sample)))
    for place in range(1, len(sample.records)):
        parts = [sample.records[:place], sample.records[place:]]
        assert_same(mono.play(parts, sample), whole)
    if "cache_evictions" in whole:
        first, second = whole["cache_evictions"][:2]
        assert first["ts_mono_ns"] == second["ts_mono_ns"] > records[4]["ts_mono_ns"]
