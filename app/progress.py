"""What a run shows while it works: one line of figures, rewritten on a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

from app.shutdown import waits
from app.sources.raw import METRIC

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

ON_TERMINAL_S = 1.0
IN_LOG_S = 10.0
REST_MS = 1000
"""A query without a new batch is asked this often whether it waits for records."""
DAY_S = 86_400.0


@dataclass
class Figures:
    """The latest figures of one query."""

    name: str
    batch: int = -1
    events: int = 0
    per_second: float = 0.0
    batch_ms: int = 0
    latest_event_s: float | None = None
    state_bytes: int | None = None
    batches: int = 0
    phases_ms: dict[str, int] = field(default_factory=dict)
    """Time of each phase of the batches so far, by Spark's name for it."""
    seen_ms: int = 0
    """When the newest batch was seen to have ended, or the query to wait (ms since the epoch)."""

    def take(self, progress: dict[str, Any]) -> None:
        """Take in the progress of one more batch, as Spark reports it."""
        if progress["batchId"] <= self.batch:
            return
        self.batch = progress["batchId"]
        self.batches += 1
        self.seen_ms = round(time.time() * 1000)
        for phase, took_ms in progress["durationMs"].items():
            self.phases_ms[phase] = self.phases_ms.get(phase, 0) + took_ms
        self.batch_ms = progress["durationMs"].get("triggerExecution", progress["batchDuration"])
        events = records(progress)
        self.events += events
        self.per_second = events * 1000 / max(self.batch_ms, 1)
        latest = progress.get("eventTime", {}).get("max")
        if latest is not None:
            self.latest_event_s = max(self.latest_event_s or 0.0, _seconds(latest))
        for operator in progress["stateOperators"]:
            self.state_bytes = operator["customMetrics"].get(
                "rocksdbSstFileSize", 0
            ) + operator["memoryUsedBytes"]

    def rest(self, query: StreamingQuery) -> None:
        """Note that the query waits for records, if it does."""
        now_ms = round(time.time() * 1000)
        if now_ms - self.seen_ms > REST_MS and query.isActive and waits(query):
            self.seen_ms = now_ms

    def text(self, now_s: float) -> str:
        """The figures in a few words."""
        parts = [f"{self.per_second:,.0f} events/s", f"batch {self.batch_ms / 1000:.2f} s"]
        if self.latest_event_s is not None:
            parts.append(_age(self.latest_event_s, now_s))
        if self.state_bytes is not None:
            parts.append(f"state {self.state_bytes / 1e6:,.1f} MB")
        return f"{self.name}: {', '.join(parts)}"


class Progress:
    """Shows the figures of a run's queries."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stderr
        self._live = self._out.isatty()
        self._figures: dict[str, Figures] = {}
        self._shown_at = time.monotonic()
        self._shown = ""

    def look(self, queries: Sequence[StreamingQuery]) -> None:
        """Take in what the queries have done since the last look, and show it when it is time."""
        for query in queries:
            figures = self._figures.setdefault(str(query.name), Figures(str(query.name)))
            last = query.lastProgress
            if last is None:
                continue
            if last["batchId"] <= figures.batch:
                figures.rest(query)
                continue
            # Spark keeps the last hundred; reading them all is work: only where some were missed.
            missed = last["batchId"] > figures.batch + 1
            for progress in query.recentProgress if missed else (last,):
                figures.take(progress)
        pause = ON_TERMINAL_S if self._live else IN_LOG_S
        if time.monotonic() - self._shown_at >= pause:
            self._shown_at = time.monotonic()
            self._show()

    @property
    def figures(self) -> list[Figures]:
        """The figures of every query that has done a batch."""
        return [figures for figures in self._figures.values() if figures.batch >= 0]

    def say(self, text: str) -> None:
        """A message of its own line."""
        self._clear()
        print(text, file=self._out, flush=True)

    def close(self) -> None:
        """The last word: what each query has read."""
        self._clear()
        for figures in self._figures.values():
            self.say(f"{figures.name}: {figures.events:,} events read, to batch {figures.batch}")

    def _show(self) -> None:
        now_s = time.time()
        line = " | ".join(f.text(now_s) for f in self._figures.values() if f.batch >= 0)
        if self._live:
            self._clear()
            self._out.write(line)
            self._out.flush()
            self._shown = line
        elif line and line != self._shown:
            print(line, file=self._out, flush=True)
            self._shown = line

    def _clear(self) -> None:
        if self._live and self._shown:
            self._out.write("\r\x1b[K")
            self._shown = ""


def records(progress: dict[str, Any]) -> int:
    """How many records a batch has read."""
    observed = (progress.get("observedMetrics") or {}).get(METRIC)
    return int(observed[METRIC] or 0) if observed else int(progress["numInputRows"])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def _age(event_s: float, now_s: float) -> str:
    """How far behind the newest event is; its date where that is days."""
    if now_s - event_s < DAY_S:
        return f"{max(now_s - event_s, 0):.1f} s behind"
    return f"at {datetime.fromtimestamp(event_s, UTC):%Y-%m-%d %H:%M:%S}"
