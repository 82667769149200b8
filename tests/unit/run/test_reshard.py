"""Other numbers of shards and partitions for a stopped run: every row as if nothing had changed."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, Transaction, write_deltalake

from app.config.settings import Settings
from app.demo.generator.write import write_files
from app.engine.shard_labels import labels
from app.errors import UserError
from app.run.reshard import finished, refuse, reshard
from app.run.service import run
from app.tables import checkpoints, manifest
from app.tables.run_lock import only_run
from state.jobs import BY_DEFAULT
from tests.support.assignment import come_to
from tests.support.traces import demo_trace, every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeSettings = Callable[..., Settings]
EVENTS = 17_000


class Killed(BaseException):
    """The process ends here."""


def test_every_row_is_that_of_a_run_that_never_changed(
    spark: SparkSession,
    make_settings: MakeSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """All five jobs and the archive; killed while the checkpoints are exchanged, and taken up. Of two
    warehouses with the layout of an earlier release, one is moved to the present one.
    """
    trace = demo_trace(EVENTS)
    write_files(trace, tmp_path / "all")
    files = sorted((tmp_path / "all").rglob("*.jsonl*"))
    half = len(files) // 2

    def settings(name: str, **numbers: int) -> Settings:
        return make_settings(
            source={"format": "files", "path": str(tmp_path / name / "events")},
            policies=trace.policies,
            warehouse=str(tmp_path / name / "warehouse"),
            **numbers,
        )

    def arrive(name: str, some: list[Path]) -> None:
        (tmp_path / name / "events").mkdir(parents=True, exist_ok=True)
        for file in some:
            (tmp_path / name / "events" / file.name).symlink_to(file)

    before, after = {"shards": 8, "partitions": 2}, {"shards": 5, "partitions": 3}
    for name in ("plain", "moved"):
        arrive(name, files[:half])
        begun = settings(name, **before)
        manifest.claim(begun.location, before["partitions"], before["shards"])
        assert run(begun, available_now=True) == 0
    wanted = settings("moved", **after)
    with pytest.raises(UserError, match=r"partitions: 3 does not fit .*\n.* reshard --config FILE"):
        run(wanted, available_now=True)

    put = checkpoints.put_in_place

    def killed(root: Path, query: str) -> None:
        if query == "govern":
            raise Killed
        put(root, query)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(checkpoints, "put_in_place", killed)
        reshard(wanted)
    with pytest.raises(UserError, match=r"was interrupted\n.* reshard --config FILE finishes it"):
        run(wanted, available_now=True)
    assert reshard(wanted) == 0
    assert capsys.readouterr().out.splitlines() == [
        "the interrupted reshard is finished",
        "nothing to move: shards 5 to 5, partitions 3 to 3",
    ]
    state = Path(checkpoints.location(wanted.location, "govern")) / "state" / "0"
    assert sorted(p.name for p in state.iterdir() if p.name.isdigit()) == ["0", "1", "2"]
    stored = (
        spark.read.format("statestore")
        .load(str(state.parents[1]))
        .select("key.job", "key.shard", "partition_id")
    )
    places: dict[str, Counter[int]] = {}
    for job, label, partition in stored.toLocalIterator():
        assert label in labels(job, 5, 3)
        places.setdefault(job, Counter())[partition] += 1
    assert {job: sorted(counts.values()) for job, counts in places.items()} == {
        job: [1, 2, 2] for job in BY_DEFAULT
    }

    for name, now in (("plain", settings("plain", **before)), ("moved", wanted)):
        arrive(name, files[half:])
        assert run(now, available_now=True) == 0
    rows = every_row(wanted.warehouse)
    assert rows == every_row(settings("plain").warehouse)
    assert len(rows) > 15


def begun(make: MakeSettings, planned: int = 3, **numbers: Any) -> Settings:
    """A warehouse whose queries have come to batch 3, in 16 shards and 2 partitions."""
    manifest.claim(make(shards=16, partitions=2).location, 2, 16)
    settings = make(**numbers)
    for query in ("archive", "govern"):
        come_to(settings, query, planned=planned)
    return settings


def append(settings: Settings, table: str, batch: int) -> None:
    """A commit of a batch of the archive."""
    write_deltalake(
        f"{settings.warehouse}/{table}",
        pa.table({"column": [batch]}),
        mode="append",
        commit_properties=CommitProperties(
            app_transactions=[
                Transaction(checkpoints.application_id(settings.location, "archive"), batch)
            ]
        ),
    )


def lines(refused: pytest.ExceptionInfo[UserError]) -> list[str]:
    return str(refused.value).splitlines()


def test_a_number_that_is_not_configured_stays_and_shards_follow_partitions(
    make_settings: MakeSettings,
) -> None:
    begun(make_settings)
    found = [
        refuse(make_settings(**n))
        for n in ({}, {"shards": 64}, {"partitions": 8}, {"shards": 3, "partitions": 8})
    ]
    assert [(m.shards, m.partitions) for m in found] == [
        ((16, 16), (2, 2)),
        ((16, 64), (2, 2)),
        ((16, 16), (2, 8)),
        ((16, 3), (2, 8)),
    ]
    assert [m.needed for m in found] == [False, True, True, True]


def test_a_dry_run_says_what_would_move(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = begun(make_settings, shards=5)
    assert reshard(settings, dry_run=True) == 0
    assert capsys.readouterr().out.splitlines() == [
        "would move: shards 16 to 5, partitions 2 to 2",
        "  archive: no state, to batch 3",
        "  govern: rate_limits, chunks, producer_ids, backlog, entry_cache; 0 bytes of state, to "
        "batch 3",
    ]
    assert manifest.check(make_settings().location, None, 16) is not None


@pytest.mark.parametrize("table", ["events", "quarantine"])
def test_a_batch_that_has_not_ended_is_refused_where_tables_have_rows_of_it(
    make_settings: MakeSettings, table: str
) -> None:
    settings = begun(make_settings, planned=4, shards=5)
    assert refuse(settings).needed  # it is planned again
    append(settings, table, 3)
    assert refuse(settings).needed
    append(settings, table, 4)
    with pytest.raises(UserError) as refused:
        refuse(settings)
    assert lines(refused) == [
        "reshard: the last batch of archive has not ended",
        "run once with --available-now and the configuration as it was, then reshard",
    ]


def test_a_run_at_work_is_refused(make_settings: MakeSettings) -> None:
    settings = begun(make_settings, shards=5)
    with (
        only_run(settings.location, ["govern"]),
        pytest.raises(UserError, match="another run works on"),
    ):
        refuse(settings)


def test_a_warehouse_without_state_is_refused(make_settings: MakeSettings) -> None:
    for claimed in (False, True):
        if claimed:
            manifest.claim(make_settings().location, 2, None)
        with pytest.raises(UserError, match=r"reshard: .* has no state to move"):
            refuse(make_settings(shards=5))


def test_a_warehouse_elsewhere_is_refused(make_settings: MakeSettings) -> None:
    with pytest.raises(UserError, match=r"reshard: s3://bucket/weir is not on this machine"):
        refuse(make_settings(warehouse="s3://bucket/weir", shards=5))


@pytest.mark.parametrize("at", range(5))
def test_it_is_finished_wherever_it_was_interrupted(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """At each exchange of folders, from the commit of the new numbers on."""
    settings = begun(make_settings, shards=5, partitions=3)
    root = Path(settings.warehouse)
    for query in ("archive", "govern"):
        shutil.copytree(root / checkpoints.FOLDER / query, root / checkpoints.RESHARDING / query)
        (root / checkpoints.RESHARDING / query / "new").touch()
    manifest.renumber(settings.location, 5, 3, ["archive", "govern"])
    done = 0
    rename = Path.rename

    def counted(path: Path, target: Path) -> Path:
        nonlocal done
        if done == at:
            raise Killed
        done += 1
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", counted)
        try:
            assert finished(settings.location)
        except Killed:
            assert at < 4
    finished(settings.location)
    kept = manifest.check(settings.location, settings.partitions, settings.shards)
    assert kept is not None and (kept.shards, kept.partitions) == (5, 3)
    for query in ("archive", "govern"):
        assert (root / checkpoints.FOLDER / query / "new").exists()
    assert not (root / checkpoints.RESHARDING).exists()


def test_what_is_built_and_not_committed_changes_nothing(make_settings: MakeSettings) -> None:
    settings = begun(make_settings, shards=16)
    (Path(settings.warehouse) / checkpoints.RESHARDING / "govern").mkdir(parents=True)
    assert not finished(settings.location)
    assert manifest.check(settings.location, settings.partitions, settings.shards) is not None
    assert checkpoints.found(settings.location) == ["archive", "govern"]
