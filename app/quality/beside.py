"""Audits during a run: periodically, in a separate process with low priority.

Neither the commits nor the tasks of the stream wait for an audit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import Event
from typing import TYPE_CHECKING

from app.background.rounds import one_round, repeating

if TYPE_CHECKING:
    from app.config.settings import Settings

MODULE = "app.quality"


def beside(
    settings: Settings, endless: bool, say: Callable[[str], None]
) -> AbstractContextManager[None]:
    """A context in which audits run, if they are configured and the run has no end; failures
    go to `say`; repeated failures are reported once."""
    interval_ms = settings.quality.interval_ms
    if interval_ms is None or not endless:
        return nullcontext()
    return repeating(MODULE, settings.model_dump_json(), interval_ms, "quality", say)


def audit_once(settings: Settings, stop: Event) -> str:
    """One audit; its failures or its error, in a line. Cancelled by `stop`."""
    return one_round(MODULE, settings.model_dump_json(), stop)
