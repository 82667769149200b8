"""What tests share of ready questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.tables.definitions import TABLES
from tests.support import blame_principals, client_quota_rows
from tests.support.charges import BLAMED, NONE, PAUSES, STATS, USED
from tests.support.throttle_rows import COMMON, OTHER, START_MS, TOPIC, event, window, write

Row = dict[str, Any]
THIRD = "persistent://acme/bills/sent"
MINUTE = 60_000
NS = 10**9
START = "2023-11-14T22:14:00Z"
FIRST, NEXT = "2023-11-14T22:14:00Z", "2023-11-14T22:15:00Z"
AFTER = "2023-11-14T22:16:00Z"


def stats(minute: int, topic: str, **changes: Any) -> Row:
    return window(minute, topic=topic, **changes)


def limiter(minute: int, name: str, used: float | None, **changes: Any) -> Row:
    base = {k: v for k, v in window(minute).items() if k in TABLES["limiter_stats"].names}
    return {
        **base,
        "limiter": "topic",
        "limiter_name": name,
        "utilisation": used,
        "throttles": 0,
        **changes,
    }


def command(at_ms: int, producer: str | None, pause_ms: int | None, **changes: Any) -> Row:
    return {
        **COMMON,
        "ts_wall_ms": START_MS + at_ms,
        "cnx_id": "c1",
        "producer_id": 1,
        "producer_name": producer,
        "topic": TOPIC,
        "reason": "TopicProduceQuotaExceeded",
        "pause_ms": pause_ms,
        "request_id": at_ms,
        **changes,
    }


def fate(at_ms: int, outcome: str | None, uuid: str, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "chunks",
        "ts_wall_ms": START_MS + at_ms,
        "topic": TOPIC,
        "subscription": "s",
        "consumer": "k",
        "uuid": uuid,
        "outcome": outcome,
        **changes,
    }


def waiting(minute: int, uuid: str, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "chunks",
        "topic": TOPIC,
        "subscription": "s",
        "consumer": "k",
        "state": "assembling",
        "uuid": uuid,
        "producer_name": "p",
        "next_chunk_id": 2,
        "num_chunks": 3,
        "window_start_ms": START_MS + minute * MINUTE,
        "window_ms": MINUTE,
        "first_chunk_ms": START_MS,
        "age_ms": 90_000,
        "buffered_bytes": 10,
        "declared_bytes": 15,
        **changes,
    }


def held(minute: int, uuid: str, position: str, gone: Any, **changes: Any) -> Row:
    return waiting(
        minute,
        uuid,
        **{
            "consumer": None,
            "state": "stalled",
            "first_position": position,
            "stalled_at": "5:2",
            "missing_chunks": gone,
            **changes,
        },
    )


def assembled(uuid: str, entry: int, **changes: Any) -> Row:
    return {
        **fate(0, None, uuid),
        "complete_ms": START_MS,
        "positions": [f"1:{entry + i}" for i in range(3)],
        **changes,
    }


def acked(at_ms: int, ledger: int, entry: int | None, **changes: Any) -> Row:
    return {
        "event_type": "ack",
        "cluster": "east",
        "topic": TOPIC,
        "subscription": "s",
        "ledger_id": ledger,
        "entry_id": entry,
        "ts_wall_ms": START_MS + at_ms,
        **changes,
    }


def new_id(at_ms: int, user: str, pid: int | None, verdict: str, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "producer_ids",
        "rule": "rejected_over_bound" if verdict == "rejected" else "unseen_within_bound",
        "ts_wall_ms": START_MS + at_ms,
        "user": user,
        "client_id": "x",
        "producer_id": pid,
        "verdict": verdict,
        "bound": 5.0,
        "bound_source": "default_user",
        "throttle_ms": 0,
        **changes,
    }


def live(at_ms: int, topic: str, user: str, ids: int, states: int, **changes: Any) -> Row:
    return {
        "polled_ms": START_MS + at_ms,
        "cluster": "east",
        "broker": "1",
        "topic": topic,
        "user": user,
        "live_ids": ids,
        "states": states,
        "heap_bytes": 400 * states,
        "broker_heap_bytes": 400 * states,
        "number": at_ms + 1,
        **changes,
    }


def opened(at_ms: int, state: str, number: int, **changes: Any) -> Row:
    return {
        "polled_ms": START_MS + at_ms,
        "cluster": "east",
        "topic": "orders",
        "partition": 1,
        "user": "pay",
        "producer_id": 7,
        "state": state,
        "start_offset": 40,
        "number": number,
        **changes,
    }


def broken(code: str, offset: Any, **changes: Any) -> Row:
    return {
        "reason_code": code,
        "detail": "topic",
        **EAST,
        "ts_wall_ms": START_MS,
        "source_partition": "0",
        "source_offset": offset,
        **changes,
    }


def check(topic: str, pass_ms: int, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "backlog",
        "topic": topic,
        "pass_ms": START_MS + pass_ms,
        "backlog_bytes": 80,
        "exceeded_size": False,
        "exceeded_time": False,
        **changes,
    }


def cursor(name: str, pass_ms: int, left_s: Any, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "backlog",
        "topic": TOPIC,
        "subscription": name,
        "backlog_bytes": 80,
        "pass_ms": START_MS + pass_ms,
        "time_to_quota_s": left_s,
        "growth_rate": 1.0,
        **changes,
    }


def lag(group: str, pass_ms: int, behind: Any, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "backlog",
        "group": group,
        "topic": "orders",
        "partition": 1,
        "pass_ms": START_MS + pass_ms,
        "ts_wall_ms": START_MS + pass_ms,
        "answered_ms": START_MS + pass_ms,
        "state": "committed",
        "committed": 50,
        "log_start": 10,
        "log_end": 59,
        "lag": behind,
        "lag_bytes": 900,
        "age_s": 5,
        "commit_rate": 0.5,
        "lag_growth": 0.25,
        **changes,
    }


WITHOUT = dict.fromkeys(("transactional_id", "producer_id", "open_since"))
"""Of a row of group-states that is about no transaction."""


COORDINATED = {"transactional_id": "payments-1", "start_ms": START_MS, "timeout_ms": 60_000}


def changed(group: str, pass_ms: int, state: str, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "backlog",
        "group": group,
        "topic": "orders",
        "partition": 1,
        "pass_ms": START_MS + pass_ms,
        "ts_wall_ms": START_MS + pass_ms,
        "state": state,
        "committed": 50,
        "log_start": 10,
        "log_end": 59,
        **changes,
    }


def lost(group: str, at_ms: int, begin: int, end: int, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "backlog",
        "group": group,
        "topic": "orders",
        "partition": 1,
        "ts_wall_ms": START_MS + at_ms,
        "committed": 1,
        "from_offset": begin,
        "to_offset": end,
        "offsets": end - begin,
        "first_sight": False,
        **changes,
    }


def cache(minute: int, policy: str, hits: int, misses: int, **changes: Any) -> Row:
    return {
        **COMMON,
        "job": "entry_cache",
        "policy": policy,
        "max_bytes": 100,
        "topic": None,
        "switches": [("grace_ms", "0"), ("policy", policy)],
        "window_start_ms": START_MS + minute * MINUTE,
        "window_ms": MINUTE,
        "hits": hits,
        "misses": misses,
        "hit_bytes": 30 * hits,
        "miss_bytes": 10 * misses,
        "evicted_wanted": 1,
        "max_used_bytes": 90 + minute,
        **changes,
    }


def baked(policy: str, max_bytes: int | None, hits: int, storage: Any, **changes: Any) -> Row:
    """All brokers together, a hundred reads, the first of two comparisons."""
    return {
        "compared_ms": START_MS,
        "trace": "t",
        "cluster": None,
        "broker": None,
        "policy": policy,
        "max_bytes": max_bytes,
        "settings": [],
        "hits": hits,
        "misses": 100 - hits,
        "hit_ratio": hits / 100,
        "storage_bytes": storage,
        "wanted_bytes": 5,
        "max_used_bytes": 9,
        "evicted_wanted": 1,
        "passes": 2,
        "work": 3,
        **changes,
    }


EAST: Row = {"cluster": "east"}
NEWER = {"compared_ms": START_MS + MINUTE}
ON_B = {**NEWER, "cluster": "east", "broker": "b"}
BAKED = {
    "trace": "t",
    "settings": {},
    "wanted_bytes": 5,
    "max_used_bytes": 9,
    "evicted_wanted": 1,
    "passes": 2,
    "work": 3,
}
THROTTLED = {
    "topic_throttle_stats": [
        stats(0, TOPIC, culprit_times=2, culprit_ns=3 * NS, limited_times=2),
        stats(1, TOPIC, culprit_ns=NS // 2),
        stats(0, OTHER, collateral_times=2, collateral_ns=3 * NS, limited_times=2),
        stats(1, OTHER, culprit_times=1, culprit_ns=NS, limited_times=1),
        stats(0, THIRD),
        stats(1, THIRD, shared_times=3, shared_ns=2 * NS, limited_times=3),
        stats(1, "orders", culprit_times=1, culprit_ns=NS // 4, limited_times=1),
    ],
}
COVERED = {
    "coverage_counts": [
        {
            **EAST,
            "broker": "b1",
            "minute_ms": START_MS + 60_000 * (n // 2),
            "received": 5,
            "quarantined": n,
            "unsized": n or None,
        }
        for n in range(3)
    ],
    "coverage_gaps": [
        {
            **EAST,
            "broker": "b1",
            "source_feed": "f",
            "seq": 1,
            "ts_wall_ms": START_MS + 60_000,
            "dropped": None,
            "job": job,
            "blind_until_ms": START_MS + 70_000,
        }
        for job in ("chunks", "backlog")
    ],
}
_COVERED = {**EAST, "broker": "b1", "repeated": 0, "late": 0, "failed_polls": 0}
_SILENT = {"worst_lag": None, "of_group": None, "lost": None, "breached_quotas": 0}


def polled(cluster: str, at_ms: int, **changes: Any) -> Row:
    """A poll that was answered."""
    return {
        "cluster": cluster,
        "source_feed": "kafka_groups",
        "seq": at_ms,
        "ts_wall_ms": START_MS + at_ms,
        "gap_from_wall_ms": START_MS + at_ms - 1000,
        "dropped": 0,
        "problem": None,
        **changes,
    }


_COMPARED = {
    **EAST,
    "broker": "b1",
    "topic": TOPIC,
    "partition": None,
    "group": None,
    "user": None,
    "client": None,
    "broker_value": 9,
    "weir_value": 9,
    "difference": 0,
    "bound": 1,
    "reason": None,
}


def compared(minute: int, measure: str, **changes: Any) -> Row:
    return {
        **_COMPARED,
        "compared_ms": START_MS,
        "measure": measure,
        "window_ms": 60_000,
        "window_start_ms": START_MS + 60_000 * minute,
        **changes,
    }


_PREDICTED = {
    **EAST,
    "broker": None,
    "kind": "backlog_size",
    "entity": TOPIC,
    "breached": False,
    "predicted": 1.5,
    "mean_error": 0.25,
    "tests": 4,
    "p50": 0.5,
    "p95": 0.625,
    "highest": 0.75,
    "limit": 100.0,
    "reason": None,
}


def predicted(minute: int, **changes: Any) -> Row:
    """A forecast of the minute after, where real ones are of the days after."""
    at_ms = START_MS + minute * MINUTE
    return {
        **_PREDICTED,
        "made_ms": at_ms + 1,
        "known_ms": at_ms,
        "for_ms": at_ms + MINUTE,
        "breach_ms": at_ms,
        "used": 75.0,
        **changes,
    }


UNPREDICTED = {
    "for_ms": None,
    "predicted": None,
    "breach_ms": None,
    "mean_error": None,
    "tests": None,
    "reason": "TOO_LITTLE_HISTORY",
}
PREDICTED = {
    "forecasts": [
        predicted(0, mean_error=0.5),
        predicted(1, predicted=1.25, used=50.0),
        predicted(1, entity="flat", breach_ms=None, predicted=0.5, used=50.0),
        predicted(1, entity=OTHER, breached=True, **UNPREDICTED),
        predicted(2, used=125.0),
    ]
}
COMPARED = {
    "reconciliation": [
        compared(0, "bytes_in", broker_value=99),
        compared(1, "bytes_in"),
        compared(1, "messages_in", broker_value=11, difference=2),
        compared(1, "cache_hits", topic=None, broker_value=5, difference=-4, reason="RATE_ONLY"),
        compared(1, "cache_misses", topic=None, broker_value=8, difference=-1),
        *(compared(1, "group_lag", topic="orders", partition=0, group=name) for name in "ab"),
    ]
}
SHADOWED = {
    "topic_throttle_stats": [
        *(stats(n, OTHER) for n in range(3)),
        stats(0, TOPIC, culprit_times=1, culprit_ns=NS, limited_times=1),
        stats(2, TOPIC, culprit_times=9, culprit_ns=9 * NS, limited_times=9),
    ],
    "shadow_topic_throttle_stats": [
        {**row, "policy": "next"}
        for row in (
            stats(0, OTHER),
            stats(0, TOPIC, culprit_times=3, culprit_ns=2 * NS, limited_times=3),
            stats(1, OTHER, collateral_times=1, collateral_ns=NS, limited_times=1),
        )
    ],
    "producer_id_decisions": [new_id(0, "u", 1, "counted")],
    "shadow_producer_id_decisions": [{**new_id(0, "u", 1, "rejected"), "policy": "next"}],
    "client_quota_stats": [client_quota_rows.stats(0, throttled=3)],
    "shadow_client_quota_stats": [
        {**client_quota_rows.stats(0, throttled=5), "policy": "next"},
    ],
}
_EFFECT: Row = {**EAST, "policy": "next", "live": 0.0}
_NOBODY: Row = {"culprit_team": None, "culprit_contact": None, "victim_team": None}
_ALL_OF_ITS_PAUSES: Row = {
    "share_of_victims_pauses": 1.0,
    "reason": "TopicProduceQuotaExceeded",
    "victim_use": None,
    "victim_below_half": None,
    **_NOBODY,
}
_REACHED: Row = {
    **EAST,
    "broker": None,
    "kind": "backlog_size",
    "entity": TOPIC,
    "partition": None,
    "group_or_subscription": None,
    "limit": 100.0,
    "highest": 0.75,
    "breached": False,
    "predicted": None,
    "mean_error": None,
}
_PREDICTION: Row = {"mean_error": 0.25}
_GROWING: Row = {**_REACHED, "known": NEXT}
CASES = {
    **client_quota_rows.CASES,
    "blame, by pair": (
        {"throttle_events": PAUSES, "topic_throttle_stats": STATS},
        {"by": "pair"},
        [{**row, **_NOBODY} for row in BLAMED],
    ),
    "blame, by principal-pair": (
        {
            "throttle_events": blame_principals.pause(200, 1200, "c2"),
            "events": [blame_principals.ALICE, blame_principals.BOB, *blame_principals.USED],
        },
        {"by": "principal-pair", "since": START, "until": NEXT},
        [blame_principals.PAIR],
    ),
    "showback": (
        {"topic_throttle_stats": USED["topic_throttle_stats"][2:3]},
        {},
        [{**NONE, "name": "corp", "messages": 3, "bytes": 30}],
    ),
    "utilisation": (
        {
            "backlog_checks": [
                check(TOPIC, minute * MINUTE, limit_bytes=160 if minute < 2 else 320)
                for minute in range(4)
            ]
        },
        {},
        [
            {
                **EAST,
                "broker": "b1",
                "kind": "backlog_size",
                "entity": TOPIC,
                "p50": 0.375,
                "p95": 0.5,
                "highest": 0.5,
                "newest_limit": 320.0,
                "windows": 4,
                "first_window": START,
                "last_window": "2023-11-14T22:17:00Z",
            },
        ],
    ),
    "forecasts": (
        PREDICTED,
        {"until": AFTER},
        [
            {**_REACHED, "entity": OTHER, "breach": NEXT, "breached": True, "known": NEXT},
            {**_REACHED, **_PREDICTION, "predicted": 1.25, "breach": NEXT, "known": NEXT},
        ],
    ),
    # 90 s are (170 - 80 bytes) / growth, 60 s are 65 s - 5 s; of what is breached nothing is predicted.
    "forecasts, at the present growth": (
        {
            "backlog_subscriptions": [
                cursor("a", 0, 1.0),
                cursor("a", 60_000, 90.0, age_s=10),
                cursor("b", 60_000, 0.0, age_s=60),
                cursor("c", 60_000, None),
                cursor("deleted", 60_000 - 1440 * MINUTE, 1.0),
            ],
            "backlog_checks": [check(TOPIC, 0), check(TOPIC, 60_000, limit_bytes=170, limit_s=50)],
            "group_lag": [
                lag(
                    "g",
                    60_000,
                    9,
                    time_to_loss_s=60.0,
                    limit_s=65,
                    limit_bytes=10_000,
                    answered_ms=START_MS + 40_000,
                ),
                lag("full", 60_000, 9, time_to_loss_s=0.0, limit_bytes=600),
                lag("old", 0, 9, time_to_loss_s=1.0),
                lag("old", 60_000, None, state="gone"),
                lag("never", 60_000, 9, time_to_loss_s=1e9),
            ],
            "forecasts": [predicted(1, kind="backlog_age", limit=50.0, breached=True)],
        },
        {},
        [
            {
                **_GROWING,
                "breach": NEXT,
                "breached": True,
                "kind": "backlog_age",
                "group_or_subscription": "b",
                "limit": 50.0,
                "highest": 1.2,
            },
            {
                **_GROWING,
                "breach": NEXT,
                "breached": True,
                "kind": "retention_size",
                "entity": "orders",
                "partition": 1,
                "group_or_subscription": "full",
                "limit": 600.0,
                "highest": 1.5,
            },
            {
                **_GROWING,
                "breach": "2023-11-14T22:16:00Z",
                "kind": "retention_age",
                "entity": "orders",
                "partition": 1,
                "group_or_subscription": "g",
                "limit": 65.0,
                "highest": 5 / 65,
                "known": "2023-11-14T22:14:40Z",
            },
            {
                **_GROWING,
                "breach": "2023-11-14T22:16:30Z",
                "kind": "backlog_size",
                "group_or_subscription": "a",
                "limit": 170.0,
                "highest": 80 / 170,
            },
        ],
    ),
    # 1.5 and 1.25 were predicted of 50 and of 125 used, of a limit of 100.
    "forecast-outcomes": (
        PREDICTED,
        {},
        [
            {
                **EAST,
                "broker": None,
                "kind": "backlog_size",
                "entity": TOPIC,
                "forecasts": 2,
                "predicted": 1.25,
                "came": 1.25,
                "by": AFTER,
                "off": 0.5,
                "mean_error": 0.375,
            },
        ],
    ),
    "reconciliation": (
        COMPARED,
        {},
        [
            {
                **_COMPARED,
                "measure": "messages_in",
                "broker_value": 11,
                "difference": 2,
                "since": NEXT,
                "until": AFTER,
            },
            {
                **_COMPARED,
                "measure": "cache_misses",
                "topic": None,
                "broker_value": 8,
                "difference": -1,
                "since": NEXT,
                "until": AFTER,
            },
            *(
                {
                    **_COMPARED,
                    "measure": "group_lag",
                    "topic": "orders",
                    "partition": 0,
                    "group": name,
                    "since": NEXT,
                    "until": AFTER,
                }
                for name in "ab"
            ),
            {**_COMPARED, "measure": "bytes_in", "since": NEXT, "until": AFTER},
            {
                **_COMPARED,
                "measure": "cache_hits",
                "topic": None,
                "broker_value": 5,
                "difference": -4,
                "reason": "RATE_ONLY",
                "since": NEXT,
                "until": AFTER,
            },
        ],
    ),
    "shadow": (
        SHADOWED,
        {"rows": "5"},
        [
            {
                **_EFFECT,
                "name": TOPIC,
                "measure": "paused_s",
                "live": 1.0,
                "shadow": 2.0,
                "difference": 1.0,
            },
            {
                **_EFFECT,
                "name": TOPIC,
                "measure": "pauses",
                "live": 1.0,
                "shadow": 3.0,
                "difference": 2.0,
            },
            {**_EFFECT, "name": "u", "measure": "rejected_ids", "shadow": 1.0, "difference": 1.0},
            {
                **_EFFECT,
                "name": "etl",
                "measure": "throttled_requests",
                "live": 3.0,
                "shadow": 5.0,
                "difference": 2.0,
            },
            {**_EFFECT, "name": OTHER, "measure": "victim_s", "shadow": 1.0, "difference": 1.0},
        ],
    ),
    "shadow, by tenant, then": (
        SHADOWED,
        {"by": "tenant", "since": NEXT, "until": AFTER},
        [
            {
                **_EFFECT,
                "name": "acme",
                "measure": "paused_s",
                "live": 1.0,
                "shadow": 2.0,
                "difference": 1.0,
            },
            {
                **_EFFECT,
                "name": "acme",
                "measure": "pauses",
                "live": 1.0,
                "shadow": 3.0,
                "difference": 2.0,
            },
            {
                **_EFFECT,
                "name": "etl",
                "measure": "throttled_requests",
                "live": 3.0,
                "shadow": 5.0,
                "difference": 2.0,
            },
        ],
    ),
    "fleet": (
        {
            "coverage_polls": [
                polled("east", 0),
                polled("east", 60_000, dropped=None, problem="Connection refused"),
                polled("west", 0, dropped=2, problem="partition t/0: timed out"),
                polled("down", 0, dropped=None, problem="Connection refused"),
            ],
            "group_lag": [lag("g", 60_000, 9), lag("h", 60_000, 4)],
            "lost_messages": [lost("g", 0, 1, 5), lost("g", 60_000, 5, 6)],
        },
        {},
        [
            {
                **EAST,
                "worst_lag": 9,
                "of_group": "g on orders",
                "lost": 5,
                "breached_quotas": 0,
                "unanswered_polls": 1,
                "answered": START,
                "last_problem": "Connection refused",
            },
            {
                **_SILENT,
                "cluster": "down",
                "unanswered_polls": 1,
                "answered": None,
                "last_problem": "Connection refused",
            },
            {
                **_SILENT,
                "cluster": "west",
                "unanswered_polls": 0,
                "answered": START,
                "last_problem": "partition t/0: timed out",
            },
        ],
    ),
    "coverage": (
        COVERED,
        {},
        [
            {
                **_COVERED,
                "minute": NEXT,
                "received": 5,
                "quarantined": 2,
                "gaps": 1,
                "dropped": None,
                "blind": "backlog, chunks",
                "unsized": 2,
            },
            {
                **_COVERED,
                "minute": START,
                "received": 10,
                "quarantined": 1,
                "gaps": 0,
                "dropped": 0,
                "blind": None,
                "unsized": 1,
            },
        ],
    ),
    "blame": (
        THROTTLED,
        {},
        [
            {
                **EAST,
                "topic": TOPIC,
                "broke_its_limit": 2,
                "paused_s": 3.5,
                "first_window": START,
                "last_window": NEXT,
            },
            {
                **EAST,
                "topic": OTHER,
                "broke_its_limit": 1,
                "paused_s": 1.0,
                "first_window": NEXT,
                "last_window": NEXT,
            },
            {
                **EAST,
                "topic": "orders",
                "broke_its_limit": 1,
                "paused_s": 0.25,
                "first_window": NEXT,
                "last_window": NEXT,
            },
        ],
    ),
    "blame, some of them": (
        THROTTLED,
        {"by": "culprit", "until": NEXT, "since": str(START_MS), "rows": "1"},
        [
            {
                **EAST,
                "topic": TOPIC,
                "broke_its_limit": 2,
                "paused_s": 3.0,
                "first_window": START,
                "last_window": START,
            },
        ],
    ),
    "blame, by victim": (
        THROTTLED,
        {"by": "victim"},
        [
            {
                **EAST,
                "topic": OTHER,
                "paused_by_others": 2,
                "paused_s": 3.0,
                "broke_its_limit": 0,
                "first_window": START,
                "last_window": START,
            },
        ],
    ),
    "blame, by namespace": (
        THROTTLED,
        {"by": "namespace"},
        [
            {
                **EAST,
                "name": "acme/orders",
                "topics": 2,
                "pauses": 5,
                "own_limit_s": 4.5,
                "shared_limits_s": 0.0,
                "limits_of_others_s": 3.0,
            },
            {
                **EAST,
                "name": "acme/bills",
                "topics": 1,
                "pauses": 3,
                "own_limit_s": 0.0,
                "shared_limits_s": 2.0,
                "limits_of_others_s": 0.0,
            },
            {
                **EAST,
                "name": None,
                "topics": 1,
                "pauses": 1,
                "own_limit_s": 0.25,
                "shared_limits_s": 0.0,
                "limits_of_others_s": 0.0,
            },
        ],
    ),
    "blame, by tenant": (
        {
            "topic_throttle_stats": [
                stats(0, TOPIC, culprit_ns=NS),
                stats(0, THIRD, culprit_ns=NS),
                stats(0, "persistent://old/east/ns/t", collateral_ns=NS),
            ]
        },
        {"by": "tenant"},
        [
            {
                **EAST,
                "name": "acme",
                "topics": 2,
                "pauses": 0,
                "own_limit_s": 2.0,
                "shared_limits_s": 0.0,
                "limits_of_others_s": 0.0,
            },
            {
                **EAST,
                "name": "old",
                "topics": 1,
                "pauses": 0,
                "own_limit_s": 0.0,
                "shared_limits_s": 0.0,
                "limits_of_others_s": 1.0,
            },
        ],
    ),
    # A pause of a topic's limit and a broker's, of which only the first has a culprit, and one that has
    # not ended.
    "blame, by pair of what is not so simple": (
        {
            "throttle_events": [
                event(0, "mark", collateral_topics=[OTHER, THIRD]),
                event(
                    500,
                    "mark",
                    transition="TypeStateChanged",
                    topic=OTHER,
                    culprit_topic=OTHER,
                    limiter="broker",
                    collateral_topics=[TOPIC, THIRD],
                ),
                event(600, "mark", transition="Dropped", culprit_topic=THIRD),
                event(1000, "unmark"),
                event(1000, "mark", row_no=1, collateral_topics=[OTHER]),
                event(1500, "unmark", row_no=1),
                event(9000, "mark", cnx_id="c2", collateral_topics=[THIRD]),
            ]
        },
        {"by": "pair"},
        [
            {
                **EAST,
                "culprit": TOPIC,
                "victim": OTHER,
                "pauses": 2,
                "paused_s": 1.5,
                **_ALL_OF_ITS_PAUSES,
                "first_pause": START,
                "last_pause": "2023-11-14T22:14:01Z",
            },
            {
                **EAST,
                "culprit": TOPIC,
                "victim": THIRD,
                "pauses": 2,
                "paused_s": 1.0,
                **_ALL_OF_ITS_PAUSES,
                "first_pause": START,
                "last_pause": "2023-11-14T22:14:09Z",
            },
        ],
    ),
    # Of each limiter a pause, the broker's twice on two connections; what was used counts in the
    # windows of those pauses, among those that share the limit.
    "shared-limits": (
        {
            "throttle_events": [
                event(0, "mark", collateral_topics=[OTHER]),
                event(100, "unmark"),
                event(1000, "mark", limiter="broker", collateral_topics=[OTHER]),
                event(3000, "unmark", limiter="broker"),
                event(
                    1000,
                    "mark",
                    limiter="broker",
                    cnx_id="c2",
                    topic=THIRD,
                    culprit_topic=THIRD,
                    collateral_topics=[],
                    row_no=1,
                ),
                event(2000, "unmark", limiter="broker", cnx_id="c2"),
                event(
                    61_000,
                    "mark",
                    limiter="resource_group",
                    cnx_id="c3",
                    balance_msgs=None,
                    balance_bytes=-5,
                    topic=OTHER,
                    culprit_topic=OTHER,
                    collateral_topics=[THIRD],
                ),
                event(61_500, "unmark", limiter="resource_group", cnx_id="c3"),
                event(
                    62_000,
                    "mark",
                    limiter="connection",
                    cnx_id="c4",
                    topic=THIRD,
                    balance_msgs=None,
                    culprit_topic=THIRD,
                    collateral_topics=[],
                ),
                event(62_250, "unmark", limiter="connection", cnx_id="c4"),
                # Of a thread nobody used a byte; its connection is still paused.
                event(
                    120_000,
                    "mark",
                    limiter="io_thread",
                    cnx_id="c5",
                    topic=None,
                    balance_msgs=None,
                    collateral_topics=[OTHER],
                ),
            ],
            "topic_throttle_stats": [
                stats(0, TOPIC, messages=500),
                stats(0, OTHER, messages=300),
                stats(0, THIRD, messages=200),
                stats(1, TOPIC, bytes=10**9, messages=10**9),
                # THIRD is in the group and has never triggered its limit.
                stats(1, OTHER, bytes=70, messages=1, resource_group="g"),
                stats(1, THIRD, bytes=210, messages=9, resource_group="g"),
                stats(1, "elsewhere", bytes=10**6, resource_group="h"),
            ],
        },
        {},
        [
            {
                **EAST,
                "broker": "b1",
                "limiter": "broker",
                "limiter_name": "b1",
                "pauses": 2,
                "paused_s": 3.0,
                "topics": 3,
                "most_used_by": TOPIC,
                "share": 0.5,
                "used": "messages",
                "first_pause": "2023-11-14T22:14:01Z",
                "last_pause": "2023-11-14T22:14:01Z",
            },
            {
                **EAST,
                "broker": "b1",
                "limiter": "resource_group",
                "limiter_name": "g",
                "pauses": 1,
                "paused_s": 0.5,
                "topics": 2,
                "most_used_by": THIRD,
                "share": 0.75,
                "used": "bytes",
                "first_pause": "2023-11-14T22:15:01Z",
                "last_pause": "2023-11-14T22:15:01Z",
            },
            {
                **EAST,
                "broker": "b1",
                "limiter": "connection",
                "limiter_name": "c4",
                "pauses": 1,
                "paused_s": 0.25,
                "topics": 1,
                "most_used_by": THIRD,
                "share": 1.0,
                "used": "messages",
                "first_pause": "2023-11-14T22:15:02Z",
                "last_pause": "2023-11-14T22:15:02Z",
            },
            {
                **EAST,
                "broker": "b1",
                "limiter": "io_thread",
                "limiter_name": "0",
                "pauses": 1,
                "paused_s": None,
                "topics": 1,
                "most_used_by": None,
                "share": None,
                "used": "bytes",
                "first_pause": "2023-11-14T22:16:00Z",
                "last_pause": "2023-11-14T22:16:00Z",
            },
        ],
    ),
    "near-limit": (
        {
            "limiter_stats": [
                limiter(
                    0,
                    TOPIC,
                    0.7,
                    throttles=2,
                    limit_msgs=100.0,
                    min_balance_msgs=-20,
                    limit_bytes=1000.0,
                    min_balance_bytes=900,
                ),
                limiter(1, TOPIC, 0.2),
                limiter(1, OTHER, 0.5),
                limiter(1, THIRD, None),
            ]
        },
        {},
        [
            {
                **EAST,
                "broker": "b1",
                "limiter": "topic",
                "limiter_name": TOPIC,
                "highest_utilisation": 1.2,
                "in_window": START,
                "newest_utilisation": 0.2,
                "throttles": 2,
            },
            {
                **EAST,
                "broker": "b1",
                "limiter": "topic",
                "limiter_name": OTHER,
                "highest_utilisation": 0.5,
                "in_window": NEXT,
                "newest_utilisation": 0.5,
                "throttles": 0,
            },
        ],
    ),
    "throttle-commands": (
        {
            "producer_throttle": [
                command(0, "p", 1000),
                command(1000, "p", 500, reason="BrokerProduceQuotaExceeded"),
                command(0, None, 0),
                command(
                    2000, "p", None, reason=None, request_id=None, exception="TimeoutException"
                ),
                command(0, "old", None, request_id=None, rule="client_unsupported"),
            ]
        },
        {},
        [
            {
                **EAST,
                "topic": TOPIC,
                "producer": "p",
                "commands": 2,
                "unsupported": 0,
                "announced_s": 1.5,
                "timed_out_sends": 1,
                "reasons": ["BrokerProduceQuotaExceeded", "TopicProduceQuotaExceeded"],
                "newest": "2023-11-14T22:14:02Z",
            },
            {
                **EAST,
                "topic": TOPIC,
                "producer": "c1/1",
                "commands": 1,
                "unsupported": 0,
                "announced_s": 0.0,
                "timed_out_sends": 0,
                "reasons": ["TopicProduceQuotaExceeded"],
                "newest": START,
            },
            {
                **EAST,
                "topic": TOPIC,
                "producer": "old",
                "commands": 0,
                "unsupported": 1,
                "announced_s": 0.0,
                "timed_out_sends": 0,
                "reasons": ["TopicProduceQuotaExceeded"],
                "newest": START,
            },
        ],
    ),
    "breached-quotas": (
        {
            "limiter_stats": [
                limiter(0, TOPIC, 0.5, messages=3000, limit_msgs=100.0, min_balance_msgs=0),
                limiter(1, TOPIC, 2.0, messages=12_000, limit_msgs=100.0, min_balance_msgs=-9),
                limiter(1, OTHER, 0.5, messages=3000, limit_msgs=100.0, min_balance_msgs=1),
            ]
        },
        {},
        [
            {
                **EAST,
                "broker": "b1",
                "kind": "topic_msgs",
                "entity": TOPIC,
                "breaches": 2,
                "highest_ratio": 1.09,
                "newest_limit": 100.0,
                "newest_used": 200.0,
                "first_window": START,
                "last_window": NEXT,
            },
        ],
    ),
    "lost-messages": (
        {
            "chunk_events": [
                fate(0, "EXPIRED", "a"),
                fate(5, "EXPIRED", "b"),
                fate(9, "EXPIRED", "b"),
                fate(7, "GAP", "c"),
                fate(8, "DUPLICATE", "d"),
            ],
            "chunk_messages": [fate(99, None, "c") | {"outcome": None}],
        },
        {},
        [
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "s",
                "outcome": "EXPIRED",
                "lost": 2,
                "arrived_after_all": 0,
                "newest_lost": "b",
                "newest": "2023-11-14T22:14:00.009Z",
            },
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "s",
                "outcome": "GAP",
                "lost": 0,
                "arrived_after_all": 1,
                "newest_lost": None,
                "newest": "2023-11-14T22:14:00.007Z",
            },
        ],
    ),
    # Of another topic the newest window has none.
    "incomplete-messages": (
        {
            "incomplete_messages": [
                waiting(0, "a"),
                waiting(1, "b", expires_ms=START_MS + 2 * MINUTE),
                waiting(0, "c", topic=OTHER),
            ],
            "chunk_topic_stats": [
                {
                    **COMMON,
                    "topic": OTHER,
                    "window_start_ms": START_MS + MINUTE,
                    "window_ms": MINUTE,
                }
            ],
        },
        {},
        [
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "s",
                "consumer": "k",
                "state": "assembling",
                "uuid": "b",
                "producer_name": "p",
                "next_chunk_id": 2,
                "num_chunks": 3,
                "first_chunk": START,
                "age_s": 90.0,
                "buffered_bytes": 10,
                "declared_bytes": 15,
                "expires": "2023-11-14T22:16:00Z",
            },
        ],
    ),
    # Of another topic the stall is over.
    "stalled-subscriptions": (
        {
            "incomplete_messages": [
                held(0, "a", "5:2", [0]),
                held(1, "a", "5:2", [0, 1, 2]),
                held(1, "b", "5:3", []),
                held(1, "a", "5:2", [0], subscription="t"),
                held(0, "c", "5:2", [0], topic=OTHER),
                waiting(1, "d"),
            ],
            "chunk_topic_stats": [
                {
                    **COMMON,
                    "topic": OTHER,
                    "window_start_ms": START_MS + MINUTE,
                    "window_ms": MINUTE,
                }
            ],
        },
        {},
        [
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "s",
                "uuid": "a",
                "since": START,
                "stalled": "2 large messages stalled behind 5:2, whose chunks 0, 1 and 2 are gone",
            },
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "t",
                "uuid": "a",
                "since": START,
                "stalled": "1 large message stalled behind 5:2, whose chunk 0 is gone",
            },
        ],
    ),
    # Acknowledged as a whole, up to the last chunk, not at all, in part, in part just now, and in part
    # at last.
    "partial-acks": (
        {
            "chunk_messages": [
                assembled("a", 1),
                assembled("b", 11, subscription="t"),
                assembled("c", 21),
                assembled("d", 31),
                assembled("e", 41, topic=f"{TOPIC}-partition-3"),
                assembled("f", 51, subscription="u"),
                # twice, and nothing of its topic is acknowledged after a part of it
                *(assembled("g", 61, topic=f"{TOPIC}x", complete_ms=START_MS + i) for i in (0, 1)),
            ],
            "events": [
                *(acked(0, 1, n) for n in (1, 2, 3)),
                acked(0, 1, 99, subscription="t", ack_cumulative=True),
                acked(0, 1, 52, subscription="u", ack_cumulative=True),
                acked(0, 1, 32),
                acked(10, 1, 61, topic=f"{TOPIC}x"),
                acked(70_000, 1, 42, topic=TOPIC.split("://")[1], partition=3),
                acked(70_000, 1, 9),
            ],
        },
        {},
        [
            {
                **EAST,
                "topic": f"{TOPIC}x",
                "subscription": "s",
                "consumer": "k",
                "uuid": "g",
                "chunks": 3,
                "acknowledged": 1,
                "first_unacknowledged": "1:62",
                "newest_ack": "2023-11-14T22:14:00.010Z",
            },
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "s",
                "consumer": "k",
                "uuid": "d",
                "chunks": 3,
                "acknowledged": 1,
                "first_unacknowledged": "1:31",
                "newest_ack": START,
            },
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "u",
                "consumer": "k",
                "uuid": "f",
                "chunks": 3,
                "acknowledged": 2,
                "first_unacknowledged": "1:53",
                "newest_ack": START,
            },
        ],
    ),
    "new-producer-ids": (
        {
            "producer_id_decisions": [
                new_id(0, "etl", 1, "counted"),
                new_id(1000, "etl", 2, "throttled", client_id="y"),
                new_id(2000, "etl", 2, "rejected"),
                new_id(0, "web", 3, "counted", bound=2.0**63, bound_source="none"),
            ]
        },
        {},
        [
            {
                **EAST,
                "user": "etl",
                "distinct_ids": 2,
                "counted": 1,
                "throttled": 1,
                "rejected": 1,
                "clients": 2,
                "bound": 5.0,
                "first_id": START,
                "last_id": "2023-11-14T22:14:02Z",
            },
            {
                **EAST,
                "user": "web",
                "distinct_ids": 1,
                "counted": 1,
                "throttled": 0,
                "rejected": 0,
                "clients": 1,
                "bound": None,
                "first_id": START,
                "last_id": START,
            },
        ],
    ),
    "open-transactions": (
        {
            "open_transactions": [
                opened(0, "Ongoing", 1, **COORDINATED),
                opened(0, "Ongoing", 2, **COORDINATED, topic="bills"),
                opened(0, "uncoordinated", 3, producer_id=8),
                opened(60_000, "hanging", 4, producer_id=8, last_ms=START_MS),
                opened(0, "Ongoing", 5, producer_id=9),
                opened(60_000, "ended", 6, producer_id=9),
            ]
        },
        {},
        [
            {
                **EAST,
                "user": "pay",
                "transactional_id": None,
                "producer_id": 8,
                "state": "hanging",
                "topics": "orders",
                "partitions": 1,
                "open_since": START,
                "timeout_s": None,
                "last_batch": START,
                "polled": NEXT,
            },
            {
                **EAST,
                "user": "pay",
                "transactional_id": "payments-1",
                "producer_id": 7,
                "state": "Ongoing",
                "topics": "bills, orders",
                "partitions": 2,
                "open_since": START,
                "timeout_s": 60.0,
                "last_batch": None,
                "polled": START,
            },
        ],
    ),
    "live-producer-ids": (
        {
            "producer_id_live": [
                live(0, "orders", "etl", 2, 3),
                live(0, "orders", "web", 9, 9),
                live(60_000, "orders", "etl", 5, 7),
                live(60_000, "orders", "web", 0, 0),
                live(0, "bills", "unknown", 8, 8),
            ]
        },
        {},
        [
            {
                **EAST,
                "broker": "1",
                "topic": "bills",
                "user": "unknown",
                "live_ids": 8,
                "states": 8,
                "heap_bytes": 3200,
                "polled": START,
            },
            {
                **EAST,
                "broker": "1",
                "topic": "orders",
                "user": "etl",
                "live_ids": 5,
                "states": 7,
                "heap_bytes": 2800,
                "polled": NEXT,
            },
        ],
    ),
    "users-over-bound": (
        {
            "producer_id_decisions": [
                new_id(0, "etl", 1, "counted"),
                new_id(1000, "etl", 2, "rejected", throttle_ms=7),
                new_id(2000, "etl", 2, "rejected", throttle_ms=9, bound=6.0, bound_source="user"),
            ]
        },
        {},
        [
            {
                **EAST,
                "broker": "b1",
                "user": "etl",
                "batches_over": 2,
                "ids_over": 1,
                "bound": 6.0,
                "bound_source": "user",
                "longest_throttle_ms": 9,
                "first_batch": "2023-11-14T22:14:01Z",
                "last_batch": "2023-11-14T22:14:02Z",
            },
        ],
    ),
    "expiring-messages": (
        {
            "backlog_subscriptions": [
                cursor("a", 0, None, time_to_expiry_s=90.0, expired_unread=4),
                cursor(
                    "a",
                    60_000,
                    None,
                    time_to_expiry_s=30.0,
                    expired_unread=3,
                    backlog_entries=7,
                    age_s=3,
                ),
                cursor("b", 60_000, None, time_to_expiry_s=None, expired_unread=0),
            ]
        },
        {},
        [
            {
                **EAST,
                "topic": TOPIC,
                "subscription": "a",
                "time_to_expiry_s": 30.0,
                "expire_from": "2023-11-14T22:15:30Z",
                "expired_unread": 7,
                "backlog_entries": 7,
                "age_s": 3,
                "checked": NEXT,
            },
        ],
    ),
    "backlog-near-quota": (
        {
            "backlog_checks": [
                check(TOPIC, 0, limit_bytes=80, size_usage=1.0, exceeded_size=True),
                check(
                    TOPIC,
                    60_000,
                    limit_bytes=100,
                    size_usage=0.8,
                    age_s=-1,
                    age_state="no_estimate",
                    limit_s=50,
                ),
                check(
                    OTHER,
                    60_000,
                    age_s=45,
                    age_state="known",
                    limit_s=50,
                    time_usage=0.9,
                    oldest_subscription="s",
                ),
                check(THIRD, 60_000),
            ]
        },
        {},
        [
            {
                **EAST,
                "topic": OTHER,
                "usage": 0.9,
                "quota": "time",
                "backlog_bytes": 80,
                "limit_bytes": None,
                "age_s": 45,
                "limit_s": 50,
                "age_state": "known",
                "oldest_subscription": "s",
                "exceeded": False,
                "checked": NEXT,
            },
            {
                **EAST,
                "topic": TOPIC,
                "usage": 0.8,
                "quota": "size",
                "backlog_bytes": 80,
                "limit_bytes": 100,
                "age_s": None,
                "limit_s": 50,
                "age_state": "no_estimate",
                "oldest_subscription": None,
                "exceeded": False,
                "checked": NEXT,
            },
        ],
    ),
    "lag": (
        {
            "group_lag": [
                lag("g", 0, 5),
                lag(
                    "g",
                    60_000,
                    9,
                    lag_records=4,
                    client_id="c-1",
                    client_host="10.0.0.7",
                    group_type="share",
                ),
                lag("gone", 0, 7),
                lag("gone", 60_000, None, state="gone"),
                lag(
                    "h",
                    60_000,
                    -3,
                    state="ahead",
                    lag_records=0,
                    age_s=None,
                    commit_rate=None,
                    lag_growth=None,
                ),
            ],
            "lost_messages": [lost("g", 0, 1, 5), lost("g", 60_000, 5, 6)],
            "group_states": [
                changed("g", 0, "stable", topic=None),
                *(changed("g", at, "rebalancing", topic=None) for at in (9_000, 30_000)),
                changed("g", 60_000, "empty", topic=None),
                changed("g", 90_000, "ahead"),
                changed("h", 0, "stable", topic=None),
                changed("h", 60_000, "known", topic=None),
            ],
        },
        {},
        [
            {
                **EAST,
                "group": "g",
                "topic": "orders",
                "partition": 1,
                "state": "committed",
                "consumers": "empty",
                "rebalances": 2,
                "lag": 9,
                "records": 4,
                "oldest_s": 5,
                "trend": "falls behind",
                "growth": 0.25,
                "commits": 0.5,
                "time_to_loss_s": None,
                "lost": 5,
                "committed": 50,
                "log_start": 10,
                "log_end": 59,
                "checked": NEXT,
                "client_id": "c-1",
                "client_host": "10.0.0.7",
                "answered": NEXT,
                "type": "share",
            },
            {
                **EAST,
                "group": "h",
                "topic": "orders",
                "partition": 1,
                "state": "ahead",
                "consumers": None,
                "rebalances": 0,
                "lag": -3,
                "records": 0,
                "oldest_s": None,
                "trend": None,
                "growth": None,
                "commits": None,
                "time_to_loss_s": None,
                "lost": 0,
                "committed": 50,
                "log_start": 10,
                "log_end": 59,
                "checked": NEXT,
                "client_id": None,
                "client_host": None,
                "answered": NEXT,
                "type": None,
            },
        ],
    ),
    "lag,by group": (
        {
            "group_lag": [
                lag("g", 60_000, 9),
                lag("g", 60_000, 4, partition=2, lag_growth=-1.0),
                lag(
                    "g",
                    60_000,
                    -7,
                    partition=3,
                    state="ahead",
                    age_s=None,
                    commit_rate=None,
                    lag_growth=None,
                ),
            ]
        },
        {"by": "group"},
        [
            {
                **EAST,
                "group": "g",
                "topic": None,
                "partition": None,
                "state": "ahead, committed",
                "consumers": None,
                "rebalances": None,
                "lag": 13,
                "records": None,
                "oldest_s": 5,
                "trend": "catches up, falls behind",
                "growth": -0.75,
                "commits": 1.0,
                "time_to_loss_s": None,
                "lost": 0,
                "committed": None,
                "log_start": None,
                "log_end": None,
                "checked": NEXT,
                "client_id": None,
                "client_host": None,
                "answered": NEXT,
                "type": None,
            },
        ],
    ),
    "group-states": (
        {
            "group_states": [
                changed("reads", 60_000, "stable", topic=None, partition=None),
                changed("a", 0, "no_offset", unread=49),
                changed("b", 0, "ahead"),
                changed("b", 60_000, "committed", before="ahead"),
                changed("c", 60_000, "gone", before="committed"),
                changed(
                    "e",
                    60_000,
                    "open_transaction",
                    transactional_id="payments-1",
                    producer_id=7,
                    transaction_start_ms=START_MS,
                ),
                changed("typo", 0, "unknown_group", topic=None, partition=None),
                changed("d", 0, "unknown_group"),
                changed("d", 60_000, "known"),
            ]
        },
        {},
        [
            {
                **EAST,
                "group": "a",
                "topic": "orders",
                "partition": 1,
                "state": "no_offset",
                "unread": 49,
                "committed": 50,
                "log_start": 10,
                "log_end": 59,
                "since": FIRST,
                "before": None,
                **WITHOUT,
            },
            {
                **EAST,
                "group": "e",
                "topic": "orders",
                "partition": 1,
                "state": "open_transaction",
                "unread": None,
                "committed": 50,
                "log_start": 10,
                "log_end": 59,
                "since": NEXT,
                "before": None,
                "transactional_id": "payments-1",
                "producer_id": 7,
                "open_since": FIRST,
            },
            {
                **EAST,
                "group": "typo",
                "topic": None,
                "partition": None,
                "state": "unknown_group",
                "unread": None,
                "committed": 50,
                "log_start": 10,
                "log_end": 59,
                "since": FIRST,
                "before": None,
                **WITHOUT,
            },
            {
                **EAST,
                "group": "c",
                "topic": "orders",
                "partition": 1,
                "state": "gone",
                "unread": None,
                "committed": 50,
                "log_start": 10,
                "log_end": 59,
                "since": NEXT,
                "before": "committed",
                **WITHOUT,
            },
        ],
    ),
    "group-losses": (
        {
            "lost_messages": [
                lost("g", 0, 1, 5, first_sight=True),
                lost("g", 60_000, 5, 25),
                lost("h", 0, 1, 2),
            ]
        },
        {},
        [
            {
                **EAST,
                "group": "g",
                "topic": "orders",
                "partition": 1,
                "offsets": 24,
                "at_first_sight": 4,
                "from_offset": 1,
                "to_offset": 25,
                "first": FIRST,
                "last": NEXT,
            },
            {
                **EAST,
                "group": "h",
                "topic": "orders",
                "partition": 1,
                "offsets": 1,
                "at_first_sight": 0,
                "from_offset": 1,
                "to_offset": 2,
                "first": FIRST,
                "last": FIRST,
            },
        ],
    ),
    "cache-hit-ratio": (
        {
            "cache_stats": [
                cache(0, "fifo", 1, 1),
                cache(1, "fifo", 2, 0),
                cache(0, "lru", 0, 0),
                cache(0, "fifo", 9, 0, topic=TOPIC),
                cache(1, "lru", 1, 3, switches=[("grace_ms", "7"), ("policy", "lru")]),
            ]
        },
        {},
        [
            {
                **EAST,
                "policy": "fifo",
                "max_bytes": 100,
                "settings": "grace_ms=0",
                "hits": 3,
                "misses": 1,
                "hit_ratio": 0.75,
                "hit_ratio_bytes": 0.9,
                "evicted_wanted": 2,
                "max_used_bytes": 91,
            },
            {
                **EAST,
                "policy": "lru",
                "max_bytes": 100,
                "settings": "grace_ms=7",
                "hits": 1,
                "misses": 3,
                "hit_ratio": 0.25,
                "hit_ratio_bytes": 0.5,
                "evicted_wanted": 1,
                "max_used_bytes": 91,
            },
            {
                **EAST,
                "policy": "lru",
                "max_bytes": 100,
                "settings": "grace_ms=0",
                "hits": 0,
                "misses": 0,
                "hit_ratio": None,
                "hit_ratio_bytes": None,
                "evicted_wanted": 1,
                "max_used_bytes": 90,
            },
        ],
    ),
    "cache-bakeoff": (
        {
            "cache_bakeoff": [
                baked("fifo", 10, 1, 1),
                baked("fifo", 10, 40, 60, **NEWER),
                baked("proportional", 10, 20, 80, **NEWER),
                baked("proportional", 10, 10, 90, **NEWER, settings=[("watermark", "0.5")]),
                baked("fifo", 20, 50, 50, **NEWER),
                baked("fifo", 10, 41, 60, **ON_B),
            ]
        },
        {},
        [
            {
                **BAKED,
                "policy": "fifo",
                "max_bytes": 10,
                "hit_ratio": 0.4,
                "storage_bytes": 60,
                "saved_against_proportional": 0.25,
            },
            {
                **BAKED,
                "policy": "proportional",
                "max_bytes": 10,
                "hit_ratio": 0.2,
                "storage_bytes": 80,
                "saved_against_proportional": 0.0,
            },
            {
                **BAKED,
                "policy": "proportional",
                "settings": {"watermark": "0.5"},
                "max_bytes": 10,
                "hit_ratio": 0.1,
                "storage_bytes": 90,
                "saved_against_proportional": 0.0,
            },
            {
                **BAKED,
                "policy": "fifo",
                "max_bytes": 20,
                "hit_ratio": 0.5,
                "storage_bytes": 50,
                "saved_against_proportional": None,
            },
        ],
    ),
    "cache-size-enough": (
        {
            "cache_bakeoff": [
                baked("fifo", 5, 99, 1, cluster="east", broker="b"),
                *(
                    baked("fifo", size, hits, 100 - hits, **ON_B)
                    for size, hits in ((10, 70), (20, 89), (40, 90))
                ),
                baked("belady", 10, 95, 5, **ON_B),
                baked("fifo", 10, 90, 10, **NEWER),
                baked("lru", 40, 50, 50, **ON_B, hit_ratio=None),
            ]
        },
        {},
        [
            {
                **EAST,
                "trace": "t",
                "broker": "b",
                "policy": "fifo",
                "settings": {},
                "enough_bytes": 20,
                "hit_ratio": 0.89,
                "best_hit_ratio": 0.9,
                "storage_bytes": 11,
            },
        ],
    ),
    "quarantined": (
        {
            "quarantine": [
                broken("BAD_TOPIC", 1),
                broken("BAD_TOPIC", 1, job="chunks"),
                broken("BAD_TOPIC", 2, ts_wall_ms=START_MS + 1000),
                broken("UNPARSEABLE", 3, ts_wall_ms=None, detail=None),
            ]
        },
        {},
        [
            {
                "reason_code": "BAD_TOPIC",
                "records": 2,
                "jobs": ["chunks"],
                "clusters": ["east"],
                "commonest_detail": "topic",
                "newest": "2023-11-14T22:14:01Z",
            },
            {
                "reason_code": "UNPARSEABLE",
                "records": 1,
                "jobs": None,
                "clusters": ["east"],
                "commonest_detail": None,
                "newest": None,
            },
        ],
    ),
}


def put(warehouse: str, tables: dict[str, list[Row]]) -> None:
    Path(warehouse, "_weir").mkdir(parents=True)
    for name, rows in tables.items():
        unknown = {key for row in rows for key in row} - {*TABLES[name].names, "outcome"}
        assert not unknown, unknown
        write(warehouse, name, [{c: row.get(c) for c in TABLES[name].names} for row in rows[::-1]])
