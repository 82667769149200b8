"""The output of a run: messages and a line of figures, which a terminal overwrites."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TextIO

from app.engine import catch_up_time
from app.run.shutdown import ended, waits
from app.sources.raw import COUNT_BITS, METRIC
from app.terminal import log
from app.terminal.moments import instant_of

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

IN_LOG_S = 10.0
OF_POLLS_S = 300.0
"""Between lines of figures of a source that is polled: each poll is a batch, and most are alike."""
REST_MS = 1000
"""Time without a new batch after which a query is checked for waiting."""
DAY_S = 86_400.0
FIRST = "first batch"


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
    waiting: int | None = None
    """Records that the last batch left in the source; None if not known."""
    caught_up_s: float | None = None
    """Time until they are processed (s); None if more records arrive than are processed."""
    batches: int = 0
    phases_ms: dict[str, int] = field(default_factory=dict)
    """Total time of each phase of the batches, by Spark's name for it."""
    requests: dict[str, int] = field(default_factory=dict)
    """Of the run's first query, requests that Spark has made to the object store, by kind."""
    seen_ms: int = 0
    """When the newest batch was seen to have ended, or the query to wait (ms since the epoch)."""

    def take(self, progress: dict[str, Any]) -> None:
        """Record the progress of one more batch, as Spark reports it; other reports are ignored."""
        if not ended(progress) or progress["batchId"] <= self.batch:
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
        waiting = catch_up_time.waiting(progress)
        if waiting is not None:
            self.caught_up_s = catch_up_time.caught_up_s(self.waiting, waiting, self.batch_ms)
        self.waiting = waiting
        latest = progress.get("eventTime", {}).get("max")
        if latest is not None and _seconds(latest) > 0:  # 0: no record has moved the clock
            self.latest_event_s = max(self.latest_event_s or 0.0, _seconds(latest))
        for operator in progress["stateOperators"]:
            self.state_bytes = (
                operator["customMetrics"].get("rocksdbSstFileSize", 0) + operator["memoryUsedBytes"]
            )

    def rest(self, query: StreamingQuery) -> None:
        """Record that the query waits for records, if it does."""
        now_ms = round(time.time() * 1000)
        if now_ms - self.seen_ms > REST_MS and query.isActive and waits(query):
            self.seen_ms = now_ms

    def text(self, now_s: float) -> str:
        """The figures in a few words."""
        parts = [f"{self.per_second:,.0f} events/s", f"batch {self.batch_ms / 1000:.2f} s"]
        if self.latest_event_s is not None:
            parts.append(_age(self.latest_event_s, now_s))
        if self.waiting:
            parts.append(catch_up_time.text(self.waiting, self.caught_up_s))
        if self.state_bytes is not None:
            parts.append(f"state {self.state_bytes / 1e6:,.1f} MB")
        return f"{self.name}: {', '.join(parts)}"


class Progress:
    """The log of a run: messages, and the figures of its queries."""

    def __init__(
        self,
        out: TextIO | None = None,
        log_format: log.Format = "text",
        pause_s: float | None = None,
    ) -> None:
        """`pause_s`: the least time between two lines of figures in a log, if not ten seconds."""
        self._log = log.begin(log_format, out)
        self._pause_s = pause_s
        self._figures: dict[str, Figures] = {}
        self._seen: dict[str, tuple[int, str]] = {}
        self._shown_at = time.monotonic()
        self._began: dict[str, float] = {}
        self._news = False
        self._reported: set[str] = set()
        """Queries whose figures have been shown."""

    def look(self, queries: Sequence[StreamingQuery]) -> None:
        """Record the batches since the last look, and print the figures when they are due."""
        for query in queries:
            figures = self._figures.setdefault(str(query.name), Figures(str(query.name)))
            last = query.lastProgress
            if last is None:
                continue
            report = (int(last["batchId"]), str(last["timestamp"]))
            if self._seen.get(figures.name) == report:
                figures.rest(query)
                continue
            self._seen[figures.name] = report
            # Spark keeps the last hundred; reading them all is work: only where some were missed.
            missed = last["batchId"] > figures.batch + 1
            batches = figures.batches
            for progress in query.recentProgress if missed else (last,):
                figures.take(progress)
            self._news = self._news or figures.batches > batches
        pause = IN_LOG_S if self._pause_s is None else self._pause_s
        first = any(figures.name not in self._reported for figures in self.figures)
        if first or time.monotonic() - self._shown_at >= pause:
            self._shown_at = time.monotonic()
            self._show(queries)

    @property
    def figures(self) -> list[Figures]:
        """The figures of every query that has completed a batch."""
        return [figures for figures in self._figures.values() if figures.batch >= 0]

    def say(self, text: str) -> None:
        """Log a message."""
        self._log.info(text)

    def warn(self, text: str) -> None:
        """Log a warning."""
        self._log.warning(text)

    def close(self) -> None:
        """Log what each query has read."""
        for figures in self._figures.values():
            upto = f", to batch {figures.batch}" if figures.batch >= 0 else ""
            text = f"{figures.name}: {figures.events:,} events read{upto}"
            self._log.info(text, extra={"fields": {"queries": [asdict(figures)]}})

    def _show(self, queries: Sequence[StreamingQuery]) -> None:
        """Log a line if a batch has ended since the last one or the first batch is running."""
        now_s = time.time()
        running = {str(query.name): query for query in queries}
        texts = [
            figures.text(now_s) if figures.batch >= 0 else self._first(name, running.get(name))
            for name, figures in self._figures.items()
        ]
        line = " | ".join(filter(None, texts))
        if line and (self._news or FIRST in line):
            fields = {"queries": [asdict(figures) for figures in self.figures]}
            self._log.info(line, extra={"fields": fields})
            self._reported.update(figures.name for figures in self.figures)
            self._news = False

    def _first(self, name: str, query: StreamingQuery | None) -> str:
        """The figures of a query before its first batch has ended."""
        if query is None or not query.isActive:
            return ""
        if query.lastProgress is not None and waits(query):
            self._began.pop(name, None)
            return f"{name}: no records yet"
        self._began.setdefault(name, time.monotonic())
        return f"{name}: {FIRST}, {time.monotonic() - self._began[name]:.0f} s"


def records(progress: dict[str, Any]) -> int:
    """Number of records that a batch has read."""
    observed = (progress.get("observedMetrics") or {}).get(METRIC)
    if not observed:
        return int(progress["numInputRows"])
    return sum(number % (1 << COUNT_BITS) for number in observed[METRIC])


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _age(event_s: float, now_s: float) -> str:
    """The age of the newest event; its date if it is older than a day."""
    if now_s - event_s < DAY_S:
        return f"{max(now_s - event_s, 0):.1f} s behind"
    return f"at {instant_of(int(event_s) * 1000)}"
