"""Which queries a run is made of, and that a warehouse has one run at a time."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from app.config.settings import Settings
from app.engine.assignment import plan
from app.engine.messages import MessageKind
from app.errors import UserError
from app.run.late_records import Times
from app.run.progress import Progress
from app.run.queries import Queries
from app.run.service import Service
from app.run.shutdown import Stopping
from app.tables.run_lock import only_run
from state.jobs import BY_DEFAULT

MakeSettings = Callable[..., Settings]


@pytest.mark.parametrize(
    ("jobs", "queries"),
    [
        (None, {"govern": (*BY_DEFAULT, "archive")}),
        (["rate_limits", "chunks"], {"govern-rate_limits-chunks": ("rate_limits", "chunks")}),
        (["archive"], {"archive": ("archive",)}),
        (["archive", "chunks"], {"chunks": ("chunks", "archive")}),
    ],
)
def test_the_archive_runs_unless_other_jobs_are_named(
    make_settings: MakeSettings, jobs: list[str] | None, queries: dict[str, tuple[str, ...]]
) -> None:
    assert plan(make_settings(), jobs).queries == queries


def test_a_job_that_is_not_configured_is_refused(make_settings: MakeSettings) -> None:
    with pytest.raises(UserError) as refused:
        plan(make_settings(), ["cache"])
    assert str(refused.value).splitlines() == [
        "--jobs cache: is not a job of this configuration",
        "allowed: rate_limits, chunks, producer_ids, backlog, entry_cache, archive",
    ]


def test_a_query_of_a_warehouse_runs_once_at_a_time(make_settings: MakeSettings) -> None:
    settings = make_settings()
    with only_run(settings.location, ["rate_limits"]):
        with only_run(settings.location, ["archive"]):
            pass
        with (
            pytest.raises(UserError) as refused,
            only_run(settings.location, ["archive", "rate_limits"]),
        ):
            pass
    assert str(refused.value).splitlines() == [
        f"warehouse: another run works on {settings.warehouse} (query rate_limits)",
        "stop it first, or take another warehouse",
    ]
    with only_run(settings.location, ["archive", "rate_limits"]):
        pass


def test_the_lock_ends_with_its_process(make_settings: MakeSettings) -> None:
    settings = make_settings()
    code = (
        "import os, sys; from app.tables.run_lock import only_run;"
        "from app.config.settings import load_settings;"
        "lock = only_run(load_settings(overrides={'warehouse': sys.argv[1]}).location, ['archive']);"
        "lock.__enter__(); os.kill(os.getpid(), 9)"
    )
    subprocess.run([sys.executable, "-c", code, settings.warehouse], check=False, timeout=60)
    with only_run(settings.location, ["archive"]):
        pass


def test_late_records_are_said_once_for_each_larger_value(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str]
) -> None:
    times = Times(make_settings(), Progress())
    for needed_ms in (9_000, 37_166, 20_000, 86_400_000 * 31, 37_166, 50_000, 86_400_000 * 32):
        times(MessageKind.LATE, needed_ms)
    first = (
        "TOO_LATE: records came for keys that had been silent for longer than idle_advance_ms allows;"
        " they are in quarantine | "
    )
    said = capsys.readouterr().err.splitlines()
    assert {line.split()[1] for line in said} == {"WARNING"}
    assert [line.split(maxsplit=2)[2] for line in said] == [
        f"{first}idle_advance_ms: 37166 would have kept them",
        "TOO_LATE: records are dated 31 days before the others; they are in quarantine | "
        "set the clock of who wrote them; the columns broker and source_partition of quarantine "
        "name it",
        f"{first}idle_advance_ms: 50000 would have kept them",
    ]


def test_a_feed_that_is_ahead_is_said_once_a_minute(
    make_settings: MakeSettings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    times = Times(make_settings(), Progress())
    for now_s in (1000.0, 1059.9, 1060.0):
        monkeypatch.setattr("time.monotonic", lambda s=now_s: s)
        times(MessageKind.AHEAD, 120_400)
    assert [line.split(maxsplit=2)[2] for line in capsys.readouterr().err.splitlines()] == [
        "records are dated up to 120 s after this machine's time and wait until then: one of the"
        " two clocks is wrong"
        " | set the clock of this machine, or clock_skew_ms: 120400 (now 10000) for a feed that is"
        " ahead",
    ] * 2


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ({"format": "files", "path": "/in/events"}, "files /in/events"),
        (
            {"format": "kafka", "options": {"kafka.bootstrap.servers": "h:1", "subscribe": "a,b"}},
            "kafka a,b",
        ),
        (
            {"format": "delta", "path": "s3a://key:hidden@bucket/in"},
            "delta s3a://********:********@bucket/in",
        ),
    ],
)
def test_a_run_says_that_it_waits_for_its_source_as_soon_as_its_queries_have_started(
    make_settings: MakeSettings,
    source: dict[str, object],
    title: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the first look at them, however long their first batch takes."""
    said_after: list[str] = []

    class Waiting(Stopping):
        def wait(self, seconds: float) -> bool:
            said_after.append(capsys.readouterr().err)
            self.ask()
            return True

    started: list[str] = []
    monkeypatch.setattr(Queries, "start", lambda _, name: started.append(name))
    queries = {"govern": (*BY_DEFAULT[1:], "archive"), BY_DEFAULT[0]: BY_DEFAULT[:1]}
    settings = make_settings(source=source, quality=None, metrics=None)
    Service(None, settings, queries, False, Waiting(), Progress()).work()  # type: ignore[arg-type]
    assert started == ["govern", BY_DEFAULT[0]]
    (line,) = said_after[0].splitlines()
    assert line.split(maxsplit=2)[1:] == [
        "INFO",
        f"started: govern with the archive, {BY_DEFAULT[0]}; waiting for the first batch of {title}",
    ]
