"""The alerts on Kafka groups: what fires, and what a healthy cluster has that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from app.config.settings import Settings
from app.show import alerts
from tests.support.ready_questions import changed, lag, lost, opened
from tests.support.throttle_rows import write

MINUTE = 60_000
Firing = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def firing(
    make_settings: Callable[..., Settings], tmp_warehouse: str, capsys: pytest.CaptureFixture[str]
) -> Firing:
    """Writes rows, and what fires of one rule then."""

    def ask(rule: str, **tables: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for name, rows in tables.items():
            write(tmp_warehouse, name, rows)
        capsys.readouterr()
        alerts.check(make_settings(), as_json=True, only=[rule])
        found = json.loads(capsys.readouterr().out)
        assert found["broken"] == []
        firing: list[dict[str, Any]] = found["firing"]
        return firing

    return ask


def test_losses_are_summed_once(firing: Firing) -> None:
    (alert,) = firing(
        "group-lost-messages",
        lost_messages=[lost("archive", 0, 0, 13_000), lost("archive", 5 * MINUTE, 13_000, 13_580)],
        group_lag=[lag("archive", 6 * MINUTE, 9)],
    )
    assert alert["severity"] == "critical"
    assert alert["labels"] == {"cluster": "east", "group": "archive", "topic": "orders"}
    assert "has lost 13580 offsets of orders" in alert["summary"]
    assert firing("group-lost-messages", group_lag=[lag("archive", 16 * MINUTE, 9)]) == []


def test_losses_before_the_first_sight_are_named(firing: Firing) -> None:
    (alert,) = firing(
        "group-lost-messages",
        lost_messages=[lost("archive", 0, 0, 9, first_sight=True), lost("archive", 1000, 9, 12)],
    )
    assert "lost 12 offsets" in alert["summary"]
    assert alert["summary"].endswith(", 9 of them before Weir first saw the group")


def test_ages_that_were_read_come_near_their_retention(firing: Firing) -> None:
    known = {"age_state": "known", "limit_s": 100}
    quiet = [
        lag("below", 0, 9, time_usage=0.79, **known),
        lag("marker", 0, 1, time_usage=None, age_state="nothing_unread"),
        lag("seen", 0, 9, time_usage=1.5, age_state="first_seen", limit_s=100),
        lag("size", 0, 9, time_usage=0.1, size_usage=2.0, **known),
    ]
    assert firing("group-near-retention", group_lag=quiet) == []
    (alert,) = firing(
        "group-near-retention",
        group_lag=[
            lag("slow", MINUTE, 9, time_usage=0.8, age_s=80, **known),
            lag("slow", MINUTE, 9, time_usage=0.9, age_s=90, **{**known, "partition": 2}),
        ],
    )
    assert (alert["severity"], alert["labels"]["group"]) == ("warning", "slow")
    assert "records of orders (partition 1, 2) that are 90 s old" in alert["summary"]
    (alert,) = firing(
        "group-near-retention",
        group_lag=[lag("slow", 2 * MINUTE, 9, time_usage=1.0, age_s=100, **known)],
    )
    assert alert["severity"] == "critical"


def test_a_group_ahead_of_its_log_for_two_minutes(firing: Firing) -> None:
    def ahead(minutes: range) -> list[dict[str, Any]]:
        return [
            lag("g", i * MINUTE, -7, state="ahead", partition=p) for i in minutes for p in (0, 1)
        ]

    assert firing("group-ahead", group_lag=ahead(range(2))) == []
    (alert,) = firing("group-ahead", group_lag=ahead(range(2, 4)))
    assert "ahead of orders in 2 partitions" in alert["summary"]
    assert (
        firing("group-ahead", group_lag=[lag("g", 4 * MINUTE, 0, partition=p) for p in (0, 1)])
        == []
    )


def test_groups_before_an_open_transaction(firing: Firing) -> None:
    """For five minutes; the row that names the producer does not begin it anew."""
    named = {"producer_id": 7, "transactional_id": "payments-1", "transaction_start_ms": 5}
    states = [
        changed("reads", 0, "open_transaction"),
        changed("reads", 3 * MINUTE, "committed"),
        changed("held", 0, "open_transaction"),
        changed("held", MINUTE, "open_transaction", **named),
        changed("held", MINUTE, "open_transaction", partition=2, **named),
        changed("hangs", 0, "open_transaction", producer_id=8),
        changed("denied", 0, "open_transaction"),
        changed("stands", 0, "pending_offsets"),
        changed("stands", MINUTE, "pending_offsets", **named),
    ]
    rule = "group-open-transaction"
    assert firing(rule, group_states=states, group_lag=[lag("g", 4 * MINUTE, 0)]) == []
    found = firing(rule, group_lag=[lag("g", 6 * MINUTE, 0)])
    about = {a["labels"]["group"]: a["summary"].split(": ")[1] for a in found}
    assert about == {
        "held": "transaction payments-1 is open",
        "hangs": "a transaction of producer id 8, which no coordinator knows or the poll may not ask"
        " for, is open",
        "denied": "a transaction is open",
        "stands": "transaction payments-1 is open",
    }
    (stands,) = [a for a in found if a["labels"]["group"] == "stands"]
    assert stands["summary"].startswith(
        "stands (east) has its next offsets of orders (partition 1) in a transaction since"
    )
    (held,) = [a for a in found if a["labels"]["group"] == "held"]
    assert "has read orders (partition 1, 2) up to the last stable offset" in held["summary"]


def test_transactions_that_hang(firing: Firing) -> None:
    """A row holds until the next one, and half an hour after the last."""
    rule = "hanging-transaction"
    quiet = [opened(0, "Ongoing", 1), opened(0, "uncoordinated", 2, producer_id=8)]
    assert firing(rule, open_transactions=quiet) == []
    known = {"transactional_id": "payments-1", "timeout_ms": 1}
    (alert,) = firing(
        rule,
        open_transactions=[
            opened(5 * MINUTE, "hanging", 3, **known),
            opened(5 * MINUTE, "hanging", 4, partition=2, **known),
        ],
    )
    assert alert["severity"] == "critical"
    assert alert["labels"] == {"cluster": "east", "topic": "orders", "producer": "7"}
    assert alert["summary"].startswith(
        "transaction payments-1, of producer id 7 (pay, east), hangs in orders (partition 1, 2)"
    )
    ends = [opened(9 * MINUTE, "ended", 5), opened(9 * MINUTE, "ended", 6, partition=2)]
    ghost = opened(9 * MINUTE, "hanging", 7, producer_id=9)
    (alert,) = firing(rule, open_transactions=[*ends, ghost])
    assert alert["summary"].startswith("a transaction that no coordinator knows, of producer id 9")


def test_partitions_without_an_offset(firing: Firing) -> None:
    states = [
        changed("new", 0, "no_offset", unread=9),
        changed("new", MINUTE, "committed"),
        changed("idle", 0, "no_offset", unread=0),
        changed("read", 0, "gone"),
        changed("none", 0, "no_offset", unread=308),
        changed("weekly", 0, "offsets_expired", unread=30),
    ]
    later = [lag("g", 6 * MINUTE, 0)]
    found = firing("group-without-offset", group_states=states, group_lag=later)
    assert {(a["labels"]["group"], a["labels"]["state"]) for a in found} == {
        ("none", "no_offset"),
        ("weekly", "offsets_expired"),
    }
    found = firing("group-without-offset", group_lag=[lag("g", 61 * MINUTE, 0)])
    assert [a["labels"]["group"] for a in found] == ["none"], "what has expired is over"
