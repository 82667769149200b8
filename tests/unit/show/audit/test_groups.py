"""The audit of Kafka groups: what the core writes passes, each damage is named and counted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from app.show.audit.suites import SUITES
from tests.support.groups import log, of_kafka, offset, polls, retention, rows
from tests.unit.show.audit.evaluated import failures
from tests.unit.show.audit.jobs.job import RANGE, SET, Damage, Rows, written
from tests.unit.state.backlog_trace import T0

LAG, STATES, LOST = "group_lag", "group_states", "lost_messages"
BEHIND, AHEAD, READ, AGED = range(4)
"""The first rows of group_lag: unread with a foreign time, ahead, all read; then one with an age."""
IS_LAG, IS_AHEAD = (
    "lag is end - committed, where a group has an offset",
    "a group is ahead if its offset is beyond the end",
)
AGE, NOTHING = "an age has a time, in ms", "nothing unread has neither an age nor a size"
TIME_USAGE, SIZE_USAGE = "time_usage is age / retention", "size_usage is size / retention"
TRANSACTION = "a transaction has a producer, and a group before it"
DAMAGE: dict[str, list[Damage]] = {
    LAG: [
        (BEHIND, {"ts_wall_ms": T0 + 1}, ["a check is written at its pass, at a whole second"]),
        (BEHIND, {"lag": 29}, [IS_LAG]),
        (BEHIND, {"committed": -1, "lag": 51}, [(RANGE, "committed")]),
        (BEHIND, {"committed": 51, "lag": -1}, [IS_AHEAD]),
        (AHEAD, {"committed": 50, "lag": 0}, [IS_AHEAD]),
        (AHEAD, {"lag": None}, [IS_LAG]),
        (
            READ,
            {"state": "open_transaction"},
            ["behind the offset of a group that a transaction holds there are offsets"],
        ),
        (BEHIND, {"age_state": "old"}, [(SET, "age_state")]),
        (AGED, {"age_state": "other_unit"}, [AGE]),
        (AGED, {"oldest_timestamp_ms": None}, [AGE]),
        (READ, {"lag_bytes": 1, "size_usage": 1 / 10_000}, [NOTHING]),
        (AGED, {"time_usage": None}, [TIME_USAGE]),
        (AGED, {"age_s": 20}, [TIME_USAGE]),
        (BEHIND, {"limit_bytes": 5_000}, [SIZE_USAGE]),
    ],
    STATES: [
        (1, {"before": "committed"}, ["a row is a change"]),
        (1, {"state": "lost"}, [(SET, "state")]),
        (0, {"unread": -1}, [(RANGE, "unread")]),
        (2, {"producer_id": None}, [TRANSACTION]),
        (1, {"producer_id": 7}, [TRANSACTION]),
    ],
    LOST: [
        (0, {"rule": "expiry"}, [(SET, "rule")]),
        (0, {"to_offset": 31}, ["offsets are those between the two"]),
        (
            0,
            {"to_offset": 20, "offsets": 0},
            [(RANGE, "offsets")],
        ),
        (0, {"from_offset": 19, "offsets": 11}, ["what was read is not lost"]),
    ],
}


def _decided(**params: Any) -> dict[str, Rows]:
    """A group that loses messages, one that is ahead of the log, and one that keeps up."""
    return rows(
        polls(
            [
                retention(600, 10_000),
                log(0, 50, 10),
                offset(0, 20, publish_time_ms=1, unread=25),
                offset(0, 60, "h"),
                offset(0, 50, "i"),
            ],
            [
                log(0, 80, 30),
                offset(0, 20),
                offset(0, 60, "h"),
                offset(0, 80, "i"),
                offset(0, 70, "w"),
                of_kafka(
                    "group_state",
                    0,
                    subscription="w",
                    group_state="open_transaction",
                    producer_id=7,
                    producer_name="payments-1",
                    publish_time_ms=T0,
                ),
            ],
        ),
        20_000,
        **params,
    )


ROWS_OF = written("backlog", _decided, {"east": {}})


@pytest.mark.parametrize("table", DAMAGE)
def test_what_the_core_writes_of_groups_passes(table: str) -> None:
    assert ROWS_OF(table)
    assert failures(table, ROWS_OF(table), SUITES[table]) == {}


@pytest.mark.parametrize("table", DAMAGE)
def test_each_damage_of_groups_is_named_and_counted(table: str) -> None:
    expected: Counter[tuple[str, str | None]] = Counter()
    damaged = ROWS_OF(table)
    for number, (place, changes, failed) in enumerate(DAMAGE[table]):
        assert isinstance(place, int)
        damaged.append({**ROWS_OF(table)[place], **changes, "cluster": f"damaged-{number}"})
        expected.update((name, None) if isinstance(name, str) else name for name in failed)
    assert failures(table, damaged, SUITES[table]) == expected
