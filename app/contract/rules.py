"""The rules on single records of the contract (section 6), and the values that they compare with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from app.contract.parsing.layout import bit, bits
from state.events import COMMON, KIND_INDEX, KINDS, WALL
from state.jobs import DECLARED

Array = np.ndarray

RULES: tuple[tuple[str, str], ...] = (
    ("UNPARSEABLE", "the record cannot be decoded into the columns at all"),
    ("BAD_TYPE", "a value does not fit its type, an integer exceeds its bits, or a text 8 MiB"),
    ("UNKNOWN_EVENT_TYPE", "`event_type` is null or no known kind"),
    ("MISSING_REQUIRED", "a column that every record or this kind needs is null or empty"),
    ("MISSING_CLOCK", "the clock of an enabled job that reads the kind is null; a row per job"),
    (
        "CLOCK_OUT_OF_RANGE",
        "a time is negative, or too far from the plan of its batch or from the other clock",
    ),
    ("NEGATIVE_AMOUNT", "a size or a count is negative"),
    (
        "BAD_POSITION",
        "a ledger, an entry, a position `ledger:entry` or a range of `acked_ranges` is not one",
    ),
    ("BAD_PRODUCER_ID", "`producer_id` is below -1, or below 0 on a Pulsar kind"),
    (
        "BAD_TOPIC",
        "a Pulsar topic without tenant, namespace and name; a topic is Kafka's on a Kafka"
        " kind and where `source_feed` begins with `kafka`",
    ),
    ("BAD_SUB_TYPE", "`sub_type` is not exclusive, failover, shared or key_shared"),
    ("CHUNK_FIELDS_INCOMPLETE", "chunked, and `uuid`, `chunk_id` or `total_chunk_bytes` is null"),
    ("CHUNK_ID_OUT_OF_RANGE", "chunked, and not 0 <= `chunk_id` < `num_chunks`"),
    ("CHUNK_IN_BATCH", "chunked, and `num_messages` is above 1"),
    ("CHUNK_NON_PERSISTENT", "chunked on a non-persistent topic"),
    (
        "BAD_POLICY",
        "`policy_json` is not a policy document; of one with unknown limit keys the"
        " detail names these, and the rest of the document holds",
    ),
    ("BAD_DOCUMENT", "a polled document, or the part of it that the detail names, cannot be used"),
)
"""Codes and their meanings, in the order of the rows of one record."""
(
    UNPARSEABLE,
    BAD_TYPE,
    UNKNOWN_EVENT_TYPE,
    MISSING_REQUIRED,
    MISSING_CLOCK,
    CLOCK_OUT_OF_RANGE,
    NEGATIVE_AMOUNT,
    BAD_POSITION,
    BAD_PRODUCER_ID,
    BAD_TOPIC,
    BAD_SUB_TYPE,
    CHUNK_FIELDS_INCOMPLETE,
    CHUNK_ID_OUT_OF_RANGE,
    CHUNK_IN_BATCH,
    CHUNK_NON_PERSISTENT,
    BAD_POLICY,
    BAD_DOCUMENT,
) = range(len(RULES))
CODES: tuple[str, ...] = tuple(code for code, _ in RULES)
COLUMN_OF_RULE = {
    UNKNOWN_EVENT_TYPE: "event_type",
    BAD_PRODUCER_ID: "producer_id",
    BAD_TOPIC: "topic",
    BAD_SUB_TYPE: "sub_type",
    CHUNK_ID_OUT_OF_RANGE: "chunk_id",
    CHUNK_IN_BATCH: "num_messages",
    CHUNK_NON_PERSISTENT: "topic",
}
"""Rules on one column."""

POLLED_FEEDS = ("pulsar_admin", "kafka_groups")
"""Feeds without a monotonic clock: only jobs declared `polled` read their records, policies
excepted."""
KAFKA_KINDS = ("produce_batch", "producer_id_assigned")
SUB_TYPES = ("exclusive", "failover", "shared", "key_shared")

CURSOR = bits(("mark_delete", "read_pos"))
CLOCKS = bits(
    ("ts_wall_ms", "publish_time_ms", "broker_time_ms", "ledger_close_ms", "gap_from_wall_ms")
)
AMOUNTS = bits(
    (
        "entry_bytes",
        "num_messages",
        "total_chunk_bytes",
        "ledger_entries",
        "ledger_bytes",
        "dropped",
        "expired_messages",
        "log_start",
        "unread",
    )
)
IDS = bits(("ledger_id", "entry_id"))
CHUNK = bits(("uuid", "chunk_id", "total_chunk_bytes"))
POLLED, KAFKA = 1, 2
"""Flags of a feed."""


class Masks(NamedTuple):
    """Bit sets and tables of the compiled pass. They are arguments, so that no compiled cache
    outlives them.
    """

    required: Array
    """By kind, the last one for an unknown kind."""
    cursor_state: int
    bad_document: int
    readers: Array
    """Jobs (a bit each) by polled feed or not and kind."""
    needs: Array
    """Clock bit by kind and job."""
    kafka_kind: Array
    event_type: np.uint64
    cursor: np.uint64
    clocks: np.uint64
    amounts: np.uint64
    ids: np.uint64
    chunk: np.uint64
    producer_id: np.uint64
    num_chunks: np.uint64
    chunk_id: np.uint64
    num_messages: np.uint64


def _masks() -> Masks:
    count = len(KINDS)
    required = np.full(count + 1, bits(COMMON), np.uint64)
    readers = np.zeros((2, count + 1), np.uint8)
    needs = np.zeros((count + 1, len(DECLARED)), np.uint64)
    for k, kind in enumerate(KINDS):
        required[k] |= np.uint64(bits(kind.required))
        for j, job in enumerate(DECLARED.values()):
            needs[k, j] = bit(WALL if kind.name == "policy" else job.clock)
            if kind.name in job.kinds:
                readers[0, k] |= 1 << j
                if job.polled or kind.name == "policy":
                    readers[1, k] |= 1 << j
    kafka = np.array([kind.name in KAFKA_KINDS for kind in KINDS] + [False])
    one = [bit(c) for c in ("producer_id", "num_chunks", "chunk_id", "num_messages")]
    sets = [bit("event_type"), CURSOR, CLOCKS, AMOUNTS, IDS, CHUNK, *one]
    return Masks(
        required,
        KIND_INDEX["cursor_state"],
        KIND_INDEX["bad_document"],
        readers,
        needs,
        kafka,
        *(np.uint64(m) for m in sets),
    )


MASKS = _masks()
