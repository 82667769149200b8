"""The declaration of the job `client_quotas`."""

from __future__ import annotations

from state.client_quotas.outputs import OUTPUTS
from state.engine.declaration import Declaration
from state.events import WALL

NAME = "client_quotas"
STATE_VERSION = 4
"""Of the bytes of a shard; one release reads one version."""
COLUMNS = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_mono_ns",
    "ts_wall_ms",
    "principal",
    "client_id",
    "api",
    "api_version",
    "quota_type",
    "charged_bytes",
    "handler_time_ns",
    "mutations",
    "throttle_ms",
    "exempt",
    "value_milli",
    "bound_milli",
    "throttle_avg_milli",
    "topic_bytes",
    "policy_json",
)
"""Contract columns that the job carries."""
DECLARATION = Declaration(
    name=NAME,
    state_version=STATE_VERSION,
    meaning="Kafka's own quotas on clients: bytes, request time and mutations of the controller",
    key=("cluster", "broker"),
    clock=WALL,
    kinds=("broker_started", "client_request", "client_rate", "policy", "gap"),
    fed_by=("client_request", "client_rate"),
    columns=COLUMNS,
    outputs=OUTPUTS,
    by_default=False,
    polled=True,
    observed=True,
    what_if={"broker_reports": "ignore"},
    core_class="state.client_quotas.operator:ClientQuotas",
    parameters_class="state.client_quotas.parameters:ClientQuotasParameters",
)
