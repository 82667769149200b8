"""Readings of one broker for tests."""

from __future__ import annotations

from app.show.reconcile.scrape import Scrape, Values
from app.show.reconcile.spans import ReadingSpan
from tests.support.throttle_rows import START_MS

BROKER = "b1:8080"


def scrape(
    at_ms: int,
    topics: dict[str, Values] | None = None,
    whole: Values | None = None,
    started_s: float = 5.0,
    took_ms: int = 0,
) -> Scrape:
    """A reading `at_ms` after the start, in a request that took so long."""
    from_ms = START_MS + at_ms - took_ms // 2
    return Scrape(BROKER, "east", from_ms, from_ms + took_ms, started_s, topics or {}, whole or {})


def span(before: Scrape, after: Scrape) -> ReadingSpan:
    """The time between two readings."""
    return ReadingSpan(before, after)
