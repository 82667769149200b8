"""Numbers for reading, and the units that names of columns tell."""

from __future__ import annotations

import math

import pytest

from app.terminal.amounts import AMOUNTS, NONE, heading, unit_of, unit_of_kind


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "s", "0 s"),
        (0.0004, "s", "0.4 ms"),
        (12, "ms", "12 ms"),
        (300_000_000, "ns", "0.3 s"),
        (38.4, "s", "38 s"),
        (125, "s", "2 min 5 s"),
        (900, "s", "15 min"),
        (18_420, "s", "5 h 7 min"),
        (90_000, "s", "25 h"),
        (273_600, "s", "3 d 4 h"),
        (-239, "s", "-3 min 59 s"),
        (941_097, "bytes", "941 kB"),
        (-1, "bytes", "-1 byte"),
        (1755.98, "bytes_per_s", "1.8 kB/s"),
        (350.0, "per_s", "350/s"),
        (1 / 720, "per_s", "0.00139/s"),
        (479e6, "byte_s", "479 MB·s"),
        (0.4322, "share", "43 %"),
        (0.0172, "share", "1.7 %"),
        (1.195, "share", "120 %"),
        (2.0**63, "share", "9.2e+20 %"),
        (math.inf, "share", NONE),
    ],
)
def test_a_number_has_the_digits_that_matter_and_its_unit(value, unit, text):
    assert AMOUNTS[unit](value) == text


@pytest.mark.parametrize(
    ("column", "unit", "title"),
    [
        ("age_s", "s", "age"),
        ("culprit_ns", "ns", "culprit"),
        ("window_ms", "ms", "window"),
        ("paused_s_change", "s", "paused_change"),
        ("backlog_byte_s", "byte_s", "backlog"),
        ("ts_mono_ns", None, "ts_mono"),
        ("bytes", "bytes", "bytes"),
        ("used_bytes", "bytes", "used_bytes"),
        ("log_bytes_after", "bytes", "log_bytes_after"),
        ("hit_ratio_bytes", "share", "hit_ratio_bytes"),
        ("time_usage", "share", "time_usage"),
        ("worst_error", "share", "worst_error"),
        ("growth_rate", "bytes_per_s", "growth_rate"),
        ("drain_rate", "per_s", "drain_rate"),
        ("rate_advised", None, "rate_advised"),
        ("topics", None, "topics"),
        ("error", None, "error"),
        ("sharded", None, "sharded"),
    ],
)
def test_the_name_of_a_column_tells_its_unit(column, unit, title):
    assert unit_of(column) == unit
    if unit is not None:
        assert heading(column) == title


@pytest.mark.parametrize(
    ("kind", "unit"),
    [
        ("topic_msgs", "per_s"),
        ("io_thread_bytes", "bytes_per_s"),
        ("backlog_size", "bytes"),
        ("retention_age", "s"),
        ("producer_ids", "per_s"),
        ("client_fetch_bytes", "bytes_per_s"),
        ("client_mutations", "per_s"),
        ("paused_s", "s"),
        ("throttled_ids", None),
    ],
)
def test_a_kind_of_quota_or_a_measure_has_a_unit(kind, unit):
    assert unit_of_kind(kind) == unit
