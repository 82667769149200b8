"""The declaration of the job `message_counts`."""

from __future__ import annotations

from state.engine.declaration import Declaration
from state.engine.table import GIVEN, KEY, Output, begins, long, text, windows
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
COUNTS = Output(
    "topic_message_counts",
    "Per topic and window: what was persisted.",
    (
        text("topic", "topic, a partition being one of its own", of=KEY, needed=True),
        *windows("start_ms"),
        long("messages", "messages, or entries (count=entries)", least=0, needed=True),
        long("bytes", "bytes of the entries", least=0, needed=True),
    ),
    sort_by=("cluster", "topic", "window_start_ms"),
    begins=begins(
        KEY, ts_mono_ns=(GIVEN,), ts_wall_ms=(GIVEN,), source_feed=(KEY, "feed"), row_no=(GIVEN,)
    ),
    rules=("window",),
)
DECLARATION = Declaration(
    name=NAME,
    meaning="messages of each topic and window",
    key=("cluster", "topic"),
    clock=WALL,
    kinds=("entry_added",),
    columns=COLUMNS,
    outputs=(COUNTS,),
    core_class="state.message_counts.operator:MessageCounts",
    parameters_class="state.message_counts.parameters:MessageCountsParameters",
)
