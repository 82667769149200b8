"""The order of records of a broker's clients (event contract, section 2)."""

from __future__ import annotations

from state.engine.sequence import Sequence

TEXTS = (
    "cluster",
    "broker",
    "source_feed",
    "principal",
    "client_id",
    "api",
    "quota_type",
    "topic_bytes",
    "policy_json",
    "source_partition",
)
SEQUENCE = Sequence(
    (
        "event_type",
        "source_feed",
        "cluster",
        "broker",
        "ts_mono_ns",
        "principal",
        "client_id",
        "policy_json",
        "api",
        "charged_bytes",
        "handler_time_ns",
        "mutations",
        "throttle_ms",
        "exempt",
        "quota_type",
        "value_milli",
        "topic_bytes",
        "bound_milli",
        "throttle_avg_milli",
        "api_version",
        "source_partition",
        "source_offset",
    ),
    frozenset(TEXTS),
)
