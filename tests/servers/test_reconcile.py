"""The numbers of a real broker with the plug-in against Weir's: equal, or within the bound."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pulsar as client
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from app.run.service import run
from app.show.reconcile.comparing import ComparisonRound, one_round
from app.show.reconcile.spans import differs
from tests.servers.pulsar_plugin import BATCHING, batch, limit_broker
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.pulsar_plugin import connected, records
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from app.config.settings import Settings

Json = dict[str, Any]
TOPIC, SPACE, GROUP, ALL, BESIDE, FAN, LATE, KEPT = (
    f"persistent://public/{name}"
    for name in (
        "rec/topic",
        "recspace/t",
        "recgroup/t",
        "rec/all",
        "rec/beside",
        "rec/fan",
        "rec/late",
        "rec/kept",
    )
)
RATE = 500
PAUSES = {TOPIC: 4, SPACE: 3, GROUP: 3, ALL: 2}
"""How often each topic's producer is paused; all producers are on one connection."""
READERS, ENTRIES, KEPT_ENTRIES = 3, 100, 30
HOUR_S = 3600
CHECK_S = 2
"""How often the broker of the tests checks backlogs."""


class Fleet:
    """A broker with limits of every kind, clients, and Weir beside."""

    def __init__(self, pulsar: Pulsar, folder: Path, settings: Settings) -> None:
        self.pulsar, self.folder, self.settings = pulsar, folder, settings
        self.rounds: list[ComparisonRound] = []

    def prepare(self) -> None:
        """Namespaces, a resource group and limits."""
        ask = self.pulsar.ask
        rate = {"publishThrottlingRateInMsg": RATE, "publishThrottlingRateInByte": -1}
        for name in ("rec", "recspace", "recgroup"):
            ask("PUT", f"namespaces/public/{name}", {})
        ask("POST", "namespaces/public/recspace/publishRate", rate)
        ask("PUT", "resourcegroups/rec", {"publishRateInMsgs": RATE, "publishRateInBytes": 10**9})
        ask("POST", "namespaces/public/recgroup/resourcegroup/rec")

    def pause(self, producer: client.Producer, times: int, beside: client.Producer) -> None:
        """Empty a full bucket, then more than what 0.2 s have put in: a pause for every batch."""
        for number in range(times):
            batch(producer, RATE + 100 if not number else RATE // 2)
            beside.send(b"answered when the broker reads the connection again")
            time.sleep(0.2)

    def read(self) -> None:
        """A round of the comparison, at a moment without traffic."""
        time.sleep(1)
        self.rounds.append(one_round(self.settings))
        time.sleep(0.5)


@pytest.fixture(scope="module")
def folder(pulsar: Pulsar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("reconcile")
    # The number of pauses begins anew with each update of the broker's statistics: not here.
    pulsar_plugin.start(
        pulsar,
        found,
        statsUpdateFrequencyInSecs=str(HOUR_S),
        statsUpdateInitialDelayInSecs=str(HOUR_S),
    )
    return found


def play(fleet: Fleet) -> None:
    """Publish against each limit; fan out to readers, and to one that comes when the cache has
    nothing left; leave a backlog."""
    pulsar = fleet.pulsar
    fleet.prepare()
    with connected(pulsar) as one, connected(pulsar) as other:
        paused = {
            topic: one.create_producer(topic, batching_max_messages=2 * RATE, **BATCHING)
            for topic in PAUSES
        }
        beside, fan, late, kept = (
            one.create_producer(topic, batching_enabled=False)
            for topic in (BESIDE, FAN, LATE, KEPT)
        )
        other.subscribe(KEPT, "slow").close()
        other.subscribe(LATE, "late").close()
        readers = [other.subscribe(FAN, f"s{n}") for n in range(READERS)]
        path = TOPIC.replace("://", "/") + "/publishRate"
        pulsar.ask(
            "POST", path, {"publishThrottlingRateInMsg": RATE, "publishThrottlingRateInByte": -1}
        )
        wait_for(lambda: [r for r in records(fleet.folder, "policy") if TOPIC in r["policy_json"]])
        fleet.read()
        for topic in (TOPIC, SPACE, GROUP):
            fleet.pause(paused[topic], PAUSES[topic], beside)
        limit_broker(pulsar, fleet.folder, RATE)
        fleet.pause(paused[ALL], PAUSES[ALL], beside)
        limit_broker(pulsar, fleet.folder, 0)
        for producer in (fan, late):
            for _ in range(ENTRIES):
                producer.send(b"x" * 1000)
        for _ in range(KEPT_ENTRIES):
            kept.send(b"x" * 500)
        for reader in readers:
            take(reader)
        time.sleep(3)  # the cache keeps an entry for a second
        take(other.subscribe(LATE, "late"))
        time.sleep(2 * CHECK_S)
        fleet.read()
        time.sleep(2 * CHECK_S)
        one.create_producer(BESIDE).send(b"what closes the windows of what came before")
    wait_for(lambda: len(records(fleet.folder, "connection_closed")) >= 2)


def take(reader: client.Consumer) -> None:
    for _ in range(ENTRIES):
        reader.acknowledge(reader.receive(20_000))


def test_a_broker_and_weir_have_the_same_numbers(
    pulsar: Pulsar, folder: Path, make_settings: Callable[..., Settings]
) -> None:
    settings = make_settings(
        source={"format": "files", "path": str(folder)},
        stats_window_ms=1000,
        idle_advance_ms=1000,
        reconcile={
            "brokers": [pulsar.url],
            "settle_ms": 0,
            "stats_period_ms": HOUR_S * 1000,
        },
    )
    fleet = Fleet(pulsar, folder, settings)
    play(fleet)
    first, second = fleet.rounds
    assert (first.rows, first.problems, len(first.first)) == ([], [], 1)
    # Weir has processed nothing yet, so the span waits.
    assert (second.rows, second.waiting) == ([], 1)
    assert run(settings, available_now=True) == 0
    third = one_round(settings)
    stored = DeltaTable(f"{settings.warehouse}/reconciliation").to_pyarrow_table().to_pylist()
    start_ms = min(row["window_start_ms"] for row in stored)
    assert stored == [row for row in third.rows if row in stored]
    found = {
        (row["measure"], row["topic"]): row for row in stored if row["window_start_ms"] == start_ms
    }
    assert [row for row in found.values() if differs(row)] == []
    publishes(found)
    pauses(found, DeltaTable(f"{settings.warehouse}/throttle_events").to_pyarrow_table())
    backlogs(found)
    cache(found)


Found = dict[tuple[str, str | None], Json]


def publishes(found: Found) -> None:
    """Messages and bytes: equal, since nothing was published around the readings."""
    messages = {topic: RATE + 100 + (times - 1) * RATE // 2 for topic, times in PAUSES.items()} | {
        FAN: ENTRIES,
        LATE: ENTRIES,
        KEPT: KEPT_ENTRIES,
        BESIDE: sum(PAUSES.values()),
    }
    for measure in ("messages_in", "bytes_in"):
        rows = {topic: row for (name, topic), row in found.items() if name == measure}
        assert {t: (r["difference"], r["bound"], r["reason"]) for t, r in rows.items()} == (
            dict.fromkeys(messages, (0, 0, None))
        )
    assert {t: found["messages_in", t]["broker_value"] for t in messages} == messages


def pauses(found: Found, events: pa.Table) -> None:
    """The broker counts each pause for every topic on the connection, and so does Weir; its rows
    are those pauses."""
    total = sum(PAUSES.values())
    for topic in (*PAUSES, BESIDE, FAN, LATE, KEPT):
        row = found["publish_limited_times", topic]
        assert (row["broker_value"], row["weir_value"], row["reason"]) == (total, total, None)
    rows = sorted(events.to_pylist(), key=lambda row: (row["ts_mono_ns"], row["row_no"]))
    begun: Counter[str] = Counter()
    paused: dict[str, bool] = {}
    for row in rows:
        begun[row["cnx_id"]] += row["reads_paused"] and not paused.get(row["cnx_id"], False)
        paused[row["cnx_id"]] = row["reads_paused"]
    mine = {row["cnx_id"] for row in rows if TOPIC in (row["topic"], *row["collateral_topics"])}
    assert sum(begun[cnx] for cnx in mine) == total


def backlogs(found: Found) -> None:
    row = found["backlog_entries", KEPT]
    assert (row["broker_value"], row["weir_value"], row["reason"]) == (
        KEPT_ENTRIES,
        KEPT_ENTRIES,
        None,
    )
    size = found["backlog_bytes", KEPT]
    assert size["broker_value"] == size["weir_value"] > 500 * KEPT_ENTRIES
    assert size["reason"] is None


def cache(found: Found) -> None:
    """Entries in and out, and reads from storage; the broker's own topics are in the bound."""
    inserted, misses = found["cache_inserted", None], found["cache_misses", None]
    assert inserted["reason"] is None and inserted["broker_value"] >= 2 * ENTRIES
    assert misses["reason"] is None and misses["broker_value"] >= ENTRIES
    assert abs(misses["difference"]) <= misses["bound"] < ENTRIES / 10
    assert abs(inserted["difference"]) <= inserted["bound"] < ENTRIES / 10
    assert abs(found["cache_evicted", None]["difference"]) <= found["cache_evicted", None]["bound"]
    hits = found["cache_hits", None]
    assert hits["reason"] == "RATE_ONLY"
    assert hits["weir_value"] + misses["weir_value"] == (READERS + 1) * ENTRIES
