"""Producer ids through the streaming query, the replay and the core: the same rows."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from app.stream.operators import operators
from app.warehouse.shape import shaped
from app.warehouse.tables import TABLES
from app.whatif.replay import replayed
from tests.reference.producer_ids import TABLES as OUTPUTS
from tests.spark.test_chunk_runners import assert_same, source, stream, table, text
from tests.unit.state.producer_id_trace import blob, numbered
from tests.unit.state.producer_id_traces import Trace, traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

JOBS = ["producer_ids"]
TRACES = 24
POLICIES = [
    {"scope": "user", "name": "<default>", "limits": {"producer_ids_rate": 2}},
    {"scope": "user", "name": "alice", "limits": {"producer_ids_rate": 1}},
    {"scope": "broker", "name": "*", "limits": {"producer.id.quota.window.size.seconds": 5}},
]
VERSIONS: dict[str, dict[str, Any]] = {
    "bloom": {"bloom_items": 4, "bloom_fpp": 0.2, "refresh_on_hit": True},
    "exact": {
        "membership": "exact",
        "window_mode": "B",
        "quota_math": "sampled_rate",
        "insert_rejected": True,
    },
    "layers": {
        "window_mode": "L",
        "bloom_items": 2,
        "enforcement": "permissive",
        "rate_unit": "second",
        "profile": "upstream",
        "sampled_stat": "start_time",
        "producer.id.quota.window.num": 3,
    },
}
Rows = dict[str, list[str]]


def sorted_rows(tables: dict[str, pa.Table]) -> Rows:
    """Whole rows of every output table as text, sorted."""
    return {
        name: sorted(repr(sorted(row.items())) for row in tables[name].to_pylist())
        if name in tables
        else []
        for name in OUTPUTS
    }


def core_rows(config: Settings, records: Sequence[dict[str, Any]], latest: int) -> Rows:
    operator = operators(config, JOBS)["producer_ids"]
    first = operator.job.step(None, [blob(records)], 0)
    last = operator.job.step(first.state, [], max(latest - config.idle_advance_ms, 0))
    found: dict[str, list[pa.Table]] = {}
    for step in (first, last):
        for name, rows in step.tables.items():
            found.setdefault(name, []).append(shaped(rows, TABLES[name], operator.constants))
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
        policies=POLICIES,
        producer_ids=VERSIONS[version],
    )
    cuts = sorted(rng.sample(range(1, len(arrival)), 6))
    stream(spark, config, [text(r) for r in arrival], cuts, folder, JOBS)
    core = core_rows(config, records, max(r["ts_wall_ms"] for r in records))
    live = sorted_rows({name: table(config, name) for name in OUTPUTS})
    whole = sorted_rows(replayed(config, JOBS))
    sliced = sorted_rows(replayed(config, JOBS, 100))
    for name in OUTPUTS:
        assert_same(live[name], core[name], name)
        assert_same(whole[name], core[name], name)
        assert_same(sliced[name], core[name], name)
        assert live[name], name
