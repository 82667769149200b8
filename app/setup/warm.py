"""Compile everything that is compiled, once: `python -m app.setup.warm` as the last step of set-up.

The compiled code is kept in NUMBA_CACHE_DIR, so the first micro-batch of a run does not wait
for it; on a cluster it travels with the sources.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

from app.config.settings import Settings
from app.engine.operators import operators
from app.engine.routing import packer
from app.jobs import parts
from app.sources.clocks import ClockLimits
from state.engine.reach import Reach
from state.jobs import DECLARED, JOBS
from udfs.compiled_cache import remove_stale

_START_MS = 1_767_621_600_000


def _records() -> list[bytes]:
    """A few seconds of one broker, with a record of every kind that the job reads."""
    topic = {"topic": "t/n/a", "producer_id": 1, "cnx_id": "c"}
    entry = {"topic": "t/n/a", "ledger_id": 1, "entry_id": 1, "entry_bytes": 10}
    limit = {"scope": "topic", "name": "t/n/a", "limits": {"publishRateInMsgs": 1}}
    place = {"topic": "t/n/a", "ledger_id": 1}
    rates = {"producer_ids_rate": 1, "consumer_byte_rate": 1, "controller_mutation_rate": 1}
    user = {"scope": "user", "name": "a", "limits": rates}
    request = {
        "principal": "User:a",
        "charged_bytes": 100,
        "handler_time_ns": 1,
        "mutations": 9,
        "topic_bytes": '{"t":90}',
    }
    consumer = {"subscription": "s", "consumer": "c", "sub_type": "shared"}
    chunk = {"uuid": "u", "num_chunks": 2, "total_chunk_bytes": 20}
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("broker_started", {}),
        (
            "connection_opened",
            {"cnx_id": "c", "io_thread": 1, "supports_throttle": True, "reports_pauses": True},
        ),
        ("producer_created", {**topic, "producer_name": "p"}),
        ("policy", {"policy_json": json.dumps(limit)}),
        ("publish", {**topic, "entry_bytes": 10, "num_messages": 5}),
        ("publish", {**topic, "partition": 3, "entry_bytes": 10}),
        ("entry_added", entry),
        ("dispatch", {**entry, **consumer, **chunk, "chunk_id": 0}),
        ("dispatch", {**entry, **consumer, **chunk, "chunk_id": 1, "payload": "YQ=="}),
        ("ack", {**entry, "subscription": "s"}),
        ("policy", {"policy_json": json.dumps(user)}),
        ("ledger_state", {**place, "ledger_entries": 5, "ledger_bytes": 50}),
        (
            "cursor_state",
            {
                **place,
                "subscription": "s",
                "mark_delete": "1:0",
                "read_pos": "1:1",
                "publish_time_ms": _START_MS,
            },
        ),
        ("entry_added", {**entry, "entry_id": 2}),
        *(("entry_read", {**entry, "subscription": "s", "entry_id": i}) for i in (2, 1, 2)),
        ("replay_queued", {**entry, "subscription": "s"}),
        ("entry_released", entry),
        ("entry_invalidated", entry),
        ("cursor_deleted", {"topic": "t/n/a", "subscription": "s"}),
        ("ledger_deleted", place),
        ("producer_id_assigned", {"principal": "User:a", "producer_id": 1}),
        *(("produce_batch", {**topic, "principal": "User:a", "producer_id": i}) for i in (1, 1, 2)),
        *(("client_request", {**request, "api": api}) for api in ("FETCH", "CREATE_TOPICS")),
        ("client_rate", {"principal": "a", "quota_type": "fetch", "value_milli": 1}),
        ("reads_paused", {"cnx_id": "c"}),
        ("producer_closed", topic),
        ("connection_closed", {"cnx_id": "c"}),
        ("gap", {"gap_from_mono_ns": 1, "dropped": 1}),
        ("no such kind", {}),
        ("broker_started", {}),
    ]
    records = []
    for i, (kind, columns) in enumerate(kinds):
        common = {
            "event_type": kind,
            "source_feed": "warm",
            "cluster": "c",
            "broker": "b",
            "seq": i,
            "ts_mono_ns": 10**9 * i,
            "ts_wall_ms": _START_MS + 1000 * i,
        }
        records.append(json.dumps({**common, **columns}).encode())
    return [*records, records[-1], b"not JSON"]


def warm(jobs: Sequence[str]) -> None:
    """Send a small trace through parsing, and through the routing and the cores of some jobs;
    without jobs through the routing of all."""
    gc.set_threshold(100_000)  # the compiler makes many objects and few cycles: 7 % of its time
    extra = {
        name: [table.name for table in job.tables if not table.default]
        for name, job in DECLARED.items()
        if name in jobs
    }
    settings = Settings.model_validate(
        {
            "queries": [list(jobs or JOBS)],
            "shards": 1,
            **{name: {"extra_outputs": tables} for name, tables in extra.items() if tables},
        }
    )
    values = _records()
    batch = pa.record_batch(
        {
            "value": pa.array(values, pa.binary()),
            "source_partition": pa.array(["0"] * len(values)),
            "source_offset": pa.array(range(len(values)), pa.int64()),
        }
    )
    group, compiling = operators(settings, settings.jobs), parts("warm")
    routes = {name: operator.route for name, operator in group.items()}
    for packed in packer(routes, 1, ClockLimits())(iter([batch])):
        rows = zip(packed.column("job").to_pylist(), packed.column("blob").to_pylist(), strict=True)
        for name, blob in rows:
            if name in jobs:
                first = group[name].job.step(None, [blob], Reach(0))
                group[name].job.step(first.state, [], Reach(_START_MS + 10**6))
                if name in compiling:
                    compiling[name].warm(blob, settings.job_params(name))


def main() -> None:
    """Compile what all jobs share, then each core in a process of its own, as many at a time as
    there are processors."""
    warm([])
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        codes = list(pool.map(_warm_alone, JOBS))
    if any(codes):
        sys.exit(1)
    remove_stale(Path(os.environ["NUMBA_CACHE_DIR"]))


def _warm_alone(job: str) -> int:
    return subprocess.run([sys.executable, "-m", "app.setup.warm", job], check=False).returncode


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # who has started this says that it ended
    if sys.argv[1:]:
        warm(sys.argv[1:])
    else:
        main()
