"""What the summary of a report says of backlogs and of Kafka groups beside the facts of its alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.show.report.model import Action, Finding, JobFindings, Urgency
from app.terminal.phrases import NAMED, number_of

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_OTHER_UNIT = """
SELECT DISTINCT cluster, topic FROM group_lag_now WHERE age_state = 'other_unit'
ORDER BY cluster, topic
"""
_CHECKED = "SELECT count(DISTINCT (cluster, topic)) AS topics FROM backlog_checks"


def _within_quotas(reader: ReportReader) -> list[Finding]:
    topics = reader.row(_CHECKED)["topics"]
    text = (
        f"{number_of(topics, 'topic')} with a backlog: none was over a quota, and none will be"
        " within the hour."
    )
    return [Finding(text)] if topics else []


def _other_units(reader: ReportReader) -> list[Finding]:
    return [
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
        for row in reader.rows(_OTHER_UNIT)[:NAMED]
    ]


FINDINGS = (
    JobFindings(42, _within_quotas, unless=("backlog-quota", "backlog-quota-predicted")),
    JobFindings(47, _other_units),
)
