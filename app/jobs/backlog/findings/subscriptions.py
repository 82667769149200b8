"""What the summary of a report says of backlogs: topics over a quota, and those that soon will be."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from app.show.report.model import Action, Finding, Urgency
from app.show.report.phrases import NAMED, Row, about, clock, number_of, short, was
from app.terminal.sizes import size_text

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

# Only the rows that the sentences need: a fleet has a check of every topic each minute.
_CHECKS = """
SELECT cluster, topic, pass_ms, exceeded_size, exceeded_time, limit_bytes, limit_s,
  retention_policy, coalesce(oldest_subscription, slowest) AS oldest_subscription, remarks
FROM (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC) AS place
  FROM backlog_checks
) LEFT JOIN (
  SELECT cluster, topic, pass_ms, arg_min(subscription, (-backlog_bytes, subscription)) AS slowest,
    arg_min_null(remarks, (-backlog_bytes, subscription)) AS remarks
  FROM backlog_subscriptions WHERE durable GROUP BY ALL
) USING (cluster, topic, pass_ms) WHERE place = 1 OR exceeded_size OR exceeded_time
"""
_AHEAD = """
SELECT cluster, topic, pass_ms, subscription, age_s, time_to_quota_s, remarks FROM (
  SELECT *, row_number() OVER (
      PARTITION BY cluster, topic, subscription
      ORDER BY pass_ms DESC, ts_wall_ms DESC, row_no DESC) AS place
  FROM backlog_subscriptions
) WHERE place = 1 AND time_to_quota_s <= $within
"""
_EVICTED = ("cluster", "topic", "entries_skipped")
NOT_EVICTED = "eviction skips nothing, because hardly any entry is unacknowledged"
SOON_S = 3600
"""A quota that will be reached within this time is reported."""


def findings(reader: ReportReader) -> list[Finding]:
    """What is to be said of the backlogs of a warehouse."""
    return backlog_findings(
        reader.rows(_CHECKS),
        reader.rows(_AHEAD, within=SOON_S),
        reader.columns("backlog_evictions", _EVICTED),
    )


def backlog_findings(
    checks: Iterable[Row], subscriptions: Iterable[Row], evictions: Iterable[Row]
) -> list[Finding]:
    """The topics that were over a quota of their backlog and those that soon will be, from rows of
    backlog_checks, backlog_subscriptions and backlog_evictions; nothing without a check."""
    by_topic: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in checks:
        by_topic[row["cluster"], row["topic"]].append(row)
    if not by_topic:
        return []
    evicted: Counter[tuple[str, str]] = Counter()
    for row in evictions:
        evicted[row["cluster"], row["topic"]] += row["entries_skipped"]
    over = {}
    for topic, rows in by_topic.items():
        rows.sort(key=lambda row: row["pass_ms"])
        if any(row["exceeded_size"] or row["exceeded_time"] for row in rows):
            over[topic] = rows
    worst = sorted(over, key=lambda t: (-sum(map(_is_over, over[t])), t))
    result = [_over_quota(topic, over[topic], evicted[topic]) for topic in worst[:NAMED]]
    more = len(worst) - NAMED
    if more > 0:
        result.append(Finding(f"{number_of(more, 'other topic')} {was(more)} also over a quota."))
    result += _quotas_ahead(by_topic, subscriptions)
    return result or [
        Finding(
            f"{number_of(len(by_topic), 'topic')} with a backlog: none was over a quota, "
            "and none will be within the hour."
        )
    ]


def _is_over(check: Row) -> bool:
    return bool(check["exceeded_size"] or check["exceeded_time"])


def _over_quota(place: tuple[str, str], checks: list[Row], evicted: int) -> Finding:
    """One topic that was over its quota, from its checks in order of time."""
    cluster, topic = place
    over = [row for row in checks if _is_over(row)]
    first, last = over[0], over[-1]
    size = first["exceeded_size"]
    limit = size_text(first["limit_bytes"]) if size else f"{first['limit_s']:,} s"
    quota = f"its {'size' if size else 'time'} quota of {limit}"
    since = clock(first["pass_ms"])
    when = f"the check of {since}" if first is last else f"{len(over):,} checks from {since}"
    if first is not last is not checks[-1]:
        when += f" to {clock(last['pass_ms'])}"
    begin = f"Topic {short(topic)} was over {quota} at {when}"
    if last["oldest_subscription"] is not None:
        begin += f", because of subscription {last['oldest_subscription']}{_remarks(last)}"
    if first["retention_policy"] == "consumer_backlog_eviction":
        entries = "entry was" if evicted == 1 else "entries were"
        effect = f"{evicted:,} {entries} to be evicted" if evicted else NOT_EVICTED
    else:
        effect = "its producers were disconnected"
    action = Action(
        _remedy(last["oldest_subscription"], topic),
        f"it was over {quota} at {number_of(len(over), 'check')}; {effect}",
        Urgency.LOSS,
        lasts=last is checks[-1],
        cluster=cluster,
        topic=topic,
        runbook="app/jobs/backlog/runbooks/backlog-quota.md",
    )
    return Finding(f"{begin}; {effect}.", [action])


def _remedy(subscription: str | None, topic: str) -> str:
    whose = "the consumers" if subscription is None else f"subscription {subscription}"
    return f"Restart or scale {whose} of {short(topic)}"


def _quotas_ahead(
    checks: Mapping[tuple[str, str], list[Row]], subscriptions: Iterable[Row]
) -> list[Finding]:
    """Subscriptions that will reach a quota soon, by the last check of their topic."""
    ahead = []
    for row in subscriptions:
        known = checks.get((row["cluster"], row["topic"]))
        left = row["time_to_quota_s"]
        if known is None or left is None or row["pass_ms"] != known[-1]["pass_ms"]:
            continue
        if not _is_over(known[-1]) and left <= SOON_S:
            ahead.append((row["pass_ms"] + int(left * 1000), row["topic"], row, left))
    ahead.sort(key=lambda found: (found[:2], found[2]["subscription"]))
    return [
        Finding(
            f"Topic {short(topic)} will reach its quota in {about(int(left * 1000))}, at "
            f"{clock(at)}, at the current rate of subscription {row['subscription']}"
            f"{_waiting(row['age_s'])}{_remarks(row)}.",
            [
                Action(
                    _remedy(row["subscription"], topic),
                    f"it reaches its backlog quota in {about(int(left * 1000))}",
                    Urgency.DEADLINE,
                    by_ms=at,
                    cluster=row["cluster"],
                    topic=topic,
                    runbook="app/jobs/backlog/runbooks/backlog-quota-predicted.md",
                )
            ],
        )
        for at, topic, row, left in ahead[:NAMED]
    ]


def _remarks(row: Row) -> str:
    return f" ({row['remarks']})" if row.get("remarks") else ""


def _waiting(age_s: int | None) -> str:
    return "" if age_s is None else f" (its oldest message has waited {age_s:,} s)"
