"""The rules on single records of the contract (section 6), applied to a whole block at once.

One compiled pass over bit sets and numbers, with the checks of the table `app.contract.rules`. Before
it, names, positions and policies are validated once per distinct value. Reasons are written only
for the records that failed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.contract.parsing.block import Block
from app.contract.parsing.layout import WORDS, bit
from app.contract.reasons import Failing, Reasons
from app.contract.rules import (
    CURSOR,
    CURSOR_STATE,
    KIND_TABLE,
    NONE,
    NUM_CHUNKS,
    POLLED_FEEDS,
    PRODUCER_ID,
    RULES,
    SUB_TYPES,
    KindTable,
    Record,
    bit_of,
)
from state import policies
from state.events import KIND_INDEX, QUOTA_TYPES, TOKENS
from state.jobs import JOBS
from udfs.positions import are_ranges, parse_positions
from udfs.topic_flags import classify_topics

Array = np.ndarray

MOST_OF_DETAIL = 1000
"""Characters: of many unknown limits the first are named."""
POLLED, KAFKA = 1, 2
"""Flags of a feed."""
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("reason_code", pa.string()),
        ("detail", pa.string()),
        ("job", pa.string()),
    ]
)


class _Texts(NamedTuple):
    """One array per text column that is validated by its distinct values."""

    event_type: Array
    source_feed: Array
    topic: Array
    mark_delete: Array
    read_pos: Array
    acked_ranges: Array
    sub_type: Array
    policy_json: Array
    quota_type: Array


class _Numbers(NamedTuple):
    producer_id: Array
    num_chunks: Array
    chunk_id: Array
    num_messages: Array


class _Columns(NamedTuple):
    """Sets of columns by word and row."""

    present: Array
    empty: Array
    negative: Array
    bad_type: Array
    refused: Array
    """`marker_ids`, if they are not all positions of entries; of the first word."""


class _Input(NamedTuple):
    """A block as the compiled pass sees it, and what the rules depend on."""

    columns: _Columns
    codes: _Texts
    values: _Texts
    """By code: the kind, the flags of the feed and of the topic; of the others the column, as a
    set, if the value is refused. The last one is for null."""
    numbers: _Numbers
    kinds: KindTable
    enabled: np.uint8
    """Jobs."""
    words: int
    """How many words of the sets of columns have any."""


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
    """One row per failed rule, by record and in the order of the rules: `SCHEMA`."""


class _Results(NamedTuple):
    """What the compiled pass fills, by row; see `Verdicts`."""

    failed: Array
    """Bit r: rule r is broken (int32). The caller sets the bit of UNPARSEABLE."""
    applies: Array
    missing_clock: Array
    kind: Array
    kafka: Array
    at_fault: Array
    """(word, row, rule) sets of columns; undefined where the rule holds."""


RULE_COUNT = len(RULES)


@numba.njit(inline="always")
def _none(record: Record) -> np.uint64:
    return NONE


@numba.njit(inline="always")
def _none_of(record: Record, rule: int) -> np.uint64:
    return NONE


def _compiled() -> tuple[Any, Any]:
    """The checks as compiled functions: the columns at fault by any rule, and by one. A loop over
    checks would not be unrolled.
    """
    by_any, by_one = _none, _none_of
    for rule in reversed(RULES):
        by_any, by_one = _before(numba.njit(forceinline=True)(rule.check), by_any, by_one)
    return by_any, by_one


def _before(check: Any, by_any: Any, by_one: Any) -> tuple[Any, Any]:
    @numba.njit(inline="always")
    def any_rule(record: Record) -> np.uint64:
        return check(record) | by_any(record)

    @numba.njit(inline="always")
    def one_rule(record: Record, rule: int) -> np.uint64:
        return check(record) if rule == 0 else by_one(record, rule - 1)

    return any_rule, one_rule


at_fault, at_fault_by = _compiled()

LATER = KIND_TABLE.required
"""What kinds need of the later words: nothing yet, so that most blocks need the first alone."""


@numba.njit(cache=True, nogil=True)
def _validate(given: _Input, results: _Results) -> None:
    """Apply the rules to the records that could be decoded. One loop: helpers that take arrays would
    cost more than it.
    """
    columns, codes, values, kinds = given.columns, given.codes, given.values, given.kinds
    numbers, enabled, words = given.numbers, given.enabled, given.words
    failed, applies, missing_clock, kind_of, kafka_of, faults = results
    for i in range(len(failed)):
        if failed[i]:
            continue
        kind = np.int64(values.event_type[codes.event_type[i]])
        feed = values.source_feed[codes.source_feed[i]]
        present, bad = columns.present[0, i], columns.bad_type[0, i]
        could, without, clocks = 0, 0, NONE
        readers = kinds.readers[1 if feed & POLLED else 0, kind]
        for j in range(kinds.clocks.shape[1]):
            if readers >> j & 1:
                clock = kinds.clocks[kind, j]
                if present & clock != NONE:
                    could |= 1 << j
                elif bad & clock == NONE and enabled >> j & 1:
                    without |= 1 << j
                    clocks |= clock

        kafka_kind = kinds.kafka[kind]
        kafka = kafka_kind or feed & KAFKA != 0
        producer_id = np.int64(0)
        if columns.negative[0, i] & PRODUCER_ID[0]:
            producer_id = numbers.producer_id[i]
        num_chunks = numbers.num_chunks[i] if present & NUM_CHUNKS[0] else np.int64(0)
        refused = (
            columns.refused[i]
            | values.mark_delete[codes.mark_delete[i]]
            | values.read_pos[codes.read_pos[i]]
            | values.acked_ranges[codes.acked_ranges[i]]
            | values.sub_type[codes.sub_type[i]]
            | values.policy_json[codes.policy_json[i]]
            | values.quota_type[codes.quota_type[i]]
        )
        for word in range(words):
            present, bad = columns.present[word, i], columns.bad_type[word, i]
            filled = present & ~columns.empty[word, i]
            missing = kinds.required[word, kind] & ~filled & ~bad
            if word == 0 and kind == CURSOR_STATE and (filled | bad) & CURSOR[0] == NONE:
                missing |= CURSOR[0]
            record = Record(
                np.int64(word),
                kind,
                kafka_kind,
                kafka,
                present,
                columns.negative[word, i],
                bad,
                missing,
                NONE if word else clocks,
                NONE if word else refused,
                np.uint8(0) if kafka else values.topic[codes.topic[i]],
                producer_id,
                num_chunks,
                numbers.chunk_id[i] if num_chunks > 1 else np.int64(0),
                numbers.num_messages[i] if num_chunks > 1 else np.int64(0),
            )
            if at_fault(record) != NONE:
                for rule in range(RULE_COUNT):
                    faulty = at_fault_by(record, rule)
                    if faulty != NONE:
                        failed[i] |= 1 << rule
                    faults[word, i, rule] = faulty
        applies[i] = could
        missing_clock[i] = without
        kind_of[i] = kind
        kafka_of[i] = kafka


def validate(block: Block, jobs: Sequence[str]) -> Verdicts:
    """Validate a block for the enabled jobs."""
    n = block.n
    failed = np.zeros(n, np.int32)
    failed[list(block.unparseable)] = bit_of("UNPARSEABLE")
    results = _Results(
        failed,
        np.zeros(n, np.uint8),
        np.zeros(n, np.uint8),
        np.full(n, -1, np.int8),
        np.zeros(n, np.bool_),
        np.zeros((WORDS, n, RULE_COUNT), np.uint64),
    )
    judged = [_policy(text) for text in block.text("policy_json")[1].to_pylist()]
    problems = [text for text, _ in judged]
    enabled = sum(1 << JOBS.index(job) for job in dict.fromkeys(jobs))
    given = _Input(
        _Columns(
            block.present, block.empty, _negative(block), block.bad_type, _wrong_markers(block)
        ),
        _Texts(*(block.text(name)[0] for name in _Texts._fields)),
        _values(block, problems),
        _Numbers(*(block.number(name) for name in _Numbers._fields)),
        KIND_TABLE,
        np.uint8(enabled),
        WORDS if any(part[1:].any() for part in (block.present, block.bad_type, LATER)) else 1,
    )
    _validate(given, results)
    holds = np.array([*(holds for _, holds in judged), False], np.bool_)
    partly = holds[block.text("policy_json")[0]]
    pardoned = partly * bit_of("BAD_POLICY") | bit_of("MISSING_CLOCK")
    valid = (failed & ~pardoned) == 0
    bad = SCHEMA.empty_table()
    if failed.any():
        bad = _bad_rows(block, results, problems)
    return Verdicts(
        valid,
        np.where(valid, results.applies, np.uint8(0)),
        results.missing_clock,
        results.kind,
        results.kafka,
        bad,
    )


def _bad_rows(block: Block, results: _Results, problems: list[str | None]) -> pa.Table:
    """One row per failed rule, by record, then in the order of the rules and jobs."""
    every: list[tuple[str, Reasons]] = []
    for r, rule in enumerate(RULES):
        rows = np.flatnonzero(results.failed >> r & 1)
        if len(rows):
            columns = results.at_fault[:, rows, r]
            failing = Failing(block, rows, columns, results.kind, results.missing_clock, problems)
            every += [(rule.code, reasons) for reasons in rule.detail(failing)]
    row = np.concatenate([reasons.rows for _, reasons in every])
    codes = [code for code, reasons in every for _ in reasons.details]
    details = pa.array([d for _, reasons in every for d in reasons.details], pa.string())
    jobs = [reasons.job for _, reasons in every for _ in reasons.details]
    details = pc.utf8_slice_codeunits(details, 0, MOST_OF_DETAIL)
    table = pa.table([row, codes, details, pa.array(jobs, pa.string())], schema=SCHEMA)
    return table.take(pa.array(np.argsort(row, kind="stable")))


def _policy(text: str) -> tuple[str | None, bool]:
    """The mistake in a document, and whether the rest of it applies."""
    document, wrong = policies.parse_document(text)
    return (wrong, False) if document is None else (policies.unknown_limits(document), True)


def _values(block: Block, problems: list[str | None]) -> _Texts:
    kinds, feeds, topics, *positions, ranges, sub_types, _, quota_types = (
        block.text(name)[1] for name in _Texts._fields
    )
    mark_delete, read_pos = (_wrong_positions(texts, -1) for texts in positions)
    # a null has code -1, the last place
    return _Texts(
        np.array([*(KIND_INDEX.get(kind, -1) for kind in kinds.to_pylist()), -1], np.int8),
        np.array([*map(_feed, feeds.to_pylist()), 0], np.uint8),
        np.append(classify_topics(topics), np.uint8(0)),
        _refused("mark_delete", mark_delete),
        _refused("read_pos", read_pos),
        _refused("acked_ranges", [not are_ranges(text) for text in ranges.to_pylist()]),
        _refused("sub_type", [text not in SUB_TYPES for text in sub_types.to_pylist()]),
        _refused("policy_json", [wrong is not None for wrong in problems]),
        _refused("quota_type", [text not in QUOTA_TYPES for text in quota_types.to_pylist()]),
    )


def _feed(name: str) -> int:
    return POLLED * (name in POLLED_FEEDS) | KAFKA * name.startswith("kafka")


def _refused(column: str, wrong: Sequence[bool] | Array) -> Array:
    """By code, the column as a set where its value is refused."""
    word, here = bit(column)
    assert word == 0
    return np.append(wrong, False).astype(np.uint64) * here


def _wrong_positions(positions: pa.Array, lowest_entry: int) -> Array:
    ledger, entry, ok = parse_positions(positions)
    return ~ok | (ledger < 0) | (entry < lowest_entry)


def _wrong_markers(block: Block) -> Array:
    """`marker_ids` as a set, by row, where they are not all positions of entries."""
    refused = np.zeros(block.n, np.uint64)
    lists = block.marker_ids
    if lists is not None and lists.null_count < len(lists):
        rows = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
        wrong = _wrong_positions(pc.list_flatten(lists), 0)
        refused[rows[wrong]] = bit("marker_ids")[1]
    return refused


def _negative(block: Block) -> Array:
    """Number columns below 0, without a number of tokens, which may be."""
    codes, types = block.text("quota_type")
    names = types.to_pylist()
    if TOKENS not in names:
        return block.negative
    word, here = bit("value_milli")
    negative = block.negative.copy()
    negative[word, codes == names.index(TOKENS)] &= ~here
    return negative
