"""The alerts on backlogs: what fires, and what does not."""

from __future__ import annotations

import json

import pytest

from app import alerts
from tests.throttle_rows import OTHER, START_MS, TOPIC, write

MINUTE = 60_000
NEAR, PREDICTED, EXCEEDED = (
    "backlog-near-quota", "backlog-quota-predicted", "backlog-quota-exceeded",
)
COMMON = {
    "job": "backlog", "cluster": "east", "broker": "b1", "ts_mono_ns": None, "switches": [],
    "params_hash": "abc", "source_feed": "contract", "row_no": 0, "rule": "within_limits",
    "topic": TOPIC,
}


def check(minute, topic=TOPIC, step_ms=MINUTE, **changes):
    """A check of a topic at a tenth of its quotas."""
    at = START_MS + minute * step_ms
    return {
        **COMMON, "topic": topic, "ts_wall_ms": at, "pass_ms": at, "backlog_bytes": 1000,
        "limit_bytes": 10_000, "size_usage": 0.1, "age_s": 10, "limit_s": 100,
        "age_state": "known", "time_usage": 0.1, "oldest_subscription": "s",
        "oldest_position": "1:1", "oldest_timestamp_ms": at - 10_000, "timestamp_source": "kept",
        "exceeded_size": False, "exceeded_time": False, "limit_source_size": "namespace",
        "limit_source_time": "namespace", "action": "none", "retention_policy": None,
        "producers_disconnected": 0, **changes,
    }


def checks(minutes, topic=TOPIC, **changes):
    return [check(minute, topic, **changes) for minute in minutes]


def subscription(minute, left, name="s", **changes):
    """A subscription with a prediction of so many seconds."""
    at = START_MS + minute * MINUTE
    return {
        **COMMON, "ts_wall_ms": at, "pass_ms": at, "subscription": name, "durable": True,
        "mark_delete": "1:1", "backlog_entries": 10, "backlog_bytes": 1000, "age_s": 10,
        "growth_rate": 1.0, "drain_rate": 0.0, "time_to_drain_s": None, "time_to_quota_s": left,
        **changes,
    }


@pytest.fixture
def firing(make_settings, tmp_warehouse, capsys):
    """Writes rows and answers the alerts that fire: name, what it is about, since, value."""

    def ask(rows=(), subscriptions=(), at_ms=None):
        if rows:
            write(tmp_warehouse, "backlog_checks", list(rows))
        if subscriptions:
            write(tmp_warehouse, "backlog_subscriptions", list(subscriptions))
        capsys.readouterr()
        only = [NEAR, PREDICTED, EXCEEDED]
        alerts.check(make_settings(), as_json=True, at_ms=at_ms, only=only)
        found = json.loads(capsys.readouterr().out)
        assert found["broken"] == []
        return [
            (r["alert"], r["labels"]["topic"],
             r["labels"].get("quota") or r["labels"]["subscription"],
             r["since_ms"] - START_MS, r["value"])
            for r in found["firing"]
        ]

    return ask


@pytest.mark.parametrize(("changes", "expected"), [
    ({"size_usage": 0.79}, []),
    ({"size_usage": 0.8}, [("size", 0.8)]),
    ({"size_usage": 1.5}, [("size", 1.5)]),
    ({"time_usage": 0.8}, [("time", 0.8)]),
    ({"size_usage": 0.9, "time_usage": 0.95}, [("size", 0.9), ("time", 0.95)]),
    ({"size_usage": None, "time_usage": None}, []),
])
def test_a_quota_is_near_from_eighty_per_cent_on(firing, changes, expected):
    assert firing([check(0, **changes)]) == [
        (NEAR, TOPIC, quota, 0, value) for quota, value in expected
    ]


def test_a_near_quota_fires_from_the_first_check_to_the_last_one(firing):
    assert firing([check(0)]) == []
    assert firing([check(1, size_usage=0.9)]) == [(NEAR, TOPIC, "size", MINUTE, 0.9)]
    fired = [(NEAR, TOPIC, "size", MINUTE, 0.95)]
    assert firing([check(2, size_usage=0.95)]) == fired
    assert firing([check(3, size_usage=0.85)]) == fired
    assert firing() == fired, "the same data fires as before"
    assert firing([check(4)]) == []
    assert firing(at_ms=START_MS + 2 * MINUTE + 1) == fired
    assert firing([check(5, size_usage=0.8)]) == [(NEAR, TOPIC, "size", 5 * MINUTE, 0.8)]


def test_a_topic_that_is_one_check_behind_is_not_taken_for_silent(firing):
    bad = {"size_usage": 0.9}
    fired = [(NEAR, TOPIC, "size", 0, 0.9)]
    assert firing([*checks([0, 1], **bad), *checks([0, 1], OTHER)]) == fired
    assert firing(checks([2], OTHER)) == fired
    assert firing(checks([3], OTHER)) == [], "silent for more than a check"
    assert firing(checks([2, 3], **bad)) == fired


def test_a_topic_that_was_without_a_backlog_for_long_holds_nothing_back(firing):
    late = checks([0, 1, 500, 501], OTHER)
    assert firing([*late, check(501, size_usage=0.9), check(502, size_usage=0.9)]) == [
        (NEAR, TOPIC, "size", 501 * MINUTE, 0.9)
    ]
    assert firing([check(503)]) == []


def test_topics_of_other_intervals_are_evaluated_by_their_own(firing):
    slow = [check(m, OTHER, 10 * MINUTE, size_usage=0.9) for m in (0, 1)]
    fired = [(NEAR, OTHER, "size", 0, 0.9)]
    assert firing([*slow, *checks(range(20))]) == fired
    assert firing([check(3, OTHER, 10 * MINUTE), *checks(range(20, 31))]) == []


@pytest.mark.parametrize(("left", "fires"), [
    (None, False), (0.0, False), (0.5, True), (3599.0, True), (3600.0, False), (1e9, False),
])
def test_a_quota_is_predicted_within_the_hour(firing, left, fires):
    expected = [(PREDICTED, TOPIC, "s", 0, left)] if fires else []
    assert firing([check(0)], [subscription(0, left)]) == expected


def test_a_prediction_holds_until_the_next_check(firing):
    assert firing([check(0)], [subscription(0, 3000.0), subscription(0, 5000.0, "t")]) == [
        (PREDICTED, TOPIC, "s", 0, 3000.0)
    ]
    assert firing([check(1)], [subscription(1, 2000.0), subscription(1, 100.0, "t")]) == [
        (PREDICTED, TOPIC, "s", 0, 3000.0), (PREDICTED, TOPIC, "t", MINUTE, 100.0),
    ]
    assert firing([check(2)], [subscription(2, 0.0)]) == [], "one is over it, one is gone"
    assert firing([check(3)], [subscription(3, 40.0)]) == [
        (PREDICTED, TOPIC, "s", 3 * MINUTE, 40.0)
    ]


SIZE, TIME = {"exceeded_size": True}, {"exceeded_time": True}


@pytest.mark.parametrize(("changes", "quotas"), [
    (SIZE, ["size"]), (TIME, ["time"]), ({**SIZE, **TIME}, ["size", "time"]), ({}, []),
])
def test_a_quota_that_is_exceeded_at_a_third_check_fires(firing, changes, quotas):
    assert firing(checks([0, 1], **changes)) == []
    assert firing([check(2, **changes)]) == [
        (EXCEEDED, TOPIC, quota, 2 * MINUTE, 3) for quota in quotas
    ]
    assert firing(checks([3, 4], **changes)) == [
        (EXCEEDED, TOPIC, quota, 2 * MINUTE, 5) for quota in quotas
    ]
    assert firing([check(5)]) == []


def test_a_check_within_the_limits_begins_the_count_anew(firing):
    assert firing([*checks([0, 1, 3, 4], **SIZE), check(2)]) == []
    assert firing(checks([5], **TIME)) == [], "of another quota"
    assert firing(checks([6, 7, 8], **SIZE)) == [(EXCEEDED, TOPIC, "size", 8 * MINUTE, 3)]


def test_only_what_was_known_at_a_time_counts_then(firing):
    assert firing(checks(range(4), **SIZE), at_ms=START_MS + 2 * MINUTE) == []
    assert firing(at_ms=START_MS + 2 * MINUTE + 1) == [(EXCEEDED, TOPIC, "size", 2 * MINUTE, 3)]
