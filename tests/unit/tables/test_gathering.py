"""Rows that gather over micro-batches: each is committed once, wherever a run is killed."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from app.config.settings import Settings
from app.engine.gatherers import Gatherers
from app.errors import UserError
from app.read.relations import Warehouse
from app.run import integrity
from app.show.audit.snapshot import committed
from app.tables import checkpoints, gathering, policy_log
from app.tables.commit import Writer
from app.tables.definitions import TABLES
from app.tables.gathering import Gathered, GatheringWriter
from app.tables.shape import shaped
from app.tables.small_files import PUT_BACK, path_in
from tests.support.small_disk import fill, small_disk

MakeSettings = Callable[..., Settings]
WAITS, ALSO_WAITS, AT_ONCE = "limiter_stats", "quarantine", "throttle_events"
NAMES = (WAITS, ALSO_WAITS, AT_ONCE)
"""The Spark session that nothing here uses."""


class Killed(BaseException):
    """The end of a process."""


class Query:
    """A query as the writers see it: batches that are planned, written, ended, and repeated."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.rows: dict[int, dict[str, int]] = {}
        """By batch, how many rows of which tables it has."""
        self._logs = Path(checkpoints.location(settings.location, "govern"))
        policy_log.keep(settings.location, "govern", policy_log.begun([], {}, 0, 0, None), {})
        for log in ("offsets", "commits"):
            (self._logs / log).mkdir(parents=True, exist_ok=True)
        (self._logs / "metadata").write_text("{}")
        self.start()

    def start(self) -> None:
        """The start of a run; a batch that has not ended is repeated."""
        integrity.check(self.settings, {"govern": ("rate_limits",)})
        warehouse, history_ms = self.settings.location, self.settings.maintenance.history_ms
        gathering.commit_left(warehouse, "govern", history_ms)
        self.writer = GatheringWriter(
            warehouse, "govern", history_ms, self.settings.commit_interval_ms
        )
        again = checkpoints.planned(self.settings.location, "govern")
        if again is not None:
            self._write(again)

    def batch(self, rows: dict[str, int], commit: bool = False) -> None:
        """With `commit` the rows that wait are committed before the batch has ended."""
        number = len(self.rows)
        self.rows[number] = rows
        self._log("offsets", number, "v1\n{}\n{}")
        self._write(number, commit)

    def _write(self, number: int, commit: bool = False) -> None:
        for name, rows in self.rows[number].items():
            self.writer.append(name, rows_of(number, name, rows), number)
        if commit:
            self.writer.commit_all()
        self.writer.settle(number)
        self._log("commits", number, "v1\n{}")

    def commit_last(self) -> None:
        """The end of a batch that was repeated."""
        self._log("commits", len(self.rows) - 1, "v1\n{}")

    def _log(self, log: str, number: int, text: str) -> None:
        (self._logs / log / str(number)).write_text(text)

    def forget_planned(self) -> None:
        """Remove the plan of a batch that has not ended."""
        number, _ = self.rows.popitem()
        (self._logs / "offsets" / str(number)).unlink()

    def expected(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(
                text
                for batch, rows in self.rows.items()
                for text in texts(batch, rows.get(name, 0))
            )
            for name in NAMES
        }

    def found(self) -> dict[str, Counter[str]]:
        return {
            name: Counter(self.table(name).to_pyarrow_table()["cluster"].to_pylist())
            for name in NAMES
        }

    def table(self, name: str) -> DeltaTable:
        self.writer.prepare([name])
        return DeltaTable(path_in(self.settings.location, name))


def texts(batch: int, rows: int) -> list[str]:
    return [f"{batch}-{row}" for row in range(rows)]


def rows_of(batch: int, name: str, rows: int) -> pa.Table:
    return shaped(pa.table({"cluster": texts(batch, rows)}), TABLES[name], {})


@pytest.fixture
def query(make_settings: MakeSettings) -> Query:
    return Query(make_settings())


def test_rows_of_several_batches_are_one_commit(query: Query) -> None:
    for rows in ({WAITS: 2, AT_ONCE: 1}, {AT_ONCE: 1}, {WAITS: 1, ALSO_WAITS: 1}):
        query.batch(rows)
    assert {name: query.table(name).version() for name in NAMES} == {
        WAITS: 0,
        ALSO_WAITS: 0,
        AT_ONCE: 2,
    }

    query.writer.commit_due()
    assert query.table(WAITS).version() == 0, "no interval has passed"
    query.writer.commit_all()
    query.writer.commit_all()

    assert {name: query.table(name).version() for name in NAMES} == {
        WAITS: 1,
        ALSO_WAITS: 1,
        AT_ONCE: 2,
    }
    assert query.found() == query.expected()
    assert query.table(WAITS).transaction_version(query.writer.application) == 2
    assert Gathered(query.settings.location, "govern").first() is None


def test_a_batch_without_rows_commits_nothing(query: Query) -> None:
    query.writer.prepare(list(NAMES))
    query.batch(dict.fromkeys(NAMES, 0))
    assert Gathered(query.settings.location, "govern").first() is None
    query.writer.commit_all()
    assert {query.table(name).version() for name in NAMES} == {0}


def test_an_interval_of_none_commits_every_batch(make_settings: MakeSettings) -> None:
    query = Query(make_settings(commit_interval_ms=0))
    for _ in range(2):
        query.batch({WAITS: 1, AT_ONCE: 1})
    assert query.table(WAITS).version() == query.table(AT_ONCE).version() == 2


def test_rows_are_due_after_their_interval_and_when_they_are_many(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(make_settings(commit_interval_ms={WAITS: 1, AT_ONCE: "1h"}))
    ticks = count()
    monkeypatch.setattr("app.tables.gathering.time.monotonic", lambda: float(next(ticks)))
    query.batch({WAITS: 1, AT_ONCE: 1, ALSO_WAITS: 1})
    query.writer.commit_due()
    assert [query.table(name).version() for name in (WAITS, AT_ONCE, ALSO_WAITS)] == [1, 0, 0]
    monkeypatch.setattr(gathering, "MOST_BYTES", 1)
    query.batch({AT_ONCE: 1})
    query.writer.commit_due()
    assert query.table(AT_ONCE).version() == 1
    assert query.found() == query.expected()


def test_tables_of_one_interval_are_committed_together(
    make_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(make_settings(commit_interval_ms="4s"))
    ticks = count()
    monkeypatch.setattr("app.tables.gathering.time.monotonic", lambda: float(next(ticks)))
    query.batch({WAITS: 1})
    query.writer.commit_due()
    query.batch({ALSO_WAITS: 1, AT_ONCE: 1})
    assert {query.table(name).version() for name in NAMES} == {0}
    query.writer.commit_due()
    assert {query.table(name).version() for name in NAMES} == {1}


def test_rows_gather_in_a_folder_and_by_deltars_only(make_settings: MakeSettings) -> None:
    assert gathering.possible(make_settings().location)
    assert not gathering.possible(make_settings(warehouse="s3://bucket/weir").location)


POINTS: dict[str, tuple[Any, str, bool]] = {
    "gathered": (Gathered, "put", True),
    "in the table": (Writer, "append", True),
    "to record": (checkpoints, "record", False),
    "on disk": (Writer, "settle", True),
    "to remove": (Gathered, "remove", False),
    "removed": (Gathered, "remove", True),
}
"""Where a run is killed: a function, and whether after it."""


@st.composite
def lives(draw: st.DrawFn) -> list[Any]:
    """What happens to a query: batches with rows of some tables, common commits, kills."""
    rows = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 2), min_size=1)
    batch = st.tuples(rows, st.booleans())
    kill = st.tuples(st.sampled_from(sorted(POINTS)), st.integers(1, 3))
    return draw(st.lists(st.one_of(batch, st.just("commit"), kill), min_size=4, max_size=12))


@given(lives())
@example([("to record", 1), ({WAITS: 1}, True), ({WAITS: 1}, False), "commit"])
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_each_row_is_committed_once_wherever_a_run_is_killed(
    tmp_path_factory: pytest.TempPathFactory, make_settings: MakeSettings, life: list[Any]
) -> None:
    query = Query(make_settings(warehouse=str(tmp_path_factory.mktemp("life") / "w")))
    with pytest.MonkeyPatch.context() as patch:
        deadly = Deadly(patch)
        for event in life:
            try:
                if event == "commit":
                    query.writer.commit_all()
                elif isinstance(event[0], dict):
                    query.batch(*event)
                else:
                    deadly.arm(*event)
            except Killed:
                deadly.disarm()
                query.start()
        deadly.disarm()
    integrity.check(query.settings, {"govern": ("rate_limits",)})
    gathering.commit_left(query.settings.location, "govern", query.settings.maintenance.history_ms)
    assert query.found() == query.expected()
    assert Gathered(query.settings.location, "govern").first() is None


class Deadly:
    """Ends the run at the n-th time that a point is reached."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._at, self._left = "", 0
        for point, (owner, name, after) in POINTS.items():
            patch.setattr(owner, name, self._watched(getattr(owner, name), point, after))

    def arm(self, point: str, times: int) -> None:
        self._at, self._left = point, times

    def disarm(self) -> None:
        self._at = ""

    def _watched(self, function: Callable[..., Any], point: str, after: bool) -> Any:
        def watched(*arguments: Any) -> Any:
            if self._at == point and not after:
                self._pass()
            answer = function(*arguments)
            if self._at == point and after:
                self._pass()
            return answer

        return watched

    def _pass(self) -> None:
        self._left -= 1
        if not self._left:
            raise Killed


def test_rows_of_a_batch_that_is_planned_anew_are_not_committed(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file of offsets was damaged, and removed as the remedy says."""
    query.batch({WAITS: 1})
    monkeypatch.setattr(Writer, "settle", deadly)
    with pytest.raises(Killed):
        query.batch({WAITS: 1, ALSO_WAITS: 1})
    monkeypatch.undo()
    query.forget_planned()
    query.start()
    query.batch({WAITS: 2})
    query.writer.commit_all()
    assert query.found() == query.expected()


def deadly(*_: Any) -> None:
    raise Killed


def lose_last_commit(table: DeltaTable) -> None:
    path = Path(table.table_uri.removeprefix("file://"), "_delta_log")
    (path / f"{table.version():020}.json").unlink()


def test_a_lost_commit_whose_rows_are_still_gathered_is_written_again(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss of power after a common commit and before it was on disk."""
    for _ in range(3):
        query.batch({WAITS: 1})
    monkeypatch.setattr(Gathered, "remove", lambda *_: None)
    query.writer.commit_all()
    monkeypatch.undo()
    lose_last_commit(query.table(WAITS))
    integrity.check(query.settings, {"govern": ("rate_limits",)})
    gathering.commit_left(query.settings.location, "govern", query.settings.maintenance.history_ms)
    assert query.found() == query.expected()


def test_a_lost_common_commit_does_not_come_back_from_its_last_batch(query: Query) -> None:
    for _ in range(3):
        query.batch({WAITS: 1})
    query.writer.commit_all()
    lose_last_commit(query.table(WAITS))
    with pytest.raises(UserError, match=r"has lost batch 2 .*\nput the table back from a copy"):
        integrity.check(query.settings, {"govern": ("rate_limits",)})


def test_gathered_rows_that_are_lost_come_back_from_the_last_batch_only(query: Query) -> None:
    for _ in range(2):
        query.batch({WAITS: 1, ALSO_WAITS: 1})
    first, last = (
        Path(Gathered(query.settings.location, "govern").path(WAITS, batch)) for batch in (0, 1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Query, "_write", lambda *_: None)
        for file, remedy in ((first, PUT_BACK), (last, "have the batch processed again: ")):
            rows = file.read_bytes()
            for damaged in (None, b"", rows[:-9], rows.replace(b"0", b"7")):
                file.unlink() if damaged is None else file.write_bytes(damaged)
                with pytest.raises(UserError) as refused:
                    query.start()
                assert str(file) in str(refused.value)
                assert str(refused.value).splitlines()[1].startswith(remedy)
            file.write_bytes(rows)
        last.unlink()
        with pytest.raises(UserError, match="processed again: ") as refused:
            query.start()
    for file in refused.value.args[0].files:
        file.unlink()
    query.start()
    query.commit_last()
    query.writer.commit_all()
    assert query.found() == query.expected()


@pytest.fixture
def versions(query: Query) -> Iterator[Callable[[], dict[str, int]]]:
    def found() -> dict[str, int]:
        opened = committed(Warehouse.of(query.settings.location))
        return {
            name: table.version()
            for name in (WAITS, AT_ONCE)
            if (table := opened[name]) is not None
        }

    return found


def test_an_audit_reads_tables_as_before_the_first_batch_that_waits(
    query: Query, versions: Callable[[], dict[str, int]]
) -> None:
    query.writer.prepare(list(NAMES))
    query.batch({AT_ONCE: 1})
    assert versions() == {WAITS: 0, AT_ONCE: 1}
    query.batch({WAITS: 1, AT_ONCE: 1})
    query.batch({AT_ONCE: 1})
    assert versions() == {WAITS: 0, AT_ONCE: 1}
    query.writer.commit_all()
    assert versions() == {WAITS: 1, AT_ONCE: 3}


def test_a_commit_for_which_there_is_no_room_waits_and_names_the_folder(
    make_settings: MakeSettings,
) -> None:
    settings = make_settings(commit_interval_ms=1)
    said: list[str] = []
    gatherers = Gatherers(settings, True, said.append)
    writer = gatherers.writer("govern")
    schema = TABLES["quarantine"].schema
    rows = pa.Table.from_pylist([dict.fromkeys(schema.names)] * 2, schema=schema)
    folder = Path(settings.warehouse, "quarantine")
    folder.mkdir(parents=True)
    with small_disk(folder, "4m"):
        ballast = fill(folder)
        writer.append("quarantine", rows, 0)
        time.sleep(0.01)
        gatherers.commit_due()
        assert said[0].startswith(
            "govern: gathered rows wait for another commit, or the next start ("
        )
        assert said[0].endswith(f"warehouse: {folder} cannot be written (No space left on device)")
        ballast.unlink()
        gatherers.commit_all()
        assert len(said) == 1
        assert DeltaTable(folder).to_pyarrow_table().num_rows == 2


@pytest.mark.parametrize("gone", ["quarantine", "quarantine/_delta_log"])
@pytest.mark.parametrize("is_committed", [True, False])
def test_a_table_that_is_gone_ends_the_run_and_is_not_begun_anew(
    make_settings: MakeSettings, gone: str, is_committed: bool
) -> None:
    settings = make_settings(commit_interval_ms=1)
    said: list[str] = []
    gatherers = Gatherers(settings, True, said.append)
    writer = gatherers.writer("govern")
    writer.prepare(["quarantine"])
    schema = TABLES["quarantine"].schema
    rows = pa.Table.from_pylist([dict.fromkeys(schema.names)], schema=schema)
    writer.append("quarantine", rows, 0)
    if is_committed:
        gatherers.commit_all()
    shutil.rmtree(Path(settings.warehouse, gone))
    writer.append("quarantine", rows, 1)
    time.sleep(0.01)
    with pytest.raises(UserError, match="quarantine is gone, a table of the query govern"):
        gatherers.commit_due()
    assert not DeltaTable.is_deltatable(str(Path(settings.warehouse, "quarantine")))
    assert said == []
