"""A year of commits with maintenance after every day, and three fifths of them without.

Six commits a day stand for those of a run. No clock is waited for: between two days logs
are made older than the history, and what a round replaces counts as replaced before it, so a round
removes at once what it would remove an hour later.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from deltalake import DeltaTable

from app.config.settings import Settings, load_settings
from app.read.relations import Warehouse
from app.run.maintenance import exchange, logs, merging
from app.run.maintenance.upkeep import upkeep
from app.tables.commit import Writer
from app.tables.data_files import data_files
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from tests.support.throttle_rows import TOPIC, event, frame, window
from tests.unit.run.maintenance.tables import opened, writer

ROOT = Path(__file__).resolve().parents[1]
MEASURED = "topic_throttle_stats"
BESIDE = "throttle_events"
PER_DAY = 6
ROWS = 20
HISTORY_S = 2 * 3600
WITHOUT_POINTS = 3
"""Fifths of the year for which the tables are left without maintenance."""
WITH, WITHOUT = "with maintenance", "without maintenance"
COMMANDS: dict[str, Sequence[str]] = {
    "query top-offenders": ("query", "blame", "--csv"),
    "metrics --once": ("metrics", "--once"),
    "alerts check": ("alerts", "check"),
}


def run(bench: Bench) -> Result:
    """Both series, measured at the same numbers of commits."""
    days, points = (10, 2) if bench.small else (365, 5)
    result = Result("maintenance", days * PER_DAY * ROWS * 2, bench.small)
    share = days // points
    # Commits without maintenance cost more and more: the rest of the year would take half an hour.
    compared = share if bench.small else WITHOUT_POINTS * share
    for series, until in ((WITH, share * points), (WITHOUT, compared)):
        settings = load_settings(
            None,
            {
                "warehouse": str(bench.folder / series.replace(" ", "-")),
                "alerts": None,
            },
        )
        _year(result, settings, series, until, share)
    first, last, end = (n * PER_DAY for n in (share, compared, share * points))
    for what in ("commit", *COMMANDS):
        result.ratio(_name(WITH, end, what), _name(WITH, first, what))
        result.ratio(_name(WITHOUT, last, what), _name(WITH, last, what))
    return result


def _name(series: str, commits: int, what: str) -> str:
    return f"{series}, {commits} commits: {what}"


def _year(result: Result, settings: Settings, series: str, days: int, share: int) -> None:
    appending = writer(settings)
    took: list[float] = []
    rounds: list[float] = []
    for day in range(days):
        for number in range(day * PER_DAY, (day + 1) * PER_DAY):
            took.append(_commit(appending, number))
        if series == WITH:
            rounds.append(_maintained(settings))
        if (day + 1) % share == 0:
            _measure(result, settings, series, (day + 1) * PER_DAY, took[-5 * PER_DAY :])
    if rounds:
        value, spread = middle(rounds)
        result.add(f"{series}: a round", value, "s", spread)


def _commit(appending: Writer, number: int) -> float:
    """Append rows of one minute to both tables; seconds for one of them."""
    start = time.perf_counter()
    rows = [window(number, topic=f"{TOPIC}-{n}", culprit_times=n % 3) for n in range(ROWS)]
    appending.append(MEASURED, frame(MEASURED, rows), number)
    took = time.perf_counter() - start
    marks = [event(number * 60_000 + n, "mark" if n % 2 == 0 else "unmark") for n in range(ROWS)]
    appending.append(BESIDE, frame(BESIDE, marks), number)
    return took


def _maintained(settings: Settings) -> float:
    """One round, a day after the last; its seconds."""
    then = time.time() - HISTORY_S
    for log in Path(settings.warehouse).glob("*/_delta_log/*"):
        os.utime(log, (then, then))
    start = time.perf_counter()
    with (
        mock.patch.object(exchange, "clock_ms", lambda: int(then * 1000)),
        mock.patch.object(merging, "SETTLED_MS", 0),
    ):
        done = upkeep(Warehouse.of(settings.location, settings.owners), settings.maintenance)
    assert not [kept.problem for kept in done.tables if kept.problem], done
    return time.perf_counter() - start


def _measure(
    result: Result, settings: Settings, series: str, commits: int, took: Sequence[float]
) -> None:
    table = opened(settings, MEASURED)
    result.add(_name(series, commits, "files"), len(data_files(table.delta)), "files")
    result.add(_name(series, commits, "log"), logs.size(table).bytes / 1e6, "MB")
    stored = sum(p.stat().st_size for p in Path(table.location).glob("*.parquet"))
    result.add(_name(series, commits, "stored"), stored / 1e6, "MB")
    value, spread = middle(took)
    result.add(_name(series, commits, "commit"), value, "s", spread)
    for what, words in COMMANDS.items():
        result.add(_name(series, commits, what), _seconds(settings, words), "s")
    assert DeltaTable(table.location).count() == commits * ROWS


def _seconds(settings: Settings, words: Sequence[str]) -> float:
    """Seconds of a command from its start to its end, Python's own start included."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "app.main", *words, "--warehouse", settings.warehouse],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return time.perf_counter() - start
