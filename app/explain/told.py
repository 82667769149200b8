"""What clients were told by the throttle command (protocol=pip385), in words."""

from __future__ import annotations

from app.explain.ask import IN_WINDOW, THROTTLED, Ask
from app.explain.causes import cause
from app.explain.reader import Reader
from app.explain.saying import Row, Sentence, say

_STATES = {
    "received": "its client confirmed, so connection {mark.cnx_id} is read on",
    "not_waited": "its client is told",
    "timed_out": "no receipt came in time",
}


def sentences(reader: Reader, ask: Ask) -> list[Sentence]:
    """Marks that did not pause a connection, receipts, commands and sends that timed out."""
    about = THROTTLED if ask.kind == "topic" else "list_contains($names, t.cnx_id)"
    nearest = "ORDER BY abs(CAST(t.ts_wall_ms AS HUGEINT) - $at), t.row_no LIMIT $rows"
    said = [
        _mark(row) for row in reader.rows(
            "throttle_events", f"{about} AND {ask.place} AND {IN_WINDOW} AND NOT t.reads_paused"
            " AND t.action IN ('mark', 'receipt')", ask.params, nearest)
    ]
    if "producer_throttle" in ask.entity:
        said += [_told(row) for row in reader.rows(
            "producer_throttle", f"{ask.where('producer_throttle')} AND {IN_WINDOW}", ask.params,
            nearest)]
    return said


def _mark(mark: Row) -> Sentence:
    """A mark, or the end of the wait for its receipt, that left the connection open."""
    if mark["action"] == "receipt":
        text = "The receipt of command {mark.request_id:n} for {mark.topic} came in time:" \
            " connection {mark.cnx_id} is read on"
    else:
        text = cause(mark, "mark")
        text = text if text.startswith("{") else text[0].upper() + text[1:]
        for column, noun in (("balance_msgs", "message"), ("balance_bytes", "byte")):
            if mark[column] is not None:
                text += f", balance {{mark.{column}:n {noun}}}"
        waits = "connection {mark.cnx_id} is read on while the broker waits for the receipt"
        text += "; " + _STATES.get(mark["receipt_state"] or "", waits)
        if mark["request_id"] is not None:
            text += " (command {mark.request_id:n})"
    return say(mark["ts_wall_ms"], mark["rule"], text + ".", (mark["row_no"],), mark=mark)


def _told(row: Row) -> Sentence:
    producer = "producer {told.producer_id:n}" + (
        " ({told.producer_name})" if row["producer_name"] else "")
    if row["exception"] is not None:
        text = f"A send of {producer} on {{told.topic}} timed out"
        if row["sequence_id"] is not None:
            text += " (sequence id {told.sequence_id:n})"
        text += "; its client sees {told.exception}"
    elif row["rule"] == "client_unsupported":
        text = f"P{producer[1:]} on {{told.topic}} is sent no command: its client does not know" \
            " it (reason {told.reason})"
    else:
        text = f"P{producer[1:]} on {{told.topic}} is told to pause"
        text += " for {told.pause_ms:ms}, until {told.end_ms:clock}" if row["pause_ms"] \
            else " for a time that is not known"
        text += " (command {told.request_id:n}, reason {told.reason})"
        if row["throttled_ms_total"]:
            text += "; {told.throttled_ms_total:ms} announced so far on this connection"
    return say(row["ts_wall_ms"], row["rule"], text + ".", (row["row_no"],), told=row)
