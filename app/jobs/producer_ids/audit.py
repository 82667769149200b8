"""What must hold of the tables of the job producer_ids."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    between,
    derived,
    no_rows,
    not_null,
    rows_that,
    suite,
    values,
    window_checks,
)
from app.tables.definitions import TABLES

_RULE_OF_VERDICT = """
rule <> CASE WHEN rule = 'unseen_after_gap' AND verdict = 'counted' THEN rule
  WHEN verdict = 'rejected' THEN 'rejected_over_bound'
  WHEN coalesce(recount, false) THEN 'recounted_after_disposal'
  WHEN verdict = 'throttled' THEN 'unseen_over_bound' ELSE 'unseen_within_bound' END
"""
_BOUND_OF_NOBODY = """
bound_source = 'none' AND bound <>
  CASE switches['unlimited_default'] WHEN 'int' THEN 2147483647::DOUBLE
    ELSE 9223372036854775807::DOUBLE END
"""
_WITH_Q1 = "list_contains(string_split(switches['defects'], ','), 'Q1')"
_SLOWED_WITHOUT_TIME = """
CASE switches['enforcement'] WHEN 'strict' THEN (rejected > 0) <> (throttle_time_avg_ms IS NOT NULL)
  ELSE rejected > 0 OR throttle_time_avg_ms IS NOT NULL AND new_ids = 0 END
"""
_DECISION_WITHOUT_OWNER = """
SELECT d.* FROM {batch} AS d
ANTI JOIN producer_id_owners AS o
  ON o.cluster = d.cluster AND o.broker = d.broker AND o."user" = d."user"
  AND o.producer_id = d.producer_id AND o.ts_wall_ms = d.ts_wall_ms AND o.rule = d.rule
"""
# A decision lies in one window of each length that there is.
_WINDOW_UNLIKE_DECISIONS = """
SELECT s.* FROM {batch} AS s
LEFT JOIN (
  SELECT d.cluster, d.broker, d."user" AS "user", w.window_ms,
    d.ts_wall_ms - d.ts_wall_ms % w.window_ms AS window_start_ms,
    count_if(d.verdict <> 'rejected') AS new_ids, count_if(d.verdict = 'rejected') AS rejected
  FROM producer_id_decisions AS d CROSS JOIN (SELECT DISTINCT window_ms FROM {batch}) AS w
  GROUP BY 1, 2, 3, 4, 5
) AS t
  ON t.cluster = s.cluster AND t.broker = s.broker AND t."user" = s."user"
  AND t.window_ms = s.window_ms AND t.window_start_ms = s.window_start_ms
WHERE s.new_ids <> coalesce(t.new_ids, 0) OR s.rejected <> coalesce(t.rejected, 0)
"""


def _known_if(column: str, switch: str, value: str) -> AuditCheck:
    """A column that has a value exactly if a parameter has one."""
    return rows_that(
        f"{column} is there exactly with {switch}={value}",
        f"({column} IS NOT NULL) <> (switches['{switch}'] = '{value}')",
    )


def _decisions_suite() -> list[AuditCheck]:
    return [
        *derived(TABLES["producer_id_decisions"]),
        rows_that("a rule is that of its verdict", _RULE_OF_VERDICT),
        rows_that(
            "strict rejects and permissive throttles",
            "verdict = CASE switches['enforcement']"
            " WHEN 'strict' THEN 'throttled' ELSE 'rejected' END",
        ),
        rows_that(
            "what is within its bound does not wait", "verdict = 'counted' AND throttle_ms <> 0"
        ),
        rows_that("only Q1 makes a throttle time negative", f"throttle_ms < 0 AND NOT {_WITH_Q1}"),
        rows_that(
            "an id has a filter unless it is rejected",
            "(verdict = 'rejected') <> (filter_created_ms IS NULL)",
        ),
        rows_that(
            "a filter that takes an id is there",
            "filter_created_ms > ts_wall_ms OR filter_created_ms IS NOT NULL AND live_filters = 0",
        ),
        rows_that("without a policy there is no bound", _BOUND_OF_NOBODY),
        _known_if("tokens", "quota_math", "token_bucket"),
        _known_if("recount", "membership", "exact"),
    ]


def _user_stats_suite() -> list[AuditCheck]:
    return [
        *derived(TABLES["producer_id_stats"]),
        *window_checks("cluster", "broker", "user"),
        rows_that(
            "strict rejects and permissive throttles",
            "rejected > 0 AND switches['enforcement'] <> 'strict'",
        ),
        rows_that("what is throttled or rejected has a throttle time", _SLOWED_WITHOUT_TIME),
        rows_that(
            "only Q1 makes a throttle time negative", f"throttle_time_avg_ms < 0 AND NOT {_WITH_Q1}"
        ),
        rows_that("filters have bytes", "(live_filters > 0) <> (state_bytes > 0)"),
        rows_that(
            "without filters nothing is filled",
            "live_filters = 0 AND (filter_fill <> 0 OR estimated_fpp <> 0)"
            " OR estimated_fpp > filter_fill",
        ),
        _known_if("tokens", "quota_math", "token_bucket"),
        _known_if("filter_fill", "membership", "bloom"),
        _known_if("estimated_fpp", "membership", "bloom"),
    ]


TRANSACTION_STATES = (
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "PrepareEpochFence",
    "uncoordinated",
    "hanging",
    "ended",
)
SUITES: dict[str, list[AuditCheck]] = {
    "producer_id_decisions": _decisions_suite(),
    "producer_id_stats": _user_stats_suite(),
    "producer_id_owners": [
        *derived(TABLES["producer_id_owners"]),
    ],
    "producer_id_live": suite(
        "producer_id_live",
        *not_null(*TABLES["producer_id_live"].names),
        between("live_ids", 0),
        between("number", 1),
        rows_that(
            "an id has a state on each of its partitions, at least one",
            "states < live_ids OR (live_ids = 0) <> (states = 0)",
        ),
        rows_that(
            "the heap of a broker is that of all its states",
            "heap_bytes < 0 OR broker_heap_bytes < heap_bytes",
        ),
    ),
    "open_transactions": suite(
        "open_transactions",
        *not_null(
            "polled_ms", "cluster", "topic", "partition", "user", "producer_id", "state", "number"
        ),
        between("start_offset", 0),
        between("number", 1),
        values("state", TRANSACTION_STATES),
        rows_that(
            "a transaction that a coordinator knows has an id and a timeout",
            "(transactional_id IS NULL) <> (timeout_ms IS NULL)"
            " OR start_ms IS NOT NULL AND transactional_id IS NULL",
        ),
    ),
}
ACROSS: dict[str, list[AuditCheck]] = {
    "producer_id_decisions": [
        no_rows(
            "every decision has a row of its owner", _DECISION_WITHOUT_OWNER, "producer_id_owners"
        ),
    ],
    "producer_id_stats": [
        no_rows("a window counts its decisions", _WINDOW_UNLIKE_DECISIONS, "producer_id_decisions"),
    ],
}
