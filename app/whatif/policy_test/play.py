"""Runs the jobs over events in memory, as a replay does, and answers questions about the rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from app.config.settings import Settings
from app.contract.event_contract import parse_batch
from app.engine.archive_task import events_rows
from app.errors import UserError
from app.read.arrow_answers import asked
from app.read.relations import Warehouse
from app.tables.definitions import TABLES
from app.whatif.replay import replayed
from state.jobs import DECLARED, JOBS

Row = dict[str, Any]


class PlayedTables:
    """The tables that a run over these events writes."""

    def __init__(self, folder: tempfile.TemporaryDirectory[str], settings: Settings) -> None:
        self._folder = folder  # removed with this object
        self._warehouse = Warehouse.of(settings.location, settings.owners)

    def rows(self, table: str) -> list[Row]:
        """All rows of a table or view."""
        return self.query(f"FROM {table}")

    def query(self, question: str, **params: str) -> list[Row]:
        """The rows of a ready question with its parameters, or of a statement."""
        with asked(self._warehouse, question, params) as (connection, sql, values):
            connection.execute(sql, values)
            names = [column[0] for column in connection.description or []]
            return [dict(zip(names, row, strict=True)) for row in connection.fetchall()]


def play(
    events: Iterable[Mapping[str, Any]], settings: Settings, where: str = "events"
) -> PlayedTables:
    """Run the jobs of a configuration over records of the event contract, to the end of the last
    window. UserError for a record that the contract refuses."""
    folder = tempfile.TemporaryDirectory(prefix="weir-policy-test-")
    warehouse = Path(folder.name, "warehouse")
    settings = settings.model_copy(update={"warehouse": str(warehouse), "shards": 1})
    every = list(events)
    jobs = _jobs(settings, {str(event.get("event_type")) for event in every})
    lines = [json.dumps(event).encode() for event in every]
    batch = pa.record_batch(
        {
            "value": pa.array(lines, pa.binary()),
            "source_partition": ["0"] * len(lines),
            "source_offset": pa.array(range(len(lines)), pa.int64()),
        }
    )
    parsed = parse_batch(batch, jobs)
    for bad in parsed.bad.slice(0, 1).to_pylist():
        raise UserError(
            f"{where}: event {bad['row'] + 1} is refused: {bad['reason_code']}"
            + (f" ({bad['detail']})" if bad["detail"] else "")
        )
    warehouse.mkdir()
    # no event is ahead of the time at which it is read
    read_ms = int(parsed.block.number("ts_wall_ms").max())
    archived = events_rows(parsed, batch, read_ms).cast(TABLES["events"].schema)
    _write(warehouse, {"events": archived})
    _write(warehouse, replayed(settings, jobs, drain=True))
    return PlayedTables(folder, settings)


def _jobs(settings: Settings, kinds: Set[str]) -> tuple[str, ...]:
    """The jobs that the configuration names; otherwise those that run by default, and those that the
    records are for."""
    others = () if settings.names_jobs else JOBS
    wanted = {*settings.jobs, *(job for job in others if kinds & {*DECLARED[job].fed_by})}
    return tuple(job for job in DECLARED if job in wanted)


def _write(warehouse: Path, tables: Mapping[str, pa.Table]) -> None:
    for name, rows in tables.items():
        write_deltalake(
            f"{warehouse}/{name}", rows, partition_by=list(TABLES[name].partition_by) or None
        )
