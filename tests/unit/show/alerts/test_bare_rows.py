"""No shipped rule breaks on rows that have only what every row has: a rule that breaks is silent
about everybody."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

from app.show import alerts
from app.tables.definitions import TABLES, Table, TableColumn
from tests.support.throttle_rows import START_MS, write

Json = dict[str, Any]
ALWAYS = {
    *(
        "job",
        "rule",
        "switches",
        "params_hash",
        "row_no",
        "cluster",
        "broker",
        "source_feed",
        "seq",
    ),
    *("ts_wall_ms", "window_start_ms", "window_ms", "minute_ms", "polled_ms", "checked_ms"),
    *("compared_ms", "made_ms", "known_ms", "read_ms", "at_ms", "number", "alert", "labels"),
    *("state", "run_id", "table", "expectation", "success", "query", "batch", "reason_code"),
}
"""What every row has, beside the columns that a job declares to be needed."""
VALUES: Json = {
    "string": "x",
    "int64": 1,
    "int32": 1,
    "double": 1.0,
    "bool": True,
    "binary": b"x",
    "date32[day]": date(2026, 1, 1),
}
STATES = (
    *("committed", "ahead", "gone", "offsets_expired", "open_transaction", "pending_offsets"),
    *("no_offset", "empty", "dead", "rebalancing", "unknown_group", "hanging", "Ongoing", "ended"),
)


def value(column: TableColumn) -> Any:
    if column.words:
        return next(word for word in column.words if word)
    if column.name.endswith("_ms"):
        return 60_000 if column.name == "window_ms" else START_MS
    kind = str(column.type)
    return VALUES.get(kind, [] if kind.startswith("list") else {})


def bare(table: Table) -> list[Json]:
    """A row with nothing else, and one for each text and flag that a column may have."""
    row = {c.name: value(c) if c.needed or c.name in ALWAYS else None for c in table.columns}
    rows = [row]
    for column in table.columns:
        others: tuple[Any, ...] = tuple(filter(None, column.words))
        if not others and column.name == "state":
            others = STATES
        if str(column.type) == "bool":
            others = (True, False)
        rows += [{**row, column.name: other} for other in others]
    return rows


def test_no_rule_breaks_on_rows_that_have_only_what_every_row_has(
    make_settings, tmp_warehouse, capsys
):
    for table in TABLES.values():
        write(tmp_warehouse, table.name, bare(table))
    alerts.check(make_settings(), as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["broken"] == []
    assert {row["alert"] for row in found["firing"]} >= {"backlog-quota", "group-lost-messages"}
