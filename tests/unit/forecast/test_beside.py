"""Forecasts beside a run: in a process of their own, at every interval."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event

from app.background.rounds import one_round
from app.config.settings import Settings
from app.forecast.beside import MODULE, beside
from app.warehouse.run_lock import only_forecast
from tests.support.waiting import wait_for
from tests.unit.forecast.test_rounds import fill, growing, stored

Make = Callable[..., Settings]


def test_forecasts_are_kept_at_every_interval(make_settings: Make) -> None:
    reported: list[str] = []
    settings = make_settings(forecast={"interval_ms": 100})
    fill(settings.warehouse, backlog_checks=growing())
    table = Path(settings.warehouse, "forecasts", "_delta_log")
    with beside(settings, endless=True, say=reported.append):
        wait_for(lambda: table.exists() and any(table.glob("*.json")))
    assert len(stored(settings)) == 2
    assert reported == []


def test_an_error_is_reported(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    for file in Path(settings.warehouse, "backlog_checks").glob("*.parquet"):
        file.unlink()
    found = one_round(MODULE, settings.model_dump_json(), Event())
    assert found.startswith("IO Error: ") and "backlog_checks" in found


def test_none_are_made_unless_configured(make_settings: Make) -> None:
    reported: list[str] = []
    for endless, section in ((True, None), (True, {}), (False, {"interval_ms": 1})):
        settings = make_settings(forecast=section)
        fill(settings.warehouse, backlog_checks=growing())
        with beside(settings, endless, reported.append):
            pass
        assert not Path(settings.warehouse, "forecasts").exists()
    assert reported == []


def test_while_another_process_makes_them_a_round_does_nothing(make_settings: Make) -> None:
    settings = make_settings()
    fill(settings.warehouse, backlog_checks=growing())
    with only_forecast(settings):
        assert one_round(MODULE, settings.model_dump_json(), Event()) == ""
    assert not Path(settings.warehouse, "forecasts").exists()
