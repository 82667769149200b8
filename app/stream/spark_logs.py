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
from app.warehouse.small_files import local_path, path_in

if TYPE_CHECKING:
    from app.config.settings import Settings

LINES = {"offsets": 3, "commits": 2}
"""Fewest lines of a complete file: version, metadata and a source; version and metadata."""


def problems(settings: Settings, query: str, tables: Sequence[str]) -> Iterator[str]:
    """Incomplete files, each with its remedy; `tables` are those that the query writes."""
    if local_path(settings.warehouse) is None:
        return
    place = Path(checkpoints.location(settings, query))
    ended = checkpoints.last_ended(settings, query)
    planned = checkpoints.last_planned(settings, query)
    commit = place / "commits" / str(ended)
    if ended >= 0 and not _whole(commit):
        yield _unfinished(commit) + f"\nhave the batch processed again: rm {_with_sum(commit)}"
    offsets = place / "offsets" / str(planned)
    if _whole(offsets):
        return
    if planned > ended and not written(settings, query, tables, planned):
        yield _unfinished(offsets) + f"\nhave the batch planned again: rm {_with_sum(offsets)}"
    else:
        yield _unfinished(offsets) + (
            ", and tables have the rows of its batch\n"
            "put the warehouse back from a copy, or take another warehouse"
        )


def _unfinished(file: Path) -> str:
    return f"warehouse: {file} is empty or unfinished"


def _with_sum(file: Path) -> str:
    """The file, and its checksum file if there is one: Spark refuses a stale checksum."""
    beside = file.with_name(f".{file.name}.crc")
    return f"{file} {beside}" if beside.exists() else str(file)


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
    from deltalake import DeltaTable

    application = checkpoints.application_id(settings, query)
    for name in tables:
        path = path_in(settings, name)
        if DeltaTable.is_deltatable(path):
            has = DeltaTable(path).transaction_version(application)
            if has is not None and has >= batch:
                return True
    return False
