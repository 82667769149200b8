"""The declaration of the job `entry_cache`."""

from __future__ import annotations

from state.engine.declaration import Declaration
from state.entry_cache.outputs import OUTPUTS
from state.events import MONO

NAME = "entry_cache"
STATE_VERSION = 5
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
    "topic",
    "producer_name",
    "sequence_id",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
    "uuid",
    "chunk_id",
    "num_chunks",
    "total_chunk_bytes",
    "publish_time_ms",
    "broker_time_ms",
    "subscription",
    "sub_type",
    "consumer",
    "durable",
    "mark_delete",
    "read_pos",
    "active",
    "policy_json",
)
"""Contract columns that the job carries; `topic` is the full name with its partition. Many are
only there to put records of one time in order."""
DECLARATION = Declaration(
    name=NAME,
    state_version=STATE_VERSION,
    meaning="hit rates of a broker's cache of entries under several eviction policies (PIP-430)",
    key=("cluster", "broker"),
    clock=MONO,
    kinds=(
        "broker_started",
        "entry_added",
        "dispatch",
        "entry_read",
        "entry_released",
        "replay_queued",
        "entry_invalidated",
        "cursor_state",
        "cursor_deleted",
        "ledger_deleted",
        "policy",
        "gap",
    ),
    fed_by=("entry_read",),
    columns=COLUMNS,
    outputs=OUTPUTS,
    core_class="state.entry_cache.operator:EntryCache",
    parameters_class="state.entry_cache.parameters:EntryCacheParameters",
)
