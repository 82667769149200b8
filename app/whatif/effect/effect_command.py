"""The command `policy diff A B --on RANGE`: replays a range of the archive under A and under B and
compares the tables.

Every mistake of the user is reported before the first record is read.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import UserError
from app.read.relations import Warehouse
from app.tables.small_files import local_path
from app.terminal.interrupt import temporary_folder
from app.terminal.moments import moment_ms
from app.terminal.outputs import require_folder, write_whole
from app.terminal.printable import say, say_json
from app.whatif.effect import effect_text
from app.whatif.effect.compare import Effects, compared
from app.whatif.effect.happened import differences
from app.whatif.replay.choice import EVERYTHING, Choice
from app.whatif.replay.event_span import FIRST_MS, LAST_MS, WHOLE, EventSpan
from app.whatif.replay.replay_command import Replay
from app.whatif.replay.replay_request import ReplayRequest, replaced_by
from app.whatif.replay.slices import RECORDS
from state.jobs import DECLARED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.location import Location
    from app.config.settings import Settings
    from app.show.policy.policy_changes_text import LimitChange

RANGE = "FROM/TO with times as in --from and --to of replay, either may be missing, or all"


@dataclass(frozen=True)
class PolicySide:
    """One of the two sets of policies."""

    name: str
    """`before` or `after`."""
    given: Path
    settings: Settings
    """The configuration with these policies in place of its own."""


@dataclass(frozen=True)
class Wanted:
    """What to compare, and where the answer goes."""

    span: EventSpan = WHOLE
    warm_up_ms: int = 0
    jobs: tuple[str, ...] = ()
    """If empty: the configured jobs that follow policies."""
    choice: Choice = EVERYTHING
    records: int = RECORDS
    """Number of records of a slice."""
    keep: Path | None = None
    """Folder that keeps the two warehouses; None: they are removed."""
    out: Path | None = None
    """The page to write."""
    rows: int | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if self.warm_up_ms and self.span.begin_ms == FIRST_MS:
            raise UserError("policy diff: --warm-up goes with a range that has a begin")
        require_folder(self.out)


def range_of(text: str) -> EventSpan:
    """The time span of a range from the command line; UserError if it is malformed."""
    if text.strip() == "all":
        return WHOLE
    begin, slash, end = (part.strip() for part in text.partition("/"))
    if not slash or not (begin or end):
        raise UserError(f"--on {text}: is not a range\nallowed: {RANGE}")
    where = f"--on {text}"
    span = EventSpan(
        moment_ms(begin, where) if begin else FIRST_MS, moment_ms(end, where) if end else LAST_MS
    )
    if span.begin_ms >= span.end_ms:
        raise UserError(f"{where}: its begin is not before its end")
    return span


def effect(
    before: PolicySide,
    after: PolicySide,
    changes: Sequence[LimitChange],
    wanted: Wanted,
    spark: SparkSession | None = None,
) -> int:
    """Print the effects of the second set of policies compared with the first, or write them as a
    page; returns 0. `changes` are the limits that differ. The replays run in tasks of `spark`, or
    in threads.
    """
    Warehouse.of(before.settings.location).require()
    _refuse_live(before.settings.location, wanted.keep)
    if (
        spark is not None
        and wanted.keep is None
        and not (spark.sparkContext.master or "").startswith("local")
    ):
        raise UserError(
            "policy diff: the tasks of a cluster write where all machines reach it\n"
            "name such a folder with --keep"
        )
    with _folder(wanted.keep) as folder:
        first, second = (_replay(side, wanted, folder, spark) for side in (before, after))
        first.plan()
        second.plan(first.archive_version)
        if first.archive_version != second.archive_version:
            raise UserError(
                f"--keep {wanted.keep}: its two replays are of different versions of "
                "the archive\nname another folder"
            )
        with redirect_stdout(sys.stderr):
            for side, one in ((before, first), (after, second)):
                say(f"{side.name}: {side.given}", flush=True)
                one.run(say_begin=False)  # the answer says it once
        replayed = Warehouse.of(first.out.settings.location)
        found = compared(
            replayed,
            Warehouse.of(second.out.settings.location),
            wanted.rows or 20,
            before.settings.stats_window_ms,
        )
        jobs = _jobs(before, wanted)
        unlike = differences(
            Warehouse.of(before.settings.location),
            before.settings.policy_dicts(),
            _choice(before, wanted),
            wanted.span,
            replayed,
            replayed.open("throttle_events") is not None,
        )
    _answer(
        effect_text.About(
            str(before.given), str(after.given), wanted.span, jobs, first.begins, changes, unlike
        ),
        found,
        wanted,
    )
    return 0


def _jobs(side: PolicySide, wanted: Wanted) -> tuple[str, ...]:
    jobs = wanted.jobs or tuple(
        job for job in side.settings.jobs if "policy" in DECLARED[job].kinds
    )
    if not jobs:
        raise UserError("policy diff: the configuration runs no job that follows policies")
    return jobs


def _refuse_live(warehouse: Location, keep: Path | None) -> None:
    """UserError for a folder inside the warehouse that is replayed."""
    live = local_path(warehouse.uri)
    if keep is not None and live is not None and keep.resolve().is_relative_to(live.resolve()):
        raise UserError(f"--keep {keep}: is in the warehouse that is replayed\nname another folder")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder of the replays' warehouses."""
    if keep is not None:
        yield keep
        return
    with temporary_folder("weir-policy-diff-") as folder:
        yield folder


def _choice(side: PolicySide, wanted: Wanted) -> Choice:
    return replace(wanted.choice, replaced=replaced_by(side.settings))


def _what_if(settings: Settings, jobs: Sequence[str]) -> Settings:
    """The settings of a replay under other policies."""
    return settings.model_copy(
        update={
            job: getattr(settings, job).model_copy(update=dict(DECLARED[job].what_if))
            for job in jobs
            if DECLARED[job].what_if
        }
    )


def _replay(side: PolicySide, wanted: Wanted, folder: Path, spark: SparkSession | None) -> Replay:
    jobs = _jobs(side, wanted)
    asked = ReplayRequest(
        str(folder / side.name),
        jobs,
        wanted.span,
        wanted.warm_up_ms,
        _choice(side, wanted),
        records=wanted.records,
        changed=True,
        throughout=True,
        command="policy diff",
        option="--keep",
    )
    return Replay(_what_if(side.settings, jobs), asked, spark)


def _answer(about: effect_text.About, found: Effects, wanted: Wanted) -> None:
    if wanted.out is not None:
        from app.whatif.effect.effect_page import html_of

        write_whole(wanted.out, html_of(about, found))
    if wanted.as_json:
        say_json(effect_text.plain(about, found), indent=1)
        return
    effect_text.print_all(about, found, wanted.rows or effect_text.PRINTED)
    if wanted.keep is not None:
        say(f"\nThe tables are in {wanted.keep / 'before'} and {wanted.keep / 'after'}.")
    if wanted.out is not None:
        say(f"\nThe page is in {wanted.out}.")
