"""Compares the files that a query has planned to read with those that are there.

Spark plans a batch by the names of its files and lists them again when it reads them. A file that
is gone by then it leaves out without an error, and never comes back to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs as pafs

from app import folders
from app.errors import UserError
from app.plain_text import is_digits
from app.sources.files.line_files import DIRECT, admission
from app.sources.files.open_file import OPENED, absolute, scheme_of
from app.tables import checkpoints
from app.tables.spark_files import SourceLog, entry_of

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.source import SourceSettings

FORMATS = ("files", "kafka_logs")
"""Sources that Spark reads as files."""
SHOWN = 3
Write = Callable[[Any, int], None]


def problems(source: SourceSettings | None, warehouse: Location, query: str) -> Iterator[str]:
    """Files that are gone and that a query has planned to read, in a batch that has not ended or
    in the next one; with the remedy. Damaged if the plan cannot be read.
    """
    again = checkpoints.planned(warehouse, query)
    if again is not None:
        polls = checkpoints.poll_offsets(warehouse, query, again).get(checkpoints.POLL_FILES, [])
        yield from _gone(query, polls)
    if source is None or source.format not in FORMATS:
        return
    log, ended = SourceLog(warehouse, query), checkpoints.last_ended(warehouse, query)
    planned = checkpoints.last_planned(warehouse, query)
    done = entry_of(checkpoints.offsets(warehouse, query, ended)) if ended >= 0 else -1
    upto = entry_of(checkpoints.offsets(warehouse, query, planned)) if planned >= 0 else -1
    if done is None or upto is None:  # the query has read another kind of source
        return
    yield from _gone(query, (file.path for file in log.files(max(upto, log.last), done)))


def compared(feed: SourceSettings | None, warehouse: Location, query: str, write: Write) -> Write:
    """The function that writes the batches of a query. A batch whose files are not all there is an
    error before anything of it is written.
    """
    if feed is None or feed.format not in FORMATS:
        return write

    def whole(frame: Any, batch: int) -> None:
        done = _end(warehouse, query, batch - 1)
        files = SourceLog(warehouse, query).files(_end(warehouse, query, batch), done)
        for problem in _gone(query, (file.path for file in files)):
            raise UserError(problem)
        write(frame, batch)

    return whole


def is_full(feed: SourceSettings, warehouse: Location, query: str, batch: int) -> bool:
    """Whether a batch has taken as many files as a trigger may, or at least half of the bytes: it may
    have left some in the source."""
    log, done = SourceLog(warehouse, query), _end(warehouse, query, batch - 1)
    paths = [file.path for file in log.files(_end(warehouse, query, batch), done)]
    limits = {**admission(feed, paths[0] if paths else ""), **feed.reader_options()}
    most = {key.lower(): int(value) for key, value in limits.items() if is_digits(value)}
    if len(paths) >= most.get("maxfilespertrigger", len(paths) + 1):
        return True
    local = [Path(absolute(path)) for path in paths if scheme_of(path) is None]
    taken = sum(file.bytes for file in folders.listed(local))
    return 2 * taken >= most.get("maxbytespertrigger", 2 * taken + 1)


def _end(warehouse: Location, query: str, batch: int) -> int:
    found = entry_of(checkpoints.offsets(warehouse, query, batch)) if batch >= 0 else None
    return -1 if found is None else found


def _gone(query: str, paths: Iterable[str]) -> Iterator[str]:
    gone = sorted(_missing(paths))
    if gone:
        more = f" and {len(gone) - SHOWN} more" if gone[SHOWN:] else ""
        yield (
            f"source.path: {', '.join(gone[:SHOWN])}{more}: gone, and {query} has planned to read "
            f"{'them' if gone[1:] else 'it'}\nput {'them' if gone[1:] else 'it'} back; an empty "
            "file of the same name leaves the records out"
        )


def _missing(paths: Iterable[str]) -> Iterator[str]:
    """The files that are not there. Those of a store that Python does not open, or that does not
    answer, count as there: the query meets that itself.
    """
    remote: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        scheme = scheme_of(path)
        if scheme is None:
            if not Path(absolute(path)).exists():
                yield absolute(path)
        elif scheme in DIRECT:
            remote[f"{OPENED[scheme]}://{path.partition('://')[2].partition('/')[0]}"].append(path)
    for root, files in remote.items():
        try:
            system, base = pafs.FileSystem.from_uri(root)
            keys = [
                f"{base.rstrip('/')}/{path.partition('://')[2].partition('/')[2]}" for path in files
            ]
            found = system.get_file_info(keys)
        except (OSError, pa.ArrowException):
            continue
        yield from (
            path
            for path, info in zip(files, found, strict=True)
            if info.type == pafs.FileType.NotFound
        )
