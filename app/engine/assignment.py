"""Assigns jobs to queries so that every job continues where it stopped.

A query's checkpoint holds its progress in the source and the state of its jobs, so a job stays with
the query that has run it. A job that is new to the warehouse gets a query of its own, which begins
at the start of the source. If the configuration splits a query or leaves out some of its jobs, the
checkpoint is copied: each part continues at the same record, and jobs that are left out wait there.
Jobs with different progress are never joined.

The archive is a member of a group like a job. It has no state, so a query without jobs that runs it
has a copy of the logs alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.errors import UserError
from app.tables import checkpoints, manifest
from state.jobs import BY_DEFAULT, JOBS

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings


@dataclass(frozen=True)
class Split:
    """A split of a query: the jobs `kept` stay, each of `apart` gets a query of its own."""

    query: str
    kept: tuple[str, ...]
    apart: dict[str, tuple[str, ...]]


@dataclass
class QueryPlan:
    """The queries of a run, and the splits that precede them."""

    queries: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Those that run: jobs by query, the archive behind the jobs of the query that carries it."""
    splits: list[Split] = field(default_factory=list)
    waiting: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Jobs by query, of those that the configuration leaves out."""
    twice: bool = False
    """Whether the archive has begun as a query of its own, against the configuration."""

    @property
    def jobs(self) -> list[str]:
        """The jobs of all queries to run."""
        return [job for jobs in self.queries.values() for job in jobs_of(jobs)]

    @property
    def touched(self) -> list[str]:
        """The queries that no other run may use meanwhile: those to run and those to split, and the
        archive with that which carries it.
        """
        archive = [ARCHIVE] if any(ARCHIVE in jobs for jobs in self.queries.values()) else []
        return list(
            dict.fromkeys([*self.queries, *archive, *(split.query for split in self.splits)])
        )

    @property
    def own(self) -> dict[str, tuple[str, ...]]:
        """Those of `queries` that have a checkpoint of their own or begin one. Before the
        split the others have the checkpoint of the query that they come from.
        """
        apart = {name for split in self.splits for name in split.apart}
        return {name: jobs for name, jobs in self.queries.items() if name not in apart}

    def notes(self) -> list[str]:
        """Effects on these queries that a user may not expect, one sentence each."""
        found = [
            f"{split.query} is split: "
            + "; ".join(
                f"{name} continues with {', '.join(jobs)}"
                for name, jobs in {split.query: split.kept, **split.apart}.items()
                if name in self.queries
            )
            for split in self.splits
        ]
        found += [
            f"{', '.join(jobs)}: not in queries any more; a later run continues where {name} is now"
            for name, jobs in self.waiting.items()
        ]
        if self.twice:
            found.append(
                "archive: has begun as a query of its own and stays one, so every record is read and"
                " parsed twice; a new warehouse reads it once"
            )
        return found


def jobs_of(group: Sequence[str]) -> tuple[str, ...]:
    """The jobs of a group, without the archive."""
    return tuple(job for job in group if job != ARCHIVE)


def query_name(group: Sequence[str]) -> str:
    """The name of a query: that of its only job, or `govern` for all that run by default together,
    with the names of others after it. The archive names only a query without jobs.
    """
    jobs = jobs_of(group)
    if len(jobs) < 2:
        return jobs[0] if jobs else ARCHIVE
    named = [job for job in jobs if job not in BY_DEFAULT] if set(jobs) >= set(BY_DEFAULT) else jobs
    return "-".join(["govern", *named])


def continued(settings: Settings) -> Settings:
    """The settings, where they name no jobs with those that have begun besides those that the feeds
    can fill: a warehouse that has run more goes on.
    """
    if settings.names_jobs:
        return settings
    begun = {
        job
        for name, jobs in known(settings.location).items()
        if checkpoints.begun(settings.location, name)
        for job in jobs
    }
    jobs = [job for job in JOBS if job in begun or job in settings.jobs]
    return settings.model_copy(update={"queries": [jobs]})


def plan(settings: Settings, only: Sequence[str] | None = None) -> QueryPlan:
    """The queries for the configured groups, restricted to `only` if given.

    Raises UserError if `only` names a job that is not configured, or a part of the jobs of a query
    that has begun. The settings are not restricted: the records that the archive keeps must not
    depend on the jobs of this run.
    """
    allowed = [*settings.jobs, ARCHIVE]
    for job in only or ():
        if job not in allowed:
            raise UserError(
                f"--jobs {job}: is not a job of this configuration\nallowed: {', '.join(allowed)}"
            )
    begun = {
        name: jobs
        for name, jobs in known(settings.location).items()
        if checkpoints.begun(settings.location, name)
    }
    owner = {job: name for name, jobs in begun.items() for job in jobs}
    taken = {*begun, *checkpoints.found(settings.location)}
    made = QueryPlan()
    parts: dict[str, list[tuple[str, ...]]] = {name: [] for name in begun}
    for group in _groups(settings, begun.get(owner.get(ARCHIVE, ""), ())):
        for name in dict.fromkeys(owner[job] for job in group if job in owner):
            parts[name].append(tuple(job for job in group if owner.get(job) == name))
        new = [job for job in group if job not in owner and (only is None or job in only)]
        if new:
            made.queries[_unused(query_name(new), taken)] = tuple(new)
    for name, jobs in begun.items():
        _carry_on(made, name, jobs, parts[name], taken)
    _limit(made, only)
    order = {job: at for at, job in enumerate(allowed)}
    first = {name: order[jobs[0]] for name, jobs in made.queries.items()}
    made.queries = {name: made.queries[name] for name in sorted(first, key=first.__getitem__)}
    begun_apart = owner.get(ARCHIVE) == ARCHIVE and ARCHIVE in made.queries
    made.twice = begun_apart and [ARCHIVE] not in settings.groups
    return made


def _groups(settings: Settings, beside: Sequence[str]) -> list[list[str]]:
    """The configured groups. An archive that no group names stays beside the jobs that it has begun
    with: in the group that has most of them, alone without any.
    """
    if not beside or any(ARCHIVE in group for group in settings.queries):
        return settings.groups
    shared = [len(set(group) & set(beside)) for group in settings.queries]
    if not any(shared):
        return [*settings.queries, [ARCHIVE]]
    most = shared.index(max(shared))
    return [
        [*group, *([ARCHIVE] if at == most else [])] for at, group in enumerate(settings.queries)
    ]


def _carry_on(
    made: QueryPlan, name: str, jobs: Sequence[str], parts: list[tuple[str, ...]], taken: set[str]
) -> None:
    """The queries of the jobs that `name` has run so far."""
    left_out = tuple(job for job in jobs if all(job not in part for part in parts))
    if not parts:
        return  # none of its jobs is configured: all of them wait, where they are
    if len(parts) == 1 and not left_out:
        made.queries[name] = parts[0]
        return
    kept = max(parts, key=lambda part: len(jobs_of(part)))
    if not jobs_of(kept):  # the states stay with the jobs that wait
        kept, left_out = left_out, ()
        made.waiting[name] = kept
    apart = {_unused(query_name(part), taken): part for part in parts if part != kept}
    made.queries |= apart
    if name not in made.waiting:
        made.queries[name] = kept
    if left_out:
        waits = _unused(query_name(left_out), taken)
        made.waiting[waits] = left_out
        apart[waits] = left_out
    made.splits.append(Split(name, kept, apart))


def _limit(made: QueryPlan, only: Sequence[str] | None) -> None:
    """Keep only the queries of the requested jobs."""
    if only is None:
        return
    for name, jobs in list(made.queries.items()):
        asked = [job for job in jobs if job in only]
        if not asked:
            del made.queries[name]
        elif len(asked) < len(jobs):
            raise UserError(
                f"--jobs {asked[0]}: the query {name} runs {', '.join(jobs)} together\n"
                "name all of them, or split the query: give them groups of their own in queries"
            )
    if made.splits and not any(
        split.query in made.queries or set(split.apart) & set(made.queries) for split in made.splits
    ):
        made.splits, made.waiting = [], {}


def _unused(name: str, taken: set[str]) -> str:
    """The name, or the first of name-2, name-3 … that no checkpoint has. There is one archive."""
    found, number = name, 1
    while found in taken and name != ARCHIVE:
        number += 1
        found = f"{name}-{number}"
    taken.add(found)
    return found


def known(warehouse: Location) -> dict[str, tuple[str, ...]]:
    """Jobs by query, of the queries that have begun."""
    kept = manifest.load(warehouse)
    return {name: tuple(jobs) for name, jobs in ((kept and kept.queries) or {}).items()}


def apply(warehouse: Location, made: QueryPlan) -> None:
    """Split the queries that the plan splits, and record the jobs of each query.

    Raises UserError if a batch of a query to be split has not ended.
    """
    queries = {
        name: jobs
        for name, jobs in known(warehouse).items()
        if name in made.queries or checkpoints.begun(warehouse, name)
    }
    for split in made.splits:
        if not checkpoints.settled(warehouse, split.query):
            raise UserError(
                f"queries: the last batch of {split.query} has not ended, so it cannot "
                f"be split yet\nrun once with one group of {', '.join(queries[split.query])} "
                "and --available-now, then change queries"
            )
        for name in split.apart:
            checkpoints.copy(warehouse, split.query, name)
        if any(map(jobs_of, split.apart.values())):
            checkpoints.new_application_id(warehouse, split.query)
        queries |= {split.query: split.kept, **split.apart}
    manifest.record(warehouse, {**queries, **made.queries})
