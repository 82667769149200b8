"""The number of records that wait in a source, and the time until a query has caught up."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

MINUTE_S, HOUR_S = 60, 3600


def waiting(progress: Any) -> int | None:
    """Records that a batch left in the source when it was planned, from Spark's report of it. None
    for a source that does not report offsets by topic and partition.
    """
    found = [_behind(source) for source in progress.get("sources") or ()]
    known = [count for count in found if count is not None]
    return sum(known) if known else None


def _behind(source: Any) -> int | None:
    end, latest = (_offsets(source[name]) for name in ("endOffset", "latestOffset"))
    if end is None or latest is None:
        return None
    return sum(max(offset - end.get(place, 0), 0) for place, offset in latest.items())


def _offsets(report: str) -> dict[tuple[str, str], int] | None:
    try:  # PySpark passes it as the text of a dictionary of Python
        found = ast.literal_eval(report)
    except (ValueError, SyntaxError):
        return None
    if not isinstance(found, Mapping):
        return None
    places = {
        (topic, partition): offset
        for topic, partitions in found.items()
        if isinstance(partitions, Mapping)
        for partition, offset in partitions.items()
    }
    return places if places and all(isinstance(o, int) for o in places.values()) else None


def caught_up_s(before: int | None, now: int, batch_ms: int) -> float | None:
    """Seconds until no record waits, at the speed of the last batch. None if more records arrive
    than are processed. `before` is the number that waited one batch earlier.
    """
    if before is None or before <= now or not batch_ms:
        return None
    return now * batch_ms / 1000 / (before - now)


def text(now: int, seconds: float | None) -> str:
    """Both figures in words."""
    if seconds is None:
        return f"{now:,} records wait"
    return f"{now:,} records wait, caught up in {_duration(seconds)}"


def _duration(seconds: float) -> str:
    if seconds < 2 * MINUTE_S:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 2 * HOUR_S:
        return f"{seconds / MINUTE_S:.0f} min"
    return f"{seconds / HOUR_S:.0f} h"
