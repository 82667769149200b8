"""Backlogs: what idle topics cost a batch without a check, what a check costs, and a batch in which
all topics are due."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from app.engine.routing import Route
from benchmarks import floors
from benchmarks.columnar import blobs_of, judged
from benchmarks.core import PARAMS, SHARDS
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from benchmarks.trace import START_MS
from state.backlog import shard
from state.backlog.operator import Backlog
from state.backlog.resting import wake
from state.backlog.sequence import COLUMNS
from state.engine.reach import Reach
from state.events import SCHEMA
from state.jobs import DECLARED
from tests.unit.state.shipping import params_of

JOB = DECLARED["backlog"]
if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Array = np.ndarray
States = dict[int, bytes | None]
INTERVAL_MS = 60_000
CHECKS = 12
"""Enough for all the checks that a cursor remembers, and a few to measure."""
ENTRIES, SIZE = 1000, 1_000_000
ROUTES = {"backlog": Route(JOB.columns, JOB.key)}
CARRIED = tuple(dict.fromkeys((*COLUMNS, "partition")))
LIMITS = {
    "backlogQuotaDefaultLimitBytes": 100 * SIZE,
    "backlogQuotaDefaultLimitSecond": 86_400,
    "preciseTimeBasedBacklogQuotaCheck": True,
}


def run(bench: Bench) -> Result:
    """The core over all shards, in one process."""
    result = Result("backlog", 0, bench.small)
    _idle(result, _topics(bench))
    _checks(result, _topics(bench))
    return result


def job(bench: Bench) -> Result:
    """The streaming query: all topics come, some of them go on, then all are due."""
    result = Result("backlog_job", 0, bench.small)
    _job(bench, result, _topics(bench))
    return result


def _topics(bench: Bench) -> int:
    return 1_000 if bench.small else 100_000


# -- records ---------------------------------------------------------------------------------


def _table(kinds: Array, topics: Array, at_ms: Array | int, first: int, **more: Any) -> pa.Table:
    """Records of topics, numbered from `first` on; null what is not given."""
    n = len(topics)
    plain = {
        "event_type": kinds,
        "source_feed": ["pulsar_admin"] * n,
        "cluster": ["bench"] * n,
        "broker": ["1"] * n,
        "seq": np.arange(first, first + n),
        "ts_wall_ms": np.broadcast_to(at_ms, n),
        "topic": [f"persistent://bench/{i % 100}/{i}" for i in topics.tolist()],
        **more,
    }
    return pa.table(
        {
            f.name: pa.nulls(n, f.type) if f.name not in plain else pa.array(plain[f.name], f.type)
            for f in SCHEMA
        }
    )


def _poll(topics: Array, at_ms: int) -> pa.Table:
    """A poll of topics: two ledgers, a slow subscription in the first, a fast one at the end."""
    rows = np.repeat(topics, 4)
    which = np.tile(np.arange(4), len(topics))
    kinds = np.array(["ledger_state", "ledger_state", "cursor_state", "cursor_state"])[which]
    ledgers = which < 2

    def only(mask: Array, values: Array) -> pa.Array:
        return pa.array(values, mask=~mask)

    return _table(
        kinds,
        rows,
        at_ms,
        0,
        ledger_id=only(ledgers, which + 1),
        ledger_entries=only(ledgers, which * 0 + ENTRIES),
        ledger_bytes=only(ledgers, which * 0 + SIZE),
        ledger_close_ms=only(which == 0, which * 0 + at_ms - 1000),
        subscription=only(~ledgers, np.array(["", "", "slow", "fast"])[which]),
        mark_delete=only(~ledgers, np.array(["", "", "1:9", f"2:{ENTRIES - 1}"])[which]),
        publish_time_ms=only(which == 2, which * 0 + at_ms - 60_000),
    )


def _traffic(topics: int, at_ms: int, number: int) -> pa.Table:
    """Ten new entries in each of the first topics, within a tenth of a second."""
    rows = np.tile(np.arange(topics), 10)
    entry = ENTRIES + number * 10 + np.repeat(np.arange(10), topics)
    return _table(
        np.repeat("entry_added", len(rows)),
        rows,
        at_ms + np.arange(len(rows)) * 100 // len(rows),
        10**9 + number * 10**6,
        ledger_id=np.full(len(rows), 2),
        entry_id=entry,
        entry_bytes=np.full(len(rows), 1000),
    )


# -- the core --------------------------------------------------------------------------------


class _Core:
    """The core over all shards, as tasks call it one after the other."""

    def __init__(self, **params: Any) -> None:
        self._job = Backlog(params_of(JOB.name, **{**LIMITS, **params}))
        self.states: States = dict.fromkeys(range(SHARDS))
        self.rows = 0

    def take(self, parts: Iterator[pa.Table], stream_ms: int) -> list[float]:
        """Judge tables, a batch each; the seconds that each took, shipping left out."""
        return [self._step(blobs, stream_ms) for blobs in blobs_of(parts, ROUTES, SHARDS, 50_000)]

    def wake(self, stream_ms: int) -> float:
        """Nothing comes, but time goes on."""
        return self._step({place: [] for place in self.states}, stream_ms)

    def floor(self) -> float:
        """Every state read and written, topics that rest too, and nothing judged."""
        began = time.perf_counter()
        for state in filter(None, self.states.values()):
            read = shard.read(state)
            wake(read, read.waiting, Reach(0), 0, everything=True)
            shard.write(read)
        return time.perf_counter() - began

    @property
    def bytes(self) -> int:
        """All states together."""
        return sum(len(state or b"") for state in self.states.values())

    def _step(self, blobs: dict[int, Any], stream_ms: int) -> float:
        began = time.perf_counter()
        for place, mine in blobs.items():
            step = self._job.step(self.states[place], mine, Reach(stream_ms))
            self.states[place] = step.state
            self.rows += sum(table.num_rows for table in step.tables.values())
        return time.perf_counter() - began


def _idle(result: Result, topics: int) -> None:
    """A batch of the same records beside more and more topics that rest, no check in between."""
    active = topics // 100
    name = "batch of {:,} records, no check, {:,} idle topics"
    for idle in (0, topics // 10, topics):
        core = _Core(backlogQuotaCheckEnabled=False)
        core.take(iter([_poll(np.arange(active + idle), START_MS)]), 0)
        spent = []
        for i in range(1, 11):
            at_ms = START_MS + 3000 * i
            part = _traffic(active, at_ms, i)
            spent += core.take(iter([part]), at_ms - 1000)
            result.events += part.num_rows
        spent = spent[-5:]
        value, spread = middle([1000 * s for s in spent])
        result.add(name.format(10 * active, idle), value, "ms", spread=spread)
        value, spread = middle([1000 * core.floor() for _ in range(3)])
        result.add(f"states of {idle:,} idle topics read and written", value, "ms", spread=spread)
    result.ratio(name.format(10 * active, topics), name.format(10 * active, 0))


def _checks(result: Result, topics: int) -> None:
    """Checks in which every topic is due, with cursors that remember all they can."""
    for label, params in (
        ("", {}),
        (
            ", quota exceeded and evicted",
            {
                "backlogQuotaDefaultLimitBytes": SIZE,
                "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
            },
        ),
    ):
        core = _Core(**params)
        core.take(iter([_poll(np.arange(topics), START_MS)]), 0)
        spent = []
        for number in range(1, CHECKS + 1):
            before = core.rows
            spent.append(core.wake(START_MS + number * INTERVAL_MS))
        value, spread = middle(spent[-3:])
        due = f"batch in which {topics:,} topics are due{label}"
        result.add(due, value, "s", spread=spread, note=f"{core.rows - before:,} rows, one process")
        result.add(f"one check of a topic{label}", 1e6 * value / topics, "µs")
        if not label:
            again, spread = middle([core.floor() for _ in range(3)])
            result.add(f"states of {topics:,} topics read and written", again, "s", spread=spread)
            result.ratio(due, f"states of {topics:,} topics read and written")
            result.add(
                f"state, {topics:,} topics",
                core.bytes / topics,
                "bytes per topic",
                note="two ledgers, two cursors, ten checks; topics are alike",
            )


# -- the job ---------------------------------------------------------------------------------


def _job(bench: Bench, result: Result, topics: int) -> None:
    folder = bench.folder / "backlogs"
    folder.mkdir(parents=True, exist_ok=True)
    active = topics // 100
    begin = START_MS - START_MS % INTERVAL_MS + 1000
    parts = [_poll(np.arange(topics), begin)]
    parts += [_traffic(active, begin + 1000 * i, i) for i in range(1, 6)]
    later = begin + INTERVAL_MS
    parts += [_traffic(active, later + PARAMS["idle_advance_ms"] + 1000 * i, i) for i in (6, 7)]
    for number, part in enumerate(parts):
        _write(part, folder / f"{number:02d}.parquet")
    settings = bench.settings("backlog", {"format": "files", "path": "in"}, backlog=LIMITS)
    speed = bench.to_nothing(judged(settings, _typed(bench, folder), "backlog"), "backlog")
    took = [p["durationMs"]["triggerExecution"] for p in speed.progress]
    value, spread = middle(took[1:5])
    result.add(f"micro-batch without a check, {topics:,} topics", value, "ms", spread=spread)
    result.add(
        f"micro-batch in which {topics:,} topics are due",
        max(took[5:]) / 1000,
        "s",
        note="10 s allowed",
    )
    result.events += sum(part.num_rows for part in parts)


def _write(part: pa.Table, path: Path) -> None:
    identity = {
        "source_partition": pa.repeat(pa.scalar("0"), part.num_rows),
        "source_offset": part["seq"],
    }
    rows = part.select(list(CARRIED))
    for name, column in identity.items():
        rows = rows.append_column(name, column)
    pq.write_table(rows, path)


def _typed(bench: Bench, folder: Path) -> DataFrame:
    assert bench.spark is not None
    schema = (
        floors.schema_of(CARRIED).add("source_partition", "string").add("source_offset", "long")
    )
    reader = bench.spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder))
