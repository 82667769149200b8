"""The command `reconcile`: one round and its rows, or rounds until it is stopped."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING

from app.read.relations import Warehouse
from app.show.reconcile.comparing import ComparisonRound, one_round, own
from app.show.reconcile.recorded_numbers import entity_text, remedies
from app.show.reconcile.spans import Row, differs
from app.tables.manifest import load as load_manifest
from app.tables.run_lock import only_reconciliation
from app.terminal.interrupt import stopping_at_signals
from app.terminal.moments import instant_of
from app.terminal.printable import say
from app.terminal.program import PROGRAM
from app.terminal.rows import write_table

if TYPE_CHECKING:
    from app.config.settings import Settings

DEFAULT_MS = 60_000
"""Interval of --watch where the run is not to compare."""
SHOWN = (
    "broker",
    "topic",
    "partition",
    "group",
    "measure",
    "broker_value",
    "weir_value",
    "difference",
    "bound",
    "reason",
)
OF_KAFKA = ("partition", "group")
RECORDED = (
    "cluster",
    "broker",
    "entity",
    "measure",
    "since",
    "broker_value",
    "weir_value",
    "difference",
    "bound",
)
MOST = 20
"""Rows of numbers that came with the records that are printed; all are in the table."""


def reconcile_command(
    settings: Settings,
    as_json: bool = False,
    watch: bool = False,
    cluster: str | None = None,
) -> int:
    """One round, and its rows, of one cluster or all; 1 if a number of them differs. With `watch` a
    round now and at every interval, until SIGTERM or SIGINT; 0."""
    chosen = own(settings)
    Warehouse.of(settings.location).require()
    load_manifest(settings.location)
    with only_reconciliation(settings.location):
        if not watch:
            done = one_round(settings).of_cluster(cluster)
            _print(done, as_json)
            return 1 if any(map(differs, done.rows)) else 0
        with stopping_at_signals() as stop:
            while not stop.is_set():
                _print(one_round(settings, stop).of_cluster(cluster), as_json)
                until_next(chosen.interval_ms or DEFAULT_MS, stop)
    return 0


def until_next(interval_ms: int, stop: threading.Event) -> None:
    """Wait for the next multiple of the interval since the epoch, where statistics windows end."""
    stop.wait((interval_ms - time.time() * 1000 % interval_ms) / 1000)


def _print(done: ComparisonRound, as_json: bool) -> None:
    if as_json:
        print(
            json.dumps(
                {
                    "rows": done.rows,
                    "waiting": done.waiting,
                    "first": done.first,
                    "problems": done.problems,
                }
            ),
            flush=True,
        )
        return
    read = [row for row in done.rows if row["user"] is None]
    if read:
        of_kafka = any(row["partition"] is not None for row in read)
        shown = [name for name in SHOWN if of_kafka or name not in OF_KAFKA]
        rows = [[row[name] for name in shown] for row in read]
        write_table(shown, rows, sys.stdout, None)
    _print_recorded([row for row in done.rows if row["user"] is not None and differs(row)])
    say(summary(done), flush=True)
    for problem in done.problems:
        say(f"weir: {problem}", file=sys.stderr, flush=True)


def _print_recorded(rows: list[Row]) -> None:
    """The rows that differ, the most apart first, and what to do about them."""
    if not rows:
        return
    rows.sort(key=lambda row: -abs(row["difference"]) / (abs(row["broker_value"]) or 1))
    shown = [
        {**row, "entity": entity_text(row), "since": instant_of(row["window_start_ms"])}
        for row in rows[:MOST]
    ]
    write_table(RECORDED, [[row[name] for name in RECORDED] for row in shown], sys.stdout, None)
    if len(rows) > MOST:
        say(f"and {len(rows) - MOST} more: {PROGRAM} query reconciliation")
    for text, measures in remedies(rows).items():
        say(f"{', '.join(measures)}: {text}")


def summary(done: ComparisonRound) -> str:
    """A round in one line."""
    apart = sum(map(differs, done.rows))
    without = sum(row["reason"] is not None for row in done.rows)
    parts = [
        f"{len(done.rows)} numbers: {len(done.rows) - apart - without} agree, {apart} differ, "
        f"{without} cannot be compared"
    ]
    if done.rows:
        first = min(row["window_start_ms"] for row in done.rows)
        last = max(row["window_start_ms"] + row["window_ms"] for row in done.rows)
        parts.append(f"{instant_of(first)} to {instant_of(last)}")
    if done.first:
        parts.append(f"{len(done.first)} read for the first time")
    if done.waiting:
        parts.append(f"{done.waiting} spans wait until Weir has processed them")
    return "; ".join(parts)
