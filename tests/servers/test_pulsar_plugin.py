"""The plug-in in a real Pulsar broker: its files govern, and Weir finds what the broker did."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.run.service import run
from state.policies import LIMIT_TYPES
from tests.servers.pulsar_plugin import (
    BATCHING,
    Json,
    batch,
    limit,
    limit_broker,
    rows,
    stats_of,
)
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.pulsar_plugin import connected
from tests.support.waiting import wait_for
from tests.unit.show.explain.asking import texts

if TYPE_CHECKING:
    from app.config.settings import Settings

LIMITED, BESIDE, SHARED, LARGE, KEPT, UNREAD = (
    f"persistent://public/plugin/{name}"
    for name in ("limited", "beside", "shared", "large", "kept", "unread")
)
MAX_MESSAGE = 50_000
RATE = 500
BATCHES = (600, 300, 300, 300, 300, 300)
"""Messages of each batch: the first empties the full bucket, the others what 0.2 s have put in. So
every one causes one pause, on a busy machine as well."""
KEPT_MESSAGES = 30
CHECK_S = 2
"""How often the broker of the tests, so Weir as well, checks backlogs."""


@dataclass(frozen=True)
class Played:
    """What clients did with a broker, and what it said of itself afterwards."""

    folder: Path
    large: bytes
    stats: dict[str, Json]

    def records(self, *kinds: str) -> list[Json]:
        """The records of all whole files, in the order of their names."""
        return pulsar_plugin.records(self.folder, *kinds)


@pytest.fixture(scope="module")
def played(pulsar: Pulsar, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A broker with the plug-in, and clients that publish, read and acknowledge."""
    folder = tmp_path_factory.mktemp("records")
    pulsar_plugin.start(pulsar, folder, maxMessageSize=str(MAX_MESSAGE), weirPayload="true")
    pulsar.ask("PUT", "namespaces/public/plugin", {})
    with connected(pulsar) as one, connected(pulsar) as other:
        readers = [other.subscribe(topic, "s") for topic in (LIMITED, BESIDE, LARGE)]
        other.subscribe(KEPT, "slow").close()
        limit(pulsar, LIMITED, RATE)
        limited = one.create_producer(LIMITED, batching_max_messages=max(BATCHES), **BATCHING)
        beside, kept = one.create_producer(BESIDE), one.create_producer(KEPT)
        one.subscribe(UNREAD, "s", consumer_name="idle")  # its connection is the one that is paused
        unread = other.create_producer(UNREAD)
        unread.send(b"in the backlog of the check before")
        time.sleep(2 * CHECK_S)
        for count in BATCHES:
            batch(limited, count)
            unread.send(b"in the backlog of the next one")
            beside.send(b"answered when the broker reads the connection again")
            time.sleep(0.2)
        limit_broker(pulsar, folder, 300)
        shared = one.create_producer(SHARED, batching_max_messages=600, **BATCHING)
        batch(shared, 600)
        beside.send(b"answered when the broker reads the connection again")
        limit_broker(pulsar, folder, 0)
        for _ in range(KEPT_MESSAGES):
            kept.send(b"x" * 500)
        large = random.Random(3).randbytes(5 * MAX_MESSAGE)
        one.create_producer(LARGE, chunking_enabled=True, batching_enabled=False).send(large)
        for reader, count in zip(readers, (sum(BATCHES), len(BATCHES) + 1, 1), strict=True):
            for _ in range(count):
                reader.acknowledge(reader.receive(10_000))
        stats = {t: stats_of(pulsar, t) for t in (LIMITED, BESIDE, KEPT)}
        time.sleep(2 * CHECK_S)
        one.create_producer(BESIDE).send(b"what closes the clocks of what came before")
    found = Played(folder, large, stats)
    wait_for(lambda: len(found.records("connection_closed")) >= 2)
    return found


def test_the_plug_in_knows_every_broker_setting_of_a_policy() -> None:
    keys = (pulsar_plugin.MODULE / "src/main/resources/weir/pulsar/broker-keys.txt").read_text()
    assert keys.splitlines() == [key for key in LIMIT_TYPES["broker"] if "." not in key]


def test_a_broker_with_the_plug_in(
    played: Played, make_settings: Callable[..., Settings], capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make_settings(
        source={"format": "files", "path": str(played.folder)},
        stats_window_ms=1000,
        chunks={"assemble_payload": True},
        idle_advance_ms=1000,
    )
    assert run(settings, available_now=True) == 0
    assert rows(settings, "quarantine") == []
    records = played.records()
    assert Counter(r["event_type"] for r in rows(settings, "events")) == Counter(
        r["event_type"] for r in records
    )
    assert [r["seq"] for r in records] == list(range(records[0]["seq"], records[-1]["seq"] + 1))
    throttles(played, rows(settings, "topic_throttle_stats"))
    (message,) = rows(settings, "chunk_messages")
    assert (message["integrity"], message["payload"]) == ("exact", played.large)
    (kept,) = [r for r in rows(settings, "backlog_checks") if r["topic"] == KEPT][-1:]
    assert kept["backlog_bytes"] == played.stats[KEPT]["backlogSize"] > 0
    read = {r["topic"]: r["hits"] + r["misses"] for r in sums(rows(settings, "cache_stats"))}
    assert (read[LIMITED], read[BESIDE]) == (len(BATCHES), len(BATCHES) + 1)
    consumers(played, settings, capsys)


def consumers(played: Played, settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Their records name their connections, so a pause explains the backlog that grew in it."""
    of_consumers = played.records("consumer_created", "dispatch", "ack", "consumer_closed")
    assert {r["event_type"] for r in of_consumers} == {
        "consumer_created",
        "dispatch",
        "ack",
        "consumer_closed",
    }
    at = {r["topic"]: r["cnx_id"] for r in played.records("producer_created")}
    one, other = at[BESIDE], at[UNREAD]
    assert {(r["topic"], r["cnx_id"]) for r in of_consumers} == {
        (LIMITED, other),
        (BESIDE, other),
        (LARGE, other),
        (KEPT, other),
        (UNREAD, one),
    }
    found = [
        text
        for check in rows(settings, "backlog_subscriptions")
        if check["topic"] == UNREAD
        for _, _, text in texts(
            capsys, settings.warehouse, "subscription", UNREAD, "s", "--at", str(check["pass_ms"])
        )
        if f"connection {one} of its consumer idle was paused for" in text
    ]
    assert found and all(
        text.endswith(
            f"since {LIMITED} used up its publish limit: its acknowledgements were not read."
        )
        for text in found
    )


def throttles(played: Played, found: list[Json]) -> None:
    """The broker's counter, the pauses that the plug-in saw, and those that Weir computed."""
    counted = played.stats[LIMITED]["publishRateLimitedTimes"]
    assert counted == len(BATCHES) + 1
    assert played.stats[BESIDE]["publishRateLimitedTimes"] == counted
    assert len(played.records("reads_paused")) == len(played.records("reads_resumed")) == counted
    times = {
        (topic, kind): sum(r[f"{kind}_times"] for r in found if r["topic"] == topic)
        for topic in (LIMITED, BESIDE)
        for kind in ("culprit", "shared", "collateral")
    }
    assert times == {
        (LIMITED, "culprit"): counted - 1,
        (LIMITED, "collateral"): 0,
        (LIMITED, "shared"): 1,
        (BESIDE, "culprit"): 0,
        (BESIDE, "collateral"): counted - 1,
        (BESIDE, "shared"): 1,
    }


def sums(found: list[Json]) -> list[Json]:
    """Reads of each topic over all windows."""
    topics = {r["topic"] for r in found if r["topic"]}
    return [
        {
            "topic": topic,
            **{k: sum(r[k] for r in found if r["topic"] == topic) for k in ("hits", "misses")},
        }
        for topic in topics
    ]
