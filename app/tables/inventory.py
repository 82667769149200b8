"""What belongs to a warehouse and its checkpoints, and what is missing or of another run.

| file | there from | without it, or with another |
| --- | --- | --- |
| `_weir/manifest.json` | the first start | refused: shards, partitions, ids of topics not known |
| `_weir/formats.json` | the first start | written again: states have their versions |
| in a query's checkpoint: | | |
| `weir-query.json` | before the first batch is planned | refused: batches would be written twice |
| `weir-policies.json` | before the first batch is planned | refused: judged by other policies |
| `weir-committed.json` | the end of the first batch | refused if a table has rows of the query |
| `gathered/TABLE/BATCH.arrow` | the end of the batch to its commit | refused: rows are lost |
| of the archive, files of a table that it lists | the same | refused: rows are lost |
| Spark's `metadata`, `offsets`, `commits`, `sources`, `state` | | refused, as Spark needs them |

A kill between two files leaves only what the next start continues: a file is required once a later
one is there that is written after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from app.archive_names import ARCHIVE
from app.errors import UserError
from app.tables import archive_files, checkpoints, manifest, policy_log
from app.tables.checkpoints import FOLDER, IDENTITY, Committed, Identity
from app.tables.gathering import Gathered
from app.tables.log_files import opened
from app.tables.small_files import Damaged, local_path, path_in

if TYPE_CHECKING:
    from app.config.location import Location

COPIED = "is of another query, or of another warehouse or time"


def claim(warehouse: Location, partitions: int, shards: int | None) -> None:
    """Write the manifest if it is not there yet."""
    refuse(warehouse)
    manifest.claim(warehouse, partitions, shards)


def refuse(warehouse: Location) -> None:
    """Damaged for a warehouse without a manifest that has been begun."""
    found = checkpoints.found(warehouse)
    if found and manifest.load(warehouse) is None:
        raise Damaged(
            manifest.path(warehouse),
            f"is gone, and {checkpoints.location(warehouse, found[0])} has a query's progress",
        )


def documents(warehouse: Location, query: str) -> Iterator[str]:
    """What is missing or wrong of Weir's own documents in the checkpoint of a query, each with its
    remedy.
    """
    begun = checkpoints.begun(warehouse, query)
    try:
        if (found := checkpoints.identity(warehouse, query)) is not None:
            _fits(warehouse, query, found)
        elif begun:
            raise checkpoints.no_identity(warehouse, query)
        checkpoints.committed(warehouse, query)
        if policy_log.load(warehouse, query) is None and begun and query != ARCHIVE:
            raise Damaged(path_in(warehouse, policy_log.file_of(query)), "is gone")
    except UserError as error:
        yield str(error)


def _fits(warehouse: Location, query: str, found: Identity) -> None:
    """Damaged for an identity that is not of this query and warehouse."""
    path = path_in(warehouse, f"{FOLDER}/{query}/{IDENTITY}")
    kept = manifest.load(warehouse)
    if found.query != query or not found.applications:
        raise Damaged(path, f"is of the query {found.query}, not of {query}")
    if kept is None:
        return
    if found.warehouse not in (None, kept.id):
        raise Damaged(path, f"does not belong to {manifest.path(warehouse)}")
    partitions = checkpoints.partitions(warehouse, query)
    for what, there, own in (
        ("shards", kept.shards, found.shards),
        ("partitions", kept.partitions, partitions),
    ):
        if own not in (None, there):
            raise Damaged(
                manifest.path(warehouse),
                f"has {there} {what}, and the states of {query} are in {own}",
            )


def progress(
    warehouse: Location, query: str, tables: Iterable[str], repeated: Callable[[str], str]
) -> Iterator[str]:
    """What is missing or wrong of what a query has written, each with its remedy. Its documents
    and Spark's logs have been checked; `tables` are those that it writes. `repeated` adds to a
    problem the remedy that has its last batch processed again; empty if there is none.
    """
    if local_path(warehouse.uri) is None:
        return
    identity = checkpoints.require_identity(warehouse, query)
    commits = checkpoints.committed(warehouse, query)
    yield from _commits(warehouse, query, identity, commits, tables)
    yield from _gathered(warehouse, query, commits, repeated)
    if query == ARCHIVE:
        yield from _listed(warehouse, commits, repeated)
    yield from _plan(warehouse, query, commits)


def _commits(
    warehouse: Location, query: str, identity: Identity, commits: Committed, tables: Iterable[str]
) -> Iterator[str]:
    """Recorded commits that are not of this query, and tables that have more than is recorded."""
    from deltalake.exceptions import DeltaError

    path = path_in(warehouse, f"{FOLDER}/{query}/{checkpoints.COMMITTED}")
    if any(one.application not in identity.applications for one in commits.tables.values()):
        yield str(Damaged(path, COPIED))
        return
    ended, application = checkpoints.last_ended(warehouse, query), identity.applications[-1]
    for name in tables:
        if name in commits.tables:
            continue
        try:
            table = opened(warehouse, name)
        except (DeltaError, OSError, ValueError):  # reported as a table that cannot be read
            continue
        has = None if table is None else table.transaction_version(application)
        if has is not None and has <= ended and not _waits(warehouse, query, name, has):
            yield str(Damaged(path, f"has no commit of {name}, which has batch {has} of {query}"))
            return


def _waits(warehouse: Location, query: str, table: str, batch: int) -> bool:
    """Whether a commit was interrupted before it was recorded: its files are still there."""
    return batch in Gathered(warehouse, query).batches(table)


def _gathered(
    warehouse: Location, query: str, commits: Committed, repeated: Callable[[str], str]
) -> Iterator[str]:
    """Files with rows of ended batches that are gone or changed."""
    gathered, ended = Gathered(warehouse, query), checkpoints.last_ended(warehouse, query)
    known: set[tuple[str, int]] = set()
    for table, files in commits.gathered.items():
        for file in files:
            known.add((table, file.batch))
            what = gathered.problem(table, file) if file.batch <= ended else None
            if what is not None:
                yield _problem(
                    gathered.path(table, file.batch), what, repeated, file.batch == ended
                )
    for table in gathered.tables():
        for batch in gathered.batches(table):
            if batch <= ended and (table, batch) not in known:
                try:
                    gathered.parts(table, [batch])
                except Damaged as error:
                    yield str(error)


def _listed(
    warehouse: Location, commits: Committed, repeated: Callable[[str], str]
) -> Iterator[str]:
    """Files of the archive that wait for a commit and are gone or changed."""
    gathered, ended = Gathered(warehouse, ARCHIVE), checkpoints.last_ended(warehouse, ARCHIVE)
    for table in gathered.tables():
        commit = commits.tables.get(table)
        for batch in gathered.batches(table):
            if batch > ended or (commit is not None and batch <= commit.batch):
                continue
            try:
                lost = archive_files.lost(warehouse, table, batch)
            except Damaged:  # reported as a list that cannot be read
                continue
            if lost is not None:
                what = f"is gone or changed, with rows of {table} that no commit has"
                yield _problem(lost, what, repeated, batch == ended)


def _problem(file: str, what: str, repeated: Callable[[str], str], is_last: bool) -> str:
    """What is wrong with a file, of the last batch with the remedy that has it processed again."""
    return (is_last and repeated(f"warehouse: {file} {what}")) or str(Damaged(file, what))


def _plan(warehouse: Location, query: str, commits: Committed) -> Iterator[str]:
    """A plan that is not the one of the last batch that was written and has ended."""
    settled = commits.settled
    if settled is None or settled.batch > checkpoints.last_ended(warehouse, query):
        return
    found = checkpoints.plan_crc32(warehouse, query, settled.batch)
    if found is not None and found != settled.crc32:
        file = f"{checkpoints.location(warehouse, query)}/offsets/{settled.batch}"
        yield str(Damaged(file, COPIED))
