"""Files of JSON lines, plain or gzip: a folder or a pattern. A stream also takes new files.

Spark lists the files, finds new ones and spreads them over the tasks; the Python worker reads the
lines. Spark's own text source has no line numbers and cuts files differently on another number of
cores, so a line that is read again would have another identity. Here the identity is the path below
the source folder and the line number. A file is one task: many files keep many cores busy.

Spark takes files in the order of their modification time, as many per batch as
`source.max_bytes_per_trigger` or the option `maxFilesPerTrigger` allows, at least one. A file must
be complete when it appears: write it outside the folder, then rename it.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from app import folders
from app.errors import UserError
from app.sources.files.lines import numbered
from app.sources.files.open_file import absolute, open_file, scheme_of
from app.sources.raw import Batches, Raw

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import SourceSettings

NAMES = "*.{json,jsonl,ndjson,json.gz,jsonl.gz,ndjson.gz,gz}"
"""Files of a folder that are read; a configured pattern reads what it matches."""
DIRECT = (None, "s3", "s3a", "gs", "abfs", "abfss")
"""Schemes that Python opens itself; for others Spark passes whole files of up to 2 GiB."""
LISTING = "path string, modificationTime timestamp, length bigint, content binary"
GZIP_RATIO = 12
"""How many bytes of records a gzipped byte is taken for; the broker plug-in's files have 14."""
LOOKED_AT = 1000
NEVER = "36500d"  # without it Spark silently skips files much older than the newest one
_GLOB = re.compile(r"[*?\[{]")


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a local folder that does not exist."""
    path = str(feed.path)
    base = folder(path)
    if scheme_of(base) is None and not Path(base).is_dir() and not Path(path).is_file():
        raise UserError(
            f"source.path: {path} does not exist\n"
            "allowed: a folder with files of JSON lines, or a pattern such as events/*.jsonl.gz"
        )


def notes(feed: SourceSettings) -> list[str]:
    """What a user may not expect of the files that are there now, one sentence each."""
    from app.sources.files.listed import hidden  # it takes names from here

    path = absolute(str(feed.path))
    if scheme_of(path) is not None:
        return []
    chosen = re.compile(r".*\.(json|jsonl|ndjson)(\.gz)?|.*\.gz").fullmatch
    anything = _GLOB.search(path) or Path(path).is_file()
    found = [file.path for file in hidden(path) if anything or chosen(file.path)]
    return not_read(found)


def not_read(found: Sequence[str]) -> list[str]:
    """A sentence about the files that are hidden, if there are any."""
    if not found:
        return []
    count = "1 file is" if len(found) == 1 else f"{len(found)} files are"
    return [
        f"source.path: {count} not read, because names begin with . or _, such as {found[0]}; "
        "rename what is to be read"
    ]


def read(reader: DataStreamReader, feed: SourceSettings, warehouse: Location) -> Raw:
    """The lines of the files at `source.path`."""
    return read_path(reader, str(feed.path), feed)


def read_path(reader: DataStreamReader, path: str, source: SourceSettings) -> Raw:
    """The lines of the files at `path`; `source` has the options of Spark's file sources."""
    path, options = absolute(path), source.reader_options()
    defaults = {"recursiveFileLookup": "true", "maxFileAge": NEVER, **admission(source, path)}
    if not _GLOB.search(path) and not Path(path).is_file():
        defaults["pathGlobFilter"] = NAMES
    options = {**defaults, **options}
    listing = reader.format("binaryFile").schema(LISTING).options(**options).load(path)
    columns = ["path"] if scheme_of(path) in DIRECT else ["path", "content"]
    base = folder(path)

    def unpack(batches: Batches) -> Batches:
        for batch in batches:
            for row in batch.to_pylist():
                yield from lines_of(row["path"], base, row.get("content"))

    return Raw(listing.select(*columns), unpack)


def admission(source: SourceSettings, path: str) -> dict[str, str]:
    """The default limit of a trigger over files; Spark takes one of the two options only, and
    counts the bytes as they are stored."""
    chosen = {"maxfilespertrigger", "maxbytespertrigger"} & {key.lower() for key in source.options}
    most = source.max_bytes_per_trigger
    if is_packed(path):
        most = max(most // GZIP_RATIO, 1)
    return {} if chosen else {"maxBytesPerTrigger": str(most)}


def is_packed(path: str) -> bool:
    """Whether files are gzipped, by a pattern or the first files of a local folder."""
    if _GLOB.search(path) or Path(path).is_file():
        return path.endswith(".gz")
    files = folders.files_below(Path(path))
    return any(file.path.suffix == ".gz" for file in islice(files, LOOKED_AT))


def folder(path: str) -> str:
    """The folder that identities are relative to: that of the file, or the one before a wildcard."""
    path = absolute(path)
    wild = _GLOB.search(path)
    if wild or Path(path).is_file():
        return posixpath.dirname(path[: wild.start()] if wild else path)
    return path.rstrip("/")


def lines_of(path: str, base: str, content: bytes | None) -> Iterator[pa.RecordBatch]:
    """The lines of one file as batches of raw records; a UserError for a file that cannot be read."""
    path = absolute(path)
    name = path.removeprefix(base).lstrip("/")
    try:
        with open_file(path) if content is None else pa.BufferReader(content) as file:
            for values, numbers in numbered(file):
                names = pa.repeat(pa.scalar(name), len(values))
                yield pa.record_batch(
                    [values, names, numbers], ["value", "source_partition", "source_offset"]
                )
    except (OSError, ValueError) as error:
        raise UserError(
            f"{path}: cannot be read to its end: {error}\n"
            "repair the file or remove it from the folder; files must be complete when they appear"
        ) from error
