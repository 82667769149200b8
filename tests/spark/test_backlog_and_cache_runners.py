"""Backlogs and caches through the streaming query, the replay and the core: the same rows."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.ingest.contract import parse_batch
from app.stream.operators import operators
from app.warehouse.shape import shaped
from app.warehouse.tables import TABLES
from app.whatif.replay import replayed
from tests.reference import backlog, entry_cache
from tests.spark.test_chunk_runners import assert_same, source, stream, table, text
from tests.unit.state import backlog_trace, backlog_traces, cache_trace, cache_traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

TRACES = 20
BLOB = {"backlog": backlog_trace, "entry_cache": cache_trace}
OUTPUTS = {"backlog": backlog.TABLES, "entry_cache": entry_cache.TABLES}
STRATEGY: dict[str, st.SearchStrategy[Any]] = {
    "backlog": backlog_traces.traces(),
    "entry_cache": cache_traces.traces(),
}
VERSIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "backlog, released": (
        "backlog",
        {
            "backlogQuotaCheckIntervalInSeconds": 2,
            "backlogQuotaDefaultLimitBytes": 3000,
            "backlogQuotaDefaultLimitSecond": 3,
            "check_rows": "all",
            "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
        },
    ),
    "backlog, precise": (
        "backlog",
        {
            "backlogQuotaCheckIntervalInSeconds": 3,
            "preciseTimeBasedBacklogQuotaCheck": True,
            "backlogQuotaDefaultLimitSecond": 2,
            "apply_evictions": True,
            "age_reset": "keep",
            "size_estimate": "ledger_sum",
        },
    ),
    "one cache": (
        "entry_cache",
        {
            "release_event": "entry_released",
            "max_bytes": 600,
            "extra_outputs": ["cache_evictions", "cache_reads"],
        },
    ),
    "many caches": (
        "entry_cache",
        {
            "release_event": "dispatch",
            "managedLedgerCacheEvictionTimeThresholdMillis": 50,
            "variants": [
                {"policy": "fifo", "max_bytes": 500},
                {"policy": "proportional", "max_bytes": 500},
                {"policy": "expected_reads_stash", "max_bytes": 500, "time_pass_pending": "stash"},
                {"policy": "lru"},
            ],
        },
    ),
}
Rows = dict[str, list[str]]


def sorted_rows(tables: dict[str, pa.Table], names: Sequence[str]) -> Rows:
    """Whole rows of every output table as text, sorted."""
    return {
        name: sorted(repr(sorted(row.items())) for row in tables[name].to_pylist())
        if name in tables
        else []
        for name in names
    }


def core_rows(config: Settings, job: str, records: Sequence[dict[str, Any]]) -> Rows:
    operator = operators(config, [job])[job]
    latest = max(r["ts_wall_ms"] for r in records if r["ts_wall_ms"] is not None)
    first = operator.job.step(None, [BLOB[job].blob(records)], 0)
    last = operator.job.step(first.state, [], max(latest - config.idle_advance_ms, 0))
    found: dict[str, list[pa.Table]] = {}
    for step in (first, last):
        for name, rows in step.tables.items():
            found.setdefault(name, []).append(shaped(rows, TABLES[name], operator.constants))
    joined = {name: pa.concat_tables(parts) for name, parts in found.items()}
    return sorted_rows(joined, OUTPUTS[job])


def draw_records(job: str) -> list[dict[str, Any]]:
    """The records of many small traces, each in a cluster of its own."""
    found: list[Any] = []

    @settings(
        max_examples=TRACES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(STRATEGY[job])
    def keep(drawn: Any) -> None:
        found.append(drawn)

    keep()
    numbered = BLOB[job].numbered(
        {**record, "cluster": f"trace-{i}", "source_feed": feed_of(record)}
        for i, trace in enumerate(found)
        for record in trace.records
    )
    lines = pa.array([text(record) for record in numbered], pa.binary())
    batch = pa.record_batch(
        {
            "value": lines,
            "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
            "source_offset": pa.array(range(len(lines)), pa.int64()),
        }
    )
    valid = parse_batch(batch, [job]).valid.tolist()
    assert sum(valid) > 0.9 * len(valid)
    return [record for record, ok in zip(numbered, valid, strict=True) if ok]


def feed_of(record: dict[str, Any]) -> str:
    """The feed of a record: names without tenant and namespace are Kafka's."""
    topic = record.get("topic")
    return "kafka_groups" if topic is not None and "/" not in topic else record["source_feed"]


def by_arrival(records: Sequence[dict[str, Any]], jitter_ms: int) -> list[dict[str, Any]]:
    """Records by wall time, those without one behind what came before them; some a little late."""
    rng, last, keyed = random.Random(7), {}, []
    for record in records:
        wall = record["ts_wall_ms"]
        place = record["cluster"], record["broker"]
        if wall is None:
            wall = last.get(place, min(r["ts_wall_ms"] or 2**62 for r in records))
        last[place] = wall
        keyed.append((wall + rng.randint(0, jitter_ms), record["source_offset"], record))
    return [record for _, _, record in sorted(keyed, key=lambda k: k[:2])]


@pytest.mark.parametrize("version", VERSIONS)
def test_random_traces(
    version: str, spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    job, params = VERSIONS[version]
    records = draw_records(job)
    arrival = by_arrival(records, 490 if job == "backlog" else 0)
    folder = tmp_path / "events"
    config = make_settings(
        source=source(folder),
        idle_state_ms=3000,
        stats_window_ms=7000,
        shards=5,
        **{job: params},
    )
    cuts = sorted(random.Random(5).sample(range(1, len(arrival)), 6))
    stream(spark, config, [text(r) for r in arrival], cuts, folder, [job])
    late = [r for r in table(config, "quarantine").to_pylist() if r["job"] == job]
    refused = {(r["source_partition"], r["source_offset"]) for r in late}
    assert not refused, json.dumps(late[:3], default=str)
    names = OUTPUTS[job]
    core = core_rows(config, job, records)
    written = [name for name in names if Path(config.warehouse, name).is_dir()]
    live = sorted_rows({name: table(config, name) for name in written}, names)
    whole = sorted_rows(replayed(config, [job]), names)
    sliced = sorted_rows(replayed(config, [job], 100), names)
    for name in names:
        assert_same(live[name], core[name], name)
        assert_same(whole[name], core[name], name)
        assert_same(sliced[name], core[name], name)
    assert any(live.values())
