"""Checks that Spark's own files of a query are there and complete: the newest of its logs
(`offsets/N`, `commits/N`), its id, its log of source files, and its states.

A loss of power may leave an incomplete file, with which Spark fails. If the batch can be processed
again, removing the file is the remedy: `repair`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app import folders
from app.archive_names import ARCHIVE
from app.plain_text import lines_of
from app.tables import checkpoints, manifest, spark_files
from app.tables.log_files import opened
from app.tables.repairable import repairable
from app.tables.small_files import Damaged, local_path

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.source import SourceSettings

KAFKA = ("kafka", "kafka_messages")
"""Sources whose first offsets Spark keeps."""
LINES = {"offsets": 3, "commits": 2}
"""Fewest lines of a complete file: version, metadata and a source; version and metadata."""
PUT_BACK_ALL = "\nput the warehouse back from a copy, or take another warehouse"


def problems(
    warehouse: Location, source: SourceSettings | None, query: str, tables: Sequence[str]
) -> Iterator[str]:
    """Incomplete files, each with its remedy; `tables` are those that the query writes."""
    if local_path(warehouse.uri) is None:
        return
    place = Path(checkpoints.logs_path(warehouse, query))
    ended = checkpoints.last_ended(warehouse, query)
    planned = checkpoints.last_planned(warehouse, query)
    commit = place / "commits" / str(ended)
    offsets = place / "offsets" / str(planned)
    if ended >= 0 and not _whole(commit):
        problem = _unfinished(commit)
        yield repeated(warehouse, query, tables, problem) or problem + PUT_BACK_ALL
    elif not _whole(offsets):
        if planned > ended and not written(warehouse, query, tables, planned):
            then = "have the batch planned again"
            yield repairable(_unfinished(offsets), then, _with_sum(offsets))
        else:
            yield _unfinished(offsets) + ", and tables have the rows of its batch" + PUT_BACK_ALL
    else:
        yield from _others(warehouse, source, query, place, ended)


def _others(
    warehouse: Location, source: SourceSettings | None, query: str, place: Path, ended: int
) -> Iterator[str]:
    """What is missing or damaged beside the newest entries of the two logs."""
    for file in (place / "metadata", *folders.matching(place / "sources", "*/[0-9]*")):
        about = folders.look(file)
        if about is None and file.name != "metadata":
            continue  # an old entry of a source, which the run beside has just removed
        if about is None or not about.st_size or spark_files.changed(file):
            yield str(Damaged(str(file), "is not as Spark wrote it"))
    if ended < 0:
        first = place / "sources" / "0" / "0"
        if source is not None and source.format in KAFKA and not first.exists():
            yield str(Damaged(str(first), "is gone: the start of the first batch is not known"))
        return
    last = spark_files.entry_of(checkpoints.offsets(warehouse, query, ended))
    if last is not None:
        for name in spark_files.SourceLog(warehouse, query).logs(last):
            if not (place / "sources" / "0" / name).exists():
                yield str(
                    Damaged(
                        str(place / "sources" / "0" / name), "is gone: files would be read again"
                    )
                )
    numbers = manifest.load(warehouse)
    if query != ARCHIVE and numbers is not None:
        lost = spark_files.lost_state(place, ended, numbers.partitions)
        if lost is not None:
            yield str(
                Damaged(str(lost), f"is gone or not as Spark wrote it: a state of {query} needs it")
            )


def repeated(
    warehouse: Location,
    query: str,
    tables: Sequence[str],
    problem: str,
    also: Sequence[Path] = (),
) -> str:
    """A problem with the remedy that has the last batch that ended processed again; `also` are files
    to remove first. Empty if there is none.

    Spark processes again the batch that it has planned last. A plan that follows the batch is
    removed with its mark; it cannot be if tables have rows of it.
    """
    place = Path(checkpoints.logs_path(warehouse, query))
    ended = checkpoints.last_ended(warehouse, query)
    plans = _plans_after(warehouse, query, tables, ended)
    if plans is None:
        return ""
    gone = [*also, *_with_sum(place / "commits" / str(ended)), *plans]
    return repairable(problem, "have the batch processed again", gone)


def planned_again(warehouse: Location, query: str, tables: Sequence[str], problem: str) -> str:
    """The problem of a checkpoint with its remedy, where it has lost only the mark of the batch before
    its last plan, with which Spark would skip that batch. Empty if there is none.
    """
    if local_path(warehouse.uri) is None:
        return ""
    lost = checkpoints.last_ended(warehouse, query) + 1
    if not Path(checkpoints.logs_path(warehouse, query), "offsets", str(lost)).exists():
        return ""
    plans = _plans_after(warehouse, query, tables, lost)
    then = f"have the batches after batch {lost} planned again"
    return repairable(problem, then, plans) if plans else ""


def _plans_after(
    warehouse: Location, query: str, tables: Sequence[str], batch: int
) -> list[Path] | None:
    """The files of the plan that follows a batch; None if it is not one plan that no table has rows
    of.
    """
    place, newest = (
        Path(checkpoints.logs_path(warehouse, query)),
        checkpoints.last_planned(warehouse, query),
    )
    if newest == batch:
        return []
    if newest > batch + 1 or written(warehouse, query, tables, newest):
        return None
    return _with_sum(place / "offsets" / str(newest))


def _unfinished(file: Path) -> str:
    return f"warehouse: {file} is empty or unfinished"


def _with_sum(file: Path) -> list[Path]:
    """The file, and its checksum file if there is one: Spark refuses a stale checksum."""
    beside = spark_files.checksum_of(file)
    return [file, beside] if beside.exists() else [file]


def _whole(file: Path) -> bool:
    lines = lines_of(file.read_bytes())
    if len(lines) < LINES[file.parent.name] or spark_files.changed(file):
        return False
    try:
        return all(line == b"-" or json.loads(line) is not None for line in lines[1:])
    except ValueError:
        return False


def written(warehouse: Location, query: str, tables: Sequence[str], batch: int) -> bool:
    """Whether one of the tables that a query's batches write has the batch.

    If none has it, the batch can be planned again, with other records. Gathered rows of a batch
    that has not ended do not count: the next start removes them.
    """
    applications = checkpoints.applications(warehouse, query)
    known = checkpoints.committed(warehouse, query).tables
    return any(
        (table.transaction_version(application) or 0) >= batch
        for table in (opened(warehouse, name) for name in {*tables, *known})
        if table is not None
        for application in applications
        if table.transaction_version(application) is not None
    )
