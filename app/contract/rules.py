"""The rules on single records (contract section 6): one entry a rule, in the order of its rows.

An entry has the code, its meaning, how the detail of a row is told, and the check. A check looks at
one `Record` and returns the columns at fault, none if the record keeps the rule.
`app.contract.validation` compiles the checks into its pass over a block; this module loads no
compiler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from app.contract.parsing.layout import bits
from app.contract.reasons import (
    Detail,
    clocks_by_job,
    columns_at_fault,
    decoder_message,
    policy_problem,
    polled_problem,
)
from state.events import COMMON, KIND_INDEX, KINDS, QUOTA_TYPES, WALL
from state.jobs import DECLARED
from udfs.topics import INCOMPLETE, NOT_PERSISTENT

Array = np.ndarray

POLLED_FEEDS = ("pulsar_admin", "kafka_groups", "kafka_quotas")
"""Feeds without a monotonic clock: only jobs declared `polled` read their records, policies
excepted."""
KAFKA_KINDS = ("produce_batch", "producer_id_assigned", "client_request", "client_rate")
SUB_TYPES = ("exclusive", "failover", "shared", "key_shared")
CURSOR_STATE, BAD_DOCUMENT = KIND_INDEX["cursor_state"], KIND_INDEX["bad_document"]


def columns(*names: str) -> tuple[np.uint64, ...]:
    """The bit set of some columns, word by word."""
    return bits(names)


NONE = np.uint64(0)
EVENT_TYPE, TOPIC, PRODUCER_ID = columns("event_type"), columns("topic"), columns("producer_id")
SUB_TYPE, POLICY, PROBLEM = columns("sub_type"), columns("policy_json"), columns("problem")
QUOTA_TYPE = columns("quota_type")
CURSOR = columns("mark_delete", "read_pos")
CLOCKS = columns(
    "ts_wall_ms",
    "publish_time_ms",
    "broker_time_ms",
    "ledger_close_ms",
    "gap_from_wall_ms",
    "digest_from_wall_ms",
)
AMOUNTS = columns(
    "entry_bytes",
    "num_messages",
    "total_chunk_bytes",
    "ledger_entries",
    "ledger_bytes",
    "dropped",
    "expired_messages",
    "log_start",
    "unread",
    "publishes",
    "charged_bytes",
    "handler_time_ns",
    "mutations",
    "throttle_ms",
    "value_milli",
    "throttle_avg_milli",
)
IDS = columns("ledger_id", "entry_id")
POSITIONS = columns("mark_delete", "read_pos", "acked_ranges", "marker_ids")
CHUNK = columns("uuid", "chunk_id", "total_chunk_bytes")
NUM_CHUNKS, CHUNK_ID, NUM_MESSAGES = (
    columns(name) for name in ("num_chunks", "chunk_id", "num_messages")
)


class Record(NamedTuple):
    """What the checks see of a record that could be decoded. A set of columns has a bit for each, in
    words: the checks run once for each word, and compare it with that word of their own sets."""

    word: np.int64
    kind: np.int64
    """Index into `KINDS`, -1 unknown."""
    kafka_kind: bool
    kafka: bool
    """The topic is a Kafka name."""
    present: np.uint64
    """Columns that are not null."""
    negative: np.uint64
    """Number columns below 0."""
    bad_type: np.uint64
    """Columns whose value did not fit; they are null."""
    missing: np.uint64
    """Columns that every record or this kind needs, and that are null or empty."""
    missing_clocks: np.uint64
    """Clocks that enabled jobs need, and that are null."""
    refused: np.uint64
    """Text columns whose value is not one of theirs: positions, types, policy."""
    topic: np.uint8
    """Flags of `udfs.topics`; 0 for a Kafka name."""
    producer_id: np.int64
    """0 unless negative."""
    num_chunks: np.int64
    """0 for null."""
    chunk_id: np.int64
    """0 for null and outside chunks, as the next one."""
    num_messages: np.int64


class Rule(NamedTuple):
    """One rule of the contract."""

    code: str
    meaning: str
    check: Callable[[Record], np.uint64]
    detail: Detail


RULES: list[Rule] = []
"""In the order of the rows of one record."""


def rule(
    code: str, meaning: str, detail: Detail = columns_at_fault
) -> Callable[[Callable[[Record], np.uint64]], Callable[[Record], np.uint64]]:
    """Enter a check into the table, as the next rule."""

    def enter(check: Callable[[Record], np.uint64]) -> Callable[[Record], np.uint64]:
        RULES.append(Rule(code, meaning, check, detail))
        return check

    return enter


@rule("UNPARSEABLE", "the record cannot be decoded into the columns at all", decoder_message)
def unparseable(record: Record) -> np.uint64:
    """Decided by the parser: such a record has no columns to check."""
    return NONE


@rule(
    "BAD_TYPE",
    "a value does not fit its type, an integer exceeds its bits, or a text 8 MiB"
    " (`topic_bytes` 1 MiB, `policy_json` 256 KiB)",
)
def bad_type(record: Record) -> np.uint64:
    return record.bad_type


@rule("UNKNOWN_EVENT_TYPE", "`event_type` is null or no known kind")
def unknown_event_type(record: Record) -> np.uint64:
    return EVENT_TYPE[record.word] & ~record.bad_type if record.kind < 0 else NONE


@rule("MISSING_REQUIRED", "a column that every record or this kind needs is null or empty")
def missing_required(record: Record) -> np.uint64:
    return record.missing


@rule(
    "MISSING_CLOCK",
    "the clock of an enabled job that reads the kind is null; a row per job",
    clocks_by_job,
)
def missing_clock(record: Record) -> np.uint64:
    return record.missing_clocks


@rule(
    "CLOCK_OUT_OF_RANGE",
    "a time is negative, or too far from the plan of its batch or from the other clock",
)
def clock_out_of_range(record: Record) -> np.uint64:
    """Only the sign: the packer and the cores compare times with the plan and the other clock."""
    return record.negative & CLOCKS[record.word]


@rule(
    "NEGATIVE_AMOUNT",
    "a size, a count, a duration or a rate is negative; `value_milli` may be where it has tokens",
)
def negative_amount(record: Record) -> np.uint64:
    return record.negative & AMOUNTS[record.word]


@rule(
    "BAD_POSITION",
    "a ledger, an entry, a position `ledger:entry` or a range of `acked_ranges` is not one",
)
def bad_position(record: Record) -> np.uint64:
    return record.negative & IDS[record.word] | record.refused & POSITIONS[record.word]


@rule("BAD_PRODUCER_ID", "`producer_id` is below -1, or below 0 on a Pulsar kind")
def bad_producer_id(record: Record) -> np.uint64:
    pulsar_kind = record.kind >= 0 and not record.kafka_kind
    below = record.negative & PRODUCER_ID[record.word]
    return below if pulsar_kind or record.producer_id < -1 else NONE


@rule(
    "BAD_TOPIC",
    "a Pulsar topic without tenant, namespace and name; a topic is Kafka's on a Kafka"
    " kind and where `source_feed` begins with `kafka`",
)
def bad_topic(record: Record) -> np.uint64:
    return TOPIC[record.word] if record.topic & INCOMPLETE else NONE


@rule("BAD_SUB_TYPE", "`sub_type` is not exclusive, failover, shared or key_shared")
def bad_sub_type(record: Record) -> np.uint64:
    return record.refused & SUB_TYPE[record.word]


@rule("BAD_QUOTA_TYPE", f"`quota_type` is not one of {', '.join(QUOTA_TYPES)}")
def bad_quota_type(record: Record) -> np.uint64:
    return record.refused & QUOTA_TYPE[record.word]


@rule("CHUNK_FIELDS_INCOMPLETE", "chunked, and `uuid`, `chunk_id` or `total_chunk_bytes` is null")
def chunk_fields_incomplete(record: Record) -> np.uint64:
    absent = CHUNK[record.word] & ~record.present & ~record.bad_type
    return absent if record.num_chunks > 1 else NONE


@rule("CHUNK_ID_OUT_OF_RANGE", "chunked, and not 0 <= `chunk_id` < `num_chunks`")
def chunk_id_out_of_range(record: Record) -> np.uint64:
    inside = 0 <= record.chunk_id < record.num_chunks
    return NONE if inside or record.num_chunks <= 1 else record.present & CHUNK_ID[record.word]


@rule("CHUNK_IN_BATCH", "chunked, and `num_messages` is above 1")
def chunk_in_batch(record: Record) -> np.uint64:
    batch = record.num_chunks > 1 and record.num_messages > 1
    return record.present & NUM_MESSAGES[record.word] if batch else NONE


@rule("CHUNK_NON_PERSISTENT", "chunked on a non-persistent topic")
def chunk_non_persistent(record: Record) -> np.uint64:
    return TOPIC[record.word] if record.num_chunks > 1 and record.topic & NOT_PERSISTENT else NONE


@rule(
    "BAD_POLICY",
    "`policy_json` is not a policy document; of one with unknown limit keys the"
    " detail names these, and the rest of the document holds",
    policy_problem,
)
def bad_policy(record: Record) -> np.uint64:
    return record.refused & POLICY[record.word]


@rule(
    "BAD_DOCUMENT",
    "a polled document, or the part of it that the detail names, cannot be used",
    polled_problem,
)
def bad_document(record: Record) -> np.uint64:
    return PROBLEM[record.word] if record.kind == BAD_DOCUMENT else NONE


CODES: tuple[str, ...] = tuple(rule.code for rule in RULES)


def bit_of(code: str) -> np.int32:
    """The bit of a rule in the set of the rules that a record breaks."""
    return np.int32(1 << CODES.index(code))


class KindTable(NamedTuple):
    """What the kinds need, by kind, the last row for an unknown one. An argument of the compiled
    pass, so that no compiled cache outlives the declarations of the jobs.
    """

    required: Array
    """Columns, by word and kind."""
    readers: Array
    """Jobs (a bit each) by polled feed or not and kind."""
    clocks: Array
    """Clock, as a set of columns of the first word, by kind and job."""
    kafka: Array


def _kind_table() -> KindTable:
    count = len(KINDS)
    required = np.tile(np.array([bits(COMMON)]).T, count + 1)
    readers = np.zeros((2, count + 1), np.uint8)
    clocks = np.zeros((count + 1, len(DECLARED)), np.uint64)
    for k, kind in enumerate(KINDS):
        required[:, k] |= np.array(columns(*kind.required))
        for j, job in enumerate(DECLARED.values()):
            clocks[k, j] = columns(WALL if kind.name == "policy" else job.clock)[0]
            if kind.name in job.kinds:
                readers[0, k] |= 1 << j
                if job.polled or kind.name == "policy":
                    readers[1, k] |= 1 << j
    kafka = np.array([*(kind.name in KAFKA_KINDS for kind in KINDS), False])
    return KindTable(required, readers, clocks, kafka)


KIND_TABLE = _kind_table()
