"""Times and durations as every command and the configuration reads them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest

from app.errors import UserError
from app.terminal.moments import duration_ms, instant, instant_of, moment_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1ms", 1),
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1m500ms", 60_500),
        (" 10s ", 10_000),
    ],
)
def test_a_duration_has_units(text, ms):
    assert duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "5",
        "-5s",
        "5 s",
        "1.5s",
        "s",
        "5y",
        "10S",
        "5s!",
        "5s 1m",
        "99999999999999999999d",
        "\u0665s",
    ],
)
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a duration|has no unit|is longer than any time"):
        duration_ms(text)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("-5", -5),
        ("1767621600123", 1767621600123),
        (str(2**63 - 1), 2**63 - 1),
        (str(-(2**63)), -(2**63)),
        ("2026-01-05T14:00:00Z", 1767621600000),
        ("2026-01-05 14:00", 1767621600000),
        ("2026-01-05T16:00:00.123+02:00", 1767621600123),
        ("2026-01-05", 1767571200000),
        ("0001-01-01T00:00:00+14:00", -62135596800000 - 14 * 3_600_000),
        ("9999-12-31T23:59:59.999-12:00", 253402300799999 + 12 * 3_600_000),
    ],
)
def test_a_moment_is_iso_8601_or_milliseconds(text, ms):
    assert moment_ms(text, "--at") == ms


def test_a_moment_may_be_a_duration_before_now():
    least = time.time_ns() // 1_000_000
    found = moment_ms("-10m", "--at")
    most = time.time_ns() // 1_000_000
    assert least - 600_000 <= found <= most - 600_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "soon",
        "-",
        "-soon",
        "--10m",
        "10m",
        "2026-13-01",
        "24:00",
        str(2**63),
        str(-(2**63) - 1),
        "-106751991167301d",
    ],
)
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(UserError) as refused:
        moment_ms(text, f"--at {text}")
    first, second = str(refused.value).split("\n")
    assert first == f"--at {text}: is not a time"
    assert second.startswith("allowed: ISO 8601 such as 2026-01-31T14:05:00Z, -10m")


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (1767621600000, "2026-01-05T14:00:00Z"),
        (1767621600120, "2026-01-05T14:00:00.120Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253402300799999, "9999-12-31T23:59:59.999Z"),
        (253402300800000, "253402300800000 ms"),
        (-62135596800000, "0001-01-01T00:00:00Z"),
        (-62135596800001, "-62135596800001 ms"),
        (2**63 - 1, "9223372036854775807 ms"),
        (-(2**63), "-9223372036854775808 ms"),
    ],
)
def test_a_time_is_written_as_it_is_read(ms, text):
    assert instant_of(ms) == text
    assert moment_ms(text.removesuffix(" ms"), "--at") == ms


def test_a_time_of_any_zone_is_written_in_utc():
    east = timezone(timedelta(hours=2))
    assert instant(datetime(2026, 1, 5, 16, tzinfo=east)) == "2026-01-05T14:00:00Z"
    assert instant(datetime(2026, 1, 5, 14)) == "2026-01-05T14:00:00Z"
    assert instant(datetime(2026, 1, 5, 14, 0, 0, 1, tzinfo=UTC)) == "2026-01-05T14:00:00.000001Z"
