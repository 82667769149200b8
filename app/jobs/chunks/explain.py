"""Sentences about large messages: the outcome of their chunks, and why some stay incomplete."""

from __future__ import annotations

from app.explain.ask import (
    IN_WINDOW,
    NEAREST,
    Ask,
    Configured,
    Explained,
    Subject,
    of_subscription,
    of_topic,
)
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence, compose
from app.explain.windows import PLACE as WINDOWS
from app.explain.windows import window_sentences
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


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """Decisions about chunks, complete messages and incomplete ones around the moment."""
    result: list[Sentence] = []
    for table, describe in (
        ("chunk_messages", _whole),
        ("chunk_events", _event),
        ("incomplete_messages", _waiting),
        ("chunk_state", _state),
    ):
        if table in ask.entity:
            # A complete message has a row in both tables; that of chunk_messages has all columns.
            more = " AND t.outcome <> 'COMPLETE'" if table == "chunk_events" else ""
            if table == "incomplete_messages":
                more = " AND t.state = 'assembling'"
            rows = reader.rows(
                table, f"{ask.where(table)} AND {_when(table)}{more}", ask.params, NEAREST
            )
            result += [describe(row) for row in rows]
    return result + _stalled(reader, ask)


def _stalled(reader: Reader, ask: Ask) -> list[Sentence]:
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
            found.append(_behind(row))
            continue
        same = " AND ".join(f"t.{name} = ${name}" for name in _WINDOW)
        behind = reader.summary(
            table,
            "count(*) AS messages",
            f"{same} AND t.state = 'stalled'",
            {name: row[name] for name in _WINDOW},
        )
        text = (
            "At the end of the window {behind.messages:n large message} stalled behind"
            " {wait.stalled_at}, whose " + gone_chunks(row["missing_chunks"]) + ": it is of"
            " {wait.uuid} of producer {wait.producer_name}, and subscription {wait.subscription}"
            " has been sent nothing since it was stored, {wait.age_ms:ms} before."
        )
        found.append(
            compose(
                row["ts_wall_ms"], row["rule"], text, (1, row["row_no"]), wait=row, behind=behind
            )
        )
    return found


_WINDOW = ("cluster", "topic", "subscription", "window_start_ms")


def _behind(row: Row) -> Sentence:
    text = (
        "At the end of the window {wait.uuid} of producer {wait.producer_name} has been stored"
        " for {wait.age_ms:ms}, from {wait.first_position} to {wait.last_position}, and"
        " subscription {wait.subscription} has not been sent it: the subscription is stalled at"
        " {wait.stalled_at}"
    )
    if row["missing_chunks"]:
        text += ", whose " if row["first_position"] == row["stalled_at"] else "; of this message "
        text += gone_chunks(row["missing_chunks"])
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (1, row["row_no"]), wait=row)


def _when(table: str) -> str:
    if table in ("incomplete_messages", "chunk_state"):
        return "t.ts_wall_ms >= $lo AND t.window_start_ms < $hi"
    return IN_WINDOW


def _whole(row: Row) -> Sentence:
    text = (
        "{whole.uuid} of producer {whole.producer_name} is complete for subscription"
        " {whole.subscription}: {whole.num_chunks:n chunk} from {whole.first_position} to"
        " {whole.last_position}, the first delivered to consumer {whole.consumer} at"
        " {whole.first_chunk_ms:clock}, the last {whole.assembly_ms:ms} later"
    )
    if row["assembled_bytes"] is not None:
        text += "; {whole.assembled_bytes:n byte} of {whole.declared_bytes:n} declared"
    return compose(
        row["ts_wall_ms"],
        row["rule"],
        text + " ({whole.integrity}).",
        (0, row["row_no"]),
        whole=row,
    )


def _event(row: Row) -> Sentence:
    text = OUTCOMES[row["outcome"]] + " [{event.position}, subscription {event.subscription}]"
    if row["age_ms"] is not None and row["outcome"] != "COMPLETE":
        text += ", {event.age_ms:ms} after its first chunk"
    for column, what in (
        ("acks", "acknowledged"),
        ("tracked", "tracked for redelivery"),
        ("orphaned", "neither acknowledged nor tracked"),
    ):
        if row[column]:
            text += f"; {{len(event.{column}):n position}} {what}"
    text += "; the consumer then holds {event.contexts:n incomplete message}"
    if row["leaked"]:
        text += " and counts {event.counter:n}"
    defect = row["rule"].partition("+")[2]
    if defect in _DEFECTS:
        text += f". A defect of released clients affects this outcome: {_DEFECTS[defect]}"
    # Decisions at the end of a window come after its rows.
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (3, row["row_no"]), event=row)


def _waiting(row: Row) -> Sentence:
    text = (
        "At the end of the window {wait.uuid} of producer {wait.producer_name} waits for"
        " chunk {wait.next_chunk_id:n} of {wait.num_chunks:n} in consumer {wait.consumer} of"
        " subscription {wait.subscription}: its first chunk ({wait.first_position}) arrived at"
        " {wait.first_chunk_ms:clock}, {wait.age_ms:ms} before, its newest"
        " ({wait.last_position}) at {wait.last_chunk_ms:clock}"
    )
    if row["buffered_bytes"] is not None:
        text += "; {wait.buffered_bytes:n byte} of {wait.declared_bytes:n} have arrived"
    text += (
        "; it expires after {wait.expires_ms:clock}"
        if row["expires_ms"] is not None
        else "; it never expires"
    )
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (1, row["row_no"]), wait=row)


def _state(row: Row) -> Sentence:
    text = (
        "At the end of the window consumer {state.consumer} of subscription"
        " {state.subscription} holds {state.contexts:n incomplete message} with"
        " {state.buffered_bytes:n byte}"
    )
    if row["oldest_age_ms"] is not None:
        text += ", the oldest for {state.oldest_age_ms:ms}"
    if row["leaked"]:
        text += "; its counter is {state.counter:n}, {state.leaked:n} of them leaked"
    if row["permits_lost"]:
        text += "; {state.permits_lost:n permit} lost so far"
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (2, row["row_no"]), state=row)


def _windows(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    return window_sentences(reader, ask, "chunk_topic_stats", "false", _window)


def _window(row: Row) -> str:
    return (
        "{window.chunks:n chunk} of {window.chunk_bytes:n byte} in all were published to"
        " {window.topic} by {window.producers:n producer}; at most"
        " {window.max_contexts:n large message} waited for chunks in one consumer"
    )


EXPLAINED = Explained(
    place=30,
    subjects=(
        Subject(WINDOWS, ("topic",), _windows),
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
