"""What the views of large messages say of some rows, without a warehouse."""

from __future__ import annotations

from typing import Any

import duckdb

from app.jobs.chunks.findings import LOST
from app.tables.definitions import VIEWS
from tests.support.throttle_rows import frame

Row = dict[str, Any]


def given_up(
    messages: list[Row], events: list[Row], incomplete: list[Row]
) -> tuple[list[Row], list[Row]]:
    """The lost ones of `given_up_messages` with their producers, and the rows of `incomplete_now`, by
    rows of the tables that they read."""
    tables = {
        "chunk_messages": messages,
        "chunk_events": events,
        "incomplete_messages": incomplete,
        "chunk_topic_stats": [],
    }
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, frame(name, rows))
        for name in ("given_up_messages", "incomplete_now"):
            connection.execute(f"CREATE TEMP VIEW {name} AS {VIEWS[name].sql}")
        lost, now = (
            connection.sql(sql).to_arrow_table().to_pylist()
            for sql in (LOST, "FROM incomplete_now")
        )
    return lost, now
