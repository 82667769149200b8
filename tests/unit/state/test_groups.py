"""Kafka groups: lag, losses and states, each rule by name; random polls against the reference."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference.backlog import judge
from tests.reference.words import words
from tests.support.effort import drawn
from tests.support.groups import POLL_MS, log, of_kafka, offset, polls, retention, rows
from tests.unit.state.backlog_trace import T0, numbered, play
from tests.unit.state.backlog_traces import GROUP_OPS, traces
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.shipping import Row

MINUTE = 60_000


def values(found: list[Row], *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(r[c] for c in columns) for r in found]


def test_a_row_has_kafkas_own_names_and_numbers() -> None:
    found = rows(
        [retention(600), log(0, 50, 10), offset(0, 20, publish_time_ms=T0 - 60_000, unread=25)], 1
    )
    (row,) = found["group_lag"]
    assert {
        k: v
        for k, v in row.items()
        if v is not None
        and k not in words("cluster broker ts_wall_ms source_feed row_no switches params_hash job")
    } == {
        "rule": "committed",
        "group": "g",
        "topic": "orders",
        "partition": 3,
        "pass_ms": T0,
        "answered_ms": T0,
        "state": "committed",
        "committed": 20,
        "log_start": 10,
        "log_end": 50,
        "lag": 30,
        "lag_records": 25,
        "lag_bytes": 2500,
        "age_s": 60,
        "age_state": "known",
        "oldest_timestamp_ms": T0 - 60_000,
        "limit_s": 600,
        "time_usage": 0.1,
        "time_to_loss_s": 540.0,
    }
    assert found["group_states"] == found["lost_messages"] == []


@pytest.mark.parametrize("digits", ["1" * 10, "9" * 19, "9" * 20, "9" * 5000])
def test_a_number_that_no_partition_has_is_part_of_the_name(digits: str) -> None:
    topic = f"orders-partition-{digits}"
    read = [{**each, "topic": topic, "partition": None} for each in (log(0, 50), offset(0, 20))]
    found = rows(read, 1)["group_lag"]
    assert values(found, "topic", "partition", "lag") == [(topic, None, 30)]


def test_a_row_has_the_time_of_the_answer_that_it_rests_on() -> None:
    """A poll without an answer about one group, one without any, and one that has all again."""
    whole = [log(0, 50), offset(0, 20), offset(0, 30, "other")]
    found = rows(polls(whole, [log(0, 60), offset(0, 25)], [], whole), 2 * POLL_MS * 4)
    answered = {
        (r["group"], (r["pass_ms"] - T0) // POLL_MS): (r["answered_ms"] - T0) // POLL_MS
        for r in found["group_lag"]
    }
    assert [answered["g", n] for n in range(5)] == [0, 1, 1, 3, 3]
    assert [answered["other", n] for n in range(5)] == [0, 0, 0, 3, 3]


def test_a_read_to_the_end_without_a_record_means_that_nothing_is_unread() -> None:
    """A transaction marker behind the offset, for longer than the retention, and its deletion."""
    marker = [log(0, 4), offset(0, 3, unread=0)]
    deleted = [log(0, 4, 4), offset(0, 3)]
    found = rows([retention(20), *polls(*[marker] * 9, *[deleted] * 3)], 120_001)
    assert values(
        found["group_lag"],
        "lag",
        "lag_records",
        "lag_bytes",
        "age_s",
        "age_state",
        "time_usage",
        "time_to_loss_s",
    ) == [(1, 0, 0, None, "nothing_unread", None, None)] * 12 + [
        (1, 0, 0, None, "nothing_unread", None, None)
    ]
    assert found["lost_messages"] == found["group_states"] == []


def test_what_is_lost_is_counted_once() -> None:
    """At first sight what is gone already; then what the start of the log moves on by, beyond the
    offset and the start before."""
    found = rows(
        polls(
            [log(0, 100, 30), offset(0, 20)],
            [log(0, 100, 30), offset(0, 20)],
            [log(0, 200, 90), offset(0, 20)],
            [log(0, 200, 90), offset(0, 95)],
            [log(0, 200, 95), offset(0, 95)],
            [log(0, 200, 120), offset(0, 110)],
            [log(0, 200, 120), offset(0, 150)],
        ),
        70_000,
    )
    assert values(
        found["lost_messages"], "committed", "from_offset", "to_offset", "offsets", "first_sight"
    ) == [(20, 20, 30, 10, True), (20, 30, 90, 60, False), (110, 110, 120, 10, False)]


@pytest.mark.parametrize(
    ("start", "end", "lost"), [(11, 11, []), (12, 12, [(10, 2)]), (11, 20, [(10, 1)])]
)
def test_a_marker_that_was_deleted_before_the_first_poll_is_no_loss(
    start: int, end: int, lost: list[tuple[int, int]]
) -> None:
    """Readers of transactions stand before the last marker; retention has emptied a quiet topic."""
    found = rows(polls(*[[log(0, end, start), offset(0, 10)]] * 2), 20_001)
    assert values(found["lost_messages"], "from_offset", "offsets") == lost


def test_an_emptied_log_has_nothing_unread_and_another_log_begins_anew() -> None:
    found = rows(
        polls(
            [log(0, 100, 0), offset(0, 100)],
            [log(0, 100, 100), offset(0, 100)],
            [log(0, 5, 0), offset(0, 100)],
            [log(0, 30, 10), offset(0, 5)],
        ),
        40_000,
    )
    assert values(found["group_lag"], "state", "lag", "lag_records") == [
        ("committed", 0, 0),
        ("committed", 0, 0),
        ("ahead", -95, 0),
        ("committed", 25, None),
    ]
    assert values(found["group_states"], "state", "before", "committed", "log_end") == [
        ("ahead", "committed", 100, 5),
        ("committed", "ahead", 5, 30),
    ]
    assert values(found["lost_messages"], "from_offset", "offsets") == [(5, 5)]


def test_nothing_is_drained_or_grows_while_a_group_is_ahead() -> None:
    found = rows(polls(*[[log(0, 10 + i), offset(0, 50)] for i in range(6)]), 60_000)
    assert values(found["group_lag"], "lag", "lag_growth", "commit_rate", "time_to_drain_s") == [
        (i - 40, None, None, None) for i in range(6)
    ]
    assert values(found["group_states"], "state", "before") == [("ahead", None)]


def test_rates_begin_anew_after_a_reset() -> None:
    given = [
        *[[log(0, 100 + 10 * i), offset(0, 50 + 5 * i)] for i in range(4)],
        *[[log(0, 140 + 10 * i), offset(0, 7 * i)] for i in range(4)],
    ]
    found = rows(polls(*given), 80_000)
    assert values(found["group_lag"], "lag_growth", "commit_rate") == [
        (None, None),
        (None, None),
        (0.5, 0.5),
        (0.5, 0.5),
        (None, None),
        (None, None),
        (0.3, 0.7),
        (0.3, 0.7),
    ]


def test_what_is_gone_ends() -> None:
    """A deleted topic, an offset that has expired unread, and one that was read."""
    end = of_kafka("cursor_deleted", 0, subscription="g")
    read = of_kafka("cursor_deleted", 0, subscription="h")
    topic = of_kafka("ledger_deleted", 0, ledger_id=0)
    begin = [log(0, 50, 10), offset(0, 20), offset(0, 50, "h")]
    expired = rows(polls(begin, [end, read, log(0, 50, 10)], [log(0, 60, 10)]), 30_000)
    assert values(expired["group_lag"], "group", "state", "lag", "age_s") == [
        ("g", "committed", 30, 0),
        ("h", "committed", 0, None),
        ("g", "offsets_expired", None, None),
        ("h", "gone", None, None),
    ]
    assert values(expired["group_states"], "group", "state", "unread") == [
        ("g", "offsets_expired", 30),
        ("h", "gone", None),
    ]
    # Nobody's offset has expired where a group is no longer followed.
    left = rows(polls(begin, [{**end, "unread": 0}, log(0, 50, 10)], [log(0, 60, 10)]), 30_000)
    assert values(left["group_states"], "group", "state", "unread") == [("g", "gone", None)]
    for order in ([topic, end, read], [end, read, topic]):
        gone = rows(polls(begin, order, [log(0, 5, 0)]), 30_000)
        assert values(gone["group_lag"], "group", "state", "log_end")[2:] == [
            ("g", "gone", None),
            ("h", "gone", None),
        ]
        assert values(gone["group_states"], "state") == [("gone",), ("gone",)]
        # The same if the topic is there again before a check.
        anew = rows([*polls(begin, [*order, {**log(0, 90), "ts_wall_ms": T0 + 1}])], 30_000)
        assert values(anew["group_lag"], "group", "state", "log_end")[2:] == [
            ("g", "gone", None),
            ("h", "gone", None),
        ]
        assert values(anew["group_states"], "state", "unread") == [("gone", None), ("gone", None)]
        back = rows([*polls(begin, [*order, log(0, 90), offset(0, 40)])], 30_000)
        assert values(back["group_states"], "group", "state") == [("h", "gone")]
        assert back["lost_messages"] == []


def test_a_group_without_an_offset() -> None:
    none = of_kafka("group_state", 0, subscription="g", group_state="no_offset")
    found = rows(
        polls([log(0, 308, 8), none], [log(0, 310, 8), none], [log(0, 310, 8), offset(0, 310)]),
        30_000,
    )
    assert values(found["group_states"], "state", "before", "unread", "committed") == [
        ("no_offset", None, 300, None),
        ("committed", "no_offset", None, 310),
    ]
    whole = [
        of_kafka(
            "group_state",
            i * POLL_MS,
            subscription="typo",
            topic=None,
            partition=None,
            group_state=state,
        )
        for i, state in enumerate(("unknown_group", "unknown_group", "known"))
    ]
    found = rows(whole, 40_000)
    assert values(found["group_states"], "group", "topic", "partition", "state", "before") == [
        ("typo", None, None, "unknown_group", None),
        ("typo", None, None, "known", "unknown_group"),
    ]
    assert found["group_lag"] == []


def whole_group(state: str, **columns: Any) -> Row:
    of_all = {"subscription": "g", "topic": None, "partition": None, "group_state": state}
    return of_kafka("group_state", 0, **of_all, **columns)


def waits(**columns: Any) -> Row:
    return of_kafka("group_state", 0, subscription="g", group_state="open_transaction", **columns)


def test_a_group_at_the_last_stable_offset_names_the_transaction() -> None:
    """A row when it begins, when its producer is known, at the next transaction, and at the end."""
    first = waits(producer_id=7, producer_name="payments-1", publish_time_ms=T0 - 5000)
    second = waits(producer_id=7, producer_name="payments-1", publish_time_ms=T0 + 9000)
    found = rows(
        polls(
            [log(0, 60), offset(0, 50, unread=0)],
            [log(0, 61), offset(0, 50, unread=0), waits()],
            [log(0, 61), offset(0, 50, unread=0), first],
            [log(0, 62), offset(0, 50, unread=0), waits()],
            [log(0, 70), offset(0, 64), second],
            [log(0, 70), offset(0, 70)],
        ),
        60_000,
    )
    assert values(found["group_lag"], "state", "committed", "lag", "lag_records") == [
        ("committed", 50, 10, 0),
        ("open_transaction", 50, 11, 0),
        ("open_transaction", 50, 11, 0),
        ("open_transaction", 50, 12, 0),
        ("open_transaction", 64, 6, None),
        ("committed", 70, 0, 0),
    ]
    assert values(
        found["group_states"],
        "state",
        "before",
        "transactional_id",
        "producer_id",
        "transaction_start_ms",
    ) == [
        ("open_transaction", "committed", None, None, None),
        ("open_transaction", None, "payments-1", 7, T0 - 5000),
        ("open_transaction", None, "payments-1", 7, T0 + 9000),
        ("committed", "open_transaction", None, None, None),
    ]


def test_a_row_names_the_consumer_that_has_the_partition() -> None:
    """As the newest poll has it."""
    named = {"client_id": "billing-1", "client_host": "10.0.0.7"}
    found = rows(
        polls(
            [log(0, 60), offset(0, 50, **named)],
            [log(0, 60), offset(0, 50)],
            [log(0, 60), offset(0, 70, **named)],
            [of_kafka("cursor_deleted", 0, subscription="g")],
        ),
        40_000,
    )
    assert values(found["group_lag"], "state", "client_id", "client_host") == [
        ("committed", "billing-1", "10.0.0.7"),
        ("committed", None, None),
        ("ahead", "billing-1", "10.0.0.7"),
        ("gone", None, None),
    ]


def test_a_row_has_the_type_of_the_group_and_one_of_a_whole_group_its_epochs() -> None:
    epochs = {"group_epoch": 5, "assignment_epoch": 4}
    found = rows(
        polls(
            [
                log(0, 60),
                offset(0, 50, group_type="share"),
                whole_group("stable", group_type="share"),
            ],
            [
                log(0, 60),
                offset(0, 50),
                whole_group("rebalancing", group_type="consumer", **epochs),
            ],
            [log(0, 60), offset(0, 50), whole_group("known")],
        ),
        40_000,
    )
    assert values(found["group_lag"][:2], "group_type") == [("share",), (None,)]
    assert values(
        found["group_states"], "state", "group_type", "group_epoch", "assignment_epoch"
    ) == [
        ("stable", "share", None, None),
        ("rebalancing", "consumer", 5, 4),
        ("known", "consumer", None, None),
    ]


def test_a_group_that_has_read_all_waits_for_no_transaction() -> None:
    """Nor does one without an offset."""
    found = rows(polls([log(0, 50), offset(0, 50), waits()], [log(0, 50), offset(0, 50)]), 20_000)
    assert values(found["group_lag"], "state") == [("committed",), ("committed",)]
    none = of_kafka("group_state", 0, subscription="g", group_state="no_offset")
    found = rows(polls([log(0, 50), none, waits()]), 10_000)
    assert values(found["group_states"], "state") == [("no_offset",)]


def test_an_offset_that_vanishes_from_one_partition_has_expired() -> None:
    none = of_kafka("group_state", 0, subscription="g", group_state="no_offset")
    found = rows([log(0, 50), offset(0, 20), {**none, "ts_wall_ms": T0 + 1}], 20_000)
    assert values(found["group_states"], "state", "before", "unread") == [
        ("offsets_expired", "committed", 30),
        ("no_offset", "offsets_expired", 50),
    ]


def test_times_of_another_unit_give_no_age() -> None:
    """Microseconds, seconds, and a clock a day ahead; half an hour ahead is a clock."""
    for time, state in (
        (T0 * 1000, "other_unit"),
        (T0 // 1000, "other_unit"),
        (T0 + 86_400_001, "other_unit"),
        (T0 + 1_800_000, "known"),
        (946_684_800_000, "known"),
    ):
        found = rows([retention(60), log(0, 9), offset(0, 5, publish_time_ms=time)], 1)
        assert values(found["group_lag"], "age_state") == [(state,)]
        if state == "other_unit":
            assert values(found["group_lag"], "age_s", "time_usage", "time_to_loss_s") == [
                (None, None, None)
            ]


def test_a_retention_without_an_end_is_none() -> None:
    found = rows([retention(10**9 + 1, 2**62 + 1), log(0, 9), offset(0, 5)], 1)
    assert values(found["group_lag"], "limit_s", "limit_bytes", "time_to_loss_s") == [
        (None, None, None)
    ]
    found = rows([retention(10**9), log(0, 9), offset(0, 5)], 1)
    assert values(found["group_lag"], "limit_s") == [(10**9,)]


def test_the_time_to_a_loss_is_known_at_the_first_check() -> None:
    def left(age_s: int, size: int | None = None) -> Any:
        found = rows(
            [retention(600, size), log(0, 50), offset(0, 20, publish_time_ms=T0 - age_s * 1000)], 1
        )
        return found["group_lag"][0]["time_to_loss_s"]

    assert [left(100), left(600), left(601), left(100, 3000), left(100, 3001)] == [
        500.0,
        0.0,
        0.0,
        0.0,
        500.0,
    ]


def test_random_polls_are_judged_as_the_reference_judges_them() -> None:
    seen: Counter[str] = Counter()

    @drawn(150)
    @given(traces(ops=GROUP_OPS, most=80), st.integers(1, 9))
    def check(trace: Any, cuts: int) -> None:
        records = numbered(trace.records)
        expected = judge(trace.records, trace.params, trace.configured, trace.end_ms)
        step = len(records) // cuts + 1
        batches = [records[i : i + step] for i in range(0, len(records), step)]
        for each in ([records], batches):
            got = play(each, trace.params, trace.configured, trace.end_ms)
            JOBS["backlog"].assert_same(got, expected)
        for table in ("group_lag", "group_states", "lost_messages"):
            seen.update((table, r["rule"]) for r in expected[table])

    check()
    assert {
        ("group_lag", "ahead"),
        ("group_states", "offsets_expired"),
        ("group_states", "gone"),
        ("group_states", "no_offset"),
        ("group_states", "known"),
        ("group_lag", "open_transaction"),
        ("group_states", "open_transaction"),
        ("lost_messages", "first_sight"),
        ("lost_messages", "retention"),
    } <= set(seen)


@pytest.mark.parametrize("is_known", [False, True])
def test_a_group_whose_log_was_deleted_has_no_numbers_of_another_one(is_known: bool) -> None:
    """Also when its name is known again before the check."""
    known = [of_kafka("group_state", 3, subscription="g", group_state="known")] if is_known else []
    ends = [of_kafka("ledger_deleted", 2, ledger_id=0), *known]
    found = rows([log(0, 9), offset(1, 5), *ends, log(4, 48, start=24)], POLL_MS + 1)
    said = found["group_lag"] + found["group_states"]
    assert said and {values([row], "log_start", "log_end")[0] for row in said} == {(None, None)}
