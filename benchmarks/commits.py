"""Versions and files that a run without an end adds to its tables, at a micro-batch a second.

The demo's fleet at 5,000 events/s, all jobs; each file is a second of it and a micro-batch. Once
every batch commits its rows, and once those of tables whose readers can wait gather. A run before
lets the JVM compile itself.
"""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from deltalake import DeltaTable

from app.engine import govern
from app.engine.gatherers import Gatherers
from app.run.shutdown import Stopping, finish
from benchmarks.all_jobs import Cpu
from benchmarks.produce import demo, planned
from benchmarks.result import Result
from benchmarks.stream import END, Bench, finished
from state.jobs import JOBS

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

    from app.config.settings import Settings

AT_ONCE, GATHERED = "each batch commits", "rows gather"
WAYS = {
    AT_ONCE: {"commit_interval_ms": 0},
    GATHERED: {},
}
RATE, LOOK_S, HOUR_S = 5_000, 0.25, 3600


def run(bench: Bench) -> Result:
    """Both, one after the other."""
    seconds = 8 if bench.small else 40
    trace = demo(500 if bench.small else RATE)
    folder = bench.folder / "commits-trace"
    events = _write(folder, *planned(trace, seconds), trace.scenario.start_ms)
    result = Result("commits", events, bench.small)
    source = {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "1"}}
    if not bench.small:
        warm = bench.settings("commits-warm", source, policies=trace.policies)
        finished(govern.start(bench.spark, warm, JOBS, END))
    for number, (name, keys) in enumerate(WAYS.items()):
        settings = bench.settings(
            f"commits-{number}", source, policies=trace.policies, trigger_ms=1000, **keys
        )
        with Cpu() as cpu:
            query = _run(bench, settings, len(list(folder.iterdir())))
        speed = finished(query)
        batches = speed.batches + 1
        versions, files = _sizes(settings)
        result.add(
            f"{name}: commits an hour",
            versions * HOUR_S / batches,
            "commits",
            note=f"all tables, {batches} batches",
        )
        result.add(f"{name}: files an hour", files * HOUR_S / batches, "files")
        result.add(f"{name}: batch", speed.batch_ms, "ms", note=f"of {events // batches:,} events")
        for kind in ("driver", "JVM"):
            result.add(f"{name}: CPU of {kind} a batch", 1000 * cpu.seconds[kind] / batches, "ms")
    for what in ("commits an hour", "CPU of driver a batch"):
        result.ratio(f"{GATHERED}: {what}", f"{AT_ONCE}: {what}")
    return result


def _write(
    folder: Path, lines: list[bytes], brokers: list[int], due: np.ndarray, start_ms: int
) -> int:
    """A file for each second of arrival; their times are in the order of their names."""
    folder.mkdir(parents=True)
    second = (due - start_ms) // 1000
    ends = [*np.flatnonzero(np.diff(second)) + 1, len(lines)]
    for first, last in zip([0, *ends], ends, strict=False):
        file = folder / f"part-{first:09}.json"
        file.write_bytes(b"\n".join(lines[first:last]) + b"\n")
        os.utime(file, (1_000_000_000 + int(second[first]),) * 2)
    return len(lines)


def _run(bench: Bench, settings: Settings, files: int) -> StreamingQuery:
    """Run until every file is read."""
    assert bench.spark is not None
    gatherers = Gatherers(settings, True, print)
    query = govern.start(
        bench.spark, settings, JOBS, writers=govern.Writers(gatherers.writer("govern"))
    )
    read = 0
    try:
        while query.isActive and read < files:
            gatherers.commit_due()
            last = query.lastProgress
            if last is not None:  # the offset of the source is the number of its last file
                read = ast.literal_eval(last["sources"][0]["endOffset"])["logOffset"] + 1
            time.sleep(LOOK_S)
    finally:
        finish([query], Stopping())
        gatherers.commit_all()
    return query


def _sizes(settings: Settings) -> tuple[int, int]:
    """Commits with rows, and data files, of all tables."""
    tables = [DeltaTable(str(log.parent)) for log in Path(settings.warehouse).glob("*/_delta_log")]
    return sum(table.version() for table in tables), sum(len(t.file_uris()) for t in tables)
