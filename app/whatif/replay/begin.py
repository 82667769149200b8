"""Where a replay begins: empty, or behind another replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.errors import UserError
from app.tables.state_files import States
from app.terminal.moments import instant_of
from app.whatif.replay.event_span import FIRST_MS, LAST_MS, EventSpan
from app.whatif.replay.out import of_folder

if TYPE_CHECKING:
    from app.config.settings import Settings
    from app.whatif.replay.replay_request import ReplayRequest


@dataclass(frozen=True)
class Begin:
    """The begin of a replay."""

    span: EventSpan
    """Event times that it is about."""
    read_ms: int
    """Event time from which records are read (ms since the epoch)."""
    written_ms: int
    """Event time of the first rows that are written."""
    same_ms: int
    """Event time from which its rows can be compared with live ones."""
    states: States | None = None
    """Without them the jobs begin empty."""
    text: str = ""
    """Which states they are."""

    def said(self, blind_ms: Mapping[str, int], jobs: Sequence[str]) -> list[str]:
        """The begin in words: with an empty one, which rows could be others in a run that began
        earlier. `blind_ms` has the times for which a job may differ after a gap."""
        if self.states is not None:
            return [self.text]
        if self.read_ms == FIRST_MS:
            return []
        lines = [
            f"begins empty at {instant_of(self.read_ms)}: rows may differ from those of a run "
            "that began earlier"
        ]
        for job in jobs:
            until_ms = self.read_ms + blind_ms[job]
            what = (
                f"until {instant_of(until_ms)}"
                if until_ms > self.span.begin_ms
                else "by nothing but what lasts longer: the warm-up covers its memory"
            )
            lines.append(f"  {job}: {what}")
        lines.append(
            "  and where something that was opened, created or limited before is not "
            "mentioned again"
        )
        return lines


def begin_of(settings: Settings, jobs: Sequence[str], asked: ReplayRequest) -> Begin:
    """The begin of a replay; UserError for states that are not there or do not fit."""
    if asked.after is not None:
        return _after(settings, jobs, asked, asked.after)
    begin_ms = asked.span.begin_ms
    read_ms = begin_ms if begin_ms == FIRST_MS else begin_ms - asked.warm_up_ms
    return Begin(asked.span, read_ms, begin_ms, begin_ms)


def _after(settings: Settings, jobs: Sequence[str], asked: ReplayRequest, folder: str) -> Begin:
    """With the states in which another replay has ended."""
    theirs, states = of_folder(settings, folder, "--after")
    ours = {
        "warehouse": settings.warehouse,
        "jobs": list(jobs),
        "shards": settings.shard_count,
        "filters": asked.choice.filters,
    }
    for key, value in ours.items():
        if theirs.get(key) != value:
            raise UserError(f"--after {folder}: its {key} is {theirs.get(key)!r}, not {value!r}")
    end_ms = int(theirs["to_ms"])
    if end_ms == LAST_MS:
        raise UserError(
            f"--after {folder}: that replay went to the archive's end\n"
            "only one with --to has a place where another can begin"
        )
    if end_ms >= asked.span.end_ms:
        raise UserError(f"--after {folder}: --to is not after its end {instant_of(end_ms)}")
    span = EventSpan(end_ms, asked.span.end_ms)
    return Begin(span, end_ms, FIRST_MS, end_ms, states, text=f"begins with the states of {folder}")
