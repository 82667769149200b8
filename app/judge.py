"""The record-local rules of the contract (section 6), for a whole block at once.

One compiled pass over bit sets and numbers; names, positions and policies are judged once per
distinct value before it. What failed is spelt out only for the records that did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.block import Block
from app.layout import bit, bits, names_of
from state import policies
from state.events import COMMON, JOB_CLOCK, JOBS, KIND_INDEX, KINDS, WALL
from udfs.positions import parse_positions
from udfs.topics import INCOMPLETE, NOT_PERSISTENT, classify_topics

Array = np.ndarray

RULES: tuple[tuple[str, str], ...] = (
    ("UNPARSEABLE", "the record cannot be decoded into the columns at all"),
    ("BAD_TYPE", "a value does not fit its type, or an integer exceeds its bits"),
    ("UNKNOWN_EVENT_TYPE", "`event_type` is null or no known kind"),
    ("MISSING_REQUIRED", "a column that every record or this kind needs is null or empty"),
    ("MISSING_CLOCK", "the clock of an enabled job that reads the kind is null; a row per job"),
    ("CLOCK_OUT_OF_RANGE", "a time is negative, or `ts_wall_ms` is too far in the future"),
    ("NEGATIVE_AMOUNT", "a size or a count is negative"),
    ("BAD_POSITION", "a ledger, an entry or a position `ledger:entry` is not one"),
    ("BAD_PRODUCER_ID", "`producer_id` is below -1, or below 0 on a Pulsar kind"),
    ("BAD_TOPIC", "a Pulsar topic without tenant, namespace and name"),
    ("BAD_SUB_TYPE", "`sub_type` is not exclusive, failover, shared or key_shared"),
    ("CHUNK_FIELDS_INCOMPLETE", "chunked, and `uuid`, `chunk_id` or `total_chunk_bytes` is null"),
    ("CHUNK_ID_OUT_OF_RANGE", "chunked, and not 0 <= `chunk_id` < `num_chunks`"),
    ("CHUNK_IN_BATCH", "chunked, and `num_messages` is above 1"),
    ("CHUNK_NON_PERSISTENT", "chunked on a non-persistent topic"),
    ("BAD_POLICY", "`policy_json` is not a policy document"),
)
"""Codes and what they say, in the order of the rows of one record."""
(
    UNPARSEABLE, BAD_TYPE, UNKNOWN_EVENT_TYPE, MISSING_REQUIRED, MISSING_CLOCK, CLOCK_OUT_OF_RANGE,
    NEGATIVE_AMOUNT, BAD_POSITION, BAD_PRODUCER_ID, BAD_TOPIC, BAD_SUB_TYPE,
    CHUNK_FIELDS_INCOMPLETE, CHUNK_ID_OUT_OF_RANGE, CHUNK_IN_BATCH, CHUNK_NON_PERSISTENT,
    BAD_POLICY,
) = range(len(RULES))

POLLED_FEEDS = ("pulsar_admin", "kafka_groups")
"""Feeds without a monotonic clock: only backlog reads their records, policies excepted."""
KAFKA_KINDS = ("produce_batch", "producer_id_assigned")
SUB_TYPES = ("exclusive", "failover", "shared", "key_shared")
BAD_SCHEMA = pa.schema(
    [("row", pa.int64()), ("reason_code", pa.string()), ("detail", pa.string()),
     ("job", pa.string())]
)

_CURSOR = bits(("mark_delete", "read_pos"))
_CLOCKS = bits(("ts_wall_ms", "publish_time_ms", "broker_time_ms", "ledger_close_ms"))
_AMOUNTS = bits(
    ("entry_bytes", "num_messages", "total_chunk_bytes", "ledger_entries", "ledger_bytes")
)
_IDS = bits(("ledger_id", "entry_id"))
_CHUNK = bits(("uuid", "chunk_id", "total_chunk_bytes"))
_POLLED, _KAFKA = 1, 2


class _Masks(NamedTuple):
    """Bit sets and tables that the kernel compares with; arguments, so that no cache outlives them."""

    required: Array
    """By kind, the last one for an unknown kind."""
    cursor_state: int
    readers: Array
    """Jobs (a bit each) by polled feed or not and kind."""
    needs: Array
    """Clock bit by kind and job."""
    kafka_kind: Array
    event_type: np.uint64
    wall: np.uint64
    cursor: np.uint64
    clocks: np.uint64
    amounts: np.uint64
    ids: np.uint64
    chunk: np.uint64
    producer_id: np.uint64
    num_chunks: np.uint64
    chunk_id: np.uint64
    num_messages: np.uint64


def _masks() -> _Masks:
    count = len(KINDS)
    required = np.full(count + 1, bits(COMMON), np.uint64)
    readers = np.zeros((2, count + 1), np.uint8)
    needs = np.zeros((count + 1, len(JOBS)), np.uint64)
    for k, kind in enumerate(KINDS):
        required[k] |= np.uint64(bits(kind.required))
        for j, job in enumerate(JOBS):
            needs[k, j] = bit(WALL if kind.name == "policy" else JOB_CLOCK[job])
            if job in kind.jobs:
                readers[0, k] |= 1 << j
                if job == "backlog" or kind.name == "policy":
                    readers[1, k] |= 1 << j
    kafka = np.array([kind.name in KAFKA_KINDS for kind in KINDS] + [False])
    one = [bit(c) for c in ("producer_id", "num_chunks", "chunk_id", "num_messages")]
    sets = [bit("event_type"), bit(WALL), _CURSOR, _CLOCKS, _AMOUNTS, _IDS, _CHUNK, *one]
    return _Masks(
        required, KIND_INDEX["cursor_state"], readers, needs, kafka, *(np.uint64(m) for m in sets)
    )


_MASKS = _masks()


class _Flags(NamedTuple):
    """What was found per distinct value, by the codes of the column; the last is for null."""

    kind: Array
    feed: Array
    topic: Array
    mark_delete: Array
    read_pos: Array
    sub_type: Array
    policy: Array


class _Codes(NamedTuple):
    event_type: Array
    source_feed: Array
    topic: Array
    mark_delete: Array
    read_pos: Array
    sub_type: Array
    policy_json: Array


class _Numbers(NamedTuple):
    ts_wall_ms: Array
    producer_id: Array
    num_chunks: Array
    chunk_id: Array
    num_messages: Array


@dataclass
class Judgement:
    """What holds of each record of a block."""

    valid: Array
    """Every rule but MISSING_CLOCK holds (bool)."""
    applies: Array
    """Jobs that could apply the record, enabled or not: bit j is job j of `JOBS` (uint8)."""
    missing_clock: Array
    """Enabled jobs that cannot for want of their clock (uint8)."""
    kind: Array
    """Index into `KINDS`, -1 unknown (int8)."""
    kafka: Array
    """Whether the topic is a Kafka name (bool)."""
    bad: pa.Table
    """One row per failed rule, by record and in the order of `RULES`: BAD_SCHEMA."""


@numba.njit(cache=True, nogil=True)
def _judge(
    present: Array, empty: Array, negative: Array, bad_type: Array, codes: _Codes, flags: _Flags,
    numbers: _Numbers, masks: _Masks, enabled: np.uint8, latest: int, failed: Array,
    missing: Array, applies: Array, no_clock: Array, kinds: Array, kafka: Array,
) -> None:
    """Set a bit per failed rule in `failed` (UNPARSEABLE comes set), and the other answers."""
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
        readers = masks.readers[1 if feed & _POLLED else 0, kind]
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
        if below & masks.clocks != none or (
            here & masks.wall != none and numbers.ts_wall_ms[i] > latest
        ):
            fail |= 1 << CLOCK_OUT_OF_RANGE
        if below & masks.amounts != none:
            fail |= 1 << NEGATIVE_AMOUNT
        if (
            below & masks.ids != none
            or flags.mark_delete[codes.mark_delete[i]]
            or flags.read_pos[codes.read_pos[i]]
        ):
            fail |= 1 << BAD_POSITION
        is_kafka_kind = masks.kafka_kind[kind]
        if below & masks.producer_id != none and (
            numbers.producer_id[i] < -1 or (kind >= 0 and not is_kafka_kind)
        ):
            fail |= 1 << BAD_PRODUCER_ID
        kafka[i] = is_kafka_kind or feed & _KAFKA != 0
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


def judge(block: Block, jobs: Sequence[str], latest_ms: int | None) -> Judgement:
    """Judge a block for the enabled jobs; wall times above `latest_ms` (None: any) are too far."""
    n = block.n
    failed = np.zeros(n, np.int32)
    failed[list(block.unparseable)] = 1 << UNPARSEABLE
    missing, applies = np.zeros(n, np.uint64), np.zeros(n, np.uint8)
    no_clock, kinds, kafka = np.zeros(n, np.uint8), np.full(n, -1, np.int8), np.zeros(n, np.bool_)
    enabled = sum(1 << JOBS.index(job) for job in dict.fromkeys(jobs))
    latest = 2**63 - 1 if latest_ms is None else min(max(latest_ms, -(2**63)), 2**63 - 1)
    wrong_policies = _policy_problems(block)
    _judge(
        block.present, block.empty, block.negative, block.bad_type,
        _Codes(*(block.text(name)[0] for name in _Codes._fields)),
        _flags(block, wrong_policies),
        _Numbers(*(block.number(name) for name in _Numbers._fields)),
        _MASKS, np.uint8(enabled), np.int64(latest), failed, missing, applies, no_clock, kinds, kafka,
    )
    wrong_markers = _wrong_markers(block)
    failed[wrong_markers] |= 1 << BAD_POSITION
    valid = (failed & ~np.int32(1 << MISSING_CLOCK)) == 0
    bad = BAD_SCHEMA.empty_table()
    if failed.any():
        bad = _bad_rows(block, failed, missing, no_clock, latest, wrong_markers, wrong_policies)
    return Judgement(valid, np.where(valid, applies, np.uint8(0)), no_clock, kinds, kafka, bad)


def _flags(block: Block, wrong_policies: list[str | None]) -> _Flags:
    kinds = block.text("event_type")[1].to_pylist()
    feeds = block.text("source_feed")[1].to_pylist()
    sub_types = pc.is_in(block.text("sub_type")[1], pa.array(SUB_TYPES))
    by_value = (
        np.array([KIND_INDEX.get(kind, -1) for kind in kinds], np.int8),
        np.array(
            [_POLLED * (f in POLLED_FEEDS) | _KAFKA * f.startswith("kafka") for f in feeds], np.uint8
        ),
        classify_topics(block.text("topic")[1]),
        _wrong_positions(block.text("mark_delete")[1], -1),
        _wrong_positions(block.text("read_pos")[1], -1),
        ~sub_types.to_numpy(zero_copy_only=False).astype(np.bool_),
        np.array([wrong is not None for wrong in wrong_policies], np.bool_),
    )
    # a null has code -1, the last place
    return _Flags(
        np.append(by_value[0], np.int8(-1)),
        *(np.append(flags, flags.dtype.type(0)) for flags in by_value[1:]),
    )


def _wrong_positions(positions: pa.Array, lowest_entry: int) -> Array:
    ledger, entry, ok = parse_positions(positions)
    return ~ok | (ledger < 0) | (entry < lowest_entry)


def _policy_problems(block: Block) -> list[str | None]:
    """What is wrong with each distinct policy document."""
    return [policies.parse_document(text)[1] for text in block.text("policy_json")[1].to_pylist()]


def _wrong_markers(block: Block) -> Array:
    """Rows whose `marker_ids` hold something else than positions of entries."""
    lists = block.marker_ids
    if lists is None or lists.null_count == len(lists):
        return np.zeros(0, np.int64)
    owners = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)
    return np.unique(owners[_wrong_positions(pc.list_flatten(lists), 0)])


def _bad_rows(
    block: Block, failed: Array, missing: Array, no_clock: Array, latest: int,
    wrong_markers: Array, wrong_policies: list[str | None],
) -> pa.Table:
    """One row per failed rule, with its detail."""

    def by_columns(masks: Callable[[Array], Array]) -> Callable[[Array], list[str]]:
        def details(rows: Array) -> list[str]:
            distinct, codes = np.unique(masks(rows), return_inverse=True)
            names = [names_of(int(mask)) for mask in distinct]
            return [names[code] for code in codes]

        return details

    def clocks(rows: Array) -> Array:
        late = block.has(WALL)[rows] & (block.number(WALL)[rows] > latest)
        return block.negative[rows] & np.uint64(_CLOCKS) | late * np.uint64(bit(WALL))

    def positions(rows: Array) -> Array:
        masks = block.negative[rows] & np.uint64(_IDS)
        for name in ("mark_delete", "read_pos"):
            codes, values = block.text(name)
            wrong = np.append(_wrong_positions(values, -1), False)
            masks |= wrong[codes[rows]] * np.uint64(bit(name))
        return masks | np.isin(rows, wrong_markers) * np.uint64(bit("marker_ids"))

    def always(name: str) -> Callable[[Array], list[str]]:
        return lambda rows: [name] * len(rows)

    def policies_of(rows: Array) -> list[str | None]:
        return [wrong_policies[code] for code in block.text("policy_json")[0][rows]]

    details = {
        UNPARSEABLE: lambda rows: [block.unparseable[row] for row in rows.tolist()],
        BAD_TYPE: by_columns(lambda rows: block.bad_type[rows]),
        UNKNOWN_EVENT_TYPE: always("event_type"),
        MISSING_REQUIRED: by_columns(lambda rows: missing[rows]),
        CLOCK_OUT_OF_RANGE: by_columns(clocks),
        NEGATIVE_AMOUNT: by_columns(lambda rows: block.negative[rows] & np.uint64(_AMOUNTS)),
        BAD_POSITION: by_columns(positions),
        BAD_PRODUCER_ID: always("producer_id"),
        BAD_TOPIC: always("topic"),
        BAD_SUB_TYPE: always("sub_type"),
        CHUNK_FIELDS_INCOMPLETE: by_columns(
            lambda rows: np.uint64(_CHUNK) & ~block.present[rows] & ~block.bad_type[rows]
        ),
        CHUNK_ID_OUT_OF_RANGE: always("chunk_id"),
        CHUNK_IN_BATCH: always("num_messages"),
        CHUNK_NON_PERSISTENT: always("topic"),
        BAD_POLICY: policies_of,
    }
    parts: list[tuple[Array, int, list[str | None], str | None]] = []
    for rule in range(len(RULES)):
        rows = np.flatnonzero(failed >> rule & 1)
        if not len(rows):
            continue
        if rule != MISSING_CLOCK:
            parts.append((rows, rule, details[rule](rows), None))
            continue
        for j, job in enumerate(JOBS):
            mine = rows[(no_clock[rows] >> j & 1).astype(np.bool_)]
            clock = np.where(_policy_kind(block)[mine], WALL, JOB_CLOCK[job])
            parts.append((mine, rule, clock.tolist(), job))
    rows = np.concatenate([part[0] for part in parts])
    order = np.argsort(rows, kind="stable")
    columns = [
        pa.array(rows, pa.int64()),
        pa.array([RULES[p[1]][0] for p in parts for _ in p[2]], pa.string()),
        pa.array([detail for p in parts for detail in p[2]], pa.string()),
        pa.array([p[3] for p in parts for _ in p[2]], pa.string()),
    ]
    return pa.table(columns, schema=BAD_SCHEMA).take(pa.array(order))


def _policy_kind(block: Block) -> Array:
    codes, values = block.text("event_type")
    is_policy = np.append(np.array([v == "policy" for v in values.to_pylist()], np.bool_), False)
    return is_policy[codes]
