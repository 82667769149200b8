"""Rows of a kernel as tables, by the columns that an output declares."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from state.engine.kernel import NULL, Array
from state.engine.names import Names
from state.engine.table import (
    FLAG,
    KEY,
    LONG,
    RATE,
    RECORD,
    SHORT,
    TEXT,
    Output,
    TableColumn,
)


def integers(values: Array, null: Array | None = None) -> pa.Array:
    """A column of 64 bits; null where `null` holds, or for NULL."""
    values = np.ascontiguousarray(values, np.int64)
    return pa.array(values, mask=values == NULL if null is None else null)


def numbers(values: Array, null: Array | None = None) -> pa.Array:
    """A column of floating-point numbers; null for NaN, and where `null` holds."""
    values = np.ascontiguousarray(values, np.float64)
    return pa.array(values, mask=np.isnan(values) if null is None else null | np.isnan(values))


def shorts(values: Array) -> pa.Array:
    """A column of 32 bits; null for NULL."""
    null = values == NULL
    return pa.array(np.where(null, 0, values).astype(np.int32), mask=null)


def words(choices: pa.Array, places: Array) -> pa.Array:
    """The texts at these places; null below 0."""
    places = np.ascontiguousarray(places, np.int64)
    return choices.take(pa.array(places, mask=places < 0))


def positions(ledger: Array, entry: Array) -> pa.Array:
    """`ledger:entry`; null without a ledger."""
    parts = (integers(ledger).cast(TEXT), integers(entry).cast(TEXT))
    return pc.binary_join_element_wise(*parts, ":")


def share(part: Array, whole: Array) -> pa.Array:
    """Part / whole; null without a part, or a whole above 0."""
    null = ~(whole > 0) | (part == NULL if part.dtype == np.int64 else np.isnan(part))
    return pa.array(part / np.where(null, 1, whole), mask=null)


class Emitted:
    """What the rows of one call refer to."""

    def __init__(
        self,
        names: Names,
        keys: Array | None = None,
        records: Mapping[str, Array] | None = None,
        **others: Array,
    ) -> None:
        """`keys` are those that the field `key` of rows is a position of, `records` those of the
        field `record`, and `others` of fields by their names, -1 for none."""
        self._strings = names.strings()
        self._sources = {KEY: keys, RECORD: records, **others}

    def texts(self, names: Array) -> pa.Array:
        """The texts of names; null for -1."""
        return words(self._strings, names).cast(TEXT)

    def table(self, output: Output, rows: Array, **given: pa.Array) -> pa.Table:
        """The rows as a table of an output, with the columns that the job has made."""
        found = {c.name: self._column(c, rows) for c in output.made if c.name not in given}
        if len(output.rules) == 1:
            found["rule"] = pa.repeat(pa.scalar(output.rules[0]), len(rows))
        return pa.table(found | given)

    def _column(self, column: TableColumn, rows: Array) -> pa.Array:
        source, at = self._sources.get(column.source), column.source
        of = rows if source is None else source
        values = [of[name] for name in column.fields]
        if source is not None:
            values = [_picked(value, rows[at]) for value in values]
        if len(values) == 2:
            return (positions if column.type == TEXT else share)(*values)
        return self._plain(column, values[0])

    def _plain(self, column: TableColumn, values: Array) -> pa.Array:
        if column.words:
            return words(pa.array(column.words, TEXT), values)
        if column.type == TEXT:
            return self.texts(values)
        if column.type == LONG:
            return integers(values, values == column.null)
        if column.type == SHORT:
            return shorts(values)
        if column.type == FLAG:
            return pa.array(values != 0)
        assert column.type == RATE, column.name
        return numbers(values)


def _picked(values: Array, places: Array) -> Array:
    """The values at these places, -1 for a place below 0."""
    if len(values):
        return np.where(places < 0, -1, values[places])
    return np.full(len(places), -1)
