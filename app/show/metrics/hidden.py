"""Samples without the names of topics, as with `exposeTopicLevelMetricsInPrometheus: false`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from app.show.metrics.catalogue import METRICS
from app.show.metrics.part import Labels, Sample
from app.tables import last_configuration
from app.tables.quota_usage import QUOTAS
from state.jobs import JOBS

if TYPE_CHECKING:
    from app.config.settings import Settings

KEY = "exposeTopicLevelMetricsInPrometheus"
OF_TOPICS = frozenset(quota.kind for quota in QUOTAS if quota.of_topic)
"""Kinds of quotas whose entities are topics."""


def shows_topics(settings: Settings) -> bool:
    """Whether series may name topics: not if this configuration or that of the last run on the
    warehouse says so.
    """
    kept = last_configuration.load(settings.location)
    sections = [kept.config.get(job) for job in JOBS] if kept else []
    return all(getattr(getattr(settings, job), KEY, True) for job in JOBS) and not any(
        isinstance(section, dict) and section.get(KEY) is False for section in sections
    )


def without_topics(samples: Iterable[Sample]) -> Iterator[Sample]:
    """Counters of topics are summed by the labels that are left, unless there is such a sum, and
    gauges of topics left out.
    """
    sums: dict[tuple[str, Labels], float] = {}
    whole = set()
    for name, values, value in samples:
        labels = dict(zip(METRICS[name].labels, values, strict=True))
        hidden = _topic_label(labels)
        if hidden is None:
            whole.add(name)
            yield name, values, value
        elif METRICS[name].kind != "gauge":
            left = tuple("" if label == hidden else v for label, v in labels.items())
            sums[name, left] = sums.get((name, left), 0.0) + value
    for (name, left), value in sums.items():
        if name not in whole:
            yield name, left, value


def _topic_label(labels: dict[str, str]) -> str | None:
    """The label of a sample that names a topic; None where none does."""
    if labels.get("topic"):
        return "topic"
    return "entity" if labels.get("entity") and labels.get("kind") in OF_TOPICS else None
