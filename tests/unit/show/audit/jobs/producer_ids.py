"""The audit of producer_ids: rows of the example of the semantics, and their damage."""

from __future__ import annotations

from typing import Any

from tests.support.semantics_producer_ids import START_MS, example
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

TABLES = ("producer_id_decisions", "producer_id_stats", "producer_id_owners")
DECISIONS, STATS, OWNERS = TABLES
VARIANTS: dict[str, dict[str, Any]] = {
    "east": {"enforcement": "strict", "membership": "exact"},
    "west": {"enforcement": "permissive", "membership": "bloom", "refresh_on_hit": True},
    "north": {"membership": "bloom", "quota_math": "sampled_rate", "insert_rejected": True},
    "south": {"enforcement": "permissive", "membership": "exact", "defects": ["Q1"], "bound": 0},
}
"""What differs between the clusters."""
KEY = "cluster,broker,user,ts_wall_ms,row_no"
RULE = "a rule is that of its verdict"
TAKEN = "a filter that takes an id is there"
SLOWED = "what is throttled or rejected has a throttle time"
NEGATIVE = "only Q1 makes a throttle time negative"
STRICT = "strict rejects and permissive throttles"
COUNTS, OWNED = "a window counts its decisions", "every decision has a row of its owner"


def there(column: str, switch: str, value: str) -> str:
    return f"{column} is there exactly with {switch}={value}"


# The rows of the first cluster (strict, exact) come first; decision 5 is its first rejection.
DAMAGE: dict[str, list[Damage]] = {
    DECISIONS: [
        (0, {"verdict": "passed"}, [(SET, "verdict")]),
        (0, {"rule": "counted"}, [(SET, "rule"), RULE]),
        (0, {"bound_source": "topic"}, [(SET, "bound_source")]),
        (0, {"bound_source": "none"}, ["without a policy there is no bound"]),
        (0, {"producer_id": -1}, [(RANGE, "producer_id")]),
        (0, {"bound": -1.0}, [(RANGE, "bound")]),
        (0, {"rate": -0.1}, [(RANGE, "rate")]),
        (0, {"rule": "unseen_over_bound"}, [RULE]),
        (0, {"recount": True}, [RULE]),
        (5, {"rule": "unseen_within_bound"}, [RULE]),
        (0, {"verdict": "throttled", "rule": "unseen_over_bound"}, [STRICT]),
        (0, {"throttle_ms": 1}, ["what is within its bound does not wait"]),
        (5, {"throttle_ms": 2**31}, [(RANGE, "throttle_ms")]),
        (5, {"throttle_ms": -1}, [NEGATIVE]),
        (5, {"filter_created_ms": START_MS}, ["an id has a filter unless it is rejected"]),
        (0, {"filter_created_ms": None}, ["an id has a filter unless it is rejected"]),
        (0, {"live_filters": 0}, [TAKEN]),
        (0, {"filter_created_ms": START_MS + 1}, [TAKEN]),
        (0, {"tokens": None}, [there("tokens", "quota_math", "token_bucket")]),
        (0, {"recount": None}, [there("recount", "membership", "exact")]),
    ],
    STATS: [
        (0, {"new_ids": -1}, [(RANGE, "new_ids")]),
        (0, {"rejected": -1}, [(RANGE, "rejected"), SLOWED]),
        (0, {"utilisation": -0.1}, [(RANGE, "utilisation")]),
        (0, {"rejected": 0}, [SLOWED]),
        (0, {"throttle_time_avg_ms": None}, [SLOWED]),
        (0, {"throttle_time_avg_ms": -1.0}, [NEGATIVE]),
        (0, {"state_bytes": 0}, ["filters have bytes"]),
        (0, {"live_filters": 0}, ["filters have bytes"]),
        (0, {"tokens": None}, [there("tokens", "quota_math", "token_bucket")]),
        (0, {"filter_fill": 0.1}, [there("filter_fill", "membership", "bloom")]),
        (0, {"estimated_fpp": 0.1}, [there("estimated_fpp", "membership", "bloom")]),
        (0, {"rule": "closed"}, ["a window is written at its end"]),
        (
            0,
            {"window_ms": 59_999, "window_start_ms": START_MS + 1},
            ["windows are aligned to the epoch"],
        ),
        (("west", -1), {"filter_fill": 1.5}, [(RANGE, "filter_fill")]),
    ],
    OWNERS: [
        (0, {"rule": "seen"}, [(SET, "rule")]),
        (0, {"producer_id": -1}, [(RANGE, "producer_id")]),
    ],
}

JOB = Job(
    "producer_ids",
    TABLES,
    written("producer_ids", example, VARIANTS),
    keys={
        DECISIONS: (KEY,),
        STATS: (KEY, "cluster,broker,user,window_start_ms"),
        OWNERS: (KEY,),
    },
    variety=[
        Variety(DECISIONS, lambda r: r["verdict"], {"counted", "throttled", "rejected"}),
        Variety(
            DECISIONS,
            lambda r: r["rule"],
            {
                "unseen_within_bound",
                "unseen_over_bound",
                "rejected_over_bound",
                "recounted_after_disposal",
            },
        ),
        Variety(
            DECISIONS,
            lambda r: r["verdict"] == "rejected" and r["throttle_ms"] == 0,
            {True, False},
        ),
        Variety(DECISIONS, lambda r: r["throttle_ms"] < 0, {True, False}),
    ],
    damage=DAMAGE,
    conflicts=[
        *(
            Conflict(
                f"a window counts other decisions: {changes}",
                {STATS: change(0, **changes)},
                {STATS: {COUNTS: 1}},
            )
            for changes in ({"new_ids": 4}, {"rejected": 0}, {"new_ids": 6, "rejected": 0})
        ),
        Conflict("a decision is lost", {DECISIONS: lose(1)}, {STATS: {COUNTS: 1}}),
        Conflict(
            "a window is lost with its decision",
            {DECISIONS: lose(1), STATS: lose(1)},
            {STATS: {}},
        ),
        *(
            Conflict(
                f"a decision and the row of its owner differ in {column}",
                {OWNERS: change(0, **{column: value})},
                {DECISIONS: {OWNED: 1}},
            )
            for column, value in (
                ("user", "bob"),
                ("producer_id", 99),
                ("rule", "assigned"),
                ("ts_wall_ms", START_MS + 1),
                ("broker", "b2"),
            )
        ),
    ],
)
