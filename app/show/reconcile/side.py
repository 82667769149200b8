"""What the tables have for a span of one broker: the way that every job reads them, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from app.contract.rules import POLLED_FEEDS
from app.read.relations import ANY_ORDER, Warehouse, connect_once
from app.show.reconcile.spans import Counted, Key, ReadingSpan

if TYPE_CHECKING:
    from app.config.settings import Settings

CONFIG = {"memory_limit": "512MB", "threads": "1", **ANY_ORDER}
"""Limits of DuckDB, so that a comparison leaves memory and cores to the stream."""
CHECKS_MS = 900_000
"""How far the checks of backlogs before and after a reading are looked for."""
MINUTE_MS = 60_000
_WINDOWS = """
SELECT topic, CAST(sum(messages) AS BIGINT), CAST(sum(bytes) AS BIGINT) FROM topic_throttle_stats
WHERE cluster = $cluster AND broker = $broker
  AND window_start_ms >= $start_ms AND window_start_ms < $end_ms
GROUP BY topic
"""
_NEWEST = """
SELECT max(ts_wall_ms) FROM {table}
WHERE cluster = $cluster AND broker = $broker AND ts_wall_ms >= $start_ms
"""


@dataclass(frozen=True)
class Numbers:
    """The numbers of one job for a span."""

    counted: Mapping[Key, Counted] = field(default_factory=dict)
    whole: bool = False
    """Whether the tables of the job have the whole span."""
    blind: str | None = None
    """Why nothing of the job can be compared."""


@dataclass(frozen=True)
class WeirSide:
    """The tables of a warehouse, asked for a span."""

    settings: Settings
    warehouse: Warehouse
    span: ReadingSpan

    @cached_property
    def window_ms(self) -> int:
        """Length of a statistics window."""
        return self.settings.stats_window_ms

    def window_of(self, at_ms: int) -> int:
        """The begin of the window of a time."""
        return at_ms // self.window_ms * self.window_ms

    @property
    def last_window_ms(self) -> int:
        """The begin of the window in which the span ends."""
        return self.window_of(self.span.end_ms)

    def published(self, start_ms: int, end_ms: int) -> list[tuple[Any, ...]]:
        """Topic, messages and bytes of the windows that begin in a time."""
        return self.ask(_WINDOWS, {"start_ms": start_ms, "end_ms": end_ms})

    def is_past(self) -> bool:
        """Whether the archive has a record that closes the last window of every job: asked before the
        tables are, which may get their rows meanwhile."""
        later_ms = self.last_window_ms + self.window_ms + self.settings.idle_advance_ms
        return self.has("events", later_ms)

    def has(self, table: str, from_ms: int) -> bool:
        """Whether a table has a row of the broker at or after a time."""
        ((newest,),) = self.ask(_NEWEST.format(table=table), {"start_ms": from_ms})
        return newest is not None

    @property
    def is_polled(self) -> bool:
        """Whether polls are all that feeds the tables."""
        feeds = self.settings.source
        return bool(feeds) and all(feed.format in POLLED_FEEDS for feed in feeds)

    @property
    def _cluster(self) -> str:
        """The cluster as records name it; polls name it as they are told to."""
        admins = [feed.admin for feed in self.settings.source if feed.format == "pulsar_admin"]
        named = [admin.cluster for admin in admins if admin is not None]
        return named[0] if len(named) == 1 else self.span.after.cluster

    def ask(self, sql: str, params: Mapping[str, Any]) -> list[tuple[Any, ...]]:
        """Rows of a query; `cluster` and `broker` are given where it asks for them."""
        where = {"cluster": self._cluster, "broker": self.span.after.broker}
        given = {**params} | {name: where[name] for name in where if f"${name}" in sql}
        with connect_once(self.warehouse, sql, given, config=CONFIG) as connection:
            rows: list[tuple[Any, ...]] = connection.execute(sql, given).fetchall()
        return rows
