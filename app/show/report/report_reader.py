"""The tables of a warehouse as a report reads them, narrowed to a span of event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from app.config.owners import owner_of
from app.errors import UserError
from app.jobs import every
from app.read.databases import time_limit
from app.read.question import LEAST, MOST
from app.read.questions import QUESTIONS
from app.read.relations import (
    ANY_ORDER,
    NARROWER,
    OWNERS,
    STATES,
    TableState,
    Warehouse,
    connect,
    first_lines,
    states,
)
from app.read.table_relation import GONE
from app.show.report.model import Row
from app.tables.definitions import TABLES, VIEWS

UNREAD = frozenset({"chunk_payloads", "chunk_payload_releases"})
FUNCTIONS = "weir_topic_tenant(topic)"
"""A call of one of Weir's functions: some questions need them."""


def reached() -> list[str]:
    """Tables whose windows and checks say what time a report covers."""
    return list(every("report", "REACHED"))


@dataclass(frozen=True)
class ReportSpan:
    """Event time from `start_ms` to before `end_ms` (ms since the epoch)."""

    start_ms: int = LEAST
    end_ms: int = MOST

    @property
    def is_whole(self) -> bool:
        """Whether nothing is left out."""
        return (self.start_ms, self.end_ms) == (LEAST, MOST)


class ReportReader:
    """Answers in rows; a table that was never written to is there, and empty."""

    def __init__(self, warehouse: Warehouse, span: ReportSpan) -> None:
        warehouse.require()
        self.warehouse = warehouse
        self.asked = span
        self.states: dict[str, TableState] = {s.name: s for s in states(warehouse)}
        names = [name for name in (*TABLES, *VIEWS, STATES, OWNERS) if name not in UNREAD]
        self._connection = connect(
            warehouse,
            " ".join([*names, FUNCTIONS]),
            config=ANY_ORDER,
            span=None if span.is_whole else (span.start_ms, span.end_ms),
            calendar=True,
        )
        self.span = self._covered()

    def rows(self, sql: str, **values: Any) -> list[Row]:
        """The rows of a statement."""
        return self._table(sql, values)[1]

    def of_rule(
        self, sql: str, values: Mapping[str, Any], limit_ms: int
    ) -> tuple[list[str], list[Row]]:
        """The columns and the rows of a statement of an alert rule; a duckdb.Error if it takes longer."""
        with time_limit(self._connection, limit_ms):
            return self._table(sql, values)

    def _table(self, sql: str, values: Mapping[str, Any]) -> tuple[list[str], list[Row]]:
        try:
            self._connection.execute(sql, values)
            names = [column[0] for column in self._connection.description or []]
            rows = self._connection.fetchall()
            return names, [dict(zip(names, row, strict=True)) for row in rows]
        except duckdb.IOException as error:
            raise UserError(f"report: {first_lines(error)}\n{GONE}") from error
        except duckdb.OutOfMemoryException as error:
            raise UserError(f"report: {first_lines(error)}\n{NARROWER}") from error

    def row(self, sql: str, **values: Any) -> Row:
        """The only row of a statement."""
        (row,) = self.rows(sql, **values)
        return row

    def ask(self, question: str, rows: int | None = None, by: str | None = None) -> list[Row]:
        """The rows of a ready question."""
        given = {} if by is None else {"by": by}
        asked = QUESTIONS[question].asked(given)
        values = asked.values(given)
        if rows is not None:
            values["rows"] = rows
        return self.rows(asked.sql, **values)

    def columns(self, table: str, columns: Sequence[str]) -> list[Row]:
        """Some columns of all rows of a table."""
        shown = ", ".join(f't."{column}" AS "{column}"' for column in columns)
        return self.rows(f"SELECT {shown} FROM {table} AS t")

    def written(self, table: str) -> bool:
        """Whether anything was ever written to a table."""
        state = self.states.get(table)
        return state is not None and state.version is not None and state.rows != 0

    def team(self, labels: Mapping[str, str | None]) -> str | None:
        """Who owns the topic or the user of labels, as an alert has them."""
        topic, user = labels.get("topic"), labels.get("user") or labels.get("principal")
        named = (topic or user) and owner_of(
            self.warehouse.owners, labels.get("cluster"), topic, user
        )
        return named.team if named else None

    def nothing_in(self, *tables: str) -> str:
        """Why tables have nothing to show."""
        names = " and ".join(tables)
        if any(self.written(table) for table in tables):
            return f"No rows of {names} fall into the time of this report."
        return f"Nothing has been written to {names} yet."

    def step_ms(self, parts: int = 80) -> int:
        """The length of one of so many parts of the time that the page is about (ms)."""
        span = self.span
        return 1 if span is None else max((span.end_ms - span.start_ms) // parts, 1)

    def _covered(self) -> ReportSpan | None:
        """From the first window or check to the end of the last; None without any."""
        parts = [
            f"SELECT min({start}) AS start_ms, max({start} + {length}) AS end_ms FROM {name}"
            for name in reached()
            for start, length in [
                ("window_start_ms", "window_ms")
                if "window_ms" in TABLES[name].names
                else ("pass_ms", "1")  # checks have no length
            ]
        ]
        found = self.row(
            f"SELECT min(start_ms) AS start_ms, max(end_ms) AS end_ms"
            f" FROM ({' UNION ALL '.join(parts)})"
        )
        if found["start_ms"] is None:
            return None
        return ReportSpan(int(found["start_ms"]), int(found["end_ms"]))
