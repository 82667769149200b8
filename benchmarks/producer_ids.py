"""Producer ids: filters against their stated rate, memory against exact sets, the job against its
shuffle."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.blobs import shipped
from benchmarks.columnar import ColumnarInput, beside_identity
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from benchmarks.trace import START_MS
from state.engine.reach import Reach
from state.producer_ids import bloom
from state.producer_ids.operator import ProducerIds
from state.producer_ids.shard import COLUMNS
from tests.support import bloom_filters
from tests.unit.state.shipping import params_of

Array = np.ndarray
POLICY = {"scope": "user", "name": "<default>", "limits": {"producer_ids_rate": 1000}}
CARRIED = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_wall_ms",
    "principal",
    "client_id",
    "topic",
    "partition",
    "producer_id",
    "num_messages",
)
"""Columns of the trace; the others of the contract are null."""


def run(bench: Bench) -> Result:
    """Filters, memory of users, and the job behind its shuffle."""
    events = 20_000 if bench.small else 5_000_000
    result = Result("producer_ids", events, bench.small)
    _filters(bench, result)
    _users(bench, result)
    _storm(bench, result)
    _job(bench, result, events)
    return result


# -- filters ---------------------------------------------------------------------------------


def _filters(bench: Bench, result: Result) -> None:
    """Inserts per second and measured false positives at the size that a filter is made for."""
    names = np.arange(20_000 if bench.small else 200_000)
    began = time.perf_counter()
    for pid in names.tolist():
        mmh3.hash64(pid.to_bytes(8, "little", signed=True), 0)
    result.add("mmh3, value by value", len(names) / (time.perf_counter() - began), "ids/s")
    total = 200_000 if bench.small else 20_000_000
    for items, fpp in ((1000, 0.01), (100_000, 0.001)):
        shape = bloom.shape_of(items, fpp)
        filters = max(total // items, 1)
        rng = np.random.default_rng(items)
        speeds, wrong, asked = [], 0, 0
        words = np.zeros(shape.words, np.uint64)
        bloom.densify(np.zeros(1, np.uint64), 0, 1, words, 0, *shape)
        for _part in range(5):
            spent = 0.0
            for number in range(filters // 5 or 1):
                ids = rng.integers(0, 2**62, 2 * items)
                known = ids[:items].view(np.uint64)
                words[:] = 0
                began = time.perf_counter()
                bloom.densify(known, 0, items, words, 0, *shape)
                spent += time.perf_counter() - began
                if number % 10 == 0:
                    found = np.zeros(items, np.bool_)
                    bloom_filters.contains_ids(words, 0, *shape, ids[items:], found)
                    wrong += int(found.sum())
                    asked += items
            speeds.append((filters // 5 or 1) * items / spent)
        value, spread = middle(speeds)
        result.add(
            f"inserts, n = {items:,}, p = {fpp:g}",
            value,
            "ids/s",
            spread=spread,
            note="one core",
        )
        result.add(f"stated false positives, n = {items:,}", fpp, "share")
        result.add(
            f"measured false positives, n = {items:,}",
            wrong / asked,
            "share",
            note=f"{asked:,} ids asked for",
        )
        result.ratio(
            f"measured false positives, n = {items:,}",
            f"stated false positives, n = {items:,}",
        )


# -- the core --------------------------------------------------------------------------------


def _blob(user: Array, pid: Array, at_ms: Array) -> bytes:
    """Produce batches as one blob of the job."""
    columns = _columns(user, pid, at_ms)
    return shipped(COLUMNS, columns["event_type"], columns)


def _columns(user: Array, pid: Array, at_ms: Array) -> dict[str, pa.Array]:
    n = len(user)
    distinct, place = np.unique(user, return_inverse=True)
    names = pa.array([f"User:client-{i}" for i in distinct.tolist()])
    return {
        "event_type": pa.repeat(pa.scalar("produce_batch"), n),
        "source_feed": pa.repeat(pa.scalar("contract"), n),
        "cluster": pa.repeat(pa.scalar("bench"), n),
        "broker": pa.repeat(pa.scalar("1"), n),
        "seq": pa.nulls(n, pa.int64()),
        "ts_wall_ms": pa.array(at_ms),
        "principal": names.take(pa.array(place)),
        "client_id": pa.repeat(pa.scalar("producer"), n),
        "topic": pa.repeat(pa.scalar("orders"), n),
        "partition": pa.array((pid % 8).astype(np.int32)),
        "producer_id": pa.array(pid),
        "num_messages": pa.array(np.ones(n, np.int32)),
    }


def _played(user: Array, pid: Array, batch: int, **params: Any) -> tuple[list[float], bytes]:
    """CPU seconds per batch of a minute's records in one shard, and the state at its end."""
    job = ProducerIds(params_of("producer_ids", **params))
    nobody = np.zeros(2, np.int64)
    job.step(None, [_blob(nobody, nobody, nobody + START_MS)], Reach(0))
    state: bytes | None = None
    spent = []
    for begin in range(0, len(user), batch):
        mine = slice(begin, begin + batch)
        at = START_MS + np.arange(len(user))[mine] * 60_000 // len(user)
        blob = _blob(user[mine], pid[mine], at)
        began = time.process_time()
        state = job.step(state, [blob], Reach(0)).state
        spent.append(time.process_time() - began)
    assert state is not None
    return spent, state


def _users(bench: Bench, result: Result) -> None:
    """Bytes of state per user: filters against exact sets, with few and with many ids."""
    for users, ids in ((1_000_000, 1), (10_000, 50), (1_000, 1_000), (100, 10_000)):
        users = min(users, 500) if bench.small else users
        rng = np.random.default_rng(users)
        user = rng.permutation(np.repeat(np.arange(users), ids))
        pid = rng.integers(0, 2**62, len(user))
        for membership in ("bloom", "exact"):
            spent, state = _played(user, pid, max(len(user) // 5, 1), membership=membership)
            result.add(
                f"state, {users:,} users with {ids:,} ids each, {membership}",
                len(state) / users,
                "bytes per user",
                note=f"{len(user) / sum(spent):,.0f} events/s",
            )


def _storm(bench: Bench, result: Result) -> None:
    """One user with a flood of new ids within a minute."""
    ids = 20_000 if bench.small else 10_000_000
    user, pid = np.zeros(ids, np.int64), np.arange(ids)
    spent, state = _played(user, pid, max(ids // 20, 1))
    value, spread = middle([max(ids // 20, 1) / s for s in spent[1:]])
    result.add(
        f"one user, {ids:,} new ids in a minute",
        value,
        spread=spread,
        note=f"state {len(state):,} bytes",
    )


# -- the job ---------------------------------------------------------------------------------


def _write(folder: Path, events: int, files: int) -> Path:
    """Typed records of 10,000 users by Zipf, a tenth of the batches with a new id."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    size = events // files
    for number in range(files):
        i = np.arange(number * size, (number + 1) * size)
        user = (rng.zipf(1.2, size) - 1) % 10_000
        new = rng.random(size) < 0.1
        pid = np.where(new, 10**12 + i, user * 1000 + rng.integers(0, 20, size))
        columns = _columns(user, pid, START_MS + i // 50)
        columns["seq"] = pa.array(i)
        columns["source_partition"] = pa.repeat(pa.scalar("0"), size)
        columns["source_offset"] = pa.array(i)
        pq.write_table(pa.table(columns), folder / f"{number:04d}.parquet")
    return folder


def _job(bench: Bench, result: Result, events: int) -> None:
    folder = _write(bench.folder / "produce-batches", events, 20)
    settings = bench.settings(
        "producer-ids",
        {"format": "files", "path": "in"},
        policies=[POLICY],
        queries=[["producer_ids"]],
    )
    note = "10,000 users, one batch in ten with a new id"
    beside_identity(bench, result, settings, ColumnarInput(folder, CARRIED, "principal", note))
