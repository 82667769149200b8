"""What must hold of the tables on Kafka groups."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    derived,
    not_null,
    rows_that,
    unique,
    values,
)
from app.tables.definitions import TABLES
from state.backlog.layout import GROUP_STATES

_STATED = (
    "no_offset",
    "unknown_group",
    "share_group",
    "empty_id",
    "stable",
    "rebalancing",
    "empty",
    "dead",
)
_USAGE = "{0}_usage IS DISTINCT FROM CASE WHEN {2} > 0 THEN CAST({1} AS DOUBLE) / {2} END"


def _lag_suite() -> list[AuditCheck]:
    return [
        *derived(TABLES["group_lag"]),
        *not_null("broker"),
        unique("cluster", "group", "topic", "partition", "pass_ms"),
        rows_that(
            "a check is written at its pass, at a whole second",
            "ts_wall_ms <> pass_ms OR pass_ms % 1000 <> 0",
        ),
        rows_that(
            "lag is end - committed, where a group has an offset",
            "lag IS DISTINCT FROM CASE"
            " WHEN state IN ('committed', 'ahead', 'open_transaction', 'pending_offsets')"
            " THEN log_end - committed END",
        ),
        rows_that(
            "a group is ahead if its offset is beyond the end",
            "state = 'ahead' AND lag >= 0 OR state = 'committed' AND lag < 0",
        ),
        rows_that(
            "behind the offset of a group that a transaction holds there are offsets",
            "state IN ('open_transaction', 'pending_offsets') AND lag <= 0",
        ),
        rows_that(
            "an age has a time, in ms",
            "(age_s IS NULL) <> (oldest_timestamp_ms IS NULL)"
            " OR (age_s IS NULL) <> (age_state IS NULL"
            " OR age_state NOT IN ('known', 'first_seen'))",
        ),
        rows_that(
            "nothing unread has neither an age nor a size",
            "age_state = 'nothing_unread'"
            " AND (age_s IS NOT NULL OR lag_bytes > 0 OR time_to_loss_s > 0)",
        ),
        rows_that("time_usage is age / retention", _USAGE.format("time", "age_s", "limit_s")),
        rows_that(
            "size_usage is size / retention", _USAGE.format("size", "lag_bytes", "limit_bytes")
        ),
    ]


def _states_suite() -> list[AuditCheck]:
    return [
        *derived(TABLES["group_states"]),
        *not_null("broker"),
        values("state", (*GROUP_STATES, *_STATED)),
        rows_that("a row is a change", "state = before"),
        rows_that(
            "a transaction has a producer, and a group before it",
            "producer_id IS NOT NULL AND state NOT IN ('open_transaction', 'pending_offsets')"
            " OR producer_id IS NULL"
            " AND (transactional_id IS NOT NULL OR transaction_start_ms IS NOT NULL)",
        ),
    ]


def _lost_suite() -> list[AuditCheck]:
    return [
        *derived(TABLES["lost_messages"]),
        *not_null("broker"),
        rows_that("offsets are those between the two", "offsets <> to_offset - from_offset"),
        rows_that("what was read is not lost", "from_offset < committed"),
    ]


SUITES: dict[str, list[AuditCheck]] = {
    "group_lag": _lag_suite(),
    "group_states": _states_suite(),
    "lost_messages": _lost_suite(),
}
