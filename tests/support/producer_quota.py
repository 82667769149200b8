"""What tests share of producer quota."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from app.config.settings import Settings
from app.tables.definitions import TABLES
from app.tables.small_files import path_in

START_MS = 1_767_621_600_000
SCHEMA = TABLES["events"].schema


def batch(n: int, at_ms: int, user: str, pid: int, **columns: Any) -> dict[str, Any]:
    return {
        "event_type": "produce_batch",
        "source_feed": "f",
        "cluster": "c",
        "broker": "b",
        "seq": n,
        "ts_wall_ms": START_MS + at_ms,
        "principal": f"User:{user}",
        "client_id": "x",
        "topic": "orders",
        "partition": 0,
        "producer_id": pid,
        "num_messages": 1,
        **columns,
    }


def trace() -> list[dict[str, Any]]:
    """Ten minutes: `few` has two ids, `busy` a new one every 10 s, `storm` ten a second in the
    third minute; each id sends twice."""
    found: list[tuple[int, str, int]] = []
    for second in range(600):
        if second % 10 == 0:
            found += [(second, "few", second // 10 % 2), (second, "busy", 1000 + second)]
            found.append((second + 1, "busy", 1000 + second))
        if 120 <= second < 180:
            found += [(second, "storm", 10_000 + 10 * second + i) for i in range(10)] * 2
    return [batch(i, 1000 * s, user, pid) for i, (s, user, pid) in enumerate(sorted(found))]


def archive(settings: Settings, records: list[dict[str, Any]]) -> None:
    rows = [
        {
            **dict.fromkeys(SCHEMA.names),
            **r,
            "source_partition": "0",
            "source_offset": i,
            "ingest_ms": START_MS + 86_400_000,
            "event_date": datetime.fromtimestamp(START_MS / 1000, UTC).date(),
        }
        for i, r in enumerate(records)
    ]
    write_deltalake(path_in(settings.location, "events"), pa.Table.from_pylist(rows, SCHEMA))
    quarantine = TABLES["quarantine"].schema.empty_table()
    write_deltalake(path_in(settings.location, "quarantine"), quarantine)
