"""Archives of publishes: one by hand, and drawn ones with restarts, gaps and closed connections."""

from __future__ import annotations

import random
from typing import Any

from tests.support.producer_quota import archive
from tests.unit.state.trace import START_MS, START_NS

__all__ = ["START_MS", "Row", "archive", "by_hand", "drawn", "publish", "record"]

Row = dict[str, Any]
NS_PER_MS = 1_000_000
TOPICS = (
    ("t/a/x", None),
    ("persistent://t/a/y", 0),
    ("persistent://t/a/y-partition-1", None),
    ("non-persistent://t/b/z", None),
    ("u/c/w", None),
)
STEPS_MS = (0, 0, 1, 7, 16, 40, 300, 1100, 20_000)
LONG_MS = 900_000
"""Longer than `idle_state_ms`."""


def record(at_ms: int, kind: str, seq: int, **columns: Any) -> Row:
    """A record of broker b in cluster c so long after the start."""
    return {
        "event_type": kind,
        "source_feed": "f",
        "cluster": "c",
        "broker": "b",
        "seq": seq,
        "ts_wall_ms": START_MS + at_ms,
        "ts_mono_ns": START_NS + at_ms * NS_PER_MS,
        **columns,
    }


def publish(at_ms: int, seq: int, topic: str, messages: int, **columns: Any) -> Row:
    """A publish of 100 bytes a message."""
    return record(
        at_ms,
        "publish",
        seq,
        **{
            "topic": topic,
            "producer_id": 1,
            "cnx_id": "n1",
            "num_messages": messages,
            "entry_bytes": 100 * messages,
            **columns,
        },
    )


def by_hand() -> list[Row]:
    """`t/a/x` publishes 10 messages a second for nine seconds and 100 at the tenth; `t/a/y` has a
    producer on its connection. The broker's last record is of a minute later."""
    rows = [record(0, "producer_created", 0, topic="t/a/y", producer_id=2, cnx_id="n1")]
    rows += [publish(1000 * i, 1 + i, "t/a/x", 10) for i in range(9)]
    rows.append(publish(10_000, 20, "t/a/x", 100))
    rows.append(record(70_000, "producer_created", 21, topic="t/b/z", producer_id=1, cnx_id="n2"))
    return rows


def drawn(seed: int, records: int = 400) -> list[Row]:
    """Bursts on three connections of two brokers, with what interrupts them."""
    rng = random.Random(seed)
    rows: list[Row] = []
    at_ms, starts = 0, dict.fromkeys(("b1", "b2"), 0)
    for seq in range(records):
        at_ms += rng.choice(STEPS_MS) if rng.random() > 0.01 else LONG_MS
        broker = rng.choice(("b1", "b2"))
        mono = START_NS + (at_ms - starts[broker]) * NS_PER_MS + rng.randrange(0, NS_PER_MS)
        topic, partition = rng.choice(TOPICS)
        cnx = rng.choice(("n1", "n2", "n3"))
        kind = rng.choices(
            (
                "publish",
                "producer_created",
                "producer_closed",
                "connection_closed",
                "broker_started",
                "gap",
            ),
            (90, 3, 2, 4, 0.7, 0.7),
        )[0]
        columns: Row = {"broker": broker, "ts_mono_ns": mono}
        if kind in ("publish", "producer_created", "producer_closed"):
            columns |= {
                "topic": topic,
                "partition": partition,
                "cnx_id": cnx,
                "producer_id": rng.randrange(2),
            }
        if kind == "publish":
            messages = rng.choice((1, 1, 3, 20, 300))
            columns |= {"num_messages": messages, "entry_bytes": messages * rng.randrange(1, 99)}
        if kind == "connection_closed":
            columns["cnx_id"] = cnx
        if kind == "broker_started":
            at_ms += 10  # records of that very millisecond would belong to the new run
            starts[broker] = at_ms
            columns["ts_mono_ns"] = START_NS
        if kind == "gap":
            columns["gap_from_mono_ns"] = mono - 5 * NS_PER_MS
        rows.append(record(at_ms, kind, seq, **columns))
        if rng.random() < 0.05:
            rows.append(rows[-1])  # delivered twice
    # so much later that a replay judges all the others
    rows += [
        {
            **record(at_ms + LONG_MS, "connection_opened", records, cnx_id="n1"),
            "broker": broker,
            "ts_mono_ns": START_NS + (at_ms + LONG_MS - since) * NS_PER_MS,
        }
        for broker, since in starts.items()
    ]
    return rows
