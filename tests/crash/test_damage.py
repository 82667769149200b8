"""Tables that have lost what a query committed are noticed before the query goes on."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.config.settings import Settings, load_settings
from app.errors import UserError
from app.run.repair_command import repair
from app.run.service import run
from app.setup.doctor import doctor
from app.sources.files.open_file import absolute
from app.tables import checkpoints, manifest
from app.tables.run_lock import only_run
from app.tables.spark_files import SourceLog, checksum_of, entry_of
from app.terminal.program import PROGRAM
from benchmarks.generator.write import write_files
from state.jobs import BY_DEFAULT
from tests.support.traces import demo_trace, every_row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 18_000
WITHOUT_RECORDS = "spark.sql.streaming.noDataMicroBatches.enabled"
Run = Callable[[], None]
Rows = dict[str, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def done(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A run to the end of a small trace, whose warehouse every test damages in its own way. The
    archive has a query of its own."""
    folder = tmp_path_factory.mktemp("damage")
    return prepared(folder, [list(BY_DEFAULT), ["archive"]], drain=True)


def prepared(folder: Path, queries: list[list[str]], drain: bool = False) -> Settings:
    """A run to the end of a small trace, and a copy of its warehouse. With `drain` the last batch of
    the jobs has rows."""
    write_files(demo_trace(EVENTS), folder / "events")
    settings = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "alerts": None,
            "quality": None,
            "queries": queries,
            "policies": demo_trace(EVENTS).policies,
            "source": {
                "format": "files",
                "path": str(folder / "events"),
                "options": {"maxFilesPerTrigger": "30"},
            },
        },
    )
    assert run(settings, available_now=True, drain=drain) == 0
    shutil.copytree(settings.warehouse, folder / "sound")
    return settings


@pytest.fixture(scope="module")
def before(done: Settings) -> Rows:
    """The rows of the sound warehouse."""
    return every_row(str(Path(done.warehouse).with_name("sound")))


@pytest.fixture
def again(done: Settings) -> Run:
    """The sound warehouse, and a function that starts again on it."""
    shutil.rmtree(done.warehouse)
    shutil.copytree(Path(done.warehouse).with_name("sound"), done.warehouse)

    def start() -> None:
        assert run(done, available_now=True) == 0

    return start


@pytest.fixture
def tmp_warehouse(done: Settings) -> str:
    """The path of the warehouse that is damaged."""
    return done.warehouse


def log_of(warehouse: str, table: str) -> list[Path]:
    """The files of a table's log, oldest first."""
    return sorted(Path(warehouse, table, "_delta_log").glob("*.json"))


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file of a folder."""
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def refusal(again: Run) -> list[str]:
    """What a start is refused with."""
    with pytest.raises(UserError) as refused:
        again()
    return str(refused.value).splitlines()


def tables_of(done: Settings, query: str, *, of_last_batch: bool) -> list[str]:
    """The tables of a query whose newest commit is of its last batch, or of an earlier one."""
    ended = checkpoints.last_ended(done.location, query)
    commits = checkpoints.committed(done.location, query).tables
    return [name for name, c in commits.items() if (c.batch == ended) is of_last_batch]


DAMAGES = [(0, "an empty file"), (-40, "an unfinished file")]
"""As after a loss of power: a file has its name, and not yet its contents or all of them."""


@pytest.mark.parametrize("query", ["archive", "govern"])
def test_a_log_file_of_the_last_batch_is_damaged_and_the_batch_processed_again(
    again: Run, tmp_warehouse: str, done: Settings, before: Rows, query: str
) -> None:
    """Tables that have the batch do not get it twice. So it is where the next batch is planned, and
    its plan is removed as well."""
    table = tables_of(done, query, of_last_batch=True)[0]
    last = log_of(tmp_warehouse, table)[-1]
    whole, remedies = last.read_bytes(), set()
    for kept, damage in DAMAGES:
        last.write_bytes(whole[:kept])
        first, second = refusal(again)
        assert first == (
            f"warehouse: the table {tmp_warehouse}/{table} has lost batch "
            f"{checkpoints.last_ended(done.location, query)} of the query {query}, whose log has "
            f"{damage} ({last})"
        )
        assert second.startswith(f"have the batch processed again: {REMOVES} ")
        remedies.add(second)
    assert len(remedies) == 1  # it leaves nothing of the file, whatever was in it
    plan = plan_another(done, query)
    last.write_bytes(b"")
    assert refusal(again)[1] == f"{second} {plan}"
    repaired(done)
    again()
    assert every_row(tmp_warehouse) == before


@pytest.mark.parametrize(("kept", "damage"), DAMAGES)
def test_a_log_file_of_an_earlier_batch_is_damaged_and_only_a_copy_has_its_rows(
    again: Run, tmp_warehouse: str, done: Settings, kept: int, damage: str
) -> None:
    table = tables_of(done, "govern", of_last_batch=False)[0]
    lost = checkpoints.committed(done.location, "govern").tables[table].batch
    last = log_of(tmp_warehouse, table)[-1]
    size = last.write_bytes(last.read_bytes()[:kept])

    assert refusal(again) == [
        f"warehouse: the table {tmp_warehouse}/{table} has lost batch {lost} of the query govern, "
        f"whose log has {damage} ({last})",
        "put the table back from a copy, or take another warehouse",
    ]
    assert repair(done, dry_run=False) == 1
    assert last.stat().st_size == size


def test_nothing_is_repaired_beside_a_run(again: Run, done: Settings) -> None:
    with only_run(done.location, ["govern"]), pytest.raises(UserError, match="another run"):
        repair(done, dry_run=False)


@pytest.mark.parametrize("gone", ["metadata", "commits"])
def test_a_checkpoint_that_has_lost_files_is_noticed(
    again: Run, tmp_warehouse: str, done: Settings, gone: str
) -> None:
    """As when its folder is deleted while a query writes: the plan of the next batch is there."""
    place = Path(checkpoints.location(done.location, "govern"))
    planned = checkpoints.last_planned(done.location, "govern")
    if gone == "metadata":
        (place / gone).unlink()
    else:
        plan = place / "offsets" / str(planned)
        shutil.copy(plan, plan.with_name(str(planned + 1)))
        shutil.rmtree(place / gone)
    first, second = refusal(again)
    assert first == (
        f"warehouse: the checkpoint {place} has lost files that Spark wrote before its last batch"
    )
    assert second == (
        "put it back from a copy of the same time as the tables, or take another warehouse"
    )


def plan_another(done: Settings, query: str) -> Path:
    """As a stop or a kill may leave it: a batch has ended, and Spark has planned the next one."""
    place = Path(checkpoints.location(done.location, query))
    last = checkpoints.last_planned(done.location, query)
    plan = place / "offsets" / str(last + 1)
    shutil.copy(place / "offsets" / str(last), plan)
    return plan


def test_a_mark_lost_before_the_next_plan_is_noticed_and_both_batches_are_processed(
    again: Run, tmp_warehouse: str, done: Settings, before: Rows
) -> None:
    """Spark would process the next batch alone, and skip the one without a mark."""
    plan, last = plan_another(done, "govern"), checkpoints.last_ended(done.location, "govern")
    Path(tmp_warehouse, f"_weir/checkpoints/govern/commits/{last}").unlink()

    first, second = refusal(again)
    assert first.endswith("has lost files that Spark wrote before its last batch")
    assert second == f"have the batches after batch {last} planned again: {REMOVES} {plan}"
    repaired(done)
    again()

    assert every_row(tmp_warehouse) == before


def test_a_plan_whose_rows_a_table_has_is_not_removed(
    again: Run, tmp_warehouse: str, done: Settings
) -> None:
    """Planned again it might have other records, and the table would skip them."""
    last = checkpoints.last_ended(done.location, "govern")
    assert last in [c.batch for c in checkpoints.committed(done.location, "govern").tables.values()]
    mark = Path(checkpoints.location(done.location, "govern"), "commits", str(last))
    for file in (mark, mark.with_name(f".{last}.crc")):
        file.unlink()  # the last batch has not ended, and tables have rows of it
    before = mark.with_name(str(last - 1))
    before.write_bytes(b"")

    assert refusal(again) == [
        f"warehouse: {before} is empty or unfinished",
        "put the warehouse back from a copy, or take another warehouse",
    ]
    before.unlink()
    assert refusal(again)[1] == (
        "put it back from a copy of the same time as the tables, or take another warehouse"
    )


def test_a_log_file_of_a_batch_that_has_not_ended_is_removed_and_the_batch_repeated(
    again: Run, tmp_warehouse: str, done: Settings, before: Rows
) -> None:
    """As after a loss of power within a batch, before anything of it was synced."""
    commits = checkpoints.committed(done.location, "govern").tables
    last = checkpoints.last_ended(done.location, "govern")
    table = next(name for name, commit in commits.items() if commit.batch == last)
    Path(tmp_warehouse, f"_weir/checkpoints/govern/commits/{last}").unlink()
    file = log_of(tmp_warehouse, table)[-1]
    whole = file.read_bytes()
    for kept in (0, 40):
        file.write_bytes(whole[:kept])
        first, second = refusal(again)
        assert first == (
            f"warehouse: the log of the table {tmp_warehouse}/{table} ends with an unfinished file "
            f"({file}), of a batch that has not ended"
        )
        assert second == f"have the batch processed again: {REMOVES} {file}"
    repaired(done)
    again()

    assert every_row(tmp_warehouse) == before


REMOVES = f"{PROGRAM} repair --config FILE removes"


def repaired(done: Settings) -> None:
    """Do what a remedy says; a look at what it would do changes nothing."""
    files = files_of(Path(done.warehouse))
    assert repair(done, dry_run=True) == 1
    left = files_of(Path(done.warehouse))
    assert {k: v for k, v in left.items() if not k.startswith("_weir/locks/")} == {
        k: v for k, v in files.items() if not k.startswith("_weir/locks/")
    }
    assert repair(done, dry_run=False) == 0


def test_an_unfinished_mark_is_removed_with_the_next_plan_and_the_batch_repeated(
    again: Run, tmp_warehouse: str, done: Settings, before: Rows
) -> None:
    folder = Path(tmp_warehouse, "_weir", "checkpoints", "govern", "commits")
    mark = folder / str(checkpoints.last_ended(done.location, "govern"))
    whole = mark.read_bytes()

    def remedy(plan: str) -> str:
        """What is to be done, wherever the mark ends; `plan` is that of the next batch."""
        for kept in (0, 20):
            mark.write_bytes(whole[:kept])
            first, second = refusal(again)
            assert first == f"warehouse: {mark} is empty or unfinished"
            assert second == (
                f"have the batch processed again: {REMOVES} {mark} {folder}/.{mark.name}.crc{plan}"
            )
        return second

    remedy("")
    remedy(f" {plan_another(done, 'govern')}")
    repaired(done)  # whatever is left of the mark
    again()

    assert every_row(tmp_warehouse) == before


def test_an_unfinished_plan_is_removed_unless_tables_have_rows_of_its_batch(
    again: Run, tmp_warehouse: str, done: Settings, before: Rows
) -> None:
    folder = Path(tmp_warehouse, "_weir", "checkpoints", "archive", "offsets")
    last = checkpoints.last_planned(done.location, "archive")
    plan, new = folder / str(last), folder / str(last + 1)
    new.write_bytes(plan.read_bytes()[:60])  # a batch that was being planned

    assert refusal(again) == [
        f"warehouse: {new} is empty or unfinished",
        f"have the batch planned again: {REMOVES} {new}",
    ]
    repaired(done)
    assert files_of(Path(tmp_warehouse)) == files_of(Path(tmp_warehouse).with_name("sound"))
    again()  # a sound warehouse goes on
    assert every_row(tmp_warehouse) == before

    plan.write_bytes(b"")
    assert refusal(again) == [
        f"warehouse: {plan} is empty or unfinished, and tables have the rows of its batch",
        "put the warehouse back from a copy, or take another warehouse",
    ]


def test_a_checkpoint_that_is_older_than_the_tables_is_refused(
    again: Run, tmp_warehouse: str, done: Settings
) -> None:
    """Its batches would be planned anew, and skipped as written."""
    place = Path(tmp_warehouse, "_weir", "checkpoints", "archive")
    last = checkpoints.last_planned(done.location, "archive")
    for log in ("offsets", "commits"):
        (place / log / str(last)).unlink()
    kept = json.loads((place / checkpoints.COMMITTED).read_text())
    for commit in kept["tables"].values():
        commit["batch"] = min(commit["batch"], last - 1)
    (place / checkpoints.COMMITTED).write_text(json.dumps(kept))

    assert refusal(again) == [
        f"warehouse: the checkpoint {place} is older than the table {tmp_warehouse}/events, which "
        f"has batch {last} of the query archive",
        "put back tables and checkpoints of one time from a copy, or take another warehouse",
    ]


def test_a_file_that_is_gone_and_that_the_last_batch_needs_is_refused_until_it_is_back(
    again: Run, tmp_warehouse: str, done: Settings, before: Rows
) -> None:
    """As after a crash within the batch: Spark would repeat it without the file."""
    last = checkpoints.last_ended(done.location, "archive")
    ends = [
        entry_of(checkpoints.offsets(done.location, "archive", batch)) for batch in (last, last - 1)
    ]
    assert ends[0] is not None and ends[1] is not None and ends[0] > ends[1]
    file = Path(absolute(next(SourceLog(done.location, "archive").files(ends[0], ends[1])).path))
    mark = Path(checkpoints.location(done.location, "archive"), "commits", str(last))
    for one in (mark, checksum_of(mark)):
        one.unlink()
    away = file.rename(file.with_name("_away"))
    try:
        assert refusal(again) == [
            f"source.path: {file}: gone, and archive has planned to read it",
            "put it back; an empty file of the same name leaves the records out",
        ]
    finally:
        away.rename(file)
    again()
    assert every_row(tmp_warehouse) == before


def test_a_deleted_table_is_not_begun_anew(again: Run, tmp_warehouse: str) -> None:
    shutil.rmtree(Path(tmp_warehouse, "throttle_events"))

    assert refusal(again) == [
        f"warehouse: the table {tmp_warehouse}/throttle_events is missing, and the query govern "
        "has written to it",
        "put it back from a copy, or take another warehouse",
    ]
    assert not Path(tmp_warehouse, "throttle_events").exists()


def test_a_table_that_cannot_be_read_is_named(again: Run, tmp_warehouse: str) -> None:
    log_of(tmp_warehouse, "limiter_stats")[0].write_text("{")

    first, second = refusal(again)

    assert first.startswith(f"warehouse: the table {tmp_warehouse}/limiter_stats cannot be read: ")
    assert second == "put it back from a copy, or take another warehouse"


@pytest.fixture
def only_records(spark: SparkSession) -> Iterator[None]:
    """No query has a last batch without records."""
    spark.conf.set(WITHOUT_RECORDS, "false")
    yield
    spark.conf.unset(WITHOUT_RECORDS)


@pytest.mark.usefixtures("only_records")
def test_a_query_that_carries_the_archive_brings_the_last_batch_of_both_back(
    tmp_path: Path,
) -> None:
    """Without the archive's identity, or the lists of what it has written, nothing begins anew."""
    settings = prepared(tmp_path, [list(BY_DEFAULT)])
    warehouse = settings.warehouse
    before = every_row(warehouse)
    archive = Path(checkpoints.location(settings.location, "archive"))
    assert sorted(file.name for file in archive.iterdir()) == [
        checkpoints.COMMITTED,
        checkpoints.IDENTITY,
    ]

    def start() -> None:
        assert run(settings, available_now=True) == 0

    of_jobs = tables_of(settings, "govern", of_last_batch=True)[0]
    for table, query in (("events", "archive"), (of_jobs, "govern")):
        last = log_of(warehouse, table)[-1]
        last.write_bytes(b"")
        first, second = refusal(start)
        assert f"the table {warehouse}/{table} has lost batch " in first
        assert f" of the query {query}, whose log has an empty file" in first
        assert f"{checkpoints.location(settings.location, 'govern')}/commits/" in second
        repaired(settings)
        start()
        assert every_row(warehouse) == before
    for name in (checkpoints.IDENTITY, checkpoints.COMMITTED):
        kept = (archive / name).read_bytes()
        (archive / name).unlink()
        assert str(archive / name) in refusal(start)[0]
        (archive / name).write_bytes(kept)
    shutil.rmtree(Path(warehouse, "events"))
    assert refusal(start)[0] == (
        f"warehouse: the table {warehouse}/events is missing, and the query archive has written to"
        " it"
    )


Checks = dict[str, dict[str, Any]]


@pytest.fixture
def examined(
    done: Settings,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[], tuple[int, Checks]]:
    """A function that asks `doctor` about the warehouse, in the session of the tests: its exit
    code and its checks by name."""
    monkeypatch.setattr("app.setup.doctor.build_session", lambda *_: spark)
    monkeypatch.setattr("app.setup.doctor.stop_session", lambda _: None)

    def examine() -> tuple[int, Checks]:
        capsys.readouterr()
        code = doctor(done, as_json=True)
        return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}

    return examine


@pytest.mark.usefixtures("again")
def test_doctor_names_every_damaged_table_with_its_remedy(
    examined: Callable[[], tuple[int, Checks]], tmp_warehouse: str
) -> None:
    code, sound = examined()
    assert (code, [check for check in sound.values() if not check["ok"]]) == (0, [])
    assert sound["tables"] == {
        "name": "tables",
        "ok": True,
        "found": "as the queries left them",
        "remedy": "",
        "needed": True,
    }
    assert sound["partitions"]["found"] == "2, shards 4"

    emptied = log_of(tmp_warehouse, "events")[-1]
    emptied.write_text("")
    shutil.rmtree(Path(tmp_warehouse, "throttle_events"))
    log_of(tmp_warehouse, "limiter_stats")[0].write_text("{")
    log_of(tmp_warehouse, "topic_throttle_stats")[-1].unlink()
    code, found = examined()

    assert code == 1
    assert [name for name, check in found.items() if not check["ok"]] == ["tables"]
    parts = sorted(found["tables"]["found"].removeprefix("warehouse: ").split("; warehouse: "))
    table = f"the table {tmp_warehouse}/"
    assert parts[0].startswith(f"{table}events has lost batch ")
    assert parts[0].endswith(f"of the query archive, whose log has an empty file ({emptied})")
    assert parts[1].startswith(f"{table}limiter_stats cannot be read: ")
    assert parts[2] == (
        f"{table}throttle_events is missing, and the query govern has written to it"
    )
    assert parts[3].startswith(f"{table}topic_throttle_stats has lost batch ")
    assert len(parts) == 4
    assert "put it back from a copy, or take another warehouse" in found["tables"]["remedy"]


@pytest.mark.usefixtures("again")
def test_doctor_names_the_tables_whose_checkpoint_is_gone(
    examined: Callable[[], tuple[int, Checks]], tmp_warehouse: str
) -> None:
    shutil.rmtree(Path(tmp_warehouse, "_weir", "checkpoints", "archive"))
    code, found = examined()
    assert (code, found["tables"]["found"]) == (
        1,
        f"warehouse: events of {tmp_warehouse} hold rows, but the checkpoint "
        f"{tmp_warehouse}/_weir/checkpoints/archive that they come from is missing",
    )


@pytest.mark.usefixtures("again")
def test_doctor_takes_the_partitions_of_the_manifest_unless_the_configuration_has_others(
    examined: Callable[[], tuple[int, Checks]],
    done: Settings,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As a run does: a machine with another number of cores is no mistake."""
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    code, found = examined()
    assert (code, found["partitions"]["found"]) == (0, "2, shards 4")
    capsys.readouterr()
    assert doctor(done.model_copy(update={"shards": 8}), as_json=False) == 1
    lines = capsys.readouterr().out.splitlines()
    at = lines.index(next(line for line in lines if line.startswith("FAIL")))
    assert lines[at].startswith("FAIL partitions   shards: 8 does not fit the warehouse")
    way = manifest.filled_anew(done.location)
    assert [line.strip() for line in lines[at + 1 : at + 3]] == (
        f"set shards to 4, or begin {way}".splitlines()
    )
