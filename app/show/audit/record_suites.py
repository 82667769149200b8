"""What must hold of the tables that belong to no job: records, results, alerts."""

from __future__ import annotations

from app.contract.rules import CODES
from app.show.audit.checks import (
    AuditCheck,
    between,
    no_rows,
    not_negative,
    not_null,
    rows_that,
    suite,
    values,
)
from app.sources.clocks import LATEST_MS
from state.events import DUPLICATE, EVERY_BROKER, KINDS, TOO_LATE
from state.jobs import JOBS

DAY_MS = 86_400_000
_ARCHIVED = """
WITH counted AS (
  SELECT cluster, broker, minute_ms, sum(received - quarantined) AS counted FROM coverage_counts
  WHERE minute_ms > 0 AND minute_ms >= {since_ms} GROUP BY ALL
), kept AS (
  SELECT cluster, broker, ts_wall_ms - ts_wall_ms % 60000 AS minute_ms, count(*) AS archived
  FROM {batch} WHERE ts_wall_ms >= greatest({since_ms}, 60000) AND ts_wall_ms <= {latest_ms}
    AND broker <> '{every}' GROUP BY ALL
)
SELECT cluster, broker, minute_ms, counted, coalesce(archived, 0) AS archived
FROM counted LEFT JOIN kept USING (cluster, broker, minute_ms)
WHERE counted <> coalesce(archived, 0)
"""


def missing(batch: str, since_ms: int) -> str:
    """SQL of the minutes of a broker from a time on of which the archive has not as many records as
    were counted when they were read.
    """
    return _ARCHIVED.format(batch=batch, since_ms=since_ms, latest_ms=LATEST_MS, every=EVERY_BROKER)


def archived(since_ms: int) -> AuditCheck:
    """As many records are in the archive as were counted when they were read, from a time on."""
    sql = missing("{batch}", since_ms)
    return no_rows("every record that was read is archived or quarantined", sql, "coverage_counts")


SUITES: dict[str, list[AuditCheck]] = {
    "events": suite(
        "events",
        *not_null("event_type", "source_partition", "source_offset", "ingest_ms", "event_date"),
        values("event_type", tuple(kind.name for kind in KINDS)),
        rows_that(
            "event_date is the day of the record, or of its arrival",
            "date_diff('day', DATE '1970-01-01', event_date)"
            f" NOT IN (floor(coalesce(ts_wall_ms, ingest_ms) / {DAY_MS}.0),"
            f" floor(ingest_ms / {DAY_MS}.0))",
        ),
        rows_that(
            "a payload has the length and the sum of its row",
            "octet_length(payload) <> payload_bytes OR crc32(payload) <> payload_crc32",
        ),
    ),
    "quarantine": suite(
        "quarantine",
        *not_null("reason_code", "source_partition", "source_offset"),
        values("reason_code", (*CODES, TOO_LATE, DUPLICATE)),
        values("job", JOBS),
        rows_that(
            "late and repeated records belong to a job and come without their text",
            f"reason_code IN ('{TOO_LATE}', '{DUPLICATE}') AND (job IS NULL OR raw IS NOT NULL)",
        ),
    ),
    "reconciliation": suite(
        "reconciliation",
        *not_null(
            "compared_ms",
            "cluster",
            "broker",
            "measure",
            "compared_job",
            "window_start_ms",
            "window_ms",
            "weir_value",
            "bound",
        ),
        values("compared_job", JOBS),
        between("window_ms", 0),
        between("bound", 0),
        rows_that(
            "a difference is that of the two numbers",
            "difference IS DISTINCT FROM broker_value - weir_value",
        ),
        rows_that(
            "a number that is missing has a reason", "broker_value IS NULL AND reason IS NULL"
        ),
    ),
    "forecasts": suite(
        "forecasts",
        *not_null(
            "made_ms",
            "known_ms",
            "kind",
            "entity",
            "limit",
            "used",
            "highest",
            "breached",
        ),
        *not_negative("limit", "used", "highest", "predicted", "mean_error"),
        rows_that(
            "a forecast has a day, a number and an error, or a reason why there is none",
            "(for_ms IS NULL OR predicted IS NULL OR mean_error IS NULL) <> (reason IS NOT NULL)",
        ),
        rows_that(
            "a breach lies between what is known and what is predicted",
            "breach_ms < known_ms OR breach_ms >= for_ms",
        ),
    ),
    "quality_results": suite(
        "quality_results",
        *not_null("run_id", "checked_ms", "table", "expectation", "success"),
        rows_that("what holds has no unexpected rows", "success AND unexpected_count > 0"),
    ),
    "alerts": suite("alerts", *not_null("alert", "labels", "state", "at_ms", "checked_ms")),
}
