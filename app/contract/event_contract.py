"""The event contract: turns records into columns and verdicts.

`parse` takes JSON from a source, `from_table` records that are columns already. Neither raises for
the contents of a record: an unusable record is a row of `Parsed.bad`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.contract.parsing.block import Block, leave_out_long_texts, new_block, put_columns, to_table
from app.contract.parsing.layout import NAMES, bit
from app.contract.parsing.parser import parse_block
from app.contract.validation import Verdicts, validate
from app.errors import UserError
from state.events import SCHEMA
from state.jobs import JOBS
from udfs.arrow import null_mask
from udfs.topics import normal_topic

Array = np.ndarray
DIGESTS = ("payload_bytes", "payload_crc32")
"""Columns that the archive adds to the contract's: length and checksum of a payload."""
PROBLEM = "problem"
"""Column beside `value`: why a source could not parse a line that it passes on."""
_INTEGER = r"^-?(0|[1-9][0-9]{0,18})$"


@dataclass(frozen=True)
class Parsed:
    """n records as columns, and the rules that they break; row i is record i."""

    block: Block
    verdicts: Verdicts
    jobs: tuple[str, ...]
    """The enabled jobs."""

    @property
    def n(self) -> int:
        """Number of records, refused ones included."""
        return self.block.n

    @cached_property
    def table(self) -> pa.Table:
        """The columns of the contract; strings dictionary-encoded (a value may occur twice).

        A record that cannot be decoded is null in every column.
        """
        return to_table(self.block)

    @property
    def valid(self) -> Array:
        """Records that break no rule, MISSING_CLOCK apart (bool)."""
        return self.verdicts.valid

    @cached_property
    def job_ok(self) -> dict[str, Array]:
        """By enabled job, the records that it applies: valid, of its kinds, with its clock."""
        applies = self.verdicts.applies
        return {job: (applies >> JOBS.index(job) & 1).astype(np.bool_) for job in self.jobs}

    @cached_property
    def archivable(self) -> Array:
        """Records for `events` (bool): valid, and applicable by some job.

        Valid records that no job reads are included; otherwise no table would have them.
        """
        archived: Array = self.valid & (
            (self.verdicts.applies != 0) | (self.verdicts.missing_clock == 0)
        )
        return archived

    @property
    def bad(self) -> pa.Table:
        """One row per failed rule: row, reason_code, detail, job; in order of row and rule."""
        return self.verdicts.bad

    @property
    def kind(self) -> Array:
        """Index of each record's kind in `KINDS`, -1 unknown (int8)."""
        return self.verdicts.kind

    def codes(self, column: str) -> Array:
        """Positions of a text column among its distinct values, -1 null (int32)."""
        return self.block.text(column)[0]

    @cached_property
    def topic(self) -> pa.DictionaryArray:
        """Topic names in their canonical spelling: with scheme (except Kafka's) and the ending of a
        partition.
        """
        codes, names = self.block.text("topic")
        partition = np.where(self.block.has("partition"), self.block.number("partition"), -1)
        partition = np.maximum(partition, -1)
        keys = codes.astype(np.int64) << 33 | (partition + 1) << 1 | self.verdicts.kafka
        numbers, first = distinct(keys, codes)
        values, kafka = names.take(pa.array(codes[first])), self.verdicts.kafka[first] != 0
        full = kafka | pc.match_substring(values, "://").to_numpy(zero_copy_only=False)
        if not (full & (partition[first] < 0)).all():
            spelled = [
                normal_topic(name, int(partition[row]), bool(self.verdicts.kafka[row]))
                for name, row in zip(values.to_pylist(), first, strict=True)
            ]
            values = pa.array(spelled, pa.string())
        indices = pa.array(numbers, pa.int32(), mask=numbers < 0)
        return pa.DictionaryArray.from_arrays(indices, values)


@numba.njit(cache=True, nogil=True)
def distinct(keys: Array, codes: Array) -> tuple[Array, Array]:
    """Number of each key in order of appearance (-1 if its code is null), and the first row of
    each.
    """
    n = len(keys)
    places = 64
    while places < 2 * n:
        places *= 2
    table = np.full(places, -1, np.int64)
    numbers = np.full(n, -1, np.int32)
    first = np.empty(n, np.int64)
    count = 0
    for i in range(n):
        if codes[i] < 0:
            continue
        h = np.uint64(keys[i]) * np.uint64(0x9E3779B97F4A7C15)
        # keys may differ in their upper bits alone, and then no lower bit of the product does
        at = np.int64(h >> np.uint64(33)) & (places - 1)
        while table[at] >= 0 and keys[first[table[at]]] != keys[i]:
            at = (at + 1) & (places - 1)
        if table[at] < 0:
            table[at] = count
            first[count] = i
            count += 1
        numbers[i] = table[at]
    return numbers, first[:count]


def parse(values: Any, jobs: Sequence[str]) -> Parsed:
    """Parse and validate an Arrow binary or string array of JSON records. No verdict depends on
    when that is."""
    return _validated(parse_block(values), jobs)


def parse_batch(batch: pa.RecordBatch, jobs: Sequence[str]) -> Parsed:
    """Parse and validate what a source gives: JSON records in `value`, or columns."""
    if "value" in batch.schema.names:
        block = parse_block(batch.column("value"))
        if PROBLEM in batch.schema.names:
            problems = enumerate(batch.column(PROBLEM).to_pylist())
            block.unparseable |= {row: text for row, text in problems if text is not None}
        return _validated(block, jobs)
    return from_table(batch, jobs, text_numbers=True)


def from_table(
    table: pa.Table | pa.RecordBatch,
    jobs: Sequence[str],
    text_numbers: bool = False,
) -> Parsed:
    """Validate records that are columns of the contract. Other columns are ignored, missing ones
    are null.

    `payload_bytes` and `payload_crc32` describe payloads that are absent. With `text_numbers` a
    column of integers may contain text of digits. Raises UserError for a column of another type.
    """
    block = new_block(table.num_rows)
    if DIGESTS[0] in table.column_names:
        size, crc = (table.column(name).fill_null(-1).to_numpy() for name in DIGESTS)
        block.given_digests = np.asarray(size, np.int64), np.asarray(crc, np.int64)
    columns: dict[str, pa.Array] = {}
    for name in NAMES:
        if name in table.column_names:
            column = table.column(name)
            if isinstance(column, pa.ChunkedArray):
                column = column.unify_dictionaries().combine_chunks()
            if text_numbers and column.type == pa.string() and pa.types.is_integer(wanted(name)):
                column = _numbers(name, column, block)
            columns[name] = _typed(name, column, block)
    put_columns(block, np.arange(block.n), columns)
    return _validated(block, jobs)


def _validated(block: Block, jobs: Sequence[str]) -> Parsed:
    leave_out_long_texts(block)
    return Parsed(block, validate(block, jobs), tuple(jobs))


def _typed(name: str, column: pa.Array, block: Block) -> pa.Array:
    """A column in the type of the contract; integers beyond 32 bits get the reason BAD_TYPE."""
    expected = wanted(name)
    kind = column.type
    if kind == expected or pa.types.is_null(kind):
        return column.cast(expected)
    if pa.types.is_dictionary(kind):
        if expected == pa.string() and pa.types.is_string(kind.value_type):
            return column
        return _typed(name, column.dictionary_decode(), block)
    if expected == pa.int32() and kind == pa.int64():
        values = column.fill_null(0).to_numpy(zero_copy_only=False)
        outside = (values > 2**31 - 1) | (values < -(2**31))
        word, here = bit(name)
        block.bad_type[word] |= outside * here
        kept = pa.array(np.where(outside, 0, values), mask=outside | null_mask(column))
        return kept.cast(pa.int32())
    try:
        if _same_family(kind, expected):
            return column.cast(expected)
    except pa.ArrowInvalid as error:
        raise UserError(f"source column {name}: {error}") from error
    raise UserError(f"source column {name} has type {kind}\nexpected: {expected}")


def wanted(name: str) -> pa.DataType:
    """The type of a column of the contract."""
    return SCHEMA.field(name).type


def _numbers(name: str, column: pa.Array, block: Block) -> pa.Array:
    """Text as integers; text that is no 64-bit integer gets the reason BAD_TYPE."""
    fits = pc.match_substring_regex(column, _INTEGER)
    values = [
        int(v) if ok and -(2**63) <= int(v) < 2**63 else None
        for v, ok in zip(column.to_pylist(), fits.to_pylist(), strict=True)
    ]
    wrong = np.array([v is None for v in values], bool) & ~null_mask(column)
    word, here = bit(name)
    block.bad_type[word] |= wrong * here
    return pa.array(values, pa.int64())


def _same_family(kind: pa.DataType, wanted: pa.DataType) -> bool:
    texts = (pa.large_string(), pa.string_view())
    bytes_ = (pa.large_binary(), pa.binary_view())
    if wanted == pa.string():
        return kind in texts
    if wanted == pa.binary():
        return kind in bytes_
    if pa.types.is_list(wanted):
        return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))
    return bool(pa.types.is_integer(kind) and pa.types.is_integer(wanted))
