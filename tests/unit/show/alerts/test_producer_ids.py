"""The alerts on producer ids: what fires, and what does not."""

from __future__ import annotations

import json

import pytest

from app.show import alerts
from tests.support.throttle_rows import START_MS, write

MINUTE = 60_000
QUOTA = "producer-id-quota"
WHOSE = {"cluster": "east", "broker": "b1", "user": "alice"}
REJECTED = {"rejected": 7, "throttle_time_avg_ms": 1000.0}
THROTTLED = {"new_ids": 7, "throttle_time_avg_ms": 1000.0}


def window(minute, length_ms=MINUTE, **changes):
    """A minute in which alice brought one id of the many that she may."""
    start = START_MS + minute * length_ms
    return {
        "job": "producer_ids",
        **WHOSE,
        "ts_mono_ns": None,
        "ts_wall_ms": start + length_ms,
        "rule": "window",
        "switches": [],
        "params_hash": "abc",
        "source_feed": "contract",
        "row_no": 0,
        "window_start_ms": start,
        "window_ms": length_ms,
        "new_ids": 1,
        "seen_batches": 100,
        "rejected": 0,
        "rate": 0.1,
        "tokens": 9.0,
        "throttle_time_avg_ms": None,
        "utilisation": 0.1,
        "live_filters": 1,
        "filter_fill": 0.1,
        "estimated_fpp": 0.0,
        "state_bytes": 1199,
        **changes,
    }


def windows(minutes, **changes):
    return [window(minute, **changes) for minute in minutes]


@pytest.fixture
def firing(make_settings, tmp_warehouse, capsys):
    """Writes windows; the alerts that fire: severity, user, since, value."""

    def check(rows=()):
        if rows:
            write(tmp_warehouse, "producer_id_stats", list(rows))
        capsys.readouterr()
        alerts.check(make_settings(), as_json=True, only=[QUOTA])
        found = json.loads(capsys.readouterr().out)["firing"]
        assert all(r["labels"] == {**WHOSE, "user": r["labels"]["user"]} for r in found)
        return [
            (r["severity"], r["labels"]["user"], r["since_ms"] - START_MS, r["value"])
            for r in found
        ]

    return check


def test_a_storm_is_critical_after_five_minutes_and_resolved_by_a_quiet_one(firing):
    over = {**REJECTED, "utilisation": 1.2}
    assert firing(windows(range(4), **over)) == [("warning", "alice", 0, 1.2)]
    fired = [("critical", "alice", 0, 1.2)]
    assert firing(windows([4], **over)) == fired
    assert firing() == fired, "the same data fires as before"
    assert firing([window(5, **over, new_ids=5)]) == fired
    assert firing(windows([6], utilisation=0.9)) == fired, "it is near all the same"
    assert firing(windows([7])) == []


@pytest.mark.parametrize(
    ("changes", "severity"),
    [
        (REJECTED, "critical"),
        (THROTTLED, "critical"),
        ({"rejected": 1, "throttle_time_avg_ms": 0.0}, "critical"),
        ({"utilisation": None, **REJECTED}, "critical"),
        ({"utilisation": 1.99, "new_ids": 100}, "warning"),
        ({"utilisation": 2.0, "new_ids": 1}, "critical"),
        ({"utilisation": 9.0, "new_ids": 0}, "warning"),
        ({"seen_batches": 10**9}, None),
    ],
)
def test_what_a_storm_is(firing, changes, severity):
    found = [each for each, *_ in firing(windows(range(5), **changes))]
    assert found == ([severity] if severity else [])


def test_a_quiet_minute_begins_a_storm_anew(firing):
    over = {**REJECTED, "utilisation": 1.2}
    broken = windows([0, 1, 3, 4, 5, 6], **over)
    assert firing([*broken, window(2)]) == [("warning", "alice", 3 * MINUTE, 1.2)]
    assert firing(windows([7], **over)) == [("critical", "alice", 3 * MINUTE, 1.2)]


def test_one_long_window_is_a_storm(firing):
    found = firing([window(0, 10 * MINUTE, **THROTTLED, utilisation=1.1)])
    assert found == [("critical", "alice", 0, 1.1)]


@pytest.mark.parametrize(
    ("utilisation", "fires"),
    [
        (0.79, False),
        (0.8, True),
        (1.1, True),
        (None, False),
        (5e-19, False),
    ],
)
def test_a_quota_is_near_from_eighty_per_cent_on(firing, utilisation, fires):
    expected = [("warning", "alice", 0, utilisation)] if fires else []
    assert firing([window(0, utilisation=utilisation)]) == expected
    assert firing([window(1, utilisation=0.5)]) == []


def test_users_are_evaluated_apart_and_one_that_lags_a_window_is_not_taken_for_quiet(firing):
    mine, others = {"utilisation": 0.9}, {"user": "bob", "utilisation": 0.2}
    fired = [("warning", "alice", 0, 0.9)]
    assert firing([window(0, **mine), *windows([0, 1], **others)]) == fired
    assert firing(windows([2], **others)) == [], "silent for more than a window"
    assert firing(windows([1, 2], **mine)) == fired
    assert firing([window(3, **{**others, "utilisation": 0.8})]) == fired
    assert firing([window(3, **mine)]) == [*fired, ("warning", "bob", 3 * MINUTE, 0.8)]
