"""What it costs to parse and validate an event, beside msgspec and polars.

Figures are CPU time of one core; the best of several runs over one block of generated records.
"""

from __future__ import annotations

import io
import json
import os
import platform
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["POLARS_MAX_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import msgspec
import polars as pl
import pyarrow as pa

from app.config.source import KafkaLogsSettings
from app.contract.event_contract import Parsed, from_table, parse
from app.contract.parsing.block import to_table
from app.contract.parsing.parser import parse_block
from app.contract.validation import validate
from app.sources.kafka.broker_logs import unpack
from state.events import COLUMNS
from state.jobs import JOBS

T0 = 1_700_000_000_000
ROWS = 100_000


def events(n: int) -> list[bytes]:
    """Records of four brokers and some thousand topics, about 430 bytes each."""
    r = random.Random(3)
    lines = []
    for i in range(n):
        kind = r.choice(("publish", "publish", "publish", "entry_added", "entry_added", "dispatch"))
        made: dict[str, Any] = {
            "event_type": kind,
            "source_feed": "pulsar_interceptor",
            "cluster": "use1",
            "broker": f"broker-{i % 4}.example.com:6650",
            "seq": i,
            "ts_mono_ns": 987_654_321_000_000 + i * 1000,
            "ts_wall_ms": T0 + i // 100,
            "cnx_id": f"10.0.{i % 3}.{i % 60}:4512",
            "topic": f"persistent://tenant-{r.randint(0, 16)}/ns-{r.randint(0, 4)}"
            f"/topic-{int(r.paretovariate(0.7)) % 10_000}",
            "partition": i % 4,
            "producer_id": i % 500,
            "producer_name": f"producer-{i % 700}",
            "sequence_id": i * 3,
            "entry_bytes": r.randint(100, 3000),
            "num_messages": 1,
            "publish_time_ms": T0 + i // 100 - 3,
        }
        if kind != "publish":
            made |= {"ledger_id": 55, "entry_id": i}
        if kind == "dispatch":
            made |= {"subscription": f"sub-{i % 5}", "consumer": f"c-{i % 9}"}
        lines.append(json.dumps(made, separators=(",", ":")).encode())
    return lines


def requests(n: int) -> bytes:
    """Lines of a broker's request log: a PRODUCE of a partition each, by a thousand clients."""
    r = random.Random(3)
    lines = []
    for i in range(n):
        topic, size = f"topic-{r.randint(0, 500)}", r.randint(100, 30_000)
        partition = {"index": i % 12, "recordsSizeInBytes": size}
        answer = {"index": i % 12, "errorCode": 0, "baseOffset": i, "logAppendTimeMs": -1}
        made = {
            "isForwarded": False,
            "requestHeader": {
                "requestApiKey": 0,
                "requestApiVersion": 10,
                "correlationId": i,
                "clientId": f"app-{r.randint(0, 1000)}",
                "requestApiKeyName": "PRODUCE",
            },
            "request": {
                "transactionalId": None,
                "acks": -1,
                "timeoutMs": 30_000,
                "topicData": [{"name": topic, "partitionData": [partition]}],
            },
            "response": {
                "responses": [{"name": topic, "partitionResponses": [answer]}],
                "throttleTimeMs": 0,
            },
            "connection": f"10.0.0.1:9092-10.0.{i % 50}.7:41000-2-11",
            "totalTimeMs": 3.25,
            "requestQueueTimeMs": 0.125,
            "localTimeMs": r.randint(50, 900) / 1000,
            "remoteTimeMs": 2.5,
            "throttleTimeMs": 0,
            "responseQueueTimeMs": 0.0625,
            "sendTimeMs": 0.125,
            "securityProtocol": "SASL_SSL",
            "principal": f"User:user-{r.randint(0, 50)}",
            "listener": "SASL_SSL",
            "clientInformation": {"softwareName": "librdkafka", "softwareVersion": "2.16.0"},
        }
        text = json.dumps(made, separators=(",", ":"))
        time_ = f"2026-03-01 12:{i // 60_000 % 60:02}:{i // 1000 % 60:02},{i % 1000:03}"
        lines.append(f"[{time_}] DEBUG Completed request:{text} (kafka.request.logger)")
    return "\n".join(lines).encode()


def best(work: Callable[[], object], n: int, runs: int = 7) -> float:
    """Microseconds of CPU per event."""
    least = float("inf")
    for _ in range(runs):
        start = time.process_time()
        work()
        least = min(least, time.process_time() - start)
    return least / n * 1e6


def main() -> None:
    """Print one line per measurement."""
    lines = events(ROWS)
    values = pa.array(lines, pa.binary())
    few = values.slice(0, ROWS // 5)
    types = {"string": pl.String, "int64": pl.Int64, "int32": pl.Int32, "bool": pl.Boolean}
    schema = {c.name: types.get(str(c.type), pl.String) for c in COLUMNS}
    ndjson = b"\n".join(lines)
    plain = [(c.name, int if "int" in str(c.type) else str) for c in COLUMNS]
    record = msgspec.json.Decoder(
        msgspec.defstruct("Record", [(name, kind | None, None) for name, kind in plain])
    )
    parsed = parse(values, JOBS)
    refused = parse_block(pa.array([b'{"event_type":"publish"}'] * ROWS))
    uuids = pa.array([json.dumps({"uuid": f"producer-{i}-{i * 7}"}).encode() for i in range(ROWS)])
    log = requests(ROWS // 5)

    def read(with_requests: bool) -> object:
        name = pa.record_batch({"path": [Path(folder, "requests").as_uri()]})
        return list(unpack(iter([name]), folder, KafkaLogsSettings(), with_requests))

    folder = tempfile.mkdtemp()
    Path(folder, "requests").write_bytes(log)
    print(
        f"python {platform.python_version()}, {platform.machine()}, {os.cpu_count()} cores, "
        f"{ROWS} records of {len(ndjson) // ROWS} bytes; us of CPU per record"
    )
    figures = {
        "polars read_ndjson": best(lambda: pl.read_ndjson(io.BytesIO(ndjson), schema=schema), ROWS),
        "msgspec line by line": best(
            lambda: [record.decode(one) for one in few.to_pylist()], len(few), 3
        ),
        "scan with dictionaries": best(lambda: parse_block(values), ROWS),
        "scan, one distinct uuid each": best(lambda: parse_block(uuids), ROWS),
        "decoder path": best(lambda: parse_block(few, fast=False), len(few), 3),
        "rules": best(lambda: validate(parsed.block, JOBS), ROWS),
        "rules, every record refused": best(lambda: validate(refused, JOBS), ROWS),
        "to Arrow": best(lambda: to_table(parsed.block), ROWS),
        "topic names": best(lambda: Parsed(parsed.block, parsed.verdicts, JOBS).topic, ROWS),
        "parse, rules, to Arrow": best(lambda: parse(values, JOBS).table, ROWS),
        "typed records": best(lambda: from_table(parsed.table, JOBS), ROWS),
        f"request log, {len(log) // (ROWS // 5)} bytes": best(lambda: read(True), ROWS // 5),
        "request log, ids alone": best(lambda: read(False), ROWS // 5),
    }
    shutil.rmtree(folder)
    for name, figure in figures.items():
        print(f"{name:28s} {figure:7.3f}")


if __name__ == "__main__":
    main()
