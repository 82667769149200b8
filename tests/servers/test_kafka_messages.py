"""Ordinary messages of a real broker, some in chunks: limits, reassembly, nothing lost."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from app.run.service import run
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from app.config.settings import Settings

pytestmark = pytest.mark.kafka
SIZES = (1_000, 5_000, 120_000, 900_000)


def messages(seed: int) -> tuple[list[dict[str, Any]], dict[str, bytes], int]:
    """Chunks of five producers between plain messages; what was sent whole; how many are plain."""
    rng = random.Random(seed)
    todo: dict[int, list[dict[str, Any]]] = {p: [] for p in range(5)}
    whole: dict[str, bytes] = {}
    for m in range(30):
        payload = rng.randbytes(rng.choice(SIZES))
        size = -(-len(payload) // rng.randint(2, 5))
        parts = [payload[i : i + size] for i in range(0, len(payload), size)]
        uuid, producer = f"p{m % 5}-{m}", m % 5
        whole[uuid] = payload
        todo[producer] += [
            {
                "value": part,
                "partition": producer % 2,
                "headers": {
                    "uuid": uuid,
                    "chunk_id": str(i),
                    "num_chunks": str(len(parts)),
                    "total_chunk_bytes": str(len(payload)),
                    "producer_name": f"p{producer}",
                },
            }
            for i, part in enumerate(parts)
        ]
    sent: list[dict[str, Any]] = []
    plain = 0
    while any(todo.values()):
        if rng.random() < 0.5:
            sent.append({"value": b"small", "key": b"k", "partition": rng.randrange(2)})
            plain += 1
        else:
            sent.append(todo[rng.choice([p for p, left in todo.items() if left])].pop(0))
    return sent, whole, plain


def rows(settings: Settings, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(f"{settings.warehouse}/{name}").to_pyarrow_table().to_pylist()
    )
    return found


def test_a_topic_without_any_feed(kafka: Kafka, make_settings: Callable[..., Settings]) -> None:
    topic = f"orders-{uuid4().hex}"
    kafka.create_topic(topic, 2)
    sent, whole, plain = messages(5)
    broken = {
        "value": b"x",
        "partition": 0,
        "headers": {"uuid": "b", "chunk_id": "one", "num_chunks": "2"},
    }
    settings = make_settings(
        source={
            "format": "kafka_messages",
            "options": {
                "kafka.bootstrap.servers": kafka.servers,
                "subscribe": topic,
                "maxOffsetsPerTrigger": 40,
            },
            "messages": {"cluster": "east", "subscription": "weir"},
        },
        idle_advance_ms=60_000,
        stats_window_ms=1000,
        policies=[{"scope": "topic", "name": topic, "limits": {"publishRateInMsgs": 5}}],
        chunks={"assemble_payload": True, "inline_payload_bytes": 4_000},
    )
    sent.append(broken)
    kafka.send(topic, sent)
    assert run(settings, available_now=True, drain=True) == 0

    found = rows(settings, "chunk_messages")
    assert {r["uuid"]: r["payload"] for r in found} == whole
    assert {r["uuid"]: r["checksum"] for r in found} == {
        uuid: zlib.crc32(payload) for uuid, payload in whole.items()
    }
    assert {(r["subscription"], r["producer_name"]) for r in found} == {
        ("weir", f"p{p}") for p in range(5)
    }
    assert {r["outcome"] for r in rows(settings, "chunk_events")} == {"COMPLETE"}
    events = rows(settings, "events")
    assert sum(e["event_type"] == "publish" for e in events) == len(sent) - 1
    assert plain and all(e["payload"] is None for e in events)
    assert rows(settings, "throttle_events")  # five messages a second were allowed
    refused = rows(settings, "quarantine")
    assert {(r["reason_code"], r["detail"]) for r in refused} >= {("BAD_TYPE", "chunk_id")}
    assert len({r["source_offset"] for r in refused}) == 1
    assert all("value" not in r["raw"] for r in refused)
