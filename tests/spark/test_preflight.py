"""What a run refuses before Spark starts."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.config.settings import Settings
from app.engine import assignment
from app.engine.assignment import plan
from app.errors import UserError
from app.run.preflight import refuse
from app.run.service import run
from app.tables import manifest
from app.tables.run_lock import only_run
from tests.support.assignment import come_to

MakeSettings = Callable[..., Settings]


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Any]:
    """A source that can be read."""
    return {"format": "files", "path": str(tmp_path)}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever starts a session fails."""
    monkeypatch.setattr("app.run.service.build_session", None)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_a_port_that_another_program_holds_with_advice_that_run_knows(
    make_settings: MakeSettings, files: dict[str, Any], host: str
) -> None:
    family = socket.AF_INET6 if host == "[::1]" else socket.AF_INET
    with socket.socket(family) as other:
        try:
            other.bind((host.strip("[]"), 0))
        except OSError:
            pytest.skip(f"this machine has no {host}")
        other.listen()
        listen = f"{host}:{other.getsockname()[1]}"
        settings = make_settings(source=files, metrics={"listen": listen})
        with pytest.raises(UserError) as refused:
            run(settings)
    assert str(refused.value).splitlines() == [
        f"metrics.listen: {listen}: Address already in use",
        "another program may hold the port: choose one with metrics.listen; "
        "metrics: null serves none",
    ]
    assert not Path(settings.warehouse).exists()
    refuse(settings)  # it is free again


def test_what_does_not_fit_the_warehouse(
    make_settings: MakeSettings, files: dict[str, Any]
) -> None:
    settings = make_settings(source=files, shards=4)
    manifest.claim(settings.location, 2, 8)
    with pytest.raises(UserError, match="shards: 4 does not fit the warehouse"):
        run(settings)


def test_what_can_be_read_and_written_is_let_through(
    make_settings: MakeSettings, files: dict[str, Any]
) -> None:
    settings = make_settings(source=files, metrics={"listen": "127.0.0.1:0"})
    assert refuse(settings).queries == {"govern": (*settings.jobs, "archive")}
    assert refuse(settings, ["chunks", "archive"]).queries == {"chunks": ("chunks", "archive")}
    assert not Path(settings.warehouse).exists()


def test_a_warehouse_that_another_run_works_on(
    make_settings: MakeSettings, files: dict[str, Any]
) -> None:
    """Asked by `spark-submit.sh` before the JVM starts: what another query holds is no obstacle."""
    settings = make_settings(source=files)
    with only_run(settings.location, ["archive"]):
        with pytest.raises(UserError) as refused:
            refuse(settings)
        refuse(settings, ["chunks"])
    assert str(refused.value).splitlines() == [
        f"warehouse: another run works on {settings.warehouse} (query archive)",
        "stop it first, or take another warehouse",
    ]
    refuse(settings)


def test_a_run_whose_queries_are_to_be_taken_apart(
    make_settings: MakeSettings, files: dict[str, Any]
) -> None:
    begun = make_settings(source=files)
    manifest.claim(begun.location, 2, begun.shards)
    assignment.apply(begun.location, plan(begun))
    come_to(begun, "govern")
    settings = make_settings(source=files, queries=[["chunks"], ["backlog"]])
    assert "govern" in plan(settings).touched
    with only_run(begun.location, ["govern"]), pytest.raises(UserError, match=r"\(query govern\)"):
        refuse(settings)
