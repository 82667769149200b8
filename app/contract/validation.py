"""The rules on single records of the contract (section 6), applied to a whole block at once.

One compiled pass over bit sets and numbers. Before it, names, positions and policies are validated
once per distinct value. Reasons are written only for the records that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.contract.parsing.block import Block
from app.contract.reasons import SCHEMA, BrokenRules, bad_rows
from app.contract.rules import (
    BAD_DOCUMENT,
    BAD_POLICY,
    BAD_POSITION,
    BAD_PRODUCER_ID,
    BAD_SUB_TYPE,
    BAD_TOPIC,
    BAD_TYPE,
    CHUNK_FIELDS_INCOMPLETE,
    CHUNK_ID_OUT_OF_RANGE,
    CHUNK_IN_BATCH,
    CHUNK_NON_PERSISTENT,
    CLOCK_OUT_OF_RANGE,
    KAFKA,
    MASKS,
    MISSING_CLOCK,
    MISSING_REQUIRED,
    NEGATIVE_AMOUNT,
    POLLED,
    POLLED_FEEDS,
    SUB_TYPES,
    UNKNOWN_EVENT_TYPE,
    UNPARSEABLE,
    Masks,
)
from state import policies
from state.events import KIND_INDEX
from state.jobs import JOBS
from udfs.positions import are_ranges, parse_positions
from udfs.topics import INCOMPLETE, NOT_PERSISTENT, classify_topics

Array = np.ndarray

POSITIONS = ("mark_delete", "read_pos", "acked_ranges")
"""Text columns of positions and their ranges."""


class _Flags(NamedTuple):
    """Findings per distinct value, by the codes of the column; the last one is for null."""

    kind: Array
    feed: Array
    topic: Array
    mark_delete: Array
    read_pos: Array
    acked_ranges: Array
    sub_type: Array
    policy: Array


class _Codes(NamedTuple):
    event_type: Array
    source_feed: Array
    topic: Array
    mark_delete: Array
    read_pos: Array
    acked_ranges: Array
    sub_type: Array
    policy_json: Array


class _Numbers(NamedTuple):
    producer_id: Array
    num_chunks: Array
    chunk_id: Array
    num_messages: Array


@dataclass
class Verdicts:
    """The result of the rules for each record of a block."""

    valid: Array
    """Every rule but MISSING_CLOCK holds (bool). A policy with unknown keys only is valid."""
    applies: Array
    """Jobs that could apply the record, enabled or not: bit j is job j of `JOBS` (uint8)."""
    missing_clock: Array
    """Enabled jobs that cannot apply it because their clock is null (uint8)."""
    kind: Array
    """Index into `KINDS`, -1 unknown (int8)."""
    kafka: Array
    """Whether the topic is a Kafka name (bool)."""
    bad: pa.Table
    """One row per failed rule, by record and in the order of the rules: `reasons.SCHEMA`."""


@numba.njit(cache=True, nogil=True)
def _validate(
    present: Array,
    empty: Array,
    negative: Array,
    bad_type: Array,
    codes: _Codes,
    flags: _Flags,
    numbers: _Numbers,
    masks: Masks,
    enabled: np.uint8,
    failed: Array,
    missing: Array,
    applies: Array,
    no_clock: Array,
    kinds: Array,
    kafka: Array,
) -> None:
    """Set a bit per failed rule in `failed` (the caller sets UNPARSEABLE), and the other results."""
    none = np.uint64(0)
    for i in range(len(failed)):
        if failed[i]:
            continue
        here, below, bad = present[i], negative[i], bad_type[i]
        filled = here & ~empty[i]
        fail = 0
        if bad != none:
            fail |= 1 << BAD_TYPE
        kind = np.int64(flags.kind[codes.event_type[i]])
        kinds[i] = kind
        if kind < 0 and bad & masks.event_type == none:
            fail |= 1 << UNKNOWN_EVENT_TYPE
        lacking = masks.required[kind] & ~filled & ~bad
        if kind == masks.cursor_state and (filled | bad) & masks.cursor == none:
            lacking |= masks.cursor
        if lacking != none:
            fail |= 1 << MISSING_REQUIRED
            missing[i] = lacking
        feed = flags.feed[codes.source_feed[i]]
        readers = masks.readers[1 if feed & POLLED else 0, kind]
        could, without = 0, 0
        for j in range(masks.needs.shape[1]):
            if readers >> j & 1:
                need = masks.needs[kind, j]
                if here & need != none:
                    could |= 1 << j
                elif bad & need == none:
                    without |= 1 << j
        without &= enabled
        if without:
            fail |= 1 << MISSING_CLOCK
            no_clock[i] = without
        applies[i] = could
        if below & masks.clocks != none:
            fail |= 1 << CLOCK_OUT_OF_RANGE
        if below & masks.amounts != none:
            fail |= 1 << NEGATIVE_AMOUNT
        if (
            below & masks.ids != none
            or flags.mark_delete[codes.mark_delete[i]]
            or flags.read_pos[codes.read_pos[i]]
            or flags.acked_ranges[codes.acked_ranges[i]]
        ):
            fail |= 1 << BAD_POSITION
        if kind == masks.bad_document:
            fail |= 1 << BAD_DOCUMENT
        is_kafka_kind = masks.kafka_kind[kind]
        if below & masks.producer_id != none and (
            numbers.producer_id[i] < -1 or (kind >= 0 and not is_kafka_kind)
        ):
            fail |= 1 << BAD_PRODUCER_ID
        kafka[i] = is_kafka_kind or feed & KAFKA != 0
        topic = np.uint8(0) if kafka[i] else flags.topic[codes.topic[i]]
        if topic & INCOMPLETE:
            fail |= 1 << BAD_TOPIC
        if flags.sub_type[codes.sub_type[i]]:
            fail |= 1 << BAD_SUB_TYPE
        if here & masks.num_chunks != none and numbers.num_chunks[i] > 1:
            if masks.chunk & ~here & ~bad != none:
                fail |= 1 << CHUNK_FIELDS_INCOMPLETE
            chunk = numbers.chunk_id[i]
            if here & masks.chunk_id != none and (chunk < 0 or chunk >= numbers.num_chunks[i]):
                fail |= 1 << CHUNK_ID_OUT_OF_RANGE
            if here & masks.num_messages != none and numbers.num_messages[i] > 1:
                fail |= 1 << CHUNK_IN_BATCH
            if topic & NOT_PERSISTENT:
                fail |= 1 << CHUNK_NON_PERSISTENT
        if flags.policy[codes.policy_json[i]]:
            fail |= 1 << BAD_POLICY
        failed[i] = fail


def validate(block: Block, jobs: Sequence[str]) -> Verdicts:
    """Validate a block for the enabled jobs."""
    n = block.n
    failed = np.zeros(n, np.int32)
    failed[list(block.unparseable)] = 1 << UNPARSEABLE
    missing, applies = np.zeros(n, np.uint64), np.zeros(n, np.uint8)
    no_clock, kinds, kafka = np.zeros(n, np.uint8), np.full(n, -1, np.int8), np.zeros(n, np.bool_)
    enabled = sum(1 << JOBS.index(job) for job in dict.fromkeys(jobs))
    found = [_policy(text) for text in block.text("policy_json")[1].to_pylist()]
    problems = [text for text, _ in found]
    flags = _flags(block, problems)
    _validate(
        block.present,
        block.empty,
        block.negative,
        block.bad_type,
        _Codes(*(block.text(name)[0] for name in _Codes._fields)),
        flags,
        _Numbers(*(block.number(name) for name in _Numbers._fields)),
        MASKS,
        np.uint8(enabled),
        failed,
        missing,
        applies,
        no_clock,
        kinds,
        kafka,
    )
    wrong_markers = _wrong_markers(block)
    failed[wrong_markers] |= 1 << BAD_POSITION
    holds = np.array([*(holds for _, holds in found), False], np.bool_)
    partly = holds[block.text("policy_json")[0]]
    pardoned = partly.astype(np.int32) << BAD_POLICY | np.int32(1 << MISSING_CLOCK)
    valid = (failed & ~pardoned) == 0
    bad = SCHEMA.empty_table()
    if failed.any():
        wrong = {name: getattr(flags, name) for name in POSITIONS}
        bad = bad_rows(
            block,
            BrokenRules(failed, missing, no_clock, kinds, wrong, wrong_markers, problems),
        )
    return Verdicts(valid, np.where(valid, applies, np.uint8(0)), no_clock, kinds, kafka, bad)


def _policy(text: str) -> tuple[str | None, bool]:
    """The mistake in a document, and whether the rest of it applies."""
    document, wrong = policies.parse_document(text)
    return (wrong, False) if document is None else (policies.unknown_limits(document), True)


def _flags(block: Block, problems: list[str | None]) -> _Flags:
    kinds = block.text("event_type")[1].to_pylist()
    feeds = block.text("source_feed")[1].to_pylist()
    sub_types = pc.is_in(block.text("sub_type")[1], pa.array(SUB_TYPES))
    # a null has code -1, the last place
    return _Flags(
        np.array([*(KIND_INDEX.get(kind, -1) for kind in kinds), -1], np.int8),
        np.array(
            [*(POLLED * (f in POLLED_FEEDS) | KAFKA * f.startswith("kafka") for f in feeds), 0],
            np.uint8,
        ),
        np.append(classify_topics(block.text("topic")[1]), np.uint8(0)),
        np.append(_wrong_positions(block.text("mark_delete")[1], -1), False),
        np.append(_wrong_positions(block.text("read_pos")[1], -1), False),
        np.append(_wrong_ranges(block.text("acked_ranges")[1]), False),
        np.append(~sub_types.to_numpy(zero_copy_only=False).astype(np.bool_), False),
        np.array([*(wrong is not None for wrong in problems), False], np.bool_),
    )


def _wrong_positions(positions: pa.Array, lowest_entry: int) -> Array:
    ledger, entry, ok = parse_positions(positions)
    return ~ok | (ledger < 0) | (entry < lowest_entry)


def _wrong_ranges(texts: pa.Array) -> Array:
    return np.array([not are_ranges(text) for text in texts.to_pylist()], np.bool_)


def _wrong_markers(block: Block) -> Array:
    """Rows whose `marker_ids` are not all positions of entries."""
    lists = block.marker_ids
    if lists is None or lists.null_count == len(lists):
        return np.zeros(0, np.int64)
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return np.unique(owners[_wrong_positions(pc.list_flatten(lists), 0)])
