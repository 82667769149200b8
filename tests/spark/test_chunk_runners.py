"""Chunked messages through the streaming query, the replay and the core: the same rows, and the
bytes that were sent, wherever they waited."""

from __future__ import annotations

import base64
import itertools
import json
import random
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from app.ingest.payloads import joined
from app.maintain import staging
from app.stream import archive, govern
from app.stream.operators import operators
from app.stream.run import run
from app.warehouse.shape import shaped
from app.warehouse.tables import TABLES
from app.whatif.replay import replayed
from state.engine.payloads import PARTS
from tests.reference.chunks import TABLES as OUTPUTS
from tests.spark.test_three_runners import write_batches
from tests.unit.state.chunk_trace import blob, numbered
from tests.unit.state.chunk_traces import Trace, traces
from tests.unit.state.test_chunks import CHUNK, START_MS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

JOBS = ["chunks"]
TRACES = 24
VERSIONS: dict[str, dict[str, Any]] = {
    "intended": {"maxPendingChunkedMessage": 2, "expireTimeOfIncompleteChunkedMessageMillis": 500},
    "upstream": {"profile": "upstream", "shared_mode": "hash", "max_payload_bytes": 25},
    "older": {
        "first_dup": "lose",
        "shared_orphan": "dispatch",
        "defects": ["B3", "B7"],
        "autoAckOldestChunkedMessageOnQueueFull": True,
        "maxPendingChunkedMessage": 1,
    },
    "markers": {"shared_mode": "marker", "expireTimeOfIncompleteChunkedMessageMillis": 0},
}
Rows = dict[str, list[str]]


def text(record: dict[str, Any]) -> bytes:
    """A record as a line of JSON."""
    known = {k: v for k, v in record.items() if v is not None and k != "source_offset"}
    if "payload" in known:
        known["payload"] = base64.b64encode(known["payload"]).decode()
    return json.dumps(known).encode()


def sorted_rows(tables: dict[str, pa.Table]) -> Rows:
    """Whole rows of every output table as text, sorted."""
    return {
        name: sorted(repr(sorted(row.items())) for row in tables[name].to_pylist())
        if name in tables
        else []
        for name in OUTPUTS
    }


def table(config: Settings, name: str) -> pa.Table:
    from deltalake import DeltaTable

    return DeltaTable(f"{config.warehouse}/{name}").to_pyarrow_table()


def core_rows(config: Settings, records: Sequence[dict[str, Any]], latest: int) -> Rows:
    operator = operators(config, JOBS)["chunks"]
    first = operator.job.step(None, [blob(records)], 0)
    last = operator.job.step(first.state, [], max(latest - config.idle_advance_ms, 0))
    found: dict[str, list[pa.Table]] = {}
    for step in (first, last):
        for name, rows in step.tables.items():
            whole = joined(rows) if PARTS[0] in rows.column_names else rows
            found.setdefault(name, []).append(shaped(whole, TABLES[name], operator.constants))
    return sorted_rows({name: pa.concat_tables(parts) for name, parts in found.items()})


def draw_traces() -> list[Trace]:
    found: list[Trace] = []

    @settings(
        max_examples=TRACES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(traces())
    def keep(drawn: Trace) -> None:
        found.append(drawn)

    keep()
    return found


def stream(
    spark: SparkSession,
    config: Settings,
    lines: Sequence[bytes],
    cuts: Sequence[int],
    folder: Path,
    jobs: Sequence[str] = JOBS,
) -> None:
    """Archive and govern lines that come in batches, to their end."""
    bounds = [0, *cuts, len(lines)]
    write_batches(folder, [lines[a:b] for a, b in itertools.pairwise(bounds)])
    for query in (
        archive.start(spark, config, {"availableNow": True}),
        govern.start(spark, config, jobs, {"availableNow": True}),
    ):
        query.awaitTermination()


def source(folder: Path) -> dict[str, Any]:
    return {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "2"}}


def assert_same(got: list[str], expected: list[str], name: str) -> None:
    """Equal; else what only one of them has."""
    assert got == expected, (
        name,
        sorted(set(got) - set(expected))[:3],
        sorted(set(expected) - set(got))[:3],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_random_traces(
    version: str, spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    rng = random.Random(7)
    records = numbered(
        {**record, "cluster": f"trace-{i}"}
        for i, trace in enumerate(draw_traces())
        for record in trace.records
    )
    arrival = sorted(
        records, key=lambda r: (r["ts_wall_ms"] + rng.randint(0, 490), r["source_offset"])
    )
    folder = tmp_path / "events"
    config = make_settings(
        source=source(folder),
        idle_state_ms=3000,
        stats_window_ms=7000,
        shards=5,
        archive_payload=True,
        chunks={
            "assemble_payload": True,
            "inline_payload_bytes": 8,
            "max_bytes": 12,
            **VERSIONS[version],
        },
    )
    stream(spark, config, [text(r) for r in arrival], sorted(rng.sample(range(1, 900), 6)), folder)
    core = core_rows(config, records, max(r["ts_wall_ms"] for r in records))
    live = sorted_rows({name: table(config, name) for name in OUTPUTS})
    whole = sorted_rows(replayed(config, JOBS))
    sliced = sorted_rows(replayed(config, JOBS, 100))
    for name in OUTPUTS:
        assert_same(live[name], core[name], name)
        assert_same(whole[name], core[name], name)
        assert_same(sliced[name], core[name], name)
        assert live[name], name
    assert table(config, "chunk_payloads").num_rows


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
    assert staging.sweep(config, kept_hours=0) == 0
    assert not list(Path(config.warehouse, "chunk_payloads").glob("*.parquet"))
