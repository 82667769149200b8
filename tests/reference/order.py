"""Records of one key in the order of section 2 of the event contract."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.reference.words import words

Record = dict[str, Any]

KINDS = words(
    "broker_started connection_opened connection_closed producer_created producer_closed"
    " consumer_created consumer_closed publish entry_added reads_paused reads_resumed"
    " throttle_receipt send_timeout dispatch ack entry_read entry_released replay_queued"
    " entry_invalidated cursor_state cursor_deleted ledger_state ledger_deleted produce_batch"
    " producer_id_assigned policy gap group_state publish_digest client_request client_rate"
)
_OTHERS = words(
    "source_feed ts_wall_ms cnx_id supports_throttle reports_pauses io_thread producer_id"
    " producer_name sequence_id entry_bytes num_messages publish_time_ms request_id policy_json"
    " gap_from_mono_ns gap_from_wall_ms dropped"
)


def nulls_first(value: Any) -> tuple[bool, Any]:
    """A value of a column as it is ordered: text by its bytes, lists member by member."""
    if value is None:
        return False, 0
    if isinstance(value, list):
        return True, [nulls_first(each) for each in value]
    return True, value.encode() if isinstance(value, str) else value


def each_once(
    records: Iterable[Record], level: Callable[[Record], tuple[Any, ...]]
) -> list[Record]:
    """Records of one key by a level that begins with their wall time; of repeated ones the first."""
    found: list[Record] = []
    known: set[tuple[Any, ...]] = set()
    for r in sorted(records, key=level):
        identity = (r["ts_wall_ms"], r["source_feed"], r["broker"], r.get("seq"))
        if r.get("seq") is None or identity not in known:
            known.add(identity)
            found.append(r)
    return found


def _follows(record: Record, start: Record) -> bool:
    if record["ts_wall_ms"] is not None and start["ts_wall_ms"] is not None:
        return bool(record["ts_wall_ms"] >= start["ts_wall_ms"])
    return nulls_first(record.get("seq")) >= nulls_first(start.get("seq"))


def in_order(records: Sequence[Record], others: Sequence[str] = _OTHERS) -> list[Record]:
    """Sorted by runs of the broker, monotonic time and place, and where all that is equal by `others`;
    without repeated feed records."""
    starts = sorted(
        (r for r in records if r["event_type"] == "broker_started"),
        key=lambda r: (nulls_first(r["ts_wall_ms"]), nulls_first(r.get("seq"))),
    )

    def level(record: Record) -> tuple[Any, ...]:
        is_start = record["event_type"] == "broker_started"
        if is_start:
            run = 1 + next(i for i, start in enumerate(starts) if start is record)
        else:
            run = sum(_follows(record, start) for start in starts)
        found = re.match(
            r"^(.+)-partition-(0|[1-9][0-9]{0,8})\Z", record.get("topic") or "", re.DOTALL
        )
        base = found.group(1) if found else record.get("topic")
        return (
            run,
            not is_start,
            record["ts_mono_ns"],
            nulls_first(record.get("seq")),
            nulls_first(base),
            int(found.group(2)) if found else -1,
            nulls_first(record.get("ledger_id")),
            nulls_first(record.get("entry_id")),
            KINDS.index(record["event_type"]),
            *[nulls_first(record.get(column)) for column in others],
        )

    levels = sorted(((level(r), i) for i, r in enumerate(records)))
    found: list[Record] = []
    known: set[tuple[Any, ...]] = set()
    for key, i in levels:
        record = records[i]
        identity = (key[0], record["ts_mono_ns"], record["source_feed"], record.get("seq"))
        if record.get("seq") is not None and identity in known:
            continue
        known.add(identity)
        found.append(record)
    return found
