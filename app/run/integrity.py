"""Checks, before a run continues, that tables and checkpoints fit each other.

The checkpoint of a query records the last batch that was written to each table. A table that has
lost this batch (a log file emptied by a loss of power, a deleted folder) would miss its rows for
ever. A query that has lost its checkpoint would process everything a second time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.engine import assignment
from app.engine.assignment import jobs_of
from app.errors import UserError, reason
from app.run import spark_logs
from app.sources.files import planned_files
from app.tables import checkpoints, inventory, succession
from app.tables.checkpoints import Commit
from app.tables.gathering import Gathered
from app.tables.log_files import empty_commits, opened, unfinished_commit
from app.tables.repairable import repairable
from app.tables.small_files import PUT_BACK, Damaged, local_path, path_in
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings
    from app.config.source import SourceSettings

SHARED = "quarantine"
"""The table that every query writes; its rows belong to no single query."""


def check(settings: Settings, queries: Mapping[str, Sequence[str]]) -> None:
    """Raise UserError for queries whose tables and checkpoint do not fit each other."""
    tables = _written(settings, queries)
    for problem in problems(settings.location, _source(settings), tables):
        raise UserError(problem)


def of_warehouse(settings: Settings) -> Iterator[str]:
    """What is missing or wrong in a warehouse, whichever queries run next, each with its remedy."""
    try:
        inventory.refuse(settings.location)
        queries = assignment.known(settings.location)
        if all(ARCHIVE not in jobs for jobs in queries.values()):
            queries[ARCHIVE] = (ARCHIVE,)
        tables = _written(settings, queries)
    except UserError as error:
        yield str(error)
        return
    yield from problems(settings.location, _source(settings), tables)


def _source(settings: Settings) -> SourceSettings | None:
    """The streamed source, once an archive that comes before it is read."""
    return None if succession.unread(settings.location) else settings.streamed


def _written(settings: Settings, queries: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """By query, and by the archive, the tables that no other writes."""
    apart = {name: jobs_of(jobs) for name, jobs in queries.items() if jobs_of(jobs)}
    if any(ARCHIVE in jobs for jobs in queries.values()):
        apart[ARCHIVE] = (ARCHIVE,)
    return {name: tables_of(settings, jobs) for name, jobs in apart.items()}


def problems(
    warehouse: Location, source: SourceSettings | None, written: Mapping[str, Sequence[str]]
) -> Iterator[str]:
    """What does not fit, each with its remedy. `written` has the tables of each query that no
    other writes. The archive comes last; its batches may be those of another query.
    """
    unsound: set[str] = set()
    for query, tables in written.items():
        reader = checkpoints.carrier(warehouse, query)
        of_batch = [name for name in written if checkpoints.carrier(warehouse, name) == reader]
        every = [*(table for name in of_batch for table in written[name]), SHARED]
        found = list(inventory.documents(warehouse, query))
        if found:
            yield from found
        elif not checkpoints.begun(warehouse, query):
            yield from _without_checkpoint(warehouse, query, tables)
            yield from _sources(warehouse, source, query)
        elif found := list(_logs(warehouse, source, query, every)) if reader == query else []:
            unsound.add(query)
            yield from found
        elif reader not in unsound:
            repeated = partial(spark_logs.repeated, warehouse, query, every)
            yield from inventory.progress(warehouse, query, every, repeated)
            if reader == query:
                yield from _sources(warehouse, source, query)
            yield from _tables(warehouse, query, tables, every)


def _logs(
    warehouse: Location, source: SourceSettings | None, query: str, every: Sequence[str]
) -> Iterator[str]:
    """What Spark has lost of the logs of a query; `every`: the tables that its batches write."""
    if checkpoints.is_whole(warehouse, query):
        yield from spark_logs.problems(warehouse, source, query, every)
    else:
        problem = (
            f"warehouse: the checkpoint {checkpoints.location(warehouse, query)} has lost files "
            f"that Spark wrote before its last batch"
        )
        again = spark_logs.planned_again(warehouse, query, every, problem)
        yield again or f"{problem}\n{PUT_BACK}"


def _sources(warehouse: Location, source: SourceSettings | None, query: str) -> Iterator[str]:
    """Files of the source that the query has planned to read and that are gone."""
    try:
        yield from planned_files.problems(source, warehouse, query)
    except Damaged as error:
        yield str(error)


def _tables(
    warehouse: Location, query: str, tables: Sequence[str], every: Sequence[str]
) -> Iterator[str]:
    """Tables that do not have what the query has written to them; `every`: the tables that its
    batches write.
    """
    commits = checkpoints.committed(warehouse, query).tables
    for name in dict.fromkeys([*commits, *tables]):
        commit = commits.get(name)
        lost = [] if commit is None else list(_lost(warehouse, query, name, commit, every))
        yield from lost or _unfinished(warehouse, name)


def tables_of(settings: Settings, jobs: Sequence[str]) -> list[str]:
    """The tables that only these jobs write; of the archive, `events`."""
    archive = ["events"] if ARCHIVE in jobs else []
    jobs = jobs_of(jobs)
    found = archive + [
        table.name
        for job in jobs
        for table in DECLARED[job].written(settings.job_params(job)["extra_outputs"])
    ]
    if settings.shadows:
        found += [table.name for job in jobs for table in DECLARED[job].shadow_tables]
    return [name for name in dict.fromkeys(found) if name != SHARED]


def _without_checkpoint(warehouse: Location, query: str, tables: Sequence[str]) -> Iterator[str]:
    """Tables that hold rows of a query whose checkpoint is gone."""
    filled = [
        name
        for name in tables
        if (table := opened(warehouse, name)) is not None and table.version() and table.file_uris()
    ]
    if filled:
        shown = ", ".join(filled[:3]) + (f" and {len(filled) - 3} more" if filled[3:] else "")
        yield (
            f"warehouse: {shown} of {warehouse.uri} hold rows, but the checkpoint "
            f"{checkpoints.logs_path(warehouse, query)} that they come from is missing\n{PUT_BACK}"
        )


def _lost(
    warehouse: Location, query: str, name: str, commit: Commit, every: Sequence[str]
) -> Iterator[str]:
    """The problem of a table that has lost the last batch that the query has written to it."""
    from deltalake.exceptions import DeltaError

    path = path_in(warehouse, name)
    try:
        has = _newest_batch(warehouse, name, commit)
    except (DeltaError, OSError, ValueError) as error:
        yield (
            f"warehouse: the table {path} cannot be read: {reason(error)}\n"
            "put it back from a copy, or take another warehouse"
        )
        return
    if has is None:
        yield (
            f"warehouse: the table {path} is missing, and the query {query} has written to it\n"
            "put it back from a copy, or take another warehouse"
        )
    elif has > checkpoints.last_planned(warehouse, query):
        yield (
            f"warehouse: the checkpoint {checkpoints.logs_path(warehouse, query)} is older than the "
            f"table {path}, which has batch {has} of the query {query}\n"
            "put back tables and checkpoints of one time from a copy, or take another warehouse"
        )
    elif not (_kept(warehouse, query, commit, has) or _waits(warehouse, query, name, commit, has)):
        problem = f"warehouse: the table {path} has lost batch {commit.batch} of the query {query}"
        yield _with_remedy(problem, warehouse, query, every, path, commit, has)


def _newest_batch(warehouse: Location, name: str, commit: Commit) -> int | None:
    """The newest batch of a query in a table: -1 for none, None without a table.

    An incomplete commit file at the end of the log is no part of the table.
    """
    table = opened(warehouse, name)
    if table is None:
        return None
    has = table.transaction_version(commit.application)
    return -1 if has is None else int(has)


def _unfinished(warehouse: Location, name: str) -> Iterator[str]:
    """The problem of an incomplete commit file at the end of a log whose batch has not ended: the
    batch is processed again, so no row is lost.
    """
    path = path_in(warehouse, name)
    file = unfinished_commit(path) if local_path(warehouse.uri) else None
    if file is not None:
        yield repairable(
            f"warehouse: the log of the table {path} ends with an unfinished file ({file}), of a "
            "batch that has not ended",
            "have the batch processed again",
            [file],
        )


def _kept(warehouse: Location, query: str, commit: Commit, has: int) -> bool:
    """Whether a table whose newest batch is `has` is complete but for a batch that has not ended,
    which is processed again.
    """
    again = commit.batch > checkpoints.last_ended(warehouse, query)
    return has >= (commit.before if again else commit.batch)


def _waits(warehouse: Location, query: str, name: str, commit: Commit, has: int) -> bool:
    """Whether the rows of a lost commit are still in their gathered files, which are removed only
    after the commit is on disk.
    """
    if local_path(warehouse.uri) is None:
        return False
    return any(has < batch <= commit.batch for batch in Gathered(warehouse, query).batches(name))


def _with_remedy(
    problem: str,
    warehouse: Location,
    query: str,
    every: Sequence[str],
    path: str,
    commit: Commit,
    has: int,
) -> str:
    """A problem with how to restore the lost batch: from the query if it is its last one, otherwise
    from a copy."""
    empty, unfinished = empty_commits(path), unfinished_commit(path)
    there = f", whose log has an empty file ({empty[-1]})" if empty else ""
    if unfinished is not None and not empty:
        there = f", whose log has an unfinished file ({unfinished})"
    last = checkpoints.last_ended(warehouse, query)
    at_end = not empty or empty[-1] == unfinished
    again = ""
    if local_path(warehouse.uri) and commit.batch == last and has >= commit.before and at_end:
        also = [] if unfinished is None else [unfinished]
        again = spark_logs.repeated(warehouse, query, every, problem + there, also)
    return again or f"{problem}{there}\nput the table back from a copy, or take another warehouse"
