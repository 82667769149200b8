"""The tables that `chunks` writes: their columns and what these mean."""

from __future__ import annotations

import pyarrow as pa

from state.engine.table import (
    FLAG,
    LONG,
    RATE,
    SHORT,
    SHORTS,
    TEXT,
    TEXTS,
    WINDOW,
    Output,
    TableColumn,
)


def _outputs() -> tuple[Output, ...]:
    whose = (
        TableColumn("topic", TEXT, "topic, a partition being one of its own"),
        TableColumn("subscription", TEXT, "subscription"),
        TableColumn("consumer", TEXT, "consumer that the broker chose"),
    )
    message = (
        TableColumn("uuid", TEXT, "id shared by the chunks of the message"),
        TableColumn("producer_name", TEXT, "producer of its first chunk"),
        TableColumn("sequence_id", LONG, "sequence id of its first chunk"),
        TableColumn("num_chunks", SHORT, "chunks of the message, by its first chunk"),
    )
    messages = (
        *whose,
        *message,
        TableColumn("first_position", TEXT, "ledger:entry of the first chunk"),
        TableColumn("last_position", TEXT, "ledger:entry of the last chunk"),
        TableColumn("positions", TEXTS, "ledger:entry of every chunk, by chunk id"),
        TableColumn("declared_bytes", LONG, "size that the first chunk declares (bytes)"),
        TableColumn("assembled_bytes", LONG, "sum of the chunks (bytes); null if not known"),
        TableColumn("first_chunk_ms", LONG, "when the first chunk was delivered (ms epoch)"),
        TableColumn("complete_ms", LONG, "when the last chunk was delivered (ms epoch)"),
        TableColumn("assembly_ms", LONG, "time between the two (ms)"),
        TableColumn("publish_time_ms", LONG, "publish time of the first chunk (ms epoch)"),
        TableColumn("payload", pa.binary(), "the message; null without assemble_payload"),
        TableColumn("checksum", LONG, "CRC-32 of the message; null if a payload is missing"),
        TableColumn(
            "integrity",
            TEXT,
            "exact, short (fewer bytes than declared), unknown (sizes not known) or "
            "too_large (above max_payload_bytes: not assembled)",
        ),
        TableColumn(
            "marker_position",
            TEXT,
            "ledger:entry of the marker that brought it and is acknowledged with it "
            "(shared_mode=marker); null without",
        ),
    )
    decisions = (
        *whose,
        TableColumn("uuid", TEXT, "message that the decision is about"),
        TableColumn("chunk_id", SHORT, "chunk that arrived, or last one of a dropped context"),
        TableColumn("num_chunks", SHORT, "chunks of the message, by that chunk"),
        TableColumn("position", TEXT, "ledger:entry of that chunk"),
        TableColumn("outcome", TEXT, "outcome; see the semantics of the job"),
        TableColumn("acks", TEXTS, "positions that the client acknowledges"),
        TableColumn("tracked", TEXTS, "positions that wait for redelivery"),
        TableColumn("orphaned", TEXTS, "positions neither acknowledged nor tracked"),
        TableColumn("permits", SHORT, "flow permits returned at once for the chunk"),
        TableColumn("counter", SHORT, "pending chunked messages by the client's counter"),
        TableColumn("contexts", SHORT, "incomplete messages of the consumer"),
        TableColumn("leaked", SHORT, "counter - contexts"),
        TableColumn("buffered_bytes", LONG, "bytes that the consumer buffers"),
        TableColumn("age_ms", LONG, "age of the context that the decision is about (ms)"),
    )
    levels = (
        *whose,
        *WINDOW,
        TableColumn("contexts", SHORT, "messages that are being assembled"),
        TableColumn("counter", SHORT, "pending chunked messages by the client's counter"),
        TableColumn("leaked", SHORT, "counter - contexts"),
        TableColumn("buffered_bytes", LONG, "bytes that the consumer buffers"),
        TableColumn("declared_bytes", LONG, "declared sizes of those messages (bytes)"),
        TableColumn("oldest_age_ms", LONG, "age of the oldest of them (ms); null without any"),
        TableColumn("fifo_length", SHORT, "uuids in the client's queue of first chunks"),
        TableColumn("permits_lost", SHORT, "permits lost so far by B2, B7 or B8"),
    )
    missing = (
        *whose[:2],
        TableColumn("consumer", TEXT, "consumer that assembles it; null if stalled"),
        *WINDOW,
        TableColumn(
            "state",
            TEXT,
            "assembling (a consumer has chunks of it) or stalled (a shared subscription "
            "that has stopped was never sent it)",
        ),
        *message,
        TableColumn("next_chunk_id", SHORT, "chunk that it waits for"),
        TableColumn("first_position", TEXT, "ledger:entry of the first chunk that is there"),
        TableColumn("last_position", TEXT, "ledger:entry of the newest chunk"),
        TableColumn(
            "first_chunk_ms",
            LONG,
            "when the first chunk was delivered, or stored if stalled (ms epoch)",
        ),
        TableColumn(
            "last_chunk_ms",
            LONG,
            "when the newest chunk was delivered, or stored if stalled (ms epoch)",
        ),
        TableColumn("age_ms", LONG, "time since the first chunk (ms)"),
        TableColumn("buffered_bytes", LONG, "bytes received so far, or stored if stalled"),
        TableColumn("declared_bytes", LONG, "size that the first chunk declares (bytes)"),
        TableColumn(
            "expires_ms",
            LONG,
            "time after which an expiry pass removes it (ms epoch); null = never",
        ),
        TableColumn(
            "stalled_at",
            TEXT,
            "ledger:entry of the chunk at which the subscription has stopped; null if assembling",
        ),
        TableColumn(
            "missing_chunks",
            SHORTS,
            "chunks before its newest one that the subscription cannot get any more, the "
            "first 1,000; null if assembling",
        ),
    )
    topics = (
        whose[0],
        *WINDOW,
        TableColumn("chunks", LONG, "chunks published"),
        TableColumn("chunk_bytes", LONG, "bytes of their entries"),
        TableColumn("chunked_message_rate", RATE, "chunked messages begun per second"),
        TableColumn("msg_chunk_published", FLAG, "whether any chunk was published"),
        TableColumn("producers", SHORT, "distinct producer names that sent chunks"),
        TableColumn("max_contexts", SHORT, "most messages that one consumer assembled at once"),
    )
    place = ("cluster", "topic", "subscription")
    return (
        Output(
            "chunk_messages",
            "Every complete chunked message.",
            messages,
            sort_by=("cluster", "topic", "complete_ms"),
        ),
        Output(
            "chunk_events",
            "Every decision about a chunk except BUFFERED.",
            decisions,
            sort_by=(*place, "ts_wall_ms"),
        ),
        Output(
            "chunk_state",
            "Per consumer and window: its incomplete messages at the end.",
            levels,
            sort_by=(*place, "window_start_ms"),
        ),
        Output(
            "incomplete_messages",
            "Per window, every message that is incomplete or stalled; the newest window has "
            "those of now.",
            missing,
            sort_by=(*place, "window_start_ms"),
        ),
        Output(
            "chunk_topic_stats",
            "Per topic and window: chunks published.",
            topics,
            sort_by=("cluster", "topic", "window_start_ms"),
        ),
    )


OUTPUTS: tuple[Output, ...] = _outputs()
