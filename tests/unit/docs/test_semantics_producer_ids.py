"""The examples of docs/semantics/producer_ids.md, judged by the core."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from state.producer_ids import bloom
from tests.support import bloom_filters
from tests.support.semantics_producer_ids import (
    SAMPLES,
    START_MS,
    Rows,
    batch,
    example,
    quota,
)
from tests.unit.state.producer_id_trace import numbered, play

PAGE = Path(__file__).resolve().parents[3] / "docs" / "semantics" / "producer_ids.md"


def decisions(rows: Rows) -> list[tuple[Any, ...]]:
    """Second, id, rule, tokens to three places, throttle time, second of the filter, recount."""
    return [
        (
            (r["ts_wall_ms"] - START_MS) // 1000,
            r["producer_id"],
            r["rule"],
            round(r["tokens"], 3),
            r["throttle_ms"],
            None if r["filter_created_ms"] is None else (r["filter_created_ms"] - START_MS) // 1000,
            r["recount"],
        )
        for r in rows["producer_id_decisions"]
    ]


WITHIN, OVER, REJECTED, AGAIN = (
    "unseen_within_bound",
    "unseen_over_bound",
    "rejected_over_bound",
    "recounted_after_disposal",
)


def test_the_worked_example_with_rejections():
    rows = example()
    assert decisions(rows) == [
        (0, 1, WITHIN, 3.0, 0, 0, False),
        (0, 2, WITHIN, 2.0, 0, 0, False),
        (0, 3, WITHIN, 1.0, 0, 0, False),
        (0, 4, WITHIN, 0.0, 0, 0, False),
        (0, 5, WITHIN, -1.0, 0, 0, False),
        (0, 6, REJECTED, -1.0, 1_800_000, None, False),
        (1200, 6, REJECTED, -0.333, 600_000, None, False),
        (1800, 6, REJECTED, -0.0, 0, None, False),
        (1801, 6, WITHIN, -0.999, 0, 1801, False),
        (2100, 7, REJECTED, -0.833, 1_500_000, None, False),
        (5400, 1, AGAIN, 1.833, 0, 5400, True),
        (5501, 1, WITHIN, 7.0, 0, 5501, False),
    ]
    (hair,) = [
        r["tokens"]
        for r in rows["producer_id_decisions"]
        if r["ts_wall_ms"] == START_MS + 1_800_000
    ]
    assert f"{hair:.1e}" == "-5.6e-17"


def test_the_worked_example_with_throttling():
    assert decisions(example("permissive")) == [
        (0, 1, WITHIN, 3.0, 0, 0, False),
        (0, 2, WITHIN, 2.0, 0, 0, False),
        (0, 3, WITHIN, 1.0, 0, 0, False),
        (0, 4, WITHIN, 0.0, 0, 0, False),
        (0, 5, OVER, -1.0, 1_800_000, 0, False),
        (0, 6, OVER, -2.0, 3_600_000, 0, False),
        (2100, 7, OVER, -1.833, 3_300_000, 2100, False),
        (5400, 1, AGAIN, 0.833, 0, 5400, True),
        (5501, 1, WITHIN, 7.0, 0, 5501, False),
    ]


@pytest.mark.parametrize("enforcement", ["strict", "permissive"])
def test_bits_instead_of_ids_change_only_what_is_known_of_recounts(enforcement):
    def known(row: dict[str, Any]) -> dict[str, Any]:
        rule = WITHIN if row["rule"] == AGAIN else row["rule"]
        return {**row, "recount": None, "rule": rule}

    exact, bits = (example(enforcement, m)["producer_id_decisions"] for m in ("exact", "bloom"))
    assert bits == [known(row) for row in exact]


@pytest.mark.parametrize(
    ("enforcement", "expected"),
    [
        ("strict", (5, 1, 1_800_000.0, 2.46)),
        ("permissive", (6, 0, 2_700_000.0, 2.95)),
    ],
)
def test_the_first_minute_of_the_worked_example(enforcement, expected):
    row = example(enforcement)["producer_id_stats"][0]
    assert row["ts_wall_ms"] == START_MS + 60_000
    assert (
        row["new_ids"],
        row["rejected"],
        row["throttle_time_avg_ms"],
        round(row["utilisation"], 2),
    ) == expected


def flood(ids: int) -> tuple[int, int]:
    """How many of ids 1, 2, 3 … without a quota are counted, and how many pass as seen."""
    feed = numbered(batch(i // 100 / 1000, i + 1) for i in range(ids))
    row = play([feed], until_ms=START_MS + 60_000)["producer_id_stats"][0]
    return row["new_ids"], row["seen_batches"]


@pytest.mark.parametrize("ids", [500, 1000, 2000, 5000, 10_000, 100_000])
def test_what_a_filter_of_the_default_size_misses(ids):
    counted, seen = flood(ids)
    wrong = f"{bloom_filters.expected_fpp(ids, bloom.shape_of(1000, 0.01)) * 100:.1f}"
    wrong = {"0.0": "0.03", "100.0": "100"}.get(wrong, wrong)
    assert f"| {ids:,} | {wrong} % | {counted:,} | {seen:,} |" in PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("items", "fpp"),
    [
        (1000, 0.01),
        (1000, 0.001),
        (5000, 0.01),
        (100_000, 0.001),
    ],
)
def test_the_sizes_of_filters(items, fpp):
    up, down = (bloom.shape_of(items, fpp, rounding) for rounding in bloom.ROUNDINGS)
    assert up.hashes == down.hashes
    line = f"| {items:,} | {fpp} | {up.bits:,} / {down.bits:,} | {up.hashes} | {up.bytes:,} |"
    assert line in PAGE.read_text("utf-8")


@pytest.mark.parametrize(
    ("math", "expected"),
    [
        ("token_bucket", [12_000, 0, 0, 0, 0]),
        ("sampled_rate", [13_000, 12_900, 13_400, 12_700, 0]),
    ],
)
def test_how_long_a_burst_is_held_against_a_user(math, expected):
    params = {
        SAMPLES: 100,
        "producer.id.quota.window.size.seconds": 1,
        "rate_unit": "second",
        "membership": "exact",
        "enforcement": "permissive",
        "quota_math": math,
    }
    later = [12.3, 13, 99.9, 100]
    feed = [*(batch(0, pid) for pid in range(560)), *(batch(s, 1000 + int(s)) for s in later)]
    rows = play([numbered(feed)], params, [quota(5)], START_MS + 100_001)["producer_id_decisions"]
    assert [r["throttle_ms"] for r in rows[559:]] == expected
