"""Records of one client that gives everything a new name, in all jobs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

START_MS, START_NS = 1_767_621_700_000, 90_000_000_000_000
"""Within the demo's trace, on a broker of its own."""
PULSAR, KAFKA = ("demo", "broker-of-many"), ("demo-kafka", "kafka-of-many")
TOPIC, GROUP, WHO = "persistent://many/names/t%07d", "group-of-many-%06d", "User:many"
SPAN_MS = 400_000
"""Time of all topics, within the demo's trace: later records would end further windows of others."""
WINDOW_MS = 60_000


def at_of(topic: int, topics: int) -> int:
    """When a topic is published to, since START_MS."""
    return 1 + topic * SPAN_MS // topics


def ended(topics: int) -> int:
    """Topics whose window has ended when the broker says no more."""
    end_ms = (START_MS + SPAN_MS) // WINDOW_MS * WINDOW_MS - START_MS
    return sum(at_of(topic, topics) < end_ms for topic in range(topics))


def lines_of_many(topics: int, groups: int) -> Iterator[bytes]:
    """The records, by the clocks of their brokers: each topic is published to once, by a producer of
    its own, with a chunk whose message never ends, a cursor, a request and a producer id; then a poll
    of the groups."""
    number = 0

    def line(broker: tuple[str, str], kind: str, at_ms: int, **columns: Any) -> bytes:
        nonlocal number
        number += 1
        pulsar = broker is PULSAR
        mono = {"ts_mono_ns": START_NS + at_ms * 1_000_000} if pulsar else {}
        about = {"event_type": kind, "cluster": broker[0], "broker": broker[1], "seq": number}
        feed = "pulsar_interceptor" if pulsar else "kafka_request_log"
        filled = {"source_feed": feed, "ts_wall_ms": START_MS + at_ms, **mono, **columns}
        return json.dumps({**about, **filled}).encode()

    who = {"principal": WHO}
    yield line(PULSAR, "broker_started", 0)
    yield line(PULSAR, "connection_opened", 0, cnx_id="many", io_thread=0, client_id="m", **who)
    for topic in range(topics):
        at, name = at_of(topic, topics), TOPIC % topic
        chunk = {"uuid": f"u{topic}", "chunk_id": 0, "num_chunks": 2, "total_chunk_bytes": 99}
        made = {"topic": name, "producer_name": f"p{topic}", "sequence_id": 0, "entry_bytes": 50}
        kafka_name = name.rpartition("/")[2]
        yield line(PULSAR, "publish", at, cnx_id="many", producer_id=topic, **made)
        place = {"ledger_id": topic, "entry_id": 0}
        yield line(PULSAR, "entry_added", at, **made, **place, **chunk)
        read = {"mark_delete": f"{topic}:-1", "read_pos": f"{topic}:0", "active": True}
        yield line(PULSAR, "cursor_state", at, topic=name, subscription=f"s{topic}", **read)
        client = {**who, "client_id": f"client-{topic}"}
        size = {"charged_bytes": 60, "topic_bytes": json.dumps({kafka_name: 50})}
        yield line(KAFKA, "client_request", at, api="PRODUCE", throttle_ms=0, **client, **size)
        yield line(KAFKA, "producer_id_assigned", at, producer_id=9_000_000 + topic, **client)
    at = 1 + SPAN_MS
    for group in range(groups):
        polled = {"source_feed": "kafka_groups", "partition": 0, "topic": f"of-many-{group // 2}"}
        if group % 2 == 0:
            log = {"ledger_id": 0, "ledger_entries": 100, "ledger_bytes": 100, "log_start": 0}
            yield line(KAFKA, "ledger_state", at, **polled, **log)
        offset = {"subscription": GROUP % group, "durable": True, "mark_delete": "0:7"}
        yield line(KAFKA, "cursor_state", at, **polled, **offset)
