"""Sentences about large messages: the outcome of their chunks, and why some stay incomplete."""

from __future__ import annotations

from app.show.explain.ask import (
    IN_WINDOW,
    NEAREST,
    Ask,
    ConfiguredPolicies,
    Explained,
    Subject,
    of_subscription,
    of_topic,
)
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Draft, Quoted, Sentence, tell
from app.show.explain.windows import PLACE as WINDOWS
from app.show.explain.windows import window_sentences
from app.terminal.counts import gone_chunks

_CHUNK = "Chunk {event.chunk_id:n} (of {event.num_chunks:n}) of {event.uuid}"
OUTCOMES = {
    "COMPLETE": f"{_CHUNK} completes it: consumer {{event.consumer}} hands it to the application",
    "DUP_ACKED": f"{_CHUNK} arrived again from another position: it is acknowledged and the"
    " message keeps waiting",
    "DUP_SAME_ID": f"{_CHUNK} was delivered again: nothing changes",
    "GAP": f"{_CHUNK} arrived while an earlier one is missing: consumer {{event.consumer}} drops"
    " the message",
    "NO_FIRST_CHUNK": f"{_CHUNK} arrived, but consumer {{event.consumer}} has no first chunk of"
    " the message: it is not used",
    "OVERFLOW_EXCEPTION": f"{_CHUNK} holds more bytes than the message declares: the client throws"
    " and reconnects",
    "COUNT_EXCEPTION": f"{_CHUNK} does not fit the number of chunks of the first one: the client"
    " throws and reconnects",
    "GIVEN_UP_OVERFLOW": f"{_CHUNK} holds more bytes than the message declares: the message is"
    " given up",
    "GIVEN_UP_COUNT": f"{_CHUNK} does not fit the number of chunks of the first one: the message"
    " is given up",
    "RESTART_REDELIVERY": f"{_CHUNK} was delivered again: the message restarts",
    "RESTART_CORRUPTED": f"{_CHUNK} arrived from another position while the message was incomplete:"
    " the message restarts",
    "EVICTED": "Too many messages were pending for consumer {event.consumer}: {event.uuid}, the"
    " oldest, is removed; its last chunk was {event.chunk_id:n} (of"
    " {event.num_chunks:n})",
    "EXPIRED": "{event.uuid} is incomplete for too long and expires; its last chunk was"
    " {event.chunk_id:n} (of {event.num_chunks:n})",
    "ORPHANED": "{event.uuid} is lost with its consumer or marker; its last chunk was"
    " {event.chunk_id:n} (of {event.num_chunks:n})",
    "ALREADY_ACKED": f"{_CHUNK} had been acknowledged before: it is dropped",
    "SHARED_ORPHAN": f"{_CHUNK} belongs to no consumer of the shared subscription",
    "LOST_TO_SIGHT": "Records of the broker are missing: what became of {event.uuid} is not known;"
    " its last chunk was {event.chunk_id:n} (of {event.num_chunks:n})",
    "FIRST_UNSEEN": f"{_CHUNK} arrived; its first chunk may be among the records that are missing:"
    " whether it is used is not known",
}
_DEFECTS = {
    "B1": "the counter of pending messages leaks",
    "B2": "the flow permit is not returned",
    "B3": "the expiry is blocked",
    "B4": "positions stay neither acknowledged nor tracked",
    "B7": "the overflow repeats after every reconnect",
    "B8": "the wrong count repeats after every reconnect",
}
"""The effect of a defect of released clients, by its name."""


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Decisions about chunks, complete messages and incomplete ones around the moment."""
    result: list[Sentence] = []
    # Decisions at the end of a window come after its rows.
    for table, name, describe, place in (
        ("chunk_messages", "whole", _whole, 0),
        ("chunk_events", "event", _event, 3),
        ("incomplete_messages", "wait", _waiting, 1),
        ("chunk_state", "state", _state, 2),
    ):
        if table in ask.entity:
            # A complete message has a row in both tables; that of chunk_messages has all columns.
            more = " AND t.outcome <> 'COMPLETE'" if table == "chunk_events" else ""
            if table == "incomplete_messages":
                more = " AND t.state = 'assembling'"
            rows = reader.rows(
                table, f"{ask.where(table)} AND {_when(table)}{more}", ask.params, NEAREST
            )
            result += [tell(describe, name, row, place) for row in rows]
    return result + _stalled(reader, ask)


def _stalled(reader: SnapshotReader, ask: Ask) -> list[Sentence]:
    """Where subscriptions stand: one sentence each and window, about the message at which they do;
    of a single message its own."""
    table = "incomplete_messages"
    if table not in ask.entity:
        return []
    which = "" if ask.kind == "message" else " AND t.first_position = t.stalled_at"
    found = []
    for row in reader.rows(
        table,
        f"{ask.where(table)} AND {_when(table)} AND t.state = 'stalled'{which}",
        ask.params,
        NEAREST,
    ):
        if ask.kind == "message":
            found.append(tell(_behind, "wait", row, 1))
            continue
        same = " AND ".join(f"t.{name} = ${name}" for name in _WINDOW)
        draft = Draft()
        wait = draft.quote("wait", row)
        behind = draft.quote(
            "behind",
            reader.summary(
                table,
                "count(*) AS messages",
                f"{same} AND t.state = 'stalled'",
                {name: row[name] for name in _WINDOW},
            ),
        )
        text = (
            f"At the end of the window {behind.messages:n large message} stalled behind"
            f" {wait.stalled_at}, whose {gone_chunks(row['missing_chunks'])}: it is of"
            f" {wait.uuid} of producer {wait.producer_name}, and subscription {wait.subscription}"
            f" has been sent nothing since it was stored, {wait.age_ms:ms} before"
        )
        found.append(draft.sentence(text, (1, row["row_no"])))
    return found


_WINDOW = ("cluster", "topic", "subscription", "window_start_ms")


def _behind(row: Quoted) -> str:
    text = (
        f"At the end of the window {row.uuid} of producer {row.producer_name} has been stored"
        f" for {row.age_ms:ms}, from {row.first_position} to {row.last_position}, and"
        f" subscription {row.subscription} has not been sent it: the subscription is stalled at"
        f" {row.stalled_at}"
    )
    if row["missing_chunks"]:
        text += ", whose " if row["first_position"] == row["stalled_at"] else "; of this message "
        text += gone_chunks(row["missing_chunks"])
    return text


def _when(table: str) -> str:
    if table in ("incomplete_messages", "chunk_state"):
        return "t.ts_wall_ms >= $lo AND t.window_start_ms < $hi"
    return IN_WINDOW


def _whole(row: Quoted) -> str:
    text = (
        f"{row.uuid} of producer {row.producer_name} is complete for subscription"
        f" {row.subscription}: {row.num_chunks:n chunk} from {row.first_position} to"
        f" {row.last_position}, the first delivered to consumer {row.consumer} at"
        f" {row.first_chunk_ms:clock}, the last {row.assembly_ms:ms} later"
    )
    if row["assembled_bytes"] is not None:
        text += f"; {row.assembled_bytes:n byte} of {row.declared_bytes:n} declared"
    return f"{text} ({row.integrity})"


def _event(row: Quoted) -> str:
    text = OUTCOMES[row["outcome"]].format(event=row)
    text += f" [{row.position}, subscription {row.subscription}]"
    if row["age_ms"] is not None and row["outcome"] != "COMPLETE":
        text += f", {row.age_ms:ms} after its first chunk"
    for column, what in (
        ("acks", "acknowledged"),
        ("tracked", "tracked for redelivery"),
        ("orphaned", "neither acknowledged nor tracked"),
    ):
        if row[column]:
            positions = row.derived(f"{column}_positions", len(row[column]))
            text += f"; {positions:n position} {what}"
    text += f"; the consumer then holds {row.contexts:n incomplete message}"
    if row["leaked"]:
        text += f" and counts {row.counter:n}"
    defect = row["rule"].partition("+")[2]
    if defect in _DEFECTS:
        text += f". A defect of released clients affects this outcome: {_DEFECTS[defect]}"
    return text


def _waiting(row: Quoted) -> str:
    text = (
        f"At the end of the window {row.uuid} of producer {row.producer_name} waits for"
        f" chunk {row.next_chunk_id:n} of {row.num_chunks:n} in consumer {row.consumer} of"
        f" subscription {row.subscription}: its first chunk ({row.first_position}) arrived at"
        f" {row.first_chunk_ms:clock}, {row.age_ms:ms} before, its newest"
        f" ({row.last_position}) at {row.last_chunk_ms:clock}"
    )
    if row["buffered_bytes"] is not None:
        text += f"; {row.buffered_bytes:n byte} of {row.declared_bytes:n} have arrived"
    if row["expires_ms"] is None:
        return f"{text}; it never expires"
    return f"{text}; it expires after {row.expires_ms:clock}"


def _state(row: Quoted) -> str:
    text = (
        f"At the end of the window consumer {row.consumer} of subscription {row.subscription}"
        f" holds {row.contexts:n incomplete message} with {row.buffered_bytes:n byte}"
    )
    if row["oldest_age_ms"] is not None:
        text += f", the oldest for {row.oldest_age_ms:ms}"
    if row["leaked"]:
        text += f"; its counter is {row.counter:n}, {row.leaked:n} of them leaked"
    if row["permits_lost"]:
        text += f"; {row.permits_lost:n permit} lost so far"
    return text


def _window(row: Quoted) -> str:
    return (
        f"{row.chunks:n chunk} of {row.chunk_bytes:n byte} in all were published to"
        f" {row.topic} by {row.producers:n producer}; at most"
        f" {row.max_contexts:n large message} waited for chunks in one consumer"
    )


EXPLAINED = Explained(
    place=30,
    subjects=(
        Subject(
            WINDOWS,
            ("topic",),
            lambda reader, ask, _: window_sentences(
                reader, ask, "chunk_topic_stats", "false", _window
            ),
        ),
        Subject(70, ("topic", "subscription", "message"), sentences),
    ),
    decisions={
        "topic": {"chunk_events": f"{of_topic()} AND t.outcome <> 'COMPLETE'"},
        "message": dict.fromkeys(
            ("chunk_events", "chunk_messages", "incomplete_messages"),
            "list_contains($names, t.uuid)",
        ),
        "subscription": {"chunk_events": of_subscription()},
    },
    levels={
        "topic": dict.fromkeys(
            ("chunk_events", "chunk_messages", "incomplete_messages", "chunk_topic_stats"),
            of_topic(),
        ),
        "subscription": dict.fromkeys(
            ("chunk_messages", "chunk_state", "incomplete_messages"), of_subscription()
        ),
    },
)
