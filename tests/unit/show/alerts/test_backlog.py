"""The alerts on backlogs: what fires, and what does not."""

from __future__ import annotations

import json

import pytest

from app.show import alerts
from tests.support.throttle_rows import OTHER, START_MS, TOPIC, write

MINUTE = 60_000
QUOTA, PREDICTED = "backlog-quota", "backlog-quota-predicted"
EXPIRE = "backlog-messages-expire"
COMMON = {
    "job": "backlog",
    "cluster": "east",
    "broker": "b1",
    "ts_mono_ns": None,
    "switches": [],
    "params_hash": "abc",
    "source_feed": "contract",
    "row_no": 0,
    "rule": "within_limits",
    "topic": TOPIC,
}


def check(minute, topic=TOPIC, step_ms=MINUTE, **changes):
    """A check of a topic at a tenth of its quotas."""
    at = START_MS + minute * step_ms
    return {
        **COMMON,
        "topic": topic,
        "ts_wall_ms": at,
        "pass_ms": at,
        "backlog_bytes": 1000,
        "limit_bytes": 10_000,
        "size_usage": 0.1,
        "age_s": 10,
        "limit_s": 100,
        "age_state": "known",
        "time_usage": 0.1,
        "oldest_subscription": "s",
        "oldest_position": "1:1",
        "oldest_timestamp_ms": at - 10_000,
        "timestamp_source": "kept",
        "exceeded_size": False,
        "exceeded_time": False,
        "limit_source_size": "namespace",
        "limit_source_time": "namespace",
        "action": "none",
        "retention_policy": None,
        "producers_disconnected": 0,
        **changes,
    }


def checks(minutes, topic=TOPIC, **changes):
    return [check(minute, topic, **changes) for minute in minutes]


def subscription(minute, left, name="s", **changes):
    """A subscription with a prediction of so many seconds."""
    at = START_MS + minute * MINUTE
    return {
        **COMMON,
        "ts_wall_ms": at,
        "pass_ms": at,
        "subscription": name,
        "durable": True,
        "mark_delete": "1:1",
        "backlog_entries": 10,
        "backlog_bytes": 1000,
        "age_s": 10,
        "growth_rate": 1.0,
        "drain_rate": 0.0,
        "time_to_drain_s": None,
        "time_to_quota_s": left,
        **changes,
    }


@pytest.fixture
def firing(make_settings, tmp_warehouse, capsys):
    """Writes rows and answers the alerts that fire: name, what it is about, since, value; with
    `whole`, all that is printed."""

    def ask(rows=(), subscriptions=(), at_ms=None, evictions=(), whole=False):
        if rows:
            write(tmp_warehouse, "backlog_checks", list(rows))
        if subscriptions:
            write(tmp_warehouse, "backlog_subscriptions", list(subscriptions))
        if evictions:
            write(tmp_warehouse, "backlog_evictions", list(evictions))
        capsys.readouterr()
        alerts.check(make_settings(), as_json=True, at_ms=at_ms, only=[QUOTA, PREDICTED, EXPIRE])
        found = json.loads(capsys.readouterr().out)
        assert found["broken"] == []
        if whole:
            return found
        return [
            (
                r["alert"],
                r["labels"]["topic"],
                r["labels"].get("quota") or r["labels"]["subscription"],
                r["since_ms"] - START_MS,
                r["value"],
            )
            for r in found["firing"]
        ]

    return ask


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"size_usage": 0.79}, []),
        ({"size_usage": 0.8}, [("size", 0.8)]),
        ({"size_usage": 1.5}, [("size", 1.5)]),
        ({"time_usage": 0.8}, [("time", 0.8)]),
        ({"size_usage": 0.9, "time_usage": 0.95}, [("size", 0.9), ("time", 0.95)]),
        ({"size_usage": None, "time_usage": None}, []),
        ({"size_usage": None, "exceeded_size": True, "limit_bytes": 0}, [("size", None)]),
    ],
)
def test_a_quota_is_near_from_eighty_per_cent_on(firing, changes, expected):
    assert firing([check(0, **changes)]) == [
        (QUOTA, TOPIC, quota, 0, value) for quota, value in expected
    ]


def test_a_near_quota_fires_from_the_first_check_to_the_last_one(firing):
    assert firing([check(0)]) == []
    assert firing([check(1, size_usage=0.9)]) == [(QUOTA, TOPIC, "size", MINUTE, 0.9)]
    fired = [(QUOTA, TOPIC, "size", MINUTE, 0.95)]
    assert firing([check(2, size_usage=0.95)]) == fired
    assert firing([check(3, size_usage=0.85)]) == fired
    assert firing() == fired, "the same data fires as before"
    assert firing([check(4)]) == []
    assert firing(at_ms=START_MS + 2 * MINUTE + 1) == fired
    assert firing([check(5, size_usage=0.8)]) == [(QUOTA, TOPIC, "size", 5 * MINUTE, 0.8)]


def test_a_topic_that_is_one_check_behind_is_not_taken_for_silent(firing):
    bad = {"size_usage": 0.9}
    fired = [(QUOTA, TOPIC, "size", 0, 0.9)]
    assert firing([*checks([0, 1], **bad), *checks([0, 1], OTHER)]) == fired
    assert firing(checks([2], OTHER)) == fired
    assert firing(checks([3], OTHER)) == [], "silent for more than a check"
    assert firing(checks([2, 3], **bad)) == fired


def test_a_topic_that_was_without_a_backlog_for_long_holds_nothing_back(firing):
    late = checks([0, 1, 500, 501], OTHER)
    assert firing([*late, check(501, size_usage=0.9), check(502, size_usage=0.9)]) == [
        (QUOTA, TOPIC, "size", 501 * MINUTE, 0.9)
    ]
    assert firing([check(503)]) == []


def test_topics_of_other_intervals_are_evaluated_by_their_own(firing):
    slow = [check(m, OTHER, 10 * MINUTE, size_usage=0.9) for m in (0, 1)]
    fired = [(QUOTA, OTHER, "size", 0, 0.9)]
    assert firing([*slow, *checks(range(20))]) == fired
    assert firing([check(3, OTHER, 10 * MINUTE), *checks(range(20, 31))]) == []


@pytest.mark.parametrize(
    ("left", "fires"),
    [
        (None, False),
        (0.0, False),
        (0.5, True),
        (3599.0, True),
        (3600.0, False),
        (1e9, False),
    ],
)
def test_a_quota_is_predicted_within_the_hour(firing, left, fires):
    expected = [(PREDICTED, TOPIC, "s", 0, left)] if fires else []
    assert firing(checks(range(4)), [subscription(i, left) for i in range(4)]) == expected


def test_a_prediction_holds_until_the_next_check(firing):
    rows = [subscription(i, 3000.0) for i in range(4)]
    assert firing(checks(range(4)), [*rows, subscription(3, 5000.0, "t")]) == [
        (PREDICTED, TOPIC, "s", 0, 3000.0)
    ]
    rows = [
        subscription(i, left, name) for i in range(4, 8) for name, left in (("s", 9.0), ("t", 7.0))
    ]
    assert firing(checks(range(4, 8)), rows) == [
        (PREDICTED, TOPIC, "s", 0, 3000.0),
        (PREDICTED, TOPIC, "t", 4 * MINUTE, 7.0),
    ]
    assert firing([check(8)], [subscription(8, 0.0)]) == [], "one is over it, one is gone"
    assert firing(checks(range(9, 13)), [subscription(i, 40.0) for i in range(9, 13)]) == [
        (PREDICTED, TOPIC, "s", 9 * MINUTE, 40.0)
    ]


def test_a_burst_is_no_prediction(firing):
    """The median of the slopes between three or four checks is above 0 after one of them."""
    for i in range(8):
        left = 2351.0 if i in (2, 3) else None
        assert firing([check(i)], [subscription(i, left)]) == []


def test_a_prediction_ends_where_the_quota_is_near(firing):
    assert firing([check(0, size_usage=0.9)], [subscription(0, 40.0)]) == [
        (QUOTA, TOPIC, "size", 0, 0.9)
    ]


SIZE, TIME = {"exceeded_size": True, "size_usage": 1.2}, {"exceeded_time": True, "time_usage": 1.2}


def severities(found):
    return {row["labels"]["quota"]: row["severity"] for row in found["firing"]}


@pytest.mark.parametrize(
    ("changes", "quotas"),
    [
        (SIZE, ["size"]),
        (TIME, ["time"]),
        ({**SIZE, **TIME}, ["size", "time"]),
        ({}, []),
    ],
)
def test_one_alert_of_a_quota_rises_at_the_third_check_above_it(firing, changes, quotas):
    found = firing(checks([0, 1], **changes), whole=True)
    assert severities(found) == dict.fromkeys(quotas, "warning")
    found = firing([check(2, **changes)], whole=True)
    assert severities(found) == dict.fromkeys(quotas, "critical")
    assert [(row["state"], row["severity"], row["at_ms"]) for row in found["changes"]] == [
        ("firing", "critical", START_MS + 2 * MINUTE) for _ in quotas
    ]
    assert all(row["since_ms"] == START_MS for row in found["firing"])
    assert firing(checks([3, 4], **changes), whole=True)["changes"] == []
    assert firing([check(5)]) == []


def test_a_check_within_the_limits_begins_the_count_anew(firing):
    near = {"size_usage": 0.9}
    found = firing([*checks([0, 1, 3, 4], **SIZE), check(2, **near)], whole=True)
    assert severities(found) == {"size": "warning"}
    assert found["firing"][0]["since_ms"] == START_MS, "it was near all the time"
    found = firing(checks([5], **SIZE), whole=True)
    assert severities(found) == {"size": "critical"}
    found = firing(checks([6], **near), whole=True)
    assert severities(found) == {"size": "critical"}, "an alert falls by being resolved"
    assert " is near its backlog quota of size, at 90 % of it" in found["firing"][0]["summary"]


def test_the_age_of_the_oldest_message_tells_when_it_began(firing):
    # The oldest message is 130 s old at the first check that sees it; 80 % were reached at 80 s.
    old = {**TIME, "oldest_timestamp_ms": START_MS - 130_000, "age_s": 130, "time_usage": 1.3}
    ((*_, since, _),) = firing([check(0, **old)])
    assert since == -50_000
    (row,) = firing(whole=True)["firing"]
    assert row["summary"] == (
        f"{TOPIC} (east) is over its backlog quota of time since 2023-11-14T22:13:30Z, at 130 % of"
        " it; above 80 % since 2023-11-14T22:13:10Z; s is furthest behind"
    )


def test_it_did_not_begin_before_the_check_that_found_it_well(firing):
    old = {**TIME, "oldest_timestamp_ms": START_MS - 130_000, "time_usage": 1.3}
    assert firing([check(0), check(1, **old)]) == [(QUOTA, TOPIC, "time", 1, 1.3)]


def eviction(minute, **changes):
    return {
        **COMMON,
        "ts_wall_ms": START_MS + minute * MINUTE,
        "quota_type": "size",
        "subscription": "s",
        "from_position": "1:1",
        "to_position": "1:9",
        "entries_skipped": 8,
        "rounds": 1,
        "factor": 0.5,
        "target_bytes": 10,
        "expire_older_than_s": None,
        "backlog_before": 100,
        "backlog_after": 10,
        "phantom": False,
        "count_delta": 1,
        **changes,
    }


def test_messages_that_are_skipped_are_part_of_the_same_alert(firing):
    phantom = eviction(0, phantom=True, entries_skipped=0)
    found = firing([check(0, **SIZE)], evictions=[phantom], whole=True)
    assert severities(found) == {"size": "warning"}
    both = [eviction(1), eviction(1, subscription="t", row_no=1)]
    found = firing([check(1, **SIZE)], evictions=both, whole=True)
    assert severities(found) == {"size": "critical"} and len(found["changes"]) == 1
    found = firing([check(2, size_usage=0.9)], whole=True)
    assert found["firing"][0]["summary"].endswith(
        "; s is furthest behind; it skips messages that s, t has not read, 16 entries so far"
    )
    assert firing([check(3)]) == []
    found = firing([check(4, size_usage=0.9)], whole=True)
    assert severities(found) == {"size": "warning"}
    assert "skips" not in found["firing"][0]["summary"], "of a time that is over"


def test_an_eviction_that_skips_nothing_is_said(firing):
    own = {**SIZE, "action": "evict_size", "retention_policy": "consumer_backlog_eviction"}
    found = firing(
        [check(0, **own)], evictions=[eviction(0, phantom=True, entries_skipped=0)], whole=True
    )
    assert found["firing"][0]["summary"].endswith("is furthest behind; its eviction skips nothing")


def test_without_an_age_the_subscription_with_the_largest_backlog_is_named(firing):
    rows = [
        subscription(0, None, name, backlog_bytes=size, durable=durable)
        for name, size, durable in (
            ("a", 8, True),
            ("b", 9, True),
            ("c", 9, True),
            ("r", 99, False),
        )
    ]
    unknown = {"age_s": -1, "age_state": "no_estimate", "oldest_timestamp_ms": None}
    found = firing([check(0, **SIZE, **unknown, oldest_subscription=None)], rows, whole=True)
    assert found["firing"][0]["summary"].endswith("; b is furthest behind")


def test_what_the_broker_shows_is_said(firing):
    told = {"remarks": "1 transaction is open on the topic"}
    found = firing([check(0, **SIZE)], [subscription(0, None, **told)], whole=True)
    assert found["firing"][0]["summary"].endswith(
        "; s is furthest behind (1 transaction is open on the topic)"
    )
    words = [*["2 transactions are open"] * 3, *told.values()]  # one alert, whatever they are
    rows = [subscription(m, 600.0, remarks=text) for m, text in enumerate(words, 1)]
    found = firing(checks(range(1, 5)), rows, whole=True)
    assert (
        "s (1 transaction is open on the topic) will reach a backlog quota"
        in (found["firing"][0]["summary"])
    )


def test_only_what_was_known_at_a_time_counts_then(firing):
    found = firing(checks(range(4), **SIZE), at_ms=START_MS + 2 * MINUTE, whole=True)
    assert severities(found) == {"size": "warning"}
    found = firing(at_ms=START_MS + 2 * MINUTE + 1, whole=True)
    assert severities(found) == {"size": "critical"}


@pytest.mark.parametrize(
    ("ttl_s", "left", "expired", "fires"),
    [
        (3600, 700.0, None, True),
        (3600, 800.0, None, False),
        (86_400, 3600.0, 0, True),
        (86_400, 5000.0, 0, False),
        (86_400, None, 3, True),
        (3600, None, None, False),
        (60, 0.0, None, True),
        (None, None, 0, False),
    ],
)
def test_messages_that_expire_fire_in_the_last_fifth_of_the_ttl(
    firing, ttl_s, left, expired, fires
):
    rows = checks(range(3), ttl_s=ttl_s)
    told = [subscription(2, None, time_to_expiry_s=left, expired_unread=expired)]
    found = [row for row in firing(rows, told) if row[0] == EXPIRE]
    assert [(alert, topic, name) for alert, topic, name, *_ in found] == (
        [(EXPIRE, TOPIC, "s")] if fires else []
    )
