"""The audit of client_quotas: rows of a small trace that meets every verdict, and their damage."""

from __future__ import annotations

from typing import Any

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
from tests.unit.state.client_quota_trace import PARAMS, T0, numbered, other, play, quota, request
from tests.unit.state.shipping import Row

TABLES = (
    "client_quota_decisions",
    "client_quota_verdicts",
    "client_quota_stats",
    "client_usage",
)
DECISIONS, VERDICTS, STATS, USAGE = TABLES
VARIANTS: dict[str, dict[str, Any]] = {
    "east": {"controller_enforcement": "strict"},
    "west": {"controller_enforcement": "permissive", "sampled_stat": "start_time"},
    "south": {"defects": ["Q1"]},
}
"""What differs between the clusters."""
KEY = "cluster,broker,ts_wall_ms,row_no"
RULE = "a rule is that of its verdict"
TIME = "what is throttled has a throttle time, and nothing else has"
TYPE, LEVEL = "a type that decides has a bound", "a bound has a level"
COUNTS = "a window counts its decisions"
END = "a window is written at its end, by its basis"


def example(**params: Any) -> dict[str, list[Row]]:
    """Rows of requests that are throttled by bytes and time, refused, allowed and exempt, and of a
    rate that the broker measured."""
    limits = {"producer_byte_rate": 100, "request_percentage": 1, "controller_mutation_rate": 1}
    records = [
        request(0, charged_bytes=2000, topic_bytes='{"t":1990}', throttle_ms=9_990),
        request(1, "METADATA", handler_time_ns=10**9),
        *(request(i, "CREATE_TOPICS", mutations=12) for i in (2, 3)),
        request(4, "METADATA", handler_time_ns=1, user="b"),
        request(5, "FETCH", charged_bytes=7, exempt=True),
        other("client_rate", 6, principal="a", client_id="", quota_type="fetch", value_milli=7),
    ]
    return play([numbered(records)], {**PARAMS, **params}, (quota("a", **limits),), T0 + 60_000)


# The rows of the first cluster (strict) come first: bytes, time, a mutation that is refused.
DAMAGE: dict[str, list[Damage]] = {
    DECISIONS: [
        (0, {"verdict": "passed"}, [(SET, "verdict"), RULE]),
        (0, {"rule": "over"}, [(SET, "rule"), RULE]),
        (0, {"quota_type": "bytes"}, [(SET, "quota_type")]),
        (0, {"bound_level": "topic"}, [(SET, "bound_level")]),
        (0, {"bound": -1.0}, [(RANGE, "bound")]),
        (0, {"bound": None}, [TYPE, LEVEL]),
        (0, {"bound_level": "none"}, [LEVEL]),
        (0, {"quota_type": None}, [TYPE]),
        (0, {"throttle_ms": 0}, [TIME]),
        (0, {"throttle_ms": -1}, [(RANGE, "throttle_ms")]),
        (2, {"rule": "tokens_below_zero"}, [RULE]),
        (
            0,
            {"verdict": "allowed", "rule": "within_bound", "throttle_ms": 0},
            ["a decision is no allowed request"],
        ),
    ],
    VERDICTS: [
        (-1, {"verdict": "throttled"}, [RULE, TIME]),
        (-1, {"throttle_ms": 5}, [TIME]),
    ],
    STATS: [
        (0, {"basis": "logs"}, [(SET, "basis"), "requests are counted where they are the basis"]),
        (0, {"requests": None}, ["requests are counted where they are the basis"]),
        (0, {"rule": "measured"}, [END]),
        (0, {"bound": None}, ["use is a share of a bound"]),
        (0, {"throttled": -1}, [(RANGE, "throttled")]),
    ],
    USAGE: [
        (0, {"bytes": -1}, [(RANGE, "bytes")]),
        (0, {"rule": "closed"}, ["a window is written at its end"]),
    ],
}

JOB = Job(
    "client_quotas",
    TABLES,
    written("client_quotas", example, VARIANTS),
    keys={
        DECISIONS: (KEY,),
        VERDICTS: (KEY,),
        STATS: (KEY, "cluster,broker,quota_type,user,client,basis,window_start_ms"),
        USAGE: (KEY, "cluster,broker,principal,client_id,api,topic,window_start_ms"),
    },
    variety=[
        Variety(
            VERDICTS,
            lambda row: row["rule"],
            {
                "within_bound",
                "rate_over_bound",
                "request_time_over_bound",
                "tokens_below_zero",
                "refused_over_bound",
                "no_bound",
                "exempt",
            },
        ),
        Variety(STATS, lambda row: row["basis"], {"requests", "metrics"}),
    ],
    damage=DAMAGE,
    conflicts=[
        Conflict(
            "a window counts another number", {STATS: change(0, throttled=4)}, {STATS: {COUNTS: 1}}
        ),
        Conflict("a decision is lost", {DECISIONS: lose(1)}, {STATS: {COUNTS: 1}}),
    ],
)
