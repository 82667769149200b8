"""The alerts on chunked messages: what fires, and what does not."""

from __future__ import annotations

import json

import pytest

from app.show import alerts
from tests.support.throttle_rows import START_MS, TOPIC, write

MINUTE, EXPIRY = 60_000, 60_000
COMMON = {
    "job": "chunks",
    "cluster": "east",
    "broker": "b1",
    "ts_mono_ns": None,
    "switches": [],
    "params_hash": "abc",
    "source_feed": "contract",
    "row_no": 0,
    "topic": TOPIC,
}
WHOSE = {"subscription": "s", "consumer": "c1"}


def decision(at_ms, outcome, uuid="p-1", **changes):
    return {
        **COMMON,
        **WHOSE,
        "ts_wall_ms": START_MS + at_ms,
        "rule": outcome,
        "outcome": outcome,
        "uuid": uuid,
        "chunk_id": 0,
        "num_chunks": 2,
        "position": "1:1",
        "acks": [],
        "tracked": [],
        "orphaned": [],
        "permits": 0,
        "counter": 0,
        "contexts": 0,
        "leaked": 0,
        "buffered_bytes": 0,
        "age_ms": None,
        **changes,
    }


def about_window(minute, changes):
    start = START_MS + minute * MINUTE
    return {
        **COMMON,
        "ts_wall_ms": start + MINUTE,
        "rule": "window",
        "window_start_ms": start,
        "window_ms": MINUTE,
        **changes,
    }


def stats(minute, **changes):
    return about_window(
        minute,
        {
            "chunks": 0,
            "chunk_bytes": 0,
            "chunked_message_rate": 0.0,
            "msg_chunk_published": False,
            "producers": 0,
            "max_contexts": 0,
            **changes,
        },
    )


def missing(minute, first_ms, expiry_ms=EXPIRY, **changes):
    """A message that still waits at the end of a minute."""
    first, end = START_MS + first_ms, START_MS + (minute + 1) * MINUTE
    return about_window(
        minute,
        {
            **WHOSE,
            "state": "assembling",
            "uuid": "p-1",
            "producer_name": "p",
            "sequence_id": 1,
            "num_chunks": 2,
            "next_chunk_id": 1,
            "first_position": "1:1",
            "last_position": "1:1",
            "first_chunk_ms": first,
            "last_chunk_ms": first,
            "age_ms": end - first,
            "buffered_bytes": 10,
            "declared_bytes": 20,
            "expires_ms": first + expiry_ms if expiry_ms else None,
            "stalled_at": None,
            "missing_chunks": None,
            **changes,
        },
    )


def stalled(minute, uuid, gone=(), **changes):
    """A message behind the chunk at 1:7."""
    return missing(
        minute,
        0,
        None,
        consumer=None,
        uuid=uuid,
        state="stalled",
        stalled_at="1:7",
        first_position="1:7" if gone else "1:8",
        missing_chunks=list(gone),
        **changes,
    )


@pytest.fixture
def firing(make_settings, tmp_warehouse, capsys):
    """Writes rows by table and answers the alerts that fire: name, labels, since, value."""

    def check(**tables):
        for name, rows in tables.items():
            write(tmp_warehouse, name, rows)
        capsys.readouterr()
        alerts.check(
            make_settings(), as_json=True, only=["chunk-message-stuck", "chunk-messages-lost"]
        )
        return [
            (r["alert"], r["labels"], r["since_ms"] - START_MS, r["value"])
            for r in json.loads(capsys.readouterr().out)["firing"]
        ]

    return check


LOST = {"cluster": "east", "topic": TOPIC}
STUCK = {**LOST, **WHOSE}


def test_lost_messages_fire_once_their_minute_is_over_and_are_resolved_by_a_good_one(firing):
    lost = [
        decision(0, "EXPIRED"),
        decision(1, "EXPIRED", "p-2"),
        decision(2, "NO_FIRST_CHUNK", "p-3"),
        decision(3, "GAP", "p-1", orphaned=["1:1"]),
        decision(4, "EVICTED", "p-1", subscription="t"),
    ]
    assert firing(chunk_events=lost) == [], "the minute is not over"
    fired = [("chunk-messages-lost", LOST, 0, 4.0)]
    assert firing(chunk_topic_stats=[stats(0)]) == fired
    assert firing() == fired, "the same data fires as before"
    assert firing(chunk_topic_stats=[stats(1)]) == []


@pytest.mark.parametrize(
    ("row", "fires"),
    [
        (decision(0, "GIVEN_UP_OVERFLOW"), True),
        (decision(0, "GIVEN_UP_COUNT"), True),
        (decision(0, "EXPIRED"), True),
        (decision(0, "EVICTED", tracked=["1:1"]), True),
        (decision(0, "ORPHANED", orphaned=["1:1"]), True),
        (decision(0, "SHARED_ORPHAN", acks=["1:1"]), True),
        (decision(0, "SHARED_ORPHAN"), False),
        (decision(0, "GAP", orphaned=["1:1"], rule="GAP+B4"), True),
        (decision(0, "GAP", tracked=["1:1"]), True),  # until it has arrived
        (decision(0, "NO_FIRST_CHUNK"), True),
        (decision(0, "RESTART_CORRUPTED", acks=["1:1"]), False),
        (decision(0, "DUP_ACKED", acks=["1:1"]), False),
        (decision(0, "OVERFLOW_EXCEPTION", rule="OVERFLOW_EXCEPTION+B7"), True),
        (decision(0, "COMPLETE"), False),
    ],
)
def test_what_counts_as_lost(firing, row, fires):
    assert bool(firing(chunk_events=[row], chunk_topic_stats=[stats(0)])) == fires


def test_a_message_that_has_arrived_since_is_not_lost(firing):
    given_up = [decision(0, "GAP", tracked=["1:1"]), decision(0, "GAP", "p-2", row_no=1)]
    whole = {**decision(5000, "COMPLETE"), "complete_ms": START_MS + 5000, "integrity": "exact"}
    fired = firing(chunk_events=given_up, chunk_messages=[whole], chunk_topic_stats=[stats(0)])
    assert fired == [("chunk-messages-lost", LOST, 0, 1.0)]


def test_lost_messages_fire_where_nothing_but_decisions_is_written(firing):
    orphans = [decision(at, "SHARED_ORPHAN", acks=["1:1"]) for at in (0, MINUTE)]
    assert firing(chunk_events=orphans) == [("chunk-messages-lost", LOST, 0, 1.0)]


def test_a_topic_one_window_behind_the_newest_is_not_taken_for_quiet(firing):
    other = {"topic": f"{TOPIC}-2"}
    assert firing(
        chunk_events=[decision(0, "EXPIRED")], chunk_topic_stats=[stats(0), stats(1, **other)]
    )
    assert firing(chunk_topic_stats=[stats(2, **other)]) == []


def test_a_message_is_stuck_once_the_pass_that_should_have_removed_it_is_over(firing):
    early, late = {"uuid": "p-1"}, {"uuid": "p-2"}
    assert (
        firing(
            incomplete_messages=[missing(0, 1000, **early), missing(1, 1000, **early)],
            chunk_topic_stats=[stats(0), stats(1)],
        )
        == []
    ), "older than its expiry, and the next pass is still to come"
    assert firing(
        incomplete_messages=[missing(2, 1000, **early), missing(2, 2000, row_no=1, **late)],
        chunk_topic_stats=[stats(2)],
    ) == [("chunk-message-stuck", STUCK, 1000 + 2 * EXPIRY, 2.0)]
    assert firing(incomplete_messages=[missing(3, 2000, **late)], chunk_topic_stats=[stats(3)]) == [
        ("chunk-message-stuck", STUCK, 1000 + 2 * EXPIRY, 2.0)
    ], "one stretch of the consumer"
    assert firing(chunk_topic_stats=[stats(4)]) == []


def test_a_stalled_subscription_is_one_alert_until_it_goes_on(firing):
    label = {**LOST, "subscription": "s", "consumer": ""}
    waits = [stalled(1, "p-0", [0, 1, 2]), stalled(1, "p-1", row_no=1)]
    assert firing(incomplete_messages=waits, chunk_topic_stats=[stats(1)]) == [
        ("chunk-message-stuck", label, 0, 2.0)
    ]
    assert firing(incomplete_messages=[stalled(2, "p-0", [0])], chunk_topic_stats=[stats(2)]) == [
        ("chunk-message-stuck", label, 0, 2.0)
    ]
    assert firing(chunk_topic_stats=[stats(3)]) == []


@pytest.mark.parametrize(
    ("first_ms", "expiry_ms", "fires"),
    [
        (0, 30_000, False),
        (-1, 30_000, True),
        (-(10**9), 0, False),
    ],
)
def test_two_expiries_are_the_bound_and_without_one_nothing_is_stuck(
    firing, first_ms, expiry_ms, fires
):
    rows = [missing(0, first_ms, expiry_ms)]
    assert bool(firing(incomplete_messages=rows, chunk_topic_stats=[stats(0)])) == fires
