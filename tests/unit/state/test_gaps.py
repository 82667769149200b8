"""What each job decides before and after a gap in the records of a broker, worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.unit.state.contract.jobs import (
    JOBS,
    MS,
    Rows,
    Sample,
    batch,
    chunk,
    document,
    entry_read,
    gap,
    ledger,
    publish,
    record,
    topic,
)
from tests.unit.state.shipping import Row, params_of
from tests.unit.state.trace import START_MS, START_NS


def rows_of(job: str, records: Sequence[Row], until_ms: int, *policies: str, **params: Any) -> Rows:
    """Rows of records, which come in two batches that part at each gap."""
    by = Sample((), params, policies, START_MS + until_ms)
    whole = JOBS[job].play([records], by)
    batches: list[list[Row]] = [[]]
    for one in records:
        if one["event_type"] == "gap":
            batches += [[one], []]
        else:
            batches[-1].append(one)
    assert JOBS[job].play(batches, by) == whole
    return whole


def picked(rows: Sequence[Row], *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in rows]


# -- rate_limits -----------------------------------------------------------------------------

LIMIT = document("topic", "t/ns/x", publishRateInMsgs=10)


def test_a_pause_ends_where_it_was_seen_last_and_the_bucket_is_full() -> None:
    """20 of 10 a second leave -10: a pause of 1.1 s, of which 200 ms were seen."""
    lost = gap(900, 9, broker="a", gap_from_mono_ns=START_NS + 200 * MS, dropped=3)
    found = rows_of(
        "rate_limits",
        [
            publish(0, 1, num_messages=20),
            lost,
            publish(900, 10, num_messages=9),
            publish(901, 11, num_messages=1),
        ],
        950,
        LIMIT,
    )
    events = found["throttle_events"]
    assert picked(events, "ts_mono_ns", "action", "rule", "reads_paused", "seen_until_ns") == [
        (START_NS, "mark", "bucket_empty", True, None),
        (START_NS + 900 * MS, "unmark", "gap", False, START_NS + 200 * MS),
        (START_NS + 901 * MS, "mark", "bucket_empty", True, None),
    ]
    assert picked(found["publish_verdicts"], "balance_msgs", "messages_ok") == [
        (-10, False),
        (1, True),
        (0, False),
    ]


def test_paused_time_counts_up_to_the_first_missing_record() -> None:
    lost = gap(900, 9, broker="a", gap_from_mono_ns=START_NS + 200 * MS)
    found = rows_of("rate_limits", [publish(0, 1, num_messages=20), lost], 120_000, LIMIT)
    assert picked(found["topic_throttle_stats"], "culprit_times", "culprit_ns") == [(1, 200 * MS)]


def test_a_feed_that_begins_in_the_middle_of_life_is_no_start() -> None:
    """The limits of before hold, nothing is paused, a full bucket is assumed."""
    records = [gap(0, 1, broker="a"), publish(1, 2, num_messages=9)]
    found = rows_of("rate_limits", records, 10, LIMIT)
    assert picked(found["publish_verdicts"], "balance_msgs") == [(1,)]
    assert found["throttle_events"] == []


def test_only_the_broker_of_the_gap_is_out_of_sight() -> None:
    found = rows_of(
        "rate_limits",
        [
            publish(0, 1, num_messages=20),
            publish(0, 1, key="b", num_messages=20),
            gap(10, 2, broker="b"),
        ],
        20,
        LIMIT,
    )
    assert picked(found["throttle_events"], "broker", "rule") == [
        ("a", "bucket_empty"),
        ("b", "bucket_empty"),
        ("b", "gap"),
    ]


# -- chunks ----------------------------------------------------------------------------------


def part(at_ms: int, seq: int, number: int, chunk_id: int, count: int = 2) -> Row:
    """Chunk `chunk_id` of message `number`."""
    return chunk(
        at_ms,
        seq,
        number=number,
        chunk_id=chunk_id,
        num_chunks=count,
        entry_id=10 * seq,
        publish_time_ms=START_MS + at_ms,
    )


def test_what_is_incomplete_is_lost_to_sight_and_nobody_is_blamed_for_it() -> None:
    found = rows_of(
        "chunks",
        [
            part(0, 1, 1, 0),
            part(10, 2, 2, 0),
            part(20, 3, 2, 1),
            gap(1000, 9, gap_from_wall_ms=START_MS + 100),
            part(1500, 10, 1, 1),
            part(1600, 11, 3, 0),
            part(1700, 12, 3, 1),
            part(1800, 13, 4, 1),
            # two expiry times after the gap it would have been given up
            part(121_000, 14, 5, 1),
        ],
        122_000,
    )
    assert picked(found["chunk_events"], "ts_wall_ms", "outcome", "uuid", "counter", "tracked") == [
        (START_MS + 20, "COMPLETE", "u2", 1, []),
        (START_MS + 1000, "LOST_TO_SIGHT", "u1", 0, []),
        (START_MS + 1500, "FIRST_UNSEEN", "u1", 0, []),
        (START_MS + 1700, "COMPLETE", "u3", 0, []),
        (START_MS + 1800, "FIRST_UNSEEN", "u4", 0, []),
        (START_MS + 121_000, "NO_FIRST_CHUNK", "u5", 0, ["1:140"]),
    ]
    assert found["incomplete_messages"] == []


def test_a_topic_that_comes_after_the_gap_may_have_begun_in_it() -> None:
    found = rows_of(
        "chunks",
        [
            gap(0, 1),
            part(100, 2, 1, 1),
            {**part(100, 1, 2, 1), "broker": "b2", "topic": topic("b")},
        ],
        1000,
    )
    assert picked(found["chunk_events"], "topic", "outcome") == [
        (topic("a"), "FIRST_UNSEEN"),
        (topic("b"), "NO_FIRST_CHUNK"),
    ]


def test_a_shared_subscription_does_not_stall_for_a_chunk_that_was_not_seen() -> None:
    shared = {"sub_type": "shared"}
    found = rows_of(
        "chunks",
        [
            part(0, 1, 1, 0, 3) | shared,
            gap(10, 2),
            part(20, 3, 1, 1, 3) | shared,
            part(30, 4, 2, 0) | shared,
            part(40, 5, 2, 1) | shared,
        ],
        1000,
        shared_orphan="stall",
    )
    assert picked(found["chunk_events"], "outcome", "uuid") == [
        ("LOST_TO_SIGHT", "u1"),
        ("FIRST_UNSEEN", "u1"),
        ("COMPLETE", "u2"),
    ]


# -- producer_ids ----------------------------------------------------------------------------


def test_an_id_that_may_have_come_in_the_gap_is_counted_and_not_charged() -> None:
    """Bound 1 a window of one second: a burst of 11, so the twelfth id overdraws it. The filters
    that began in the gap are gone 1.5 s after it."""
    settings = document("broker", "*", **{"producer.id.quota.window.size.seconds": 1})
    bound = document("user", "a", producer_ids_rate=1)
    records = [
        *(batch(0, 1 + i, number=1 + i) for i in range(12)),
        gap(100, 13),
        batch(200, 14, number=1),
        batch(200, 15, number=50),
        batch(200, 16, number=51),
        batch(1599, 17, number=52),
        batch(1600, 18, number=53),
    ]
    found = rows_of("producer_ids", records, 60_000, settings, bound, membership="exact")
    assert picked(found["producer_id_decisions"], "producer_id", "verdict", "rule")[11:] == [
        (12, "counted", "unseen_within_bound"),
        (50, "counted", "unseen_after_gap"),
        (51, "counted", "unseen_after_gap"),
        (52, "counted", "unseen_after_gap"),
        (53, "counted", "unseen_within_bound"),
    ]
    without = [r for r in records if r["event_type"] != "gap"]
    judged = rows_of("producer_ids", without, 60_000, settings, bound, membership="exact")
    assert picked(judged["producer_id_decisions"], "producer_id", "verdict")[12:14] == [
        (50, "rejected"),
        (51, "rejected"),
    ]


# -- backlog ---------------------------------------------------------------------------------

FULL = document(
    "topic",
    "t/ns/a",
    backlog_quota={"destination_storage": {"limitSize": 100, "policy": "producer_exception"}},
)


def cursor(at_ms: int, seq: int, mark: str = "1:-1") -> Row:
    return record("cursor_state", at_ms, seq, topic=topic("a"), subscription="s", mark_delete=mark)


def created(at_ms: int, seq: int) -> Row:
    return record("producer_created", at_ms, seq, topic=topic("a"), cnx_id="c", producer_id=seq)


def test_no_quota_is_decided_before_positions_and_sizes_are_stated_again() -> None:
    found = rows_of(
        "backlog",
        [
            ledger(0, 1),
            cursor(0, 2),
            gap(1500, 3),
            created(2500, 4),
            cursor(3500, 5),
            ledger(4500, 6),
            created(5500, 7),
        ],
        6500,
        FULL,
    )
    checks = found["backlog_checks"]
    assert [row["pass_ms"] - START_MS for row in checks] == [0, 1000, 5000, 6000]
    assert {row["rule"] for row in checks} == {"size_exceeded"}
    assert picked(found["producer_refusals"], "ts_wall_ms") == [(START_MS + 5500,)]


def test_a_topic_that_comes_after_a_gap_waits_for_its_states() -> None:
    added = record(
        "entry_added", 100, 2, topic=topic("a"), ledger_id=1, entry_id=7, entry_bytes=900
    )
    found = rows_of("backlog", [gap(0, 1), added, cursor(200, 3), ledger(2200, 4)], 3500, FULL)
    assert [row["pass_ms"] - START_MS for row in found["backlog_checks"]] == [3000]


# -- entry_cache -----------------------------------------------------------------------------


def test_what_a_cache_may_have_held_is_not_missed() -> None:
    """An entry that nobody reads stays for 1 s, at most six times that with its extensions."""
    records = [
        record(
            "cursor_state", 0, 1, broker="a", topic=topic("x"), subscription="s", read_pos="1:0"
        ),
        entry_read(1, 2, number=1),
        entry_read(2, 3, number=1),
        gap(100, 4, broker="a"),
        entry_read(101, 5, number=1),
        entry_read(102, 6, number=1),
        entry_read(6099, 7, number=2),
        entry_read(6100, 8, number=3),
    ]
    found = rows_of("entry_cache", records, 120_000)
    assert picked(found["cache_reads"], "rule", "hit") == [
        ("miss", False),
        ("hit", True),
        ("unknown", None),
        ("hit", True),
        ("unknown", None),
        ("miss", False),
    ]
    whole = next(row for row in found["cache_stats"] if row["topic"] is None)
    assert [whole[n] for n in ("hits", "misses", "unknown_reads", "hit_ratio")] == [2, 2, 2, 0.5]


@pytest.mark.parametrize("job", JOBS)
def test_a_repeated_gap_is_a_duplicate_and_ends_nothing_twice(job: str) -> None:
    one = JOBS[job]
    records = [one.event(0, 1), gap(500, 2, broker=one.event(0)["broker"])]
    again = one.play([records, [{**records[-1], "source_offset": 9}]], Sample(()))
    assert picked(again.pop("quarantine"), "reason_code", "seq") == [("DUPLICATE_RECORD", 2)]
    once = one.play([records], Sample(()))
    assert once.pop("quarantine") == []
    assert again == once


@pytest.mark.parametrize("job", JOBS)
def test_a_gap_of_unknown_beginning_and_one_that_begins_after_its_end(job: str) -> None:
    params = params_of(job)["idle_advance_ms"]
    one = JOBS[job]
    broker = one.event(0)["broker"]
    for began in (None, 2**63 - 1, -(2**63) + 1):
        lost = gap(500, 2, broker=broker, gap_from_mono_ns=began, gap_from_wall_ms=began)
        rows = one.play(
            [[one.event(0, 1), lost, one.event(600, 3, number=2)]],
            Sample((), until_ms=START_MS + params),
        )
        assert rows["quarantine"] == []
