"""The audit of a warehouse: checks new data, writes `quality_results` and the pages of results."""

from __future__ import annotations

import hashlib
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from app.errors import UserError, did_you_mean
from app.read.relations import ANY_ORDER, Warehouse, connect_to
from app.show.audit.audit_pages import write_pages
from app.show.audit.checks import AuditCheck
from app.show.audit.record_suites import archived
from app.show.audit.snapshot import committed
from app.show.audit.suites import ACROSS, SUITES
from app.tables.definitions import TABLES
from app.tables.manifest import load as load_manifest
from app.tables.retained import whole_from_ms
from app.tables.time_travel import rows_changed_in
from app.tables.writable import append
from app.terminal.printable import say
from app.terminal.rows import write_json, write_table

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings

RESULTS = TABLES["quality_results"]
CONFIG = {"memory_limit": "1GB", "threads": "1", **ANY_ORDER}
"""Limits of DuckDB, so that an audit leaves memory and cores to the stream; what needs more memory
is spilled to disk."""
SHOWN = ("table", "version", "expectation", "column", "success", "unexpected_count", "observed")
Row = dict[str, Any]


def quality_command(
    settings: Settings, as_json: bool = False, only: Sequence[str] = (), again: bool = False
) -> int:
    """Audit every table, or those named by `only`, and print the results; 1 if anything failed.

    What was audited at the same versions by the same suite is not audited again but with `again`.
    """
    tables = list(dict.fromkeys(only)) or list(TABLES)
    for name in tables:
        if name not in TABLES:
            raise UserError(f"--table {name}: there is none ({did_you_mean(name, list(TABLES))})")
    Warehouse.of(settings.location).require()
    load_manifest(settings.location)
    found = _audit(Warehouse.of(settings.location), tables, again)
    if as_json:
        write_json(SHOWN, [[row[name] for name in SHOWN] for row in found.rows], sys.stdout)
    else:
        _print(found.rows)
    held = all(row["success"] for row in found.rows)
    try:
        _keep(settings.location, found)
    except UserError as error:
        if held:
            raise
        say(f"weir: {error}", file=sys.stderr)
    return 0 if held else 1


def audit_warehouse(warehouse: Warehouse, tables: Sequence[str], again: bool = False) -> list[Row]:
    """The results of tables as they are committed now, one row of `quality_results` per check.

    Results that are new are appended to `quality_results`, and pages are written of them.
    """
    found = _audit(warehouse, tables, again)
    _keep(warehouse, found)
    return found.rows


@dataclass(frozen=True)
class _Audited:
    """What an audit found: results by table, the tables whose results are new, and the results
    that earlier audits kept."""

    found: dict[str, list[Row]]
    new: list[str]
    kept: dict[str, list[Row]]

    @property
    def rows(self) -> list[Row]:
        """Every result."""
        return [row for rows in self.found.values() for row in rows]


def _audit(warehouse: Warehouse, tables: Sequence[str], again: bool) -> _Audited:
    """Audit the tables; nothing is written."""
    opened = committed(warehouse)
    kept = {} if again else _kept(warehouse, opened[RESULTS.name])
    run_id, checked_ms = uuid.uuid4().hex, time.time_ns() // 1_000_000
    found: dict[str, list[Row]] = {}
    new: list[str] = []
    with _Audits(warehouse, opened) as audits:
        for table in tables:
            delta = opened[table]
            # Every audit adds to its own results, so they are looked at when others are.
            if delta is None or (table == RESULTS.name and not new and len(tables) > 1):
                continue
            inputs = _inputs(table, opened, warehouse)
            found[table] = kept.get(table, [])
            if not found[table] or found[table][0]["inputs"] != inputs:
                about = {
                    "run_id": run_id,
                    "checked_ms": checked_ms,
                    "table": table,
                    "version": delta.version(),
                    "inputs": inputs,
                }
                found[table] = [{**about, **row} for row in audits.of(table)]
                new.append(table)
    return _Audited(found, new, kept)


class _Audits:
    """Audits over one connection, made for the first: Great Expectations takes seconds to come."""

    def __init__(self, warehouse: Warehouse, opened: Mapping[str, DeltaTable | None]) -> None:
        self._warehouse = warehouse
        self._opened = opened
        self._connection: duckdb.DuckDBPyConnection | None = None

    def of(self, table: str) -> list[Row]:
        """What is found in a table that has been written to."""
        from app.show.audit.audit import add_functions, audit

        if self._connection is None:
            self._connection = connect_to(self._warehouse, self._opened, CONFIG, functions=True)
            add_functions(self._connection)
        delta = self._opened[table]
        assert delta is not None
        schema = pa.schema(delta.schema().to_arrow())
        return audit(self._connection, table, schema, checks_of(table, self._warehouse))

    def __enter__(self) -> _Audits:
        return self

    def __exit__(self, *error: object) -> None:
        if self._connection is not None:
            self._connection.close()


def checks_of(table: str, warehouse: Location) -> list[AuditCheck]:
    """Every check of a table, those across tables last."""
    whole = [archived(whole_from_ms(warehouse, table))] if table == "events" else []
    return [*SUITES[table], *ACROSS.get(table, []), *whole]


def _inputs(table: str, opened: Mapping[str, DeltaTable | None], warehouse: Warehouse) -> str:
    """A hash of all that the results of a table follow from."""
    checks = checks_of(table, warehouse)
    read = sorted({table, *(name for check in checks for name in check.reads)})
    versions = [(name, _version_of_rows(warehouse, name, opened[name])) for name in read]
    return hashlib.sha256(repr((versions, checks)).encode()).hexdigest()[:16]


def _version_of_rows(warehouse: Warehouse, name: str, delta: DeltaTable | None) -> int | None:
    """The version that last changed rows of a table: compaction changes files only."""
    if delta is None:
        return None
    options = warehouse.storage_options
    return rows_changed_in(warehouse.location(name), options, delta.version())[0]


def _kept(warehouse: Warehouse, results: DeltaTable | None) -> dict[str, list[Row]]:
    """The newest results of each table."""
    if results is None:
        return {}
    name = RESULTS.name
    with connect_to(warehouse, {name: results}, CONFIG) as connection:
        newest = connection.execute(f"""
            SELECT * FROM {name} SEMI JOIN (
              SELECT "table", arg_max(run_id, checked_ms) AS run_id FROM {name} GROUP BY ALL
            ) AS newest USING ("table", run_id)
        """)
        columns = [column[0] for column in newest.description or []]
        rows = [dict(zip(columns, row, strict=True)) for row in newest.fetchall()]
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["table"], []).append(row)
    return found


def _keep(warehouse: Location, audited: _Audited) -> None:
    """Append what is new to `quality_results`, and write the pages of it."""
    rows = [row for name in audited.new if name != RESULTS.name for row in audited.found[name]]
    if rows:
        append(warehouse, RESULTS.name, pa.Table.from_pylist(rows, schema=RESULTS.schema))
    if audited.new:
        write_pages(warehouse, {**audited.kept, **audited.found}, audited.new)


def _print(rows: list[Row]) -> None:
    failed = [
        [row[name] for name in SHOWN if name != "success"] for row in rows if not row["success"]
    ]
    if failed:
        write_table([name for name in SHOWN if name != "success"], failed, sys.stdout, None)
    for table in dict.fromkeys(row["table"] for row in rows):
        held = [row["success"] for row in rows if row["table"] == table]
        say(f"{table}: {sum(held)} of {len(held)} expectations hold")
    if not rows:
        say("nothing has been written yet")
