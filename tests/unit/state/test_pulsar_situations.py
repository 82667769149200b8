"""Situations of real Pulsar clusters: what a poll shows, and what the job makes of it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from tests.reference.words import words
from tests.unit.state.recorded_polls import columns, judged, polls_of

CHECKS, SUBSCRIPTIONS = "backlog_checks", "backlog_subscriptions"
REPLICATOR = "pulsar.repl.jp-west"


def changed(polls: list[Any], change: Any) -> list[Any]:
    """Copies of polls after a change of each."""
    found = copy.deepcopy(polls)
    for number, poll in enumerate(found):
        change(poll, number)
    return found


# -- replicators -----------------------------------------------------------------------------


def test_a_replicator_behind_holds_storage_and_has_no_age(tmp_path: Path) -> None:
    rows, done = judged(polls_of("pulsar-02-replicator-behind"), tmp_path)
    assert done.problems == []
    assert (
        columns(rows[CHECKS], "rule", "backlog_bytes", "age_s", "age_state", "time_usage")
        == [("within_limits", 2_455_308_531, -1, "no_backlog", None)] * 3
    )
    assert columns(
        rows[SUBSCRIPTIONS], "subscription", "kind", "backlog_entries", "age_s", "time_to_quota_s"
    )[0] == (REPLICATOR, "replicator", 6_258_001, None, None)
    assert "producer_refusals" not in rows


@pytest.mark.parametrize(
    "name", ["pulsar.repl.us-east", "pulsar.repl-persistent%3A%2F%2Facme%2Fgeo%2Fshadow"]
)
def test_every_replicator_is_one(name: str, tmp_path: Path) -> None:
    def renamed(poll: Any, _: int) -> None:
        cursors = poll["internal"]["cursors"]
        cursors[name] = cursors.pop(REPLICATOR)

    rows, _ = judged(changed(polls_of("pulsar-02-replicator-behind"), renamed), tmp_path)
    assert {row["age_state"] for row in rows[CHECKS]} == {"no_backlog"}
    assert {row["kind"] for row in rows[SUBSCRIPTIONS]} == {"replicator"}
    assert "producer_refusals" not in rows


def test_while_a_subscription_is_behind_the_age_is_that_of_the_oldest_cursor(
    tmp_path: Path,
) -> None:
    """As a broker of 4.2.4 was seen to do: see docs/decisions.md."""

    def behind(poll: Any, _: int) -> None:
        poll["internal"]["cursors"]["local"]["markDeletePosition"] = "702:258010"

    rows, _ = judged(changed(polls_of("pulsar-02-replicator-behind"), behind), tmp_path)
    assert columns(rows[CHECKS], "age_state", "oldest_subscription", "rule")[0] == (
        "known",
        REPLICATOR,
        "time_exceeded",
    )
    assert {row["subscription"]: row["age_s"] for row in rows[SUBSCRIPTIONS]} == {
        REPLICATOR: None,
        "local": None,
    }


# -- system topics ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic",
    [
        *words(
            "persistent://acme/orders/__change_events"
            " persistent://acme/orders/__change_events-partition-2"
            " persistent://acme/orders/__transaction_buffer_snapshot"
            " persistent://acme/orders/paid-billing__transaction_pending_ack"
            " persistent://pulsar/system/transaction_coordinator_assign-partition-1"
        )
    ],
)
def test_a_system_topic_exceeds_nothing(topic: str, tmp_path: Path) -> None:
    def renamed(poll: Any, _: int) -> None:
        poll["topic"] = topic
        poll["policies"]["namespace"]["message_ttl_in_seconds"] = 60

    rows, _ = judged(
        changed(polls_of("pulsar-03-change-events"), renamed),
        tmp_path,
        backlogQuotaDefaultLimitBytes=0,
        backlogQuotaDefaultLimitSecond=5,
        ttlDurationDefaultInSeconds=5,
    )
    assert (
        columns(
            rows[CHECKS],
            "rule",
            "backlog_bytes",
            "limit_bytes",
            "limit_s",
            "limit_source_size",
            "limit_source_time",
            "action",
            "ttl_s",
            "oldest_subscription",
        )
        == [
            (
                "within_limits",
                18_004_950,
                None,
                None,
                "system",
                "system",
                "none",
                None,
                "__compaction",
            )
        ]
        * 3
    )
    assert [row["age_s"] for row in rows[CHECKS]] == [108_060, 108_120, 108_180]
    assert {row["time_to_quota_s"] for row in rows[SUBSCRIPTIONS]} == {None}
    assert "producer_refusals" not in rows


def test_a_topic_with_underscores_is_none(tmp_path: Path) -> None:
    def renamed(poll: Any, _: int) -> None:
        poll["topic"] = "persistent://acme/orders/__mine"

    rows, _ = judged(changed(polls_of("pulsar-03-change-events"), renamed), tmp_path)
    assert {row["rule"] for row in rows[CHECKS]} == {"size_masks_time"}
    assert columns(rows["producer_refusals"], "producer_id", "quota_type") == [(7, "size")]


# -- quotas that are off -----------------------------------------------------------------------


LIMITS = ("limit_bytes", "limit_s", "limit_source_size", "limit_source_time", "rule")


def test_a_quota_that_is_switched_off_at_a_level_hides_those_below_it(tmp_path: Path) -> None:
    rows, done = judged(polls_of("pulsar-29-minus-one"), tmp_path)
    assert done.problems == []
    by_topic = {
        row["topic"].removeprefix("persistent://acme/"): tuple(row[name] for name in LIMITS)
        for row in rows[CHECKS]
    }
    assert by_topic == {
        "unlimited/t": (None, None, "namespace", "namespace", "within_limits"),
        "ten/t1": (10_485_760, None, "topic", "namespace", "size_exceeded"),
        "ten/free": (None, None, "topic", "namespace", "within_limits"),
        "ten/plain": (10_737_418_240, None, "namespace", "namespace", "size_exceeded"),
    }


def test_a_quota_that_is_taken_back_shows_the_level_below(tmp_path: Path) -> None:
    """Both types of a namespace at first; then one is removed, at last both are."""

    def fewer(poll: Any, _: int) -> None:
        quotas = poll["policies"]["namespace"]["backlog_quota_map"]
        if poll["polled_ms"] >= 1_795_600_850_000:
            del quotas["destination_storage"]
        if poll["polled_ms"] >= 1_795_600_910_000:
            quotas.clear()

    polls = [p for p in polls_of("pulsar-29-minus-one") if "unlimited" in p["topic"]]
    rows, _ = judged(changed(polls, fewer), tmp_path)
    off, size, time = (None, None), (10 << 30, None), (10 << 30, 3600)
    found = columns(rows[CHECKS], "limit_bytes", "limit_s")
    assert found == [off, size, time, time]


# -- names -----------------------------------------------------------------------------------


def test_an_encoded_subscription_is_judged_as_its_plain_sister(tmp_path: Path) -> None:
    rows, done = judged(polls_of("pulsar-23-encoded-subscription"), tmp_path)
    assert done.problems == []
    by_name: dict[str, list[Any]] = {}
    for row in rows[CHECKS]:
        by_name.setdefault(row["oldest_subscription"], []).append(
            (row["age_s"], row["rule"], row["producers_disconnected"])
        )
    assert by_name == {
        name: [(7260, "time_exceeded", 0), (7320, "time_exceeded", 0), (7380, "time_exceeded", 0)]
        for name in ("billing:eu@night", "ExclamationFunction")
    }
    assert [row["producer_id"] for row in rows["producer_refusals"]] == [3, 3]


# -- entries acknowledged one by one ---------------------------------------------------------


def test_what_is_acknowledged_behind_a_hole_is_no_backlog(tmp_path: Path) -> None:
    rows, done = judged(polls_of("pulsar-08-ack-holes"), tmp_path)
    assert done.problems == []
    assert columns(rows[CHECKS], "backlog_bytes") == [(11_689_393,)] * 3
    assert (
        columns(
            rows[SUBSCRIPTIONS], "backlog_entries", "unacked_ranges", "first_hole", "mark_delete"
        )
        == [(3, 8, "1995117:1015", "1995117:1014")] * 3
    )
    assert rows[SUBSCRIPTIONS][-1]["drain_rate"] == 0


def test_acknowledgements_behind_a_hole_are_a_rate(tmp_path: Path) -> None:
    def fewer(poll: Any, number: int) -> None:
        shown = poll["internal"]["cursors"]["processor"]
        shown["individuallyDeletedMessages"] = (
            f"[(1995117:1015..1995117:1239],(1997005:-1..1997005:{10 + 60 * number}]]"
        )
        shown["totalNonContiguousDeletedMessagesRange"] = 2

    rows, _ = judged(changed(polls_of("pulsar-08-ack-holes"), fewer), tmp_path)
    assert [row["backlog_entries"] for row in rows[SUBSCRIPTIONS]] == [886, 826, 766]
    assert [row["mark_delete"] for row in rows[SUBSCRIPTIONS]] == ["1995117:1014"] * 3
    assert rows[SUBSCRIPTIONS][-1]["drain_rate"] == 1.0


@pytest.mark.parametrize("count", [1, 4_999, 5_001, 9_999, 10_000, 10_001, 12_000, 25_000])
def test_more_ranges_than_are_kept_are_counted(tmp_path: Path, count: int) -> None:
    def many(poll: Any, _: int) -> None:
        internal = poll["internal"]
        internal["ledgers"] = [{"ledgerId": 5, "entries": 0, "size": 0}]
        internal["currentLedgerEntries"], internal["currentLedgerSize"] = 3 * count, 3 * count
        internal["lastConfirmedEntry"] = f"5:{3 * count - 1}"
        shown = internal["cursors"]["processor"]
        shown["markDeletePosition"] = "5:0"
        shown["individuallyDeletedMessages"] = (
            "[" + ",".join(f"(5:{3 * i + 1}..5:{3 * i + 2}]" for i in range(count)) + "]"
        )
        shown["totalNonContiguousDeletedMessagesRange"] = count

    rows, done = judged(changed(polls_of("pulsar-08-ack-holes")[:2], many), tmp_path)
    assert done.problems == []
    assert [row["backlog_entries"] for row in rows[SUBSCRIPTIONS]] == [2 * count - 1]


# -- TTL -------------------------------------------------------------------------------------


def test_messages_that_expire_before_the_quota_never_reach_it(tmp_path: Path) -> None:
    rows, _ = judged(polls_of("pulsar-17-ttl-before-quota"), tmp_path)
    assert columns(rows[SUBSCRIPTIONS], "time_to_quota_s", "time_to_expiry_s") == [
        (None, None),
        (None, 480.0),
        (None, 420.0),
        (None, 360.0),
        (None, 300.0),
    ]
    assert {(row["limit_s"], row["ttl_s"]) for row in rows[CHECKS]} == {(5400, 3600)}


@pytest.mark.parametrize(
    ("policies", "ttl", "quota"),
    [
        ({"namespace": {"message_ttl_in_seconds": 7200}}, 7200, 2220.0),
        (
            {"namespace": {"message_ttl_in_seconds": 5200}},
            5200,
            2220.0,
        ),  # within one expiry interval
        (
            {
                "namespace": {"message_ttl_in_seconds": 0},
                "broker": {"ttlDurationDefaultInSeconds": "3600"},
            },
            None,
            2220.0,
        ),
        (
            {
                "namespace": {"message_ttl_in_seconds": None},
                "broker": {"ttlDurationDefaultInSeconds": "3600"},
            },
            3600,
            None,
        ),
        (
            {"namespace": {"message_ttl_in_seconds": 7200}, "topic": {"messageTTL": 3600}},
            3600,
            None,
        ),
        ({"topic": {"messageTTL": 0}}, None, 2220.0),
    ],
)
def test_the_nearest_ttl_decides(
    tmp_path: Path, policies: Any, ttl: int | None, quota: float | None
) -> None:
    def set_policies(poll: Any, _: int) -> None:
        for scope, more in policies.items():
            poll["policies"].setdefault(scope, {}).update(more)

    rows, _ = judged(changed(polls_of("pulsar-17-ttl-before-quota"), set_policies), tmp_path)
    assert {row["ttl_s"] for row in rows[CHECKS]} == {ttl}
    assert rows[SUBSCRIPTIONS][2]["time_to_quota_s"] == quota


@pytest.mark.parametrize("counted", [True, False])
def test_messages_that_expired_are_counted(tmp_path: Path, counted: bool) -> None:
    """By the broker's count from its first sight on; without one, those that the mark-delete passed
    and whose age is known to be beyond the TTL: of an open ledger the first."""

    def expire(poll: Any, number: int) -> None:
        poll["polled_ms"] += 600_000
        subscription = poll["stats"]["subscriptions"]["s"]
        gone = number >= 2
        if counted:
            subscription["totalMsgExpired"] = 40 if gone else 5
        if gone:
            poll["internal"]["cursors"]["s"]["markDeletePosition"] = "3:44"
            subscription["earliestMsgPublishTimeInBacklog"] = 1_795_601_500_000

    rows, _ = judged(changed(polls_of("pulsar-17-ttl-before-quota"), expire), tmp_path)
    found = columns(rows[SUBSCRIPTIONS], "time_to_expiry_s", "expired_unread", "drain_rate")
    nothing = 0 if counted else None
    assert found[0][:2] == (0.0, None) and found[1][:2] == (0.0, nothing)
    assert found[2][:2] == (None, 35 if counted else 1)
    assert found[3][1] == nothing
    consumed = 0 if counted else 34
    assert [drain for *_, drain in found[2:]] == [consumed / s for s in (120, 180, 240)]


# -- set back, and without ledgers -----------------------------------------------------------


def test_a_cursor_that_is_set_back_has_no_rates_over_it(tmp_path: Path) -> None:
    rows, _ = judged(polls_of("pulsar-04-compaction-set-back"), tmp_path, check_rows="all")
    found = columns(
        rows[SUBSCRIPTIONS], "set_back", "set_back_from", "set_back_to", "growth_rate", "drain_rate"
    )
    back = (True, "2306104:0", "1877:52", None, None)
    still = (False, None, None, None, None)
    assert found == [still, still, back, still, (False, None, None, 0.0, 0.0)]


@pytest.mark.parametrize("first_sight", [False, True])
def test_a_topic_without_ledgers_has_no_backlog(tmp_path: Path, first_sight: bool) -> None:
    polls = polls_of("pulsar-05-no-ledgers")[first_sight:]
    rows, done = judged(polls, tmp_path, check_rows="all", backlogQuotaDefaultLimitSecond=1)
    assert done.problems == []
    assert (
        columns(rows[CHECKS], "backlog_bytes", "age_state", "rule")[1 - first_sight :]
        == [(0, "no_backlog", "within_limits")] * 2
    )
    assert "producer_refusals" not in rows


def test_ledgers_that_an_answer_leaves_out_stay(tmp_path: Path) -> None:
    rows, done = judged(polls_of("pulsar-25-ledgers-left-out"), tmp_path)
    assert len(done.problems) == 7
    assert all("internal.ledgers: lacks the open ledger" in text for text in done.problems)
    shown = ("topic", "backlog_entries", "backlog_bytes", "drain_rate")
    found: dict[str, list[Any]] = {}
    for topic, *values in columns(rows[SUBSCRIPTIONS], *shown):
        found.setdefault(topic, []).append(tuple(values))
    drained = [None, None, 0.0, 0.0, 0.0, 0.0]
    assert list(found.values()) == [
        [(150_900 + 100 * i, 1_509_000_000 + 1_000_000 * i, drained[i]) for i in range(6)],
        [(6, 5753, drained[i]) for i in range(6)],
    ]
    assert {row["oldest_timestamp_ms"] for row in rows[CHECKS]} == {1_795_582_800_000, None}


# -- what keeps a backlog --------------------------------------------------------------------


OPEN = "is open on the topic, and nothing behind is delivered"


def test_an_open_transaction_is_named(tmp_path: Path) -> None:
    rows, done = judged(polls_of("pulsar-42-open-transaction"), tmp_path)
    assert done.problems == []
    assert columns(rows[SUBSCRIPTIONS], "backlog_entries", "drain_rate", "remarks") == [
        (50 + 100 * i, None if i < 2 else 0.0, f"1 transaction {OPEN}") for i in range(5)
    ]


@pytest.mark.parametrize(
    ("stats", "shown", "ranges", "broker", "remarks"),
    [
        ({"ongoingTxnCount": 0}, {}, 0, {}, None),
        ({"ongoingTxnCount": 2}, {}, 0, {}, f"2 transactions {OPEN.replace('is', 'are', 1)}"),
        ({}, {"unackedMessages": 5}, 0, {}, None),
        ({}, {"msgBacklog": 0}, 0, {}, None),
        ({"ongoingTxnCount": 0}, {"msgDelayed": 1}, 0, {}, "1 message is delayed"),
        ({}, {"msgDelayed": 1200}, 0, {}, f"1 transaction {OPEN}; 1,200 messages are delayed"),
        (
            {"ongoingTxnCount": 0},
            {},
            10_001,
            {},
            "of 10,001 acknowledged ranges 10,000 outlast a restart of the broker",
        ),
        ({"ongoingTxnCount": 0}, {}, 10_000, {}, None),
        (
            {"ongoingTxnCount": 0},
            {},
            1_500,
            {"managedLedgerMaxUnackedRangesToPersist": "1000"},
            "of 1,500 acknowledged ranges 1,000 outlast a restart of the broker",
        ),
        ({"ongoingTxnCount": "many"}, {"msgDelayed": -1, "msgInReplay": "1"}, 0, {}, None),
        ({"ongoingTxnCount": 0}, {"msgInReplay": 0}, 0, {}, None),
        ({"ongoingTxnCount": 0}, {"msgInReplay": 1}, 0, {}, "1 message waits to be sent again"),
        (
            {"ongoingTxnCount": 0},
            {"msgInReplay": 1999, "msgDelayed": 2},
            0,
            {},
            "2 messages are delayed; 1,999 messages wait to be sent again",
        ),
    ],
)
def test_what_the_broker_shows_of_a_subscription(
    tmp_path: Path, stats: Any, shown: Any, ranges: int, broker: Any, remarks: str | None
) -> None:
    def told(poll: Any, _: int) -> None:
        poll["stats"].update(stats)
        poll["stats"]["subscriptions"]["s"].update(shown)
        poll["policies"]["broker"].update(broker)
        poll["internal"]["cursors"]["s"]["totalNonContiguousDeletedMessagesRange"] = ranges

    rows, _ = judged(changed(polls_of("pulsar-42-open-transaction")[:2], told), tmp_path)
    assert {row["remarks"] for row in rows[SUBSCRIPTIONS]} == {remarks}


# -- evictions behind entries acknowledged one by one ----------------------------------------


EVICTION = ("rule", "from_position", "to_position", "entries_skipped", "phantom", "count_delta")
MOVED = ("target_reached", "100:-1", "103:100009", 3_100_010, False, 1)


def evictions(polls: list[Any], folder: Path, **params: Any) -> dict[str, list[tuple[Any, ...]]]:
    """The evictions of each topic, by the end of its name."""
    rows, done = judged(polls, folder, **params)
    assert done.problems == []
    found: dict[str, list[tuple[Any, ...]]] = {}
    for row in rows.get("backlog_evictions", []):
        one = tuple(row[name] for name in EVICTION)
        found.setdefault(row["topic"].rpartition("/")[2], []).append(one)
    return found


def test_eviction_takes_a_share_of_what_is_unacknowledged(tmp_path: Path) -> None:
    found = evictions(polls_of("pulsar-41-eviction-behind-one-hole"), tmp_path)
    stays = ("skip_zero", "100:-1", "100:-1", 0, True, 0)
    assert found == {"one-hole": [stays] * 5, "unread": [MOVED] * 5}


@pytest.mark.parametrize(
    ("acked", "expected"),
    [
        # two unacknowledged entries in front: one is skipped, and the range behind it passed
        (
            "[(100:0..100:500],(100:501..100:999999],(101:-1..103:999999],(104:-1..104:9]]",
            ("same_cursor", "100:-1", "100:500", 1, False, 1),
        ),
        # 501 more within the last ledger: 389 positions on, the cursor is within a range
        (
            "[(100:0..103:499999],(103:500500..104:9]]",
            ("target_reached", "100:-1", "103:499999", 1, False, 1),
        ),
        # the second half of each ledger: a share of 1,550,008 of 2,000,010 entries ends in one
        (
            "[(100:499999..100:999999],(101:499999..101:999999],(102:499999..102:999999],"
            "(103:499999..103:999999]]",
            ("same_cursor", "100:-1", "101:999999", 1_000_000, False, 1),
        ),
    ],
)
def test_eviction_moves_over_what_is_acknowledged(
    tmp_path: Path, acked: str, expected: tuple[Any, ...]
) -> None:
    def holes(poll: Any, _: int) -> None:
        poll["internal"]["cursors"]["work"]["individuallyDeletedMessages"] = acked

    polls = [p for p in polls_of("pulsar-41-eviction-behind-one-hole") if "hole" in p["topic"]]
    assert evictions(changed(polls[:2], holes), tmp_path) == {"one-hole": [expected]}
