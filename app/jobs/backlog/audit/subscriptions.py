"""What must hold of the tables on backlogs of subscriptions."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    derived,
    no_rows,
    not_null,
    rows_that,
    unique,
)
from app.tables.definitions import TABLES

SIZE_ENDS = ("target_reached", "same_cursor", "skip_zero")
EVICTION_POLICY = "consumer_backlog_eviction"
_POSITION_OR_BEFORE = "^-?[0-9]+:-?[0-9]+$"
_INFO = ("oldest_subscription", "oldest_position", "oldest_timestamp_ms")
_STATE_UNLIKE_INFO = """
CASE WHEN age_state = 'known' THEN oldest_timestamp_ms IS NULL
  WHEN age_state = 'no_estimate' THEN oldest_timestamp_ms IS NOT NULL
    AND (timestamp_source <> 'kept' OR switches['age_reset'] <> 'keep')
  ELSE oldest_timestamp_ms IS NOT NULL END
"""
_AGE_UNLIKE_INFO = """
age_s <> CASE WHEN oldest_timestamp_ms IS NOT NULL
    THEN CAST((pass_ms - oldest_timestamp_ms) // 1000 AS BIGINT)
  WHEN age_state <> 'no_estimate' AND switches['age_when_empty'] = 'zero' THEN 0 ELSE -1 END
"""
_SIZE_USAGE_AMISS = """
size_usage IS DISTINCT FROM CASE WHEN limit_bytes > 0
  THEN CAST(backlog_bytes AS DOUBLE) / CAST(limit_bytes AS DOUBLE) END
"""
_TIME_USAGE_AMISS = """
time_usage IS DISTINCT FROM CASE WHEN limit_s > 0 AND oldest_timestamp_ms IS NOT NULL
  THEN CAST(age_s AS DOUBLE) / CAST(limit_s AS DOUBLE) END
"""
# Without a product, which may be too large for a bigint.
_TIME_EXCEEDED_AMISS = """
exceeded_time <> coalesce(limit_s > 0 AND pass_ms > oldest_timestamp_ms
  AND (pass_ms - oldest_timestamp_ms - 1) // 1000 >= limit_s, false)
"""
_ACTION_AMISS = f"""
CASE WHEN NOT exceeded_size AND NOT exceeded_time
    THEN action <> 'none' OR retention_policy IS NOT NULL
  WHEN retention_policy = '{EVICTION_POLICY}'
    THEN action <> CASE WHEN exceeded_size THEN 'evict_size' ELSE 'evict_time' END
  ELSE retention_policy IS NULL
    OR action NOT IN ('deduplication_snapshot', 'disconnect_producers') END
"""
_CHECK_RULE_AMISS = """
rule <> CASE WHEN action = 'deduplication_snapshot' THEN 'deduplication_cursor'
  WHEN exceeded_size AND exceeded_time THEN 'size_masks_time'
  WHEN exceeded_size THEN 'size_exceeded' WHEN exceeded_time THEN 'time_exceeded'
  ELSE 'within_limits' END
"""
_EVICTION_RULE_AMISS = f"""
(quota_type = 'size') <> (rule IN {SIZE_ENDS})
  OR (quota_type = 'size') <> (target_bytes IS NOT NULL)
  OR (quota_type = 'size') = (expire_older_than_s IS NOT NULL)
  OR (rule = 'expired') <> (rounds IS NULL) OR quota_type = 'time' AND factor IS NOT NULL
"""
# The largest, since a sum may be too large for a bigint.
_PHANTOM_AMISS = """
SELECT * FROM (
  SELECT *, max(entries_skipped) OVER (PARTITION BY cluster, topic, ts_wall_ms) AS most_skipped
  FROM {batch}
) AS called
WHERE phantom <> (most_skipped = 0)
"""
_COUNT_AMISS = """
count_delta <> CASE WHEN row_no = 0
  AND (switches['eviction_count_rule'] = 'every_call' OR NOT phantom) THEN 1 ELSE 0 END
"""
_FORECASTS_AMISS = """
(growth_rate IS NULL) <> (drain_rate IS NULL)
  OR coalesce(growth_rate < 0, false) <> (time_to_drain_s IS NOT NULL)
  OR time_to_quota_s IS NOT NULL AND (growth_rate IS NULL OR NOT durable)
"""
_BACKLOG_KEY = "c.cluster = r.cluster AND c.topic = r.topic AND c.pass_ms = r.ts_wall_ms"
_EVICTION_WITHOUT_CHECK = f"""
SELECT r.* FROM {{batch}} AS r
ANTI JOIN backlog_checks AS c
  ON {_BACKLOG_KEY} AND c.action = concat('evict_', r.quota_type)
  AND c.backlog_bytes = r.backlog_before
"""
_CHECK_WITHOUT_EVICTION = f"""
SELECT c.* FROM {{batch}} AS c
ANTI JOIN backlog_evictions AS r
  ON {_BACKLOG_KEY} AND c.action = concat('evict_', r.quota_type)
WHERE c.action IN ('evict_size', 'evict_time')
"""
# A reader does not determine the checks, so its row may be without one.
_SUBSCRIPTION_WITHOUT_CHECK = f"""
SELECT r.* FROM {{batch}} AS r
ANTI JOIN backlog_checks AS c ON {_BACKLOG_KEY} AND c.rule = r.rule
WHERE r.durable AND r.backlog_entries > 0
"""


def _backlog_table(name: str) -> list[AuditCheck]:
    """What holds of every table of the job backlog."""
    return [*derived(TABLES[name]), *not_null("broker")]


def _pass_checks() -> list[AuditCheck]:
    return [
        rows_that(
            "a check is written at its pass, at a whole second",
            "ts_wall_ms <> pass_ms OR pass_ms % 1000 <> 0",
        )
    ]


def _backlog_checks_suite() -> list[AuditCheck]:
    return [
        *_backlog_table("backlog_checks"),
        unique("cluster", "topic", "pass_ms"),
        *_pass_checks(),
        rows_that(
            "what is cached is there or is not, with its source",
            " OR ".join(f"({column} IS NULL) <> (timestamp_source = 'none')" for column in _INFO),
        ),
        rows_that(
            "a known age has a time, and what is kept without an estimate", _STATE_UNLIKE_INFO
        ),
        rows_that(
            "an age is that of its time; without one it is -1, or 0 where that is asked for",
            _AGE_UNLIKE_INFO,
        ),
        rows_that(
            "positions are ledger:entry",
            f"NOT regexp_matches(oldest_position, '{_POSITION_OR_BEFORE}')",
        ),
        rows_that("size_usage is size / limit", _SIZE_USAGE_AMISS),
        rows_that("time_usage is age / limit", _TIME_USAGE_AMISS),
        rows_that(
            "the size is exceeded from its limit on",
            "exceeded_size <> coalesce(backlog_bytes >= limit_bytes, false)",
        ),
        rows_that("the age is exceeded beyond its limit", _TIME_EXCEEDED_AMISS),
        rows_that("what is exceeded is acted on by the policy of its quota", _ACTION_AMISS),
        rows_that("a rule says what is exceeded", _CHECK_RULE_AMISS),
        rows_that(
            "only a disconnection has producers",
            "producers_disconnected > 0 AND action <> 'disconnect_producers'",
        ),
    ]


def _backlog_evictions_suite() -> list[AuditCheck]:
    return [
        *_backlog_table("backlog_evictions"),
        unique("cluster", "topic", "ts_wall_ms", "subscription"),
        rows_that("an eviction ends as its quota type does", _EVICTION_RULE_AMISS),
        rows_that(
            "a subscription has positions",
            "(subscription IS NULL) <> (from_position IS NULL)"
            " OR (subscription IS NULL) <> (to_position IS NULL)"
            " OR subscription IS NULL AND entries_skipped > 0",
        ),
        rows_that(
            "positions are ledger:entry",
            f"NOT regexp_matches(from_position, '{_POSITION_OR_BEFORE}')"
            f" OR NOT regexp_matches(to_position, '{_POSITION_OR_BEFORE}')",
        ),
        rows_that(
            "who stands still skips nothing", "from_position = to_position AND entries_skipped > 0"
        ),
        no_rows("a call is phantom if nothing was skipped", _PHANTOM_AMISS),
        rows_that("a call counts once, on its first row", _COUNT_AMISS),
        rows_that("no backlog is larger afterwards", "backlog_after > backlog_before"),
    ]


def _backlog_subscriptions_suite() -> list[AuditCheck]:
    return [
        *_backlog_table("backlog_subscriptions"),
        unique("cluster", "topic", "subscription", "pass_ms"),
        *_pass_checks(),
        rows_that(
            "positions are ledger:entry",
            f"NOT regexp_matches(mark_delete, '{_POSITION_OR_BEFORE}')",
        ),
        rows_that(
            "without entries there is no age, and bytes only where they are acknowledged",
            "backlog_entries = 0 AND"
            " (backlog_bytes > 0 AND unacked_ranges = 0 OR age_s IS NOT NULL)",
        ),
        rows_that(
            "a hole is named beside acknowledged ranges, and nowhere else",
            "backlog_entries > 0 AND (unacked_ranges > 0) <> (first_hole IS NOT NULL)",
        ),
        rows_that(
            "a cursor that was set back has both positions",
            "set_back <> (set_back_from IS NOT NULL) OR set_back <> (set_back_to IS NOT NULL)",
        ),
        rows_that("forecasts are there together", _FORECASTS_AMISS),
        rows_that(
            "a backlog that falls is drained at its rate",
            "time_to_drain_s <> CAST(backlog_bytes AS DOUBLE) / -growth_rate",
        ),
    ]


def _producer_refusals_suite() -> list[AuditCheck]:
    return [
        *_backlog_table("producer_refusals"),
        rows_that("a rule is that of its quota", "rule <> concat(quota_type, '_exceeded')"),
    ]


SUITES: dict[str, list[AuditCheck]] = {
    "backlog_checks": _backlog_checks_suite(),
    "backlog_evictions": _backlog_evictions_suite(),
    "backlog_subscriptions": _backlog_subscriptions_suite(),
    "producer_refusals": _producer_refusals_suite(),
}
ACROSS: dict[str, list[AuditCheck]] = {
    "backlog_checks": [
        no_rows(
            "a check that evicts has its evictions", _CHECK_WITHOUT_EVICTION, "backlog_evictions"
        ),
    ],
    "backlog_evictions": [
        no_rows(
            "every eviction has its check, with its size", _EVICTION_WITHOUT_CHECK, "backlog_checks"
        ),
    ],
    "backlog_subscriptions": [
        no_rows(
            "a durable subscription with a backlog has its check, of its rule",
            _SUBSCRIPTION_WITHOUT_CHECK,
            "backlog_checks",
        ),
    ],
}
