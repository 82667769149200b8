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
REASONS = {
    "BROKER_RESTARTED": "the broker was started in the span, so its counters began anew",
    "TOPIC_RELOADED": "the topic was unloaded in the span, so its counter began anew",
    "TOPIC_GONE": "the broker does not have the topic any more",
    "FEED_BEGAN": "Weir's records of the broker begin in the span",
    "GAP": "the job was blind in a part of the span (table coverage_gaps)",
    "SAMPLED": "the feed takes a share of the connections",
    "RATE_ONLY": "the broker gives a mean of a time that is not known",
    "OWN_READS": "the broker read more entries than it delivered: for expiry, ages, compaction",
    "NO_CHECK": "Weir has no check of backlogs around the end of the span; of Kafka, none whose"
    " poll lies in the span",
    "NO_ANSWER": "Kafka did not answer for the partition or group at one of the two readings",
    "NOT_POLLED": "the poll of the check has no answer for the partition or group, earlier ones do",
    "GROUP_CHANGED": "the group got or lost its offset in the span",
    "LOG_ANEW": "the topic was created anew, or its log truncated, in the span",
    "LIMIT_CHANGED": "a limit of clients was changed in the window or soon after",
    "NOT_IN_FILES": "limits of the cluster that no policy of the configuration names",
    "NO_METRICS": "requests of the entity are known and no rates that the broker measured",
    "NO_REQUESTS": "the broker measured rates of the entity, and none of its requests is known",
    "NOT_LOGGED": "the broker charges what its request log lacks: the time of network threads",
    "NOT_REACHED": "Weir had not processed the span when it was compared",
}
"""Why a row is not a comparison."""


@cache
def measures() -> dict[str, Measure]:
    """What is compared of a broker of Pulsar, by name, job by job."""
    return {measure.name: measure for measure in every("reconcile", "MEASURES")}


@cache
def job_of_groups() -> str:
    """The job whose tables have the groups of Kafka."""
    (job,) = (job for job, part in parts("reconcile").items() if getattr(part, "GROUPS", False))
    return job
