"""Tests of one's own policies, from Python: `play` runs the jobs over events in memory.

from app.testing import events, play          # installed: from weir.testing import ...

played = play(events("200 messages/s of 1kB to shop/orders/a for 10s"), policies="policies")
assert played.query("blame", by="culprit") == []
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from app.config.settings import settings_of_document
from app.whatif.policy_test import play as in_memory
from app.whatif.policy_test.event_lines import Event, events_of
from app.whatif.policy_test.play import PlayedTables

__all__ = ["Event", "PlayedTables", "events", "play"]


def events(*lines: str | Mapping[str, Any]) -> list[Event]:
    """Records of the event contract, in order of time: `[at T:] N messages[/s] [of SIZE] to TOPIC
    [on CONNECTION] [for T]`, `[at T:] N new producer ids[/s] of USER [for T]`, `[at T:] N produce
    requests[/s] [of SIZE] by USER [with CLIENT] [for T]` (or fetch requests), or the columns of a
    record with its time `at`. UserError for others."""
    return events_of(list(lines), "events")


def play(records: Iterable[Mapping[str, Any]], **configuration: Any) -> PlayedTables:
    """The tables that a run over these records writes; keywords are keys of a configuration, such
    as `policies`, `policy_files` (paths from the working directory) and `rate_limits`. UserError
    for a record or key that is refused."""
    return in_memory.play(records, settings_of_document(configuration, None))
