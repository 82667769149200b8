"""Large messages of many micro-batches are assembled to the bytes that were sent."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from app.run.maintenance import staging
from app.run.service import run
from tests.spark.runners import source, table, text, write_batches
from tests.support.chunks import CHUNK, START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings


def sent(seed: int) -> tuple[list[dict[str, Any]], dict[str, bytes]]:
    """Messages of 1 kB to 3 MB from interleaved producers, some never finished, over minutes."""
    rng = random.Random(seed)
    todo: dict[int, list[dict[str, Any]]] = {}
    whole: dict[str, bytes] = {}
    for m in range(60):
        payload = rng.randbytes(rng.choice((1000, 20_000, 200_000, 3_000_000)))
        size = max(len(payload) // rng.randint(2, 6), 1)
        parts = [payload[i : i + size] for i in range(0, len(payload), size)]
        if m % 7 == 3:
            parts[-1:] = []  # its end never comes
        else:
            whole[f"m{m}"] = payload
        todo.setdefault(m % 8, []).extend(
            {
                "uuid": f"m{m}",
                "chunk_id": i,
                "num_chunks": -(-len(payload) // size),
                "total_chunk_bytes": len(payload),
                "payload": part,
            }
            for i, part in enumerate(parts)
        )
    records: list[dict[str, Any]] = []
    while any(todo.values()):
        chunk = todo[rng.choice([p for p, left in todo.items() if left])].pop(0)
        n = len(records)
        records.append(
            {
                **CHUNK,
                **chunk,
                "ts_wall_ms": START_MS + 500 * n,
                "ledger_id": 1,
                "entry_id": n,
            }
        )
    records.append(
        {**CHUNK, "ts_wall_ms": START_MS + 7_200_000, "ledger_id": 1, "entry_id": len(records)}
    )
    return records, whole


def test_messages_are_assembled_from_chunks_of_many_batches(
    spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    records, whole = sent(3)
    folder = tmp_path / "events"
    config = make_settings(
        source=source(folder),
        chunks={
            "assemble_payload": True,
            "maxPendingChunkedMessage": 0,
            "max_bytes": 30_000,
            "expireTimeOfIncompleteChunkedMessageMillis": 1_800_000,
        },
    )
    lines = [text(r) for r in records]
    step = len(lines) // 5 + 1
    write_batches(folder, [lines[i : i + step] for i in range(0, len(lines), step)])
    assert run(config, available_now=True) == 0
    rows = table(config, "chunk_messages").to_pylist()
    assert {r["uuid"]: r["payload"] for r in rows} == whole
    assert {r["checksum"] for r in rows} == {zlib.crc32(payload) for payload in whole.values()}
    assert {r["integrity"] for r in rows} == {"exact"}
    events = table(config, "events")
    assert events.column("payload").null_count == events.num_rows
    assert sorted(filter(None, events.column("payload_crc32").to_pylist())) == sorted(
        zlib.crc32(r["payload"]) for r in records if "payload" in r
    )
    assert table(config, "chunk_payload_releases").num_rows
    files = list(Path(config.warehouse, "chunk_payloads").glob("*.parquet"))
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) > 20
    assert table(config, "chunk_payloads").num_rows == 0  # the unfinished ones have expired
    assert staging.sweep(config.location, kept_hours=0) == 0
    assert not list(Path(config.warehouse, "chunk_payloads").glob("*.parquet"))
