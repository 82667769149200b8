"""Three runners, one answer: a core that gets all records in one call, the streaming query over
random cuts and shuffles within the lateness, and the replay of what was archived give the same rows
of every job."""

from __future__ import annotations

import functools
import itertools
import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from app.cli import main
from app.whatif.replay import replayed
from state.jobs import DECLARED
from tests.spark.runners import core_tables, source, stream, table, text, write_batches
from tests.support.client_archive import client_limits, clients_archive
from tests.support.row_texts import row_texts
from tests.support.traces import punctual_trace
from tests.unit.state.contract.jobs import JOBS
from tests.unit.state.trace import START_MS
from tests.unit.state.traces import document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

KINDS = {
    "rate_limits": "two brokers, every version parameter",
    "chunks": "any",
    "producer_ids": "any",
    "backlog": "any",
    "entry_cache": "any",
    "client_quotas": "any",
}
"""The kind of a job's traces."""
TRACES = 20
"""Of each job, each in a cluster of its own."""
SPAN_MS = 120_000
"""The beginning of a trace that is played: statistics have rows for all windows up to the last."""
JITTER_MS = 490
SLICE = 300
"""Records of a slice of a replay."""
BATCHES = 7
POLICIES = [
    json.loads(document("topic", "t/ns/a", publishRateInMsgs=20, publishRateInBytes=200)),
    json.loads(
        document(
            "broker",
            "*",
            maxPublishRatePerTopicInMessages=7,
            maxPendingPublishRequestsPerConnection=4,
            **{"producer.id.quota.window.size.seconds": 5},
        )
    ),
    {
        "scope": "user",
        "name": "<default>",
        "limits": {"producer_ids_rate": 2, "producer_byte_rate": 50, "request_percentage": 5},
    },
    {"scope": "user", "name": "alice", "limits": {"producer_ids_rate": 1}},
    {
        "scope": "user",
        "name": "a",
        "client_id": "c1",
        "limits": {"consumer_byte_rate": 10, "controller_mutation_rate": 1},
    },
    {"scope": "client", "name": "<default>", "limits": {"producer_byte_rate": 500}},
]
SHARED = {"idle_state_ms": 3_000, "stats_window_ms": 7_000, "shards": 5, "archive_payload": True}
ALWAYS = {
    "rate_limits": {"extra_outputs": ["publish_verdicts"]},
    "chunks": {"assemble_payload": True, "inline_payload_bytes": 8, "max_bytes": 12},
    "client_quotas": {"extra_outputs": ["client_quota_verdicts"]},
}
VERSIONS: dict[str, list[dict[str, Any]]] = {
    "rate_limits": [
        {},
        {
            "protocol": "pip385",
            "receipt_model": "observed",
            "limit_change": "scheduled",
            "timeout_rule": "seen",
        },
        {
            "protocol": "pip385",
            "receipt_model": "supported",
            "broker_reason": "wait",
            "tokenbucket": "per_tick",
            "repeat_throttle": "max",
        },
        {
            "protocol": "pip385",
            "receipt_model": "all",
            "pause_rule": "model",
            "tokenbucket": "wrapping",
            "throttle_tracker": "shared_counter",
            "release_condition": "positive",
            "observed_pauses": "ignore",
        },
    ],
    "chunks": [
        {"maxPendingChunkedMessage": 2, "expireTimeOfIncompleteChunkedMessageMillis": 500},
        {"profile": "upstream", "shared_mode": "hash", "max_payload_bytes": 25},
        {
            "first_dup": "lose",
            "shared_orphan": "dispatch",
            "defects": ["B3", "B7"],
            "autoAckOldestChunkedMessageOnQueueFull": True,
            "maxPendingChunkedMessage": 1,
        },
        {"shared_mode": "marker", "expireTimeOfIncompleteChunkedMessageMillis": 0},
    ],
    "producer_ids": [
        {"bloom_items": 4, "bloom_fpp": 0.2, "refresh_on_hit": True},
        {
            "membership": "exact",
            "window_mode": "B",
            "quota_math": "sampled_rate",
            "insert_rejected": True,
        },
        {
            "window_mode": "L",
            "bloom_items": 2,
            "enforcement": "permissive",
            "rate_unit": "second",
            "profile": "upstream",
            "sampled_stat": "start_time",
            "producer.id.quota.window.num": 3,
        },
    ],
    "backlog": [
        {
            "backlogQuotaCheckIntervalInSeconds": 2,
            "backlogQuotaDefaultLimitBytes": 3000,
            "backlogQuotaDefaultLimitSecond": 3,
            "check_rows": "all",
            "backlogQuotaDefaultRetentionPolicy": "consumer_backlog_eviction",
        },
        {
            "backlogQuotaCheckIntervalInSeconds": 3,
            "preciseTimeBasedBacklogQuotaCheck": True,
            "backlogQuotaDefaultLimitSecond": 2,
            "apply_evictions": True,
            "age_reset": "keep",
            "size_estimate": "ledger_sum",
        },
    ],
    "entry_cache": [
        {
            "release_event": "entry_released",
            "max_bytes": 600,
            "extra_outputs": ["cache_evictions", "cache_reads"],
        },
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
    ],
    "client_quotas": [
        {"usage_rows": 3},
        {"quota_window_num": 3, "controller_enforcement": "permissive", "defects": ["Q1"]},
        {"sampled_stat": "start_time", "controller_window_num": 1},
    ],
}
"""Sets of parameters of each job; a run takes one of each."""
Rows = dict[str, list[str]]


def sorted_rows(job: str, tables: dict[str, pa.Table]) -> Rows:
    """Whole rows of a job's tables as text, sorted; constants and all."""
    return {name: row_texts(tables[name]) if name in tables else [] for name in JOBS[job].tables}


def drawn(job: str) -> list[Any]:
    """Random traces, the same in every run.

    Only drawn here: a streaming run is too dear for Hypothesis to shrink by it.
    """
    found: list[Any] = []

    @settings(
        max_examples=TRACES,
        phases=[Phase.generate],
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(JOBS[job].traces[KINDS[job]])
    def keep(trace: Any) -> None:
        found.append(trace)

    keep()
    return found


@functools.cache
def arriving(job: str) -> list[tuple[int, bytes]]:
    """(time, line) of the records of a job's traces, out of order within the lateness where it is
    told by the wall time; a broker's start comes before what follows it."""
    rng = random.Random(7)
    lines = []
    for i, trace in enumerate(drawn(job)):
        last: dict[str, int] = {}
        started: dict[str, int] = {}
        walls = [r["ts_wall_ms"] for r in trace.records if r["ts_wall_ms"] is not None]
        for record in trace.records:
            wall = record["ts_wall_ms"]
            broker = record["broker"]
            last[broker] = wall if wall is not None else last.get(broker, min(walls))
            jitter_ms = rng.randint(0, JITTER_MS) if job != "entry_cache" else 0
            at_ms = max(last[broker] + jitter_ms, started.get(broker, 0))
            if at_ms > START_MS + SPAN_MS:
                break
            if record["event_type"] == "broker_started" and job == "rate_limits":
                started[broker] = at_ms
            feed = _feed(job, record)
            lines.append((at_ms, text({**record, "cluster": f"{job}-{i}", "source_feed": feed})))
    return lines


def _feed(job: str, record: dict[str, Any]) -> str:
    """The feed of a record: of backlogs, names without tenant and namespace are Kafka's."""
    topic = record.get("topic")
    if job == "backlog" and topic is not None and "/" not in topic:
        return "kafka_groups"
    return str(record["source_feed"])


def assert_one_answer(
    spark: SparkSession, config: Settings, lines: Sequence[bytes], folder: Path, seed: int
) -> None:
    """The rows of the streaming query, of the replay, whole and in slices, and of the cores."""
    cuts = sorted(random.Random(seed).sample(range(1, len(lines)), BATCHES - 1))
    bounds = [0, *cuts, len(lines)]
    write_batches(folder, [lines[a:b] for a, b in itertools.pairwise(bounds)])
    stream(spark, config)
    whole = replayed(config, config.jobs, drain=True)
    sliced = replayed(config, config.jobs, SLICE, drain=True)
    assert "TOO_LATE" not in table(config, "quarantine").column("reason_code").to_pylist()
    for job in config.jobs:
        live = sorted_rows(job, {name: table(config, name) for name in JOBS[job].tables})
        core = sorted_rows(job, core_tables(config, job, lines))
        for runner in (live, sorted_rows(job, whole), sorted_rows(job, sliced)):
            for name, rows in core.items():
                assert_same(runner[name], rows, name)
        assert any(core.values()), job


def assert_same(got: list[str], expected: list[str], name: str) -> None:
    """Equal; else what only one of them has."""
    only = [sorted(set(a) - set(b))[:2] for a, b in ((got, expected), (expected, got))]
    assert only == [[], []] and got == expected, "\n".join([name, *only[0], "expected:", *only[1]])


def test_the_versions_hold_every_value_of_every_parameter() -> None:
    for name in DECLARED["rate_limits"].switches:
        field = DECLARED["rate_limits"].parameters.model_fields[name]
        used = {version.get(name, field.default) for version in VERSIONS["rate_limits"]}
        assert used == set(get_args(field.annotation)), name


@pytest.mark.parametrize("number", range(max(map(len, VERSIONS.values()))))
def test_random_traces(
    number: int, spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    folder = tmp_path / "events"
    config = make_settings(
        source=source(folder),
        policies=POLICIES,
        queries=[list(JOBS)],
        **SHARED,
        **{
            job: {**ALWAYS.get(job, {}), **versions[number % len(versions)]}
            for job, versions in VERSIONS.items()
        },
    )
    lines = sorted((line for job in JOBS for line in arriving(job)), key=lambda line: line[0])
    assert_one_answer(spark, config, [line for _, line in lines], folder, 5)
    assert bool(table(config, "producer_throttle").num_rows) == (number > 0)
    assert table(config, "chunk_payloads").num_rows


def test_the_demo_trace(
    spark: SparkSession, make_settings: Callable[..., Settings], tmp_path: Path
) -> None:
    trace = punctual_trace(20_000)
    lines = [line for part in trace.slices() for line in part.lines()]
    config = make_settings(source=source(tmp_path / "events"), policies=trace.policies)
    assert_one_answer(spark, config, lines, tmp_path / "events", 11)
    assert table(config, "throttle_events").num_rows > 50


OF_STREAM = (
    *("event_type", "source_feed", "cluster", "broker", "seq", "ts_mono_ns", "ts_wall_ms"),
    *("policy_json", "principal", "client_id", "api", "charged_bytes", "mutations"),
    *("quota_type", "value_milli", "bound_milli"),
)


def test_a_shadow_judges_clients_beside_the_polled_limits(
    spark: SparkSession,
    make_settings: Callable[..., Settings],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The shadow's numbers are those that `policy diff --on` has for these limits, by hand; the live
    side has the polled ones, of 3 bytes per s for user a with client app: of rates of 100 over 10 and
    10.5 s, and of 1150 bytes in 10.6 s, it waits (rate - 3) / 3 times as long."""
    lines = [text({name: row[name] for name in OF_STREAM}) for row in clients_archive()]
    given = {"queries": [["client_quotas"]], "stats_window_ms": 1000, "shards": 2}
    tight = client_limits(100, 100, 2)
    config = make_settings(source=source(tmp_path / "events"), shadows={"tight": tight}, **given)
    write_batches(tmp_path / "events", [lines[:5], lines[5:9], lines[9:]])
    stream(spark, config)
    core = core_tables(config, "client_quotas", lines)
    # Without the polled limits the policies of the shadow alone give its rows.
    alone = core_tables(
        make_settings(policies=tight, **given, client_quotas={"broker_reports": "ignore"}),
        "client_quotas",
        [line for line in lines if b"policy_json" not in line],
    )
    for each in DECLARED["client_quotas"].shadow_tables:
        live = rows_of(table(config, each.live))
        assert_same(live, rows_of(core[each.live]), each.live)
        shadow = rows_of(table(config, each.name).drop_columns(["policy"]))
        assert_same(shadow, rows_of(alone[each.live]), each.name)
        assert live != shadow
    assert main(["query", "shadow", "--warehouse", config.warehouse, "--json"]) == 0
    found = {
        (row["name"], row["measure"]): (row["live"], row["shadow"])
        for row in json.loads(capsys.readouterr().out)
    }
    assert found == {
        ("a/app", "throttled_requests"): (3, 0),
        ("a/app", "client_throttle_s"): (1035.566, 0),
        ("a", "throttled_requests"): (0, 1),
        ("a", "client_throttle_s"): (0, 0.9),
        ("web", "throttled_requests"): (0, 1),
        ("web", "client_throttle_s"): (0, 2),
        ("d", "throttled_requests"): (0, 1),
        ("d", "client_throttle_s"): (0, 3.999),
        ("m", "rates_over_quota"): (0, 2),
    }


def rows_of(found: pa.Table) -> list[str]:
    """Whole rows as text, sorted, but for the parameters, which differ."""
    apart = {"params_hash", "switches"} & {*found.column_names}
    return row_texts(found.drop_columns([*apart]))
