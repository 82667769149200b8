"""Turns JSON records into a block of columns: by the scanner, and by the decoder for declined rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from app.contract.parsing import decoder
from app.contract.parsing.block import Block, new_block, put_columns
from app.contract.parsing.layout import INDEX, NAMES, TEXT_SLOTS, bit, words_of
from app.contract.parsing.scanner import DECLINED, KEYS, NULL, OK, Scanned, gather, scan
from state.events import SCHEMA
from udfs.arrow import bytes_of, null_mask, offsets_of, plain
from udfs.base64 import decode_base64, decode_stretches

Array = np.ndarray
_PAYLOAD = INDEX["payload"]
_ARRIVE_AS = [pa.string() if c == _PAYLOAD else f.type for c, f in enumerate(SCHEMA)]
_PART = 4096
"""Number of rows that are decoded before they become columns."""


def parse_block(values: Any, fast: bool = True) -> Block:
    """Parse an Arrow string or binary array of JSON records; row i is record i.

    `fast=False` leaves every row to the decoder (for tests and measurements).
    """
    strings = plain(values)
    n = len(strings)
    block = new_block(n)
    data, offsets = bytes_of(strings), offsets_of(strings)
    status = np.full(n, OK if fast else DECLINED, np.uint8)
    if strings.null_count:
        status[null_mask(strings)] = NULL
    where = np.empty((n, 2), np.int64)
    scanned = Scanned(block.numbers, block.codes, block.present, block.empty, block.negative, where)
    distinct = scan(data, offsets, KEYS, status, scanned)
    block.dictionaries = _dictionaries(*gather(data, distinct, TEXT_SLOTS))
    payloads = _Payloads(n)
    with_payload = np.flatnonzero(block.has("payload"))
    if len(with_payload):
        stretches = where[with_payload]
        payloads.add(with_payload, *decode_stretches(data, stretches[:, 0], stretches[:, 1]))
    if status.any():
        _decode_rows(block, strings, status, payloads)
    block.payload = payloads.column(block)
    return block


def _dictionaries(first: Array, base: Array, offsets: Array, data: Array) -> list[pa.StringArray]:
    return [
        pa.StringArray.from_buffers(
            int(first[s + 1] - first[s] - 1),
            pa.py_buffer(offsets[first[s] : first[s + 1]]),
            pa.py_buffer(data[base[s] : base[s + 1]]),
        )
        for s in range(len(first) - 1)
    ]


class _Payloads:
    """Decoded payloads of some rows, and the rows whose text was not base64."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._rows: list[Array] = []
        self._values: list[pa.BinaryArray] = []
        self._bad: list[Array] = []

    def add(self, rows: Array, values: pa.BinaryArray, ok: Array) -> None:
        if not ok.all():
            self._bad.append(rows[~ok])
            rows, values = rows[ok], values.filter(pa.array(ok))
        self._rows.append(rows)
        self._values.append(values)

    def column(self, block: Block) -> pa.BinaryArray | None:
        """The payload column; payloads that could not be decoded get the reason BAD_TYPE."""
        word, here = bit("payload")
        for rows in self._bad:
            block.bad_type[word, rows] |= here
            block.present[word, rows] &= ~here
        if not self._rows:
            return None
        rows, values = np.concatenate(self._rows), pa.concat_arrays(self._values)
        if (np.diff(rows) < 0).any():
            order = np.argsort(rows)
            rows, values = rows[order], values.take(pa.array(order))
        return _spread(values, rows, self._n)


def _spread(values: pa.BinaryArray, rows: Array, n: int) -> pa.BinaryArray:
    """Values without nulls at ascending rows of n, null at the others; their bytes are not copied.

    `take` would reserve n times their mean length.
    """
    offsets = offsets_of(values)
    ends = np.full(n + 1, offsets[0], np.int32)
    ends[rows + 1] = offsets[1:]
    here = np.zeros(n, np.bool_)
    here[rows] = True
    return pa.BinaryArray.from_buffers(
        values.type,
        n,
        [
            pa.py_buffer(np.packbits(here, bitorder="little")),
            pa.py_buffer(np.maximum.accumulate(ends)),
            values.buffers()[2] or pa.py_buffer(b""),
        ],
        null_count=n - len(rows),
    )


def _decode_rows(block: Block, strings: Any, status: Array, payloads: _Payloads) -> None:
    """Decode the rows that the scanner declined and write them into the block."""
    rows = np.flatnonzero(status != OK)
    parts: list[list[pa.Array]] = [[] for _ in NAMES]
    # a part at a time: some hundred thousand Python objects at once cost twice the time
    for start in range(0, len(rows), _PART):
        for column, array in zip(
            parts, _decode_part(block, strings, status, rows[start : start + _PART]), strict=True
        ):
            column.append(array)
    columns = {name: pa.concat_arrays(column) for name, column in zip(NAMES, parts, strict=True)}
    _put_payloads(block, rows, columns.pop("payload"), payloads)
    _put_markers(block, rows, columns.pop("marker_ids"))
    put_columns(block, rows, columns)


def _decode_part(block: Block, strings: Any, status: Array, rows: Array) -> list[pa.Array]:
    """Columns of some rows, `payload` still as text; mistakes are recorded in the block."""
    # One text at a time: together they would be in memory three times.
    buffer: Any = bytes_of(strings)
    data, offsets = memoryview(buffer), offsets_of(strings)
    decoded = [
        decoder.decode(bytes(data[offsets[row] : offsets[row + 1]]))
        if status[row] == DECLINED
        else decoder.NO_VALUE
        for row in rows
    ]
    for row, line in zip(rows.tolist(), decoded, strict=True):
        if line.reason is not None:
            block.unparseable[row] = line.reason
    block.bad_type[:, rows] = np.array([words_of(line.bad_type) for line in decoded]).T
    values = list(zip(*(line.values for line in decoded), strict=True))
    values[_PAYLOAD] = tuple(map(_base64_or_not, values[_PAYLOAD]))
    return [pa.array(column, kind) for column, kind in zip(values, _ARRIVE_AS, strict=True)]


def _base64_or_not(text: str | None) -> str | None:
    """A payload's text. What cannot be base64 is not copied: its UTF-8 would be kept beside it."""
    return text if text is None or text.isascii() else "!"


def _put_payloads(block: Block, rows: Array, texts: pa.Array, payloads: _Payloads) -> None:
    has = ~null_mask(texts)
    if has.any():
        word, here = bit("payload")
        block.present[word, rows[has]] |= here
        payloads.add(rows[has], *decode_base64(texts.drop_null()))


def _put_markers(block: Block, rows: Array, lists: pa.Array) -> None:
    has = ~null_mask(lists)
    if has.any():
        word, here = bit("marker_ids")
        block.present[word, rows[has]] |= here
        place = np.full(block.n, -1, np.int64)
        place[rows] = np.arange(len(rows))
        block.marker_ids = lists.take(pa.array(place, mask=place < 0))
