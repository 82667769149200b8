"""The checkpoint of a query: its place, its identity, its progress, and what it has committed.

Spark keeps source offsets (`offsets/N`), ended batches (`commits/N`) and state there. Weir adds the
identity of the query and, for a warehouse in a local folder, the last batches of each table.
`app.tables.inventory` names what must be there.

The archive has a folder, too. While a query of jobs carries it, its batches are those of this query
(`carrier`), and its folder has only what Weir adds.
"""

from __future__ import annotations

import json
import shutil
import uuid
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.archive_names import ARCHIVE
from app.errors import UserError
from app.plain_text import is_digits, lines_of
from app.tables import manifest
from app.tables.json_documents import Document
from app.tables.small_files import Damaged, local_path, names, path_in, read_text, write_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from app.config.location import Location

FOLDER = "_weir/checkpoints"
IDENTITY = "weir-query.json"
COMMITTED = "weir-committed.json"
POLICIES = "weir-policies.json"
COPYING = ".copying"
PARTITIONS = "spark.sql.shuffle.partitions"
MARKS = {
    "delta": "reservoirId",
    "files": "logOffset",
    "kafka_logs": "logOffset",
    "pulsar": "positions",
    "pulsar_messages": "positions",
    "archive": "archived_ms",
}
"""A key of the offsets of a source by its format; those of Kafka have topics as keys, each with its
partitions.
"""
NO_OFFSET = "-"
"""A source of which a batch has read nothing, in Spark's plan of it."""
POLLS, POLL_FILES = "polls", "files"
"""Keys of the offsets of polls: the position in each feed, and the files of the batch that ends
there.
"""
LOGS = ("offsets", "commits", "sources")
"""Folders of Spark's logs of the progress of a query."""
PLANS = 100
"""Most plans of batches that are kept in memory."""
_plans: dict[str, str] = {}
"""Plans in object stores, by their places."""


@dataclass(frozen=True)
class Commit:
    """The last batch that a query has written to a table, and the one before (-1: none)."""

    application: str
    batch: int
    before: int


@dataclass(frozen=True)
class Identity:
    """What a checkpoint is of. It is written before the query plans its first batch."""

    query: str
    applications: list[str]
    """Application ids of the query's commits, and of the query that it was split from; the last one
    is in use.
    """
    warehouse: str | None = None
    """Identity of the warehouse."""
    shards: int | None = None
    """The number of shards that its states are of."""
    most_records: int | None = None
    """The limit of a batch under which the unfinished batches of a Kafka source were planned."""
    first_offset: dict[str, Any] | None = None
    """The start of the first batch, for sources whose start Spark does not record."""
    polled_ms: int = 0
    """The newest time of records that polls beside a streamed source have given (ms since the
    epoch): the stream's clock does not follow them."""


@dataclass(frozen=True, order=True)
class GatheredFile:
    """A file with rows of an ended batch that are not committed yet."""

    batch: int
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Settled:
    """A batch whose rows are written, and the CRC-32 of its plan."""

    batch: int
    crc32: int


@dataclass(frozen=True)
class Committed:
    """What a query has written, at the end of its last batch."""

    __pydantic_config__ = {"extra": "forbid"}
    tables: dict[str, Commit] = field(default_factory=dict)
    """The last commit by table."""
    gathered: dict[str, list[GatheredFile]] = field(default_factory=dict)
    """Files that wait for a commit, by table."""
    settled: Settled | None = None
    """The last batch whose rows were written."""


_IDENTITY: Document[Identity] = Document(Identity, indent=1)
_COMMITTED: Document[Committed] = Document(Committed)


def location(warehouse: Location, query: str) -> str:
    """The path of a query's checkpoint."""
    return path_in(warehouse, f"{FOLDER}/{query}")


def carrier(warehouse: Location, query: str) -> str:
    """The query whose batches a query has: that which carries the archive, otherwise itself."""
    queries = (manifest.of_any_layout(warehouse).queries or {}) if query == ARCHIVE else {}
    return next((name for name, jobs in queries.items() if ARCHIVE in jobs), query)


def logs(warehouse: Location, query: str) -> str:
    """The folder below the warehouse in which Spark logs the batches of a query."""
    return f"{FOLDER}/{carrier(warehouse, query)}"


def logs_path(warehouse: Location, query: str) -> str:
    """The path of this folder."""
    return path_in(warehouse, logs(warehouse, query))


def applications(warehouse: Location, query: str) -> list[str]:
    """The application ids of the commits of a query's batches: its own, and that of the archive if
    they are one query.
    """
    reader = carrier(warehouse, query)
    writers = dict.fromkeys(n for n in (reader, ARCHIVE) if carrier(warehouse, n) == reader)
    return [kept.applications[-1] for name in writers if (kept := identity(warehouse, name))]


def found(warehouse: Location) -> list[str]:
    """The queries that have a checkpoint."""
    return sorted(
        name
        for name in names(warehouse, FOLDER)
        if not name.endswith(COPYING) and begun(warehouse, name)
    )


def begun(warehouse: Location, query: str) -> bool:
    """Whether the query has planned a batch."""
    return last_planned(warehouse, query) >= 0


def last_planned(warehouse: Location, query: str) -> int:
    """The newest batch that was planned; -1 for none."""
    return _last(warehouse, query, "offsets")


def last_ended(warehouse: Location, query: str) -> int:
    """The newest batch that has ended; -1 for none."""
    return _last(warehouse, query, "commits")


def settled(warehouse: Location, query: str) -> bool:
    """Whether every planned batch has ended."""
    return last_planned(warehouse, query) == last_ended(warehouse, query)


def _last(warehouse: Location, query: str, log: str) -> int:
    return max(
        map(int, filter(is_digits, names(warehouse, f"{logs(warehouse, query)}/{log}"))), default=-1
    )


def planned(warehouse: Location, query: str) -> int | None:
    """The batch that was planned and has not ended; None if there is none."""
    newest = _last(warehouse, query, "offsets")
    return None if newest == last_ended(warehouse, query) else newest


def plan_anew(warehouse: Location, query: str) -> bool:
    """Forget the first batch that a query has planned, if it has not ended: nothing has been read,
    so the query plans from the beginning that the source has now. False if a batch has ended, or in
    an object store.
    """
    local = local_path(warehouse.uri)
    if local is None or last_ended(warehouse, query) >= 0:
        return False
    folder = local / FOLDER / query
    for log in ("offsets", "sources/0"):
        for name in ("0", ".0.crc"):
            (folder / log / name).unlink(missing_ok=True)
    return True


def offsets(warehouse: Location, query: str, batch: int) -> dict[str, Any]:
    """The end of a batch in the source, as Spark records it; for batch -1 the start of the first
    batch.

    Empty if not known: only Kafka records a start. Of a source with polls beside it the streamed
    part; Spark has its sources in this order.
    """
    return plan(warehouse, query, batch).streamed


def poll_offsets(warehouse: Location, query: str, batch: int) -> dict[str, Any]:
    """The end of a batch in the polls, as Spark records it; empty if not known."""
    return plan(warehouse, query, batch).polls


def _planned(warehouse: Location, query: str, batch: int) -> str | None:
    """Spark's text of a batch that is planned, for batch -1 that of the start of the first batch; None
    if there is none. It stays as it is, and is read once from an object store.
    """
    file = f"{logs(warehouse, query)}/{f'offsets/{batch}' if batch >= 0 else 'sources/0/0'}"
    place = path_in(warehouse, file)
    text = _plans.get(place) or read_text(warehouse, file)
    if text and local_path(warehouse.uri) is None:
        for older in list(_plans)[:-PLANS]:
            del _plans[older]
        _plans[place] = text
    return text


def fit_sources(warehouse: Location, query: str, streamed: str | None, polled: bool) -> None:
    """Let a query that has begun continue with or without a streamed source (its format), or polls
    beside it: Spark wants a line for each in its plans. UserError for a source of another kind, or if
    the query's last batch has not ended.
    """
    before = ends(warehouse, query)
    if not before or fitted(before, streamed, polled) == before:
        return
    if not settled(warehouse, query):
        raise UserError(
            f"source: its feeds have changed, and the last batch of {query} has not ended\n"
            "start once with the source as it was and --available-now, then change it"
        )
    put_ends(warehouse, query, lambda lines: fitted(lines, streamed, polled))


def ends(warehouse: Location, query: str) -> list[str]:
    """The end of the last planned batch in each source, as Spark records it; empty before it."""
    text = read_text(
        warehouse, f"{logs(warehouse, query)}/offsets/{last_planned(warehouse, query)}"
    )
    return lines_of(text or "")[2:]


def fitted(lines: Sequence[str], streamed: str | None, polled: bool) -> list[str]:
    """Ends in sources, with a line for the streamed source and for polls where there are such.
    UserError for a streamed source of another kind than was read.
    """
    polls_alone = POLLS in offset_of(lines[0])
    stream, polls = ([NO_OFFSET, *lines] if polls_alone else [*lines, NO_OFFSET])[:2]
    if streamed is not None and stream != NO_OFFSET and _mark(stream) != MARKS.get(streamed):
        read = ", ".join(name for name, mark in MARKS.items() if mark == _mark(stream)) or "kafka"
        raise UserError(
            f"source.format: {streamed} cannot go on where another source ({read}) has been read\n"
            "put source back as it was; another source fills another warehouse"
        )
    return [line for line, wanted in ((stream, streamed), (polls, polled)) if wanted]


def _mark(line: str) -> str | None:
    """The key of MARKS that an end has; None for one of Kafka."""
    found = offset_of(line)
    kinds = {type(value) for value in found.values()}
    return None if kinds <= {dict} else next((m for m in MARKS.values() if m in found), None)


def put_ends(
    warehouse: Location,
    query: str,
    changed: Callable[[list[str]], list[str]],
    *,
    anew: bool = False,
) -> None:
    """Change the ends of the planned batches, of which the last one has ended. With `anew` none of
    them counts as having reached what its source had.
    """
    for name in (query, ARCHIVE):  # the plan of the last batch will be another one
        kept, is_of_it = (
            committed(warehouse, name),
            carrier(warehouse, name) == carrier(warehouse, query),
        )
        if is_of_it and kept.settled is not None:
            record(warehouse, name, replace(kept, settled=None))
    folder = f"{logs(warehouse, query)}/offsets"
    # The last one last: what a kill leaves unchanged is seen there.
    for batch in sorted(map(int, filter(is_digits, names(warehouse, folder)))):
        version, about, *lines = lines_of(read_text(warehouse, f"{folder}/{batch}") or "")
        if anew:
            about = json.dumps({**json.loads(about), "batchTimestampMs": 0})
        put_plan(warehouse, f"{folder}/{batch}", "\n".join([version, about, *changed(lines)]))


def put_plan(warehouse: Location, file: str, text: str) -> None:
    """Write a file of Spark anew, without the checksum of the file as it was."""
    local = local_path(path_in(warehouse, file))
    if local is not None:
        local.with_name(f".{local.name}.crc").unlink(missing_ok=True)
    write_text(warehouse, file, text)
    _plans.pop(path_in(warehouse, file), None)


def offset_of(line: str) -> dict[str, Any]:
    """An end in a source, as Spark records it; empty for one of which nothing was read."""
    found: dict[str, Any] = {} if line == NO_OFFSET else json.loads(line)
    return found


def watermark_ms(warehouse: Location, query: str, batch: int) -> int:
    """The stream's clock at the beginning of a planned batch (ms since the epoch; 0 for none)."""
    return int(_about(warehouse, query, f"offsets/{batch}").get("batchWatermarkMs", 0))


def partitions(warehouse: Location, query: str) -> int | None:
    """The number of partitions of the newest plan; None if it names none."""
    newest = last_planned(warehouse, query)
    try:
        return int(_about(warehouse, query, f"offsets/{newest}")["conf"][PARTITIONS])
    except (Damaged, KeyError, TypeError, ValueError):
        return None


def next_watermark_ms(warehouse: Location, query: str, batch: int) -> int:
    """The stream's clock after a batch that has ended (ms since the epoch; 0 for none)."""
    return int(_about(warehouse, query, f"commits/{batch}").get("nextBatchWatermarkMs", 0))


def _about(warehouse: Location, query: str, file: str) -> dict[str, Any]:
    """What Spark has in the second line of a file; nothing if there is none."""
    text = read_text(warehouse, f"{logs(warehouse, query)}/{file}")
    lines = lines_of(text) if text else []
    found: dict[str, Any] = json.loads(lines[1]) if len(lines) > 1 else {}
    return found


def is_drain(warehouse: Location, query: str, batch: int) -> bool:
    """Whether a batch is one of `plan_without_records`: its clock is not what the batch before has
    left.
    """
    return batch > 0 and watermark_ms(warehouse, query, batch) != next_watermark_ms(
        warehouse, query, batch - 1
    )


@dataclass(frozen=True)
class Plan:
    """What Spark has planned for a batch."""

    planned_ms: int = 0
    """When (ms since the epoch); 0 for a batch that is not known."""
    streamed: dict[str, Any] = field(default_factory=dict)
    """Its end in the source; of a source with polls beside it the streamed part."""
    polls: dict[str, Any] = field(default_factory=dict)
    """Its end in the polls, where there are any."""


def plan(warehouse: Location, query: str, batch: int) -> Plan:
    """The plan of a batch; for batch -1 the start of the first batch."""
    text = _planned(warehouse, query, batch)
    if not text:
        return Plan()
    lines = lines_of(text)
    polls = offset_of(lines[-1])
    if batch < 0:
        return Plan(0, polls, polls)
    planned_ms = int(json.loads(lines[1]).get("batchTimestampMs", 0))
    return Plan(planned_ms, offset_of(lines[min(2, len(lines) - 1)]), polls)


def plan_without_records(warehouse: Location, query: str, watermark_ms: int, now_ms: int) -> None:
    """Plan one more batch, at the end of the last one in the source and with another clock: the
    next start of a query whose batches have ended begins with it, as with any that was interrupted.
    """
    last, folder = last_ended(warehouse, query), f"{FOLDER}/{query}/offsets"
    text = read_text(warehouse, f"{folder}/{last}")
    assert text is not None
    version, about, *sources = text.split("\n")
    found = {**json.loads(about), "batchWatermarkMs": watermark_ms, "batchTimestampMs": now_ms}
    text = "\n".join([version, json.dumps(found, separators=(",", ":")), *sources])
    write_text(warehouse, f"{folder}/{last + 1}", text)


def identity(warehouse: Location, query: str) -> Identity | None:
    """The identity of a checkpoint; None if it has none."""
    return _IDENTITY.load(warehouse, f"{FOLDER}/{query}/{IDENTITY}")


def keep_identity(warehouse: Location, folder: str, kept: Identity) -> None:
    """Write the identity of the checkpoint in a folder of the warehouse."""
    _IDENTITY.keep(warehouse, f"{folder}/{IDENTITY}", kept)


def require_identity(warehouse: Location, query: str) -> Identity:
    """The identity of a checkpoint, which a query that has planned no batch gets now."""
    found = identity(warehouse, query)
    if found is None:
        if begun(warehouse, query):
            raise no_identity(warehouse, query)
        there = manifest.load(warehouse)
        found = Identity(
            query,
            [_new_application(query)],
            None if there is None else there.id,
            None if there is None else there.shards,
        )
        keep_identity(warehouse, f"{FOLDER}/{query}", found)
    return found


def no_identity(warehouse: Location, query: str) -> Damaged:
    """The refusal of a query that has begun and has no identity: its batches would be written a
    second time.
    """
    return Damaged(path_in(warehouse, f"{FOLDER}/{query}/{IDENTITY}"), "is gone")


def identify(warehouse: Location, query: str, **changed: Any) -> None:
    """Change the identity of a checkpoint."""
    kept = require_identity(warehouse, query)
    wanted = replace(kept, **changed)
    if wanted != kept:
        keep_identity(warehouse, f"{FOLDER}/{query}", wanted)


def application_id(warehouse: Location, query: str) -> str:
    """The application id of a query's commits; a new checkpoint gets a new one."""
    return require_identity(warehouse, query).applications[-1]


def new_application_id(warehouse: Location, query: str) -> None:
    """Give the following commits of a query a new application id."""
    kept = require_identity(warehouse, query)
    identify(warehouse, query, applications=[*kept.applications, _new_application(query)])


def _new_application(query: str) -> str:
    return f"weir-{query}-{uuid.uuid4()}"


def is_whole(warehouse: Location, query: str) -> bool:
    """Whether the checkpoint of a query that has begun has the files that Spark writes before it
    plans the last batch: the query's id and the end of the batch before.
    """
    named = "metadata" in names(warehouse, logs(warehouse, query))
    return named and last_planned(warehouse, query) <= last_ended(warehouse, query) + 1


def committed(warehouse: Location, query: str) -> Committed:
    """The last commits of the query; empty if none are recorded."""
    return _COMMITTED.load(warehouse, f"{FOLDER}/{query}/{COMMITTED}") or Committed()


def record(warehouse: Location, query: str, commits: Committed) -> None:
    """Record the last commits of the query."""
    _COMMITTED.keep(warehouse, f"{FOLDER}/{query}/{COMMITTED}", commits)


def forget_gathered_after(warehouse: Location, query: str, ended: int) -> None:
    """Record that no rows wait of batches after this one, which are repeated."""
    kept = committed(warehouse, query)
    left = {
        table: [file for file in files if file.batch <= ended]
        for table, files in kept.gathered.items()
    }
    if left != kept.gathered:
        record(warehouse, query, replace(kept, gathered=left))


def plan_crc32(warehouse: Location, query: str, batch: int) -> int | None:
    """The CRC-32 of the plan of a batch; None without a plan."""
    text = _planned(warehouse, query, batch)
    return None if text is None else zlib.crc32(text.encode())


def copy(warehouse: Location, query: str, new: str) -> None:
    """Copy the progress of `query` to the query `new`, which gets an application id of its own.

    Raises UserError if the warehouse is not a local folder.
    """
    if new == ARCHIVE:
        copy_logs(warehouse, query)
        return
    root = local_path(warehouse.uri)
    if root is None:
        raise UserError(
            f"queries: {query} runs more jobs than it is given now, and its checkpoint is in "
            f"{warehouse.uri}\nqueries that have begun can only be split in a warehouse on "
            f"this machine; put queries back as they were, or take another warehouse"
        )
    kept = require_identity(warehouse, query)
    target = root / FOLDER / new
    unfinished = Path(f"{target}{COPYING}")
    try:
        for old in (unfinished, target):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(root / FOLDER / query, unfinished)
        # Spark ends a query that has the id of one that starts; a stale checksum is refused.
        (unfinished / ".metadata.crc").unlink(missing_ok=True)
        (unfinished / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        keep_identity(
            warehouse,
            f"{FOLDER}/{unfinished.name}",
            replace(kept, query=new, applications=[*kept.applications, _new_application(new)]),
        )
        unfinished.replace(target)
    except OSError as error:
        raise UserError(
            f"warehouse: cannot copy {root / FOLDER / query} to {target}: {error.strerror or error}"
            "\nthe checkpoint of a query is copied when the query is split"
        ) from error


def copy_logs(warehouse: Location, query: str) -> None:
    """Copy the progress of the query that carries the archive to the folder of the archive, without
    states. It counts once the manifest names the archive as a query: repeated after a crash, it
    begins anew.
    """
    source, target = f"{FOLDER}/{query}", f"{FOLDER}/{ARCHIVE}"
    for log in LOGS if local_path(warehouse.uri) else ():
        shutil.rmtree(Path(location(warehouse, ARCHIVE), log), ignore_errors=True)
    sources = names(warehouse, f"{source}/sources")
    for folder in ("offsets", "commits", *(f"sources/{name}" for name in sources)):
        for name in names(warehouse, f"{source}/{folder}"):
            text = (
                None if name.startswith(".") else read_text(warehouse, f"{source}/{folder}/{name}")
            )
            if text is not None:
                write_text(warehouse, f"{target}/{folder}/{name}", text)
    # Spark ends a query that has the id of one that starts.
    write_text(warehouse, f"{target}/metadata", json.dumps({"id": str(uuid.uuid4())}))
    identify(warehouse, ARCHIVE, first_offset=require_identity(warehouse, query).first_offset)
