"""Client quotas: requests per second of the core and of the job behind its shuffle, bytes of state
per entity, and what entities that rest cost a batch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.blobs import shipped
from benchmarks.columnar import ColumnarInput, beside_identity
from benchmarks.result import Result, middle
from benchmarks.stream import Bench
from benchmarks.trace import START_MS
from state.client_quotas.declaration import COLUMNS
from state.client_quotas.operator import ClientQuotas
from state.engine.reach import Reach
from state.events import SCHEMA
from tests.unit.state.shipping import params_of

Array = np.ndarray
LIMITS = {
    "producer_byte_rate": 1_000_000,
    "consumer_byte_rate": 2_000_000,
    "request_percentage": 50,
}
POLICY = {"scope": "user", "name": "<default>", "client_id": "<default>", "limits": LIMITS}
CARRIED = (
    "event_type",
    "source_feed",
    "cluster",
    "broker",
    "seq",
    "ts_wall_ms",
    "principal",
    "client_id",
    "api",
    "charged_bytes",
    "handler_time_ns",
    "throttle_ms",
    "exempt",
    "topic_bytes",
)
"""Columns of the requests; the others of the contract are null."""
APIS = np.array(["PRODUCE", "FETCH"])


def run(bench: Bench) -> Result:
    """The core, entities that are many, and the job behind its shuffle."""
    requests = 20_000 if bench.small else 4_000_000
    result = Result("client_quotas", requests, bench.small)
    _core(result, requests)
    for entities in (1_000, 10_000) if bench.small else (1_000, 100_000):
        _entities(result, entities)
    folder = _write(bench.folder / "client-requests", requests, 20)
    settings = bench.settings(
        "client-quotas",
        {"format": "files", "path": "in"},
        policies=[POLICY],
        queries=[["client_quotas"]],
    )
    note = "10,000 entities of four brokers, three quotas each"
    beside_identity(bench, result, settings, ColumnarInput(folder, CARRIED, "broker", note))
    return result


def _columns(entity: Array, at_ms: Array, first: int = 0) -> dict[str, pa.Array]:
    """Requests of entities, a user and a client id each, at one broker of four."""
    n = len(entity)
    number = np.arange(first, first + n)
    produce = number % 2 == 0
    distinct, place = np.unique(entity, return_inverse=True)

    def named(form: str) -> pa.Array:
        return pa.array([form.format(i) for i in distinct.tolist()]).take(pa.array(place))

    plain: dict[str, Any] = {
        "event_type": pa.repeat(pa.scalar("client_request"), n),
        "source_feed": pa.repeat(pa.scalar("contract"), n),
        "cluster": pa.repeat(pa.scalar("bench"), n),
        "broker": pa.array(np.char.mod("%d", entity % 4)),
        "seq": number,
        "ts_wall_ms": at_ms,
        "principal": named("User:team-{}"),
        "client_id": named("app-{}"),
        "api": APIS[(~produce).astype(int)],
        "charged_bytes": 1000 + number % 977 * 50,
        "handler_time_ns": 100_000 + number % 499 * 1000,
        "throttle_ms": np.zeros(n, np.int64),
        "exempt": np.zeros(n, np.bool_),
        "topic_bytes": pa.repeat(pa.scalar('{"orders":1000}'), n),
    }
    return {name: pa.array(plain[name], SCHEMA.field(name).type) for name in CARRIED}


class _Core:
    """The core over one shard, a batch after the other."""

    def __init__(self) -> None:
        self._job = ClientQuotas(params_of("client_quotas"), [json.dumps(POLICY)])
        self.state: bytes | None = None
        self._first = 0

    def take(self, entity: Array, at_ms: Array) -> float:
        """Judge requests; the CPU seconds, shipping left out."""
        columns = _columns(entity, at_ms, self._first)
        self._first += len(entity)
        blob = shipped(COLUMNS, columns["event_type"], columns)
        began = time.process_time()
        self.state = self._job.step(self.state, [blob], Reach(int(at_ms[0]) - 1000)).state
        return time.process_time() - began

    @property
    def bytes(self) -> int:
        """The size of the state."""
        return len(self.state or b"")


def _core(result: Result, requests: int) -> None:
    """Batches of a second of 1,000 entities by Zipf."""
    rng = np.random.default_rng(5)
    core, batch = _Core(), requests // 20
    spent = []
    for number in range(20):
        entity = (rng.zipf(1.2, batch) - 1) % 1000
        at_ms = START_MS + number * 1000 + np.arange(batch) * 1000 // batch
        spent.append(core.take(entity, at_ms))
    value, spread = middle([batch / seconds for seconds in spent[1:]])
    note = "one core, 1,000 entities, three quotas each, batches of a second"
    result.add("requests through the core", value, "requests/s", spread=spread, note=note)


def _entities(result: Result, entities: int) -> None:
    """Entities that sent once a second for twelve seconds, and a batch of a tenth of them then."""
    core = _Core()
    each = np.arange(entities)
    for second in range(12):
        core.take(each, START_MS + second * 1000 + each * 1000 // entities)
    note = "two sensors each with all samples, and open windows of statistics and use"
    name = f"state, {entities:,} entities"
    result.add(name, core.bytes / entities, "bytes per entity", note=note)
    few = np.arange(1000)
    spent = [core.take(few, START_MS + (12 + number) * 1000 + few) for number in range(10)]
    value, spread = middle(spent[1:])
    result.add(
        f"batch of 1,000 requests, {entities:,} entities",
        1000 * value,
        "ms",
        spread=tuple(1000 * s for s in spread),
    )


def _write(folder: Path, requests: int, files: int) -> Path:
    """Typed records of 10,000 entities by Zipf."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(5)
    size = requests // files
    for number in range(files):
        i = np.arange(number * size, (number + 1) * size)
        columns = _columns((rng.zipf(1.2, size) - 1) % 10_000, START_MS + i // 50, number * size)
        columns["source_partition"] = pa.repeat(pa.scalar("0"), size)
        columns["source_offset"] = pa.array(i)
        pq.write_table(pa.table(columns), folder / f"{number:04d}.parquet")
    return folder
