"""A month of polls in minutes: the wall clock of the run steps by hours, files of polls are kept for
seconds, and retention and maintenance of the tables pass again and again. Two restarts come between.
"""

from __future__ import annotations

import contextlib
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from app import folders
from app.config.settings import Settings, load_settings
from tests.crash.clock import no_compiler, shifted
from tests.crash.service import Service
from tests.servers.kafka_groups import AGED_MS, Cluster, now_ms, standing
from tests.spark.runners import table
from tests.support.servers.admin import AdminServer
from tests.support.servers.kafka import Kafka
from tests.unit.sources.pulsar import documents

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.slow,
    pytest.mark.skipif(bool(no_compiler()), reason=no_compiler()),
]
DAY_S = 86_400
STEP_S, EVERY_S = 6 * 3600, 2.0
LEGS = (12, 9, 10)
"""Days of the run until each of its ends."""
KEPT = 10
"""Polls of a feed whose files are kept."""
FEEDS = ("kafka_groups", "kafka_producers", "kafka_quotas", "pulsar_admin")
HOUR_MS = 3_600_000
QUERY = "govern-producer_ids-backlog-client_quotas"


@pytest.fixture
def brokers(kafka: Kafka) -> Iterator[tuple[Cluster, AdminServer]]:
    """A broker of Kafka with a group that stands, and an admin interface of Pulsar with a topic."""
    with standing(kafka) as cluster, AdminServer() as pulsar:
        cluster.produce(0, 10, now_ms() - AGED_MS)
        cluster.commit("g", 3)
        pulsar.answers["persistent/public/n1"] = [documents.TOPIC]
        pulsar.topic(
            documents.TOPIC.removeprefix("persistent://"),
            internal=documents.internal(),
            info=documents.info(),
            stats=documents.stats(),
        )
        yield cluster, pulsar


def configured(folder: Path, cluster: Cluster, pulsar: AdminServer) -> Path:
    every_ms = int(EVERY_S * 1000)
    polls = {"interval_ms": every_ms, "keep_ms": KEPT * every_ms, "timeout_ms": 10_000}
    admin = {"cluster": "p", "url": pulsar.url, "namespaces": ["public/n1"], "policies": []}
    config = folder / "weir.yaml"
    config.write_text(
        yaml.safe_dump(
            {
                "warehouse": str(folder / "warehouse"),
                "source": [
                    {
                        "format": ["kafka_groups", "kafka_producers", "kafka_quotas"],
                        "cluster": "k",
                        "options": {"kafka.bootstrap.servers": cluster.kafka.servers},
                        "groups": polls,
                        "producers": polls,
                        "quotas": polls,
                    },
                    {"format": "pulsar_admin", "admin": {**admin, **polls}},
                ],
                "partitions": 1,
                "quality": {"interval_ms": 20_000},
                "maintenance": {
                    "interval_ms": 5_000,
                    "history_ms": HOUR_MS,
                    "orphans_ms": HOUR_MS,
                    "retention": [
                        {"table": name, "keep_ms": 5 * DAY_S * 1000}
                        for name in ("events", "quality_results", "backlog_checks")
                    ],
                },
            }
        )
    )
    return config


def files(settings: Settings, feed: str) -> list[int]:
    """The number of the first record of each file of a feed."""
    (polls,) = folders.matching(Path(settings.warehouse), f"_weir/polls/{feed}.*/polls")
    return [int(name.split("-")[2].split(".")[0]) for name in folders.names(polls)]


def test_a_month_of_polls(tmp_path: Path, brokers: tuple[Cluster, AdminServer]) -> None:
    config = configured(tmp_path, *brokers)
    settings = load_settings(config)
    shift, now_s = tmp_path / "clock", 0
    said = ""
    for leg, days in enumerate(LEGS):
        service = Service(config, variables=shifted(tmp_path, now_s))
        with contextlib.closing(service) as run:
            run.wait_for_batches(1, QUERY)
            end_s = now_s + days * DAY_S
            while now_s < end_s:
                now_s += STEP_S
                with shift.open("r+b") as file:  # the same file: it is mapped
                    file.write(struct.pack("=q", now_s))
                until_s = time.monotonic() + EVERY_S
                run.wait(lambda until_s=until_s: time.monotonic() > until_s)  # type: ignore[misc]
            run.wait_for_batches(2, QUERY)
            if leg == 1:
                run.kill()
            else:
                run.stop()
            said += run.said
    assert now_s >= 30 * DAY_S
    # Not those of Spark, whose heartbeats are late by the step, and of audits, which read a version
    # whose history ends with it.
    wrong = ("Traceback", "not polled", "internal error", "maintenance: ", "alerts: ", "gone")
    assert [line for line in said.splitlines() if any(word in line for word in wrong)] == []
    events = [row for row in table(settings, "events").to_pylist() if row["seq"] is not None]
    for feed in FEEDS:
        left = files(settings, feed)
        assert left[0] > 0, f"{feed}: retention has removed the first file"
        assert len(left) < sum(LEGS) * DAY_S / STEP_S / 2, f"{feed}: the files of half a month"
        seqs = sorted(row["seq"] for row in events if row["source_feed"] == feed)
        # Each record once: what is missing is older than the retention of the table.
        assert seqs == list(range(seqs[0], seqs[-1] + 1)), feed
        assert seqs[0] > 0, feed
    oldest_ms = min(row["ts_wall_ms"] for row in events)
    assert oldest_ms > now_ms() + (now_s - 7 * DAY_S) * 1000
    log = folders.names(Path(settings.warehouse, "events", "_delta_log"))
    assert f"{0:020d}.json" not in log, "maintenance has removed the first commits"
