"""What is compared: the broker's metric, and the job whose tables have the same number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Literal

from app.jobs import every, parts

Kind = Literal["counter", "gauge", "rate", "period"]


@dataclass(frozen=True)
class Measure:
    """One number that a broker and Weir both have."""

    name: str
    job: str
    metric: str
    """Its name at the broker's Prometheus endpoint."""
    kind: Kind
    """A counter is compared by its increase, a gauge at the end of the span; a rate is the mean
    of a time that is not known, taken as the increase of the span. A period counts since the
    broker's last update of its statistics, whose time is not known."""
    whole: bool = False
    """Of the whole broker; else of each topic."""
    meaning: str = ""
    least: bool = False
    """Weir's number is the least that the broker's can be: it has more for reasons of its own."""


LAG, LOG_START, LOG_END, LOST = OF_KAFKA = ("group_lag", "log_start", "log_end", "lost_offsets")
"""Measures of the groups of a Kafka cluster."""


@cache
def measures() -> dict[str, Measure]:
    """What is compared of a broker of Pulsar, by name, job by job."""
    return {measure.name: measure for measure in every("reconcile", "MEASURES")}


@cache
def job_of_groups() -> str:
    """The job whose tables have the groups of Kafka."""
    (job,) = (job for job, part in parts("reconcile").items() if getattr(part, "GROUPS", False))
    return job
