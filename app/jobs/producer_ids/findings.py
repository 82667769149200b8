"""What the summary of a report says of new producer ids where no user was over its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING

from app.show.report.model import Finding, JobFindings
from app.terminal.phrases import number_of

if TYPE_CHECKING:
    from app.show.report.report_reader import ReportReader

_USERS = """
SELECT count(DISTINCT (d.cluster, d.user, d.producer_id)) AS ids,
  count(DISTINCT (d.cluster, d.user)) AS users,
  coalesce(bool_or(d.bound IS NOT NULL AND d.bound_source <> 'none'), false) AS bounded
FROM producer_id_decisions AS d
"""


def _within_bounds(reader: ReportReader) -> list[Finding]:
    row = reader.row(_USERS)
    if not row["users"]:
        return []
    ids = f"{number_of(row['ids'], 'new producer id')} of {number_of(row['users'], 'user')}"
    return [
        Finding(
            f"{ids}: no user was over the bound."
            if row["bounded"]
            else f"{ids}; no user has a bound."
        )
    ]


FINDINGS = (JobFindings(21, _within_bounds, unless=("producer-id-quota",)),)
