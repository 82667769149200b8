"""The declaration of the job `chunks`."""

from __future__ import annotations

from state.chunks.outputs import OUTPUTS
from state.engine.declaration import Declaration
from state.events import WALL

NAME = "chunks"
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
    "topic",
    "producer_name",
    "sequence_id",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "uuid",
    "chunk_id",
    "num_chunks",
    "total_chunk_bytes",
    "marker_ids",
    "publish_time_ms",
    "subscription",
    "sub_type",
    "consumer",
    "ack_cumulative",
    "mark_delete",
    "payload_bytes",
    "payload_crc32",
    "payload_file",
    "payload_row",
)
"""Columns that the job carries. `topic` is the full name with its partition, `marker_ids` the list
joined by commas; the last four describe a chunk's payload: length and CRC-32, and the staged file
and row that hold it, if any."""
DECLARATION = Declaration(
    name=NAME,
    state_version=STATE_VERSION,
    meaning="large messages that are sent in chunks (PIP-37)",
    key=("cluster", "topic"),
    clock=WALL,
    kinds=(
        "consumer_created",
        "consumer_closed",
        "entry_added",
        "dispatch",
        "ack",
        "cursor_state",
        "cursor_deleted",
        "gap",
    ),
    fed_by=("dispatch",),
    columns=COLUMNS,
    outputs=OUTPUTS,
    core_class="state.chunks.operator:Chunks",
    parameters_class="state.chunks.parameters:ChunksParameters",
    everywhere=("gap",),
    payloads="assemble_payload",
)
