"""The archive has as many records as were counted when they were read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from app.cli import main
from app.engine.archive_task import file_writer
from app.read.relations import Warehouse
from app.show.audit.audit_command import audit_warehouse
from app.sources.clocks import LATEST_MS, stamped
from app.tables.definitions import TABLES
from app.tables.retained import DONE, REMOVED
from state.jobs import JOBS
from tests.support.archive import tables_of, target
from tests.unit.contract.records import record

DAY_MS, MINUTE_MS = 86_400_000, 60_000
BEGIN_MS = 20_000 * DAY_MS
RULE = "every record that was read is archived or quarantined"


def read(warehouse: str, records: list[dict[str, Any]]) -> None:
    """The tables of one task of the archive that has read these records."""
    lines = [json.dumps(each).encode() for each in records]
    raw = pa.record_batch(
        {
            "value": pa.array(lines, pa.binary()),
            "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
            "source_offset": pa.array(range(len(lines)), pa.int64()),
        }
    )
    folder = Path(warehouse).parent / "files"
    packed = file_writer(target(folder, dict.fromkeys(JOBS, 0)))(iter([stamped(raw, BEGIN_MS)]))
    for name, rows in tables_of(packed, folder).items():
        if rows.num_rows:
            held = TABLES[name].schema
            whole = [
                rows[f.name].cast(f.type) if f.name in rows.column_names else _days(rows, f.type)
                for f in held
            ]
            write_deltalake(f"{warehouse}/{name}", pa.table(whole, schema=held), mode="append")


def _days(rows: pa.Table, kind: pa.DataType) -> pa.Array:
    days = [(ms or 0) // DAY_MS for ms in rows["ts_wall_ms"].to_pylist()]
    return pa.array(days, pa.int32()).cast(kind)


@pytest.fixture
def warehouse(tmp_warehouse: str) -> str:
    """Three days of two brokers, with records that are refused and such as count nowhere."""
    records = [
        record("publish", broker=broker, ts_wall_ms=BEGIN_MS + day * DAY_MS + n * MINUTE_MS // 3)
        for day in range(3)
        for n in range(10)
        for broker in ("b1", "b2")
    ]
    records += [record("publish", ts_wall_ms=ms) for ms in (LATEST_MS + 1, -5, 0, 59_999)]
    records += [record("publish", num_messages="x", ts_wall_ms=BEGIN_MS)]
    records += [record("policy", broker="*", ts_wall_ms=BEGIN_MS)]
    read(tmp_warehouse, records)
    return tmp_warehouse


def found(warehouse: str) -> tuple[bool, list[Any]]:
    """Whether the rule holds, and the minutes that it names."""
    rows = audit_warehouse(Warehouse(warehouse), ["events"], again=True)
    (row,) = [each for each in rows if each["expectation"] == RULE]
    return row["success"], json.loads(row["observed"] or "{}").get("examples", [])


def test_a_whole_archive_and_one_read_further(warehouse: str) -> None:
    assert found(warehouse) == (True, [])
    read(warehouse, [record("publish", broker="b1", ts_wall_ms=BEGIN_MS + 1)])
    assert found(warehouse) == (True, [])


@pytest.mark.parametrize(
    "gone", ["true", "source_offset = 7", f"ts_wall_ms >= {BEGIN_MS + DAY_MS}", "broker = 'b2'"]
)
def test_records_that_are_missing_are_named(warehouse: str, gone: str) -> None:
    before = DeltaTable(f"{warehouse}/events").to_pyarrow_table()
    DeltaTable(f"{warehouse}/events").delete(gone)
    holds, minutes = found(warehouse)
    assert not holds
    kept = DeltaTable(f"{warehouse}/events").to_pyarrow_table()
    assert 0 < sum(m["counted"] - m["archived"] for m in minutes) <= len(before) - len(kept)


def test_records_that_are_there_twice_are_named(warehouse: str) -> None:
    one = DeltaTable(f"{warehouse}/events").to_pyarrow_table().slice(0, 1)
    write_deltalake(f"{warehouse}/events", one, mode="append")
    holds, (minute,) = found(warehouse)
    assert not holds and minute["archived"] == minute["counted"] + 1


def test_what_retention_has_removed_is_not_missing(warehouse: str) -> None:
    midnight = BEGIN_MS + DAY_MS
    DeltaTable(f"{warehouse}/events").delete(f"ts_wall_ms < {midnight}")
    assert not found(warehouse)[0]
    location = Warehouse(warehouse)
    REMOVED.keep(location, DONE, {"events acme": midnight, "quarantine": midnight + 9 * DAY_MS})
    assert found(warehouse) == (True, [])
    DeltaTable(f"{warehouse}/events").delete(f"ts_wall_ms >= {midnight + DAY_MS}")
    assert not found(warehouse)[0]


def test_the_command_says_so(warehouse: str, capsys: pytest.CaptureFixture[str]) -> None:
    DeltaTable(f"{warehouse}/events").delete("source_offset = 7")
    assert main(["quality", "--warehouse", warehouse, "--table", "events"]) == 1
    assert RULE in capsys.readouterr().out
