"""The declaration of the job `rate_limits`."""

from __future__ import annotations

from state.engine.declaration import Declaration
from state.events import MONO
from state.rate_limits.outputs import OUTPUTS

NAME = "rate_limits"
STATE_VERSION = 6
"""Of the bytes of a shard; one release reads one version."""
COLUMNS = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_mono_ns",
    "ts_wall_ms",
    "cnx_id",
    "supports_throttle",
    "reports_pauses",
    "io_thread",
    "topic",
    "producer_id",
    "producer_name",
    "sequence_id",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
    "publish_time_ms",
    "request_id",
    "policy_json",
    "gap_from_mono_ns",
)
"""Contract columns that the job carries; `topic` is the full name with its partition."""
DECLARATION = Declaration(
    name=NAME,
    state_version=STATE_VERSION,
    meaning="publish limits of Pulsar brokers: throttling, culprits and victims (PIP-385, PIP-322)",
    key=("cluster", "broker"),
    clock=MONO,
    kinds=(
        "broker_started",
        "connection_opened",
        "connection_closed",
        "producer_created",
        "producer_closed",
        "publish",
        "entry_added",
        "reads_paused",
        "reads_resumed",
        "throttle_receipt",
        "send_timeout",
        "policy",
        "gap",
        "publish_digest",
    ),
    fed_by=("publish", "publish_digest"),
    columns=COLUMNS,
    outputs=OUTPUTS,
    commands={"protocol": ("pip385",), "receipt_model": ("supported", "observed", "all")},
    what_if={"observed_pauses": "ignore"},
    core_class="state.rate_limits.operator:RateLimits",
    parameters_class="state.rate_limits.parameters:RateLimitsParameters",
)
