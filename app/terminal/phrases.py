"""Words that sentences share: topics, shares, lengths of time, counts and lists of names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from app.terminal.amounts import duration
from app.terminal.counts import all_of, counted

Row = Mapping[str, Any]
NAMED = 3
"""The most users, producers, consumers or topics that a sentence names."""
PLURALS = {"batch": "batches", "entry": "entries"}
GLUE = "\N{NO-BREAK SPACE}"
_NUMBER = re.compile(r"(?<=\d) (?=[\w%])")


def about(ms: int) -> str:
    """A time in whole minutes; a short one as `duration` formats it."""
    return duration(ms * 1_000_000) if ms < 120_000 else f"{round(ms / 60_000)} min"


def unbroken(text: str) -> str:
    """A text that no line parts between a number and what it counts."""
    return _NUMBER.sub(GLUE, text)


def short(topic: str) -> str:
    """A topic without its scheme persistent://."""
    return topic.removeprefix("persistent://")


def percent(share: float | None) -> str:
    """A share in whole percent."""
    return f"{round(100 * (share or 0))} %"


def number_of(n: int, noun: str) -> str:
    """A number with its noun: once, 3 topics."""
    if (n, noun) == (1, "time"):
        return "once"
    return counted(n, noun, PLURALS.get(noun, ""))


def named(names: Sequence[str], noun: str) -> str:
    """The names of a list, the first ones: topic a; topics a, b, c and 2 others."""
    told = list(names[:NAMED])
    if (more := len(names) - NAMED) > 0:
        told.append(number_of(more, "other"))
    return f"{noun}{'s' * (len(told) > 1)} {all_of(told)}"


def was(n: int) -> str:
    """The verb after a number."""
    return "was" if n == 1 else "were"


def clock(ms: int | None) -> str:
    """14:03:07 of a time (ms since the epoch, UTC)."""
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")
