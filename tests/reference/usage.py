"""What one window counts for one limiter: table `limiter_stats` of section 9."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

ORDER = ("connection", "io_thread", "topic", "resource_group", "broker")
LEVELS = ("connection", "io_thread")
"""Limiters that have a level instead of buckets."""
Name = str | int


@dataclass
class Usage:
    """One limiter in one window."""

    charges: int = 0
    messages: int = 0
    bytes: int = 0
    smallest: list[int | None] = field(default_factory=lambda: [None, None])
    marks: int = 0
    max_waiting: int = 0
    observed: int = 0
    """Reported pauses that began with the limiter."""
    predicted: int = 0
    """Of these, those that had a mark before."""
    max_level: int | None = None

    @property
    def is_shown(self) -> bool:
        return (
            self.charges > 0
            or self.marks > 0
            or self.max_waiting > 0
            or (self.max_level or 0) > 0
            or self.observed > 0
        )

    def charge(self, messages: int, size: int, balances: Sequence[int | None]) -> None:
        self.charges += 1
        self.messages += messages
        self.bytes += size
        for i, balance in enumerate(balances):
            known = [b for b in (self.smallest[i], balance) if b is not None]
            self.smallest[i] = min(known, default=None)

    def wait(self, waiting: int) -> None:
        self.max_waiting = max(self.max_waiting, waiting)

    def level(self, level: int) -> None:
        self.max_level = level if self.max_level is None else max(self.max_level, level)


def order(limiter: str, name: Name) -> tuple[Any, ...]:
    """Order of the rows of one window."""
    return ORDER.index(limiter), name.encode() if isinstance(name, str) else name


def columns(
    limiter: str, usage: Usage, rates: Sequence[int], limit_level: int | None, window_ms: int
) -> dict[str, Any]:
    """Columns of a row; what a limiter lacks is null."""
    has_level = limiter in LEVELS
    limits = [float(rate) if rate > 0 else None for rate in rates]
    seconds = window_ms / 1000
    shares = [
        charged / seconds / limit
        for charged, limit in zip((usage.messages, usage.bytes), limits, strict=True)
        if limit is not None
    ]
    level = usage.max_level or 0
    if has_level:
        assert limit_level is not None
        shares = [level / limit_level]
    return {
        "messages": None if has_level else usage.messages,
        "bytes": None if has_level else usage.bytes,
        "limit_msgs": limits[0],
        "limit_bytes": limits[1],
        "max_level": level if has_level else None,
        "limit_level": limit_level if has_level else None,
        "min_balance_msgs": usage.smallest[0],
        "min_balance_bytes": usage.smallest[1],
        "throttles": usage.marks,
        "observed_pauses": usage.observed,
        "predicted_pauses": usage.predicted,
        "max_waiting": None if has_level else usage.max_waiting,
        "utilisation": max(shares),
    }
