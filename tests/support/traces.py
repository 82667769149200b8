"""Traces for tests that compare runs, and the rows that a run has written."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from app.archive_names import COUNTS
from app.tables.definitions import TABLES
from benchmarks.generator.scenario import DisorderSpec, load_scenario
from benchmarks.generator.trace import Trace, plan_trace

NOT_COMPARED = {"ingest_ms", "source_partition", "source_offset"}
"""When and from where a record was read differs between runs; nothing else may."""


def punctual_trace(events: int, seed: int = 7, start: datetime | None = None) -> Trace:
    """The demo's fleet with mistakes and records out of order, but none too late; of another time
    if it is given a start.

    What is too late depends on where a stream is cut into batches; everything else does not.
    """
    scenario = load_scenario("demo")
    disorder = DisorderSpec.model_validate({**scenario.disorder.model_dump(), "too_late": 0.0})
    changed = {"disorder": disorder, "start": start or scenario.start}
    return plan_trace(scenario.model_copy(update=changed), events, seed)


def demo_trace(events: int, seed: int = 7) -> Trace:
    """The demo's trace as it is, late records and all."""
    return plan_trace(load_scenario("demo"), events, seed)


def by_broker(trace: Trace) -> list[tuple[int, bytes]]:
    """(index of the broker, line) of every record of one broker, in the order of arrival.

    Policies for all brokers are left out: a key that has passed one takes it at its clock, so
    their answers depend on how far the partition that carries them is behind.
    """
    every = len(trace.fleet.brokers)
    return [
        (broker, line)
        for part in trace.slices()
        for broker, line in zip(part.brokers.tolist(), part.lines(), strict=True)
        if broker != every
    ]


def rows_of(warehouse: str, table: str, *without: str, apart: str = "") -> list[tuple[Any, ...]]:
    """The rows of a table that runs must agree on, sorted. Of the cluster `apart` they are those of
    the archive alone: what a job makes of records without an order depends on the batches.
    """
    path = f"{warehouse}/{table}"
    if not DeltaTable.is_deltatable(path):
        return []
    names = [n for n in TABLES[table].schema.names if n not in {*NOT_COMPARED, *without}]
    found = DeltaTable(path).to_pyarrow_table(columns=names)
    if apart and table != "events" and "cluster" in names:
        of_others = pc.fill_null(pc.not_equal(found["cluster"], apart), True)
        of_archive = pc.is_null(found["job"]) if table == "quarantine" else False
        found = found.filter(pc.or_(of_others, of_archive))
    return sorted(zip(*map(_texts, found.columns), strict=True))


def _texts(column: pa.ChunkedArray) -> list[str]:
    """The values as text: one that a column has many times is written once. Numbers with a fraction
    are not looked for in this way: 0.0 equals -0.0."""
    kind = column.type
    if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind)):
        return list(map(str, column.to_pylist()))
    found = column.combine_chunks().dictionary_encode(null_encoding="encode")
    texts = list(map(str, found.dictionary.to_pylist()))
    return [texts[at] for at in found.indices.to_pylist()]


def all_rows(warehouse: str) -> dict[str, list[tuple[Any, ...]]]:
    """`rows_of` every table that archive and `rate_limits` write."""
    names = ("events", "quarantine", "throttle_events", "topic_throttle_stats", "limiter_stats")
    return {name: rows_of(warehouse, name) for name in names}


def every_row(warehouse: str, apart: str = "") -> dict[str, list[tuple[Any, ...]]]:
    """`rows_of` every table of every job that holds rows, and of the archive."""
    beside = ("alerts", "quality_results", "policies")
    found = {
        name: rows
        for name in TABLES
        if name not in beside and (rows := rows_of(warehouse, name, apart=apart))
    }
    if COUNTS in found:
        found[COUNTS] = _minutes(warehouse)
    return found


def _minutes(warehouse: str) -> list[tuple[Any, ...]]:
    """Counts by broker and minute: how many rows they are in depends on the micro-batches."""
    whose = ["cluster", "broker", "minute_ms"]
    rows = DeltaTable(f"{warehouse}/{COUNTS}").to_pyarrow_table().group_by(whose)
    summed = rows.aggregate([("received", "sum"), ("quarantined", "sum")]).to_pylist()
    return sorted(tuple(str(value) for value in row.values()) for row in summed)


def identities(warehouse: str) -> list[tuple[str, int]]:
    """Source identity of every record in `events` or refused into `quarantine`, sorted.

    A record stands in one of the two; rules that only govern applies leave it in `events`. One that
    stands in both is there twice.
    """
    columns = ["source_partition", "source_offset"]
    tables: list[pa.Table] = [DeltaTable(f"{warehouse}/events").to_pyarrow_table(columns=columns)]
    refused = DeltaTable(f"{warehouse}/quarantine").to_pyarrow_table()
    found = [tuple(row.values()) for table in tables for row in table.to_pylist()]
    known = set(found)
    of_jobs, whole = (
        {
            (r["source_partition"], r["source_offset"])
            for r in refused.to_pylist()
            if (r["job"] is None) is by_all
        }
        for by_all in (False, True)
    )
    return sorted([*found, *((of_jobs | whole) - known), *(whole & known)])
