"""Bad days of a real broker through all jobs, in a run that goes on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from app.run.service import run
from state.jobs import BY_DEFAULT
from tests.servers.live import rows_in, running
from tests.support.backlog_views import asked, stored
from tests.support.recording.large import SIZE, SLOW
from tests.support.recording.limits import BATCHING, rate
from tests.support.recording.scene import Scene, batch, drain, name_of, text_of
from tests.support.servers import pulsar_plugin
from tests.support.servers.pulsar import Pulsar
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from app.config.settings import Settings

pytestmark = pytest.mark.slow
Json = dict[str, Any]
LIMITED, LARGE, KEPT = (name_of("bad-days", name) for name in ("limited", "large", "kept"))
BUFFER = 300
CHECK_S = 2
NEWER = "1.1"


@dataclass(frozen=True)
class Lived:
    """What a run wrote, what the plug-in did, and what the broker said at the end."""

    tables: dict[str, list[Json]]
    records: list[Json]
    unread: int
    """Messages that the slow subscription has not read."""
    bytes: int
    """Size of that backlog."""

    def of_kind(self, *kinds: str) -> list[Json]:
        """Records of some kinds, in the order in which the plug-in wrote them."""
        return [record for record in self.records if record["event_type"] in kinds]


@contextmanager
def away(sink: Path) -> Iterator[None]:
    """The folder that a plug-in writes to is gone: a file is in the place of its link."""
    wait_for(lambda: not list(sink.glob(".*.open")))
    folder = sink.readlink()
    sink.unlink()
    sink.write_text("")
    yield
    sink.unlink()
    sink.symlink_to(folder)


@pytest.fixture(scope="module")
def lived(pulsar: Pulsar, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lived:
    """Sink gone and back, broker killed and started again, then with another plug-in."""
    from app.config.settings import load_settings

    folder = tmp_path_factory.mktemp("bad-days")
    records, sink = folder / "in", folder / "sink"
    records.mkdir()
    sink.symlink_to(records)
    config = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "alerts": None,
            "source": {"format": "files", "path": str(records)},
            "stats_window_ms": 1000,
            "idle_advance_ms": 1000,
            "backlog": {"check_rows": "all"},
        },
    )
    given = {"weirBufferEvents": str(BUFFER), "maxMessageSize": "50000"}
    pulsar_plugin.start(pulsar, sink, **given)
    scene = Scene(pulsar, "")
    scene.namespace("bad-days")
    with running(spark, config):
        lose_the_sink(scene, sink, config)
        pulsar.kill()
        pulsar.start()
        use(scene)
        caught_up(config, records)
        pulsar_plugin.start(pulsar, sink, NEWER, **given)
        use(scene)
        stats = scene.stats(KEPT)
    for _ in range(2):  # the clock of a batch is that of the batch before
        time.sleep(2 * CHECK_S)
        with scene.client():
            time.sleep(1)
        time.sleep(1)
        assert run(config, available_now=True) == 0
    tables = stored(
        config,
        [
            "events",
            "quarantine",
            "coverage_counts",
            "coverage_gaps",
            "throttle_events",
            "topic_throttle_stats",
            "chunk_events",
            "backlog_checks",
            "backlog_subscriptions",
            "cache_stats",
        ],
    )
    slow = stats["subscriptions"]["slow"]
    return Lived(tables, records_of(records), slow["msgBacklog"], stats["backlogSize"])


def lose_the_sink(scene: Scene, sink: Path, config: Settings) -> None:
    """A half-sent message, a throttled topic and a backlog; then the sink goes, and comes back."""
    for topic in (LIMITED, LARGE):
        scene.topic(topic)
    scene.set(LIMITED, "publishRate", rate(500))
    scene.set(LARGE, "publishRate", SLOW)
    with scene.client() as one:
        one.subscribe(KEPT, "slow").close()
        waiting = one.subscribe(LARGE, "archive", consumer_name="waits")
        process = scene.sender(LARGE, "stopped", text_of(SIZE, 1))
        wait_for(lambda: scene.stats(LARGE)["msgInCounter"] >= 2)
        process.kill()
        process.wait()
        use(scene)
        caught_up(config, sink)
        producer = one.create_producer(KEPT, batching_enabled=False)
        with away(sink):
            for _ in range(2 * BUFFER):
                producer.send_async(b"x" * 100, None)
            producer.flush()
        wait_for(lambda: pulsar_plugin.records(sink, "gap"))
        use(scene)
        waiting.close()
        caught_up(config, sink)


def use(scene: Scene) -> None:
    """One pause of a topic, and some entries that a fast subscription reads."""
    with scene.client() as one:
        fast = one.subscribe(KEPT, "fast")
        batch(one.create_producer(LIMITED, **BATCHING), 700)
        producer = one.create_producer(KEPT, batching_enabled=False)
        for _ in range(20):
            producer.send(b"x" * 100)
        drain(fast, 1000)


def records_of(folder: Path) -> list[Json]:
    return pulsar_plugin.records(folder)


def caught_up(config: Settings, folder: Path) -> None:
    """Wait until the run has read what the plug-in has shown."""
    shown = len(records_of(folder))
    wait_for(lambda: rows_in(config) >= shown, 120)


def test_every_record_is_judged_once(lived: Lived) -> None:
    assert lived.tables["quarantine"] == []
    assert sorted(row["seq"] for row in lived.tables["events"]) == [
        record["seq"] for record in lived.records
    ]


def test_the_gaps_are_those_of_the_plug_in(lived: Lived) -> None:
    """Those of a full buffer, with their sizes, and one of the killed broker, without."""
    gaps = lived.of_kind("gap")
    full, (killed,) = ([gap for gap in gaps if ("dropped" in gap) == has] for has in (True, False))
    assert full
    holes = {
        after["seq"]: after["seq"] - before["seq"] - 1
        for before, after in pairwise(lived.records)
        if after in full
    }
    assert {gap["seq"]: gap["dropped"] for gap in full} == holes
    minutes = asked(lived.tables, "coverage")
    assert sum(row["gaps"] for row in minutes) == len(gaps)
    assert sum(row["received"] for row in minutes) == len(lived.records)
    found = {row["minute_ms"]: row for row in minutes}
    assert found[minute(killed)]["dropped"] is None
    for gap in gaps:
        assert found[minute(gap)]["blind_jobs"] == sorted(BY_DEFAULT)


def minute(record: Json) -> int:
    return int(record["ts_wall_ms"]) // 60_000 * 60_000


def test_a_plug_in_of_another_version_says_so_and_loses_nothing(lived: Lived) -> None:
    starts = lived.of_kind("broker_started")
    assert [record["plugin_version"] for record in starts] == [
        pulsar_plugin.VERSION,
        pulsar_plugin.VERSION,
        NEWER,
    ]
    assert all(gap["seq"] < starts[2]["seq"] for gap in lived.of_kind("gap"))


def test_what_was_half_sent_is_lost_to_sight(lived: Lived) -> None:
    rows = [(row["consumer"], row["outcome"]) for row in lived.tables["chunk_events"]]
    assert rows == [("waits", "LOST_TO_SIGHT")]


def test_each_start_has_its_pause(lived: Lived) -> None:
    """The topic goes over its limit once before the gap, after it, and in each of two new runs."""
    stats = [row for row in lived.tables["topic_throttle_stats"] if row["topic"] == LIMITED]
    assert sum(row["culprit_times"] for row in stats) == 4


def test_the_backlog_is_the_brokers_in_the_end(lived: Lived) -> None:
    """Entries of the gap were never seen; ledgers and cursors that are stated have them."""
    rows = [
        row
        for row in lived.tables["backlog_subscriptions"]
        if (row["topic"], row["subscription"]) == (KEPT, "slow")
    ]
    last = max(rows, key=lambda row: row["pass_ms"])
    assert (last["backlog_entries"], last["backlog_bytes"]) == (lived.unread, lived.bytes)
    assert lived.unread == 2 * BUFFER + 4 * 20


def test_a_cache_after_a_gap_does_not_guess(lived: Lived) -> None:
    """The fast subscription reads everything at once, entries of the gap as well: what Weir does
    not find in its cache is not known, and never a miss."""
    rows = [row for row in lived.tables["cache_stats"] if row["topic"] == KEPT]
    assert sum(row["misses"] for row in rows) == 0
    unknown = sum(row["unknown_reads"] or 0 for row in rows)
    assert unknown > 0
    assert sum(row["hits"] for row in rows) + unknown == 2 * BUFFER + 4 * 20
