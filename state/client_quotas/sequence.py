"""The order of records of a broker's clients (event contract, section 2)."""

from __future__ import annotations

from state.engine.sequence import Sequence

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
)
