"""A warehouse in an object store, without Spark: a real S3 server on loopback."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import main
from app.config.alerts import AlertSettings
from app.config.settings import Settings
from app.errors import UserError
from app.read.relations import Warehouse, connect_once
from app.show.alerts.evaluator import Evaluator
from app.tables import checkpoints, inventory, lease
from app.tables.commit import Writer
from app.tables.object_store import of_store
from app.tables.run_lock import only_run
from app.tables.small_files import names, read_text, write_text
from benchmarks import archives
from benchmarks.generator.scenario import load_scenario
from benchmarks.generator.trace import plan_trace
from tests.support.servers.process import serving
from tests.support.servers.s3 import BUCKET, S3, SECRET
from tests.support.servers.slow_store import Fault, Request, SlowStore
from tests.unit.run.maintenance.tables import fill, found, plain, rows, writer

MakeSettings = Callable[..., Settings]


@pytest.fixture(scope="module")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3]:
    """A server for the tests of this file. Skips where none can start."""
    with serving(lambda: S3(tmp_path_factory.mktemp("s3")), "S3 server") as server:
        yield server


@pytest.fixture
def settings(s3: S3, make_settings: MakeSettings, request: pytest.FixtureRequest) -> Settings:
    """A warehouse of the test's own; its scheme is that of Spark, which delta-rs knows too."""
    name = request.node.name.replace("[", "-").rstrip("]")
    return make_settings(warehouse=f"s3a://{BUCKET}/{name}", storage_options=s3.options)


def test_small_files_are_written_listed_and_read(settings: Settings) -> None:
    assert read_text(settings.location, "_weir/a/b.json") is None
    assert names(settings.location, "_weir/a") == []
    write_text(settings.location, "_weir/a/b.json", "first")
    write_text(settings.location, "_weir/a/b.json", "€")
    assert read_text(settings.location, "_weir/a/b.json") == "€"
    assert names(settings.location, "_weir/a") == ["b.json"]
    assert checkpoints.application_id(settings.location, "q") == checkpoints.application_id(
        settings.location, "q"
    )
    write_text(settings.location, f"{checkpoints.FOLDER}/q/offsets/0", "v1")
    assert checkpoints.found(settings.location) == ["q"]
    with pytest.raises(UserError, match=r"_weir/manifest\.json is gone"):
        inventory.refuse(settings.location)


def test_writers_at_once_lose_nothing_and_double_nothing(settings: Settings) -> None:
    queries = ("govern", "archive")

    def work(query: str) -> None:
        writing = writer(settings, query)
        for batch in (0, 1, 1, 2, 3, 3):
            writing.append("quarantine", rows("quarantine", range(batch, batch + 1)), batch)

    with ThreadPoolExecutor(len(queries)) as pool:
        list(pool.map(work, queries))
    expected = [rows("quarantine", range(batch, batch + 1)) for batch in range(4)] * len(queries)
    assert plain(found(settings, "quarantine")) == sorted(
        text for table in expected for text in plain(table)
    )


def append_batches(settings: Settings, number: int) -> list[float]:
    """Append so many batches of a row; the times (s of `time.monotonic`) before each, and after all."""
    writing, begun_s = writer(settings), []
    for batch in range(number):
        begun_s.append(time.monotonic())
        writing.append("quarantine", rows("quarantine", range(batch, batch + 1)), batch)
    return [*begun_s, time.monotonic()]


@pytest.fixture(scope="module")
def apart() -> Iterator[ProcessPoolExecutor]:
    """A process beside this one: delta-rs lets no thread of its process work while it waits, and the
    slow stores are threads of this one."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        yield pool


@contextmanager
def behind(settings: Settings, store: SlowStore) -> Iterator[Settings]:
    """Settings that go by way of a store."""
    options = {**settings.storage_options, "AWS_ENDPOINT_URL": store.endpoint}
    yield settings.model_copy(update={"storage_options": options})
    store.stop()


def appended(
    settings: Settings, store: SlowStore, number: int, apart: ProcessPoolExecutor
) -> list[float]:
    """As `append_batches`, by way of a store."""
    with behind(settings, store) as there:
        return apart.submit(append_batches, there, number).result()


@pytest.mark.parametrize("fault", ["lost", "refused", "cut"])
def test_a_commit_that_is_answered_badly_is_there_once(
    settings: Settings, s3: S3, apart: ProcessPoolExecutor, fault: Fault
) -> None:
    answered: set[str] = set()

    def once(request: Request) -> Fault | None:
        first = request.is_commit and request.path not in answered
        answered.add(request.path)
        return fault if first else None

    store = SlowStore(s3.port, 0.0, once)
    appended(settings, store, 3, apart)
    assert store.faults[fault] >= 4, "the creation of the table, and three commits"
    assert plain(found(settings, "quarantine")) == sorted(
        text for batch in range(3) for text in plain(rows("quarantine", range(batch, batch + 1)))
    )


def test_an_append_takes_six_requests_however_long_the_log_is(
    settings: Settings, s3: S3, apart: ProcessPoolExecutor
) -> None:
    store = SlowStore(s3.port, 0.0)
    begun_s = appended(settings, store, 10, apart)
    counts = [
        Counter(one.kind for at_s, one in store.requests if begin_s <= at_s < end_s)
        for begin_s, end_s in pairwise(begun_s)
    ]
    of_each = {"tables PUT": 2, "tables LIST": 2, "tables GET": 2}
    assert [dict(one) for one in counts[1:]] == [of_each] * 9


READ = ("quarantine", "limiter_stats", "group_lag", "lost_messages", "coverage_gaps")


LOST = "SELECT * FROM lost_messages ORDER BY ALL"


def alert_rounds(settings: Settings) -> list[tuple[float, float, list[Any]]]:
    """Rounds of alerts: the first, one after which nothing has changed, and one after a commit. Of each
    its begin and end (s of `time.monotonic`), and rows as it has them."""
    evaluator, found = Evaluator(Warehouse.of(settings.location), AlertSettings()), []
    for number in range(3):
        if number == 2:
            fill(settings, "lost_messages", range(1, 2))
        begun_s, broken = time.monotonic(), evaluator.look(None).broken
        end_s = time.monotonic()
        assert broken == []
        with connect_once(evaluator.warehouse, LOST, {}) as connection:
            found.append((begun_s, end_s, connection.execute(LOST).fetchall()))
    return found


def test_a_round_of_alerts_reads_what_has_changed(
    settings: Settings, s3: S3, apart: ProcessPoolExecutor
) -> None:
    for name in READ:
        fill(settings, name, range(1))
    store = SlowStore(s3.port, 0.0)
    with behind(settings, store) as there:
        rounds = apart.submit(alert_rounds, there).result()
    counts = [
        Counter(one.kind for at_s, one in store.requests if begun_s <= at_s < end_s)
        for begun_s, end_s, _ in rounds
    ]
    with connect_once(Warehouse.of(settings.location), LOST, {}) as connection:
        every = connection.execute(LOST).fetchall()
    before, again, after = (rows for *_, rows in rounds)
    assert len(before) == 3 and again == before and after == every and len(every) == 6
    one_look = {"tables LIST": 2 + len(READ), "tables GET": len(READ)}
    assert counts[1] == one_look
    assert counts[2].total() <= sum(one_look.values()) + 7, "a commit, its file and its time"


def test_commands_read_maintain_and_forget(
    settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    writing = writer(settings)
    for batch in range(8):
        writing.append("producer_id_owners", rows("producer_id_owners", range(2)), batch)
    config = tmp_path / "weir.yaml"
    config.write_text(
        yaml.safe_dump(
            {"warehouse": settings.warehouse, "storage_options": settings.storage_options}
        )
    )

    def asked(*words: str) -> Any:
        assert main([*words, "--json", "--config", str(config)]) == 0
        out, err = capsys.readouterr()
        assert SECRET not in out + err
        return json.loads(out)

    counting = "SELECT user, count(*) AS n FROM producer_id_owners GROUP BY user ORDER BY n"
    before = asked("query", counting)
    assert sum(row["n"] for row in before) == 16
    user = next(row["user"] for row in before if row["user"])
    (kept,) = (t for t in asked("maintain")["tables"] if t["table"] == "producer_id_owners")
    assert kept["problem"] is None
    (owners,) = (t for t in asked("forget", "--principal", user, "--now")["tables"] if t["rows"])
    assert owners["table"] == "producer_id_owners"
    assert user not in [row["user"] for row in asked("query", counting)]
    assert sum(row["n"] for row in asked("query", counting)) == 16
    for batch in range(8):
        writing.append("producer_id_owners", rows("producer_id_owners", range(2)), batch)
    assert sum(row["n"] for row in asked("query", counting)) == 16


def test_an_archive_in_a_store_is_replayed_into_a_folder_and_into_the_store(
    settings: Settings,
    make_settings: MakeSettings,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    trace = plan_trace(load_scenario("demo"), 20_000, 7)
    here = make_settings(warehouse=str(tmp_path / "warehouse"))
    replays: list[list[str]] = []
    for name, archived in (("store", settings), ("here", here)):
        archives.build(archived, trace, 8_000)
        config, out = tmp_path / f"{name}.yaml", tmp_path / name
        config.write_text(
            yaml.safe_dump(
                {
                    "warehouse": archived.warehouse,
                    "storage_options": archived.storage_options,
                    "shards": 2,
                    "policies": trace.policies,
                }
            )
        )
        asked = ["replay", "--config", str(config), "--slice", "6000"]
        asked += ["--jobs", "rate_limits,chunks"]
        assert main([*asked, "--out", str(out)]) == 0
        replays.append(plain_rows(make_settings(warehouse=str(out))))
    assert replays[0] == replays[1] and len(replays[0]) > 500

    asked[2] = str(tmp_path / "store.yaml")
    parts = [f"{settings.warehouse}-replay/{name}" for name in ("first", "second")]
    cut = ["--to", "2026-01-05T14:05:00Z", "--out", parts[0]]
    assert main([*asked, *cut]) == 0
    after = ["--after", parts[0], "--out", parts[1]]
    with pytest.MonkeyPatch.context() as killed:
        killed.setattr(Writer, "add_files", interrupted)
        assert main([*asked, *after]) == 130
    assert main([*asked, *after]) == 0
    assert main([*asked, *cut[:-1], settings.warehouse]) == 2
    assert main([*asked, *cut[:-1], f"{settings.warehouse}/events"]) == 2
    in_store = [make_settings(warehouse=p, storage_options=settings.storage_options) for p in parts]
    assert sorted(text for one in in_store for text in plain_rows(one)) == sorted(replays[0])
    said = capsys.readouterr()
    assert "goes on behind " in said.out
    assert "is the warehouse that is replayed" in said.err
    assert "is not empty and not of a replay" in said.err


def plain_rows(of: Settings) -> list[str]:
    """Rows of some tables of a replay."""
    tables = ("throttle_events", "limiter_stats", "chunk_events")
    return [text for table in tables for text in plain(found(of, table))]


def interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_second_run_on_a_store_is_refused_at_its_start(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("LEASE_S", 3.0), ("RENEW_S", 0.3), ("SETTLE_S", 0.5), ("LOOK_S", 0.2)):
        monkeypatch.setattr(lease, name, seconds)
    queries = ["govern", "archive"]
    with only_run(settings.location, queries):
        writing = writer(settings)
        writing.append("quarantine", rows("quarantine", range(1)), 0)
        with (
            pytest.raises(UserError, match=r"works on s3a://.* \(query archive\) and has a lease"),
            only_run(settings.location, ["archive"]),
        ):
            pass
        assert names(settings.location, lease.FOLDER) == ["archive.json", "govern.json"]
    assert names(settings.location, lease.FOLDER) == []

    def start(_: int) -> bool:
        try:
            with only_run(settings.location, queries):
                time.sleep(2)
                lease.require(settings.location, "govern")
        except UserError:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(start, range(2))) == [False, True]


def test_a_run_without_its_lease_appends_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "SETTLE_S", 0.1)
    with only_run(settings.location, ["govern"]):
        writing = writer(settings)
        writing.append("quarantine", rows("quarantine", range(1)), 0)
        write_text(settings.location, f"{lease.FOLDER}/govern.json", '{"owner": "another"}')
        with pytest.raises(UserError, match="has lost its lease"):
            writing.append("quarantine", rows("quarantine", range(1)), 1)
    assert len(plain(found(settings, "quarantine"))) == 1
    assert names(settings.location, lease.FOLDER) == ["govern.json"], "it is the other run's"


REFUSED = {
    "AWS_ACCESS_KEY_ID": ("nobody", "AWS_ACCESS_KEY_ID", 2),
    "AWS_SECRET_ACCESS_KEY": ("wrong", "AWS_SECRET_ACCESS_KEY", 2),
    "AWS_ENDPOINT_URL": ("http://127.0.0.1:9", "AWS_ENDPOINT_URL", 75),
}


@pytest.mark.parametrize("key", REFUSED)
@pytest.mark.parametrize(
    "words", [("run",), ("query", "lag"), ("report", "--json"), ("alerts", "check")]
)
def test_a_store_that_refuses_or_does_not_answer_is_told_by_its_key(
    words: tuple[str, ...],
    key: str,
    s3: S3,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the check before Spark, and commands without it, tell it."""
    value, told, code = REFUSED[key]
    config = tmp_path / "weir.yaml"
    document = {
        "warehouse": f"s3a://{BUCKET}/refused",
        "storage_options": {**s3.options, key: value},
        "source": {"format": "files", "path": str(tmp_path)},
    }
    config.write_text(yaml.safe_dump(document))
    monkeypatch.setenv("WEIR_PREFLIGHT", "here")
    assert main([*words, "--config", str(config)]) == code
    said = capsys.readouterr().err
    assert f"storage_options.{told}" in said or f"and {told}" in said
    assert ("Connection refused" in said) is (code == 75)
    assert SECRET not in said and "internal error" not in said


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("AWS_ACCESS_KEY_ID", "nobody", "storage_options.AWS_ACCESS_KEY_ID"),
        ("AWS_SECRET_ACCESS_KEY", "wrong", "storage_options.AWS_SECRET_ACCESS_KEY"),
        (None, "nowhere", "the store has no such bucket"),
    ],
)
def test_what_a_store_says_of_a_request_is_understood(
    s3: S3, make_settings: MakeSettings, key: str | None, value: str, told: str
) -> None:
    """By delta-rs, which lists, and by pyarrow, which writes."""
    options = {**s3.options, **({key: value} if key else {})}
    bucket = BUCKET if key else value
    location = make_settings(warehouse=f"s3a://{bucket}/w", storage_options=options).location
    for ask in (lambda: names(location, "_weir"), lambda: write_text(location, "_weir/x", "")):
        with pytest.raises(OSError, match=r"S3|AWS") as refused:
            ask()
        assert told in str(of_store(refused.value))
    assert of_store(ValueError("other")) is None
