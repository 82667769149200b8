"""Polls of now beside a streamed source that has records of the same topic from an hour ago."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.config.settings import Settings
from app.engine import archive_query, govern
from app.run.service import run
from app.sources import polled
from tests.spark.runners import table
from tests.support.servers.process import free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Make = Callable[..., Settings]
FILES, EACH, EVERY_MS = 6, 10, 5_000
WAIT_S = 60.0


def sizes(at_ms: int, seq: int, feed: str) -> str:
    """The size of a topic's ledger."""
    record = {
        "event_type": "ledger_state",
        "source_feed": feed,
        "cluster": "pulsar-1",
        "broker": "b1",
        "seq": seq,
        "ts_wall_ms": at_ms,
        "topic": "persistent://acme/orders/t",
        "ledger_id": 1,
        "ledger_entries": 1 + seq,
        "ledger_bytes": 100 * (1 + seq),
    }
    return json.dumps(record)


@pytest.fixture
def both(make_settings: Make, tmp_path: Path) -> Settings:
    """Files of an hour ago, a batch each, and a poll of now by a broker that is away since."""
    folder = tmp_path / "in"
    folder.mkdir()
    now_ms = int(time.time() * 1000)
    old_ms = now_ms - 3_600_000
    for number in range(FILES):
        seqs = range(number * EACH, (number + 1) * EACH)
        lines = [sizes(old_ms + seq * EVERY_MS, seq, "plug-in") for seq in seqs]
        file = folder / f"{number}.jsonl"
        file.write_text("\n".join(lines), "utf-8")
        os.utime(file, (1000 + number, 1000 + number))
    given = make_settings(
        source=[
            {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "1"}},
            {
                "format": "pulsar_admin",
                "admin": {
                    "cluster": "pulsar-1",
                    "url": f"http://127.0.0.1:{free_ports(1)[0]}",
                    "namespaces": ["acme/orders"],
                },
            },
        ],
        partitions=1,
        idle_advance_ms=3_000,
        allowed_lateness_ms=0,
        queries=[["backlog", "archive"]],
    )
    polls = polled.spool_folder(given.polled[0], given.location) / "polls"
    polls.mkdir(parents=True)
    (polls / f"poll-{now_ms:015d}-{0:015d}.jsonl").write_text(sizes(now_ms, 0, "pulsar_admin"))
    return given


def accounted(given: Settings) -> Counter[str]:
    """The sizes in the archive, by feed; none in quarantine."""
    assert table(given, "quarantine").to_pylist() == []
    found = table(given, "events").to_pylist()
    return Counter(row["source_feed"] for row in found if row["event_type"] == "ledger_state")


@pytest.mark.usefixtures("spark")
def test_a_run_with_an_end_reads_polls_behind_the_streamed_source(both: Settings) -> None:
    run(both, available_now=True, drain=True)
    assert accounted(both) == {"plug-in": FILES * EACH, "pulsar_admin": 1}


def test_an_endless_run_reads_polls_when_it_has_caught_up(
    spark: SparkSession, both: Settings
) -> None:
    archive = archive_query.writer_of(both, gathers=False)
    query = govern.start(
        spark,
        both,
        both.jobs,
        {"processingTime": "1 second"},
        writers=govern.Writers(archive=archive),
    )
    try:
        until = time.monotonic() + WAIT_S
        while accounted(both)["pulsar_admin"] == 0:
            assert query.isActive and time.monotonic() < until
            time.sleep(0.5)
    finally:
        query.stop()
    assert accounted(both) == {"plug-in": FILES * EACH, "pulsar_admin": 1}
