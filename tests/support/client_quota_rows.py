"""Rows of the tables of client quotas for tests: only what a test is about is spelled out."""

from __future__ import annotations

import json
from typing import Any

from tests.support.throttle_rows import COMMON, START_MS

Row = dict[str, Any]
MINUTE = 60_000
_OF_JOB = {**COMMON, "job": "client_quotas", "ts_mono_ns": None, "switches": [("defects", "")]}


def decision(at_ms: int, user: str = "etl", **changes: Any) -> Row:
    """A PRODUCE that a limit of its user throttles for a second."""
    return {
        **_OF_JOB,
        "ts_wall_ms": START_MS + at_ms,
        "rule": "rate_over_bound",
        "api": "PRODUCE",
        "principal": f"User:{user}",
        "client_id": "app",
        "quota_type": "produce",
        "user": user,
        "client": "",
        "bound_level": "user",
        "bound": 100.0,
        "rate": 110.0,
        "window_ms": 10_000,
        "tokens": None,
        "charged": 1100.0,
        "throttle_ms": 1000,
        "observed_throttle_ms": 990,
        "verdict": "throttled",
        "top_topic": "orders",
        **changes,
    }


def stats(minute: int, user: str = "etl", used: float | None = 0.5, **changes: Any) -> Row:
    """A minute of a user's bytes, so much of its limit at most."""
    start = START_MS + minute * MINUTE
    return {
        **_OF_JOB,
        "ts_wall_ms": start + MINUTE,
        "rule": "window",
        "window_start_ms": start,
        "window_ms": MINUTE,
        "quota_type": "produce",
        "user": user,
        "client": "",
        "requests": 10,
        "charged": 3000.0,
        "rate_max": None if used is None else 100 * used,
        "rate_avg": 50.0,
        "bound": 100.0,
        "bound_level": "user",
        "utilisation": used,
        "throttled": 0,
        "throttle_ms": 0,
        "observed_throttled": None,
        "observed_throttle_ms": None,
        "basis": "requests",
        **changes,
    }


def measured(minute: int, user: str = "etl", **changes: Any) -> Row:
    """A minute of a user's rate, as a broker's metrics show it."""
    unknown = dict.fromkeys(("requests", "charged", "throttle_ms", "observed_throttle_ms"))
    return {
        **stats(minute, user, 1.0),
        **unknown,
        "rule": "measured",
        "basis": "metrics",
        **changes,
    }


def limit(
    number: int,
    scope: str,
    name: str,
    client_id: str | None = None,
    cluster: str = "east",
    **limits: float,
) -> Row:
    """A polled limit; a later number replaces it."""
    document: Row = {"scope": scope, "name": name, "limits": limits}
    if client_id is not None:
        document["client_id"] = client_id
    return {
        "event_type": "policy",
        "cluster": cluster,
        "ts_wall_ms": START_MS,
        "seq": number,
        "policy_json": json.dumps(document),
    }


def usage(minute: int, user: str = "etl", bytes_: int = 1000, **changes: Any) -> Row:
    """What a user's client did with a topic in a minute."""
    start = START_MS + minute * MINUTE
    return {
        **_OF_JOB,
        "ts_wall_ms": start + MINUTE,
        "rule": "window",
        "window_start_ms": start,
        "window_ms": MINUTE,
        "principal": f"User:{user}",
        "client_id": "app",
        "api": "PRODUCE",
        "topic": "orders",
        "requests": 10,
        "bytes": bytes_,
        "handler_time_ms": 20.0,
        "throttle_ms": 0,
        **changes,
    }


_ASKED: dict[str, tuple[dict[str, list[Row]], dict[str, Any]]] = {
    "throttled-clients": (
        {
            "client_quota_decisions": [
                decision(0),
                decision(
                    2000, broker="b2", throttle_ms=3000, observed_throttle_ms=None, bound=90.0
                ),
                decision(1500, client_id="batch", charged=5500.0),
                decision(1000, "web", verdict="refused", quota_type="controller_mutation"),
            ],
            "client_quota_stats": [
                stats(0, used=1.2, throttled=3),
                measured(2, throttled=1, broker="b3", bound=80.0),
                measured(3, throttled=0),
                measured(0, "scan", throttled=4),
                measured(2, "scan", throttled=1, broker="b2", bound=90.0),
            ],
        },
        {},
    ),
    "near-client-quota": (
        {
            "client_quota_stats": [
                stats(0, used=0.79),
                stats(0, "web", 0.8),
                stats(1, "web", 0.9),
                stats(1, "web", 0.95, broker="b2", throttled=2, throttle_ms=7),
                stats(1, "web", 0.5, broker="b2", basis="metrics", rate_avg=1e9),
            ]
        },
        {},
    ),
    "unlimited-clients": (
        {
            "client_usage": [
                usage(0, "etl"),
                usage(0, "web", 7),
                usage(1, "web", 8, broker="b2"),
                usage(0, "web", 5, client_id="limited"),
                usage(0, principal=None, client_id="<others>", topic=None),
            ],
            "client_quota_stats": [
                stats(0, "etl"),
                stats(0, "", client="limited"),
                stats(0, "web", None, bound=None, bound_level="none", client="app"),
                measured(0, "web", rate_avg=1e6, bound=None, bound_level="none"),
                measured(0, "scan", rate_avg=20.0, bound=None, bound_level="none"),
                measured(1, "scan", bound=None, bound_level="none", broker="b2"),
                measured(1, "scan", rate_avg=5.0, bound=None, quota_type="request"),
                measured(0, "etl", client="x", bound=None),
                measured(0, "", client="app", rate_avg=1e6, bound=None, bound_level="none"),
                measured(0, "", client="batch", rate_avg=0.1, bound=None, bound_level="none"),
                measured(0, "", client="", rate_avg=9.0, bound=None, quota_type="request"),
            ],
        },
        {},
    ),
    "idle-quotas": (
        {
            "client_quota_stats": [
                stats(0, "etl", 0.001),
                stats(1, "etl", 0.009, bound_level="default_user"),
                stats(0, "web", 0.001),
                stats(1, "web", 0.01),
                stats(0, "none", None, bound=None),
                stats(0, "ann", 0.5, bound_level="default_user_client", client="app"),
            ],
            "events": [
                limit(0, "user", "gone", producer_byte_rate=7),
                limit(1, "user", "gone", producer_byte_rate=8, consumer_byte_rate=8),
                limit(0, "user", "removed", producer_byte_rate=7),
                limit(1, "user", "removed"),
                limit(0, "user", "etl", producer_byte_rate=7),
                limit(0, "client", "<default>", producer_byte_rate=9),
                limit(0, "user", "<default>", "<default>", producer_byte_rate=10),
                limit(0, "user", "<default>", "app", producer_byte_rate=10),
                limit(0, "user", "\\<default>", producer_byte_rate=11),
                limit(0, "user", "web", cluster="west", producer_byte_rate=7),
                limit(0, "topic", "orders", publishRateInMsgs=1),
                {**limit(0, "user", "x"), "policy_json": "{"},
            ],
        },
        {},
    ),
    "topics-of-client": (
        {
            "client_usage": [
                usage(0),
                usage(1, bytes_=500, broker="b2", throttle_ms=4),
                usage(0, topic="audit", bytes_=2000),
                usage(0, topic=None, api="METADATA", bytes_=0),
            ]
        },
        {},
    ),
    "handler-time": (
        {
            "client_usage": [
                usage(0),
                usage(1, topic="audit", requests=30),
                usage(0, "web", api="FETCH", handler_time_ms=120.0),
                usage(0, "web", api="HEARTBEAT", handler_time_ms=0.0),
            ]
        },
        {},
    ),
}
"""Rows and parameters for each question of the job."""
_OF_REQUESTS = (
    *("requests", "refused", "throttle_ms", "longest_ms", "observed_throttle_ms"),
    *("sharers", "largest_sharer", "largest_share", "others_ms", "top_topic"),
)
_ANSWERS: dict[str, list[Row]] = {
    "throttled-clients": [
        {
            "cluster": "east",
            "quota_type": "produce",
            "user": "etl",
            "client": "",
            "bound_level": "user",
            "bound": 90.0,
            "brokers": ["b1", "b2", "b3"],
            "measured_windows": 1,
            "requests": 3,
            "refused": 0,
            "throttle_ms": 5000,
            "longest_ms": 3000,
            "observed_throttle_ms": 1980,
            "sharers": 2,
            "largest_sharer": "batch",
            "largest_share": 5500 / 7700,
            "others_ms": 4000,
            "top_topic": "orders",
            "first": "2023-11-14T22:14:00Z",
            "last": "2023-11-14T22:17:00Z",
        },
        {
            "cluster": "east",
            "quota_type": "controller_mutation",
            "user": "web",
            "client": "",
            "bound_level": "user",
            "bound": 100.0,
            "brokers": ["b1"],
            "measured_windows": None,
            "requests": 1,
            "refused": 1,
            "throttle_ms": 1000,
            "longest_ms": 1000,
            "observed_throttle_ms": 990,
            "sharers": 1,
            "largest_sharer": "app",
            "largest_share": 1.0,
            "others_ms": 0,
            "top_topic": "orders",
            "first": "2023-11-14T22:14:01Z",
            "last": "2023-11-14T22:14:01Z",
        },
        {
            "cluster": "east",
            "quota_type": "produce",
            "user": "scan",
            "client": "",
            "bound_level": "user",
            "bound": 90.0,
            "brokers": ["b1", "b2"],
            "measured_windows": 2,
            **dict.fromkeys(_OF_REQUESTS),
            "largest_sharer": "not known without a request log",
            "first": "2023-11-14T22:14:00Z",
            "last": "2023-11-14T22:17:00Z",
        },
    ],
    "near-client-quota": [
        {
            "cluster": "east",
            "quota_type": "produce",
            "user": "web",
            "client": "",
            "utilisation": 0.95,
            "fullest_broker": "b2",
            "rate_of_all": 100.0,
            "brokers": 2,
            "throttling_brokers": 1,
            "fullest_window": "2023-11-14T22:15:00Z",
        }
    ],
    "unlimited-clients": [
        {
            "cluster": "east",
            "principal": "User:scan",
            "client_id": "",
            "requests": None,
            "bytes": 4200,
            "handler_time_ms": 3000.0,
            "brokers": 2,
            "newest": "2023-11-14T22:15:00Z",
        },
        {
            "cluster": "east",
            "principal": "User:web",
            "client_id": "app",
            "requests": 20,
            "bytes": 15,
            "handler_time_ms": 40.0,
            "brokers": 2,
            "newest": "2023-11-14T22:15:00Z",
        },
        {
            "cluster": "east",
            "principal": "",
            "client_id": "batch",
            "requests": None,
            "bytes": 6,
            "handler_time_ms": None,
            "brokers": 1,
            "newest": "2023-11-14T22:14:00Z",
        },
    ],
    "idle-quotas": [
        *(
            {
                "cluster": "east",
                "quota_type": "produce",
                "user": user,
                "client": client,
                "bound": bound,
                "bound_level": level,
                "rate_max": None,
                "utilisation": 0.0,
                "newest": None,
            }
            for user, client, bound, level in (
                ("", "<default>", 9.0, "default_client"),
                ("<default>", "<default>", 10.0, "default_user_default_client"),
                ("\\<default>", "", 11.0, "user"),
                ("gone", "", 8.0, "user"),
            )
        ),
        {
            "cluster": "east",
            "quota_type": "produce",
            "user": "etl",
            "client": "",
            "bound": 100.0,
            "bound_level": "default_user",
            "rate_max": 0.8999999999999999,
            "utilisation": 0.009,
            "newest": "2023-11-14T22:15:00Z",
        },
    ],
    "topics-of-client": [
        {
            "cluster": "east",
            "principal": "User:etl",
            "client_id": "app",
            "topic": "audit",
            "api": "PRODUCE",
            "bytes": 2000,
            "requests": 10,
            "throttle_ms": 0,
            "brokers": 1,
        },
        {
            "cluster": "east",
            "principal": "User:etl",
            "client_id": "app",
            "topic": "orders",
            "api": "PRODUCE",
            "bytes": 1500,
            "requests": 20,
            "throttle_ms": 4,
            "brokers": 2,
        },
    ],
    "handler-time": [
        {
            "cluster": "east",
            "broker": "b1",
            "principal": "User:web",
            "client_id": "app",
            "api": "FETCH",
            "handler_time_ms": 120.0,
            "requests": 10,
            "ms_per_request": 12.0,
            "share": 0.75,
        },
        {
            "cluster": "east",
            "broker": "b1",
            "principal": "User:etl",
            "client_id": "app",
            "api": "PRODUCE",
            "handler_time_ms": 40.0,
            "requests": 40,
            "ms_per_request": 1.0,
            "share": 0.25,
        },
    ],
}
CASES = {name: (*asked, _ANSWERS[name]) for name, asked in _ASKED.items()}
