"""What must hold of the tables of the job client_quotas."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    derived,
    no_rows,
    rows_that,
    unique,
    window_checks,
)
from app.tables.definitions import TABLES

_WITH_Q1 = "list_contains(string_split(switches['defects'], ','), 'Q1')"
_RULE_OF_VERDICT = """
verdict <> CASE rule WHEN 'refused_over_bound' THEN 'refused'
  WHEN 'rate_over_bound' THEN 'throttled' WHEN 'request_time_over_bound' THEN 'throttled'
  WHEN 'tokens_below_zero' THEN 'throttled' ELSE 'allowed' END
"""
# A decision lies in one window of each length that there is.
_WINDOW_UNLIKE_DECISIONS = """
SELECT s.* FROM {batch} AS s
LEFT JOIN (
  SELECT d.cluster, d.broker, d.quota_type, d."user" AS "user", d.client, w.window_ms,
    d.ts_wall_ms - d.ts_wall_ms % w.window_ms AS window_start_ms, count(*) AS throttled,
    sum(d.throttle_ms) AS throttle_ms
  FROM client_quota_decisions AS d CROSS JOIN (SELECT DISTINCT window_ms FROM {batch}) AS w
  GROUP BY 1, 2, 3, 4, 5, 6, 7
) AS t
  ON t.cluster = s.cluster AND t.broker = s.broker AND t.quota_type = s.quota_type
  AND t."user" = s."user" AND t.client = s.client
  AND t.window_ms = s.window_ms AND t.window_start_ms = s.window_start_ms
WHERE s.basis = 'requests' AND (s.throttled <> coalesce(t.throttled, 0)
  OR s.throttle_ms <> coalesce(t.throttle_ms, 0))
"""


def _judged(name: str) -> list[AuditCheck]:
    """What holds of a table of requests."""
    return [
        *derived(TABLES[name]),
        rows_that("a rule is that of its verdict", _RULE_OF_VERDICT),
        rows_that(
            "what is throttled has a throttle time, and nothing else has",
            f"(verdict = 'allowed') <> (throttle_ms = 0) AND NOT ({_WITH_Q1} AND verdict = 'refused')"
            " AND NOT (verdict = 'refused' AND throttle_ms = 0)",
        ),
        rows_that("a type that decides has a bound", "(quota_type IS NULL) <> (bound IS NULL)"),
        rows_that("a bound has a level", "(bound IS NULL) <> (bound_level = 'none')"),
    ]


SUITES: dict[str, list[AuditCheck]] = {
    "client_quota_decisions": [
        *_judged("client_quota_decisions"),
        rows_that("a decision is no allowed request", "verdict = 'allowed'"),
    ],
    "client_quota_verdicts": _judged("client_quota_verdicts"),
    "client_quota_stats": [
        *derived(TABLES["client_quota_stats"]),
        unique("cluster", "broker", "quota_type", "user", "client", "basis", "window_start_ms"),
        rows_that(
            "a window is written at its end, by its basis",
            "ts_wall_ms <> window_start_ms + window_ms"
            " OR rule <> CASE basis WHEN 'metrics' THEN 'measured' ELSE 'window' END",
        ),
        rows_that(
            "requests are counted where they are the basis",
            "(basis = 'requests') <> (requests IS NOT NULL)",
        ),
        rows_that("use is a share of a bound", "utilisation IS NOT NULL AND bound IS NULL"),
    ],
    "client_usage": [
        *derived(TABLES["client_usage"]),
        *window_checks("cluster", "broker", "principal", "client_id", "api", "topic"),
    ],
}
ACROSS: dict[str, list[AuditCheck]] = {
    "client_quota_stats": [
        no_rows(
            "a window counts its decisions", _WINDOW_UNLIKE_DECISIONS, "client_quota_decisions"
        ),
    ],
}
