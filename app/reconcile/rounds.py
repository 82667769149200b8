"""One round: read the brokers, compare the spans that Weir has processed, append the rows.

Readings wait in `_weir/reconcile.json` until the span up to the next one has been compared. The
rows of a round are written there first and then appended under the number of the round, so that a
crash neither loses nor repeats them.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from app.config.reconcile import WHERE, ReconcileSettings
from app.errors import UserError
from app.ingest.pollers.polling import Unanswered
from app.ingest.rules import POLLED_FEEDS
from app.reconcile.counted import early_reads, weir
from app.reconcile.scrape import Scrape, from_json, scrape
from app.reconcile.spans import Row, Span, differs, outside, rows_of, shown
from app.warehouse import durable
from app.warehouse.relations import Warehouse
from app.warehouse.small_files import RECONCILE, local_path, read_text, write_text
from app.warehouse.tables import TABLES
from state.jobs import DECLARED

if TYPE_CHECKING:
    from app.config.settings import Settings

TABLE = "reconciliation"
THREADS = 8


@dataclass
class Memory:
    """Readings that wait, by broker, oldest first; number and rows of the newest round."""

    id: str
    number: int = 0
    rows: list[Row] = field(default_factory=list)
    """Those that the table may lack."""
    scrapes: dict[str, list[Scrape]] = field(default_factory=dict)

    @classmethod
    def load(cls, settings: Settings) -> Memory:
        """As the round before left it; a new one where there is none, or it cannot be read."""
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            kept: dict[str, Any] = json.loads(read_text(settings, RECONCILE) or "")
            return cls(str(kept["id"]), int(kept["number"]), list(kept["rows"]), {
                broker: [from_json(one) for one in found]
                for broker, found in kept["scrapes"].items()
            })
        return cls(uuid.uuid4().hex)

    def keep(self, settings: Settings) -> None:
        """Write it down."""
        write_text(settings, RECONCILE, json.dumps(asdict(self), separators=(",", ":")) + "\n")


@dataclass
class Round:
    """What a round did."""

    rows: list[Row] = field(default_factory=list)
    waiting: int = 0
    """Spans that Weir has not processed yet."""
    first: list[str] = field(default_factory=list)
    """Brokers that were read for the first time."""
    problems: list[str] = field(default_factory=list)


def own(settings: Settings) -> ReconcileSettings:
    """The section of the configuration; a UserError where it is missing."""
    if settings.reconcile is None:
        raise UserError(
            f"{WHERE}: is missing (the brokers whose counters are compared)\n"
            f"{WHERE}.brokers: host:port of each broker, as its records name it, and its address"
        )
    return settings.reconcile


def one_round(settings: Settings, stopping: threading.Event | None = None) -> Round:
    """Read every broker and compare what can be; the caller holds the lock."""
    chosen, memory, done = own(settings), Memory.load(settings), Round()
    _append(settings, memory)
    for broker in [name for name in memory.scrapes if name not in chosen.brokers]:
        del memory.scrapes[broker]
    for broker, found in _read(chosen, stopping or threading.Event()):
        if isinstance(found, Scrape):
            kept = memory.scrapes.setdefault(broker, [])
            done.first += [] if kept else [broker]
            done.problems += _odd(broker, found)
            kept.append(found)
        else:
            done.problems.append(f"{broker}: {found}")
    for broker, kept in memory.scrapes.items():
        memory.scrapes[broker] = _compare(settings, chosen, kept, done)
    memory.number += 1
    memory.rows = done.rows
    memory.keep(settings)
    _append(settings, memory)
    return done


def _read(
    chosen: ReconcileSettings, stopping: threading.Event
) -> Iterator[tuple[str, Scrape | str]]:
    """The reading of every broker, or why there is none; all at the same time."""

    def one(broker: str) -> Scrape | str:
        try:
            return scrape(chosen, broker, stopping)
        except Unanswered as error:
            return str(error)

    with ThreadPoolExecutor(THREADS, "reconcile") as pool:
        yield from zip(chosen.brokers, pool.map(one, chosen.brokers), strict=True)


def _odd(broker: str, found: Scrape) -> list[str]:
    """What keeps topics from being compared."""
    if found.topics or not found.whole:
        return []
    return [f"{broker}: shows no topics; they need exposeTopicLevelMetricsInPrometheus=true"]


def _compare(
    settings: Settings, chosen: ReconcileSettings, kept: list[Scrape], done: Round
) -> list[Scrape]:
    """Compare the spans between readings, in their order; the readings that are still needed."""
    now_ms = time.time_ns() // 1_000_000
    while len(kept) > 1:
        span = Span(kept[0], kept[1])
        rows = None
        if now_ms >= span.end_ms + chosen.settle_ms:
            rows = compared(settings, chosen, span, now_ms)
        if rows is None:
            done.waiting += len(kept) - 1
            break
        done.rows += rows
        kept = kept[1:]
    return kept


def compared(
    settings: Settings, chosen: ReconcileSettings, span: Span, now_ms: int
) -> list[Row] | None:
    """The rows of a span; None while Weir has not processed it and there is time."""
    side = weir(settings, Warehouse.of(settings), span)
    takes = chosen.takes
    if chosen.sampled_by == "topic":
        known = {topic for _, topic in side.counted}

        def takes(topic: str) -> bool:
            return topic in known and chosen.takes(topic)

    jobs = _fed(settings)

    def rows_with(more: dict[str, int]) -> list[Row]:
        rows = rows_of(span, shown(span, takes), side, more)
        return [row for row in rows if row["compared_job"] in jobs and (
            row["topic"] is None or takes(row["topic"]))]

    bounds = outside(span, takes)
    rows = rows_with(bounds)
    if any(differs(row) for row in rows if row["measure"] == "cache_misses"):
        early = early_reads(settings, Warehouse.of(settings), span)
        rows = rows_with({**bounds, "cache_misses": bounds["cache_misses"] + early})
    waits = any(row["reason"] == "NOT_REACHED" for row in rows)
    if waits and now_ms < span.end_ms + chosen.wait_ms:
        return None
    return [{"compared_ms": now_ms, **row} for row in rows]


def _fed(settings: Settings) -> set[str]:
    """The jobs that run and get records from the source; polls drive the job backlog alone."""
    polled = settings.source is not None and settings.source.format in POLLED_FEEDS
    return {job for job in settings.jobs if not polled or DECLARED[job].polled}


def _append(settings: Settings, memory: Memory) -> None:
    """Append the rows under the number of their round, unless the table has it."""
    import pyarrow as pa
    from deltalake.exceptions import DeltaError

    from app.warehouse.commit import Writer

    without_spark: Any = None  # the command requires a warehouse that delta-rs reaches
    try:
        writer = Writer(settings, TABLE, without_spark, f"weir-{TABLE}-{memory.id}")
        writer.prepare([TABLE])
        if memory.rows:
            table = pa.Table.from_pylist(memory.rows, schema=TABLES[TABLE].schema)
            writer.append(TABLE, table, memory.number)
            root = local_path(settings.warehouse)
            if root is not None:
                durable.sync(root)  # before the memory forgets the rows
            memory.rows = []
            memory.keep(settings)
    except (DeltaError, OSError) as error:
        raise UserError(
            f"{TABLE}: cannot be written ({(str(error).splitlines() or [''])[0][:200]})"
        ) from error
