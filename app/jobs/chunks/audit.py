"""What must hold of the tables of the job chunks."""

from __future__ import annotations

from app.show.audit.checks import (
    AuditCheck,
    between,
    derived,
    no_rows,
    not_null,
    rows_that,
    suite,
    window_checks,
)
from app.tables.definitions import TABLES

DEFECTS = ("B1", "B2", "B3", "B4", "B7", "B8")
_POSITION = "^[0-9]+:[0-9]+$"
_POSITIONS = ("acks", "tracked", "orphaned")
_SIZES_BY_INTEGRITY = """
CASE integrity
  WHEN 'exact' THEN assembled_bytes IS NULL OR assembled_bytes <> declared_bytes
  WHEN 'short' THEN assembled_bytes IS NULL OR assembled_bytes >= declared_bytes
  WHEN 'unknown' THEN assembled_bytes IS NOT NULL
  ELSE payload IS NOT NULL OR checksum IS NOT NULL
END
"""


_CONSUMER = ("cluster", "topic", "subscription", "consumer")


def _same(left: str, right: str, *columns: str) -> str:
    """Two rows agree in these columns, and in whose they are."""
    return " AND ".join(
        f"{left}.{c} IS NOT DISTINCT FROM {right}.{c}" for c in (*_CONSUMER, *columns)
    )


_WHOLE_WITHOUT_DECISION = f"""
SELECT m.* FROM {{batch}} AS m
ANTI JOIN chunk_events AS e ON {_same("m", "e", "uuid", "ts_wall_ms", "num_chunks")}
  AND e.outcome = 'COMPLETE' AND e.position = m.last_position
"""
_DECISION_WITHOUT_WHOLE = f"""
SELECT e.* FROM {{batch}} AS e
ANTI JOIN chunk_messages AS m ON {_same("m", "e", "uuid", "ts_wall_ms", "num_chunks")}
  AND e.position = m.last_position
WHERE e.outcome = 'COMPLETE'
"""
_STATE_UNLIKE_MESSAGES = f"""
SELECT s.* FROM {{batch}} AS s LEFT JOIN (
  SELECT {", ".join(_CONSUMER)}, window_start_ms, count(*) AS contexts,
    sum(buffered_bytes) AS buffered_bytes, sum(declared_bytes) AS declared_bytes
  FROM incomplete_messages WHERE state = 'assembling' GROUP BY ALL
) AS i ON {_same("s", "i", "window_start_ms")}
WHERE {
    " OR ".join(
        f"s.{c} <> coalesce(i.{c}, 0)" for c in ("contexts", "buffered_bytes", "declared_bytes")
    )
}
"""
_MESSAGE_WITHOUT_STATE = f"""
SELECT i.* FROM {{batch}} AS i ANTI JOIN chunk_state AS s ON {_same("s", "i", "window_start_ms")}
WHERE i.state = 'assembling'
"""
_STALLED_WITHOUT_HEAD = f"""
SELECT i.* FROM {{batch}} AS i ANTI JOIN incomplete_messages AS h
ON {_same("i", "h", "window_start_ms", "stalled_at")} AND h.first_position = h.stalled_at
WHERE i.state = 'stalled'
"""


def _unlike_positions(positions: str) -> str:
    """Some of a list of positions are not ledger:entry."""
    return f"len(list_filter({positions}, lambda p: NOT regexp_matches(p, '{_POSITION}'))) > 0"


def _no_leak_amiss() -> list[AuditCheck]:
    return [
        rows_that("leaked is counter less contexts", "leaked <> counter - contexts"),
        rows_that(
            "nothing leaks without B1",
            "leaked <> 0 AND NOT list_contains(string_split(switches['defects'], ','), 'B1')",
        ),
    ]


def _suites() -> dict[str, list[AuditCheck]]:
    return {
        "chunk_messages": [
            *derived(TABLES["chunk_messages"]),
            rows_that(
                "a message has a position for every chunk, from the first to the last",
                "len(positions) <> num_chunks OR positions[1] <> first_position"
                " OR positions[-1] <> last_position",
            ),
            rows_that("positions are ledger:entry", _unlike_positions("positions")),
            rows_that("integrity agrees with the sizes", _SIZES_BY_INTEGRITY),
            rows_that(
                "assembly_ms is the time between the first chunk and the last",
                "assembly_ms < 0 OR assembly_ms <> complete_ms - first_chunk_ms"
                " OR complete_ms <> ts_wall_ms",
            ),
            rows_that(
                "a payload has the length and the sum of its row",
                "payload IS NOT NULL"
                " AND (octet_length(payload) <> assembled_bytes OR crc32(payload) <> checksum)",
            ),
        ],
        "chunk_events": [
            *derived(TABLES["chunk_events"]),
            rows_that(
                "a rule is its outcome, with at most one defect",
                "rule <> outcome"
                f" AND NOT regexp_matches(rule, concat('^', outcome, '[+]({'|'.join(DEFECTS)})$'))",
            ),
            rows_that("a chunk is one of its message", "chunk_id >= num_chunks"),
            rows_that(
                "positions are ledger:entry",
                _unlike_positions(f"{' || '.join(_POSITIONS)} || [position]"),
            ),
            rows_that(
                "a position has one fate in a row",
                "len(list_distinct(acks || tracked || orphaned))"
                " <> len(acks) + len(tracked) + len(orphaned)",
            ),
            rows_that(
                "only a gap or an end orphans",
                "len(orphaned) > 0 AND outcome NOT IN ('GAP', 'ORPHANED')",
            ),
            *_no_leak_amiss(),
        ],
        "chunk_state": [
            *derived(TABLES["chunk_state"]),
            *window_checks("cluster", "topic", "subscription", "consumer"),
            *_no_leak_amiss(),
            rows_that("contexts have an age", "(contexts > 0) <> (oldest_age_ms IS NOT NULL)"),
            rows_that("every context stands in the fifo", "fifo_length < contexts"),
            rows_that(
                "nothing is buffered without contexts",
                "contexts = 0 AND (buffered_bytes <> 0 OR declared_bytes <> 0)",
            ),
        ],
        "incomplete_messages": [
            *derived(TABLES["incomplete_messages"]),
            *window_checks(
                "cluster", "topic", "subscription", "consumer", "uuid", "first_position"
            ),
            rows_that(
                "only a stalled message has no consumer and a place where its subscription stands",
                "(state = 'stalled') <> (stalled_at IS NOT NULL)"
                " OR (state = 'stalled') <> (missing_chunks IS NOT NULL)"
                " OR (state = 'stalled') <> (consumer IS NULL)"
                " OR (state = 'stalled' AND expires_ms IS NOT NULL)"
                " OR (first_position = stalled_at AND len(missing_chunks) = 0)",
            ),
            rows_that("a message waits for one of its chunks", "next_chunk_id > num_chunks"),
            rows_that(
                "the times of a message follow each other",
                "first_chunk_ms > last_chunk_ms OR last_chunk_ms > ts_wall_ms"
                " OR age_ms <> ts_wall_ms - first_chunk_ms OR expires_ms <= first_chunk_ms",
            ),
        ],
        "chunk_topic_stats": [
            *derived(TABLES["chunk_topic_stats"]),
            *window_checks("cluster", "topic"),
            rows_that(
                "msg_chunk_published says whether there were chunks",
                "msg_chunk_published <> (chunks > 0)",
            ),
            rows_that(
                "chunks bound the first ones and the producers",
                "producers > chunks OR chunked_message_rate * window_ms / 1000 > chunks + 0.5",
            ),
        ],
    }


SUITES: dict[str, list[AuditCheck]] = {
    **_suites(),
    "chunk_payloads": suite(
        "chunk_payloads",
        *not_null("cluster", "topic", "ledger_id", "entry_id", "payload"),
    ),
    "chunk_payload_releases": suite(
        "chunk_payload_releases",
        *not_null("file", "rows"),
        between("rows", 1),
    ),
}
ACROSS: dict[str, list[AuditCheck]] = {
    "chunk_messages": [
        no_rows("every message has its decision", _WHOLE_WITHOUT_DECISION, "chunk_events"),
    ],
    "chunk_events": [
        no_rows("what is complete is a message", _DECISION_WITHOUT_WHOLE, "chunk_messages"),
    ],
    "chunk_state": [
        no_rows(
            "contexts are the incomplete messages, with their bytes",
            _STATE_UNLIKE_MESSAGES,
            "incomplete_messages",
        ),
    ],
    "incomplete_messages": [
        no_rows(
            "every incomplete message has the state of its consumer",
            _MESSAGE_WITHOUT_STATE,
            "chunk_state",
        ),
        no_rows(
            "a stalled subscription stands at a chunk of a stalled message",
            _STALLED_WITHOUT_HEAD,
            "incomplete_messages",
        ),
    ],
}
