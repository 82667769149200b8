"""What the summary of a report says of Kafka groups: what they lost, what they will lose, and
offsets that fit no log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from app.show.report.model import Action, Finding, Urgency
from app.show.report.phrases import NAMED, Row, about, number_of, was

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

RUNBOOKS = "app/jobs/backlog/runbooks"
_LOSSES = """
WITH lost AS (
  SELECT cluster, "group", topic, sum(offsets) AS offsets,
    coalesce(sum(offsets) FILTER (WHERE first_sight), 0) AS earlier,
    coalesce(bool_or(n.client_host = ''), false) AS no_member,
    coalesce(bool_or(n.lag > 0), false) AS lags
  FROM lost_messages LEFT JOIN group_lag_now AS n USING (cluster, "group", topic, partition)
  GROUP BY cluster, "group", topic
)
SELECT cluster, "group", list(topic ORDER BY offsets DESC, topic) AS topics,
  CAST(sum(offsets) AS BIGINT) AS offsets, CAST(sum(earlier) AS BIGINT) AS earlier,
  bool_and(no_member) AS no_member, bool_or(lags) AS lags
FROM lost GROUP BY cluster, "group" ORDER BY offsets DESC, cluster, "group"
"""
_AHEAD = """
SELECT cluster, "group", topic, count(*) AS partitions FROM group_ahead
WHERE next_ms IS NULL GROUP BY ALL ORDER BY cluster, "group", topic
"""
_WAITING = """
SELECT cluster, "group", topic, state = 'pending_offsets' AS pending, count(*) AS partitions,
  concat('the transaction ', coalesce(any_value(transactional_id),
    'of producer id ' || CAST(any_value(producer_id) AS VARCHAR), 'that is open there')) AS transaction
FROM group_state_spans WHERE next_ms IS NULL AND state IN ('open_transaction', 'pending_offsets')
GROUP BY ALL ORDER BY cluster, "group", topic, pending
"""
_SOON = """
WITH near AS (
  SELECT cluster, "group", topic, min(r.limit_s - r.age_s) AS left_s,
    arg_min(pass_ms, r.limit_s - r.age_s) AS pass_ms,
    coalesce(bool_or(n.trend = 'has no member'), false) AS no_member
  FROM group_near_retention AS r
  JOIN group_lag_now AS n USING (cluster, "group", topic, partition, pass_ms)
  WHERE r.next_ms IS NULL GROUP BY cluster, "group", topic
)
SELECT cluster, "group", list(topic ORDER BY left_s, topic) AS topics, min(left_s) AS left_s,
  arg_min(pass_ms, left_s) AS pass_ms, bool_and(no_member) AS no_member
FROM near GROUP BY cluster, "group" ORDER BY left_s, cluster, "group"
"""
_OTHER_UNIT = """
SELECT DISTINCT cluster, topic FROM group_lag_now WHERE age_state = 'other_unit'
ORDER BY cluster, topic
"""


def findings(reader: ReportReader) -> list[Finding]:
    """What is to be said of the groups of a warehouse."""
    return group_findings(
        reader.rows(_LOSSES),
        reader.rows(_SOON),
        reader.rows(_AHEAD),
        reader.rows(_OTHER_UNIT),
        reader.rows(_WAITING),
    )


def group_findings(
    losses: Sequence[Row],
    soon: Iterable[Row],
    ahead: Iterable[Row],
    units: Iterable[Row],
    waiting: Iterable[Row] = (),
) -> list[Finding]:
    """What happened to groups, from rows of lost_messages, group_lag_now and group_states: losses,
    those ahead, offsets beyond the log, times in another unit, and open transactions."""
    result = []
    for place, row in enumerate(losses):
        earlier = f", {row['earlier']:,} of them before it was first seen" if row["earlier"] else ""
        offsets = number_of(row["offsets"], "offset")
        todo = _slow(
            row,
            f"{offsets} {was(row['offsets'])} deleted before it read them",
            Urgency.LOSS,
            "group-lost-messages",
        )
        text = (
            f"Group {row['group']} of cluster {row['cluster']} lost {offsets} of "
            f"{_named(row['topics'])}"
            + (f": they were deleted before it read them{earlier}." if place < NAMED else ".")
        )
        result.append(Finding(text, [todo] if row["lags"] else []))  # else it has read on since
    for row in list(soon)[:NAMED]:
        left_ms = int(row["left_s"] * 1000)
        when = "now" if left_ms <= 0 else f"in {about(left_ms)}"
        result.append(
            Finding(
                f"Retention may delete records of {_named(row['topics'])} that group {row['group']} "
                f"of cluster {row['cluster']} has not read {when}.",
                [
                    _slow(
                        row,
                        f"retention may delete what it has not read {when}",
                        Urgency.DEADLINE,
                        "group-near-retention",
                        row["pass_ms"] + left_ms,
                    )
                ],
            )
        )
    for row in list(ahead)[:NAMED]:
        partitions = number_of(row["partitions"], "partition")
        result.append(
            Finding(
                f"Group {row['group']} is ahead of the log of topic {row['topic']} in "
                f"{partitions}: what arrives there is not read.",
                [
                    Action(
                        f"Reset the offsets of group {row['group']} on topic {row['topic']}",
                        f"it is ahead of the log in {partitions}: what arrives is not read",
                        Urgency.LOSS,
                        lasts=True,
                        cluster=row["cluster"],
                        topic=row["topic"],
                        runbook=f"{RUNBOOKS}/group-ahead.md",
                    )
                ],
            )
        )
    for row in list(waiting)[:NAMED]:
        partitions = number_of(row["partitions"], "partition")
        if row["pending"]:
            reason = f"it has the next offsets of group {row['group']} in topic {row['topic']}"
            text = (
                f"Offsets of group {row['group']} in topic {row['topic']} stand in {partitions}: the next "
                f"ones are in {row['transaction']}, which has not ended."
            )
        else:
            reason = (
                f"group {row['group']} gets nothing more of topic {row['topic']} before it ends"
            )
            text = (
                f"Group {row['group']} has read topic {row['topic']} up to the last stable offset in "
                f"{partitions}: readers of committed data get nothing more before {row['transaction']} ends."
            )
        result.append(
            Finding(
                text,
                [
                    Action(
                        f"End {row['transaction']}",
                        reason,
                        Urgency.OTHERS,
                        lasts=True,
                        cluster=row["cluster"],
                        topic=row["topic"],
                        runbook=f"{RUNBOOKS}/group-open-transaction.md",
                    )
                ],
            )
        )
    result += [
        Finding(
            f"Times of records in topic {row['topic']} are not in ms: its producers write another "
            "unit.",
            [
                Action(
                    f"Let producers of topic {row['topic']} write times in ms",
                    "ages of its records are unknown: they write another unit",
                    Urgency.OWN,
                    lasts=True,
                    cluster=row["cluster"],
                    topic=row["topic"],
                )
            ],
        )
        for row in list(units)[:NAMED]
    ]
    return result


def _slow(
    row: Row, reason: str, urgency: Urgency, runbook: str, by_ms: int | None = None
) -> Action:
    """What to do about a group that reads too late."""
    remedy = (
        f"Start consumers of group {row['group']} for {_named(row['topics'])}: no member has "
        + ("it" if len(row["topics"]) == 1 else "them")
        if row["no_member"]
        else f"Scale group {row['group']}, or raise retention.ms of {_named(row['topics'])}"
    )
    return Action(
        remedy,
        f"in cluster {row['cluster']} {reason}",
        urgency,
        by_ms=by_ms,
        cluster=row["cluster"],
        topic=row["topics"][0],
        runbook=f"{RUNBOOKS}/{runbook}.md",
    )


def _named(topics: Sequence[str]) -> str:
    """The topics of a group: the first ones by name."""
    names = list(topics[:NAMED])
    if (more := len(topics) - NAMED) > 0:
        names.append(number_of(more, "other"))
    if len(names) == 1:
        return f"topic {names[0]}"
    return f"topics {', '.join(names[:-1])} and {names[-1]}"
