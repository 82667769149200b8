"""Comparisons during a run: periodically, in a separate process with low priority."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TYPE_CHECKING

from app.background.rounds import one_round
from app.background.threads import working
from app.reconcile.command import until_next
from app.warehouse.reach import by_delta_rs

if TYPE_CHECKING:
    from app.config.settings import Settings

MODULE = "app.reconcile"
LEAD_S = 5.0
"""A round is started so long before it reads the brokers: a process takes its time to come."""


def beside(
    settings: Settings, endless: bool, say: Callable[[str], None]
) -> AbstractContextManager[None]:
    """A context in which brokers are compared, if that is configured and the run has no end;
    problems go to `say`, repeated ones once."""
    chosen = settings.reconcile
    if chosen is None or chosen.interval_ms is None or not endless:
        return nullcontext()
    if not by_delta_rs(settings.warehouse):
        say("reconcile: brokers are not compared, since only Spark reaches this warehouse")
        return nullcontext()
    interval_ms, document = chosen.interval_ms, settings.model_dump_json()

    def repeat(stop: Event) -> None:
        reported = ""
        while not stop.is_set():
            until_next(interval_ms, stop, LEAD_S)
            if stop.is_set():
                return
            found = one_round(MODULE, document, stop)
            if found and found != reported and not stop.is_set():
                say(f"reconcile: {found}")
            reported = found

    return working(repeat, "reconcile")
