"""The definition of a table: its columns, their Arrow types and one sentence for each.

Times are bigint milliseconds or nanoseconds, never timestamps without a zone, which would raise the
Delta protocol above reader 1, writer 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from state.engine.structs import record
from state.events import NULL

TEXT, LONG, SHORT, FLAG, RATE = pa.string(), pa.int64(), pa.int32(), pa.bool_(), pa.float64()
TEXTS = pa.list_(TEXT)
SHORTS = pa.list_(SHORT)
SWITCHES = pa.map_(TEXT, TEXT)
COUNTS = pa.map_(TEXT, LONG)

CAN_WAIT_MS = 10_000
"""Commit interval of tables that are read in rounds, by alerts, metrics and audits."""


ROW, RECORD, KEY, GIVEN = "row", "record", "key", "given"
"""Where a value comes from: the kernel's row, the record that led to it, its key, or the job. Any other
source is a field of the row, too, with a position in an array of the job."""


@dataclass(frozen=True)
class TableColumn:
    """One column of a table: its Arrow type, what it means, what it may hold and where it is from."""

    name: str
    type: pa.DataType
    meaning: str
    words: tuple[str | None, ...] = ()
    """Its texts, if it has no others; the kernel has their positions."""
    needed: bool = False
    """Whether it always has a value."""
    least: int | None = None
    most: int | None = None
    """The smallest and the largest number that it may have."""
    source: str = GIVEN
    fields: tuple[str, ...] = ()
    """Its fields there: one, or the ledger and entry of a position, or the part and whole of a share."""
    null: int = int(NULL)
    """The integer that stands for null."""


Columns = tuple[TableColumn, ...]


def made(
    type_: pa.DataType, name: str, meaning: str, *fields: str, of: str = ROW, **more: Any
) -> TableColumn:
    """A column that is made of what a kernel has; its field has its name if none is given."""
    return TableColumn(name, type_, meaning, source=of, fields=fields or (name,), **more)


text, long, short, flag, rate = (partial(made, t) for t in (TEXT, LONG, SHORT, FLAG, RATE))


@dataclass(frozen=True)
class Table:
    """A Delta table of a warehouse; `sort_by` is the order in which its rows are read best."""

    name: str
    meaning: str
    columns: tuple[TableColumn, ...]
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    job: str | None = None
    default: bool = True
    """False: written only if `extra_outputs` of the job names the table."""
    commit_interval_ms: int = 0
    """Time over which rows of several micro-batches gather for one commit (ms); 0: none."""
    more_key: tuple[str, ...] = ()
    """Columns that name the key of a row beside those of its job."""
    rules: tuple[str, ...] = ()
    """What `rule` may be; empty: more than are listed."""
    live: str | None = None
    """For a table of shadow policies, the table with the same rows of the live policies."""

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema, in column order."""
        return pa.schema([(c.name, c.type) for c in self.columns])

    @property
    def described(self) -> pa.Schema:
        """The schema with the meaning of each column, as Delta keeps it."""
        return pa.schema(
            [
                field.with_metadata({"comment": column.meaning})
                for field, column in zip(self.schema, self.columns, strict=True)
            ]
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The column names, in order."""
        return tuple(c.name for c in self.columns)


COMMON_OUTPUT: tuple[TableColumn, ...] = (
    TableColumn("job", TEXT, "job that decided"),
    TableColumn("cluster", TEXT, "cluster name"),
    TableColumn("broker", TEXT, "broker whose records led to the row"),
    TableColumn("ts_mono_ns", LONG, "monotonic time of the decision, from the event or timer (ns)"),
    TableColumn("ts_wall_ms", LONG, "wall time of the decision (ms since the epoch, UTC)"),
    TableColumn("rule", TEXT, "stable name of the rule that decided"),
    TableColumn("switches", SWITCHES, "all version parameters in force"),
    TableColumn("params_hash", TEXT, "hash of the job's parameters and configured policies"),
    TableColumn("source_feed", TEXT, "feed of the record that led to the row"),
    TableColumn("row_no", SHORT, "order among the rows of one key and time in this table"),
)
"""First columns of every output row of a job (event contract, section 8)."""
WINDOW: Columns = (
    TableColumn("window_start_ms", LONG, "start of the window (ms since the epoch)"),
    TableColumn("window_ms", LONG, "length of the window (ms)"),
)
"""Columns of rows about a window of time."""


def windows(*fields: str, of: str = ROW) -> Columns:
    """These columns where the kernel has the start, or both, in these fields."""
    return tuple(
        replace(column, source=of, fields=(name,)) if name else column
        for column, name in zip_longest(WINDOW, fields)
    )


def begins(of: str, **fields: tuple[str, ...]) -> Columns:
    """Where the first columns of a row come from: `of`, or the source and field of those named; the
    job makes a column whose source is GIVEN."""
    first = [(c, fields.get(c.name, (of, c.name))) for c in COMMON_OUTPUT if c.name in _FIRST]
    return tuple(replace(c, source=where[0], fields=where[1:]) for c, where in first)


_FIRST = ("cluster", "broker", "ts_mono_ns", "ts_wall_ms", "source_feed", "row_no")
FROM_RECORD = begins(RECORD, row_no=(ROW, "row_no"))
"""Of a row that a record has led to, which the kernel's row names in `record`."""
FROM_PASS = begins(
    ROW,
    cluster=(KEY, "cluster"),
    ts_mono_ns=(ROW, "mono_ns"),
    ts_wall_ms=(ROW, "at_ms"),
    source_feed=(ROW, "feed"),
)
"""Of a row that a timer has led to."""


@dataclass(frozen=True)
class Output:
    """A table as a job declares it, without the columns that all outputs begin with."""

    name: str
    meaning: str
    columns: tuple[TableColumn, ...]
    sort_by: tuple[str, ...]
    default: bool = True
    """False: written only if `extra_outputs` of the job names the table."""
    commit_interval_ms: int = CAN_WAIT_MS
    """0 for rows that somebody waits for."""
    shadowed: bool = False
    """Whether rows under shadow policies are written to a table of their own."""
    more_key: tuple[str, ...] = ()
    """Columns that name the key of a row beside those of the job."""
    begins: Columns = ()
    """Where the columns that all outputs begin with come from; empty: the job makes them."""
    rules: tuple[str, ...] = ()
    """What `rule` may be, if it is nothing else: one rule of all rows, or the kernel has its position."""

    @cached_property
    def made(self) -> Columns:
        """The columns that come from the kernel."""
        rule = text("rule", "", words=self.rules) if len(self.rules) > 1 else None
        every = (*self.begins, *self.columns, *([rule] if rule else []))
        return tuple(column for column in every if column.source != GIVEN)

    def row(self, *more: str, **others: str) -> np.dtype[Any]:
        """The kernel's row: the fields of its columns, and more ones: integers, and of other types."""
        kinds = dict.fromkeys(more, "<i8") | others
        for column in self.made:
            fields = column.fields if column.source == ROW else (column.source,)
            # a share is of fields that another column has, or `more` with their types
            own = () if column.type == RATE and len(fields) == 2 else fields
            kinds |= {
                name: "<f8" if column.type == RATE and column.source == ROW else "<i8"
                for name in own
                if name not in kinds
            }
        return record(list(kinds.items()))

    def of(self, job: str) -> Table:
        """The complete table."""
        return Table(
            self.name,
            self.meaning,
            COMMON_OUTPUT + self.columns,
            sort_by=self.sort_by,
            job=job,
            default=self.default,
            commit_interval_ms=self.commit_interval_ms,
            more_key=self.more_key,
            rules=self.rules,
        )


SHADOW = "shadow_"
"""Prefix of the names of shadow tables."""
LIVE = "live"
"""Reserved name of the policies in force; no shadow has it."""
WHOSE = TableColumn("policy", TEXT, "shadow whose policies decided, by its name in `shadows`")


def shadow_of(table: Table) -> Table:
    """The table for rows of a table under shadow policies."""
    return replace(
        table,
        name=SHADOW + table.name,
        live=table.name,
        columns=(*table.columns, WHOSE),
        meaning=f"What {table.name} would have under shadow policies: its columns, and `policy`.",
        commit_interval_ms=CAN_WAIT_MS,
    )
