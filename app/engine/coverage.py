"""Counts the records of each broker and minute, the gaps that feeds announce, and polls.

The archive counts because it parses every record of the warehouse once. It commits the counts with
its files, so a repeated micro-batch counts nothing twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.archive_names import COUNTS, GAPS, POLLS
from app.contract.event_contract import Parsed, distinct
from app.sources.clocks import LATEST_MS
from app.tables.definitions import TABLES
from state.events import EVERY_BROKER, KIND_INDEX

MINUTE_MS = 60_000
_GAP, _POLL, _REQUEST = (KIND_INDEX[kind] for kind in ("gap", "poll", "client_request"))
_FETCHES = pa.array(["FETCH", "SHARE_FETCH"])
_SIZED = pa.array(["PRODUCE", *_FETCHES.to_pylist()])
"""Requests that are charged by their size."""


class Coverage:
    """Counts of one task."""

    def __init__(self, blind_ms: Mapping[str, int]) -> None:
        """`blind_ms` has, by job, the time for which it is blind after a gap."""
        self._blind_ms = blind_ms
        self._counts: dict[tuple[str, str, int], list[int]] = {}
        self._gaps: list[dict[str, Any]] = []
        self._polls: list[dict[str, Any]] = []

    def add(self, parsed: Parsed) -> None:
        """Count records that name a broker, and collect their gaps and polls."""
        block = parsed.block
        (cluster, clusters), (broker, brokers) = (block.text(n) for n in ("cluster", "broker"))
        wall = block.number("ts_wall_ms")
        timed = block.has("ts_wall_ms") & (wall >= 0) & (wall <= LATEST_MS)
        minute = np.where(timed, wall, 0) // MINUTE_MS
        named = (cluster >= 0) & (broker >= 0)
        place = np.where(named, broker.astype(np.int64) * (len(clusters) + 1) + cluster, -1)
        where, first = distinct(place, np.where(named, 0, -1).astype(np.int32))
        number, rows = distinct(where.astype(np.int64) << 33 | minute, where)
        bad = np.zeros(parsed.n, bool)
        bad[parsed.bad.column("row").to_numpy()] = True
        known = number >= 0
        every = np.bincount(number[known], minlength=len(rows)).tolist()
        refused = np.bincount(number[known & bad], minlength=len(rows)).tolist()
        sizeless = np.bincount(number[known & _unsized(parsed)], minlength=len(rows)).tolist()
        names = [
            (clusters[int(cluster[i])].as_py(), brokers[int(broker[i])].as_py()) for i in first
        ]
        for row, *counts in zip(rows.tolist(), every, refused, sizeless, strict=True):
            pair = names[where[row]]
            if pair[1] == EVERY_BROKER:
                continue
            key = (*pair, int(minute[row]) * MINUTE_MS)
            before = self._counts.get(key, [0] * len(counts))
            self._counts[key] = [a + b for a, b in zip(before, counts, strict=True)]
        gaps = np.flatnonzero((parsed.kind == _GAP) & parsed.valid)
        if len(gaps):
            self._add_gaps(parsed, gaps)
        polls = np.flatnonzero((parsed.kind == _POLL) & parsed.valid)
        if len(polls):
            columns = TABLES[POLLS].schema.names
            self._polls += parsed.table.select(columns).take(pa.array(polls)).to_pylist()

    def _add_gaps(self, parsed: Parsed, rows: np.ndarray) -> None:
        columns = (
            "cluster",
            "broker",
            "source_feed",
            "seq",
            "ts_wall_ms",
            "ts_mono_ns",
            "gap_from_wall_ms",
            "gap_from_mono_ns",
            "dropped",
        )
        picked = pa.array(rows)
        found = parsed.table.select(columns).take(picked).to_pylist()
        for gap in found:
            for job, blind_ms in self._blind_ms.items():
                ended = gap["ts_wall_ms"]
                until = None if ended is None else min(ended + blind_ms, 2**63 - 1)
                self._gaps.append({**gap, "job": job, "blind_until_ms": until})

    def tables(self) -> dict[str, pa.Table]:
        """Rows of each table that has any."""
        found = {}
        if self._counts:
            keys, values = list(self._counts), list(self._counts.values())
            columns = [*zip(*keys, strict=True), *zip(*values, strict=True)]
            found[COUNTS] = pa.table(
                [
                    pa.array(column, f.type)
                    for column, f in zip(columns, TABLES[COUNTS].schema, strict=True)
                ],
                schema=TABLES[COUNTS].schema,
            )
        if self._gaps:
            found[GAPS] = pa.Table.from_pylist(self._gaps, TABLES[GAPS].schema)
        if self._polls:
            found[POLLS] = pa.Table.from_pylist(self._polls, TABLES[POLLS].schema)
        return found


def _unsized(parsed: Parsed) -> np.ndarray:
    """Requests of clients to which a quota on bytes cannot be applied: their size is not known, and
    they are no throttled fetch, whose throttle time is enough."""
    block = parsed.block
    found: np.ndarray = (parsed.kind == _REQUEST) & ~block.has("charged_bytes") & parsed.valid
    if found.any():
        code, names = block.text("api")
        sized = np.append(pc.is_in(names, _SIZED).to_numpy(zero_copy_only=False), False)
        fetch = np.append(pc.is_in(names, _FETCHES).to_numpy(zero_copy_only=False), False)
        throttled = block.has("throttle_ms") & (block.number("throttle_ms") > 0)
        found &= sized[code] & ~(fetch[code] & throttled)
    return found
