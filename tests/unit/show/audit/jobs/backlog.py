"""The audit of backlog: rows of the example of the semantics, and their damage."""

from __future__ import annotations

from typing import Any

from tests.support.semantics_backlog import PRECISE, example, stands
from tests.unit.show.audit.jobs.job import (
    RANGE,
    SET,
    Conflict,
    Damage,
    Job,
    Variety,
    change,
    lose,
    written,
)
from tests.unit.state.backlog_trace import EVICTION, T0, quota

TABLES = ("backlog_checks", "backlog_evictions", "backlog_subscriptions", "producer_refusals")
CHECKS, EVICTIONS, SUBSCRIPTIONS, REFUSALS = TABLES
VARIANTS: dict[str, dict[str, Any]] = {
    "east": {"eviction_count_rule": "every_call"},
    "west": {PRECISE: True, "apply_evictions": True, "eviction_count_rule": "evicted_only"},
    "north": {
        "limits": quota(8_000, 200, EVICTION),
        "age_reset": "keep",
        "age_when_empty": "zero",
        "size_estimate": "ledger_sum",
    },
    "south": {
        "limits": quota(None, 200, EVICTION),
        PRECISE: True,
        "check_rows": "all",
        "age_without_quota": "quota_only",
    },
    "dedup": {
        "limits": quota(1, None, "producer_exception"),
        "more": [stands(0, "pulsar.dedup", "1:-1")],
    },
    "jumps": {
        "limits": quota(None, 200, EVICTION),
        "age_without_quota": "quota_only",
        "eviction_count_rule": "evicted_only",
    },
}
"""What differs between the clusters."""
KEY = "cluster,topic,ts_wall_ms,row_no"
INFO = "what is cached is there or is not, with its source"
STATE = "a known age has a time, and what is kept without an estimate"
AGE = "an age is that of its time; without one it is -1, or 0 where that is asked for"
POSITIONS = "positions are ledger:entry"
SIZE_USAGE, TIME_USAGE = "size_usage is size / limit", "time_usage is age / limit"
SIZE, TIME = "the size is exceeded from its limit on", "the age is exceeded beyond its limit"
ACTION = "what is exceeded is acted on by the policy of its quota"
RULE = "a rule says what is exceeded"
PRODUCERS = "only a disconnection has producers"
WHEN = "a check is written at its pass, at a whole second"
ENDS = "an eviction ends as its quota type does"
PHANTOM, COUNT = "a call is phantom if nothing was skipped", "a call counts once, on its first row"
STANDS, PLACED = "who stands still skips nothing", "a subscription has positions"
LARGER = "no backlog is larger afterwards"
FORECASTS, DRAINED = "forecasts are there together", "a backlog that falls is drained at its rate"
EMPTY = "without entries there is no age, and bytes only where they are acknowledged"
HOLE = "a hole is named beside acknowledged ranges, and nowhere else"
BACK = "a cursor that was set back has both positions"
REFUSED = "a rule is that of its quota"
EVICTED = "a check that evicts has its evictions"
CALLED = "every eviction has its check, with its size"
CHECKED = "a durable subscription with a backlog has its check, of its rule"

# The rows of the first cluster (estimated ages) come first: check 0 is within its limits, 1
# disconnects, 3 has no estimate, 4 evicts.
DAMAGE: dict[str, list[Damage]] = {
    CHECKS: [
        (0, {"rule": "over"}, [(SET, "rule"), RULE]),
        (0, {"rule": "size_exceeded"}, [RULE]),
        (1, {"rule": "deduplication_cursor"}, [RULE]),
        (0, {"age_state": "young"}, [(SET, "age_state"), STATE]),
        (0, {"age_state": "no_backlog"}, [STATE]),
        (0, {"age_state": "no_estimate"}, [STATE]),
        (3, {"age_state": "known"}, [STATE]),
        (0, {"timestamp_source": "guess"}, [(SET, "timestamp_source")]),
        (0, {"timestamp_source": "none"}, [INFO]),
        (3, {"timestamp_source": "kept"}, [INFO]),
        (0, {"oldest_subscription": None}, [INFO]),
        (0, {"oldest_position": None}, [INFO]),
        (0, {"oldest_position": "1"}, [POSITIONS]),
        (0, {"action": "wait"}, [(SET, "action"), ACTION]),
        (0, {"action": "evict_size"}, [ACTION]),
        (1, {"action": "none", "producers_disconnected": 0}, [ACTION]),
        (4, {"action": "evict_time"}, [ACTION]),
        (0, {"retention_policy": "producer_exception"}, [ACTION]),
        (1, {"retention_policy": None}, [ACTION]),
        (1, {"retention_policy": "evict"}, [(SET, "retention_policy")]),
        (0, {"limit_source_size": "user"}, [(SET, "limit_source_size")]),
        (0, {"limit_source_time": "user"}, [(SET, "limit_source_time")]),
        (0, {"producers_disconnected": 1}, [PRODUCERS]),
        (1, {"producers_disconnected": -1}, [(RANGE, "producers_disconnected")]),
        (0, {"backlog_bytes": -1}, [(RANGE, "backlog_bytes"), SIZE_USAGE]),
        (0, {"limit_bytes": -1, "size_usage": None}, [(RANGE, "limit_bytes"), SIZE]),
        (0, {"limit_s": -1, "time_usage": None}, [(RANGE, "limit_s")]),
        (0, {"size_usage": 0.7}, [SIZE_USAGE]),
        (0, {"size_usage": None}, [SIZE_USAGE]),
        (0, {"limit_bytes": None}, [SIZE_USAGE]),
        (0, {"time_usage": None}, [TIME_USAGE]),
        (3, {"time_usage": 0.1}, [TIME_USAGE]),
        (0, {"age_s": 301}, [AGE, TIME_USAGE]),
        (3, {"age_s": 0}, [AGE]),
        (3, {"age_s": 5}, [AGE]),
        (0, {"limit_bytes": 30_000, "size_usage": 1.0}, [SIZE]),
        (1, {"exceeded_size": False, "rule": "within_limits"}, [SIZE, ACTION]),
        (1, {"exceeded_time": True, "rule": "size_masks_time"}, [TIME]),
        (0, {"limit_s": 299, "time_usage": 300 / 299}, [TIME]),
        (0, {"ts_wall_ms": T0 + 1}, [WHEN]),
    ],
    EVICTIONS: [
        (0, {"rule": "no_cursor"}, [(SET, "rule"), ENDS]),
        (0, {"rule": "ledger_jump"}, [ENDS]),
        (0, {"quota_type": "count"}, [(SET, "quota_type"), ENDS]),
        (0, {"target_bytes": None}, [ENDS]),
        (0, {"expire_older_than_s": 1}, [ENDS]),
        (0, {"rounds": None}, [ENDS]),
        (0, {"rounds": -1}, [(RANGE, "rounds")]),
        (0, {"factor": 1.1}, [(RANGE, "factor")]),
        (0, {"entries_skipped": -1}, [(RANGE, "entries_skipped")]),
        (0, {"entries_skipped": 0}, [PHANTOM]),
        (0, {"phantom": True}, [PHANTOM]),
        (0, {"count_delta": 0}, [COUNT]),
        (1, {"count_delta": 1}, [COUNT]),
        (0, {"to_position": "3:4"}, [STANDS]),
        (0, {"to_position": None}, [PLACED]),
        (0, {"subscription": None}, [PLACED]),
        (0, {"from_position": "three"}, [POSITIONS]),
        (0, {"backlog_after": 12_501}, [LARGER]),
    ],
    SUBSCRIPTIONS: [
        (0, {"rule": "checked"}, [(SET, "rule")]),
        (0, {"mark_delete": "3"}, [POSITIONS]),
        (0, {"backlog_entries": -1}, [(RANGE, "backlog_entries")]),
        (0, {"backlog_entries": 0}, [EMPTY]),
        (0, {"backlog_bytes": 0, "backlog_entries": 0, "age_s": 4}, [EMPTY]),
        (0, {"kind": "reader"}, [(SET, "kind")]),
        (0, {"unacked_ranges": 2}, [HOLE]),
        (0, {"first_hole": "1:2"}, [HOLE]),
        (0, {"set_back": True}, [BACK]),
        (0, {"expired_unread": -1}, [(RANGE, "expired_unread")]),
        (0, {"drain_rate": 0.0}, [FORECASTS]),
        (0, {"time_to_drain_s": 1.0}, [FORECASTS]),
        (0, {"time_to_quota_s": 1.0}, [FORECASTS]),
        (6, {"time_to_quota_s": -1.0}, [(RANGE, "time_to_quota_s")]),
        (6, {"durable": False}, [FORECASTS]),
        (10, {"time_to_drain_s": 100.0}, [DRAINED]),
        (0, {"pass_ms": T0 + 1}, [WHEN]),
    ],
    REFUSALS: [
        (0, {"quota_type": "time"}, [REFUSED]),
        (0, {"error": "ProducerFencedException"}, [(SET, "error")]),
        (0, {"producer_id": -1}, [(RANGE, "producer_id")]),
    ],
}

JOB = Job(
    "backlog",
    TABLES,
    written("backlog", example, VARIANTS),
    keys={
        CHECKS: (KEY, "cluster,topic,pass_ms"),
        EVICTIONS: (KEY, "cluster,topic,ts_wall_ms,subscription"),
        SUBSCRIPTIONS: (KEY, "cluster,topic,subscription,pass_ms"),
        REFUSALS: (KEY,),
    },
    variety=[
        Variety(
            CHECKS,
            lambda r: r["action"],
            {
                "none",
                "deduplication_snapshot",
                "disconnect_producers",
                "evict_size",
                "evict_time",
            },
        ),
        Variety(
            CHECKS,
            lambda r: r["rule"],
            {
                "within_limits",
                "size_exceeded",
                "time_exceeded",
                "size_masks_time",
                "deduplication_cursor",
            },
        ),
        Variety(CHECKS, lambda r: r["age_state"], {"known", "no_backlog", "no_estimate"}),
        Variety(EVICTIONS, lambda r: r["rule"], {"same_cursor", "expired", "ledger_jump"}),
        Variety(SUBSCRIPTIONS, lambda r: r["durable"], {True, False}),
    ],
    damage=DAMAGE,
    conflicts=[
        Conflict("an eviction is lost", {EVICTIONS: lose(2)}, {CHECKS: {EVICTED: 1}}),
        *(
            Conflict(
                f"the check of an eviction has another {column}",
                {CHECKS: change(4, **{column: value})},
                {EVICTIONS: {CALLED: 2}},
            )
            for column, value in (
                ("action", "evict_time"),
                ("action", "disconnect_producers"),
                ("backlog_bytes", 12_501),
                ("pass_ms", T0 + 1000),
                ("topic", "persistent://t/a/z"),
            )
        ),
        *(
            Conflict(
                f"the check of subscriptions has another {column}",
                {CHECKS: change(0, **{column: value})},
                {SUBSCRIPTIONS: {CHECKED: 2}},
            )
            for column, value in (("rule", "size_exceeded"), ("pass_ms", T0 + 1000))
        ),
    ],
)
