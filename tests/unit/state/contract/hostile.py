"""Records of which anything may be wrong, and lines that are none."""

from __future__ import annotations

import json
import random
from typing import Any

from state.events import KINDS, SCHEMA
from tests.unit.state.contract.jobs import Job
from tests.unit.state.trace import START_MS

HOUR = 3_600_000
MOST = 2**63 - 1
NUMBERS = (0, -1, 1, MOST, -MOST - 1, MOST + 1, 2**31, -(2**31), 10**30, 1e19, 0.5)
TEXTS = (
    "",
    "z",
    "z" * 70_000,
    "\x00z",
    "\ud83dz",
    "\u202ez",
    "persistent://t/ns/z",
    "1:1",
    "9" * 400,
    "z-partition-99999999999",
    "non-persistent://z/z/z",
    "{",
    "[]",
    "null",
)
TIMES = (START_MS, START_MS + HOUR, START_MS - HOUR)
OTHERS: tuple[Any, ...] = (None, True, [], {}, [[[]]], {"z": {"z": []}}, ["z", None], [1, 2])
FOR_MANY = ("policy", "broker_started", "gap")
NAMED = [kind.name for kind in KINDS if kind.name not in FOR_MANY]
RAW = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"\xff\xfe",
    b'{"event_type":',
    b"{}" * 3,
    b'"' + b"\\" * 99,
    b"[" * 999,
)


def hostile(
    job: Job, order: random.Random, seq: int, times: tuple[int, int, int] = TIMES, **columns: Any
) -> bytes:
    """A record of a key of its own, of which anything may be wrong; or none at all. `times` (ms
    since the epoch): from which on it usually is, and two that it may have.
    """
    if order.random() < 0.1:
        return order.choice(RAW)
    event = job.event(order.randrange(60_000), seq, key="z", number=order.randrange(99))
    row = {**event, **columns}
    row["ts_wall_ms"] += times[0] - START_MS
    if order.random() < 0.3:
        row["event_type"] = order.choice(NAMED)
    for name in order.sample(SCHEMA.names, order.choice((0, 1, 1, 2, 5))):
        if name not in ("event_type", "cluster"):
            row[name] = order.choice(order.choice(((*NUMBERS, *times), TEXTS, OTHERS)))
    if order.random() < 0.3:
        row["ts_wall_ms"] = order.choice((*NUMBERS, *times))
    if row["broker"] == "*":
        row["broker"] = "z"
    found = {k: v for k, v in row.items() if k in SCHEMA.names and v is not None}
    return json.dumps(found, allow_nan=True).encode("utf-8", "surrogatepass")
