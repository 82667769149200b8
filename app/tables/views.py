"""Views over the tables, in SQL that Spark and DuckDB both accept.

A view is text only: nothing is stored, every reading command creates it, and the text can be
printed for any other engine.
"""

from __future__ import annotations

from app.jobs import every
from app.tables.quota_usage import QUOTA_USAGE
from app.tables.shadow_effects import SHADOW_EFFECTS
from app.tables.view import View

# A gap is repeated by a feed that sends it again, a refused record by each job that refuses it.
_COVERAGE = """
WITH counted AS (
  SELECT cluster, broker, minute_ms, sum(received) AS received, sum(quarantined) AS quarantined,
    sum(unsized) AS unsized
  FROM coverage_counts GROUP BY cluster, broker, minute_ms
), refused AS (
  SELECT cluster, broker, ts_wall_ms - ts_wall_ms % 60000 AS minute_ms,
    count(DISTINCT CASE WHEN reason_code = 'DUPLICATE_RECORD'
      THEN concat(source_partition, ' ', source_offset) END) AS repeated,
    count(DISTINCT CASE WHEN reason_code = 'TOO_LATE'
      THEN concat(source_partition, ' ', source_offset) END) AS late
  FROM quarantine
  WHERE reason_code IN ('DUPLICATE_RECORD', 'TOO_LATE') AND broker <> '*'
    AND ts_wall_ms IS NOT NULL
  GROUP BY cluster, broker, ts_wall_ms - ts_wall_ms % 60000
), known AS (
  SELECT DISTINCT cluster, broker, source_feed, seq, ts_wall_ms, dropped
  FROM coverage_gaps WHERE ts_wall_ms IS NOT NULL
), gaps AS (
  SELECT cluster, broker, ts_wall_ms - ts_wall_ms % 60000 AS minute_ms, count(*) AS gaps,
    CASE WHEN count(*) = count(dropped) THEN sum(dropped) END AS dropped
  FROM known GROUP BY cluster, broker, ts_wall_ms - ts_wall_ms % 60000
), polled AS (
  SELECT cluster, '*' AS broker, ts_wall_ms - ts_wall_ms % 60000 AS minute_ms,
    sum(CASE WHEN dropped IS NULL THEN 1 ELSE 0 END) AS failed_polls
  FROM coverage_polls WHERE problem IS NOT NULL
  GROUP BY cluster, ts_wall_ms - ts_wall_ms % 60000
), minutes AS (
  SELECT cluster, broker, minute_ms FROM counted
  UNION SELECT cluster, broker, minute_ms FROM refused
  UNION SELECT cluster, broker, minute_ms FROM gaps
  UNION SELECT cluster, broker, minute_ms FROM polled WHERE failed_polls > 0
), blind AS (
  SELECT m.cluster, m.broker, m.minute_ms, array_sort(array_agg(DISTINCT g.job)) AS blind_jobs
  FROM minutes AS m JOIN coverage_gaps AS g
    ON g.cluster = m.cluster AND g.broker = m.broker
    AND coalesce(g.gap_from_wall_ms, g.ts_wall_ms) < CAST(m.minute_ms AS DOUBLE) + 60000
    AND g.blind_until_ms > m.minute_ms
  GROUP BY m.cluster, m.broker, m.minute_ms
)
SELECT m.cluster, m.broker, m.minute_ms, coalesce(c.received, 0) AS received,
  coalesce(r.repeated, 0) AS repeated, coalesce(r.late, 0) AS late,
  coalesce(c.quarantined, 0) AS quarantined, coalesce(g.gaps, 0) AS gaps,
  CASE WHEN g.gaps IS NULL THEN 0 ELSE g.dropped END AS dropped, b.blind_jobs,
  coalesce(p.failed_polls, 0) AS failed_polls, coalesce(c.unsized, 0) AS unsized
FROM minutes AS m
LEFT JOIN counted AS c
  ON c.cluster = m.cluster AND c.broker = m.broker AND c.minute_ms = m.minute_ms
LEFT JOIN refused AS r
  ON r.cluster = m.cluster AND r.broker = m.broker AND r.minute_ms = m.minute_ms
LEFT JOIN gaps AS g
  ON g.cluster = m.cluster AND g.broker = m.broker AND g.minute_ms = m.minute_ms
LEFT JOIN polled AS p
  ON p.cluster = m.cluster AND p.broker = m.broker AND p.minute_ms = m.minute_ms
LEFT JOIN blind AS b
  ON b.cluster = m.cluster AND b.broker = m.broker AND b.minute_ms = m.minute_ms
""".strip()
COVERAGE = View(
    "coverage",
    "What is known of each broker by minute: records received, repeated, late and quarantined,"
    " gaps that end in it, events that they dropped (null: not known), and the jobs that were"
    " blind in it (null: none). A cluster that did not answer has a row with the broker *."
    " unsized: requests of clients whose bytes are not known.",
    _COVERAGE,
    reads=("coverage_counts", "coverage_gaps", "coverage_polls", "quarantine"),
)

VIEWS: dict[str, View] = {
    view.name: view
    for view in sorted(
        (COVERAGE, *every("views", "VIEWS"), QUOTA_USAGE, SHADOW_EFFECTS),
        key=lambda view: view.place,
    )
}
