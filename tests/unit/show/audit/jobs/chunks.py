"""The audit of chunks: rows of the example of the semantics, and their damage."""

from __future__ import annotations

from typing import Any

from tests.support.semantics_chunks import START_MS, UPSTREAM, example
from tests.unit.show.audit.jobs.job import (
    RANGE,
    SET,
    Conflict,
    Damage,
    Job,
    add,
    change,
    lose,
    written,
)

TABLES = (
    "chunk_messages",
    "chunk_events",
    "chunk_state",
    "incomplete_messages",
    "chunk_topic_stats",
)
MESSAGES, EVENTS, STATE, INCOMPLETE, TOPICS = TABLES
VARIANTS: dict[str, dict[str, Any]] = {"east": {"defects": UPSTREAM}, "west": {"defects": []}}
"""Cluster `east` has the defects of released clients, `west` has none."""
KEY = "cluster,topic,ts_wall_ms,row_no"
POSITIONS = "positions are ledger:entry"
WINDOW = "a window is written at its end"
LEAKED = "leaked is counter less contexts"
DECIDED, WHOLE = "every message has its decision", "what is complete is a message"
HELD = "contexts are the incomplete messages, with their bytes"
KEPT = "every incomplete message has the state of its consumer"

DAMAGE: dict[str, list[Damage]] = {
    MESSAGES: [
        (0, {"integrity": "whole"}, [(SET, "integrity")]),
        (0, {"integrity": "short"}, ["integrity agrees with the sizes"]),
        (0, {"assembled_bytes": 199}, ["integrity agrees with the sizes"]),
        (0, {"integrity": "unknown"}, ["integrity agrees with the sizes"]),
        (0, {"integrity": "too_large", "checksum": 0}, ["integrity agrees with the sizes"]),
        (0, {"checksum": 2**32}, [(RANGE, "checksum")]),
        (
            0,
            {"num_chunks": 3},
            ["a message has a position for every chunk, from the first to the last"],
        ),
        (
            0,
            {"last_position": "7:1"},
            ["a message has a position for every chunk, from the first to the last"],
        ),
        (0, {"positions": ["7:1", "7"], "last_position": "7"}, [POSITIONS]),
        (0, {"assembly_ms": 1}, ["assembly_ms is the time between the first chunk and the last"]),
        (
            0,
            {"payload": b"x" * 200, "checksum": 1},
            ["a payload has the length and the sum of its row"],
        ),
    ],
    EVENTS: [
        (1, {"outcome": "LOST", "rule": "LOST"}, [(SET, "outcome")]),
        (0, {"rule": "GAP+B9"}, ["a rule is its outcome, with at most one defect"]),
        (0, {"rule": "COMPLETE"}, ["a rule is its outcome, with at most one defect"]),
        (0, {"chunk_id": 3}, ["a chunk is one of its message"]),
        (0, {"permits": 2}, [(RANGE, "permits")]),
        (0, {"position": "7"}, [POSITIONS]),
        (0, {"acks": ["7:2"]}, ["a position has one fate in a row"]),
        (1, {"orphaned": ["7:1"]}, ["only a gap or an end orphans"]),
        (0, {"leaked": 0}, [LEAKED]),
        (-1, {"leaked": 1, "counter": 1}, ["nothing leaks without B1"]),
    ],
    STATE: [
        (0, {"counter": 3}, [LEAKED]),
        (0, {"oldest_age_ms": None}, ["contexts have an age"]),
        (0, {"fifo_length": 0}, ["every context stands in the fifo"]),
        (0, {"permits_lost": -1}, [(RANGE, "permits_lost")]),
        (0, {"rule": "closed"}, [WINDOW]),
        (
            0,
            {"contexts": 0, "leaked": 2, "oldest_age_ms": None},
            ["nothing is buffered without contexts"],
        ),
    ],
    INCOMPLETE: [
        (0, {"next_chunk_id": 3}, ["a message waits for one of its chunks"]),
        (0, {"last_chunk_ms": START_MS}, ["the times of a message follow each other"]),
        (0, {"ts_wall_ms": START_MS + 60_001, "age_ms": 52_001}, [WINDOW]),
    ],
    TOPICS: [
        (0, {"msg_chunk_published": True}, ["msg_chunk_published says whether there were chunks"]),
        (0, {"producers": 1}, ["chunks bound the first ones and the producers"]),
        (0, {"chunked_message_rate": 1.0}, ["chunks bound the first ones and the producers"]),
        (
            0,
            {"window_ms": 59_999, "window_start_ms": START_MS + 1},
            ["windows are aligned to the epoch"],
        ),
    ],
}

JOB = Job(
    "chunks",
    TABLES,
    written("chunks", example, VARIANTS),
    keys={
        MESSAGES: (KEY,),
        EVENTS: (KEY,),
        STATE: (KEY, "cluster,topic,subscription,consumer,window_start_ms"),
        INCOMPLETE: (
            KEY,
            "cluster,topic,subscription,consumer,uuid,first_position,window_start_ms",
        ),
        TOPICS: (KEY, "cluster,topic,window_start_ms"),
    },
    damage=DAMAGE,
    conflicts=[
        *(
            Conflict(
                f"a message and its decision differ in {column}",
                {MESSAGES: change(0, **{column: value})},
                {MESSAGES: {DECIDED: 1}, EVENTS: {WHOLE: 1}},
            )
            for column, value in (
                ("uuid", "other"),
                ("ts_wall_ms", START_MS + 1),
                ("last_position", "7:9"),
                ("consumer", "other"),
                ("num_chunks", 9),
            )
        ),
        *(
            Conflict(
                f"a state has more {column} than its messages",
                {STATE: add(0, column)},
                {STATE: {HELD: 1}},
            )
            for column in ("contexts", "buffered_bytes", "declared_bytes")
        ),
        Conflict("an incomplete message is lost", {INCOMPLETE: lose(1)}, {STATE: {HELD: 1}}),
        Conflict(
            "an incomplete message is of no consumer",
            {INCOMPLETE: change(0, consumer="other")},
            {INCOMPLETE: {KEPT: 1}},
        ),
    ],
)
