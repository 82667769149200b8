"""Checks that the newest files of Spark's own logs of a query are complete (`offsets/N`,
`commits/N`).

A loss of power may leave an incomplete file, with which Spark fails. If the batch can be processed
again, removing the file is the remedy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.warehouse import checkpoints
from app.warehouse.log_files import opened
from app.warehouse.small_files import local_path

if TYPE_CHECKING:
    from app.config.settings import Settings

LINES = {"offsets": 3, "commits": 2}
"""Fewest lines of a complete file: version, metadata and a source; version and metadata."""
PUT_BACK_ALL = "\nput the warehouse back from a copy, or take another warehouse"


def problems(settings: Settings, query: str, tables: Sequence[str]) -> Iterator[str]:
    """Incomplete files, each with its remedy; `tables` are those that the query writes."""
    if local_path(settings.warehouse) is None:
        return
    place = Path(checkpoints.location(settings, query))
    ended = checkpoints.last_ended(settings, query)
    planned = checkpoints.last_planned(settings, query)
    commit = place / "commits" / str(ended)
    if ended >= 0 and not _whole(commit):
        yield _unfinished(commit) + (repeated(settings, query, tables) or PUT_BACK_ALL)
    offsets = place / "offsets" / str(planned)
    if _whole(offsets):
        return
    if planned > ended and not written(settings, query, tables, planned):
        gone = " ".join(map(str, _with_sum(offsets)))
        yield _unfinished(offsets) + f"\nhave the batch planned again: rm {gone}"
    else:
        yield _unfinished(offsets) + ", and tables have the rows of its batch" + PUT_BACK_ALL


def repeated(
    settings: Settings, query: str, tables: Sequence[str], also: Sequence[Path] = ()
) -> str:
    """The remedy that has the last batch that ended processed again; `also` are files to remove
    first. Empty if there is none.

    Spark processes again the batch that it has planned last. A plan that follows the batch is
    removed with its mark; it cannot be if tables have rows of it.
    """
    place = Path(checkpoints.location(settings, query))
    ended = checkpoints.last_ended(settings, query)
    plans = _plans_after(settings, query, tables, ended)
    if plans is None:
        return ""
    gone = [*also, *_with_sum(place / "commits" / str(ended)), *plans]
    return "\nhave the batch processed again: rm " + " ".join(map(str, gone))


def planned_again(settings: Settings, query: str, tables: Sequence[str]) -> str:
    """The remedy of a checkpoint that has lost only the mark of the batch before its last plan,
    with which Spark would skip that batch. Empty if there is none.
    """
    if local_path(settings.warehouse) is None:
        return ""
    lost = checkpoints.last_ended(settings, query) + 1
    if not Path(checkpoints.location(settings, query), "offsets", str(lost)).exists():
        return ""
    plans = _plans_after(settings, query, tables, lost)
    gone = " ".join(map(str, plans or ()))
    return gone and f"\nhave the batches after batch {lost} planned again: rm {gone}"


def _plans_after(
    settings: Settings, query: str, tables: Sequence[str], batch: int
) -> list[Path] | None:
    """The files of the plan that follows a batch; None if it is not one plan that no table has rows
    of.
    """
    place, newest = (
        Path(checkpoints.location(settings, query)), checkpoints.last_planned(settings, query)
    )
    if newest == batch:
        return []
    if newest > batch + 1 or written(settings, query, tables, newest):
        return None
    return _with_sum(place / "offsets" / str(newest))


def _unfinished(file: Path) -> str:
    return f"warehouse: {file} is empty or unfinished"


def _with_sum(file: Path) -> list[Path]:
    """The file, and its checksum file if there is one: Spark refuses a stale checksum."""
    beside = file.with_name(f".{file.name}.crc")
    return [file, beside] if beside.exists() else [file]


def _whole(file: Path) -> bool:
    lines = file.read_text(errors="replace").splitlines()
    if len(lines) < LINES[file.parent.name]:
        return False
    try:
        return all(line == "-" or json.loads(line) is not None for line in lines[1:])
    except ValueError:
        return False


def written(settings: Settings, query: str, tables: Sequence[str], batch: int) -> bool:
    """Whether one of the query's tables has the batch.

    If none has it, the batch can be planned again, with other records. Gathered rows of a batch
    that has not ended do not count: the next start removes them.
    """
    application = checkpoints.application_id(settings, query)
    for name in tables:
        table = opened(settings, name)
        has = None if table is None else table.transaction_version(application)
        if has is not None and has >= batch:
            return True
    return False
