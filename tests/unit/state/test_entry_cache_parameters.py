"""Every parameter of `entry_cache` gives other rows than the default, where it should; several
caches on one trace are told apart."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from app.config.settings import load_settings
from app.errors import UserError
from state.entry_cache import settings
from state.entry_cache.parameters import CacheVariant, EntryCacheParameters
from state.entry_cache.settings import (
    BACKLOG_BETWEEN,
    BACKLOG_CURSORS,
    BACKLOG_ENTRIES,
    BY_COUNT,
    BY_MARK_DELETE,
    INTERVAL_MS,
    MAX_TIMES,
    RECENT,
    SIZE_MB,
    TTL_MAX_MS,
    TTL_MS,
    WATERMARK,
)
from state.jobs import DECLARED
from tests.unit.state.cache_trace import Row
from tests.unit.state.entry_cache_input import (
    READS,
    added,
    cursor,
    limits,
    of_entry,
    read,
    record,
    same,
)

STASH = {"policy": "expected_reads_stash"}
FIFO = {"policy": "fifo"}
TIGHT = [cursor(0), *(added(1 + i, i) for i in range(12)), *(read(20 + i, i) for i in range(12))]
"""A cursor that is expected to read more than a cache of 1000 bytes holds."""
STALE = [
    cursor(0),
    cursor(0, "t"),
    added(1, 0),
    read(2, 0),
    of_entry("entry_released", 3, 0),
    of_entry("entry_released", 4, 0),
    added(500, 1),
    read(1900, 0),
    read(2600, 1, "t"),
]
"""Entries beyond their time to live, the first of them read and the other one awaited."""
TWICE = [
    cursor(0),
    added(1, 0),
    added(2, 0),
    of_entry("entry_released", 3, 0),
    added(4, 1),
    read(5, 0),
    read(1500, 0),
    read(3000, 0),
]
MARKED = [
    cursor(0, mark_delete="1:-1"),
    added(1, 0),
    added(2, 1),
    read(3, 0),
    read(4, 1),
    cursor(5, read_pos="1:2", mark_delete="1:1"),
    read(1500, 0),
    read(2500, 0),
]
ALONE = [
    cursor(0),
    added(1, 0),
    record("cursor_deleted", 2, subscription="s"),
    added(3, 1),
    read(4, 1),
    read(5, 0),
]
BACKLOGGED = [
    cursor(0),
    cursor(0, "t", "1:2"),
    *(added(1 + i, i) for i in range(8)),
    read(61_000, 0),
    read(61_001, 2, "t"),
    read(61_002, 0),
    read(61_003, 2),
]
"""Backlogs of 8 and 6 entries."""
HELPED = {"policy": "fifo", BACKLOG_CURSORS: 1, BACKLOG_ENTRIES: 1, BACKLOG_BETWEEN: 2}
CASES: dict[tuple[str, Any], tuple[dict[str, Any], list[Row]]] = {
    ("policy", "expected_reads_stash"): ({"max_bytes": 1000}, TIGHT),
    ("policy", "fifo"): ({"max_bytes": 1000}, TIGHT),
    ("policy", "proportional"): ({"max_bytes": 1000}, TIGHT),
    ("policy", "lru"): ({"max_bytes": 1000}, TIGHT),
    ("duplicate_insert", "discard"): (STASH, TWICE),
    ("duplicate_insert", "merge"): ({}, TWICE),
    ("extend_recently_accessed", False): ({}, STALE),
    ("time_pass_pending", "stash"): (STASH, STALE),
    ("time_pass_pending", "ignore"): (STASH, STALE),
    ("decrement_on_mark_delete", True): ({}, MARKED),
    ("settings_applied_at_start", False): ({MAX_TIMES: 0, RECENT: False}, STALE),
    ("release_event", "dispatch"): (
        {},
        [
            cursor(0),
            added(1, 0),
            record("dispatch", 2, ledger_id=1, entry_id=0, entry_bytes=100, subscription="s"),
            read(3, 0),
        ],
    ),
    ("grace_ms", 100): ({}, ALONE),
    ("storage_reads", "as_broker"): (FIFO, BACKLOGGED),
    ("max_bytes", 1000): ({}, TIGHT),
    (SIZE_MB, 0.001): ({}, TIGHT),
    (WATERMARK, 0.5): ({**FIFO, "max_bytes": 1000}, TIGHT),
    (INTERVAL_MS, 1000): ({}, STALE),
    (TTL_MS, 300): ({}, STALE),
    (TTL_MAX_MS, 1100): (STASH, STALE),
    (MAX_TIMES, 0): ({}, STALE),
    (BY_COUNT, False): ({"max_bytes": 1000}, TIGHT),
    (BY_MARK_DELETE, True): (FIFO, MARKED),
    (BACKLOG_CURSORS, 2): (HELPED, BACKLOGGED),
    (BACKLOG_ENTRIES, 7): (HELPED, BACKLOGGED),
    (BACKLOG_BETWEEN, 1): (HELPED, BACKLOGGED),
}


def answers(records: list[Row], params: dict[str, Any]) -> dict[str, list[Row]]:
    """The rows of core and reference, without what they say of the parameters."""
    told = ("switches", "policy", "max_bytes")
    return {
        table: [{k: v for k, v in row.items() if k not in told} for row in rows]
        for table, rows in same(records, params).items()
    }


@pytest.mark.parametrize(("name", "value"), CASES)
def test_parameter_changes_the_answers(name: str, value: Any) -> None:
    params, records = CASES[name, value]
    usual = answers(records, {**READS, **params})
    assert usual["cache_stats"]
    assert answers(records, {**READS, **params, name: value}) != usual


def test_no_parameter_is_forgotten() -> None:
    tried = {name for name, _ in CASES}
    others = {"variants", "extra_outputs"}
    assert set(EntryCacheParameters.model_fields) - others == tried
    assert set(CacheVariant.model_fields) <= tried
    for name in DECLARED["entry_cache"].switches:
        field = EntryCacheParameters.model_fields[name]
        tried_values = {v for n, v in CASES if n == name}
        assert _values(field.annotation) <= tried_values | {field.default, READS.get(name)}


def _values(annotation: Any) -> set[Any]:
    """The texts that a parameter may be."""
    found: set[Any] = set()
    for part in get_args(annotation):
        found |= _values(part) if get_args(part) else {part}
    return {v for v in found if isinstance(v, str)}


# -- which cache a row is of -----------------------------------------------------------------


def test_rows_of_a_cache_have_its_own_parameters() -> None:
    """Two of one policy and size differ in nothing else that a row says."""
    common = {"policy": "expected_reads", "max_bytes": 1000}
    params = {
        **READS,
        "grace_ms": 7,
        "variants": [
            {**common, MAX_TIMES: 1},
            {**common, "extend_recently_accessed": False, WATERMARK: 0.5},
        ],
    }
    rows = same([*TIGHT, limits(100, **{TTL_MS: 20})], params)
    for table in ("cache_stats", "cache_evictions", "cache_reads"):
        said = {tuple(row["switches"]) for row in rows[table]}
        first, second = sorted(map(dict, said), key=lambda found: MAX_TIMES not in found)
        assert (first[MAX_TIMES], first["grace_ms"]) == ("1", "7")
        assert WATERMARK not in first and "max_bytes" not in first
        assert second["extend_recently_accessed"] == "False" and second[WATERMARK] == "0.5"
        assert second["policy"] == "expected_reads" and MAX_TIMES not in second


def test_a_single_cache_says_what_the_configuration_says() -> None:
    config = load_settings(None, {"entry_cache": {"grace_ms": 5, "policy": "lru"}})
    found = settings.Variant({}, config.job_params("entry_cache"), settings.ONLINE).switches
    assert dict(found) == config.switches("entry_cache")
    assert set(settings.SWITCHES) == set(DECLARED["entry_cache"].switches)


def test_the_same_cache_twice_is_refused() -> None:
    lru = {"policy": "lru", "max_bytes": 5}
    with pytest.raises(UserError, match="1 and 3 are the same cache"):
        load_settings(None, {"entry_cache": {"variants": [lru, {"policy": "lru"}, lru]}})


def test_a_broker_that_applies_nothing_has_the_defaults_of_the_parameters() -> None:
    fields = EntryCacheParameters.model_fields
    own = {**settings.BROKER_KEYS}
    assert own.pop(settings.RECENT) == fields["extend_recently_accessed"].default
    assert own == {key: fields[key].default for key in own}


def policies_of(records: list[Row]) -> list[str]:
    """The policy in each window's row of the whole cache."""
    rows = same(records, {**READS, "stats_window_ms": 1000})["cache_stats"]
    return [
        row["policy"]
        for row in sorted(rows, key=lambda r: r["window_start_ms"])
        if row["topic"] is None
    ]


def test_a_feed_that_sends_the_settings_after_the_start_of_the_broker_decides_the_policy() -> None:
    """As the broker plug-in does; a later document waits for the next start."""
    off, on = limits(5, **{BY_COUNT: False}), limits(1500, **{BY_COUNT: True})
    start, again = record("broker_started", 0), record("broker_started", 3500)
    rest = [cursor(6), added(10, 0), read(1600, 0), added(1700, 1)]
    assert set(policies_of([start, off, *rest])) == {"fifo"}
    assert set(policies_of([start, off, *rest, on])) == {"fifo"}
    late = [start, *rest, limits(1800, **{BY_COUNT: False})]
    assert set(policies_of(late)) == {"expected_reads"}
    restarted = [*late, again, cursor(3510), added(3600, 2), added(5000, 3)]
    assert policies_of(restarted)[-1] == "fifo"


def test_a_gap_does_not_open_the_choice_of_the_policy_again() -> None:
    """The run of the broker goes on; what was in its cache before the gap has decided."""
    start, off = record("broker_started", 0), limits(1800, **{BY_COUNT: False})
    rest = [cursor(1810), added(1900, 2), added(3000, 3)]
    seen = [start, cursor(6), added(10, 0), record("gap", 1750), off, *rest]
    assert set(policies_of(seen)) == {"expected_reads"}
    assert set(policies_of([start, record("gap", 1750), off, *rest])) == {"fifo"}
