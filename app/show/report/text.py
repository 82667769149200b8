"""The formats of values in a report: times, lengths of time, sizes, shares, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from app.terminal.amounts import NONE, number_text, percent_text, seconds_text
from app.terminal.moments import instant, instant_of
from app.terminal.phrases import short
from app.terminal.rows import plain
from app.terminal.sizes import size_text

NUMBERS = frozenset({"number", "ratio", "seconds", "ms", "bytes", "rate"})
"""Kinds of column that are aligned to the right."""
LONGEST_TEXT = 300
EXPLAINED = (
    ("group", "group"),
    ("topic", "topic"),
    ("connection", "connection"),
    ("client", "user", "client"),
    ("client", "principal", "client_id"),
    ("principal", "user"),
    ("principal", "principal"),
)
"""Kinds of entity that `explain` is asked about, and the labels that have its names; the first whose
labels an alert has."""
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


def explained(labels: Mapping[str, str | None], at_ms: int | None = None) -> dict[str, Any]:
    """What the command `explain` is asked about what has these labels, as those of an alert, at a
    time (ms since the epoch): its kind, its name, a second name, its cluster; empty for nothing.
    """
    named = {**labels, str(labels.get("limiter")): labels.get("entity")}
    for kind, *of in EXPLAINED:
        names = [name for label in of if (name := named.get(label))]
        if len(names) == len(of):
            asked = zip(("name", "second"), names, strict=False)
            found = {"kind": kind, **dict(asked), "cluster": labels.get("cluster"), "at": at_ms}
            return {name: value for name, value in found.items() if value is not None}
    return {}


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
