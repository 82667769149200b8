"""Sentences about throttle commands and their receipts (protocol=pip385)."""

from __future__ import annotations

from app.jobs.rate_limits.explain.causes import cause
from app.jobs.rate_limits.explain.pauses import THROTTLED
from app.show.explain.ask import IN_WINDOW, NEAREST, Ask, ConfiguredPolicies
from app.show.explain.nearby_rows import SnapshotReader
from app.show.explain.sentence import Quoted, Sentence, tell

_STATES = {
    "received": "its client confirmed it, so connection {mark.cnx_id} is not paused",
    "not_waited": "its client receives a throttle command",
    "timed_out": "no receipt arrived in time",
}


def sentences(reader: SnapshotReader, ask: Ask, configured: ConfiguredPolicies) -> list[Sentence]:
    """Marks that did not pause a connection, receipts, commands and sends that timed out."""
    about = THROTTLED if ask.kind == "topic" else "list_contains($names, t.cnx_id)"
    result = [
        tell(_mark, "mark", row, 0)
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
            tell(_command, "command", row, 0)
            for row in reader.rows(
                "producer_throttle",
                f"{ask.where('producer_throttle')} AND {IN_WINDOW}",
                ask.params,
                NEAREST,
            )
        ]
    return result


def _mark(mark: Quoted) -> str:
    """A mark, or the end of the wait for its receipt, that does not pause the connection."""
    if mark["action"] == "receipt":
        return (
            f"The receipt of command {mark.request_id:n} for {mark.topic} arrived in time:"
            f" connection {mark.cnx_id} is not paused"
        )
    text = cause(mark, begins=True)
    for column, noun in (("balance_msgs", "message"), ("balance_bytes", "byte")):
        if mark[column] is not None:
            text += f", balance {format(getattr(mark, column), f'n {noun}')}"
    waits = "connection {mark.cnx_id} is not paused while the broker waits for the receipt"
    text += f"; {_STATES.get(mark['receipt_state'] or '', waits).format(mark=mark)}"
    return text if mark["request_id"] is None else f"{text} (command {mark.request_id:n})"


def _command(row: Quoted) -> str:
    producer = f"producer {row.producer_id:n}"
    if row["producer_name"]:
        producer += f" ({row.producer_name})"
    if row["exception"] is not None:
        text = f"A send of {producer} on {row.topic} timed out"
        if row["sequence_id"] is not None:
            text += f" (sequence id {row.sequence_id:n})"
        return f"{text}; its client sees {row.exception}"
    if row["rule"] == "client_unsupported":
        return (
            f"P{producer[1:]} on {row.topic} receives no command: its client does not"
            f" support it (reason {row.reason})"
        )
    pause = "an unknown time"
    if row["pause_ms"]:
        pause = f"{row.pause_ms:ms}, until {row.end_ms:clock}"
    text = (
        f"P{producer[1:]} on {row.topic} receives a command to pause for {pause}"
        f" (command {row.request_id:n}, reason {row.reason})"
    )
    if row["throttled_ms_total"]:
        text += f"; {row.throttled_ms_total:ms} announced so far on this connection"
    return text
