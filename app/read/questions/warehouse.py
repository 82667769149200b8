"""Questions about the warehouse itself: quarantined records, coverage, and freshness of its tables."""

from __future__ import annotations

from app.read.question import Question

_QUARANTINE = """
SELECT reason_code, count(DISTINCT (source_partition, source_offset)) AS records,
  list_sort(list(DISTINCT job) FILTER (WHERE job IS NOT NULL)) AS jobs,
  list_sort(list(DISTINCT cluster) FILTER (WHERE cluster IS NOT NULL)) AS clusters,
  mode(detail ORDER BY detail) AS commonest_detail, epoch_ms(max(ts_wall_ms)) AS newest
FROM quarantine
WHERE (ts_wall_ms IS NULL OR ts_wall_ms >= $since) AND (ts_wall_ms IS NULL OR ts_wall_ms < $until)
GROUP BY reason_code
ORDER BY records DESC, reason_code
LIMIT $rows
""".strip()

_FRESHNESS = """
SELECT name, rows, files, version, epoch_ms(committed_ms) AS committed,
  epoch_ms(newest_ms) AS newest_row, (committed_ms - newest_ms) / 1e3 AS behind_s
FROM weir_tables
WHERE version IS NOT NULL
ORDER BY committed_ms DESC, name
""".strip()

_COVERAGE = """
SELECT cluster, broker, epoch_ms(minute_ms) AS minute, received, repeated, late, quarantined, gaps,
  dropped, array_to_string(blind_jobs, ', ') AS blind, failed_polls, unsized
FROM coverage
WHERE minute_ms >= $since AND minute_ms < $until
ORDER BY minute_ms DESC, cluster, broker
LIMIT $rows
""".strip()

# The newest comparison of each number.
_RECONCILIATION = """
SELECT cluster, broker, topic, partition, "group", r.user AS user, r.client, measure, broker_value,
  weir_value, difference, bound, reason, epoch_ms(window_start_ms) AS since,
  epoch_ms(window_start_ms + window_ms) AS until
FROM reconciliation AS r
WHERE window_start_ms >= $since AND window_start_ms < $until
QUALIFY row_number() OVER (
  PARTITION BY cluster, broker, topic, partition, "group", r.user, r.client, measure
  ORDER BY window_start_ms DESC, compared_ms DESC
) = 1
ORDER BY reason IS NULL AND abs(difference::DOUBLE) > bound DESC, reason IS NULL DESC,
  abs(difference::DOUBLE) DESC NULLS LAST, cluster, broker, topic NULLS FIRST,
  partition NULLS FIRST, "group" NULLS FIRST, r.user NULLS FIRST, r.client, measure
LIMIT $rows
""".strip()

QUESTIONS = (
    Question(
        "coverage",
        "Per broker and minute, the newest first: records received, repeated, late and"
        " quarantined, gaps, events that they dropped, the jobs that were blind, polls that were not"
        " answered (broker *), and requests of clients without a size.",
        ("coverage",),
        _COVERAGE,
        place=3,
        first=("cluster", "broker", "minute", "received", "late", "quarantined", "gaps", "dropped"),
    ),
    Question(
        "quarantined",
        "Records that were not applied, by reason; those without a time always count.",
        ("quarantine",),
        _QUARANTINE,
        place=3,
        usual=True,
    ),
    Question(
        "reconciliation",
        "The newest comparison of every number with the broker's own: those that"
        " differ first, by how much, and why one cannot be compared.",
        ("reconciliation",),
        _RECONCILIATION,
        place=3,
        first=(
            "cluster",
            "broker",
            "topic",
            "measure",
            "broker_value",
            "weir_value",
            "difference",
            "reason",
        ),
    ),
    Question(
        "freshness",
        "How far each table is: its newest commit, the time of its newest row, and"
        " the time between the two.",
        ("weir_tables",),
        _FRESHNESS,
        (),
        place=3,
    ),
)
