"""What a table tells people who find it in a catalogue."""

from __future__ import annotations

import pytest
from deltalake import DeltaTable

from app.config.location import Location
from app.tables.creation import create
from app.tables.definitions import TABLES
from app.tables.writable import append


@pytest.mark.parametrize("name", TABLES)
def test_a_table_and_its_columns_say_what_they_are(name: str, tmp_warehouse: str) -> None:
    create(Location(tmp_warehouse, {}), name)
    table, definition = DeltaTable(f"{tmp_warehouse}/{name}"), TABLES[name]
    assert table.metadata().description == definition.meaning
    found = {field.name: field.metadata for field in table.schema().fields}
    assert found == {c.name: {"comment": c.meaning} for c in definition.columns}


def test_it_still_says_so_with_rows(tmp_warehouse: str) -> None:
    rows = TABLES["alerts"].schema.empty_table()
    for _ in range(2):
        append(Location(tmp_warehouse, {}), "alerts", rows)
    table = DeltaTable(f"{tmp_warehouse}/alerts")
    assert all(field.metadata["comment"] for field in table.schema().fields)
    assert table.to_pyarrow_table().schema.equals(TABLES["alerts"].schema)
