"""The command `replay` without a live run: cuts, interruptions, filters and what is refused."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable, write_deltalake

from app.cli import main
from app.tables import state_files
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.whatif.replay.choice import Choice
from app.whatif.replay.part_files import PartFiles
from state.jobs import DECLARED, JOBS
from tests.support.archive_rows import event
from tests.support.effort import examples
from tests.support.row_texts import row_texts

BEGIN_MS, LENGTH_MS = 1_767_621_600_000, 600_000
BYTES = {"publishRateInBytes": 10**9}
Row = Counter[str]


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Row]:
    """The rows of all jobs, judged at once."""
    out = tmp_path_factory.mktemp("whole") / "out"
    assert main(["replay", "--config", str(config), "--out", str(out)]) == 0
    return rows(out)


def rows(*warehouses: Path) -> dict[str, Row]:
    """The rows of the jobs' tables, each with how often it is there."""
    found: dict[str, Row] = {}
    for name in (table.name for job in JOBS for table in DECLARED[job].tables):
        found[name] = Counter()
        for warehouse in warehouses:
            if DeltaTable.is_deltatable(str(warehouse / name)):
                table = DeltaTable(str(warehouse / name)).to_pyarrow_table()
                found[name].update(row_texts(table))
    return found


def run(config: Path, out: Path, *more: str) -> int:
    return main(["replay", "--config", str(config), "--out", str(out), *more])


def test_any_slices_give_the_same_rows(config: Path, whole: dict[str, Row], tmp_path: Path) -> None:
    assert run(config, tmp_path / "out", "--slice", "700") == 0
    assert rows(tmp_path / "out") == whole
    assert sum(sum(found.values()) for found in whole.values()) > 3000


@pytest.mark.parametrize("seed", range(examples(3)))
def test_a_range_cut_in_pieces_with_the_states_kept_is_the_whole(
    seed: int, config: Path, whole: dict[str, Row], tmp_path: Path
) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(BEGIN_MS + 1, BEGIN_MS + LENGTH_MS), rng.choice((1, 2))))
    folders: list[Path] = []
    for number, cut in enumerate([*cuts, None]):
        folders.append(tmp_path / str(number))
        more = ["--slice", str(rng.choice((900, 5_000, 100_000)))]
        more += [] if cut is None else ["--to", str(cut)]
        more += ["--after", str(folders[-2])] if number else []
        assert run(config, folders[-1], *more) == 0
    found = rows(*folders)
    assert found == whole, (cuts, [name for name in whole if found[name] != whole[name]])


@pytest.mark.parametrize(
    ("owner", "method", "times"),
    [
        (PartFiles, "_written", (3, 9, 5)),
        (state_files, "write", (2, 5)),
        (Writer, "add_files", (1, 4)),
        (Writer, "settle", (1,)),
    ],
)
def test_an_interrupted_replay_goes_on_and_writes_nothing_twice(
    owner: Any,
    method: str,
    times: Sequence[int],
    config: Path,
    whole: dict[str, Row],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for calls in times:
        with monkeypatch.context() as killed:
            killed.setattr(owner, method, after(calls, getattr(owner, method)))
            assert run(config, tmp_path / "out", "--slice", "1500") == 130
    capsys.readouterr()
    assert run(config, tmp_path / "out", "--slice", "1500") == 0
    said = re.search(r"goes on behind (\d+) of 15 parts", capsys.readouterr().out)
    assert said is not None and int(said[1])
    assert rows(tmp_path / "out") == whole
    assert run(config, tmp_path / "out") == 0
    assert "nothing is left to do" in capsys.readouterr().out
    assert rows(tmp_path / "out") == whole


def test_a_part_that_lost_the_end_of_a_file_is_judged_again(
    config: Path,
    whole: dict[str, Row],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    with monkeypatch.context() as killed:
        killed.setattr(Writer, "add_files", after(1, Writer.add_files))
        assert run(config, out) == 130
    shorter, zeros = (next((out / t).glob("*.parquet")) for t in ("limiter_stats", "chunk_events"))
    shorter.write_bytes(shorter.read_bytes()[:-1])
    zeros.write_bytes(zeros.read_bytes()[:-8] + bytes(8))
    (out / "_weir/replay/end/producer_ids-0.arrow").write_bytes(b"")
    capsys.readouterr()
    assert run(config, out) == 0
    assert "goes on behind 12 of 15 parts" in capsys.readouterr().out
    assert rows(out) == whole


def after(calls: int, method: Any) -> Any:
    """The method, interrupted at a call."""
    made = []

    def interrupted(*arguments: Any) -> Any:
        made.append(None)
        if len(made) == calls:
            raise KeyboardInterrupt
        return method(*arguments)

    return interrupted


def column(out: Path, table: str, name: str) -> set[Any]:
    return set(DeltaTable(str(out / table)).to_pyarrow_table().column(name).to_pylist())


def test_filters_choose_by_cluster_tenant_and_topic(config: Path, tmp_path: Path) -> None:
    kafka, tenant, topic = (tmp_path / name for name in ("kafka", "tenant", "topic"))
    assert run(config, kafka, "--clusters", "*-kafka") == 0
    assert column(kafka, "producer_id_stats", "cluster") == {"demo-kafka"}
    assert not DeltaTable(str(kafka / "topic_throttle_stats")).to_pyarrow_table().num_rows
    assert run(config, tenant, "--tenants", "shop", "--jobs", "rate_limits") == 0
    topics = column(tenant, "topic_throttle_stats", "topic")
    assert topics and all(name.startswith("persistent://shop/") for name in topics)
    one = sorted(topics)[0]
    assert run(config, topic, "--topics", one.partition("://")[2], "--jobs", "rate_limits") == 0
    assert column(topic, "topic_throttle_stats", "topic") == {one}


def test_an_empty_begin_is_said_and_a_warm_up_fills_the_states(
    config: Path, whole: dict[str, Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin = ["--from", "2026-01-05T14:06:00Z", "--jobs", "rate_limits,backlog"]
    assert run(config, tmp_path / "cold", *begin) == 0
    said = capsys.readouterr().out
    assert "begins empty at 2026-01-05T14:06:00Z" in said
    assert "  rate_limits: until 2026-01-05T14:06:" in said
    assert run(config, tmp_path / "warm", *begin, "--warm-up", "6m") == 0
    said = capsys.readouterr().out
    assert "begins empty at 2026-01-05T14:00:00Z" in said
    assert "rate_limits: by nothing but what lasts longer" in said
    assert min(column(tmp_path / "warm", "throttle_events", "ts_wall_ms")) >= BEGIN_MS + 360_000
    cold, warm = rows(tmp_path / "cold"), rows(tmp_path / "warm")
    for name in ("throttle_events", "topic_throttle_stats", "backlog_checks"):
        assert not warm[name] - whole[name], name  # what is written is what the whole has
    assert cold["throttle_events"] != warm["throttle_events"]


def test_a_record_without_a_wall_time_is_not_lost_where_its_file_begins_later(
    tmp_path: Path,
) -> None:
    def publish(at_ms: int, seq: int, **more: Any) -> dict[str, Any]:
        return event(at_ms, seq, event_type="publish", cnx_id="x", producer_id=1, **more)

    limit = {"scope": "topic", "name": "t/ns/a", "limits": {"publishRateInMsgs": 1}}
    files = [
        [publish(0, 0), publish(1_000, 1)],
        # Behind the records of a minute later, where its broker had sent it: a second is its place.
        [
            publish(60_000, 2, broker="other"),
            publish(61_000, 3, broker="other"),
            publish(1_500, 4, ts_wall_ms=None, num_messages=100),
        ],
    ]
    for each in files:
        write_deltalake(
            str(tmp_path / "warehouse" / "events"),
            pa.Table.from_pylist(each, TABLES["events"].schema),
            mode="append",
        )
    config = tmp_path / "weir.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(tmp_path / "warehouse"),
                "shards": 1,
                "policies": [limit],
            }
        )
    )
    jobs = ("--jobs", "rate_limits")
    assert run(config, tmp_path / "whole", *jobs) == 0
    assert run(config, tmp_path / "sliced", *jobs, "--slice", "1") == 0
    # 4 + 4 + 100 messages at one a second: nothing is released in the minute that the archive has.
    assert column(tmp_path / "sliced", "throttle_events", "action") == {"mark"}
    assert rows(tmp_path / "sliced") == rows(tmp_path / "whole")


@pytest.mark.parametrize("name", ["persistent://t/ns/a", "t/ns/a", "t/*/?"])
def test_policies_of_the_archive_give_way_to_those_of_files(name: str, tmp_path: Path) -> None:
    topic = "persistent://t/ns/a"
    archived = {"scope": "topic", "name": "t/ns/a", "limits": {"publishRateInMsgs": 1}}
    rows_ = pa.Table.from_pylist(
        [
            event(0, 0, event_type="policy", policy_json=json.dumps(archived)),
            *(
                event(100 * i, i, event_type="publish", cnx_id="x", producer_id=1)
                for i in range(1, 90)
            ),
        ],
        TABLES["events"].schema,
    )
    write_deltalake(str(tmp_path / "warehouse" / "events"), rows_)
    config, policy = tmp_path / "weir.yaml", tmp_path / "policy.yaml"
    config.write_text(yaml.safe_dump({"warehouse": str(tmp_path / "warehouse"), "shards": 1}))
    policy.write_text(yaml.safe_dump([{**archived, "name": name, "limits": {}}]))
    jobs = ["--jobs", "rate_limits"]
    assert run(config, tmp_path / "theirs", *jobs) == 0
    assert run(config, tmp_path / "ours", *jobs, "--policy", str(policy)) == 0
    assert column(tmp_path / "theirs", "throttle_events", "culprit_topic") == {topic}
    assert not DeltaTable(str(tmp_path / "ours" / "throttle_events")).to_pyarrow_table().num_rows
    # A limit of another key leaves the archived one in force.
    policy.write_text(yaml.safe_dump([{**archived, "name": name, "limits": BYTES}]))
    assert run(config, tmp_path / "both", *jobs, "--policy", str(policy)) == 0
    assert column(tmp_path / "both", "throttle_events", "culprit_topic") == {topic}


def test_limits_of_files_are_put_over_archived_ones() -> None:
    archived = {"scope": "user", "name": "a", "limits": {"request_percentage": 1}}
    limits = {"producer_byte_rate": 2, "request_percentage": 3}
    texts = [
        json.dumps({**archived, **changed})
        for changed in ({}, {"limits": {}}, {"client_id": "c"}, {"name": "b"}, {"name": "gone"})
    ]
    batch = pa.RecordBatch.from_pydict({"policy_json": [None, *texts]})
    choice = Choice(replaced={("user", "a"): limits, ("users", "b*"): BYTES, ("user", "gone"): {}})
    found = choice.rows(batch)["policy_json"].to_pylist()
    assert [text and json.loads(text)["limits"] for text in found] == [
        None,
        limits,
        limits,
        {"request_percentage": 1},
        {"request_percentage": 1, **BYTES},
    ]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--jobs", "nothing"], "--jobs nothing: is not a job of this configuration"),
        (["--param", "nothing.key=1"], "--param nothing.key=1: nothing is not a job"),
        (
            ["--param", "rate_limits.protocl=1"],
            "rate_limits has no parameter protocl (did you mean protocol?)",
        ),
        (
            ["--param", "rate_limits.protocol=nothing"],
            "rate_limits.protocol: 'nothing' is not supported (allowed: ",
        ),
        (["--param", "shards=1"], "shards is not shared by the jobs"),
        (["--param", "rate_limits"], "is not job.key=value"),
        (["--policy", "nowhere"], "--policy nowhere: does not exist"),
        (
            ["--from", "2026-01-06"],
            "has no records from 2026-01-06T00:00:00Z\nit has those from 2026-01-05T1",
        ),
        (["--to", "2026-01-05"], "has no records before 2026-01-05T00:00:00Z"),
        (["--from", "2026-01-06", "--to", "2026-01-05"], "--from is not before --to"),
        (["--clusters", "nowhere"], "has no records of clusters nowhere"),
        (["--warm-up", "1m"], "--warm-up goes with --from"),
        (["--verify", "--topics", "*"], "--verify compares with the live tables: leave out"),
        (["--after", "nowhere"], "--after nowhere: is not the folder of a replay"),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(
    more: Sequence[str],
    expected: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(config, tmp_path / "out", *more) == 2
    assert expected in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_policy_file_is_checked(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("[{scope: topic, name: a/b/c, limits: {publishRateInMsg: 1}}]")
    assert run(config, tmp_path / "out", "--policy", str(policy)) == 2
    assert "policy.yaml: [0].limits.publishRateInMsg: no limit of scope topic" in (
        capsys.readouterr().err
    )


def test_a_folder_of_something_else_is_left_alone(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    live = Path(yaml.safe_load(config.read_text())["warehouse"])
    assert run(config, live) == 2
    assert "is the warehouse that is replayed" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    assert run(config, tmp_path / "other") == 2
    assert "is not empty and not of a replay" in capsys.readouterr().err
    jobs = ["--jobs", "chunks"]
    assert run(config, tmp_path / "out", *jobs) == 0
    assert run(config, tmp_path / "out", *jobs, "--param", "stats_window_ms=10s") == 2
    assert "belongs to another replay, whose params_hash is " in capsys.readouterr().err


def test_an_empty_archive_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "warehouse" / "_weir").mkdir(parents=True)
    out = str(tmp_path / "out")
    assert main(["replay", "--warehouse", str(tmp_path / "warehouse"), "--out", out]) == 2
    assert "the archive of" in (said := capsys.readouterr().err) and "is empty" in said
