"""The alerts on client quotas: who is throttled or near a limit, who has none, and which default
throttles many."""

from __future__ import annotations

import json

import pytest

from app.show import alerts
from tests.support.client_quota_rows import MINUTE, stats, usage
from tests.support.throttle_rows import START_MS, write

MIB = 1 << 20


@pytest.fixture
def firing(make_settings, tmp_warehouse, capsys):
    """Writes windows and answers what fires of one rule: user, severity, since (minutes)."""

    def ask(rule, rows):
        write(tmp_warehouse, "client_quota_stats", rows)
        capsys.readouterr()
        alerts.check(make_settings(), as_json=True, only=[rule])
        found = json.loads(capsys.readouterr().out)
        assert found["broken"] == []
        return [
            (
                row["labels"].get("user"),
                row["severity"],
                (row["since_ms"] - START_MS) // MINUTE,
                row["summary"],
            )
            for row in found["firing"]
        ]

    return ask


def test_a_client_that_is_throttled_for_two_minutes_fires_and_after_ten_is_critical(firing):
    rows = [stats(minute, used=1.2, throttled=3) for minute in range(1, 3)]
    assert firing("client-throttled", rows[:1]) == []
    ((user, severity, since, summary),) = firing("client-throttled", rows[1:])
    assert (user, severity, since) == ("etl", "warning", 1)
    assert summary.startswith("etl on b1 (east) is throttled by its produce quota of 100 (user) ")
    later = [stats(minute, used=1.2, throttled=3) for minute in range(3, 11)]
    assert [found[1] for found in firing("client-throttled", later)] == ["critical"]
    assert firing("client-throttled", [stats(11)]) == []


def test_a_measured_throttle_time_fires_as_well(firing):
    rows = [
        stats(minute, used=1.2, throttled=1, basis="metrics", throttle_ms=None) for minute in (0, 1)
    ]
    assert [found[0] for found in firing("client-throttled", rows)] == ["etl"]


@pytest.mark.parametrize(
    ("used", "fires"), [((0.8,) * 10, True), ((0.8,) * 9, False), ((0.8,) * 9 + (0.79,), False)]
)
def test_a_client_at_80_percent_for_ten_minutes_fires(firing, used, fires):
    rows = [stats(minute, used=share) for minute, share in enumerate(used)]
    assert [found[0] for found in firing("client-near-quota", rows)] == ["etl"] * fires


@pytest.mark.parametrize(
    ("user", "client", "who"), [("etl", "", "etl"), ("", "app", "app"), ("etl", "app", "etl app")]
)
def test_an_entity_is_named_by_what_it_has(firing, user, client, who):
    rows = [stats(minute, user, 0.9, client=client) for minute in range(10)]
    ((*_, summary),) = firing("client-near-quota", rows)
    assert summary.startswith(f"{who} on b1 (east) is near its produce quota")


@pytest.mark.parametrize(
    ("scan", "fires"),
    [
        ({"handler_time_ms": 2.0 * MINUTE}, True),
        ({"handler_time_ms": 1.0 * MINUTE}, True),  # a thread, as for Prometheus
        ({"handler_time_ms": 0.9 * MINUTE}, False),  # less than a thread
        ({"bytes_": 100 * MIB}, True),
        ({"bytes_": 100 * MIB, "client_id": None}, True),
        ({"bytes_": 60 * MIB}, True),  # 1 MiB per s
        ({"bytes_": 50 * MIB}, False),  # less than 1 MiB per s
        ({"bytes_": 100 * MIB, "user": "web"}, False),  # has a limit
        ({"bytes_": 100 * MIB, "beside": 300 * MIB - 10}, True),  # a quarter
        ({"bytes_": 100 * MIB, "beside": 400 * MIB}, False),  # less than a quarter
        ({"bytes_": 100 * MIB, "cluster": "west"}, False),  # where nobody has a limit
    ],
)
def test_a_client_without_a_limit_that_is_among_the_largest_for_ten_minutes_fires(
    firing, tmp_warehouse, scan, fires
):
    scan = {"user": "scan", **scan}
    beside = scan.pop("beside", 2 * MIB)

    def minutes(*numbers):
        write(
            tmp_warehouse,
            "client_usage",
            [
                row
                for minute in numbers
                for row in (
                    usage(minute, **scan),
                    usage(minute, "web", beside, client_id="web-1", handler_time_ms=60.0),
                    usage(minute, "other", 10, principal=None, client_id="<others>"),
                )
            ],
        )
        return [stats(minute, "web") for minute in numbers]

    assert firing("client-without-limit", minutes(*range(9))) == []
    found = firing("client-without-limit", minutes(9))
    assert [(user, severity, since) for user, severity, since, _ in found] == (
        [(None, "warning", 0)] if fires else []
    )
    for *_, summary in found:
        who = "User:scan app" if scan.get("client_id", "app") else "User:scan"
        assert summary.startswith(f"{who} on b1 (east) has no limit, and ")


@pytest.mark.parametrize(
    ("level", "clients", "fires"),
    [
        ("default_user", 6, True),
        ("user_default_client", 6, True),
        ("default_user", 5, False),
        ("user", 6, False),
    ],
)
def test_a_default_that_throttles_more_than_five_clients_for_five_minutes_fires(
    firing, level, clients, fires
):
    def minutes(*numbers):
        return [
            stats(minute, f"u{n}", 1.2, throttled=3, bound_level=level, broker=f"b{broker}")
            for minute in numbers
            for n in range(clients)
            for broker in (1, 2)
        ]

    assert firing("client-default-quota", minutes(*range(4))) == []
    found = firing("client-default-quota", minutes(4))
    assert [summary.partition(", since")[0] for *_, summary in found] == (
        [f"The default produce quota of 100 ({level}) throttles 6 clients of east at most"] * fires
    )
    assert firing("client-default-quota", [stats(5, "u1"), stats(5, "u1", broker="b2")]) == []
