"""Evicts the entry whose next read is farthest: the bound for policies without foresight, for
comparison.

Reads, clocks, cursors and counting are those of the job. Only a completely known trace can be
judged, so this is no operator. With entries of one size no eviction by size has more hits; with
mixed sizes it is a heuristic and can be beaten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numba
import numpy as np

from state.engine.reach import Reach
from state.engine.records import Records
from state.entry_cache import flow, rows
from state.entry_cache.broker import Broker
from state.entry_cache.layout import NEVER_READ, NULL, Array
from state.entry_cache.operator import EntryCache
from state.entry_cache.outputs import POLICIES

_MIX = np.uint64(0x9E3779B97F4A7C15)


@numba.njit(cache=True, nogil=True)
def next_reads(
    kind: Array, topic: Array, ledger: Array, entry: Array, reads: int, found: Array
) -> None:
    """For every record, the number of the next one that reads its position.

    NEVER_READ if there is none before the position is removed; `reads` is the kind of a read.
    """
    size = 64
    while size < 2 * len(kind):
        size *= 2
    table = np.full(size, -1, np.int64)
    ledgers = np.full(size, -1, np.int64)
    # by position and by ledger: its record, what was last seen of it
    upcoming = np.full(len(kind), NEVER_READ)
    seen = np.zeros(len(kind), np.int64)
    removed = np.zeros(len(kind), np.int64)
    run_ended = np.int64(0)
    for back in range(len(kind)):
        i = len(kind) - 1 - back
        found[i] = NEVER_READ
        if kind[i] == flow.BROKER_STARTED or kind[i] == flow.GAP:
            run_ended = np.int64(back + 1)
        if topic[i] < 0 or ledger[i] == NULL:
            continue
        of_ledger = _stand_in(ledgers, topic, ledger, entry, i, False)
        if kind[i] == flow.LEDGER_DELETED or (
            kind[i] == flow.ENTRY_INVALIDATED and entry[i] == NULL
        ):
            removed[of_ledger] = back + 1
            continue
        at = _stand_in(table, topic, ledger, entry, i, True)
        if seen[at] > max(run_ended, removed[of_ledger]):
            found[i] = upcoming[at]
        if kind[i] == reads:
            upcoming[at], seen[at] = i, back + 1
        elif kind[i] == flow.ENTRY_INVALIDATED:
            seen[at] = 0


@numba.njit(cache=True, nogil=True)
def _stand_in(
    table: Array, topic: Array, ledger: Array, entry: Array, i: int, by_entry: bool
) -> int:
    """The first record met that names the position of a record, or its ledger."""
    h = (np.uint64(topic[i]) * _MIX) ^ np.uint64(ledger[i])
    if by_entry:
        h = ((h ^ (h >> np.uint64(29))) * _MIX) ^ np.uint64(entry[i])
    h = (h ^ (h >> np.uint64(31))) * _MIX
    at = np.int64((h >> np.uint64(20)) & np.uint64(len(table) - 1))
    while table[at] >= 0:
        j = table[at]
        if (
            topic[j] == topic[i]
            and ledger[j] == ledger[i]
            and (not by_entry or entry[j] == entry[i])
        ):
            return int(j)
        at = (at + 1) & (len(table) - 1)
    table[at] = i
    return i


class _Foresight(Broker):
    """A broker whose records are all known."""

    def feed(self, rows: Records) -> Array:
        found = super().feed(rows)
        reads = flow.DISPATCH if self.key["by_dispatch"] else flow.ENTRY_READ
        named = ("event_type", "topic", "ledger_id", "entry_id", "next_read")
        *about, following = (np.ascontiguousarray(found[name]) for name in named)
        next_reads(*about, reads, following)
        found["next_read"] = following
        return found


class _WholeTrace(EntryCache):
    """The job on a trace that one call brings to its end."""

    policies = POLICIES
    make_broker = _Foresight

    def __init__(self, params: Mapping[str, Any], policies: Sequence[str]) -> None:
        super().__init__(params, policies)
        self._lateness_ns = -1  # every record is before its key's clock

    def by_broker(self, state: bytes | None) -> Iterator[tuple[str, str, list[dict[str, int]]]]:
        """Cluster, broker, and what each of its caches has counted since the key began."""
        s = self.shard_of(state)
        names = s.names.strings()
        for (cluster, broker), b in s.brokers.items():
            counted = [rows.totals(b, i) for i in range(len(self._variants))]
            yield names[cluster].as_py(), names[broker].as_py(), counted


def compare(
    blobs: Sequence[bytes],
    params: Mapping[str, Any],
    policies: Sequence[str] = (),
    until_ms: int | None = None,
) -> list[dict[str, Any]]:
    """The counters of each cache of `params["variants"]` over all keys of a trace, up to a wall
    time.

    `blobs` are the whole trace; `policy` may be `belady` here. No record is late.
    """
    job, state = _played(blobs, params, policies, until_ms)
    return job.totals(state)


def compare_brokers(
    blobs: Sequence[bytes],
    params: Mapping[str, Any],
    policies: Sequence[str] = (),
    until_ms: int | None = None,
) -> list[tuple[str, str, list[dict[str, int]]]]:
    """The same for each cluster and broker, which has caches of its own; without hit ratios."""
    job, state = _played(blobs, params, policies, until_ms)
    return list(job.by_broker(state))


def _played(
    blobs: Sequence[bytes],
    params: Mapping[str, Any],
    policies: Sequence[str],
    until_ms: int | None,
) -> tuple[_WholeTrace, bytes]:
    job = _WholeTrace(params, policies)
    state = job.step(None, blobs, Reach(0)).state
    if until_ms is not None:
        state = job.step(state, (), Reach(until_ms)).state
    return job, state
