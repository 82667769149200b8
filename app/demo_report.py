"""What a demo found, in words and a small table: from the committed tables alone."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

Row = Mapping[str, Any]

THROTTLE_COLUMNS = (
    "cluster", "broker", "cnx_id", "ts_mono_ns", "ts_wall_ms", "row_no", "action", "transition",
    "reads_paused", "limiter", "topic", "culprit_topic", "collateral_topics",
)
STATS_COLUMNS = ("topic", "culprit_times", "collateral_times", "culprit_ns", "collateral_ns")
QUARANTINE_COLUMNS = ("reason_code", "source_partition", "source_offset")
SHOWN = 8
SHORT_NAMES = {"resource_group": "group", "io_thread": "IO thread"}
QUERIES = (
    ("who suffers most from others",
     "SELECT topic, sum(collateral_times) AS pauses, round(sum(collateral_ns) / 1e9, 1) AS seconds "
     "FROM topic_throttle_stats GROUP BY topic ORDER BY seconds DESC LIMIT 10"),
    ("every pause of a connection and who caused it",
     "SELECT cnx_id, (end_ns - start_ns) / 1e9 AS seconds, reasons, culprit_topics "
     "FROM throttle_intervals ORDER BY seconds DESC LIMIT 10"),
    ("what was not applied, with its text",
     "SELECT reason_code, count(*) AS records, max(detail) AS detail, max(raw) AS example "
     "FROM quarantine GROUP BY reason_code ORDER BY records DESC"),
)


@dataclass
class Cause:
    """One limit that paused connections, and what that did."""

    limiter: str
    name: str
    """Topic, broker or connection, by limiter; a resource group by the broker it was on."""
    pauses: int = 0
    paused_ns: int = 0
    open_pauses: int = 0
    """Pauses that had not ended when the tables were read."""
    culprits: set[str] = field(default_factory=set)
    others: set[str] = field(default_factory=set)
    """Topics that were paused without being over the limit."""
    first_ms: int | None = None


@dataclass(frozen=True)
class Summary:
    """What the tables of one run say."""

    causes: tuple[Cause, ...]
    """By paused time, longest first."""
    culprit_ns: int
    collateral_ns: int
    """Paused time of all topics, by whose fault (ns)."""
    quarantined: dict[str, int]
    """Records by code of the broken rule; a record may break several."""
    quarantined_records: int


def summarise(
    throttle_events: Iterable[Row], topic_throttle_stats: Iterable[Row], quarantine: Iterable[Row]
) -> Summary:
    """The summary of rows of three tables; rows may come in any order."""
    culprit_ns = collateral_ns = 0
    for row in topic_throttle_stats:
        culprit_ns += row["culprit_ns"] or 0
        collateral_ns += row["collateral_ns"] or 0
    causes = sorted(_causes(throttle_events).values(), key=lambda c: (-c.paused_ns, c.name))
    records = {(r["reason_code"], r["source_partition"], r["source_offset"]) for r in quarantine}
    counts = Counter(code for code, _, _ in records)
    return Summary(tuple(causes), culprit_ns, collateral_ns,
                   dict(sorted(counts.items(), key=lambda item: (-item[1], item[0]))),
                   len({record[1:] for record in records}))


def _causes(rows: Iterable[Row]) -> dict[tuple[str, str], Cause]:
    """Joins the two transitions of each pause; a pause belongs to the limit that started it."""
    by_connection: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row["transition"] == "ConnectionStateChanged":
            by_connection[row["cluster"], row["broker"], row["cnx_id"]].append(row)
    causes: dict[tuple[str, str], Cause] = {}
    for changes in by_connection.values():
        # Wall time leads: the monotonic clock begins anew with the broker.
        changes.sort(key=lambda r: (r["ts_wall_ms"] or 0, r["ts_mono_ns"] or 0, r["row_no"]))
        open_since: tuple[Cause, int] | None = None
        for row in changes:
            if row["action"] == "mark" and row["reads_paused"]:
                cause = _cause_of(row, causes)
                open_since = cause, row["ts_mono_ns"]
            elif row["action"] == "unmark" and open_since:
                cause, since = open_since
                cause.paused_ns += max(0, row["ts_mono_ns"] - since)
                cause.open_pauses -= 1
                open_since = None
    return causes


def _cause_of(row: Row, causes: dict[tuple[str, str], Cause]) -> Cause:
    limiter = row["limiter"]
    name = {"topic": row["culprit_topic"], "connection": row["cnx_id"]}.get(limiter, row["broker"])
    cause = causes.setdefault((limiter, name), Cause(limiter, name))
    cause.pauses += 1
    cause.open_pauses += 1
    cause.culprits.add(row["culprit_topic"])
    cause.others |= {row["topic"], *(row["collateral_topics"] or ())} - {row["culprit_topic"]}
    at = row["ts_wall_ms"]
    if at is not None:
        cause.first_ms = at if cause.first_ms is None else min(cause.first_ms, at)
    return cause


def sentences(summary: Summary) -> list[str]:
    """The main findings in words, the longest pause first."""
    if not summary.causes:
        said = ["No connection was paused: every topic stayed within its limits."]
    else:
        said = [_sentence(cause) for cause in summary.causes[:SHOWN]]
    total = summary.culprit_ns + summary.collateral_ns
    if total:
        share = round(100 * summary.collateral_ns / total)
        said.append(f"Of all the time that topics were paused, {share} % fell on topics that had "
                    "kept within their limits.")
    return said


def other_protocol(stats: Iterable[Row], with_exchange: Iterable[Row]) -> str | None:
    """What the throttle command would have spared the innocent, from rows of topic_throttle_stats
    without and with it; None if nobody paid for others."""
    lost: dict[str, int] = defaultdict(int)
    for row in stats:
        lost[row["topic"]] += row["collateral_ns"] or 0
    innocent = [topic for topic, ns in lost.items() if ns]
    if not innocent:
        return None
    after = sum(row["collateral_ns"] or 0 for row in with_exchange)
    return (f"With the throttle command of PIP-385, if every client knew it, the "
            f"{_counted(len(innocent), 'topic')} that stood still for others would have lost "
            f"{duration(after)} instead of {duration(sum(lost.values()))}.")


def _sentence(cause: Cause) -> str:
    paused, others = duration(cause.paused_ns), len(cause.others)
    times = _counted(cause.pauses, "time")
    if cause.limiter == "topic":
        begin = f"Topic {short(cause.name)} broke its limit {times}"
        end = (f"{_counted(others, 'other topic')} {_was(others)} paused for {paused} because of it"
               if others else f"it was paused for {paused} and nobody else")
        return f"{begin}; {end}."
    topics = len(cause.culprits | cause.others)
    begin = {
        "resource_group": f"On {cause.name} a resource group was over its limit",
        "broker": f"{cause.name} was over its own limit",
        "connection": f"Connection {cause.name} had too many requests in flight",
        "io_thread": f"On {cause.name} an IO thread had too many bytes in its buffers",
    }[cause.limiter]
    return (f"{begin}: connections paused {times}, {paused} in all, "
            f"with {_counted(topics, 'topic')} on them.")


def short(topic: str) -> str:
    """A topic without the scheme that most have."""
    return topic.removeprefix("persistent://")


def duration(ns: int) -> str:
    """A time as a reader says it: 38 s, 0.3 s, 2 min 5 s."""
    seconds = ns / 1e9
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _counted(n: int, noun: str) -> str:
    return "once" if (n, noun) == (1, "time") else f"{n} {noun}{'' if n == 1 else 's'}"


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


def _clock(ms: int | None) -> str:
    return "" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime("%H:%M:%S")


def indented(text: str) -> Padding:
    """Text whose wrapped lines are indented like the first."""
    return Padding(Text(text), (0, 0, 0, 2), expand=False)


def render(summary: Summary, console: Console) -> None:
    """Prints a summary: sentences, the table of causes, and what went to quarantine."""
    for sentence in sentences(summary):
        console.print(indented(sentence))
    if summary.causes:
        grid = Grid(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
        grid.add_column("limit")
        grid.add_column("of", overflow="fold")
        for name in ("pauses", "paused", "others"):
            grid.add_column(name, justify="right", no_wrap=True)
        grid.add_column("first", no_wrap=True)
        for cause in summary.causes[:SHOWN]:
            limit = SHORT_NAMES.get(cause.limiter, cause.limiter)
            grid.add_row(limit, short(cause.name), str(cause.pauses),
                         duration(cause.paused_ns), str(len(cause.others)),
                         _clock(cause.first_ms))
        console.print()
        console.print(grid)
        hidden = len(summary.causes) - SHOWN
        if hidden > 0:
            console.print(f"and {hidden} more", markup=False)
    records = summary.quarantined_records
    console.print()
    console.print(f"{_counted(records, 'record')} in quarantine, by reason:"
                  if records else "Nothing in quarantine.", markup=False)
    listed = ", ".join(f"{code} {n}" for code, n in summary.quarantined.items())
    if listed:
        console.print(indented(listed))


def render_next_steps(out: Path, console: Console) -> None:
    """Prints where the tables are and three queries to try."""
    warehouse = out / "warehouse"
    console.print(f"\nThe tables are in {warehouse} (./spark-submit.sh tables lists them). Try:",
                  markup=False, soft_wrap=True)
    for meaning, sql in QUERIES:
        console.print(f"\n  # {meaning}", markup=False)
        console.print(f"  ./spark-submit.sh query --warehouse {shlex.quote(str(warehouse))} "
                      f'"{sql}"', markup=False, soft_wrap=True)
