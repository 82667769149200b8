"""What the summary of a report says of pauses by publish limits: causes and their effects."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.jobs.rate_limits.pauses import NUMBERED
from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.show.report.phrases import Row, number_of, percent, short
from app.terminal.amounts import duration

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_PAUSED = """
SELECT CAST(sum(culprit_ns) AS BIGINT) AS culprit_ns, count(*) AS topics,
  CAST(sum(shared_ns) AS BIGINT) AS shared_ns, CAST(sum(collateral_ns) AS BIGINT) AS collateral_ns
FROM topic_throttle_stats
"""
# A pause belongs to the limit that began it.
BEGUN = f"""
{NUMBERED}
SELECT n.cluster, n.broker, n.cnx_id, n.limiter, n.limiter_name, n.topic, n.publisher,
  n.collateral_topics, p.start_ms, p.start_ns, p.end_ns
FROM numbered AS n JOIN pauses AS p USING (cluster, broker, cnx_id, pause_no)
WHERE n.reads_paused AND NOT n.were_paused
ORDER BY n.cluster, n.broker, n.cnx_id, n.pause_no
"""
SHARED = 1000
"""Shared limits whose users are looked up."""
SHOWN = 8
RUNBOOKS = "app/jobs/rate_limits/runbooks"


@dataclass
class Cause:
    """One limit that paused connections, and the effect."""

    limiter: str
    name: str
    """Topic, group, broker, connection or IO thread."""
    cluster: str = ""
    broker: str = ""
    """Where a shared limit holds; of a topic's own the cluster alone."""
    pauses: int = 0
    paused_ns: int = 0
    open_pauses: int = 0
    """Pauses that had not ended when the tables were read."""
    topics: set[str] = field(default_factory=set)
    """Topics on the connections that were paused; without the culprit of a topic's own limit."""
    first_ms: int | None = None
    most_used_by: str | None = None
    """The topic that used most of a shared limit."""
    share: float | None = None
    used: str = "messages"
    """What `share` is a share of: messages or bytes."""

    @property
    def key(self) -> tuple[str, str, str, str | None]:
        """The columns by which `shared-limits` identifies a shared limit."""
        return self.cluster, self.broker, self.limiter, self.name


@dataclass(frozen=True)
class Summary:
    """The sums over the tables of a warehouse."""

    causes: tuple[Cause, ...]
    """By paused time, longest first."""
    culprit_ns: int
    shared_ns: int
    collateral_ns: int
    """Paused time of all topics, by whose limit it was (ns)."""

    @property
    def paused_ns(self) -> int:
        """Paused time of all topics (ns)."""
        return self.culprit_ns + self.shared_ns + self.collateral_ns


def summarise(
    pauses: Iterable[Row],
    topic_throttle_stats: Iterable[Row],
    shared_limits: Iterable[Row] = (),
) -> Summary:
    """The summary of the rows of `BEGUN`, of a table and of the question `shared-limits`."""
    paused = Counter[str]()
    for row in topic_throttle_stats:
        paused.update(
            {name: row[name] or 0 for name in ("culprit_ns", "shared_ns", "collateral_ns")}
        )
    most = {
        (row["cluster"], row["broker"], row["limiter"], row["limiter_name"]): row
        for row in shared_limits
    }
    causes = sorted(_causes(pauses).values(), key=lambda c: (-c.paused_ns, c.name))
    for cause in causes:
        row = most.get(cause.key, {})
        if row.get("most_used_by") and row["share"]:
            cause.most_used_by, cause.share = row["most_used_by"], row["share"]
            cause.used = row["used"]
    return Summary(
        tuple(causes), *(paused[name] for name in ("culprit_ns", "shared_ns", "collateral_ns"))
    )


def _causes(pauses: Iterable[Row]) -> dict[tuple[str, ...], Cause]:
    causes: dict[tuple[str, ...], Cause] = {}
    for row in pauses:
        limiter = row["limiter"]
        topics = {row["topic"], *(row["collateral_topics"] or ())} - {None}
        if limiter == "topic":
            name, where = row["publisher"], (row["cluster"], "")
            topics -= {name}
        else:
            # connections that were only seen paused are one cause
            name, where = row["limiter_name"] or row["broker"], (row["cluster"], row["broker"])
        cause = causes.setdefault((limiter, name, *where), Cause(limiter, name, *where))
        cause.pauses += 1
        cause.topics |= topics
        if row["end_ns"] is None:
            cause.open_pauses += 1
        else:
            cause.paused_ns += max(0, row["end_ns"] - row["start_ns"])
        if row["start_ms"] is not None:
            times = (row["start_ms"], cause.first_ms)
            cause.first_ms = min(ms for ms in times if ms is not None)
    return causes


def pause_findings(summary: Summary) -> list[Finding]:
    """The main causes of pauses, the longest pause first."""
    if not summary.causes:
        result = [Finding("No connection was paused: every topic stayed within its limits.")]
    else:
        result = [Finding(_sentence(c), [_action(c)]) for c in summary.causes[:SHOWN]]
    parts = [
        f"{round(100 * ns / summary.paused_ns)} % {words}"
        for ns, words in (
            (summary.culprit_ns, "for their own limits"),
            (summary.shared_ns, "for limits that they share"),
            (summary.collateral_ns, "for the limits of other topics"),
        )
        if ns
    ]
    if parts:
        result.append(
            Finding(
                f"Paused time, summed over topics, is {duration(summary.paused_ns)}: "
                f"{_listed(parts)}."
            )
        )
    return result


def _listed(parts: list[str]) -> str:
    """a, b and c."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _sentence(cause: Cause) -> str:
    # the time of several pauses is a sum over connections, which may pause at the same time
    summed = ", summed over pauses" if cause.pauses > 1 else ""
    paused = f"{duration(cause.paused_ns)}{summed}"
    times, topics = number_of(cause.pauses, "time"), len(cause.topics)
    if cause.limiter == "topic":
        begin = f"Topic {short(cause.name)} exceeded its limit {times}"
        end = (
            f"it and {number_of(topics, 'other topic')} were paused for {paused}"
            if topics
            else f"it was paused for {paused}, and no other topic was"
        )
        return f"{begin}; {end}."
    begin = {
        "resource_group": f"Resource group {cause.name} was over its limit on {cause.broker}",
        "broker": f"Broker {cause.name} was over its own limit",
        "connection": f"Connection {cause.name} had too many requests in flight",
        "io_thread": f"IO thread {cause.name} of {cause.broker} had too many bytes in its buffers",
        "unknown": f"Connection {cause.name} was paused by its broker for no known limit",
    }[cause.limiter]
    used = ""
    if cause.most_used_by is not None:
        used = (
            f"; {short(cause.most_used_by)} used most ({percent(cause.share)} of the {cause.used})"
        )
    return (
        f"{begin} {times}: connections with {number_of(topics, 'topic')} were paused for "
        f"{paused}{used}."
    )


def _action(cause: Cause) -> Action:
    """How such pauses end: the limit is raised, or what it limits is moved."""
    name, others = short(cause.name), len(cause.topics)
    pauses = number_of(cause.pauses, "pause")
    lasts = cause.open_pauses > 0
    if cause.limiter == "topic":
        suffered = number_of(others, "other topic") if others else "no other topic"
        return Action(
            f"Raise the publish limit of {name}, or split it",
            f"{pauses}, {duration(cause.paused_ns)} in all, and {suffered} paused with it",
            Urgency.OTHERS if others else Urgency.OWN,
            lasts=lasts,
            cluster=cause.cluster,
            topic=cause.name,
            runbook=f"{RUNBOOKS}/{'noisy-neighbour-victim' if others else 'publish-limit'}.md",
        )
    remedy = {
        "resource_group": f"Raise the limit of resource group {name}, or move topics out of it",
        "broker": f"Move topics off {name}, or raise its publish limit",
        "connection": f"Give the producers of connection {name} more connections, "
        "or raise maxPendingPublishRequestsPerConnection",
        "io_thread": f"Raise maxMessagePublishBufferSizeInMB or numIOThreads of {cause.broker}",
        "unknown": f"Compare the limits of {cause.broker} with the policy files",
    }[cause.limiter]
    used = (
        f"; {short(cause.most_used_by)} used {percent(cause.share)} of it"
        if cause.most_used_by is not None
        else ""
    )
    return Action(
        remedy,
        f"{pauses}, {duration(cause.paused_ns)} in all, of {number_of(others, 'topic')}{used}",
        Urgency.OTHERS,
        lasts=lasts,
        cluster=cause.cluster,
        topic=cause.most_used_by,
        runbook=f"{RUNBOOKS}/publish-limit.md",
    )


def _summary(reader: ReportReader) -> Summary | None:
    """The summary of the tables of a warehouse; None if no topic has statistics."""
    total = reader.row(_PAUSED)
    if not total["topics"]:
        return None
    return summarise(reader.rows(BEGUN), [total], reader.ask("shared-limits", SHARED))


def _findings(reader: ReportReader) -> list[Finding]:
    summary = _summary(reader)
    return [] if summary is None else pause_findings(summary)


FINDINGS = (JobFindings(10, _findings),)
