"""The example of docs/semantics/backlog.md, judged by the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.semantics_backlog import PRECISE, Rows, example
from tests.unit.state.backlog_trace import (
    EVICTION,
    T0,
    quota,
)

PAGE = Path(__file__).resolve().parents[3] / "docs" / "semantics" / "backlog.md"
MINUS = "\u2212"


def seconds(row: dict[str, Any]) -> int:
    return int(row["ts_wall_ms"] - T0) // 1000


def checks(rows: Rows) -> list[tuple[Any, ...]]:
    """Second, size, usage, age, usage, source of the time, rule and action."""
    return [
        (
            seconds(r),
            r["backlog_bytes"],
            round(r["size_usage"], 4),
            r["age_s"],
            None if r["time_usage"] is None else round(r["time_usage"], 4),
            r["timestamp_source"],
            r["rule"],
            r["action"],
        )
        for r in rows["backlog_checks"]
    ]


WITHIN, OVER, EVICTS = "within_limits", "size_exceeded", "evict_size"
HELD = "disconnect_producers"


def test_estimated_ages():
    assert checks(example()) == [
        (0, 30_000, 0.75, 300, 0.3333, "ledger_close", WITHIN, "none"),
        (60, 40_000, 1.0, 360, 0.4, "kept", OVER, HELD),
        (120, 35_000, 0.875, 180, 0.2, "ledger_close", WITHIN, "none"),
        (180, 12_500, 0.3125, -1, None, "none", WITHIN, "none"),
        (240, 12_500, 1.5625, -1, None, "none", OVER, EVICTS),
        (300, 12_500, 1.5625, -1, None, "none", OVER, EVICTS),
        (360, 0, 0.0, -1, None, "none", WITHIN, "none"),
    ]


def test_precise_ages():
    told = "publish_time"
    assert checks(example(**{PRECISE: True})) == [
        (0, 30_000, 0.75, 500, 0.5556, told, WITHIN, "none"),
        (60, 40_000, 1.0, 560, 0.6222, "kept", OVER, HELD),
        (120, 35_000, 0.875, 410, 0.4556, told, WITHIN, "none"),
        (180, 12_500, 0.3125, 170, 0.1889, told, WITHIN, "none"),
        (240, 12_500, 1.5625, 230, 0.2556, "kept", OVER, EVICTS),
        (300, 12_500, 1.5625, 290, 0.3222, "kept", OVER, EVICTS),
        (360, 0, 0.0, -1, None, "none", WITHIN, "none"),
    ]


def test_why_an_age_is_missing():
    assert [(seconds(r), r["age_state"]) for r in example()["backlog_checks"]][3:] == [
        (180, "no_estimate"),
        (240, "no_estimate"),
        (300, "no_estimate"),
        (360, "no_backlog"),
    ]
    kept = example(age_reset="keep", age_when_empty="zero")["backlog_checks"]
    assert [(r["age_s"], r["age_state"], r["oldest_position"]) for r in kept][3:] == [
        (240, "no_estimate", "1:99"),
        (300, "no_estimate", "1:99"),
        (360, "no_estimate", "1:99"),
        (0, "no_backlog", None),
    ]


def test_a_producer_that_comes_while_the_size_is_exceeded_is_refused():
    rows = example()
    held = [r for r in rows["backlog_checks"] if r["action"] == HELD]
    assert [(seconds(r), r["producers_disconnected"]) for r in held] == [(60, 1)]
    assert [
        (seconds(r), r["producer_id"], r["quota_type"], r["error"])
        for r in rows["producer_refusals"]
    ] == [(70, 2, "size", "ProducerBlockedQuotaExceededError")]


def test_the_forecasts_of_the_third_check():
    def of(second: int, name: str) -> tuple[Any, ...]:
        (row,) = [
            r
            for r in example()["backlog_subscriptions"]
            if seconds(r) == second and r["subscription"] == name
        ]
        return tuple(
            None if row[c] is None else round(row[c], 2)
            for c in ("growth_rate", "drain_rate", "time_to_drain_s", "time_to_quota_s")
        )

    assert of(60, "billing") == (None,) * 4
    assert of(120, "billing") == (41.67, 0.42, None, 120.0)
    assert of(180, "billing") == (-90.28, 0.86, 138.46, None)
    assert of(240, "billing")[3] == 0.0
    assert of(120, "audit") == (62.5, 0.04, None, 480.0)
    assert of(120, "tail")[3] is None


def evictions(rows: Rows) -> list[tuple[Any, ...]]:
    return [
        (
            seconds(r),
            r["subscription"],
            r["from_position"],
            r["to_position"],
            round(r["factor"], 3),
            r["entries_skipped"],
            r["rule"],
            r["rounds"],
            r["target_bytes"],
            r["backlog_before"],
            r["backlog_after"],
        )
        for r in rows["backlog_evictions"]
    ]


CALL = ("same_cursor", 2, 7_200, 12_500, 7_500)


def test_an_eviction_is_predicted_at_every_check_until_the_cursors_move():
    once = [("billing", "3:4", "3:14", 0.424, 10, *CALL), ("audit", "3:9", "3:14", 0.28, 5, *CALL)]
    assert evictions(example()) == [(s, *row) for s in (240, 300) for row in once]
    applied = example(apply_evictions=True)
    assert evictions(applied) == [(240, *row) for row in once]
    assert checks(applied)[5] == (300, 7_500, 0.9375, -1, None, "none", WITHIN, "none")


def test_the_page_shows_these_numbers():
    page = PAGE.read_text("utf-8")
    estimated, precise = checks(example()), checks(example(**{PRECISE: True}))
    for a, b in zip(estimated, precise, strict=True):
        usage = f"{a[2]:.4f}".rstrip("0").rstrip(".")
        age, other = (str(x[3]).replace("-", MINUS) for x in (a, b))
        assert f"| {a[0]} s | {a[1]:,} | {usage} | {age} | {other} | `{a[6]}`" in page
    for number in (
        "41.67",
        "0.42",
        "120 s",
        f"{MINUS}90.28",
        "138 s",
        "0.424",
        "0.28",
        "3:14",
        "7,500",
    ):
        assert number in page


@pytest.mark.parametrize(
    ("precise", "expected"),
    [
        (False, [("billing", "1:49", "2:-1", 50, "ledger_jump", 1, 200)]),
        (
            True,
            [
                ("billing", "1:49", "1:99", 50, "expired", None, 180),
                ("tail", "1:-1", "1:99", 100, "expired", None, 180),
            ],
        ),
    ],
)
def test_evictions_by_age_at_the_first_check(precise, expected):
    rows = example(quota(None, 200, EVICTION), **{PRECISE: precise})["backlog_evictions"]
    assert [
        (
            r["subscription"],
            r["from_position"],
            r["to_position"],
            r["entries_skipped"],
            r["rule"],
            r["rounds"],
            r["expire_older_than_s"],
        )
        for r in rows
        if seconds(r) == 0
    ] == expected
