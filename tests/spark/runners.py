"""Records as files of batches, the streaming query over them, and a core that gets them at once."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable

from app.engine import archive_query, govern
from app.engine.operators import limits_of, operators
from app.engine.payloads import joined
from app.engine.routing import packer
from app.sources.clocks import stamped
from app.tables import checkpoints
from app.tables.definitions import TABLES
from app.tables.shape import shaped
from state.engine.payloads import PARTS
from state.engine.reach import Reach

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

Row = dict[str, Any]
Rows = dict[str, list[str]]


def text(record: Row) -> bytes:
    """A record as a line of JSON."""
    said = {k: v for k, v in record.items() if v is not None and k != "source_offset"}
    if "payload" in said:
        said["payload"] = base64.b64encode(said["payload"]).decode()
    return json.dumps(said).encode()


def write_batches(folder: Path, batches: Sequence[Sequence[bytes]]) -> None:
    """Two files per batch, in the order in which the stream is to take them."""
    folder.mkdir()
    at = 1_700_000_000
    for i, lines in enumerate(batches):
        half = len(lines) // 2
        for part, chosen in enumerate((lines[:half], lines[half:])):
            path = folder / f"{i:03d}-{part}.jsonl"
            path.write_bytes(b"".join(line + b"\n" for line in chosen))
            at += 1
            os.utime(path, (at, at))


def source(folder: Path) -> dict[str, Any]:
    """A source that takes the files of `write_batches` a batch at a time."""
    return {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "2"}}


def stream(spark: SparkSession, config: Settings) -> None:
    """Govern with the archive to the end of the source, and drain: all keys end at one time, as in
    a replay that is drained."""
    query = _to_the_end(spark, config)
    last = checkpoints.last_ended(config.location, query)
    clock_ms = checkpoints.next_watermark_ms(config.location, query, last)
    end_ms = config.window_end_ms(clock_ms + config.idle_advance_ms)
    checkpoints.plan_without_records(config.location, query, end_ms, time.time_ns() // 1_000_000)
    _to_the_end(spark, config)


def _to_the_end(spark: SparkSession, config: Settings) -> str:
    writers = govern.Writers(archive=archive_query.writer_of(config, gathers=False))
    query = govern.start(spark, config, config.jobs, {"availableNow": True}, writers=writers)
    query.awaitTermination()
    return str(query.name)


def table(config: Settings, name: str) -> pa.Table:
    """A table of the warehouse; of no rows where there is none."""
    path = f"{config.warehouse}/{name}"
    if not DeltaTable.is_deltatable(path):
        return TABLES[name].schema.empty_table()
    return DeltaTable(path).to_pyarrow_table()


def core_tables(config: Settings, job: str, lines: Sequence[bytes]) -> dict[str, pa.Table]:
    """The rows of a core that gets all records in one shard in one call, and then is drained."""
    operator = operators(config, [job])[job]
    route = replace(operator.route, payloads=None)  # they travel with their records
    raw = stamped(
        pa.record_batch(
            {
                "value": pa.array(lines, pa.binary()),
                "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
                "source_offset": pa.array(range(len(lines)), pa.int64()),
            }
        ),
        time.time_ns() // 1_000_000,
    )
    packed = [
        row
        for part in packer({job: route}, 1, limits_of(config))(iter([raw]))
        for row in part.to_pylist()
    ]
    latest_ms = max(int(row["ts"].timestamp() * 1000) for row in packed if row["ts"] is not None)
    blobs = [row["blob"] for row in packed if row["job"] == job]
    first = operator.job.step(None, blobs, Reach(0))
    last = operator.job.step(first.state, [], Reach(config.window_end_ms(latest_ms)))
    found: dict[str, list[pa.Table]] = {}
    for step in (first, last):
        for name, rows in step.tables.items():
            whole = joined(rows) if PARTS[0] in rows.column_names else rows
            found.setdefault(name, []).append(shaped(whole, TABLES[name], operator.constants))
    return {name: pa.concat_tables(parts) for name, parts in found.items()}
