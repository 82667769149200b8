"""One reading of a broker's metrics, and the time at which it holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime

from app.config.reconcile import ReconcileSettings
from app.show.reconcile.measures import measures
from app.sources.polling import Unanswered
from app.sources.prometheus_text import OmittedSamples, in_range, page_lines, samples
from app.sources.pulsar.admin_client import AdminClient

STARTED = "process_start_time_seconds"
CHECKS = tuple(
    f"pulsar_storage_backlog_quota_check_duration_seconds_{end}"
    for end in ("bucket", "count", "sum")
)
NO_TOPICS = "shows no topics; they need exposeTopicLevelMetricsInPrometheus=true"
SUBSCRIPTIONS, IN_REPLAY = "subscriptions", "in_replay"
"""Values of topics besides those that are compared: of the second one the sum of all subscriptions,
the entries that a dispatcher has put back and reads again."""
MOST_BYTES, PART = 1 << 30, 64 << 10
"""A broker answers about 20 kB for each topic that it has loaded."""
MOST = 2**63
"""Of a number of a broker, on either side of 0."""
HALF_S_MS = 500
Values = dict[str, float]


@dataclass(frozen=True)
class Scrape:
    """What a broker counted at a time between `from_ms` and `to_ms` of its own clock."""

    broker: str
    cluster: str
    from_ms: int
    to_ms: int
    started_s: float
    """When its process began (s since the epoch)."""
    topics: dict[str, Values] = field(default_factory=dict)
    """Values by topic and measure."""
    whole: Values = field(default_factory=dict)
    """Values of the broker by measure."""
    checks: Values = field(default_factory=dict)
    """The histogram of the durations of its checks of backlog quotas: `count`, `sum` and the upper
    bounds of its buckets."""

    problems: list[str] = field(default_factory=list)
    """Samples that are left out."""

    @property
    def at_ms(self) -> int:
        """The middle of that time."""
        return (self.from_ms + self.to_ms) // 2


def scrape(
    settings: ReconcileSettings, broker: str, stopping: threading.Event | None = None
) -> Scrape:
    """Read a broker's metrics; Unanswered or a UserError where that is not possible."""
    session = AdminClient(settings.web(broker), stopping, root="", most_bytes=MOST_BYTES).session()
    from_ms = _now_ms()
    body, headers = session.content("metrics/")
    times = on_its_clock(from_ms, _now_ms(), headers)
    parts = (body[at : at + PART] for at in range(0, len(body), PART))
    return parsed(page_lines(parts), broker, *times)


def on_its_clock(from_ms: int, to_ms: int, headers: Mapping[str, str]) -> tuple[int, int]:
    """The begin and end of a request on the clock of the server, whose answer has a `Date` in whole
    seconds: changed only where the two clocks are known to differ."""
    try:
        date_ms = int(parsedate_to_datetime(headers["Date"]).timestamp()) * 1000
    except (KeyError, TypeError, ValueError):
        return from_ms, to_ms
    if from_ms - 1000 < date_ms <= to_ms:
        return from_ms, to_ms
    ahead_ms = date_ms + HALF_S_MS - (from_ms + to_ms) // 2
    return from_ms + ahead_ms - HALF_S_MS, to_ms + ahead_ms + HALF_S_MS


def parsed(lines: Iterable[str], broker: str, from_ms: int, to_ms: int) -> Scrape:
    """The measures in the lines of a broker's Prometheus endpoint."""
    known = measures()
    names = {measure.metric: measure.name for measure in known.values()}
    names |= {
        "pulsar_subscriptions_count": SUBSCRIPTIONS,
        "pulsar_subscription_in_replay": IN_REPLAY,
    }
    cluster, started_s = "", 0.0
    topics: dict[str, Values] = {}
    whole: Values = {}
    checks: Values = {}
    left = OmittedSamples()
    for sample in samples(lines, (*names, STARTED, *CHECKS), left, MOST_BYTES):
        try:
            value = in_range(sample, MOST)
        except ValueError as error:
            left.add(error)
            continue
        cluster = sample.labels.get("cluster", cluster)
        if sample.name == STARTED:
            started_s = value
            continue
        if sample.name in CHECKS:
            checks[sample.labels.get("le", sample.name.rpartition("_")[2])] = value
            continue
        name = names[sample.name]
        topic, partition = sample.labels.get("topic"), sample.labels.get("partition", "-1")
        if topic is not None and partition != "-1":  # splitTopicAndPartitionLabelInPrometheus
            topic = f"{topic}-partition-{partition}"
        if name in known and known[name].whole:
            whole[name] = value
        elif topic is not None and "://" in topic:  # the log of a coordinator is no topic
            values = topics.setdefault(topic, {})
            values[name] = value + (values.get(name, 0) if name == IN_REPLAY else 0)
    if not cluster:
        raise Unanswered("metrics/: the answer has none of the metrics of a Pulsar broker")
    return Scrape(
        broker, cluster, from_ms, to_ms, started_s, topics, whole, checks, left.problems()
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
