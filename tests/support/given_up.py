"""What the view of given-up messages says of some rows, without a warehouse."""

from __future__ import annotations

from typing import Any

import duckdb

from app.jobs.chunks.views import GIVEN_UP_MESSAGES
from tests.support.throttle_rows import frame

Row = dict[str, Any]


def given_up(messages: list[Row], events: list[Row], incomplete: list[Row]) -> list[Row]:
    """The lost ones of `given_up_messages`, by rows of the tables that it reads."""
    tables = {
        "chunk_messages": messages,
        "chunk_events": events,
        "incomplete_messages": incomplete,
        "chunk_topic_stats": [],
    }
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, frame(name, rows))
        found: list[Row] = (
            connection.sql(f"FROM ({GIVEN_UP_MESSAGES}) WHERE fate = 'lost'")
            .to_arrow_table()
            .to_pylist()
        )
    return found
