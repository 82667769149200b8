"""The rules of backlog at their boundaries: core and reference alike."""

from __future__ import annotations

from typing import Any

import pytest

from tests.reference.backlog import DEDUPLICATION, LARGEST, topic_stats
from tests.reference.words import words
from tests.unit.state import both
from tests.unit.state.backlog_trace import (
    T0,
    TOPIC,
    cursor,
    entry,
    ledger,
    policy,
    quota_of,
    record,
)
from tests.unit.state.recorded import vectors
from tests.unit.state.shipping import Row

pytestmark = pytest.mark.usefixtures("runner")
PRECISE = {"preciseTimeBasedBacklogQuotaCheck": True, "backlogQuotaCheckIntervalInSeconds": 1}
BY_LEDGER = {**PRECISE, "preciseTimeBasedBacklogQuotaCheck": False}


def checks(
    records: list[Row],
    until_ms: int,
    params: dict[str, Any] | None = None,
    table: str = "backlog_checks",
) -> list[Row]:
    """Rows of one table, `until_ms` counted from the start."""
    chosen = {**PRECISE, "check_rows": "all", **(params or {})}
    return both.judge("backlog", records, chosen, until_ms=T0 + until_ms)[table]


def test_an_eviction_that_skips_nothing_counts() -> None:
    expect = next(v["expect"] for v in vectors("backlog.json", "eviction_skip") if v["id"] == "BL4")
    records = [
        ledger(0, 1, 5, 1001),
        cursor(0, "s", "1:-1"),
        policy(
            0,
            "topic",
            TOPIC,
            backlog_quota=quota_of("destination_storage", 1000, "consumer_backlog_eviction"),
        ),
    ]
    for rule in ("every_call", "evicted_only"):
        params = {"eviction_count_rule": rule}
        rows = checks(records, 3500, params, "backlog_evictions")
        assert [r["rule"] for r in rows] == ["skip_zero"] * 4
        assert all(r["phantom"] and r["entries_skipped"] == 0 for r in rows)
        counted = expect["eviction_count_delta_per_check"] if rule == "every_call" else 0
        assert {r["count_delta"] for r in rows} == {counted}
        assert rows[0]["from_position"] == rows[0]["to_position"] == "1:-1"


def test_a_ledger_of_2_63_entries_is_evicted_at_once() -> None:
    """Two cursors overtake each other. A tenth of what is left is wanted, for all entries together
    are 1000 bytes. In 100 rounds each cursor skips 2**31 - 1 entries 50 times; from there it skips
    a tenth of what is left until 9 entries are.
    """
    left, tenths = LARGEST - 50 * (2**31 - 1), 0
    while int(0.1 * left) > 0:
        left, tenths = left - int(0.1 * left), tenths + 1
    limit = quota_of("destination_storage", 1000, "consumer_backlog_eviction")
    records = [
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1"),
        cursor(0, "r", "1:-1"),
        entry(100, 1, 2**63 - 1, entry_bytes=1000),
        policy(0, "topic", TOPIC, backlog_quota=limit),
    ]
    rows = checks(records, 1001, table="backlog_evictions")
    assert [
        {
            k: r[k]
            for k in words(
                "rule subscription from_position to_position entries_skipped rounds factor"
                " target_bytes backlog_before backlog_after phantom count_delta"
            )
        }
        for r in rows
    ] == [
        {
            "rule": "skip_zero",
            "subscription": name,
            "from_position": "1:-1",
            "to_position": f"1:{LARGEST - left - 1}",
            "entries_skipped": LARGEST - left,
            "rounds": 100 + 2 * tenths,
            "factor": 0.1,
            "target_bytes": 900,
            "backlog_before": 1000,
            "backlog_after": 1000,
            "phantom": False,
            "count_delta": int(name == "r"),
        }
        for name in ("r", "s")
    ]


def test_forecasts() -> None:
    limits = {**quota_of("destination_storage", 1000), **quota_of("message_age", 60)}
    records = [
        policy(0, "topic", TOPIC, backlog_quota=limits),
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1"),
        cursor(0, "r", "1:-1", durable=False),
        *[entry(200 + 1000 * i, 1, i) for i in range(6)],
    ]
    rows = checks(records, 5001, table="backlog_subscriptions")
    reader, durable = ([r for r in rows if r["subscription"] == name] for name in "rs")
    assert [r["growth_rate"] for r in durable] == [None, None, 100.0, 100.0, 100.0, 100.0]
    assert [r["time_to_quota_s"] for r in durable[2:]] == [8.0, 7.0, 6.0, 5.0]
    assert {r["time_to_quota_s"] for r in reader} == {None}
    records += [cursor(5500 + 1000 * i, "s", f"1:{i}") for i in range(6)]
    last = checks(records, 10_001, {"forecast_checks": 4}, "backlog_subscriptions")[-1]
    assert last["growth_rate"] == -100.0 and last["drain_rate"] == 1.0
    assert last["time_to_drain_s"] == last["backlog_bytes"] / 100.0 == 1.0


def test_growth_is_the_median_of_the_slopes_between_all_checks() -> None:
    """0, 100, 300 and 800 bytes have the slopes 100, 150, 200, 267, 350 and 500."""
    records = [
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1"),
        *[entry(200 + 1000 * i, 1, i, entry_bytes=size) for i, size in enumerate((100, 200, 500))],
    ]
    rows = checks(records, 3001, table="backlog_subscriptions")
    assert [r["growth_rate"] for r in rows] == [None, None, 150.0, (200 + 800 / 3) / 2]


def test_a_size_limit_of_0_is_exceeded_by_every_backlog() -> None:
    limit = policy(0, "topic", TOPIC, backlog_quota=quota_of("destination_storage", 0))
    for entries in (0, 5):
        (row,) = checks([limit, ledger(0, 1, entries, 50 * entries), cursor(0, "s", "1:-1")], 1)
        assert (row["limit_bytes"], row["exceeded_size"]) == (0, True)


def test_settings_that_change() -> None:
    records = [
        ledger(0, 1, 1, 10),
        cursor(0, "s", "1:-1"),
        policy(2500, "broker", "*", backlogQuotaCheckIntervalInSeconds=5),
        policy(12_000, "broker", "*", backlogQuotaCheckEnabled=False),
        policy(14_500, "broker", "b1", backlogQuotaCheckEnabled=True),
    ]
    found = [r["pass_ms"] - T0 for r in checks(records, 18_001)]
    assert found == [0, 1000, 2000, 5000, 10_000, 15_000, 16_000, 17_000, 18_000]


def test_monotonic_time_of_passes() -> None:
    late = {**cursor(2500, "s", "1:0"), "ts_mono_ns": (T0 + 1500) * 1_000_000}
    first = [ledger(0, 1, 5, 50), cursor(0, "s", "1:-1")]
    expected = {0: 0, 1000: 1000, 2000: 1500, 3000: 2000}
    for broker, at in (("b1", expected), ("b2", {**expected, 2000: 2000})):
        rows = checks([*first, {**late, "broker": broker}], 3001)
        assert {r["pass_ms"] - T0: r["ts_mono_ns"] // 1_000_000 - T0 for r in rows} == at
    rows = checks([*first, {**late, "ts_mono_ns": None}], 3001)
    assert rows[2]["ts_mono_ns"] == (T0 + 2000) * 1_000_000 and rows[3]["ts_mono_ns"] is None


def test_a_broker_that_starts_forgets_what_it_cached() -> None:
    start = {**record("broker_started", 1500), "topic": None}
    records = [
        ledger(0, 1, 5, 50),
        cursor(0, "s", "1:-1", publish_time_ms=T0 - 5000),
        record("producer_created", 0, cnx_id="c", producer_id=1),
        policy(0, "topic", TOPIC, backlog_quota=quota_of("destination_storage", 1)),
    ]
    for broker, source, producers in (("b1", "publish_time", 0), ("b2", "kept", 1)):
        row = checks([*records, {**start, "broker": broker}], 2001)[-1]
        assert (row["timestamp_source"], row["producers_disconnected"]) == (source, producers)
        assert row["age_s"] == 7


SIZES = [100, 7, 31, 100, 2, 58]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [1, 0, 4, 2, 5, 3], [5, 4, 3, 2, 1, 0]])
def test_records_of_several_producers_are_a_little_out_of_order(order: list[int]) -> None:
    """No entry loses its bytes for that, and none that comes again has them twice."""
    added = [entry(10 + at, 1, n, entry_bytes=SIZES[n]) for at, n in enumerate(order)]
    records = [ledger(0, 1, 0, 0), cursor(0, "s", "1:-1"), *added]
    again = [entry(100 + n, 1, n, entry_bytes=SIZES[n]) for n in range(6)]
    for more in ([], again):
        assert checks([*records, *more], 1500)[-1]["backlog_bytes"] == sum(SIZES)


def test_what_a_ledger_has_when_it_is_stated_is_not_added_again() -> None:
    """The entries 0 to 2 are in the figures, though two of their records come later."""
    added = [entry(10, 1, 2, entry_bytes=31), ledger(11, 1, 3, 138)]
    late = [entry(12 + n, 1, n, entry_bytes=SIZES[n]) for n in (1, 0, 4, 3)]
    records = [ledger(0, 1, 0, 0), cursor(0, "s", "1:-1"), *added, *late]
    assert checks(records, 1500)[-1]["backlog_bytes"] == 138 + 2 + 100


def test_a_trimmed_ledger() -> None:
    """A mark-delete before the first ledger is looked at anew once a cursor has moved."""
    first = [
        ledger(0, 1, 5, 50, T0 - 9000),
        ledger(0, 2, 5, 50, T0 - 4000),
        ledger(0, 3, 5, 50),
        cursor(0, "s", "1:2", publish_time_ms=T0 - 20_000),
        cursor(0, "q", "3:0"),
        record("ledger_deleted", 1500, ledger_id=1),
    ]
    moved = [*first, cursor(2500, "q", "3:1")]
    untrimmed = [r for r in moved if r["event_type"] != "ledger_deleted"]
    assert checks(untrimmed, 3001)[-1]["timestamp_source"] == "kept"
    found = [
        [(r["timestamp_source"], r["age_s"]) for r in checks(records, 3001, params)]
        for records in (first, moved)
        for params in (PRECISE, BY_LEDGER)
    ]
    kept = [("publish_time", 20), ("kept", 21), ("kept", 22)]
    closed = [("ledger_close", 9), ("kept", 10), ("kept", 11)]
    assert found == [
        [*kept, ("kept", 23)],
        [*closed, ("kept", 12)],
        # what the poll told about the deleted ledger is forgotten, the sample is left
        [*kept, ("ledger_close", 7)],
        [*closed, ("ledger_close", 7)],
    ]


def test_the_cursor_of_deduplication_is_no_subscription() -> None:
    records = [
        ledger(0, 1, 5, 50),
        cursor(0, DEDUPLICATION, "1:-1", publish_time_ms=T0),
        cursor(0, "s", "1:4"),
    ]
    row = checks(records, 1)[0]
    assert (row["backlog_bytes"], row["age_state"], row["age_s"]) == (50, "no_backlog", -1)
    row = checks([*records, cursor(0, "s", "1:3", seq=1)], 1)[0]
    assert (row["oldest_subscription"], row["age_state"]) == (DEDUPLICATION, "known")


def test_the_cursor_of_deduplication_has_no_forecast_by_age_beside_others() -> None:
    """It moves at its snapshots, and a subscription may have a moment's backlog meanwhile."""
    limit = quota_of("message_age", 600)
    records = [
        ledger(0, 1, 9, 90),
        policy(0, "topic", TOPIC, backlog_quota=limit),
        cursor(0, DEDUPLICATION, "1:0", publish_time_ms=T0 - 90_000),
        cursor(0, "s", "1:7", publish_time_ms=T0 - 50),
    ]
    rows = checks(records, 6500, table="backlog_subscriptions")
    own = [r for r in rows if r["subscription"] == DEDUPLICATION]
    assert [r["age_s"] for r in own] == [90, 91, 92, 93, 94, 95, 96]
    assert {r["time_to_quota_s"] for r in own} == {None}
    others = [r["time_to_quota_s"] for r in rows if r["subscription"] == "s"]
    assert others == [None, None, 598.0, 597.0, 596.0, 595.0, 594.0]


def test_the_cursor_of_deduplication_alone_has_no_forecast_by_age() -> None:
    limits = {**quota_of("destination_storage", 100), **quota_of("message_age", 60)}
    records = [
        policy(0, "topic", TOPIC, backlog_quota=limits),
        ledger(0, 1, 5, 50),
        cursor(0, DEDUPLICATION, "1:-1", publish_time_ms=T0 - 90_000),
        cursor(0, "s", "1:4"),
    ]
    alone, _ = checks(records, 3001, PRECISE, "backlog_subscriptions")[-2:]
    assert (alone["subscription"], alone["age_s"]) == (DEDUPLICATION, 93)
    assert alone["time_to_quota_s"] is None
    records += [ledger(2500, 1, 9, 90)]
    row, other = checks(records, 3001, PRECISE, "backlog_subscriptions")[-2:]
    assert (row["subscription"], row["time_to_quota_s"]) == (DEDUPLICATION, 0.0)
    assert (other["subscription"], other["backlog_entries"]) == ("s", 4)


def test_every_subscription_expires() -> None:
    limit = quota_of("message_age", 2, "consumer_backlog_eviction")
    records = [
        policy(0, "topic", TOPIC, backlog_quota=limit),
        ledger(0, 1, 0, 0),
        *[cursor(0, name, "1:-1", durable=name != "r") for name in ("s", "r", "q")],
        cursor(0, DEDUPLICATION, "1:-1"),
        *[entry(200 * i, 1, i) for i in range(20)],
    ]
    records += [cursor(100, "q", "1:4"), cursor(300, DEDUPLICATION, "1:0")]
    rows = checks(records, 3001, table="backlog_evictions")
    found = [(r["subscription"], r["from_position"], r["to_position"]) for r in rows]
    # entries of one second have one time; 1.8 s are cut to 1 s, and 3000 - 1000 is not older
    assert found == [("q", "1:4", "1:9"), ("r", "1:-1", "1:9"), ("s", "1:-1", "1:9")]
    assert {r["rule"] for r in rows} == {"expired"}
    assert [r["count_delta"] for r in rows] == [1, 0, 0]
    # the cursor of deduplication holds the topic's backlog
    assert {(r["backlog_before"], r["backlog_after"]) for r in rows} == {(1600, 1500)}


def test_rows_go_on_for_one_pass() -> None:
    records = [
        ledger(0, 1, 5, 50),
        cursor(0, "s", "1:-1"),
        cursor(0, "q", "1:4"),
        cursor(1500, "s", "1:4"),
    ]
    params = {"check_rows": "backlogged"}
    found = checks(records, 4001, params, "backlog_subscriptions")
    assert [(r["subscription"], r["pass_ms"] - T0) for r in found] == [
        ("s", 0),
        ("s", 1000),
        ("s", 2000),
    ]
    assert [r["pass_ms"] - T0 for r in checks(records, 4001, params)] == [0, 1000, 2000]


def test_time_to_quota_while_the_mark_delete_moves() -> None:
    records = [
        policy(0, "topic", TOPIC, backlog_quota=quota_of("message_age", 60)),
        ledger(0, 1, 50, 500),
        cursor(0, "s", "1:-1", publish_time_ms=T0),
        *[cursor(1500 + i * 1000, "s", f"1:{i}", publish_time_ms=T0) for i in range(2)],
    ]
    rows = checks(records, 4001, table="backlog_subscriptions")
    assert [r["time_to_quota_s"] for r in rows] == [None, None, None, None, 56.0]


@pytest.mark.parametrize(("limit", "left"), [(10_000, None), (0, 0.0)])
def test_what_nobody_waits_for_reaches_no_quota(limit: int, left: float | None) -> None:
    """The backlog grew at most checks, and is read at the last one."""
    records = [
        policy(0, "topic", TOPIC, backlog_quota=quota_of("destination_storage", limit)),
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1"),
        *[entry(200 + 1000 * i, 1, i) for i in range(5)],
        cursor(4500, "s", "1:4"),
    ]
    last = checks(records, 5001, table="backlog_subscriptions")[-1]
    assert last["growth_rate"] > 0 and last["backlog_entries"] == 0
    assert last["time_to_quota_s"] == left


def test_a_pass_comes_after_everything_of_its_time() -> None:
    records = [ledger(0, 1, 5, 50), cursor(0, "s", "1:-1"), cursor(1000, "s", "1:2")]
    rows = checks(records, 1001, table="backlog_subscriptions")
    assert [r["mark_delete"] for r in rows] == ["1:-1", "1:2"]
    assert len(checks(records, 1000, table="backlog_subscriptions")) == 1


def test_refusals() -> None:
    limits = {
        **quota_of("destination_storage", 500, "producer_exception"),
        **quota_of("message_age", 2),
    }
    created = [
        record("producer_created", at, cnx_id="c", producer_id=at) for at in (100, 2201, 2202, 2900)
    ]
    records = [
        policy(0, "namespace", "t/a", backlog_quota=limits),
        ledger(0, 1, 0, 0),
        cursor(0, "s", "1:-1"),
        entry(200, 1, 0),
        *created,
        *[entry(2500, 1, i) for i in range(1, 5)],
    ]
    rows = checks(records, 3001, table="producer_refusals")
    assert [(r["producer_id"], r["quota_type"], r["error"]) for r in rows] == [
        (2201, "time", "ProducerBlockedQuotaExceededError"),
        (2202, "time", "ProducerBlockedQuotaExceededError"),
        (2900, "size", "ProducerBlockedQuotaExceededException"),
    ]
    assert checks(records, 3001)[-1]["producers_disconnected"] == 1
    again = record("producer_created", 2950, cnx_id="c", producer_id=100)
    assert checks([*records, again], 3001)[-1]["producers_disconnected"] == 0


def test_topic_stats() -> None:
    parts = [f"persistent://t/a/p-partition-{n}" for n in (0, 1, 10)]
    records = []
    for i, name in enumerate(parts):
        records += [
            {**r, "topic": name}
            for r in (
                ledger(0, 1, 2, 20),
                cursor(0, f"s{i}", "1:-1" if i else "1:1", publish_time_ms=T0 - 10_000 * i),
            )
        ]
    records.append({**cursor(500, "s2", "1:1"), "topic": parts[2]})
    rows = checks(records, 3001, {"check_rows": "backlogged"})
    found = {r["topic"]: r for r in topic_stats(rows)}
    assert set(found) == {parts[1], parts[2], "persistent://t/a/p"}
    whole = found["persistent://t/a/p"]
    assert whole["oldestBacklogMessageAgeSeconds"] == 13
    assert whole["oldestBacklogMessageSubscriptionName"] == "s1"
    assert whole["backlogQuotaLimitSize"] == whole["backlogQuotaLimitTime"] == -1
    assert found[parts[2]]["oldestBacklogMessageAgeSeconds"] == -1
    earlier = [r for r in rows if r["topic"] != parts[1] or r["pass_ms"] <= T0 + 1000]
    ages = [
        next(r for r in topic_stats(earlier, reading) if r["topic"] == parts[1])[
            "oldestBacklogMessageAgeSeconds"
        ]
        for reading in ("live", "last_check")
    ]
    assert ages == [11, 11]
