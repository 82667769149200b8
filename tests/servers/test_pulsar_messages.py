"""Ordinary messages of a real Pulsar broker, some in chunks: limits, reassembly, nothing lost."""

from __future__ import annotations

import random
import time
import zlib
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pulsar as client
import pytest
from deltalake import DeltaTable

from app.errors import UserError
from app.run.service import run
from app.sources.pulsar.entries import Entry, entries
from app.sources.pulsar.position_range import Range
from tests.servers.live import MakeSettings
from tests.support.servers.pulsar import CHUNK, Pulsar

if TYPE_CHECKING:
    from app.config.settings import Settings

SIZES = (1_000, 50_000, 250_000, 600_000)


@pytest.fixture
def topic(pulsar: Pulsar) -> str:
    """A topic in a namespace of its own."""
    namespace = f"acme/orders-{uuid4().hex}"
    pulsar.namespace(namespace)
    return f"{namespace}/created"


def rows(settings: Settings, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        DeltaTable(f"{settings.warehouse}/{name}").to_pyarrow_table().to_pylist()
    )
    return found


def read(pulsar: Pulsar, topic: str, begin: str, end: str) -> list[Entry]:
    """The entries of a range of a topic that is not partitioned."""
    options = {"serviceUrl": pulsar.service_url, "adminUrl": pulsar.url}
    return list(entries(options, Range(f"persistent://{topic}", "0", begin, end, 100)))


def test_a_topic_without_any_feed(pulsar: Pulsar, topic: str, make_settings: MakeSettings) -> None:
    pulsar.create_topic(topic, 2)
    rng = random.Random(5)
    payloads = [rng.randbytes(rng.choice(SIZES)) for _ in range(24)]
    large = pulsar.produce_to(
        topic,
        [(n % 2, payload) for n, payload in enumerate(payloads)],
        batch=1,
        chunking_enabled=True,
    )
    time.sleep(2)  # a message is judged when its partition has one that is 500 ms newer
    small = pulsar.produce_to(topic, [(n % 2, b"small %d" % n) for n in range(400)], batch=40)
    settings = make_settings(
        source={
            "format": "pulsar_messages",
            "max_records_per_trigger": 300,
            "options": {"serviceUrl": pulsar.service_url, "topics": topic, "adminUrl": pulsar.url},
            "messages": {"cluster": "east", "subscription": "weir"},
        },
        idle_advance_ms=60_000,
        stats_window_ms=1000,
        policies=[{"scope": "topic", "name": topic, "limits": {"publishRateInMsgs": 5}}],
        chunks={"assemble_payload": True, "inline_payload_bytes": 4_000},
    )
    assert run(settings, available_now=True) == 0
    assert run(settings, available_now=True) == 0

    events = rows(settings, "events")
    published = [e for e in events if e["event_type"] == "publish"]
    places = {(e["partition"], e["source_partition"], e["source_offset"]) for e in published}
    assert len(places) == len(published)
    assert sum(e["num_messages"] for e in published if not e["num_chunks"]) == 400 + sum(
        len(payload) < CHUNK for payload in payloads
    )
    assert sum(e["entry_bytes"] for e in published) == sum(map(len, payloads)) + sum(
        len(b"small %d" % n) for n in range(400)
    )
    assert {(e["cluster"], e["broker"], e["source_feed"]) for e in events} == {
        ("east", "pulsar", "pulsar_messages")
    }
    chunked = [payload for payload in payloads if len(payload) > CHUNK]
    found = rows(settings, "chunk_messages")
    assert sorted(row["payload"] for row in found) == sorted(chunked)
    assert sorted(row["checksum"] for row in found) == sorted(map(zlib.crc32, chunked))
    assert {row["outcome"] for row in rows(settings, "chunk_events")} == {"COMPLETE"}
    assert rows(settings, "throttle_events")  # five messages a second were allowed
    # The two partitions are one broker, and not equally far in a batch.
    assert {(r["reason_code"], r["job"]) for r in rows(settings, "quarantine")} <= {
        ("TOO_LATE", "entry_cache"),
        ("TOO_LATE", "rate_limits"),
    }
    assert len(large) == 24 and len(small) == 400


def test_chunks_of_messages_that_are_never_whole_are_seen(pulsar: Pulsar, topic: str) -> None:
    pulsar.create_topic(topic)
    ((_, ledger, last, _),) = pulsar.produce_to(
        topic, [(0, b"x" * 250_000)], batch=1, partitioned=False, chunking_enabled=True
    )
    assert last == 2
    for end in range(3):  # what a range ends in
        found = read(pulsar, topic, "-1:-1", f"{ledger}:{end}:-1")
        assert [(e.chunk_id, e.num_chunks, e.total_chunk_bytes) for e in found] == [
            (str(n), "3", "250000") for n in range(end + 1)
        ]
        assert len({e.uuid for e in found}) == 1
        rest = read(pulsar, topic, f"{ledger}:{end}", f"{ledger}:{last}:-1")
        assert sum(e.size for e in [*found, *rest]) == 250_000


def test_chunks_need_the_admin_interface_and_messages_that_are_not_compressed(
    pulsar: Pulsar, topic: str
) -> None:
    pulsar.create_topic(topic)
    place = pulsar.produce_to(
        topic,
        [(0, random.Random(1).randbytes(250_000))],
        batch=1,
        partitioned=False,
        chunking_enabled=True,
        compression_type=client.CompressionType.LZ4,
    )[-1]
    range_ = Range(f"persistent://{topic}", "0", "-1:-1", f"{place[1]}:{place[2]}:-1", 100)
    with pytest.raises(UserError, match="adminUrl: is missing") as refused:
        list(entries({"serviceUrl": pulsar.service_url}, range_))
    assert len(str(refused.value).splitlines()) == 2
    options = {"serviceUrl": pulsar.service_url, "adminUrl": pulsar.url}
    with pytest.raises(UserError, match="chunks of a compressed message"):
        list(entries(options, range_))
