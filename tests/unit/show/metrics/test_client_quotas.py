"""Metrics of client quotas: whom defaults throttle, and large clients without a limit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.jobs.client_quotas.metrics import ClientQuotaMetrics, UnlimitedClients
from app.read.relations import Warehouse, connect
from app.show.metrics.entities import Bounds
from app.show.metrics.part import MetricsPart
from tests.support.client_quota_rows import MINUTE, stats, usage
from tests.support.throttle_rows import write

Row = dict[str, Any]
Taken = Callable[..., dict[tuple[str, ...], float]]
MIB = 1 << 20


@pytest.fixture
def taken(tmp_path: Path) -> Taken:
    """The samples of a metric after the rows of a refresh, by their labels."""
    refreshes = 0

    def take(part: MetricsPart, metric: str, **tables: list[Row]) -> dict[tuple[str, ...], float]:
        nonlocal refreshes
        refreshes += 1
        folder = str(tmp_path / str(refreshes))
        for name in ("client_quota_stats", "client_usage"):
            write(folder, name, tables.get(name, []))
        with connect(Warehouse(folder), " ".join(part.reads)) as fresh:
            part.take(fresh)
        return {labels: value for name, labels, value in part.samples() if name == metric}

    return take


def test_whom_a_default_throttles_in_the_newest_window(taken: Taken) -> None:
    part, metric = ClientQuotaMetrics(Bounds(10, 1000)), "weir_client_default_quota_throttled"
    key = ("east", "produce", "default_user")

    def windows(minute: int, *users: str, **changes: Any) -> list[Row]:
        told = {"used": 1.2, "throttled": 3, "bound_level": "default_user", **changes}
        return [stats(minute, user, **told) for user in users]

    first = [*windows(0, "old"), *windows(1, "a", "b"), *windows(1, "own", bound_level="user")]
    assert taken(part, metric, client_quota_stats=first) == {key: 2}
    # The same window of another broker, whose commit is later.
    assert taken(part, metric, client_quota_stats=windows(1, "b", "c", broker="b2")) == {key: 3}
    assert taken(part, metric, client_quota_stats=windows(2, "a")) == {key: 1}
    assert taken(part, metric, client_quota_stats=[stats(3)]) == {key: 0}


def test_large_clients_of_the_newest_window_that_have_no_limit(taken: Taken) -> None:
    part, metric = UnlimitedClients(Bounds(10, 1000)), "weir_client_without_limit_ratio"

    def used(minute: int) -> list[Row]:
        return [
            usage(minute, "scan", 60 * MIB, api="PRODUCE", client_id=None),
            usage(minute, "scan", 60 * MIB, api="FETCH", client_id=None),
            usage(minute, "limited", 240 * MIB),
            usage(minute, "shared", 120 * MIB, client_id="batch"),
            usage(minute, "busy", 0, handler_time_ms=2.0 * MINUTE),
            usage(minute, "small", 59 * MIB, handler_time_ms=0.9 * MINUTE),  # below 1 MiB per s
            usage(minute, "other", 1, principal=None, client_id="<others>"),
        ]

    limits = [stats(0, "limited"), stats(0, "", client="batch")]
    assert taken(part, metric, client_usage=used(0)) == {}  # nobody in the cluster has one
    found = taken(part, metric, client_quota_stats=limits)
    assert found == {
        ("east", "b1", "User:scan", ""): pytest.approx(120 / 539, rel=1e-6),
        ("east", "b1", "User:busy", "app"): pytest.approx(2 / 2.9, rel=1e-2),
    }
    # A limit of the user binds in the next window; another broker has none of its own.
    rows = {"client_quota_stats": [stats(1, "scan"), stats(1, "busy")], "client_usage": used(1)}
    assert set(taken(part, metric, **rows)) == {
        ("east", "b1", "User:limited", "app"),
        ("east", "b1", "User:shared", "batch"),
    }
