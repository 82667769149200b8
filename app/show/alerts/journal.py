"""The table `alerts`: read incrementally, and appended to so that no change is written twice.

Every append carries the next version of one application transaction. Of two evaluators that
start from the same state the Delta log refuses one; it reads the rows of the other and has nothing
to add.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError

from app.config.alert_rule import Rule
from app.errors import UserError, reason
from app.read.relations import Warehouse, connect_to
from app.show.alerts.episodes import (
    ACTIVE,
    FIRING,
    AlertChange,
    Labels,
    Last,
    by_labels,
    latest,
    unrecorded,
)
from app.show.alerts.evaluation import CONFIG, Evaluated, summary
from app.tables.creation import create
from app.tables.definitions import TABLES

TABLE = TABLES["alerts"]
APPLICATION = "weir-alerts"
ATTEMPTS = 20
Key = tuple[str, Labels]
Row = dict[str, Any]


class Journal:
    """The recorded changes of a warehouse's alerts."""

    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._delta: DeltaTable | None = None
        self._identity: object = None
        self._version = -1
        self.newest: dict[Key, Row] = {}
        """The newest row of each alert and set of labels."""
        self.risen: dict[Key, Row] = {}
        """Of firing alerts whose severity has risen, the row before that."""
        self.number = 0
        """The number of the newest change."""

    def load(self) -> None:
        """Read the rows that were written since the last call."""
        delta = self._warehouse.open(TABLE.name)
        identity = None if delta is None else delta.metadata().id
        if identity != self._identity:
            # Another table than before: it was removed and perhaps created again.
            self._identity, self._version, self.number = identity, -1, 0
            self.newest, self.risen = {}, {}
        self._delta = delta
        if self._delta is None or self._delta.version() == self._version:
            return
        for row in self._rows(self.number if self._version >= 0 else None):
            key = key_of(row)
            before = self.newest.get(key)
            if before is not None and before["state"] == row["state"] == FIRING:
                self.risen[key] = before
            else:
                self.risen.pop(key, None)
            self.newest[key] = row
            self.number = max(self.number, row["number"] or 0)
        self._version = self._delta.version()

    def recorded(self) -> dict[Key, Last]:
        """The newest state of each alert and set of labels."""
        return {
            key: Last(
                row["state"],
                row["at_ms"],
                row["since_ms"],
                math.nan if row["value"] is None else row["value"],
                row["severity"],
            )
            for key, row in self.newest.items()
        }

    def firing(self, names: Iterable[str]) -> list[Row]:
        """The rows of alerts of these rules that fire, oldest first."""
        wanted = set(names)
        rows = [r for r in self.newest.values() if r["state"] == FIRING and r["alert"] in wanted]
        return sorted(rows, key=lambda row: (row["at_ms"], row["alert"], row["labels"]))

    def after(self, number: int, also: Sequence[int] = ()) -> list[Row]:
        """The changes after a number, and those of the numbers in `also`, in order."""
        if self._delta is None or (number >= self.number and not also):
            return []
        return self._rows(number, also)

    def record(self, evaluated: Sequence[Evaluated]) -> tuple[list[Row], list[str]]:
        """Append the new changes of the evaluated rules; the rows written, and errors of rules
        whose summary cannot be filled in."""
        for attempt in range(ATTEMPTS):
            self.load()
            rows, broken = self.new_rows(evaluated)
            if not rows or self.append(rows):
                return rows, broken
            time.sleep(random.uniform(0, 0.05 * (attempt + 1)))
        raise UserError(
            f"{self._warehouse.location(TABLE.name)}: other processes write to it all the time\n"
            "let one run or one alerts watch evaluate the rules"
        )

    def new_rows(self, evaluated: Sequence[Evaluated]) -> tuple[list[Row], list[str]]:
        recorded = self.recorded()
        rows: list[Row] = []
        broken: list[str] = []
        for one in evaluated:
            known = {k[1]: last for k, last in recorded.items() if k[0] == one.rule.name}
            try:
                rows += [
                    self._row(one, change) for change in unrecorded(one.history, known, one.now_ms)
                ]
            except UserError as error:
                broken.append(str(error))
        rows.sort(key=lambda row: row["at_ms"])
        for number, row in enumerate(rows, self.number + 1):
            row["number"] = number
        return rows, broken

    def _row(self, evaluated: Evaluated, change: AlertChange) -> Row:
        last = self.newest.get((evaluated.rule.name, change.labels))
        gone = last is not None and change.labels not in by_labels(evaluated.history)
        # An alert whose rows are gone keeps the summary of its newest record.
        kept = last["summary"] if last is not None and gone else None
        return row_of(evaluated.rule, change, kept)

    def append(self, rows: list[Row]) -> bool:
        """Append to the version that was loaded; False if another writer was faster."""
        delta = self._delta
        if delta is None:
            # Another process may have created it and written: the new changes are computed again.
            self._create()
            return False
        version = (delta.transaction_version(APPLICATION) or 0) + 1
        marker = CommitProperties(app_transactions=[Transaction(APPLICATION, version)])
        table = pa.Table.from_pylist(rows, schema=TABLE.schema)
        try:
            # A table of an older Weir receives the columns that it lacks.
            write_deltalake(
                delta, table, mode="append", schema_mode="merge", commit_properties=marker
            )
        except CommitFailedError:
            self._delta = self._warehouse.open(TABLE.name)
            return False
        except (DeltaError, OSError) as error:
            location = self._warehouse.location(TABLE.name)
            raise UserError(f"{location}: cannot be written\n{reason(error)}") from error
        self._delta = delta
        self.load()
        return True

    def _create(self) -> None:
        location = self._warehouse.location(TABLE.name)
        try:
            create(self._warehouse, TABLE.name)
        except CommitFailedError:
            return  # another process has created it at the same moment
        except (DeltaError, OSError) as error:
            raise UserError(f"{location}: cannot be written\n{reason(error)}") from error

    def _rows(self, after: int | None, also: Sequence[int] = ()) -> list[Row]:
        """The rows with a greater number than `after` (None: all), in their order."""
        assert self._delta is not None
        where = "" if after is None else "WHERE number > $after OR list_contains($also, number)"
        parameters = {} if after is None else {"after": after, "also": list(also)}
        sql = f"SELECT * FROM {TABLE.name} {where} ORDER BY number NULLS FIRST, at_ms, state"
        with connect_to(self._warehouse, {TABLE.name: self._delta}, CONFIG) as connection:
            found = connection.execute(sql, parameters)
            names = [column[0] for column in found.description or []]
            rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        return [{**row, "labels": sorted((row["labels"] or {}).items())} for row in rows]


def key_of(row: Row) -> Key:
    """Alert and labels of a row."""
    return row["alert"], tuple(row["labels"])


def firing_rows(
    evaluated: Sequence[Evaluated], newest: Mapping[Key, Row]
) -> tuple[list[Row], list[str]]:
    """The alerts that fire with their newest values, with the times that are recorded in `newest`;
    and errors of rules whose summary cannot be filled in."""
    rows: list[Row] = []
    broken: list[str] = []
    for one in evaluated:
        for labels, change in latest(one.history).items():
            known = newest.get((one.rule.name, labels))
            is_known = known is not None and known["state"] == FIRING
            if change.state != FIRING and not (is_known and change.state in ACTIVE):
                continue
            if known is not None and is_known:
                change = replace(change, at_ms=known["at_ms"], since_ms=known["since_ms"])
            try:
                rows.append(row_of(one.rule, replace(change, state=FIRING)))
            except UserError as error:
                broken.append(str(error))
                break
    return rows, broken


def row_of(rule: Rule, change: AlertChange, words: str | None = None) -> Row:
    """A change as a row of the table, without a number; `words` replaces the summary."""
    return {
        "alert": rule.name,
        "labels": list(change.labels),
        "state": change.state,
        "at_ms": change.at_ms,
        "since_ms": change.since_ms,
        "value": change.value if math.isfinite(change.value) else None,
        "severity": change.severity,
        "summary": summary(rule, change) if words is None else words,
        "runbook": rule.runbook,
        "checked_ms": time.time_ns() // 1_000_000,
        "number": None,
    }
