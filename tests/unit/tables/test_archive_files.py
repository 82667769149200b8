"""Files of the archive that gather over micro-batches: each row is committed once, wherever a run is
killed, and small files become one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.archive_names import ARCHIVE
from app.config.maintenance import MaintenanceSettings
from app.config.settings import Settings
from app.read.relations import Warehouse
from app.run.maintenance.opened import Opened
from app.run.maintenance.vacuum import vacuum
from app.tables import archive_files, checkpoints, gathering, inventory, manifest
from app.tables.archive_files import ArchiveUnwritable, ArchiveWriter, write_files
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.gathering import Gathered
from app.tables.shape import shaped
from app.tables.small_files import path_in

MakeSettings = Callable[..., Settings]
EVENTS = TABLES["events"]
FIRST_DAY = date(2026, 1, 5)
CARRIER = "rate_limits"


class Killed(BaseException):
    """The end of a process."""


class Carried:
    """An archive that a query of jobs carries: batches that are planned, written, ended, repeated."""

    def __init__(self, settings: Settings) -> None:
        self.settings, self.warehouse = settings, settings.location
        self.batches: list[dict[int, int]] = []
        """By batch, the number of rows of each day."""
        self.root = path_in(self.warehouse, "events")
        manifest.claim(self.warehouse, 2, None)
        manifest.record(self.warehouse, {CARRIER: [CARRIER, ARCHIVE]})
        self._logs = Path(checkpoints.location(self.warehouse, CARRIER))
        for log in ("offsets", "commits"):
            (self._logs / log).mkdir(parents=True, exist_ok=True)
        self.start()

    def start(self) -> None:
        """The start of a run; a batch that has not ended is repeated, with other files."""
        history_ms = self.settings.maintenance.history_ms
        gathering.commit_left(self.warehouse, ARCHIVE, history_ms, ArchiveWriter)
        self.writer = ArchiveWriter(
            self.warehouse, ARCHIVE, history_ms, self.settings.commit_interval_ms
        )
        self.writer.prepare(["events"])
        again = checkpoints.planned(self.warehouse, ARCHIVE)
        if again is not None:
            self._write(again)

    def batch(self, days: dict[int, int]) -> None:
        number = len(self.batches)
        self.batches.append(days)
        (self._logs / "offsets" / str(number)).write_text(f"v1\n{{}}\n{number}")
        self._write(number)

    def _write(self, number: int) -> None:
        files = [
            write_files(EVENTS, [rows_of(number, day, rows)], self.root, {})
            for day, rows in self.batches[number].items()
        ]
        if files:
            self.writer.add("events", pa.concat_tables(files), number)
        self.writer.record(number)
        self.writer.settle(number)
        (self._logs / "commits" / str(number)).write_text("v1\n{}")

    @property
    def table(self) -> DeltaTable:
        return DeltaTable(self.root)

    def expected(self) -> Counter[tuple[str, date]]:
        return Counter(
            (f"{number}-{row}", FIRST_DAY + timedelta(day))
            for number, days in enumerate(self.batches)
            for day, rows in days.items()
            for row in range(rows)
        )

    def found(self) -> Counter[tuple[str, date]]:
        rows = self.table.to_pyarrow_table(columns=["topic", "event_date"]).to_pylist()
        return Counter(tuple(row.values()) for row in rows)

    def problems(self) -> list[str]:
        return list(inventory.progress(self.warehouse, ARCHIVE, ["events"], lambda _: ""))


def rows_of(batch: int, day: int, rows: int) -> pa.Table:
    columns = {
        "topic": [f"{batch}-{row}" for row in range(rows)][::-1],
        "ts_wall_ms": list(range(rows)),
        "ingest_ms": [0] * rows,
        "event_date": pa.array([FIRST_DAY + timedelta(day)] * rows, pa.date32()),
    }
    return shaped(pa.table(columns), EVENTS, {})


@pytest.fixture
def archive(make_settings: MakeSettings) -> Carried:
    return Carried(make_settings())


def test_small_files_of_several_batches_are_one_of_each_day(archive: Carried) -> None:
    for days in ({0: 3, 1: 1}, {0: 2}, {}, {0: 1}):
        archive.batch(days)
    assert archive.table.version() == 0
    archive.writer.commit_due()
    assert archive.table.version() == 0, "no interval has passed"
    archive.writer.commit_all()

    assert archive.found() == archive.expected()
    files = sorted(Path(archive.root).glob("*/*.parquet"))
    assert [str(f) for f in files] == sorted(archive.table.file_uris())
    assert [file.parent.name for file in files] == [
        f"event_date={FIRST_DAY + timedelta(day)}" for day in (0, 1)
    ]
    merged = pq.ParquetFile(files[0]).read()
    assert merged["topic"].to_pylist() == sorted(merged["topic"].to_pylist())
    stats = {
        a["path"]: a for a in pa.table(archive.table.get_add_actions(flatten=True)).to_pylist()
    }
    (of_first,) = (a for path, a in stats.items() if str(FIRST_DAY) in path)
    assert (of_first["num_records"], of_first["min.topic"], of_first["max.topic"]) == (
        6,
        "0-0",
        "3-0",
    )
    assert archive.table.transaction_version(archive.writer.application) == 3
    assert archive.problems() == []


def test_large_files_are_committed_as_they_are(
    archive: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "LARGE_ROWS", 5)
    for rows in (5, 2, 9, 3):
        archive.batch({0: rows})
    archive.writer.commit_all()
    actions = pa.table(archive.table.get_add_actions(flatten=True)).to_pylist()
    assert sorted(action["num_records"] for action in actions) == [5, 5, 9]
    assert archive.found() == archive.expected()


def test_more_than_the_driver_merges_is_committed_as_it_is(
    archive: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_files, "MOST_ROWS", 5)
    for rows in (3, 3):
        archive.batch({0: rows})
    archive.writer.commit_all()
    assert len(archive.table.file_uris()) == 2
    assert archive.found() == archive.expected()


def test_an_interval_of_none_commits_every_batch_behind_those_that_wait(
    make_settings: MakeSettings, archive: Carried
) -> None:
    archive.batch({0: 1})
    at_once = make_settings(commit_interval_ms=0)
    archive.writer = ArchiveWriter(
        archive.warehouse, ARCHIVE, at_once.maintenance.history_ms, at_once.commit_interval_ms
    )
    for number in (1, 2):
        archive.batch({0: 2})
        assert archive.table.version() == number
        assert archive.found() == archive.expected()


def test_a_table_that_cannot_be_written_keeps_its_files_until_it_can(
    archive: Carried, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.batch({0: 1})
    archive.batch({0: 1})
    before = sorted(Path(archive.root).rglob("*.parquet"))

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pq, "write_table", full)
        with pytest.raises(ArchiveUnwritable, match=f"^{archive.root}: No space left on device$"):
            archive.writer.commit_all()
        with pytest.raises(ArchiveUnwritable):
            archive.batch({0: 1})
    assert sorted(Path(archive.root).rglob("*.parquet")) == before
    archive.start()
    archive.writer.commit_all()
    assert archive.found() == archive.expected()


def test_a_file_that_waits_and_is_gone_is_named(archive: Carried) -> None:
    archive.batch({0: 1})
    archive.batch({0: 1})
    (first, *_) = sorted(Path(archive.root).rglob("*.parquet"))
    first.unlink()
    (problem,) = archive.problems()
    assert problem.startswith(f"warehouse: {first} is gone or changed, with rows of events that no")


def test_maintenance_leaves_files_that_wait(archive: Carried) -> None:
    archive.batch({0: 1})
    opened = Opened(Warehouse.of(archive.warehouse), "events", archive.table)
    at_once = MaintenanceSettings().model_copy(update={"history_ms": 0, "orphans_ms": 0})
    assert vacuum(opened, at_once, dry_run=False).files == 0
    archive.writer.commit_all()
    assert archive.found() == archive.expected()


POINTS: dict[str, tuple[Any, str, bool]] = {
    "gathered": (Gathered, "put", True),
    "merged": (archive_files, "merged", True),
    "in the table": (Writer, "add_files", True),
    "to record": (checkpoints, "record", False),
    "on disk": (Writer, "settle", True),
    "to remove": (Gathered, "remove", False),
    "removed": (Gathered, "remove", True),
    "unlinked": (Path, "unlink", True),
}
"""Where a run is killed: a function, and whether after it."""


@st.composite
def lives(draw: st.DrawFn) -> list[Any]:
    """What happens to an archive: batches with rows of some days, common commits, kills."""
    days = st.dictionaries(st.integers(0, 2), st.integers(1, 2), max_size=2)
    kill = st.tuples(st.sampled_from(sorted(POINTS)), st.integers(1, 3))
    return draw(st.lists(st.one_of(days, st.just("commit"), kill), min_size=4, max_size=12))


@given(lives())
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_each_row_is_committed_once_wherever_a_run_is_killed(
    tmp_path_factory: pytest.TempPathFactory, make_settings: MakeSettings, life: list[Any]
) -> None:
    archive = Carried(make_settings(warehouse=str(tmp_path_factory.mktemp("life") / "w")))
    armed: list[int | str] = ["", 0]

    def watched(function: Callable[..., Any], point: str, after: bool) -> Any:
        def reached() -> None:
            armed[1] = int(armed[1]) - 1
            if not armed[1]:
                armed[0] = ""
                raise Killed

        def call(*arguments: Any, **named: Any) -> Any:
            if armed[0] == point and not after:
                reached()
            answer = function(*arguments, **named)
            if armed[0] == point and after:
                reached()
            return answer

        return call

    with pytest.MonkeyPatch.context() as patch:
        for point, (owner, name, after) in POINTS.items():
            patch.setattr(owner, name, watched(getattr(owner, name), point, after))
        for event in life:
            try:
                if event == "commit":
                    archive.writer.commit_all()
                elif isinstance(event, dict):
                    archive.batch(event)
                else:
                    armed[:] = event
            except Killed:
                assert archive.problems() == []
                archive.start()
        armed[0] = ""
    assert archive.problems() == []
    archive.start()
    assert archive.found() == archive.expected()
    assert Gathered(archive.warehouse, ARCHIVE).first() is None
