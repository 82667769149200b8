"""Views over the tables, in SQL that Spark and DuckDB both accept.

A view is text only: nothing is stored, every read command creates it, and the text can be printed
for any other engine.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """One view: what a row of it is, its SQL and the tables that it reads."""

    name: str
    meaning: str
    sql: str
    reads: tuple[str, ...]


# A pause is numbered by counting, in time order, the rows that start one; the rows up to the one
# that resumes reads carry its number. Rows outside a pause (dropped marks, unmarks of nothing) are
# left out. Wall time leads the order, since the monotonic clock starts anew with the broker; where
# it is null the two engines would disagree about nulls, so their place is written out.
_THROTTLE_INTERVALS = """
WITH rows_of_pauses AS (
  SELECT *, sum(CASE WHEN starts THEN 1 ELSE 0 END) OVER (
      PARTITION BY cluster, broker, cnx_id
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS pause_no
  FROM (
    SELECT cluster, broker, cnx_id, ts_wall_ms, ts_mono_ns, row_no, reason, culprit_topic,
      reads_paused,
      transition = 'ConnectionStateChanged' AND action = 'mark' AND reads_paused AS starts,
      transition = 'ConnectionStateChanged' AND action = 'unmark' AND NOT reads_paused AS ends
    FROM throttle_events
  ) AS flagged
)
SELECT
  cluster,
  broker,
  cnx_id,
  min(ts_mono_ns) FILTER (WHERE starts) AS start_ns,
  min(ts_mono_ns) FILTER (WHERE ends) AS end_ns,
  min(ts_wall_ms) FILTER (WHERE starts) AS start_ms,
  min(ts_wall_ms) FILTER (WHERE ends) AS end_ms,
  array_sort(array_agg(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)) AS reasons,
  array_sort(array_agg(DISTINCT culprit_topic)
    FILTER (WHERE culprit_topic IS NOT NULL)) AS culprit_topics
FROM rows_of_pauses
WHERE pause_no > 0 AND (reads_paused OR ends)
GROUP BY cluster, broker, cnx_id, pause_no
""".strip()

VIEWS: dict[str, View] = {
    "throttle_intervals": View(
        "throttle_intervals",
        "One row per pause of a connection: when reads stopped and resumed, why, and by whom;"
        " end_ns and end_ms are null while it is paused.",
        _THROTTLE_INTERVALS,
        reads=("throttle_events",),
    ),
}
