"""The declaration of the job `backlog`."""

from __future__ import annotations

from state.backlog.outputs import OUTPUTS
from state.engine.declaration import Declaration
from state.events import WALL

NAME = "backlog"
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
    "client_id",
    "topic",
    "producer_id",
    "producer_name",
    "sequence_id",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
    "publish_time_ms",
    "broker_time_ms",
    "subscription",
    "ack_cumulative",
    "durable",
    "mark_delete",
    "ledger_entries",
    "ledger_bytes",
    "ledger_close_ms",
    "policy_json",
    "acked_ranges",
    "expired_messages",
    "remarks",
    "log_start",
    "unread",
    "group_state",
    "client_host",
    "group_type",
    "group_epoch",
    "assignment_epoch",
)
"""Contract columns that the job carries; `topic` is the full name, the partition in it."""
DECLARATION = Declaration(
    name=NAME,
    state_version=STATE_VERSION,
    meaning="size, age and quotas of backlogs, evictions and forecasts (PIP-323)",
    key=("cluster", "topic"),
    clock=WALL,
    kinds=(
        "broker_started",
        "producer_created",
        "producer_closed",
        "entry_added",
        "ack",
        "cursor_state",
        "cursor_deleted",
        "ledger_state",
        "ledger_deleted",
        "policy",
        "gap",
        "group_state",
    ),
    fed_by=("ledger_state", "group_state"),
    columns=COLUMNS,
    outputs=OUTPUTS,
    core_class="state.backlog.operator:Backlog",
    parameters_class="state.backlog.parameters:BacklogParameters",
    everywhere=("policy", "broker_started", "gap"),
    polled=True,
)
