"""What the view of given-up messages says of some rows, without a warehouse."""

from __future__ import annotations

from typing import Any

import duckdb

from app.jobs.chunks.views import GIVEN_UP_MESSAGES
from tests.support.throttle_rows import frame

Row = dict[str, Any]


def given_up(messages: list[Row], events: list[Row], incomplete: list[Row]) -> list[Row]:
    """Rows of `given_up_messages` by those of chunk_messages, chunk_events and incomplete_messages."""
    tables = {
        "chunk_messages": messages,
        "chunk_events": events,
        "incomplete_messages": incomplete,
        "chunk_topic_stats": [],
    }
    with duckdb.connect() as connection:
        for name, rows in tables.items():
            connection.register(name, frame(name, rows))
        found: list[Row] = connection.sql(GIVEN_UP_MESSAGES).to_arrow_table().to_pylist()
    return found
