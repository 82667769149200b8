"""Two brokers of one cluster, the second one's clock a minute ahead, and topics that move."""

from __future__ import annotations

import re
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.config.settings import load_settings
from app.run.service import run
from tests.crash.clock import no_compiler, shifted
from tests.support.backlog_views import asked, stored
from tests.support.recording.scene import Scene, drain, name_of
from tests.support.servers import pulsar_plugin
from tests.support.servers.process import Missing
from tests.support.servers.pulsar import Pulsar
from tests.support.servers.pulsar_pair import First, Second
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.slow
Json = dict[str, Any]
AHEAD_S = 60
ENTRIES = 30
MOVED, STAYS = name_of("moved", "t"), name_of("stays", "t")
WITHOUT_POLICIES = {"topicLevelPoliciesEnabled": "false", "systemTopicEnabled": "false"}
"""Of topics: a topic that moves would wait for the namespace's own topic to move."""
BUNDLE = "0x00000000_0xffffffff"


@dataclass(frozen=True)
class Pair:
    """The records of both brokers, and what they said in the end."""

    folder: Path
    brokers: tuple[str, str]
    stats: dict[str, Json]

    def records(self, broker: int, *kinds: str) -> list[Json]:
        """Records of one broker."""
        return pulsar_plugin.records(self.folder / str(broker), *kinds)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A topic that is served by the first broker, then by the second; another stays."""
    if why := no_compiler():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("pair")
    first = First(folder / "first")
    second = Second(folder / "second", first, shifted(folder, AHEAD_S))
    try:
        for number, broker in enumerate((first, second)):
            begin(broker, folder / "records" / str(number))
        stats = use(first, second)
    finally:
        second.stop()
        first.stop()
    return Pair(folder / "records", (id_of(first), id_of(second)), stats)


def begin(broker: Pulsar, records: Path) -> None:
    """Start one of the two with the plug-in."""
    try:
        broker.run_with(**pulsar_plugin.settings(records, **WITHOUT_POLICIES))
    except Missing as error:
        pytest.skip(f"no pair of brokers: {error}")


def use(first: Pulsar, second: Pulsar) -> dict[str, Json]:
    """Publish to both topics, move one, publish to both again."""
    scene = Scene(first, "")
    for name in ("moved", "stays"):
        first.ask(
            "PUT",
            f"namespaces/public/{name}",
            {"bundles": {"numBundles": 1, "boundaries": ["0x00000000", "0xffffffff"]}},
        )
    for topic in (MOVED, STAYS):
        with scene.client() as one:
            one.subscribe(topic, "slow").close()
        move(first, topic, first)
    for target in (first, second, second):
        move(first, MOVED, target)
        publish(target, MOVED)
        publish(first, STAYS)
    return {MOVED: Scene(second, "").stats(MOVED), STAYS: scene.stats(STAYS)}


def publish(broker: Pulsar, topic: str) -> None:
    """A client of a broker publishes, and reads it at once with the fast subscription."""
    with pulsar_plugin.connected(broker) as one:
        fast = one.subscribe(topic, "fast")
        producer = one.create_producer(topic, batching_enabled=False)
        for _ in range(ENTRIES):
            producer.send(b"x" * 100)
            time.sleep(0.02)
        assert len(drain(fast, 1000)) == ENTRIES


def id_of(broker: Pulsar) -> str:
    """The broker's name in the cluster."""
    return broker.url.removeprefix("http://")


def owner(broker: Pulsar, topic: str) -> str:
    """The broker that serves a topic."""
    found = broker.lookup(topic)
    return str(found["httpUrl"]).removeprefix("http://")


def move(leader: Pulsar, topic: str, target: Pulsar) -> None:
    """Unload a topic's namespace, and wait until another broker serves it."""
    namespace = topic.removeprefix("persistent://").rpartition("/")[0]
    if owner(leader, topic) == id_of(target):
        return
    leader.ask("PUT", f"namespaces/{namespace}/{BUNDLE}/unload?destinationBroker={id_of(target)}")
    wait_for(lambda: owner(leader, topic) == owner(target, topic) == id_of(target))


def judged(pair: Pair, folder: Path, files: int = 4, **more: Any) -> Settings:
    """A run over the files of both, in the order in which they were shown, so many at a time."""
    config = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "alerts": None,
            "source": {
                "format": "files",
                "path": str(pair.folder),
                "options": {"maxFilesPerTrigger": files},
            },
            "backlog": {"check_rows": "all", "backlogQuotaCheckIntervalInSeconds": CHECK_S},
            **more,
        },
    )
    assert run(config, available_now=True) == 0
    return config


TABLES = (
    "events",
    "quarantine",
    "coverage_counts",
    "coverage_gaps",
    "backlog_subscriptions",
    "cache_stats",
)
APART = 2000 * AHEAD_S
CHECK_S = 2


@pytest.fixture(scope="module")
def patient(
    pair: Pair, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Json]]:
    """Tables of a run that allows for clocks which are so far apart."""
    config = judged(
        pair, tmp_path_factory.mktemp("patient"), idle_advance_ms=APART, allowed_lateness_ms=APART
    )
    return stored(config, TABLES)


def test_nothing_is_late_if_the_run_allows_for_it(
    pair: Pair, patient: dict[str, list[Json]]
) -> None:
    assert patient["quarantine"] == []
    assert len(patient["events"]) == len(pair.records(0)) + len(pair.records(1))
    by_broker = {
        broker: [row for row in asked(patient, "coverage") if row["broker"] == broker]
        for broker in pair.brokers
    }
    for number, broker in enumerate(pair.brokers):
        assert sum(row["received"] for row in by_broker[broker]) == len(pair.records(number))


def test_the_second_brokers_clock_is_ahead(pair: Pair) -> None:
    """Both publish in turn: what comes right after the other's is a minute before it."""
    first, second = (pair.records(n, "entry_added")[-1]["ts_wall_ms"] for n in (0, 1))
    assert 1000 * AHEAD_S - 30_000 < second - first < 1000 * AHEAD_S + 30_000


def test_a_topic_that_moves_stays_one_topic(
    pair: Pair, spark: SparkSession, tmp_path: Path
) -> None:
    """In one batch nothing is late, however far clocks are apart."""
    tables = stored(judged(pair, tmp_path, 1000, idle_advance_ms=1000), TABLES)
    assert tables["quarantine"] == []
    added = Counter(
        (row["broker"], row["topic"])
        for row in tables["events"]
        if row["event_type"] == "entry_added"
    )
    first, second = pair.brokers
    assert added == {
        (first, MOVED): ENTRIES,
        (second, MOVED): 2 * ENTRIES,
        (first, STAYS): 3 * ENTRIES,
    }
    for topic in (MOVED, STAYS):
        rows = [
            row
            for row in tables["backlog_subscriptions"]
            if (row["topic"], row["subscription"]) == (topic, "slow")
        ]
        last = max(rows, key=lambda row: row["pass_ms"])
        slow = pair.stats[topic]["subscriptions"]["slow"]
        assert (last["backlog_entries"], last["backlog_bytes"]) == (
            slow["msgBacklog"],
            pair.stats[topic]["backlogSize"],
        )
        assert slow["msgBacklog"] == 3 * ENTRIES


def test_the_broker_that_is_behind_is_late_by_default(
    pair: Pair, spark: SparkSession, tmp_path: Path
) -> None:
    """The stream's clock is that of the newest record: a minute ahead of the first broker's."""
    tables = stored(judged(pair, tmp_path), TABLES)
    late = tables["quarantine"]
    assert {row["reason_code"] for row in late} == {"TOO_LATE"}
    assert {row["broker"] for row in late} == {pair.brokers[0]}
    assert {row["job"] for row in late} == {"rate_limits", "chunks", "backlog", "entry_cache"}
    needed = [
        int(found[1])
        for row in late
        if (found := re.match(r"idle_advance_ms of (\d+) would have", row["detail"]))
    ]
    assert 0 < min(needed) <= max(needed) <= 1000 * (AHEAD_S + CHECK_S)
