"""The section of a scenario on reads of entries: topics, and kinds of subscriptions."""

from __future__ import annotations

from pydantic import Field

from benchmarks.generator.section import ScenarioSection


class RestartsSpec(ScenarioSection):
    """Clients that restart one after the other; each has the subscriptions of an equal part of the topics.

    No other consumer is connected: the cursor is inactive meanwhile.
    """

    at_s: float = Field(ge=1)
    every_s: float = Field(gt=0)
    away_s: float = Field(gt=0)
    clients: int = Field(1, ge=1)
    rounds: int = Field(1, ge=1)


class SlowSpec(ScenarioSection):
    """The slow consumer of a Key_Shared subscription: what it cannot take waits for replay."""

    share: float = Field(gt=0, le=1)
    speed: float = Field(2, gt=0)
    at_s: float = Field(3, ge=1)
    every_s: float = Field(gt=0)
    stall_s: float = Field(gt=0)


class ReadersSpec(ScenarioSection):
    """Subscriptions that read alike, so many on every topic."""

    subscriptions: int = Field(1, ge=1)
    delay_ms: tuple[float, float] = (1, 8)
    lag_ms: tuple[float, float] = (0, 0)
    round_trip_ms: tuple[float, float] = (2, 15)
    speed: float = Field(4, gt=1)
    restarts: RestartsSpec | None = None
    slow: SlowSpec | None = None


class ScaleSpec(ScenarioSection):
    """A published run: at another rate its cache is so much larger or smaller."""

    entries_per_s: float = Field(gt=0)
    cache_mb: float = Field(gt=0)


class CacheSpec(ScenarioSection):
    """Topics whose entries are read by several subscriptions, as a broker's cache sees it."""

    share: float = Field(0.9, gt=0, lt=1)
    namespace: str = Field("shop/feeds", pattern=r"^[^/]+/[^/]+$")
    label: str = Field("feed", min_length=1)
    brokers: list[int] = []
    topics: int = Field(4, ge=1)
    partitioned: bool = False
    skew: float = Field(0, ge=0)
    entry_bytes: tuple[int, int] = (1000, 8000)
    ledger_s: float = Field(20, gt=0)
    retained_s: float = Field(1, ge=0)
    cursors_s: float = Field(5, gt=0)
    readers: dict[str, ReadersSpec] = Field(min_length=1)
    scale: ScaleSpec | None = None
