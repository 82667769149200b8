"""The tables that `chunks` writes: their columns, what these mean, and the kernel's rows."""

from __future__ import annotations

import pyarrow as pa

from state.engine.table import (
    GIVEN,
    KEY,
    ROW,
    SHORTS,
    TEXTS,
    Output,
    TableColumn,
    begins,
    flag,
    long,
    rate,
    short,
    text,
    windows,
)

OUTCOMES = (
    "BUFFERED",
    "COMPLETE",
    "DUP_ACKED",
    "DUP_SAME_ID",
    "GAP",
    "NO_FIRST_CHUNK",
    "OVERFLOW_EXCEPTION",
    "COUNT_EXCEPTION",
    "GIVEN_UP_OVERFLOW",
    "GIVEN_UP_COUNT",
    "RESTART_REDELIVERY",
    "RESTART_CORRUPTED",
    "EVICTED",
    "EXPIRED",
    "ORPHANED",
    "ALREADY_ACKED",
    "SHARED_ORPHAN",
    "LOST_TO_SIGHT",
    "FIRST_UNSEEN",
)

SUB, CONSUMER, WINDOW = "sub", "consumer", "window"
"""What the fields of these names in the kernel's rows are positions of."""
INTEGRITY = ("exact", "short", "unknown", "too_large")
EXACT, SHORT, UNKNOWN, TOO_LARGE = range(4)
MESSAGE_STATES = ("assembling", "stalled")
_DECIDED = (None, *OUTCOMES[1:])
"""No row says that a chunk is buffered."""
_BEGINS = begins(ROW, cluster=(KEY, "cluster"))
_OF_WINDOW = begins(
    GIVEN,
    broker=(WINDOW, "broker"),
    ts_mono_ns=(WINDOW, "ts_mono_ns"),
    ts_wall_ms=(WINDOW, "ts_wall_ms"),
    source_feed=(WINDOW, "source_feed"),
)
_WINDOW = windows("start_ms", "window_ms", of=WINDOW)

_TOPIC = text("topic", "topic, a partition being one of its own", of=KEY, needed=True)
_SUBSCRIPTION = text("subscription", "subscription", "name", of=SUB, needed=True)
_CONSUMER = text("consumer", "consumer that the broker chose", "name", of=CONSUMER, needed=True)
_UUID = text("uuid", "id shared by the chunks of the message", needed=True)
_PRODUCER_NAME = text("producer_name", "producer of its first chunk")
_SEQUENCE_ID = long("sequence_id", "sequence id of its first chunk")
_NUM_CHUNKS = short("num_chunks", "chunks of the message, by its first chunk", least=2, needed=True)
_DECLARED_BYTES = long(
    "declared_bytes",
    "size that the first chunk declares (bytes)",
    "total_chunk_bytes",
    least=0,
    needed=True,
)
_COUNTER = short(
    "counter", "pending chunked messages by the client's counter", least=0, needed=True
)
_LEAKED = short("leaked", "counter - contexts", of=GIVEN, needed=True)
_BUFFERED_BYTES = long(
    "buffered_bytes", "bytes that the consumer buffers", "buffered", least=0, needed=True
)
_OF_TOPIC = text("topic", "topic, a partition being one of its own", of=GIVEN, needed=True)
MESSAGES = Output(
    "chunk_messages",
    "Every complete chunked message.",
    (
        _TOPIC,
        _SUBSCRIPTION,
        _CONSUMER,
        _UUID,
        _PRODUCER_NAME,
        _SEQUENCE_ID,
        _NUM_CHUNKS,
        text("first_position", "ledger:entry of the first chunk", of=GIVEN, needed=True),
        text("last_position", "ledger:entry of the last chunk", of=GIVEN, needed=True),
        TableColumn("positions", TEXTS, "ledger:entry of every chunk, by chunk id", needed=True),
        _DECLARED_BYTES,
        long("assembled_bytes", "sum of the chunks (bytes); null if not known", of=GIVEN, least=0),
        long(
            "first_chunk_ms",
            "when the first chunk was delivered (ms epoch)",
            "first_ms",
            needed=True,
        ),
        long(
            "complete_ms", "when the last chunk was delivered (ms epoch)", "ts_wall_ms", needed=True
        ),
        long("assembly_ms", "time between the two (ms)", of=GIVEN, needed=True),
        long("publish_time_ms", "publish time of the first chunk (ms epoch)"),
        TableColumn("payload", pa.binary(), "the message; null without assemble_payload"),
        long(
            "checksum",
            "CRC-32 of the message; null if a payload is missing",
            of=GIVEN,
            least=0,
            most=2**32 - 1,
        ),
        text(
            "integrity",
            "exact, short (fewer bytes than declared), unknown (sizes not known) or too_large"
            " (above max_payload_bytes: not assembled)",
            of=GIVEN,
            words=INTEGRITY,
            needed=True,
        ),
        text(
            "marker_position",
            "ledger:entry of the marker that brought it and is acknowledged with it"
            " (shared_mode=marker); null without",
            "marker_ledger",
            "marker_entry",
        ),
    ),
    sort_by=("cluster", "topic", "complete_ms"),
    begins=_BEGINS,
    rules=(OUTCOMES[1],),
)
EVENTS = Output(
    "chunk_events",
    "Every decision about a chunk except BUFFERED.",
    (
        _TOPIC,
        _SUBSCRIPTION,
        text("consumer", "consumer that the broker chose", "name", of=CONSUMER),
        text("uuid", "message that the decision is about", needed=True),
        short(
            "chunk_id", "chunk that arrived, or last one of a dropped context", least=0, needed=True
        ),
        short("num_chunks", "chunks of the message, by that chunk", least=2, needed=True),
        text("position", "ledger:entry of that chunk", "ledger_id", "entry_id", needed=True),
        text("outcome", "outcome; see the semantics of the job", words=_DECIDED, needed=True),
        TableColumn("acks", TEXTS, "positions that the client acknowledges", needed=True),
        TableColumn("tracked", TEXTS, "positions that wait for redelivery", needed=True),
        TableColumn("orphaned", TEXTS, "positions neither acknowledged nor tracked", needed=True),
        short(
            "permits", "flow permits returned at once for the chunk", least=0, most=1, needed=True
        ),
        _COUNTER,
        short("contexts", "incomplete messages of the consumer", least=0, needed=True),
        _LEAKED,
        _BUFFERED_BYTES,
        long("age_ms", "age of the context that the decision is about (ms)", least=0),
    ),
    sort_by=("cluster", "topic", "subscription", "ts_wall_ms"),
    begins=_BEGINS,
)
STATE = Output(
    "chunk_state",
    "Per consumer and window: its incomplete messages at the end.",
    (
        _OF_TOPIC,
        _SUBSCRIPTION,
        _CONSUMER,
        *_WINDOW,
        short("contexts", "messages that are being assembled", least=0, needed=True),
        _COUNTER,
        _LEAKED,
        _BUFFERED_BYTES,
        long(
            "declared_bytes",
            "declared sizes of those messages (bytes)",
            "total_chunk_bytes",
            least=0,
            needed=True,
        ),
        long(
            "oldest_age_ms", "age of the oldest of them (ms); null without any", of=GIVEN, least=0
        ),
        short(
            "fifo_length",
            "uuids in the client's queue of first chunks",
            "entries",
            least=0,
            needed=True,
        ),
        short("permits_lost", "permits lost so far by B2, B7 or B8", "lost", least=0, needed=True),
    ),
    sort_by=("cluster", "topic", "subscription", "window_start_ms"),
    begins=_OF_WINDOW,
    rules=(WINDOW,),
)
INCOMPLETE = Output(
    "incomplete_messages",
    "Per window, every message that is incomplete or stalled; the newest window has those of now.",
    (
        _OF_TOPIC,
        _SUBSCRIPTION,
        text("consumer", "consumer that assembles it; null if stalled", "name", of=CONSUMER),
        *_WINDOW,
        text(
            "state",
            "assembling (a consumer has chunks of it) or stalled (a shared subscription that has"
            " stopped was never sent it)",
            of=GIVEN,
            words=MESSAGE_STATES,
            needed=True,
        ),
        _UUID,
        _PRODUCER_NAME,
        _SEQUENCE_ID,
        _NUM_CHUNKS,
        short("next_chunk_id", "chunk that it waits for", "next_chunk", least=0, needed=True),
        text(
            "first_position",
            "ledger:entry of the first chunk that is there",
            "first_ledger",
            "first_entry",
            needed=True,
        ),
        text(
            "last_position",
            "ledger:entry of the newest chunk",
            "last_ledger",
            "last_entry",
            needed=True,
        ),
        long(
            "first_chunk_ms",
            "when the first chunk was delivered, or stored if stalled (ms epoch)",
            "first_ms",
            needed=True,
        ),
        long(
            "last_chunk_ms",
            "when the newest chunk was delivered, or stored if stalled (ms epoch)",
            "last_ms",
            needed=True,
        ),
        long("age_ms", "time since the first chunk (ms)", of=GIVEN, least=0, needed=True),
        long(
            "buffered_bytes",
            "bytes received so far, or stored if stalled",
            "buffered",
            least=0,
            needed=True,
        ),
        _DECLARED_BYTES,
        long(
            "expires_ms",
            "time after which an expiry pass removes it (ms epoch); null = never",
            of=GIVEN,
        ),
        text(
            "stalled_at",
            "ledger:entry of the chunk at which the subscription has stopped; null if assembling",
            "stall_ledger",
            "stall_entry",
        ),
        TableColumn(
            "missing_chunks",
            SHORTS,
            "chunks before its newest one that the subscription cannot get any more, the first"
            " 1,000; null if assembling",
        ),
    ),
    sort_by=("cluster", "topic", "subscription", "window_start_ms"),
    begins=_OF_WINDOW,
    rules=(WINDOW,),
)
STATS = Output(
    "chunk_topic_stats",
    "Per topic and window: chunks published.",
    (
        _TOPIC,
        *windows("start_ms", "window_ms"),
        long("chunks", "chunks published", least=0, needed=True),
        long("chunk_bytes", "bytes of their entries", "bytes", least=0, needed=True),
        rate(
            "chunked_message_rate",
            "chunked messages begun per second",
            of=GIVEN,
            least=0,
            needed=True,
        ),
        flag("msg_chunk_published", "whether any chunk was published", of=GIVEN, needed=True),
        short("producers", "distinct producer names that sent chunks", least=0, needed=True),
        short(
            "max_contexts",
            "most messages that one consumer assembled at once",
            "most",
            least=0,
            needed=True,
        ),
    ),
    sort_by=("cluster", "topic", "window_start_ms"),
    begins=_BEGINS,
    rules=(WINDOW,),
)
OUTPUTS = (
    MESSAGES,
    EVENTS,
    STATE,
    INCOMPLETE,
    STATS,
)
EVENT = EVENTS.row("defect", "start", "acks", "tracked", "orphaned")
MESSAGE = MESSAGES.row("start", "parts", "buffered", "unknown", "crc", "has_crc")
LEVEL = STATE.row("oldest_ms")
MISSING = INCOMPLETE.row("order", "gone_start", "gone")
CLOSED = STATS.row("topic_row", "firsts")
