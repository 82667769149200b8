"""What the daemon of Spark's Python workers loads."""

from __future__ import annotations

import gc

import pytest

from app.setup import daemon
from state.jobs import JOBS


@pytest.mark.parametrize(
    ("given", "loaded"),
    [
        (None, JOBS),
        ("", JOBS),
        ("backlog", ("backlog",)),
        ("chunks,backlog", ("chunks", "backlog")),
    ],
)
def test_the_jobs_of_the_run_are_loaded_before_the_first_fork(
    monkeypatch: pytest.MonkeyPatch, given: str | None, loaded: tuple[str, ...]
) -> None:
    done: list[object] = []
    monkeypatch.setattr("os.setpgid", lambda *_: None)
    monkeypatch.setattr(gc, "freeze", lambda: None)
    monkeypatch.setattr(daemon, "warm", lambda jobs: done.append(tuple(jobs)))
    monkeypatch.setattr(daemon, "settle", lambda: None)
    monkeypatch.setattr("pyspark.daemon.manager", lambda: done.append("forks"))
    monkeypatch.delenv("WEIR_JOBS", raising=False)
    if given is not None:
        monkeypatch.setenv("WEIR_JOBS", given)
    daemon.main()
    assert done == [loaded, "forks"]
