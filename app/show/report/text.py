"""The formats of values in a report: times, lengths of time, sizes, shares, names."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.show.report.phrases import duration, short
from app.terminal.moments import instant, instant_of
from app.terminal.rows import plain
from app.terminal.sizes import size_text

NUMBERS = frozenset({"number", "ratio", "seconds", "ms", "bytes", "rate"})
"""Kinds of column that are aligned to the right."""
LONGEST_TEXT = 300
NONE = "\N{EN DASH}"
ROOT = Path(__file__).resolve().parents[3]


def utc(ms: int) -> datetime:
    """A time from milliseconds since the epoch."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def time_text(value: Any, day: str = "") -> str:
    """A time in UTC to the second; on the day `day` (ISO 8601) only its clock."""
    if isinstance(value, str):
        return value  # DuckDB returns times beyond Python's calendar as text
    text = (
        instant_of(value // 1000 * 1000)
        if isinstance(value, int)
        else instant(value.replace(microsecond=0))
    )
    return text.removeprefix(f"{day}T").removesuffix("Z") if text.startswith(f"{day}T") else text


def seconds_text(seconds: float) -> str:
    """A length of time: 0.3 s, 38 s, 2 min 5 s, 5 h 7 min, 3 d 4 h."""
    if not math.isfinite(seconds):
        return NONE
    if not seconds:
        return "0 s"
    if seconds < 3600:
        return duration(int(seconds * 1e9))
    minutes = int(seconds // 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440:,} d {minutes % 1440 // 60} h"


def percent_text(ratio: float) -> str:
    """A share: 0.31 %, 4.2 %, 84 %."""
    if not math.isfinite(ratio):
        return NONE
    percent = 100 * ratio
    if percent >= 10 or percent == 0:
        return f"{percent:.1f} %" if 90 < percent < 100 else f"{percent:,.0f} %"
    return f"{percent:.2g} %"


def number_text(value: float) -> str:
    """A number with as many digits as matter."""
    if not math.isfinite(value):
        return NONE
    if isinstance(value, int) or value == int(value):
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def cut(text: str) -> str:
    """A text cut to the longest that a page shows."""
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def cell_text(value: Any, kind: str, day: str) -> str:
    """A value as a cell of its kind shows it."""
    if value is None or value in ("", []):
        return NONE
    if kind == "time":
        return time_text(value, day)
    write = KINDS.get(kind)
    return cut(str(plain(value)) if write is None else write(value))


def runbook_page(runbook: str | None) -> Path | None:
    """The page of one of Weir's own runbooks; None for an address and where there is no such page."""
    if not runbook or "://" in runbook:
        return None
    page = (ROOT / runbook).resolve()
    of_weir = any(page.is_relative_to(ROOT / folder) for folder in ("docs", "app/jobs"))
    return page if of_weir and page.suffix == ".md" and page.is_file() else None


def runbook_name(runbook: str) -> str:
    """A runbook as its alert is called."""
    return runbook.rpartition("/")[2].removesuffix(".md")


def runbook_target(runbook: str | None) -> str | None:
    """Where a runbook is: its address, or its place on the page. None where there is no such page;
    other schemes are not linked."""
    if runbook and runbook.startswith(("https://", "http://")):
        return runbook
    return None if not runbook or runbook_page(runbook) is None else f"#{runbook_name(runbook)}"


KINDS: dict[str, Callable[[Any], str]] = {
    "topic": short,
    "number": number_text,
    "ratio": percent_text,
    "seconds": seconds_text,
    "ms": lambda ms: seconds_text(ms / 1000),
    "bytes": size_text,
    "rate": lambda rate: f"{number_text(rate)}/s",
    "list": lambda values: ", ".join(short(str(value)) for value in values),
    "runbook": runbook_name,
    "flag": lambda value: "yes" if value else "no",
}
