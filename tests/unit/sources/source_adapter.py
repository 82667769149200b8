"""A source adapter that polls, tried without Spark."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from app import sources
from app.config.location import Location
from app.config.source import SourceSettings
from tests.support.waiting import wait_for


def settings(tmp_path: Path, name: str, **keys: Any) -> Any:
    """Settings of a run from the format `name`; keywords: keys of the source, and `warehouse`."""
    warehouse = keys.pop("warehouse", str(tmp_path / "w"))
    source = SourceSettings.model_construct(**{"format": name, "path": None, **keys})
    polled = (source,) if source.is_polled else ()
    return SimpleNamespace(
        source=(source,),
        feed=source,
        polled=polled,
        warehouse=warehouse,
        location=Location(warehouse),
        job_params=lambda job: {"backlogQuotaCheckIntervalInSeconds": 60},
        stats_window_ms=60_000,
        idle_advance_ms=10_000,
        allowed_lateness_ms=500,
        maintenance=SimpleNamespace(history_ms=3_600_000),
    )


def assert_polled(given: Any, folder: Path) -> None:
    """One poll for what is available, several beside an endless run, none after it."""
    sources.check(given.feed, given.location)
    with sources.keep_polling(given, ["govern"], endless=False):
        assert len(list(folder.iterdir())) == 1
    with sources.keep_polling(given, ["govern"], endless=True, say=lambda _: None):
        wait_for(lambda: len(list(folder.iterdir())) > 2)
    count = len(list(folder.iterdir()))
    time.sleep(0.2)
    assert len(list(folder.iterdir())) == count


def assert_polls_nothing(tmp_path: Path, key: str) -> None:
    """Where another source is configured."""
    with sources.keep_polling(settings(tmp_path, "files", **{key: None}), ["govern"], endless=True):
        assert not (tmp_path / "w").exists()
