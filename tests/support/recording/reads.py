"""Reads of the entry cache: fan-out, catch-up and Key_Shared."""

from __future__ import annotations

import time
from collections.abc import Callable

import pulsar as client

from tests.support.recording.scene import Scene, drain, name_of
from tests.support.servers.pulsar import samples
from tests.support.waiting import wait_for

NAME = "reads"
FAN, LATE, KEYED = (name_of("reads", name) for name in ("fan-out", "catch-up", "keyed"))
ENTRIES = 200
COUNTED = "pulsar_broker_managed_ledger_cache_operation_count_total"
STATUS = "pulsar_managed_ledger_cache_operation_status"
SETTLED_S = 0.5
"""After so long the plug-in has looked at the cursors."""


def play(scene: Scene) -> None:
    """Each part alone, so that the broker's counters are those of one topic."""
    scene.namespace("reads")
    for topic, part in ((FAN, fan_out), (LATE, catch_up), (KEYED, key_shared)):
        with scene.client() as one:
            keep(scene, topic, one, part)


def fan_out(one: client.Client) -> None:
    """Three subscriptions read at the tail."""
    readers = [one.subscribe(FAN, f"reader-{number}") for number in range(3)]
    publish(one, FAN)
    for reader in readers:
        assert len(drain(reader, 1000)) == ENTRIES


def catch_up(one: client.Client) -> None:
    """A subscription that begins when nothing is in the cache any more, another right behind."""
    for name in ("first", "second"):
        one.subscribe(LATE, name).close()
    publish(one, LATE)
    time.sleep(8)
    for name in ("first", "second"):
        assert len(drain(one.subscribe(LATE, name), 1000)) == ENTRIES


def key_shared(one: client.Client) -> None:
    """Two consumers share the keys; one leaves with what it has not acknowledged."""
    kind = client.ConsumerType.KeyShared
    stays = one.subscribe(KEYED, "keys", consumer_type=kind, consumer_name="stays")
    leaves = one.subscribe(
        KEYED, "keys", consumer_type=kind, consumer_name="leaves", receiver_queue_size=20
    )
    publish(one, KEYED)
    first = drain(stays, 1000)
    leaves.receive(1000)
    leaves.close()
    assert len(first) + len(drain(stays, 2000)) == ENTRIES


def publish(one: client.Client, topic: str) -> None:
    """Entries of one kilobyte with keys, at a pace."""
    producer = one.create_producer(topic, batching_enabled=False)
    time.sleep(SETTLED_S)
    for number in range(ENTRIES):
        producer.send(b"x" * 1000, partition_key=f"key-{number % 16}")
        if number % 20 == 0:
            time.sleep(0.02)


def keep(
    scene: Scene, topic: str, one: client.Client, part: Callable[[client.Client], None]
) -> None:
    """What the broker's cache counted during a part."""
    before = counted(scene)
    part(one)
    wait_for(lambda: not scene.stats(topic)["subscriptions"].popitem()[1]["msgBacklog"])
    time.sleep(1)
    for kind, value in counted(scene).items():
        scene.keep(
            NAME,
            f"{kind} of the cache, {topic}",
            COUNTED,
            int(value - before[kind]),
            f"SELECT sum({kind}) FROM cache_stats WHERE topic = '{topic}'",
        )


def counted(scene: Scene) -> dict[str, float]:
    """Hits and misses of the whole broker, which it gives to OpenTelemetry alone as counters."""
    found = samples(scene.telemetry)
    return {
        kind: sum(
            value
            for (name, labels), value in found.items()
            if name == COUNTED and (STATUS, status) in labels
        )
        for kind, status in (("hits", "hit"), ("misses", "miss"))
    }
