"""The section of a scenario on backlogs: topics with quotas, and how they are read."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from benchmarks.generator.section import ScenarioSection

Retention = Literal["producer_request_hold", "producer_exception", "consumer_backlog_eviction"]


class KeepUpSpec(ScenarioSection):
    """How one subscription keeps up with its topic."""

    speed: float | None = Field(None, gt=0)
    stops_s: float | None = Field(None, gt=0)
    returns_s: float | None = Field(None, gt=0)
    cumulative: bool = False
    durable: bool = True


class QuotaSpec(ScenarioSection):
    """Limits of one topic: bytes, or seconds of its traffic as bytes; age; what happens over it."""

    size_s: float | None = Field(None, gt=0)
    size_bytes: int | None = Field(None, gt=0)
    time_s: int | None = Field(None, gt=0)
    policy: Retention


class BacklogTopicSpec(ScenarioSection):
    """One topic: its traffic, its quota and its subscriptions."""

    weight: float = Field(1, gt=0)
    namespace: str | None = Field(None, pattern=r"^[^/]+/[^/]+$")
    entries: int | None = Field(None, ge=1)
    entry_bytes: tuple[int, int] = (200, 4000)
    ledger_s: float = Field(60, gt=0)
    quota: QuotaSpec | None = None
    subscriptions: dict[str, KeepUpSpec] = Field(min_length=1)


class BacklogSpec(ScenarioSection):
    """Topics whose subscriptions fall behind, polled before every check of their quotas."""

    share: float = Field(0.9, gt=0, lt=1)
    namespace: str = Field("ops/pipelines", pattern=r"^[^/]+/[^/]+$")
    label: str = Field("pipeline", min_length=1)
    brokers: list[int] = []
    poll_before_s: float = Field(1.5, gt=0)
    topics: dict[str, BacklogTopicSpec] = Field(min_length=1)

    def namespace_of(self, topic: str) -> str:
        """The namespace of a topic; one of its own carries its quota."""
        return self.topics[topic].namespace or self.namespace
