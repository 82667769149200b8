"""Sentences about throttle commands and their receipts (protocol=pip385)."""

from __future__ import annotations

from app.explain.ask import IN_WINDOW, NEAREST, Ask, Configured
from app.explain.reader import Reader
from app.explain.sentence import Row, Sentence, compose
from app.jobs.rate_limits.explain.causes import cause
from app.jobs.rate_limits.explain.pauses import THROTTLED

_STATES = {
    "received": "its client confirmed it, so connection {mark.cnx_id} is not paused",
    "not_waited": "its client receives a throttle command",
    "timed_out": "no receipt arrived in time",
}


def sentences(reader: Reader, ask: Ask, configured: Configured) -> list[Sentence]:
    """Marks that did not pause a connection, receipts, commands and sends that timed out."""
    about = THROTTLED if ask.kind == "topic" else "list_contains($names, t.cnx_id)"
    result = [
        _mark(row)
        for row in reader.rows(
            "throttle_events",
            f"{about} AND {ask.place} AND {IN_WINDOW} AND NOT t.reads_paused"
            " AND t.action IN ('mark', 'receipt')",
            ask.params,
            NEAREST,
        )
    ]
    if "producer_throttle" in ask.entity:
        result += [
            _command(row)
            for row in reader.rows(
                "producer_throttle",
                f"{ask.where('producer_throttle')} AND {IN_WINDOW}",
                ask.params,
                NEAREST,
            )
        ]
    return result


def _mark(mark: Row) -> Sentence:
    """A mark, or the end of the wait for its receipt, that does not pause the connection."""
    if mark["action"] == "receipt":
        text = (
            "The receipt of command {mark.request_id:n} for {mark.topic} arrived in time:"
            " connection {mark.cnx_id} is not paused"
        )
    else:
        text = cause(mark, "mark")
        text = text if text.startswith("{") else text[0].upper() + text[1:]
        for column, noun in (("balance_msgs", "message"), ("balance_bytes", "byte")):
            if mark[column] is not None:
                text += f", balance {{mark.{column}:n {noun}}}"
        waits = "connection {mark.cnx_id} is not paused while the broker waits for the receipt"
        text += "; " + _STATES.get(mark["receipt_state"] or "", waits)
        if mark["request_id"] is not None:
            text += " (command {mark.request_id:n})"
    return compose(mark["ts_wall_ms"], mark["rule"], text + ".", (mark["row_no"],), mark=mark)


def _command(row: Row) -> Sentence:
    producer = "producer {command.producer_id:n}" + (
        " ({command.producer_name})" if row["producer_name"] else ""
    )
    if row["exception"] is not None:
        text = f"A send of {producer} on {{command.topic}} timed out"
        if row["sequence_id"] is not None:
            text += " (sequence id {command.sequence_id:n})"
        text += "; its client sees {command.exception}"
    elif row["rule"] == "client_unsupported":
        text = (
            f"P{producer[1:]} on {{command.topic}} receives no command: its client does not"
            " support it (reason {command.reason})"
        )
    else:
        text = f"P{producer[1:]} on {{command.topic}} receives a command to pause"
        text += (
            " for {command.pause_ms:ms}, until {command.end_ms:clock}"
            if row["pause_ms"]
            else " for an unknown time"
        )
        text += " (command {command.request_id:n}, reason {command.reason})"
        if row["throttled_ms_total"]:
            text += "; {command.throttled_ms_total:ms} announced so far on this connection"
    return compose(row["ts_wall_ms"], row["rule"], text + ".", (row["row_no"],), command=row)
