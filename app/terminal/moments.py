"""Reads times and durations of a command line and the configuration, and writes times.

A time is ISO 8601 (UTC without an offset), milliseconds since the epoch, or a duration
before now such as -10m. A duration is 500ms, 10s, 5m, 2h, 1d or several of them (1h30m); a number
without a unit is one only in a file, under a key whose name ends in its unit (_ms, _s).
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta

from app.errors import UserError
from app.plain_text import is_digits

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART = re.compile(r"([0-9]+)(ms|s|m|h|d)")
DURATIONS = "such as 90s, 5m, 1h30m or 500ms"
TIMES = "ISO 8601 such as 2026-01-31T14:05:00Z, -10m (before now), or milliseconds since the epoch"
_LEAST, _MOST = -(2**63), 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def instant(moment: datetime) -> str:
    """A time for reading, in UTC: 2026-01-05T14:03:07Z, and 2026-01-05T14:03:07.120Z where it is
    no whole second."""
    moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    fraction = moment.microsecond
    precision = "seconds" if not fraction else "microseconds" if fraction % 1000 else "milliseconds"
    return moment.isoformat(timespec=precision).removesuffix("+00:00") + "Z"


def instant_of(ms: int) -> str:
    """The same of milliseconds since the epoch; outside the calendar it is `N ms`."""
    try:
        return instant(_EPOCH + timedelta(milliseconds=ms))
    except OverflowError:
        return f"{ms} ms"


def duration_ms(text: str) -> int:
    """Milliseconds of a duration; a ValueError if the text is none."""
    text = text.strip()
    if text == "0":
        return 0
    if is_digits(text):
        raise ValueError(f"{text!r} has no unit (allowed: {DURATIONS})")
    parts = _PART.findall(text)
    if not parts or "".join(count + unit for count, unit in parts) != text:
        raise ValueError(f"{text!r} is not a duration (allowed: {DURATIONS})")
    found = sum(int(count) * UNITS_MS[unit] for count, unit in parts)
    if found > _MOST:
        raise ValueError(f"{text!r} is longer than any time (allowed: {DURATIONS})")
    return found


def has_unit(text: str) -> bool:
    """Whether a text is a duration with a unit, not a bare number or something else."""
    return re.fullmatch(f"({_PART.pattern})+", text.strip()) is not None


def read_duration_ms(text: str, where: str) -> int:
    """Milliseconds of a duration on a command line; `where` begins the error message."""
    try:
        return duration_ms(text)
    except ValueError as error:
        raise UserError(f"{where}: {error}") from None


def moment_ms(text: str, where: str) -> int:
    """Milliseconds since the epoch of a time on a command line; `where` begins the error
    message."""
    text = text.strip()
    found: int | None = None
    if re.fullmatch(r"-?[0-9]+", text):
        found = int(text)
    elif re.match(r"-\S", text):
        try:
            found = time.time_ns() // 1_000_000 - duration_ms(text[1:])
        except ValueError:
            found = None
    else:
        found = _iso_ms(text)
    if found is None or not _LEAST <= found <= _MOST:
        raise UserError(f"{where}: is not a time\nallowed: {TIMES}")
    return found


def _iso_ms(text: str) -> int | None:
    try:
        moment = datetime.fromisoformat(text)
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        return None
    since = moment - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
