"""Files that a Kafka broker's own tools write: its request log, and dumps of its log segments.

Where a job reads requests of clients, each line of the request log is a `client_request`
(`client_requests`); else only the few lines about producer ids are parsed.

The request log has the owners of producer ids, a dump has the ids that produced; joined by id they
are the feed of the job on producer ids for an unmodified broker. An answer to INIT_PRODUCER_ID is a
`producer_id_assigned` at the completion of the request (the time of its line). A batch becomes a
`produce_batch` at its own time, with principal and client id of the assignment in force
(`kafka_owners`). A batch whose id is in no request log of the source has no principal, which the
contract refuses.

Both kinds of file are below one path, plain or gzip; the first line of either kind decides the kind
of a file. Identities are those of `files`: the path below the source's folder, and the line. A
malformed line of the format is passed on unchanged and becomes UNPARSEABLE, and so does the first
line of a file of neither kind.

A task that reads a dump also reads all request logs of the source, including those of earlier
batches, and caches their assignments until they change. So the request logs must be present before
the dump. The same holds for the names of topics that requests give by their ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.contract.event_contract import PROBLEM
from app.errors import UserError, reason
from app.sources.files.line_files import DIRECT, LISTING, NEVER, admission, folder, not_read
from app.sources.files.lines import numbered
from app.sources.files.listed import Listed, hidden, listed
from app.sources.files.open_file import absolute, open_file, scheme_of
from app.sources.kafka import client_requests
from app.sources.kafka import dump_log as dump_log
from app.sources.kafka import request_log as request_log
from app.sources.kafka.client_requests import ClientRequest, TopicNames
from app.sources.kafka.log_owners import Assignments, LogOwners, columns_of
from app.sources.kafka.request_log import Assigned, NotParsedError
from app.sources.raw import Batches, Raw

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamReader

    from app.config.location import Location
    from app.config.source import KafkaLogsSettings, SourceSettings

REQUESTS, DUMP = "kafka_request_log", "kafka_dump_log"
"""Kinds of files, and the feeds that their records are of."""
CLIENT_REQUEST = "client_request"
LONGEST_STRANGE = 1000
"""Bytes that are shown of a file of neither kind, which may be without newlines."""
LARGEST = 2**63 - 1
Lines = Iterator[tuple[pa.Array, pa.Array]]
_OF_CLIENTS = ("source_offset", "line", *ClientRequest._fields)


def check(feed: SourceSettings, warehouse: Location) -> None:
    """UserError for a local folder that does not exist and files that a worker cannot open."""
    path = str(feed.path)
    base = folder(path)
    scheme = scheme_of(base)
    if scheme not in DIRECT:
        raise UserError(
            f"source.path: format kafka_logs cannot read {scheme}: paths\n"
            "allowed: a local folder, or one in an object store (s3, gs, abfs)"
        )
    if scheme is None and not Path(base).is_dir():
        raise UserError(
            f"source.path: {path} does not exist\n"
            "allowed: a folder with request logs and log dumps of Kafka, or a pattern"
        )


def notes(feed: SourceSettings) -> list[str]:
    """What a user may not expect of the files that are there now, one sentence each."""
    path = absolute(str(feed.path))
    return not_read([file.path for file in hidden(path)] if scheme_of(path) is None else [])


def read(
    reader: DataStreamReader,
    feed: SourceSettings,
    warehouse: Location,
    kinds: frozenset[str] = frozenset(),
) -> Raw:
    """The records of the files at `source.path`, as columns of the contract; requests of clients
    if they are among the `kinds` that jobs read."""
    path = absolute(str(feed.path))
    logs, requests = feed.logs, CLIENT_REQUEST in kinds
    options = {
        "recursiveFileLookup": "true",
        "maxFileAge": NEVER,
        **admission(feed, path),
        **feed.reader_options(),
    }
    listing = reader.format("binaryFile").schema(LISTING).options(**options).load(path)
    return Raw(listing.select("path"), lambda batches: unpack(batches, path, logs, requests))


def unpack(batches: Batches, path: str, logs: KafkaLogsSettings, requests: bool = False) -> Batches:
    """The records of the files that the batches name in `path`; `path` is that of the source."""
    base = folder(path)
    for batch in batches:
        for name in batch.column("path").to_pylist():
            yield from records_of(absolute(name), base, path, logs, requests)


def records_of(
    file: str, base: str, path: str, logs: KafkaLogsSettings, requests: bool
) -> Iterator[pa.RecordBatch]:
    """The records of one file: columns of the contract, and in `value` what is not parsed."""
    source = file.removeprefix(base).lstrip("/")
    logs = logs.model_copy(update={"broker": logs.broker_of(source)})
    kind: str | None = None
    strange: tuple[int, bytes] | None = None
    dump = dump_log.Dump()
    owners = cache(lambda: owners_of(path, logs.time_zone))
    hints: set[str] = set()
    names = cache(lambda: topic_names_of(path)) if requests else None
    for values, numbers in _lines(file):
        kind = kind or kind_of(values)
        found = _BlockRecords(source, logs)
        if kind is None:
            strange = strange or (numbers[0].as_py(), values[0].as_py()[:LONGEST_STRANGE])
        elif kind == REQUESTS:
            found.requests(values, numbers, hints, names)
        else:
            found.batches(values, numbers, dump, owners)
        yield from found.records()
    if kind is None and strange is not None:
        found = _BlockRecords(source, logs)
        found.refuse(*strange, "the file is neither a request log nor a dump of Kafka")
        yield from found.records()


def kind_of(values: pa.Array) -> str | None:
    """The kind of a file with these lines, by the first line that is of either kind."""
    first = {
        kind: pc.index(looks_like(values), pa.scalar(True)).as_py()
        for kind, looks_like in (
            (REQUESTS, request_log.looks_like),
            (DUMP, dump_log.looks_like),
        )
    }
    there = [kind for kind, at in first.items() if at >= 0]
    return min(there, key=first.__getitem__) if there else None


# -- records ---------------------------------------------------------------------------------


@dataclass
class _BlockRecords:
    """The records found in a block of lines of one file."""

    source: str
    logs: KafkaLogsSettings
    feed: str = ""
    rows: list[dict[str, Any]] = field(default_factory=list)
    clients: list[list[Any]] = field(default_factory=lambda: [[] for _ in _OF_CLIENTS])
    """The columns `_OF_CLIENTS`: a tuple for each line would be work for the garbage collector."""
    bad: list[tuple[int, bytes, str]] = field(default_factory=list)

    def requests(
        self, values: pa.Array, numbers: pa.Array, hints: set[str], names: TopicNames | None
    ) -> None:
        """Parse lines of a request log; `hints`: what was said about the file's lines as a whole.
        With `names` every request is one of a client."""
        self.feed = REQUESTS
        zone = _zone(self.logs.time_zone)
        logged = self.logs.charge_time == "logged"
        wanted = request_log.candidates if names is None else request_log.looks_like
        for number, line in _candidates(values, numbers, wanted):
            wrapped = request_log.wrapping(line)
            if wrapped is not None:
                if wrapped not in hints:
                    self.refuse(number, line, wrapped)
                hints.add(wrapped)
                continue
            try:
                client = names and client_requests.parse(line, zone, logged, names)
                about_ids = client is None or client.api == "INIT_PRODUCER_ID"
                one = request_log.parse(line, zone) if about_ids else None
                if any(isinstance(n, int) and abs(n) > LARGEST for n in client or ()):
                    raise NotParsedError("a number exceeds 64 bits")
            except Exception as error:  # noqa: BLE001 - a line may be anything
                self.refuse(number, line, reason(error))
                continue
            if client is not None:
                for column, value in zip(self.clients, (number, line, *client), strict=True):
                    column.append(value)
            if one is not None:
                self._take(
                    number,
                    line,
                    {
                        "event_type": "producer_id_assigned",
                        "ts_wall_ms": one.completed_ms,
                        "principal": one.principal,
                        "client_id": one.client_id,
                        "producer_id": one.producer_id,
                    },
                )

    def batches(
        self,
        values: pa.Array,
        numbers: pa.Array,
        dump: dump_log.Dump,
        owners: Callable[[], LogOwners],
    ) -> None:
        """Parse lines of a dump, and assign every batch to the owner of its producer id."""
        self.feed = DUMP
        for number, line in zip(numbers.to_pylist(), values.to_pylist(), strict=True):
            try:
                one = dump.parse(line)
            except Exception as error:  # noqa: BLE001 - a line may be anything
                self.refuse(number, line, reason(error))
                continue
            if one is not None:
                self._take(
                    number,
                    line,
                    {
                        "event_type": "produce_batch",
                        "ts_wall_ms": one.ts_ms,
                        "topic": one.topic,
                        "partition": one.partition,
                        "producer_id": one.producer_id,
                        "sequence_id": one.base_sequence,
                        "entry_id": one.base_offset,
                        "entry_bytes": one.size,
                        "num_messages": one.messages,
                    },
                )
        if self.rows:
            found = owners().of(
                [row["producer_id"] for row in self.rows],
                [row["ts_wall_ms"] for row in self.rows],
            )
            for row, (principal, client_id) in zip(self.rows, found, strict=True):
                row.update(principal=principal, client_id=client_id)

    def refuse(self, number: int, line: bytes, problem: str) -> None:
        """Pass on a line that cannot be parsed, with the reason."""
        # The prefix keeps the line from being decoded as a record of the contract.
        is_object = line.lstrip(b"\xef\xbb\xbf \t\r").startswith(b"{")
        self.bad.append((number, b"not a line of Kafka: " + line if is_object else line, problem))

    def records(self) -> Iterator[pa.RecordBatch]:
        """The records found, as batches of raw records."""
        if self.rows:
            table = {f.name: [row.get(f.name) for row in self.rows] for f in _SCHEMA}
            yield self._batch(table, len(self.rows), _SCHEMA)
        texts = self.clients[1]
        if texts:
            of_clients: dict[str, Any] = dict(zip(_OF_CLIENTS, self.clients, strict=True))
            of_clients |= {
                "event_type": [CLIENT_REQUEST] * len(texts),
                "line": [_text(line) for line in texts],
            }
            yield self._batch(of_clients, len(texts), _CLIENT_SCHEMA)
        if self.bad:
            numbers, lines, problems = zip(*self.bad, strict=True)
            yield pa.record_batch(
                [
                    pa.array(lines, pa.binary()),
                    pa.array([self.source] * len(lines)),
                    pa.array(numbers, pa.int64()),
                    pa.array(problems, pa.string()),
                ],
                ["value", "source_partition", "source_offset", PROBLEM],
            )

    def _batch(self, table: dict[str, Any], n: int, schema: pa.Schema) -> pa.RecordBatch:
        for name, value in (
            ("source_feed", self.feed),
            ("cluster", self.logs.cluster),
            ("broker", self.logs.broker),
            ("source_partition", self.source),
        ):
            table[name] = [value] * n
        return pa.record_batch(table, schema=schema)

    def _take(self, number: int, line: bytes, row: dict[str, Any]) -> None:
        self.rows.append({**row, "source_offset": number, "line": _text(line)})


def _schema(texts: Iterable[str], numbers: Iterable[str], flags: Iterable[str] = ()) -> pa.Schema:
    """Columns of records, among them `line`, which is not of the contract: it is shown in
    `quarantine` where a rule refuses the record."""
    common = ("event_type", "source_feed", "cluster", "broker", "principal", "client_id")
    return pa.schema(
        [
            *[(name, pa.string()) for name in (*common, *texts, "source_partition", "line")],
            *[(name, pa.int64()) for name in ("ts_wall_ms", *numbers, "source_offset")],
            *[(name, pa.bool_()) for name in flags],
        ]
    )


_SCHEMA = _schema(
    ("topic",),
    ("partition", "producer_id", "sequence_id", "entry_id", "entry_bytes", "num_messages"),
)
_CLIENT_SCHEMA = _schema(
    ("api", "topic_bytes"),
    ("charged_bytes", "handler_time_ns", "mutations", "throttle_ms", "api_version"),
    ("exempt",),
)


def _text(line: bytes) -> str:
    return line.decode("utf-8", "backslashreplace")


# -- lines -----------------------------------------------------------------------------------


def _lines(file: str) -> Lines:
    """The lines of one file, a block at a time; a UserError for a file that cannot be read."""
    try:
        with open_file(file) as opened:
            yield from numbered(opened)
    except (OSError, ValueError) as error:
        raise UserError(
            f"{file}: cannot be read to its end: {error}\n"
            "repair the file or remove it from the folder; files must be complete when they appear"
        ) from error


def _candidates(
    values: pa.Array, numbers: pa.Array, wanted: Callable[[pa.Array], pa.Array]
) -> Iterator[tuple[int, bytes]]:
    """Number and text of the lines of a request log that have to be parsed, those that are `wanted`.

    Lines of a dump are included: they are invalid there and are refused.
    """
    chosen = pc.or_(wanted(values), dump_log.looks_like(values))
    at = pa.array(np.flatnonzero(chosen.to_numpy(zero_copy_only=False)))
    return zip(numbers.take(at).to_pylist(), values.take(at).to_pylist(), strict=True)


def _zone(name: str) -> tzinfo:
    return UTC if name == "UTC" else ZoneInfo(name)


# -- the join --------------------------------------------------------------------------------

_read: dict[tuple[Listed, str], Assignments] = {}
_joined: dict[tuple[tuple[Listed, ...], str], LogOwners] = {}
_named: dict[Listed, dict[str, str]] = {}
Key = TypeVar("Key")
Content = TypeVar("Content")


def owners_of(path: str, time_zone: str) -> LogOwners:
    """The owners of the producer ids, by the request logs below the source's path now.

    A worker reads a file once, unless its size or modification time changes.
    """
    files = tuple(listed(path))
    key = files, time_zone
    if key not in _joined:
        zone = _zone(time_zone)
        parts = _of_each(
            _read,
            [(one, time_zone) for one in files],
            lambda key: columns_of(_assigned(key[0].path, zone)),
        )
        _joined.clear()
        _joined[key] = LogOwners(parts)
    return _joined[key]


def topic_names_of(path: str) -> dict[str, str]:
    """Names of topics by their ids, by the request logs below the source's path now; a client asks
    one broker of a cluster for them. Files are read as for `owners_of`."""

    def names(file: Listed) -> dict[str, str]:
        return client_requests.topic_names(
            _lines_of_requests(file.path, client_requests.names_topics)
        )

    parts = _of_each(_named, list(listed(path)), names)
    return {topic_id: name for part in parts for topic_id, name in part.items()}


def _of_each(
    kept: dict[Key, Content], keys: Sequence[Key], read: Callable[[Key], Content]
) -> list[Content]:
    """The contents of some files, read unless they are kept; only they are kept."""
    for gone in kept.keys() - set(keys):
        del kept[gone]
    for key in keys:
        if key not in kept:
            kept[key] = read(key)
    return [kept[key] for key in keys]


def _assigned(file: str, zone: tzinfo) -> Iterator[Assigned]:
    """The assignments in a file; none unless it is a request log."""
    for line in _lines_of_requests(file, request_log.candidates):
        try:
            one = request_log.parse(line, zone)
        except Exception:  # noqa: BLE001 - refused where the file itself is read
            continue
        if one is not None:
            yield one


def _lines_of_requests(file: str, wanted: Callable[[pa.Array], pa.Array]) -> Iterator[bytes]:
    """Lines of a file that have to be parsed; none unless it is a request log."""
    kind: str | None = None
    for values, numbers in _lines(file):
        kind = kind or kind_of(values)
        if kind == DUMP:
            return
        if kind == REQUESTS:
            yield from (line for _, line in _candidates(values, numbers, wanted))
