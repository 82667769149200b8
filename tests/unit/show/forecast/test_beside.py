"""Forecasts beside a run: in a process of their own, at every interval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from app.config.settings import Settings
from app.run.side_processes import one_round, repeating
from app.tables.run_lock import only_forecast
from tests.support.waiting import wait_for
from tests.unit.show.forecast.rounds import fill, growing, stored

Make = Callable[..., Settings]


def test_forecasts_are_kept_at_every_interval(make_settings: Make) -> None:
    reported: list[str] = []
    settings = make_settings(forecast={"interval_ms": 100})
    fill(settings.warehouse, backlog_checks=growing())
    table = Path(settings.warehouse, "forecasts", "_delta_log")
    with repeating("forecast", settings, reported.append):
        # a table is there before its first row
        wait_for(lambda: table.exists() and stored(settings))
    assert len(stored(settings)) == 1
    assert reported == []


def test_an_error_is_reported(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    for file in Path(settings.warehouse, "backlog_checks").glob("*.parquet"):
        file.unlink()
    found = one_round("forecast", settings.model_dump_json(), Event())
    assert found.startswith("IO Error: ") and "backlog_checks" in found


def test_while_another_process_makes_them_a_round_does_nothing(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    with only_forecast(settings.location):
        assert one_round("forecast", settings.model_dump_json(), Event()) == ""
    assert not Path(settings.warehouse, "forecasts").exists()
