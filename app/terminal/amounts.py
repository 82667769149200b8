"""Numbers for reading: lengths of time, sizes, shares and rates with their units, and the unit of a
column by its name.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

from app.terminal.sizes import size_text

NONE = "\N{EN DASH}"
EPOCH_MS = 10**11
"""A number of ms from here on is a time, not a length of time: a day in 1973, or three years."""
MOST = 10**15
"""Larger numbers have no more than three digits."""


def duration(ns: int) -> str:
    """A length of time: 38 s, 0.3 s, 2 min 5 s."""
    seconds = ns / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def seconds_text(seconds: float) -> str:
    """A length of time: 12 ms, 0.3 s, 38 s, 2 min 5 s, 15 min, 5 h 7 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return NONE
    if seconds < 0:
        return f"-{seconds_text(-seconds)}"
    if seconds < 0.1:
        return f"{1000 * seconds:.3g} ms" if seconds else "0 s"
    if seconds < 3600:
        return duration(int(seconds * 1e9)).removesuffix(" 0 s")
    minutes = int(seconds // 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min".removesuffix(" 0 min")
    return f"{minutes // 1440:,} d {minutes % 1440 // 60} h".removesuffix(" 0 h")


def percent_text(ratio: float) -> str:
    """A share: 0.31 %, 4.2 %, 84 %."""
    if not math.isfinite(ratio):
        return NONE
    percent = 100 * ratio
    if MOST > percent >= 10 or percent == 0:
        return f"{percent:.1f} %" if 90 < percent < 100 else f"{percent:,.0f} %"
    return f"{percent:.2g} %"


def number_text(value: float) -> str:
    """A number with as many digits as matter."""
    if not math.isfinite(value):
        return NONE
    if isinstance(value, int) or (abs(value) < MOST and value == int(value)):
        return f"{int(value):,}"
    return f"{value:,.1f}" if MOST > abs(value) >= 100 else f"{value:.3g}"


def _size(n: float) -> str:
    return f"-{size_text(-n)}" if n < 0 else size_text(n)


AMOUNTS: Mapping[str, Callable[[float], str]] = {
    "number": number_text,
    "share": percent_text,
    "s": seconds_text,
    "ms": lambda ms: seconds_text(ms / 1e3),
    "ns": lambda ns: seconds_text(ns / 1e9),
    "bytes": _size,
    "byte_s": lambda n: f"{_size(n)}\N{MIDDLE DOT}s",
    "per_s": lambda rate: f"{number_text(rate)}/s",
    "bytes_per_s": lambda rate: f"{_size(rate)}/s",
}
"""The text of a number by its unit."""
_NAMES = {
    re.compile(r"(?:^|_)(ratio|usage|use|share|utilisation)(_|$)|(mean|worst)_error$"): "share",
    re.compile(r"^growth_rate$|(^|_)bytes_per_s$"): "bytes_per_s",
    re.compile(r"(^|_)(rate|per_s)$"): "per_s",
    re.compile(r"_byte_s$"): "byte_s",
    re.compile(r"(^|_)bytes(_before|_after|_change)?$"): "bytes",
    re.compile(r"(?<!mono)_ns(_change)?$"): "ns",
    re.compile(r"_ms(_change)?$"): "ms",
    re.compile(r"_s(_change)?$"): "s",
}
"""Units by the names of columns, of which the first that matches counts."""
_TIME = re.compile(r"_(byte_s|ns|ms|s)(_change)?$")
_KINDS = {
    "_age": "s",
    "_size": "bytes",
    "bytes": "bytes_per_s",
    "_msgs": "per_s",
    "messages": "per_s",
    "producer_ids": "per_s",
    "client_mutations": "per_s",
    "connection_requests": "per_s",
}
"""Units of the limits of kinds of quotas, by how they end."""


def unit_of(column: str) -> str | None:
    """The unit that a column's name tells; None for others, and for monotonic times."""
    return next((unit for pattern, unit in _NAMES.items() if pattern.search(column)), None)


def unit_of_kind(kind: str) -> str | None:
    """The unit of a row that is about a kind of quota, a rate or a measure."""
    of_quota = (unit for end, unit in _KINDS.items() if kind.endswith(end))
    return next(of_quota, None) or unit_of(kind)


def heading(column: str) -> str:
    """The name of a column of times whose values have their unit: age of age_s."""
    return _TIME.sub(r"\2", column)
