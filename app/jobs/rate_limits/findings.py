"""What the summary of a report says of pauses by publish limits: causes and their effects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

from app.show.alerts.rule_files import runbook_of
from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.terminal.amounts import duration
from app.terminal.counts import all_of
from app.terminal.phrases import Row, number_of, percent, short

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_PAUSED = """
SELECT CAST(sum(culprit_ns) AS BIGINT) AS culprit_ns, count(*) AS topics,
  CAST(sum(shared_ns) AS BIGINT) AS shared_ns, CAST(sum(collateral_ns) AS BIGINT) AS collateral_ns
FROM topic_throttle_stats
"""
# The topics are those on paused connections, without the culprit of its own limit, which is one in its
# cluster. Of a pause that has not ended there is no time. Connections that were only seen paused are one
# cause.
CAUSES = """
SELECT limiter, name, cluster, broker, count(*) AS pauses,
  CAST(coalesce(sum(paused_ns), 0) AS BIGINT) AS paused_ns,
  count_if(is_open)::BIGINT AS open_pauses,
  coalesce(list_sort(list_distinct(list_filter(flatten(list(topics)),
    lambda topic: limiter <> 'topic' OR topic <> name))), []) AS topics, min(start_ms) AS first_ms
FROM (
  SELECT limiter, cluster, topics, is_open, greatest(paused_ns, 0) AS paused_ns, start_ms,
    CASE limiter WHEN 'topic' THEN trigger_topic ELSE coalesce(limiter_name, p.broker) END AS name,
    CASE limiter WHEN 'topic' THEN '' ELSE p.broker END AS broker
  FROM throttle_intervals AS p
) GROUP BY limiter, name, cluster, broker
ORDER BY paused_ns DESC, name, limiter, cluster, broker
"""
WHOSE = {
    "culprit_ns": "for their own limits",
    "shared_ns": "for limits that they share",
    "collateral_ns": "for the limits of other topics",
}
"""Sums of paused time, by whose limit it was (ns)."""
USED = ("most_used_by", "share", "used")
"""The topic that used most of a shared limit, its share, and of what: messages or bytes."""
SHOWN = 8


def causes(pauses: Iterable[Row], shared_limits: Iterable[Row] = ()) -> list[Row]:
    """The rows of `CAUSES`, with the topic that used most of a shared limit by rows of the question
    `shared-limits`."""
    place = itemgetter("cluster", "broker", "limiter")
    most = {
        (*place(row), row["limiter_name"]): {name: row[name] for name in USED}
        for row in shared_limits
        if row["most_used_by"] and row["share"]
    }
    unknown = dict.fromkeys(USED)
    return [{**row, **most.get((*place(row), row["name"]), unknown)} for row in pauses]


def pause_findings(found: Sequence[Row], sums: Row) -> list[Finding]:
    """The main causes of pauses, the longest pause first, and by the sums of topic_throttle_stats whose
    limits they were."""
    result = [Finding(_sentence(c), [_action(c)]) for c in found[:SHOWN]] or [
        Finding("No connection was paused: every topic stayed within its limits.")
    ]
    paused_ns = sum(sums[name] or 0 for name in WHOSE)
    parts = [
        f"{round(100 * sums[name] / paused_ns)} % {words}"
        for name, words in WHOSE.items()
        if sums[name]
    ]
    if parts:
        paused = f"Paused time, summed over topics, is {duration(paused_ns)}"
        result.append(Finding(f"{paused}: {all_of(parts)}."))
    return result


def _sentence(cause: Row) -> str:
    # the time of several pauses is a sum over connections, which may pause at the same time
    summed = ", summed over pauses" if cause["pauses"] > 1 else ""
    paused = f"{duration(cause['paused_ns'])}{summed}"
    times, topics = number_of(cause["pauses"], "time"), len(cause["topics"])
    if cause["limiter"] == "topic":
        begin = f"Topic {short(cause['name'])} exceeded its limit {times}"
        end = (
            f"it and {number_of(topics, 'other topic')} were paused for {paused}"
            if topics
            else f"it was paused for {paused}, and no other topic was"
        )
        return f"{begin}; {end}."
    begin = {
        "resource_group": f"Resource group {cause['name']} was over its limit on {cause['broker']}",
        "broker": f"Broker {cause['name']} was over its own limit",
        "connection": f"Connection {cause['name']} had too many requests in flight",
        "io_thread": f"IO thread {cause['name']} of {cause['broker']} had too many bytes in its buffers",
        "unknown": f"Connection {cause['name']} was paused by its broker for no known limit",
    }[cause["limiter"]]
    used = ""
    if cause["most_used_by"]:
        share = f"{percent(cause['share'])} of the {cause['used']}"
        used = f"; {short(cause['most_used_by'])} used most ({share})"
    return (
        f"{begin} {times}: connections with {number_of(topics, 'topic')} were paused for "
        f"{paused}{used}."
    )


def _action(cause: Row) -> Action:
    """How such pauses end: the limit is raised, or what it limits is moved."""
    name, others = short(cause["name"]), len(cause["topics"])
    pauses = number_of(cause["pauses"], "pause")
    lasts = cause["open_pauses"] > 0
    if cause["limiter"] == "topic":
        suffered = number_of(others, "other topic") if others else "no other topic"
        return Action(
            f"Raise the publish limit of {name}, or split it",
            f"{pauses}, {duration(cause['paused_ns'])} in all, and {suffered} paused with it",
            Urgency.OTHERS if others else Urgency.OWN,
            lasts=lasts,
            cluster=cause["cluster"],
            topic=cause["name"],
            runbook=runbook_of("noisy-neighbour-victim" if others else "publish-limit"),
        )
    remedy = {
        "resource_group": f"Raise the limit of resource group {name}, or move topics out of it",
        "broker": f"Move topics off {name}, or raise its publish limit",
        "connection": f"Give the producers of connection {name} more connections, "
        "or raise maxPendingPublishRequestsPerConnection",
        "io_thread": f"Raise maxMessagePublishBufferSizeInMB or numIOThreads of {cause['broker']}",
        "unknown": f"Compare the limits of {cause['broker']} with the policy files",
    }[cause["limiter"]]
    used = (
        f"; {short(cause['most_used_by'])} used {percent(cause['share'])} of it"
        if cause["most_used_by"]
        else ""
    )
    return Action(
        remedy,
        f"{pauses}, {duration(cause['paused_ns'])} in all, of {number_of(others, 'topic')}{used}",
        Urgency.OTHERS,
        lasts=lasts,
        cluster=cause["cluster"],
        topic=cause["most_used_by"],
        runbook=runbook_of("publish-limit"),
    )


def _findings(reader: ReportReader) -> list[Finding]:
    sums = reader.row(_PAUSED)
    if not sums["topics"]:
        return []
    found = causes(reader.rows(CAUSES), reader.ask("shared-limits", 1000))
    return pause_findings(found, sums)


FINDINGS = (JobFindings(10, _findings),)
