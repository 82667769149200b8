"""Reassembly: large payloads against reading and writing the same bytes, small messages against
a group per message."""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from app.engine import govern
from app.sources.worker import settle
from benchmarks import floors
from benchmarks.result import Result
from benchmarks.stream import END, Bench
from benchmarks.trace import START_MS

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

MIB = 1 << 20
COLUMNS = (
    "event_type",
    "cluster",
    "topic",
    "subscription",
    "consumer",
    "ledger_id",
    "entry_id",
    "uuid",
    "chunk_id",
    "num_chunks",
    "total_chunk_bytes",
    "ts_wall_ms",
    "payload",
)
OUT = "uuid string, payload binary"
STATE = "parts binary, sizes array<int>"


def run(bench: Bench) -> Result:
    """Both comparisons, floors before and after; memory of the Python workers."""
    large = _write(
        bench.folder / "large", 2 if bench.small else 96, 4, MIB // 4 if bench.small else MIB, 4
    )
    small = _write(bench.folder / "small", 300 if bench.small else 60_000, 5, 2_000, 4)
    result = Result("chunks", large.chunks + small.chunks, bench.small)
    before = _copied(bench, large)
    ours, peak = _watched(lambda: _assembled(bench, "large", large))
    after = _copied(bench, large)
    result.add(
        "Spark reads and writes the payloads",
        (before + after) / 2,
        "MB/s",
        spread=(min(before, after), max(before, after)),
        note="JSON to Delta",
    )
    result.add("Weir assembles and writes them", ours, "MB/s", note="1 MiB chunks, 4 a message")
    result.add("memory of the Python workers, most at once", peak, "MiB")
    result.ratio("Weir assembles and writes them", "Spark reads and writes the payloads")
    grouped = _by_message(bench, small) / small.bytes * small.chunks
    many, peak = _watched(lambda: _assembled(bench, "small", small))
    result.add("a group per message, to nothing", grouped * 1e6, "chunks/s")
    result.add(
        "Weir, small messages",
        many / small.bytes * small.chunks * 1e6,
        "chunks/s",
        note="2 kB chunks, 5 a message",
    )
    result.add("memory of the Python workers, small messages", peak, "MiB")
    result.ratio("Weir, small messages", "a group per message, to nothing")
    return result


class Chunked:
    """A folder of JSON lines with chunked messages; two files per micro-batch."""

    def __init__(self, folder: Path, chunks: int, size: int) -> None:
        self.folder, self.chunks, self.bytes = folder, chunks, size

    @property
    def source(self) -> dict[str, Any]:
        """Settings of the source."""
        return {"format": "files", "path": str(self.folder), "options": {"maxFilesPerTrigger": "2"}}


def _write(folder: Path, messages: int, chunks: int, size: int, batches: int) -> Chunked:
    """Messages of twenty producers on as many topics, their chunks interleaved."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    rng = random.Random(1)
    texts = [base64.b64encode(rng.randbytes(size)).decode() for _ in range(32)]
    lines: list[list[str]] = [[] for _ in range(2 * batches)]
    producers = 20
    n = 0
    for begin in range(0, messages, producers):
        for chunk_id in range(chunks):
            for m in range(begin, min(begin + producers, messages)):
                topic = m % producers
                lines[n * 2 * batches // (messages * chunks)].append(
                    json.dumps(
                        {
                            "event_type": "dispatch",
                            "source_feed": "contract",
                            "cluster": "c",
                            "broker": "b",
                            "ts_wall_ms": START_MS + n // 8,
                            "topic": f"persistent://t/ns/topic-{topic}",
                            "subscription": "s",
                            "consumer": "c1",
                            "ledger_id": 1,
                            "entry_id": n,
                            "uuid": f"p{topic}-{m}",
                            "chunk_id": chunk_id,
                            "num_chunks": chunks,
                            "total_chunk_bytes": chunks * size,
                            "payload": texts[n % 32],
                        },
                        separators=(",", ":"),
                    )
                )
                n += 1
    at = 1_700_000_000
    for i, part in enumerate(lines):
        path = folder / f"{i:03d}.jsonl"
        path.write_text("\n".join(part) + "\n")
        at += 1
        os.utime(path, (at, at))
    return Chunked(folder, n, n * size)


def _mb_per_s(data: Chunked, *queries: StreamingQuery) -> float:
    begin = time.monotonic()
    for query in queries:
        query.awaitTermination()
    return data.bytes / 1e6 / (time.monotonic() - begin)


def _lines(bench: Bench, data: Chunked) -> DataFrame:
    assert bench.spark is not None
    text = bench.spark.readStream.option("maxFilesPerTrigger", 2).text(str(data.folder))
    wanted = floors.schema_of(COLUMNS)
    rows = text.select(F.from_json("value", wanted, {"mode": "PERMISSIVE"}).alias("e"))
    return rows.select("e.*")


def _copied(bench: Bench, data: Chunked) -> float:
    """The same records through Spark alone: parsed, decoded and written to a Delta table."""
    folder = bench.folder / "copied"
    shutil.rmtree(folder, ignore_errors=True)
    query = (
        _lines(bench, data)
        .writeStream.format("delta")
        .queryName("copy")
        .trigger(**END)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .start(str(folder / "table"))
    )
    return _mb_per_s(data, query)


def _assembled(bench: Bench, name: str, data: Chunked) -> float:
    settings = bench.settings(
        f"chunks-{name}",
        data.source,
        policies=[],
        chunks={"assemble_payload": True},
    )
    assert bench.spark is not None
    return _mb_per_s(data, govern.start(bench.spark, settings, ["chunks"], END))


def _by_message(bench: Bench, data: Chunked) -> float:
    """The usual way: state by message, its parts put together when all are there."""
    rows = _lines(bench, data).select("uuid", "chunk_id", "num_chunks", "payload")
    answers = rows.groupBy("uuid").applyInPandasWithState(
        _collect, OUT, STATE, "append", GroupStateTimeout.NoTimeout
    )
    begin = time.monotonic()
    bench.to_nothing(answers, "one-group-per-message")
    return data.bytes / 1e6 / (time.monotonic() - begin)


def _collect(key: tuple[str], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[pd.DataFrame]:
    import pandas as pd

    settle()
    rows = pd.concat(list(frames)).sort_values("chunk_id")
    parts, sizes = state.get if state.exists else (b"", [])
    parts, sizes = parts + b"".join(rows["payload"]), [*sizes, *map(len, rows["payload"])]
    if len(sizes) == int(rows["num_chunks"].iloc[0]):
        state.remove() if state.exists else None
        yield pd.DataFrame({"uuid": [key[0]], "payload": [parts]})
    else:
        state.update((parts, sizes))
        yield pd.DataFrame({"uuid": [], "payload": []})


def _watched(work: Any) -> tuple[float, float]:
    """What `work` answers, and the most memory (MiB) that Python workers had at once."""
    most, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.2):
            most = max(most, _workers_mib())

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        return work(), most
    finally:
        done.set()
        thread.join()


def _workers_mib() -> float:
    """Resident memory of pyspark's daemon and workers below this process."""
    total = 0
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if b"pyspark.daemon" in status.read_bytes():
                pages = (status.parent / "statm").read_text().split()[1:3]
                total += int(pages[0]) - int(pages[1])
        except OSError:
            continue
    return total * os.sysconf("SC_PAGE_SIZE") / MIB
