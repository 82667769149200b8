"""A metric of the exporter, and a section of metrics with the parts that fill them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.show.metrics.part import MetricsPart

Kind = Literal["counter", "gauge", "counter as gauge", "histogram"]
BROKER = ("cluster", "broker")
LAST = 9


@dataclass(frozen=True)
class Definition:
    """One metric; labels that have no value in a sample are left out of it."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    source: str
    """Tables or files that it comes from."""
    bounded: bool = False
    """True: only entities near their quota or over it have series; the rest is `other`."""


def defined(
    labels: tuple[str, ...],
    source: str,
    *metrics: tuple[str, Kind, str],
    bounded: bool = False,
) -> tuple[Definition, ...]:
    """Metrics of the same labels and source: name, kind and meaning of each."""
    return tuple(
        Definition(name, kind, labels, meaning, source, bounded) for name, kind, meaning in metrics
    )


@dataclass(frozen=True)
class MetricsSection:
    """Metrics under a title, and the classes whose samples they are."""

    title: str
    definitions: tuple[Definition, ...]
    parts: tuple[type[MetricsPart], ...] = ()
    place: int = LAST
    """Its place among the sections, before the order of the jobs."""
