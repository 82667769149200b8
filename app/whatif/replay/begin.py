"""Where a replay begins: empty, behind another replay, or with states that a run has saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from app.errors import UserError
from app.tables import manifest, state_files
from app.tables.manifest import SavedStates
from app.tables.small_files import local_path
from app.tables.state_files import SourcePosition, States
from app.terminal.counts import counted
from app.terminal.moments import instant_of
from app.whatif.replay.event_span import FIRST_MS, LAST_MS, EventSpan
from app.whatif.replay.out import of_folder
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.whatif.replay.replay_request import ReplayRequest

BEHIND_MS = 3_600_000
"""How far behind the stream's clock a record may be that a run still takes, as policies are."""


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
    applied: dict[str, SourcePosition] = field(default_factory=dict)
    """By job, the records that the states have."""
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
    if asked.saved:
        return _saved(settings.location, settings.shard_count, jobs, asked)
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


def _saved(
    warehouse: Location, shard_count: int, jobs: Sequence[str], asked: ReplayRequest
) -> Begin:
    """With the newest states that a run has saved before `--from`."""
    begin_ms = asked.span.begin_ms
    before_ms = LAST_MS if begin_ms == FIRST_MS else begin_ms
    kept = manifest.load(warehouse)
    there = (kept.states if kept else None) or ()
    chosen: dict[str, SavedStates] = {}
    for one in sorted(there, key=lambda one: one.saved_ms):
        if one.at_ms <= before_ms:
            chosen |= dict.fromkeys((job for job in one.jobs if job in jobs), one)
    missing = [job for job in jobs if job not in chosen]
    if missing:
        when = "" if begin_ms == FIRST_MS else f" before {instant_of(begin_ms)}"
        raise UserError(
            f"--saved: {warehouse.uri} has no saved states of {', '.join(missing)}{when}\n"
            "saved_states.interval_ms lets a run keep them; --warm-up does without"
        )
    states = States(latest_ms=min(one.at_ms for one in chosen.values()))
    applied: dict[str, Any] = {}
    for file in sorted({one.file for one in chosen.values()}):
        mine = [job for job, one in chosen.items() if one.file == file]
        applied |= dict.fromkeys(mine, _take(warehouse, shard_count, file, mine, states))
    least, most = (f(one.at_ms for one in chosen.values()) for f in (min, max))
    read_ms = max(least - BEHIND_MS, 0)
    span = replace(asked.span, begin_ms=begin_ms)
    return Begin(
        span,
        read_ms,
        begin_ms,
        most + 1 if begin_ms == FIRST_MS else begin_ms,
        states,
        applied,
        f"begins with the states that a run has saved at {instant_of(most)} of event time",
    )


def _take(
    warehouse: Location, shard_count: int, file: str, jobs: Sequence[str], into: States
) -> SourcePosition:
    """Take the states of some jobs out of a file; the place in the source they stand for."""
    root = local_path(warehouse.uri)
    if root is None:
        raise UserError("--saved: states are kept in a warehouse on this machine only")
    found, about = state_files.read(root / file)
    if about["shards"] != shard_count:
        shards = counted(about["shards"], "shard")
        raise UserError(
            f"--saved: {file} is of {shards}, and the warehouse has "
            f"{shard_count} now\ntake a later begin, or --warm-up"
        )
    for job in jobs:
        if about["versions"][job] != DECLARED[job].state_version:
            raise UserError(
                f"--saved: {file} was written by another version of Weir\n"
                "take a later begin, or --warm-up"
            )
    for key, state in found.states.items():
        if key[0] in jobs:
            into.keep(key, state, found.wakes.get(key))
    return SourcePosition(about["offsets"], about["files"])
