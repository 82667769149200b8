"""How long a read command takes to its first row on a warehouse of ten million events.

The warehouse is as a run leaves it, before any compaction: the archive in a file per ten seconds
and task, each sorted by topic; marks in a file per second; windows in a file per minute. A figure
is the time from the start of the process to the first byte of its answer, with Python's own start
in it. The floor is Python importing DuckDB, delta-rs and Arrow, without which nothing can be read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, WriterProperties, write_deltalake

from app.tables.definitions import TABLES
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from benchmarks.trace import START_MS, Traffic
from tests.support.throttle_rows import event, window

ROOT = Path(__file__).resolve().parents[1]
ROWS_PER_FILE = 25_000
RATE = 5_000
DAY_MS = 86_400_000
FLOOR = "start: Python with DuckDB, delta-rs and Arrow"
REPEATS = 5


def run(bench: Bench) -> Result:
    """Build the warehouse, then ask."""
    events = 100_000 if bench.small else 10_000_000
    result = Result("query", events, bench.small)
    warehouse = build(bench.folder / "warehouse-query", events)
    measure(result, warehouse, events, 0 if bench.small else REPEATS)
    return result


def measure(result: Result, warehouse: Path, events: int, repeats: int) -> None:
    """Time the questions in turn, each on a process of its own; without repeats only the first
    turn, which fills the page cache, counts."""
    middle_ms = START_MS + events // RATE * 500
    between = f"ts_wall_ms BETWEEN {middle_ms} AND {middle_ms + 10_000}"
    topic = "topic = 'persistent://tenant-7/ns-2/topic-7'"
    questions = {
        "ten seconds of the archive": ["query", f"SELECT * FROM events WHERE {between}"],
        "ten seconds of one topic": ["query", f"SELECT * FROM events WHERE {topic} AND {between}"],
        "all of the archive": ["query", "SELECT * FROM events"],
        "count of the archive": ["query", "SELECT count(*) AS n FROM events"],
        "top-offenders": ["query", "blame"],
        "noisy-neighbours": ["query", "blame", "--by", "pair"],
        "near-limit": ["query", "near-limit"],
        "freshness": ["query", "freshness"],
        "ten seconds of the archive, as of now": [
            "query",
            f"SELECT * FROM events WHERE {between}",
            "--as-of",
            str(time.time_ns() // 1_000_000),
        ],
        "tables": ["tables"],
    }
    imports = "import duckdb, deltalake, pyarrow; print(1)"
    timed: dict[str, list[float]] = {name: [] for name in (FLOOR, *questions)}
    for turn in range(repeats + 1):
        for name in timed:
            command = [sys.executable, "-c", imports]
            if name in questions:
                command = [sys.executable, "-m", "app.main", *questions[name], "--csv"]
                if name == "tables":
                    command[-1] = "--json"
                command += ["--warehouse", str(warehouse)]
            took = first_byte(command)
            if turn or not repeats:
                timed[name].append(took)
    for name, times in timed.items():
        value, spread = middle(times)
        result.add(name, value, "s", spread)


def first_byte(command: Sequence[str]) -> float:
    """Seconds until a command writes the first byte of its answer; it is stopped then."""
    began = time.perf_counter()
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.read(1)
        took = time.perf_counter() - began
        process.kill()
        assert first, process.stderr.read().decode()
    return took


def build(folder: Path, events: int) -> Path:
    """Write the tables of a fleet that sent so many events; a folder that is there stays."""
    if folder.exists():
        return folder
    _archive(folder, events)
    seconds = events // RATE
    _append(folder, "throttle_events", (_marks(s) for s in range(seconds)))
    for name, make in (("topic_throttle_stats", _windows), ("limiter_stats", _limiters)):
        _append(folder, name, (make(m, 10_000) for m in range(max(seconds // 60, 1))))
    return folder


def _archive(folder: Path, events: int) -> None:
    table = TABLES["events"]
    files = events // ROWS_PER_FILE
    path = str(folder / "events")
    DeltaTable.create(
        path,
        table.schema,
        partition_by=list(table.partition_by),
        configuration={
            "delta.checkpointInterval": "100",
            "delta.dataSkippingStatsColumns": "ts_wall_ms,ts_mono_ns,cluster,broker,topic,event_type,seq",
        },
    )
    delta = DeltaTable(path)
    zstd = WriterProperties(compression="ZSTD", compression_level=1)
    for part in Traffic(rate=RATE).parts(files, ROWS_PER_FILE):
        rows = part.sort_by([(name, "ascending") for name in table.sort_by])
        day = (np.asarray(rows.column("ts_wall_ms")) // DAY_MS).astype(np.int32)
        columns = {c: rows.column(c) for c in rows.column_names if c != "value"}
        columns["event_date"] = pa.array(day, pa.date32())
        write_deltalake(delta, _shaped("events", columns), mode="append", writer_properties=zstd)


def _append(folder: Path, name: str, parts: Iterable[pa.Table]) -> None:
    table = TABLES[name]
    path = str(folder / name)
    DeltaTable.create(path, table.schema, configuration={"delta.checkpointInterval": "100"})
    delta = DeltaTable(path)
    for part in parts:
        write_deltalake(delta, part, mode="append")


def _marks(second: int) -> pa.Table:
    """A pause of each of twelve connections, for half a second."""
    rows = []
    for broker in range(12):
        topics = [_topic(broker + 12 * ((second + i) % 40)) for i in range(12)]
        for at, action in ((0, "mark"), (500, "unmark")):
            rows.append(
                event(
                    at,
                    action,
                    cluster="bench",
                    broker=f"broker-{broker}",
                    cnx_id=f"c{second % 50}",
                    ts_wall_ms=START_MS + second * 1000 + at,
                    ts_mono_ns=(second * 1000 + at) * 1_000_000,
                    topic=topics[0],
                    culprit_topic=topics[0],
                    collateral_topics=topics[1:] if at == 0 else [],
                )
            )
    return pa.Table.from_pylist(rows, TABLES["throttle_events"].schema)


def _windows(minute: int, topics: int) -> pa.Table:
    rng = np.random.default_rng([1, minute])
    base = window(minute, cluster="bench")
    start = START_MS + minute * 60_000
    guilty = rng.integers(0, 3, topics)
    columns = _repeated("topic_throttle_stats", base, topics)
    columns |= {
        "topic": pa.array([_topic(t) for t in range(topics)]),
        "broker": pa.array([f"broker-{t % 12}" for t in range(topics)]),
        "window_start_ms": pa.array(np.full(topics, start)),
        "ts_wall_ms": pa.array(np.full(topics, start + 60_000)),
        "culprit_times": pa.array(guilty),
        "culprit_ns": pa.array(guilty * rng.integers(10**8, 10**9, topics)),
        "collateral_times": pa.array(2 - guilty),
        "collateral_ns": pa.array((2 - guilty) * rng.integers(10**8, 10**9, topics)),
        "messages": pa.array(rng.integers(0, 10_000, topics)),
    }
    return _shaped("topic_throttle_stats", columns)


def _limiters(minute: int, topics: int) -> pa.Table:
    rng = np.random.default_rng([2, minute])
    start = START_MS + minute * 60_000
    base = {
        k: v
        for k, v in window(minute, cluster="bench").items()
        if k in TABLES["limiter_stats"].names
    }
    messages = rng.integers(0, 7_000, topics)
    columns = _repeated("limiter_stats", base, topics)
    columns |= {
        "broker": pa.array([f"broker-{t % 12}" for t in range(topics)]),
        "window_start_ms": pa.array(np.full(topics, start)),
        "ts_wall_ms": pa.array(np.full(topics, start + 60_000)),
        "limiter": pa.repeat(pa.scalar("topic"), topics),
        "limiter_name": pa.array([_topic(t) for t in range(topics)]),
        "messages": pa.array(messages),
        "limit_msgs": pa.array(np.full(topics, 100.0)),
        "min_balance_msgs": pa.array(100 - messages // 60),
        "throttles": pa.array((messages > 6_000).astype(np.int64)),
        "utilisation": pa.array(messages / 60 / 100),
    }
    return _shaped("limiter_stats", columns)


def _topic(number: int) -> str:
    return f"persistent://tenant-{number % 17}/ns-{number % 5}/topic-{number}"


def _repeated(name: str, row: dict[str, object], count: int) -> dict[str, pa.Array]:
    schema = TABLES[name].schema
    return {k: pa.repeat(pa.scalar(v, schema.field(k).type), count) for k, v in row.items()}


def _shaped(name: str, columns: dict[str, pa.Array]) -> pa.Table:
    schema = TABLES[name].schema
    rows = len(next(iter(columns.values())))
    return pa.table(
        [
            columns[f.name].cast(f.type) if f.name in columns else pa.nulls(rows, f.type)
            for f in schema
        ],
        schema=schema,
    )
