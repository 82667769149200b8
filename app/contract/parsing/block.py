"""A block of parsed records: the columns as arrays, with bit sets of columns by row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.contract.parsing.layout import (
    BINARY,
    COLUMN_KIND,
    COLUMN_SLOT,
    FLAG,
    INDEX,
    NAMES,
    NUMBER_SLOTS,
    SHORT,
    TEXT,
    TEXT_SLOTS,
    TEXTS,
    WORDS,
    bit,
)
from state.events import SCHEMA
from udfs.arrow import null_mask, offsets_of, validity_of, values_of
from udfs.checksum import digest

Array = np.ndarray
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass
class Block:
    """n records as columns. A bit set of columns has shape (word, row); see `layout.bit`."""

    n: int
    numbers: Array
    """(number slot, row) int64; 0 where null, flags as 0 and 1."""
    codes: Array
    """(text slot, row) int32 into `dictionaries`; -1 where null."""
    present: Array
    """Columns that are not null, by row."""
    empty: Array
    """Text columns that hold an empty string, by row."""
    negative: Array
    """Number columns below 0, by row."""
    bad_type: Array
    """Columns whose value did not fit and was left out, by row."""
    dictionaries: list[pa.StringArray] = field(default_factory=list)
    """By text slot."""
    payload: pa.Array | None = None
    marker_ids: pa.Array | None = None
    unparseable: dict[int, str] = field(default_factory=dict)
    """Reason by row, for records that could not be decoded at all."""
    given_digests: tuple[Array, Array] | None = None
    """Length (-1 = none) and CRC-32 of payloads, of records without the payload itself."""

    @cached_property
    def digests(self) -> tuple[Array, Array]:
        """Length (bytes, -1 without a payload) and CRC-32 of each record's payload (int64)."""
        sizes, sums = digest(self.payload, self.n)
        if self.given_digests is not None:
            alone = sizes < 0
            sizes, sums = (
                np.where(alone, a, b)
                for a, b in zip(self.given_digests, (sizes, sums), strict=True)
            )
        return sizes, sums

    def text(self, name: str) -> tuple[Array, pa.StringArray]:
        """Codes (-1 null) and distinct values of a text column."""
        slot = COLUMN_SLOT[INDEX[name]]
        return self.codes[slot], self.dictionaries[slot]

    def number(self, name: str) -> Array:
        """Values (int64; 0 where null) of a number or flag column."""
        column: Array = self.numbers[COLUMN_SLOT[INDEX[name]]]
        return column

    def has(self, name: str) -> Array:
        """Where a column is not null (bool)."""
        word, here = bit(name)
        return (self.present[word] & here) != np.uint64(0)


def new_block(n: int) -> Block:
    """A block in which everything is null."""
    return Block(
        n,
        np.zeros((NUMBER_SLOTS, n), np.int64),
        np.full((TEXT_SLOTS, n), -1, np.int32),
        np.zeros((WORDS, n), np.uint64),
        np.zeros((WORDS, n), np.uint64),
        np.zeros((WORDS, n), np.uint64),
        np.zeros((WORDS, n), np.uint64),
        [pa.array([], pa.string())] * TEXT_SLOTS,
    )


def to_table(block: Block) -> pa.Table:
    """The columns of the contract; text is dictionary-encoded, code -1 under a null."""
    none = np.zeros(WORDS, np.uint64)
    everywhere = np.bitwise_and.reduce(block.present, axis=1) if block.n else none
    somewhere = np.bitwise_or.reduce(block.present, axis=1) if block.n else none
    columns: list[pa.Array] = []
    for c, name in enumerate(NAMES):
        kind, slot, n = COLUMN_KIND[c], COLUMN_SLOT[c], block.n
        word, here = bit(name)
        validity, nulls = None, 0
        if not everywhere[word] & here:
            mask = block.has(name)
            nulls = n - int(np.count_nonzero(mask))
            validity = pa.py_buffer(np.packbits(mask, bitorder="little"))
        if name == "payload":
            columns.append(_or_nulls(block.payload, n, SCHEMA.field(c).type))
        elif name == "marker_ids":
            columns.append(_or_nulls(block.marker_ids, n, SCHEMA.field(c).type))
        elif kind == TEXT:
            buffers = [validity, pa.py_buffer(block.codes[slot])]
            columns.append(
                pa.DictionaryArray.from_buffers(
                    DICTIONARY, n, buffers, block.dictionaries[slot], nulls
                )
            )
        elif not somewhere[word] & here:
            columns.append(pa.nulls(n, SCHEMA.field(c).type))
        else:
            values = block.numbers[slot]
            if kind == SHORT:
                values = values.astype(np.int32)
            elif kind == FLAG:
                values = np.packbits(values.astype(np.bool_), bitorder="little")
            columns.append(
                pa.Array.from_buffers(
                    SCHEMA.field(c).type, n, [validity, pa.py_buffer(values)], nulls
                )
            )
    return pa.table(columns, schema=TABLE_SCHEMA)


MOST_TEXT_BYTES = 8 << 20
"""Of a value of a text column. Longer ones fit no broker; they would go to every shard that keeps
them, and into its state."""
MOST_DOCUMENT_BYTES = {"policy_json": 256 << 10, "topic_bytes": 1 << 20}
"""The same of JSON, which takes up to 24 times its length while it is read."""


def leave_out_long_texts(block: Block) -> None:
    """Texts of more than MOST_TEXT_BYTES, and longer documents, do not fit their columns."""
    for c in np.flatnonzero(COLUMN_KIND == TEXT):
        slot, (word, here) = COLUMN_SLOT[c], bit(NAMES[c])
        texts = block.dictionaries[slot]
        most = MOST_DOCUMENT_BYTES.get(NAMES[c], MOST_TEXT_BYTES)
        long = np.diff(offsets_of(texts)) > most
        if not long.any():
            continue
        rows = np.append(long, False)[block.codes[slot]]  # null has the last place
        block.bad_type[word, rows] |= here
        block.present[word, rows] &= ~here
        block.codes[slot, rows] = -1
        block.dictionaries[slot] = pc.if_else(pa.array(long), "", texts)


TABLE_SCHEMA: pa.Schema = pa.schema(
    [(f.name, DICTIONARY if f.type == pa.string() else f.type) for f in SCHEMA]
)


def _or_nulls(array: pa.Array | None, n: int, kind: pa.DataType) -> pa.Array:
    return pa.nulls(n, kind) if array is None else array


class _Values(NamedTuple):
    """The values of an Arrow column, and the rows of the block that get them."""

    rows: Array
    values: Array
    valid: Array
    """As `udfs.arrow.validity_of`."""
    offset: int


@numba.njit(cache=True, nogil=True)
def _put_numbers(
    column: _Values, here: np.uint64, numbers: Array, present: Array, negative: Array
) -> None:
    rows, values, valid, offset = column
    for i in range(len(rows)):
        row, at = rows[i], offset + i
        if len(valid) and not valid[at >> 3] >> np.uint8(at & 7) & 1:
            numbers[row] = 0
            continue
        numbers[row] = values[i]
        present[row] |= here
        if values[i] < 0:
            negative[row] |= here


@numba.njit(cache=True, nogil=True)
def _put_codes(
    column: _Values,
    here: np.uint64,
    first: int,
    blank: Array,
    codes: Array,
    present: Array,
    empty: Array,
) -> None:
    """Positions among distinct texts, which get the positions from `first` on, into rows."""
    rows, values, valid, offset = column
    for i in range(len(rows)):
        row, at = rows[i], offset + i
        if len(valid) and not valid[at >> 3] >> np.uint8(at & 7) & 1:
            codes[row] = -1
            continue
        codes[row] = first + values[i]
        present[row] |= here
        if blank[values[i]]:
            empty[row] |= here


def put_columns(block: Block, rows: Array, columns: Mapping[str, pa.Array]) -> None:
    """Write columns of the contract's types into some rows of a block, one value for each row.

    Text is added to the distinct values of the block, other values replace what is there; a column
    without values changes nothing.
    """
    for name, array in columns.items():
        if array.null_count == len(array):
            continue
        c = INDEX[name]
        kind, slot, (word, here) = COLUMN_KIND[c], COLUMN_SLOT[c], bit(name)
        if kind == TEXT:
            distinct = _encoded(array)
            indices = distinct.indices
            known = block.dictionaries[slot]
            _put_codes(
                _Values(rows, values_of(indices), validity_of(indices), indices.offset),
                here,
                len(known),
                np.diff(offsets_of(distinct.dictionary)) == 0,
                block.codes[slot],
                block.present[word],
                block.empty[word],
            )
            values = [known, distinct.dictionary] if len(known) else [distinct.dictionary]
            block.dictionaries[slot] = pa.concat_arrays(values)
        elif kind == BINARY:
            block.payload = array
            block.present[word, rows] |= ~null_mask(array) * here
        elif kind == TEXTS:
            block.marker_ids = array
            block.present[word, rows] |= ~null_mask(array) * here
        else:
            numbers = values_of(array).astype(np.int64, copy=False)
            column = _Values(rows, numbers, validity_of(array), array.offset)
            _put_numbers(
                column, here, block.numbers[slot], block.present[word], block.negative[word]
            )


def _encoded(array: pa.Array) -> pa.DictionaryArray:
    if not pa.types.is_dictionary(array.type):
        return array.cast(pa.string()).dictionary_encode()
    if array.type == DICTIONARY and not array.dictionary.null_count:
        return array
    return array.dictionary_decode().cast(pa.string()).dictionary_encode()
