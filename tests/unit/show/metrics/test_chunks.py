"""The age of the oldest large message, from the newest windows of their consumers."""

from __future__ import annotations

import duckdb

from app.jobs.chunks.metrics import ChunkMetrics
from app.show.metrics.entities import Bounds
from tests.support.throttle_rows import frame

MINUTE = 60_000


def test_a_consumer_that_is_one_window_behind_counts_and_one_further_behind_does_not() -> None:
    rows = [
        {
            "cluster": "east",
            "topic": "t",
            "subscription": "s",
            "consumer": f"c{minute}",
            "row_no": 0,
            "window_start_ms": minute * MINUTE,
            "window_ms": MINUTE,
            "oldest_age_ms": age_ms,
        }
        for minute, age_ms in ((0, 9000), (1, 7000), (2, 5000))
    ]
    part = ChunkMetrics(Bounds(top=10, idle_ms=MINUTE))
    with duckdb.connect() as connection:
        for name in ChunkMetrics.reads:
            connection.register(name, frame(name, rows if name == "chunk_state" else []))
        part.take(connection)
    values = {name: value for name, _, value in part.samples()}
    assert values["weir_chunk_oldest_age_seconds"] == 7
