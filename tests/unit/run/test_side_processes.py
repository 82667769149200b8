"""What works beside a run: only what is configured, and only beside a run without an end."""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from app.config.settings import Settings
from app.run import side_processes
from app.run.side_processes import ROUNDS, one_round, repeating, working_beside
from tests.support.waiting import wait_for

Make = Callable[..., Settings]
OFF: dict[str, Any] = {
    "alerts": {"interval_ms": None},
    "quality": {"interval_ms": None},
    "maintenance": {"interval_ms": None},
    "forecast": {"interval_ms": None},
}
BROKERS = {"brokers": ["http://127.0.0.1:1"]}


def of(name: str, interval_ms: int | None) -> dict[str, Any]:
    """A configuration in which one entry alone works, if it has an interval."""
    section = {"interval_ms": interval_ms}
    return {**OFF, name: {**BROKERS, **section} if name == "reconcile" else section}


@pytest.mark.parametrize("name", ROUNDS)
@pytest.mark.parametrize(("endless", "interval_ms"), [(True, 1), (False, 1), (True, None)])
def test_rounds_are_made_where_they_are_configured_beside_a_run_without_an_end(
    make_settings: Make,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    endless: bool,
    interval_ms: int | None,
) -> None:
    begun: list[str] = []
    monkeypatch.setattr(side_processes, "LEAD_S", 0.0)
    monkeypatch.setattr(side_processes, "one_round", lambda each, *_: begun.append(each) or "")
    with working_beside(make_settings(**of(name, interval_ms)), endless, pytest.fail):
        if endless and interval_ms:
            wait_for(lambda: len(begun) > 2)
    assert set(begun) == ({name} if endless and interval_ms else set())


@pytest.mark.parametrize("name", [name for name, each in ROUNDS.items() if each.package])
def test_where_its_package_is_left_out_that_is_said(
    make_settings: Make, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    reported: list[str] = []
    monkeypatch.setitem(sys.modules, ROUNDS[name].package, None)
    with repeating(name, make_settings(**of(name, 1)), reported.append):
        pass
    (line,) = reported
    assert line.startswith(f"{name}: none is made: {ROUNDS[name].package} is not installed")


def test_a_problem_that_stays_is_reported_once(
    make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = iter(["a", "a", "", "a", "b"])
    reported: list[str] = []
    monkeypatch.setattr(side_processes, "one_round", lambda *_: next(problems, "b"))
    with repeating("quality", make_settings(**of("quality", 1)), reported.append):
        wait_for(lambda: len(reported) == 3)
    assert reported == ["quality: a", "quality: a", "quality: b"]


def test_rounds_go_on_where_no_process_starts(
    make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any, **__: Any) -> Any:
        started.append(1)
        raise OSError(12, "Cannot allocate memory")

    started: list[int] = []
    reported: list[str] = []
    monkeypatch.setattr(side_processes.subprocess, "Popen", none)
    with repeating("quality", make_settings(**of("quality", 1)), reported.append):
        wait_for(lambda: len(started) > 3)
    assert reported == ["quality: failed ([Errno 12] Cannot allocate memory)"]


def test_a_process_that_ends_with_an_error_is_a_failed_round(
    make_settings: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "no number")
    problems = one_round("quality", make_settings().model_dump_json(), Event())
    assert problems.startswith("failed (") and problems != "failed (no message)"
