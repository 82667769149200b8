"""The command `replay` over what a run of all jobs has archived: the live tables, row for row."""

from __future__ import annotations

import functools
import json
import random
import shutil
import zlib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, WriterProperties, write_deltalake

from app.cli import main
from app.config.settings import load_settings
from app.run.service import run
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.whatif.replay import on_spark as on_spark_module
from app.whatif.replay import out as out_module
from app.whatif.replay.archive import Archive
from app.whatif.replay.on_spark import tasks_of
from benchmarks.generator.generated_configuration import write_config
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from benchmarks.generator.write import write_files
from state.jobs import DECLARED
from tests.support.archive_rows import event
from tests.support.row_texts import row_texts

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 40_000
CUT = "2026-01-05T14:05:00Z"


def prepared(folder: Path, **more: object) -> Path:
    """The configuration of a run over the demo's trace."""
    trace = plan_trace(load_scenario("demo"), EVENTS, 7)
    write_files(trace, folder / "events")
    config = write_config(trace, folder)
    document = yaml.safe_load(config.read_text())
    document |= {"partitions": 2, "alerts": None, "maintenance": None, "quality": None, **more}
    config.write_text(yaml.safe_dump(document))
    return config


@pytest.fixture(scope="module")
def ran(spark: object, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a run of all jobs over the demo's trace, in several batches, to the
    window of its last record."""
    config = prepared(tmp_path_factory.mktemp("replay"))
    assert run(load_settings(config), available_now=True, drain=True) == 0
    return config


def rows(warehouse: Path, name: str, *without: str) -> Counter[str]:
    """The rows of a table as text, each with how often it is there; some columns left out."""
    if not DeltaTable.is_deltatable(str(warehouse / name)):
        return Counter()
    table = DeltaTable(str(warehouse / name)).to_pyarrow_table()
    table = table.drop_columns([c for c in without if c in table.column_names])
    return Counter(row_texts(table))


live_rows = functools.cache(rows)
"""Of the run's warehouse, which no test changes."""


def tables() -> list[str]:
    return [table.name for job in DECLARED.values() for table in job.tables]


def assert_same(live: Path, *replayed: Path) -> None:
    """The rows of the live tables are those of the replays together."""
    for name in tables():
        expected = live_rows(live, name)
        found = sum((rows(one, name) for one in replayed), Counter[str]())
        assert found == expected, (
            name,
            sum((found - expected).values()),
            list(found - expected)[:1],
            sum((expected - found).values()),
            list(expected - found)[:1],
        )


def test_under_the_live_policy_the_rows_are_those_of_the_run(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = ran.parent / "warehouse"
    late = DeltaTable(str(live / "quarantine")).to_pyarrow_table(columns=["reason_code"])
    assert "TOO_LATE" in late.column(0).to_pylist()  # what the run refused is left out
    out = tmp_path / "out"
    asked = ["replay", "--config", str(ran), "--out", str(out), "--slice", "3000", "--verify"]
    assert main([*asked, "--drain"]) == 0
    assert "tables are those of the live run over the whole archive" in capsys.readouterr().out
    assert_same(live, out)
    assert sum(map(len, (live_rows(live, name) for name in tables()))) > 5000


def test_what_waits_for_later_records_is_decided_by_a_run_that_drains(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = ran.parent / "warehouse"
    events = DeltaTable(str(live / "events")).to_pyarrow_table(
        columns=["ts_wall_ms"], filters=[("event_type", "=", "publish")]
    )
    latest_ms = max(events.column(0).to_pylist())
    window_ms = load_settings(ran).stats_window_ms
    stats = DeltaTable(str(live / "limiter_stats")).to_pyarrow_table(columns=["window_start_ms"])
    assert max(stats.column(0).to_pylist()) == latest_ms // window_ms * window_ms
    before = {name: live_rows(live, name) for name in tables()}
    assert run(load_settings(ran), available_now=True, drain=True) == 0  # nothing is left to decide
    assert {name: rows(live, name) for name in tables()} == before
    assert "clocks move to" not in capsys.readouterr().err
    out = tmp_path / "out"
    assert main(["replay", "--config", str(ran), "--out", str(out)]) == 0
    found = {name: rows(out, name) for name in tables()}
    assert found["limiter_stats"] != before["limiter_stats"]  # its last window is open
    assert all(not found[name] - before[name] for name in tables())


def test_a_range_that_is_cut_in_two_is_the_whole(ran: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    common = ["replay", "--config", str(ran), "--slice", "4000"]
    assert main([*common, "--to", CUT, "--out", str(first), "--verify"]) == 0
    assert main([*common, "--after", str(first), "--out", str(second), "--drain"]) == 0
    assert_same(ran.parent / "warehouse", first, second)


LATE_CUT = "2026-01-05T14:09:59.900Z"


@pytest.fixture
def on_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run as those that spark-submit starts."""
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")


@pytest.mark.parametrize(("slice_", "divisor"), [("3000", 1), ("40000", 3), ("700", 4)])
def test_on_spark_the_rows_are_those_of_the_run(
    slice_: str,
    divisor: int,
    ran: Path,
    tmp_path: Path,
    on_spark: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(out_module.ReplayFolder, "begin", divided(divisor))
    asked = ["replay", "--config", str(ran), "--out", str(tmp_path / "out"), "--slice", slice_]
    assert main([*asked, "--drain", "--verify"]) == 0
    assert "tables are those of the live run over the whole archive" in capsys.readouterr().out
    assert_same(ran.parent / "warehouse", tmp_path / "out")
    assert len(list((tmp_path / "out/_weir/replay/end").iterdir())) == divisor * len(DECLARED)


def test_tasks_share_the_row_groups_of_a_large_file(
    ran: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ran.parent, tmp_path / "large")
    config, warehouse = tmp_path / "large" / ran.name, tmp_path / "large" / "warehouse"
    config.write_text(config.read_text().replace(str(ran.parent), str(config.parent)))
    archive = DeltaTable(str(warehouse / "events"))
    archive.optimize.compact(writer_properties=WriterProperties(max_row_group_size=3000))
    settings = load_settings(config)
    files = Archive(settings, {}).files
    monkeypatch.setattr(on_spark_module, "ROWS_OF_SHARE", 10_000)
    monkeypatch.setattr(on_spark_module, "FILES_OF_TASK_ROWS", 1)
    assert len(files) == 1 and len(tasks_of(files)) == 5
    jobs = ["--jobs", "rate_limits,entry_cache"]
    asked = ["replay", "--config", str(config), *jobs, "--drain", "--out"]
    assert main([*asked, str(tmp_path / "threads")]) == 0
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")
    assert main([*asked, str(tmp_path / "spark")]) == 0
    assert_same(tmp_path / "threads", tmp_path / "spark")
    assert rows(tmp_path / "spark", "throttle_events")


def divided(divisor: int) -> Any:
    """The begin of a replay whose jobs have so many parts each."""
    begin = out_module.ReplayFolder.begin

    def begun(self: Any, version: int, slices: Any, _: int, *more: Any) -> None:
        begin(self, version, slices, divisor, *more)

    return begun


@pytest.mark.parametrize("cut", [CUT, LATE_CUT])
@pytest.mark.parametrize("first_on_spark", [True, False])
def test_states_go_from_spark_to_threads_and_back(
    cut: str,
    first_on_spark: bool,
    ran: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Behind the late cut most shards have no record any more."""
    first, second = tmp_path / "first", tmp_path / "second"
    for number, asked in enumerate(
        [["--to", cut, "--out", str(first)], ["--after", str(first), "--out", str(second)]]
    ):
        with monkeypatch.context() as engine:
            if first_on_spark == (number == 0):
                engine.setenv("PYSPARK_GATEWAY_PORT", "0")
            more = ["--drain"] if number else []
            assert main(["replay", "--config", str(ran), "--slice", "4000", *asked, *more]) == 0
    assert_same(ran.parent / "warehouse", first, second)


def test_filters_policies_and_warm_up_are_those_of_threads(
    ran: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "policy.yaml"
    limits = {"maxPublishRatePerTopicInMessages": 3}
    policy.write_text(yaml.safe_dump([{"scope": "broker", "name": "*", "limits": limits}]))
    asked = ["replay", "--config", str(ran), "--tenants", "shop", "--policy", str(policy)]
    asked += ["--from", CUT, "--warm-up", "2m", "--slice", "2000"]
    assert main([*asked, "--out", str(tmp_path / "threads")]) == 0
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")
    assert main([*asked, "--out", str(tmp_path / "spark")]) == 0
    assert_same(tmp_path / "threads", tmp_path / "spark")
    assert rows(tmp_path / "spark", "throttle_events")


def test_payloads_are_assembled_on_spark(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = {f"m{m}": random.Random(m).randbytes(50_000 * m + 1) for m in range(1, 20)}
    chunks = [
        event(
            1000 * i + m,
            10 * m + i,
            uuid=name,
            chunk_id=i,
            num_chunks=3,
            total_chunk_bytes=len(payload),
            payload=part,
            payload_bytes=len(part),
            payload_crc32=zlib.crc32(part),
        )
        for m, (name, payload) in enumerate(sent.items())
        for i in range(3)
        for part in [payload[i * len(payload) // 3 : (i + 1) * len(payload) // 3]]
    ]
    archived = pa.Table.from_pylist(chunks, TABLES["events"].schema)
    write_deltalake(str(tmp_path / "warehouse" / "events"), archived)
    config = tmp_path / "weir.yaml"
    document = {"warehouse": str(tmp_path / "warehouse"), "shards": 2}
    chunking = {"assemble_payload": True, "maxPendingChunkedMessage": 0}
    config.write_text(yaml.safe_dump(document | {"chunks": chunking}))
    asked = ["replay", "--config", str(config), "--jobs", "chunks", "--slice", "7", "--drain"]
    assert main([*asked, "--out", str(tmp_path / "threads")]) == 0
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "0")
    assert main([*asked, "--out", str(tmp_path / "spark")]) == 0
    assert_same(tmp_path / "threads", tmp_path / "spark")
    whole = DeltaTable(str(tmp_path / "spark" / "chunk_messages")).to_pyarrow_table().to_pylist()
    assert {row["uuid"]: row["payload"] for row in whole} == sent


def test_on_spark_an_interrupted_replay_goes_on_and_mistakes_are_told(
    ran: Path,
    tmp_path: Path,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out, live = tmp_path / "out", ran.parent / "warehouse"
    asked = ["replay", "--config", str(ran), "--drain", "--out"]

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as first:
        first.setenv("PYSPARK_GATEWAY_PORT", "0")
        first.setattr(Writer, "add_files", interrupted)
        assert main([*asked, str(out)]) == 130
        (out / "_weir/replay/end/chunks-0.arrow").unlink()
        first.undo()
        first.setenv("PYSPARK_GATEWAY_PORT", "0")
        capsys.readouterr()
        assert main([*asked, str(out)]) == 0
        parts = 4 * len(DECLARED)
        assert f"goes on behind {parts - 1} of {parts} parts" in capsys.readouterr().out
        assert_same(live, out)
        file = next((live / "events").rglob("*.parquet"))
        file.rename(tmp_path / "kept")
        try:
            assert main([*asked, str(tmp_path / "other")]) == 2
        finally:
            (tmp_path / "kept").rename(file)
        error = capsys.readouterr().err
        assert f"weir: warehouse: {live.resolve()}/events/" in error
        assert "is gone: the archive has been compacted" in error
        assert main([*asked[:-2], "--to", "2026-01-05", "--out", str(tmp_path / "none")]) == 2
        assert "has no records before 2026-01-05T00:00:00Z" in capsys.readouterr().err


def test_a_difference_is_found_and_shown(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = yaml.safe_load(ran.read_text())
    changed = tmp_path / "weir.yaml"
    document["policies"] = [
        {"scope": "broker", "name": "*", "limits": {"maxPublishRatePerTopicInMessages": 3}}
    ]
    del document["policy_files"]
    changed.write_text(yaml.safe_dump(document))
    asked = ["replay", "--config", str(changed), "--out", str(tmp_path / "out")]
    assert main([*asked, "--jobs", "rate_limits", "--verify"]) == 1
    printed = capsys.readouterr().out
    assert "throttle_events: " in printed and "for example live: " in printed
    assert "tables differ over the whole archive" in printed


def test_other_policies_and_parameters_are_marked(ran: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        yaml.safe_dump(
            [{"scope": "broker", "name": "*", "limits": {"maxPublishRatePerTopicInMessages": 1}}]
        )
    )
    out = tmp_path / "out"
    assert (
        main(
            [
                "replay",
                "--config",
                str(ran),
                "--out",
                str(out),
                "--policy",
                str(policy),
                "--jobs",
                "rate_limits",
                "--param",
                "rate_limits.protocol=pip385",
                "--param",
                "idle_state_ms=60s",
            ]
        )
        == 0
    )
    found = DeltaTable(str(out / "throttle_events")).to_pyarrow_table()
    live = DeltaTable(str(ran.parent / "warehouse" / "throttle_events")).to_pyarrow_table()
    assert found.num_rows > live.num_rows
    hashes = {
        name: set(t.column("params_hash").to_pylist())
        for name, t in (("found", found), ("live", live))
    }
    kept = json.loads((out / "_weir" / "configuration.json").read_text())
    assert hashes["found"] == {kept["params_hash"]["rate_limits"]} != hashes["live"]
    assert dict(found.column("switches")[0].as_py())["protocol"] == "pip385"


def test_readers_work_on_a_replay(
    ran: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main(["replay", "--config", str(ran), "--out", str(out)]) == 0
    capsys.readouterr()
    at = ["--warehouse", str(out)]
    assert main(["query", "blame", *at, "--csv"]) == 0
    topics = capsys.readouterr().out.splitlines()
    assert len(topics) > 1
    assert main(["report", *at, "--out", str(tmp_path / "report.html")]) == 0
    assert main(["tables", *at]) == 0
    assert main(["explain", "topic", topics[1].split(",")[0].split("://")[-1], *at]) in (0, 2)
