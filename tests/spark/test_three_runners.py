"""Three runners, one answer: the core called directly, the streaming query over random cuts and
shuffles within the lateness, and the batch replay of what was archived give the same rows."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from app.stream import archive, govern
from app.stream.operators import operators
from app.warehouse.shape import shaped
from app.warehouse.tables import TABLES
from app.whatif.replay import replayed
from app.whatif.replay.refused import REFUSED
from state.jobs import DECLARED, readers
from tests.support.traces import punctual_trace
from tests.unit.state.trace import blob
from tests.unit.state.traces import Trace, document, traces

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

JOBS = ["rate_limits"]
OUTPUTS = (
    "throttle_events",
    "topic_throttle_stats",
    "limiter_stats",
    "producer_throttle",
    "publish_verdicts",
)
JITTER_MS = 490
TRACES = 24
SLICE = 300
"""Records of a slice of a replay."""
POLICIES = [
    json.loads(document("topic", "t/ns/a", publishRateInMsgs=20, publishRateInBytes=200)),
    json.loads(
        document(
            "broker",
            "*",
            maxPublishRatePerTopicInMessages=7,
            maxPendingPublishRequestsPerConnection=4,
        )
    ),
]
PARAMETERS = {
    "idle_state_ms": 3_000,
    "stats_window_ms": 7_000,
    "policies": POLICIES,
    "shards": 5,
}
VERSIONS: dict[str, dict[str, str]] = {
    "newest": {},
    "observed": {
        "protocol": "pip385",
        "receipt_model": "observed",
        "limit_change": "scheduled",
        "timeout_rule": "seen",
    },
    "supported": {
        "protocol": "pip385",
        "receipt_model": "supported",
        "broker_reason": "wait",
        "tokenbucket": "per_tick",
        "repeat_throttle": "max",
    },
    "all": {
        "protocol": "pip385",
        "receipt_model": "all",
        "pause_rule": "model",
        "tokenbucket": "wrapping",
        "throttle_tracker": "shared_counter",
        "release_condition": "positive",
        "observed_pauses": "ignore",
    },
}
"""Sets of version parameters in which every value of every parameter stands."""
Rows = dict[str, list[str]]


def sorted_rows(tables: dict[str, pa.Table]) -> Rows:
    """Whole rows of every output table as text, sorted; constants and all."""
    found = {}
    for name in OUTPUTS:
        rows = tables[name].to_pylist() if name in tables else []
        found[name] = sorted(json.dumps(row, sort_keys=True) for row in rows)
    return found


def live_rows(warehouse: str) -> Rows:
    """What the streaming query has committed."""
    from deltalake import DeltaTable

    paths = {name: f"{warehouse}/{name}" for name in OUTPUTS}
    return sorted_rows(
        {
            name: DeltaTable(path).to_pyarrow_table()
            for name, path in paths.items()
            if DeltaTable.is_deltatable(path)
        }
    )


def core_rows(config: Settings, records: Sequence[dict[str, Any]], latest: int) -> Rows:
    """One call with all records, in one shard, and one to the end of the stream, whose latest
    wall time is `latest`."""
    operator = operators(config, JOBS)["rate_limits"]
    first = operator.job.step(None, [blob(records)], 0)
    last = operator.job.step(first.state, [], max(latest - config.idle_advance_ms, 0))
    tables: dict[str, list[pa.Table]] = {}
    for step in (first, last):
        for name, rows in step.tables.items():
            if name in OUTPUTS:
                tables.setdefault(name, []).append(shaped(rows, TABLES[name], operator.constants))
    return sorted_rows({name: pa.concat_tables(parts) for name, parts in tables.items()})


def shuffled(records: Sequence[dict[str, Any]], rng: random.Random) -> list[dict[str, Any]]:
    """Records out of order within the lateness; a broker's start comes before what follows it."""
    started: dict[tuple[str, str], int] = {}
    times = []
    for r in records:
        key = (r["cluster"], r["broker"])
        at = max(r["ts_wall_ms"] + rng.randint(0, JITTER_MS), started.get(key, 0))
        if r["event_type"] == "broker_started":
            started[key] = at
        times.append(at)
    return [records[i] for i in sorted(range(len(records)), key=lambda i: (times[i], i))]


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


def stream(spark: SparkSession, config: Settings) -> None:
    """Archive and govern, to the end of the source."""
    for query in (
        archive.start(spark, config, {"availableNow": True}),
        govern.start(spark, config, JOBS, {"availableNow": True}),
    ):
        query.awaitTermination()


def test_the_versions_hold_every_value_of_every_parameter() -> None:
    for name in DECLARED["rate_limits"].switches:
        field = DECLARED["rate_limits"].parameters.model_fields[name]
        used = {version.get(name, field.default) for version in VERSIONS.values()}
        assert used == set(get_args(field.annotation)), name


def draw_traces() -> list[Trace]:
    """Random traces, the same in every run.

    Only drawn here: a streaming run is too dear for Hypothesis to shrink by it.
    """
    found: list[Trace] = []

    @settings(
        max_examples=TRACES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(traces(brokers=("b1", "b2"), least=20, switches=True))
    def keep(drawn: Trace) -> None:
        found.append(drawn)

    keep()
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_random_traces(
    version: str, spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    drawn = draw_traces()
    rng = random.Random(5)
    records = [
        {**record, "cluster": f"trace-{i}"}
        for i, trace in enumerate(drawn)
        for record in trace.records
    ]
    arrival = shuffled(records, rng)
    lines = [
        json.dumps({k: v for k, v in record.items() if v is not None}).encode()
        for record in arrival
    ]
    cuts = sorted(rng.sample(range(1, len(lines)), 7))
    bounds = [0, *cuts, len(lines)]
    batches = [lines[a:b] for a, b in itertools.pairwise(bounds)]
    folder = tmp_path / "events"
    write_batches(folder, batches)
    config = make_settings(
        source={"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "2"}},
        **PARAMETERS,
        rate_limits={"extra_outputs": ["publish_verdicts"], **VERSIONS[version]},
    )
    stream(spark, config)
    live = live_rows(config.warehouse)
    core = core_rows(config, records, max(r["ts_wall_ms"] for r in records))
    whole = sorted_rows(replayed(config, JOBS))
    sliced = sorted_rows(replayed(config, JOBS, SLICE))
    for name in OUTPUTS:
        assert live[name] == core[name], name
        assert whole[name] == core[name], name
        assert sliced[name] == core[name], name
    assert len(live["throttle_events"]) > len(drawn)
    assert len(live["topic_throttle_stats"]) > len(drawn)
    assert len(live["limiter_stats"]) > len(drawn)
    assert bool(live["producer_throttle"]) == (config.rate_limits.protocol == "pip385")


def test_the_demo_trace(
    spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    trace = punctual_trace(20_000)
    lines = [line for part in trace.slices() for line in part.lines()]
    rng = random.Random(11)
    cuts = sorted(rng.sample(range(1, len(lines)), 4))
    bounds = [0, *cuts, len(lines)]
    folder = tmp_path / "events"
    write_batches(folder, [lines[a:b] for a, b in itertools.pairwise(bounds)])
    config = make_settings(
        source={"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "2"}},
        policies=trace.policies,
    )
    stream(spark, config)
    from deltalake import DeltaTable

    refused = DeltaTable(f"{config.warehouse}/quarantine").to_pyarrow_table().to_pylist()
    left_out = {
        (r["source_partition"], r["source_offset"])
        for r in refused
        if r["reason_code"] in REFUSED and r["job"] == "rate_limits"
    }
    assert not [r for r in refused if r["reason_code"] == "TOO_LATE"]
    events = DeltaTable(f"{config.warehouse}/events").to_pyarrow_table().to_pylist()
    known = [
        {**e, "topic": _full(e)}
        for e in events
        if "rate_limits" in readers(e["event_type"])
        and (e["ts_mono_ns"] is not None or e["event_type"] == "policy")
        and (e["source_partition"], e["source_offset"]) not in left_out
    ]
    live, whole = live_rows(config.warehouse), sorted_rows(replayed(config, JOBS))
    core = core_rows(config, known, max(e["ts_wall_ms"] or 0 for e in events))
    sliced = sorted_rows(replayed(config, JOBS, SLICE))
    for name in ("throttle_events", "topic_throttle_stats", "limiter_stats"):
        assert live[name] == core[name], name
        assert whole[name] == core[name], name
        assert sliced[name] == core[name], name
    assert len(live["throttle_events"]) > 50


def _full(event: dict[str, Any]) -> str | None:
    from udfs.topics import normal_topic

    if event["topic"] is None:
        return None
    partition = -1 if event["partition"] is None else event["partition"]
    return normal_topic(event["topic"], partition, False)
