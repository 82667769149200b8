"""Hostile records of any shape cost their own keys alone, and each is kept (contract, 2)."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.ingest.clocks import stamped
from app.stream.archive import WRITES, file_writer
from state.events import KINDS, SCHEMA
from state.jobs import JOBS
from tests.effort import examples
from tests.state.contract.jobs import Job, Rows, assert_same
from tests.state.contract.test_ahead import HOUR, honest, streamed, without_quarantine
from tests.state.shipping import Row
from tests.state.trace import START_MS

MOST = 2**63 - 1
NUMBERS = (0, -1, 1, MOST, -MOST - 1, MOST + 1, 2**31, -(2**31), 10**30, 1e19, 0.5, START_MS,
           START_MS + HOUR, START_MS - HOUR)
TEXTS = ("", "z", "z" * 70_000, "\x00z", "\ud83dz", "\u202ez", "persistent://t/ns/z", "1:1",
         "9" * 400, "z-partition-99999999999", "non-persistent://z/z/z", "{", "[]", "null")
OTHERS: tuple[Any, ...] = (None, True, [], {}, [[[]]], {"z": {"z": []}}, ["z", None], [1, 2])
FOR_MANY = ("policy", "broker_started", "gap")
NAMED = [kind.name for kind in KINDS if kind.name not in FOR_MANY]
RAW = (b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"event_type":', b"{}" * 3, b'"' + b"\\" * 99,
       b"[" * 999)


def hostile(job: Job, order: random.Random, seq: int) -> bytes:
    """A record of a key of its own, of which anything may be wrong; or none at all."""
    if order.random() < 0.1:
        return order.choice(RAW)
    row = dict(job.event(order.randrange(60_000), seq, key="z", number=order.randrange(99)))
    if order.random() < 0.3:
        row["event_type"] = order.choice(NAMED)
    for name in order.sample(SCHEMA.names, order.choice((0, 1, 1, 2, 5))):
        if name not in ("event_type", "cluster"):
            row[name] = order.choice(order.choice((NUMBERS, TEXTS, OTHERS)))
    if order.random() < 0.3:
        row["ts_wall_ms"] = order.choice(NUMBERS)
    if row["broker"] == "*":
        row["broker"] = "z"
    found = {k: v for k, v in row.items() if k in SCHEMA.names and v is not None}
    return json.dumps(found, allow_nan=True).encode("utf-8", "surrogatepass")


def of_the_honest(job: Job, rows: Rows) -> Rows:
    """The rows of the keys a and b."""
    def is_theirs(row: Row) -> bool:
        return str(row[job.key[-1]]).rpartition("/")[2] in ("a", "b")

    return {name: [row for row in found if is_theirs(row)]
            for name, found in without_quarantine(rows).items()}


@pytest.mark.parametrize("seed", range(examples(10)))
def test_whatever_others_send_a_keys_rows_are_the_same(job: Job, seed: int) -> None:
    order = random.Random(seed)
    calm = honest(job)
    attacked: list[tuple[int, list[Row | bytes]]] = []
    for plan_ms, records in calm:
        mixed: list[Row | bytes] = list(records)
        for _ in range(order.randrange(30)):
            mixed.insert(order.randrange(len(mixed) + 1), hostile(job, order, order.randrange(99)))
        attacked.append((plan_ms, mixed))
    found, expected = streamed(job, attacked), streamed(job, calm)
    assert_same(of_the_honest(job, found), of_the_honest(job, expected))


@pytest.mark.parametrize("seed", range(examples(10)))
def test_every_record_is_kept(seed: int, job: Job, tmp_path: Path) -> None:
    order = random.Random(seed)
    lines = [hostile(job, order, i) for i in range(200)]
    raw = stamped(pa.record_batch({
        "value": pa.array(lines, pa.binary()),
        "source_partition": pa.repeat(pa.scalar("0"), len(lines)),
        "source_offset": pa.array(range(len(lines)), pa.int64()),
    }), START_MS)
    roots = {name: str(tmp_path / name) for name in WRITES}
    kept: dict[str, list[Row]] = {name: [] for name in WRITES}
    for files in file_writer(roots, {}, dict.fromkeys(JOBS, 0))(iter([raw])):
        for row in files.to_pylist():
            name = row["table_name"]
            kept[name] += pq.ParquetFile(f"{roots[name]}/{row['path']}").read().to_pylist()
    events = [row["source_offset"] for row in kept["events"]]
    refused = {row["source_offset"] for row in kept["quarantine"]}
    whole = {row["source_offset"] for row in kept["quarantine"] if row["job"] is None}
    assert len(events) == len(set(events))
    assert set(events) | refused == set(range(len(lines)))
    assert not set(events) & whole
