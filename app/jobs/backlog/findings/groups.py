"""What the summary of a report says of Kafka groups: what they lost, what they will lose, and
offsets that fit no log."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from app.jobs.backlog.findings.subscriptions import SOON_S
from app.show.report.phrases import NAMED, Row, about, number_of, was

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_LOSSES = """
SELECT cluster, "group", topic, CAST(sum(offsets) AS BIGINT) AS offsets,
  CAST(coalesce(sum(offsets) FILTER (WHERE first_sight), 0) AS BIGINT) AS earlier
FROM lost_messages GROUP BY ALL ORDER BY offsets DESC, cluster, "group", topic
"""
_AHEAD = """
SELECT cluster, "group", topic, count(*) AS partitions FROM group_lag_now
WHERE state = 'ahead' GROUP BY ALL ORDER BY cluster, "group", topic
"""
_SOON = """
SELECT cluster, "group", topic, min(time_to_loss_s) AS left_s FROM group_lag_now
WHERE time_to_loss_s <= $within AND age_state = 'known'
GROUP BY ALL ORDER BY left_s, cluster, "group", topic
"""
_OTHER_UNIT = """
SELECT DISTINCT cluster, topic FROM group_lag_now WHERE age_state = 'other_unit'
ORDER BY cluster, topic
"""


def sentences(reader: ReportReader) -> list[str]:
    """The sentences on the groups of a warehouse."""
    return group_sentences(
        reader.rows(_LOSSES),
        reader.rows(_SOON, within=SOON_S),
        reader.rows(_AHEAD),
        reader.rows(_OTHER_UNIT),
    )


def group_sentences(
    losses: Sequence[Row], soon: Iterable[Row], ahead: Iterable[Row], units: Iterable[Row]
) -> list[str]:
    """What happened to groups, from rows of lost_messages and group_lag_now: losses, those
    ahead, offsets beyond the log, and times in another unit."""
    result = []
    for row in losses[:NAMED]:
        earlier = f", {row['earlier']:,} of them before it was first seen" if row["earlier"] else ""
        result.append(
            f"Group {row['group']} lost {number_of(row['offsets'], 'offset')} of topic "
            f"{row['topic']}: they were deleted before it read them{earlier}."
        )
    more = len(losses) - NAMED
    if more > 0:
        result.append(f"{number_of(more, 'other group')} {was(more)} also short of records.")
    result += [
        f"Retention may delete records of topic {row['topic']} that group {row['group']} has not "
        f"read {'now' if row['left_s'] <= 0 else 'in ' + about(int(row['left_s'] * 1000))}."
        for row in list(soon)[:NAMED]
    ]
    result += [
        f"Group {row['group']} is ahead of the log of topic {row['topic']} in "
        f"{number_of(row['partitions'], 'partition')}: what arrives there is not read."
        for row in list(ahead)[:NAMED]
    ]
    result += [
        f"Times of records in topic {row['topic']} are not in ms: its producers write another unit."
        for row in list(units)[:NAMED]
    ]
    return result
