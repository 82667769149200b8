"""Maintenance during a run: periodically, in a separate process with low priority."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from app.background.rounds import repeating
from app.warehouse.reach import by_delta_rs

if TYPE_CHECKING:
    from app.config.settings import Settings

MODULE = "app.maintain"


def beside(
    settings: Settings, endless: bool, say: Callable[[str], None]
) -> AbstractContextManager[None]:
    """A context in which tables are maintained, if configured and if the run has no end. Problems
    go to `say`.
    """
    interval_ms = settings.maintenance.interval_ms
    if interval_ms is None or not endless:
        return nullcontext()
    if not by_delta_rs(settings.warehouse):
        say("maintenance: there is none, since only Spark reaches this warehouse")
        return nullcontext()
    return repeating(MODULE, settings.model_dump_json(), interval_ms, "maintenance", say)
