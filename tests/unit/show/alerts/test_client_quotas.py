"""The alerts on client quotas: who is throttled, and who is near a limit."""

from __future__ import annotations

import json

import pytest

from app.show import alerts
from tests.support.client_quota_rows import MINUTE, stats
from tests.support.throttle_rows import START_MS, write


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
                row["labels"]["user"],
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
    assert "throttled by its produce quota of 100" in summary and "(user)" in summary
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
