"""One round: read what is compared, compare the spans that Weir has processed, append the rows.

Readings wait in `_weir/reconcile.json` until the span up to the next one has been compared. The
rows of a round are written there first and then appended under the number of the round, so that a
crash neither loses nor repeats them.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from app.config.reconcile import WHERE, ReconcileSettings
from app.errors import UserError, reason
from app.show.reconcile import recorded_numbers
from app.show.reconcile.spans import Row
from app.tables import durable
from app.tables.definitions import TABLES
from app.tables.json_documents import Document
from app.tables.small_files import RECONCILE, local_path

if TYPE_CHECKING:
    from app.config.location import Location
    from app.config.settings import Settings

TABLE = "reconciliation"
Reading = Any
"""What was read of one broker or cluster at a time; a dataclass of plain values."""
R = TypeVar("R")


class ComparedSide(Protocol):
    """What is compared: brokers of Pulsar, or a cluster of Kafka."""

    reading: Any
    """The class of its readings."""

    @property
    def names(self) -> Collection[str]:
        """What is read, by the name of its readings."""
        ...

    def read(self, stopping: threading.Event) -> Iterator[tuple[str, Reading | str]]:
        """A reading of each, or why there is none."""
        ...

    def odd(self, name: str, found: Reading) -> list[str]:
        """What a reading lacks."""
        ...

    def compared(self, kept: list[Reading], now_ms: int) -> tuple[list[Row] | None, list[Reading]]:
        """The rows of the first span of two or more readings, and the readings that are still
        needed; None while Weir has not processed it and there is time."""
        ...


@dataclass
class ReadingMemory(Generic[R]):
    """Readings that wait, by name, oldest first; number and rows of the newest round."""

    id: str
    number: int
    rows: list[Row]
    """Those that the table may lack."""
    scrapes: dict[str, list[R]]
    until: dict[str, int] = field(default_factory=dict)
    """Up to when numbers that came with records were compared, by what they are of."""

    @classmethod
    def load(cls, warehouse: Location, reading: Any) -> ReadingMemory[Reading]:
        """As the round before left it, with readings of this class; a new one where there is none,
        or it cannot be read.
        """
        document: Document[ReadingMemory[Reading]] = Document(ReadingMemory[reading])
        return document.usable(warehouse, RECONCILE) or ReadingMemory(uuid.uuid4().hex, 0, [], {})

    def keep(self, warehouse: Location) -> None:
        """Write it down."""
        _DOCUMENT.keep(warehouse, RECONCILE, self)


_DOCUMENT: Document[ReadingMemory[Reading]] = Document(ReadingMemory[Reading])


@dataclass
class ComparisonRound:
    """What a round did."""

    rows: list[Row] = field(default_factory=list)
    waiting: int = 0
    """Spans that Weir has not processed yet."""
    first: list[str] = field(default_factory=list)
    """Brokers, or clusters, that were read for the first time."""
    problems: list[str] = field(default_factory=list)

    def of_cluster(self, cluster: str | None) -> ComparisonRound:
        """With the numbers of one cluster; None for all."""
        rows = [row for row in self.rows if cluster in (None, row["cluster"])]
        return replace(self, rows=rows)


def own(settings: Settings) -> ReconcileSettings:
    """The section of the configuration; a UserError where it is missing. Polled groups of Kafka
    need none, since the source has the cluster, nor do numbers that came with the records."""
    if settings.reconcile is not None:
        return settings.reconcile
    if settings.polls_kafka or recorded_numbers.compared_parts(settings):
        return ReconcileSettings()
    raise UserError(
        f"{WHERE}: is missing (the brokers whose counters are compared)\n"
        f"{WHERE}.brokers: host:port of each broker, as its records name it, and its address"
    )


def sides_of(settings: Settings) -> list[ComparedSide]:
    """What is read: each cluster of Kafka whose groups are polled, or the brokers."""
    chosen = own(settings)
    if settings.polls_kafka:
        from app.show.reconcile.cluster import Cluster

        feeds = [feed for feed in settings.polled if feed.format == "kafka_groups"]
        return [Cluster(settings, feed, chosen) for feed in feeds]
    from app.show.reconcile.brokers import PulsarBrokers

    return [PulsarBrokers(settings, chosen)] if chosen.brokers else []


def one_round(settings: Settings, stopping: threading.Event | None = None) -> ComparisonRound:
    """Read, and compare what can be; the caller holds the lock."""
    sides, done = sides_of(settings), ComparisonRound()
    reading = sides[0].reading if sides else Any
    memory = ReadingMemory.load(settings.location, reading)
    _append(settings.location, settings.maintenance.history_ms, memory)
    side_by_name = {name: side for side in sides for name in side.names}
    for name in [name for name in memory.scrapes if name not in side_by_name]:
        del memory.scrapes[name]
    stop = stopping or threading.Event()
    with ThreadPoolExecutor(max(len(sides), 1)) as pool:  # one may not answer
        for name, found in chain.from_iterable(pool.map(lambda side: list(side.read(stop)), sides)):
            if isinstance(found, str):
                done.problems.append(f"{name}: {found}")
                continue
            kept = memory.scrapes.setdefault(name, [])
            done.first += [] if kept else [name]
            done.problems += side_by_name[name].odd(name, found)
            kept.append(found)
    for name, kept in memory.scrapes.items():
        memory.scrapes[name] = _compare(side_by_name[name], kept, done)
    now_ms = time.time_ns() // 1_000_000
    found = recorded_numbers.compare(settings, memory.until, now_ms)
    done.rows += [{"compared_ms": now_ms, **row} for row in found]
    memory.number += 1
    memory.rows = done.rows
    memory.keep(settings.location)
    _append(settings.location, settings.maintenance.history_ms, memory)
    return done


def _compare(side: ComparedSide, kept: list[Reading], done: ComparisonRound) -> list[Reading]:
    """Compare the spans between readings, in their order; the readings that are still needed."""
    now_ms = time.time_ns() // 1_000_000
    while len(kept) > 1:
        rows, left = side.compared(kept, now_ms)
        if rows is None:
            done.waiting += len(kept) - 1
            break
        done.rows += [{"compared_ms": now_ms, "user": None, "client": None, **row} for row in rows]
        kept = left
    return kept


def _append(warehouse: Location, history_ms: int, memory: ReadingMemory[Reading]) -> None:
    """Append the rows under the number of their round, unless the table has it."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    from app.tables.commit import Writer

    try:
        writer = Writer(warehouse, TABLE, history_ms, f"weir-{TABLE}-{memory.id}")
        writer.prepare([TABLE])
        if memory.rows:
            table = pa.Table.from_pylist(memory.rows, schema=TABLES[TABLE].schema)
            writer.append(TABLE, table, memory.number)
            root = local_path(warehouse.uri)
            if root is not None:
                durable.sync(root)  # before the memory forgets the rows
            memory.rows = []
            memory.keep(warehouse)
    except (DeltaError, OSError) as error:
        raise UserError(f"{TABLE}: cannot be written ({reason(error)})") from error
