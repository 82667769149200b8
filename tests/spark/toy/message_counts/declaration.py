"""The declaration of the job `message_counts`."""

from __future__ import annotations

from state.engine.declaration import Declaration
from state.engine.table import LONG, TEXT, WINDOW, Output, TableColumn
from state.events import WALL

NAME = "message_counts"
COLUMNS = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_mono_ns",
    "ts_wall_ms",
    "topic",
    "ledger_id",
    "entry_id",
    "entry_bytes",
    "num_messages",
)
DECLARATION = Declaration(
    name=NAME,
    meaning="messages of each topic and window",
    key=("cluster", "topic"),
    clock=WALL,
    kinds=("entry_added",),
    columns=COLUMNS,
    outputs=(
        Output(
            "topic_message_counts",
            "Per topic and window: what was persisted.",
            (
                TableColumn("topic", TEXT, "topic, a partition being one of its own"),
                *WINDOW,
                TableColumn("messages", LONG, "messages, or entries (count=entries)"),
                TableColumn("bytes", LONG, "bytes of the entries"),
            ),
            sort_by=("cluster", "topic", "window_start_ms"),
        ),
    ),
    core_class="state.message_counts.operator:MessageCounts",
    parameters_class="state.message_counts.parameters:MessageCountsParameters",
)
