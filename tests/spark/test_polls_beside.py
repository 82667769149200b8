"""Polls beside a streamed source that has records of the same topic: of an hour ago, or live."""

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
EACH, EVERY_MS = 10, 5_000
HOUR_MS = 3_600_000
POLLED = 77_777
"""Bytes that polls find, and the source does not have."""
WAIT_S = 300.0


def lines(feed: str, seq: int, at_ms: int, size: int) -> str:
    """A ledger and a subscription that has read nothing of it."""
    common = {
        "source_feed": feed,
        "cluster": "pulsar-1",
        "broker": "b1",
        "ts_wall_ms": at_ms,
        "topic": "persistent://acme/orders/t",
    }
    ledger = {"ledger_id": 1, "ledger_entries": 10, "ledger_bytes": size}
    cursor = {"subscription": "s", "mark_delete": "1:-1", "durable": True}
    records = [
        {"event_type": "ledger_state", "seq": 2 * seq, **common, **ledger},
        {"event_type": "cursor_state", "seq": 2 * seq + 1, **common, **cursor},
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def put(given: Settings, number: int, first_ms: int, every_ms: int = EVERY_MS) -> None:
    """A file of the source: EACH states of the topic."""
    assert given.streamed is not None
    seqs = range(number * EACH, (number + 1) * EACH)
    text = "".join(lines("plug-in", seq, first_ms + seq % EACH * every_ms, seq) for seq in seqs)
    file = Path(str(given.streamed.path)) / f"{number}.jsonl"
    _complete(file, text)
    os.utime(file, (10**9 + number, 10**9 + number))  # Spark takes them in this order


def poll(given: Settings, number: int, at_ms: int, took_ms: int = 0) -> None:
    """A poll of a broker that is away since; its answers are of the end of the poll."""
    folder = polled.spool_folder(given.polled[0], given.location) / "polls"
    name = f"poll-{at_ms:015d}-{2 * number:015d}.jsonl"
    _complete(folder / name, lines("pulsar_admin", number, at_ms + took_ms, POLLED))


def _complete(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    hidden = file.with_name(f".{file.name}")
    hidden.write_text(text, "utf-8")
    hidden.rename(file)


@pytest.fixture
def both(make_settings: Make, tmp_path: Path) -> Settings:
    away = f"http://127.0.0.1:{free_ports(1)[0]}"
    admin = {"cluster": "pulsar-1", "url": away, "namespaces": ["acme/orders"]}
    folder = tmp_path / "in"
    folder.mkdir()
    return make_settings(
        source=[
            {"format": "files", "path": str(folder), "options": {"maxFilesPerTrigger": "1"}},
            {"format": "pulsar_admin", "admin": admin},
        ],
        partitions=1,
        queries=[["backlog", "archive"]],
        backlog={"check_rows": "all", "backlogQuotaCheckIntervalInSeconds": 1},
        alerts=None,
    )


def accounted(given: Settings) -> Counter[str]:
    """The ledgers in the archive, by feed; none in quarantine."""
    assert table(given, "quarantine").to_pylist() == []
    found = table(given, "events").to_pylist()
    return Counter(row["source_feed"] for row in found if row["event_type"] == "ledger_state")


def checked(given: Settings) -> list[int]:
    """The backlogs of checks, in their order."""
    rows = sorted(table(given, "backlog_checks").to_pylist(), key=lambda row: row["pass_ms"])
    return [row["backlog_bytes"] for row in rows]


@pytest.mark.usefixtures("spark")
def test_polls_wait_for_a_source_that_is_behind(both: Settings) -> None:
    now_ms = int(time.time() * 1000)
    for number in range(4):  # a batch each
        put(both, number, now_ms - HOUR_MS + number * EACH * EVERY_MS)
    poll(both, 0, now_ms)
    run(both, available_now=True)
    assert accounted(both) == {"plug-in": 4 * EACH, "pulsar_admin": 1}
    assert checked(both) and POLLED not in checked(both)
    # What the source has of the time before the poll comes with the next run.
    put(both, 4, now_ms - 60_000)
    run(both, available_now=True, drain=True)
    assert accounted(both) == {"plug-in": 5 * EACH, "pulsar_admin": 1}
    assert checked(both)[-1] == POLLED


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("drains", "took_ms"),
    [("the run that polls", 8000), ("one without polls", 0), ("a third", 8000)],
)
def test_a_drain_decides_what_the_polls_of_earlier_runs_have_left(
    both: Settings, drains: str, took_ms: int
) -> None:
    """Polls in several windows, the last of which takes `took_ms`, beside a source that is an hour
    behind and says at the end something of a time before the last that it has said.
    """
    given = both.model_copy(update={"stats_window_ms": 1000})
    assert given.streamed is not None
    alone = given.model_copy(update={"source": (given.streamed,)})
    old_ms = int(time.time() * 1000) - HOUR_MS
    put(given, 0, old_ms)
    poll(given, 0, int(time.time() * 1000))
    run(given, available_now=True)
    poll(given, 1, int(time.time() * 1000), took_ms)
    run(given, available_now=True, drain=drains == "the run that polls")
    if drains == "a third":
        run(alone, available_now=True)
    put(given, 1, old_ms - 40_000)
    run(alone, available_now=True, drain=True)
    newest_ms = max(row["ts_wall_ms"] for row in table(given, "events").to_pylist())
    judged = [row["pass_ms"] for row in table(given, "backlog_checks").to_pylist()]
    assert checked(given)[-1] == POLLED
    assert newest_ms - 1000 < max(judged) < given.window_end_ms(newest_ms)


def test_polls_amid_a_source_that_is_live_on_their_topic(
    spark: SparkSession, both: Settings
) -> None:
    """Two seconds behind, with records of other times than the polls."""
    archive = govern.Writers(archive=archive_query.writer_of(both, gathers=False))
    query = govern.start(spark, both, both.jobs, {"processingTime": "1 second"}, writers=archive)
    try:
        until = time.monotonic() + WAIT_S
        for number in range(8):
            now_ms = int(time.time() * 1000)
            put(both, number, now_ms - 4_000, 200)
            poll(both, number, now_ms)
            time.sleep(2)
        while accounted(both) != {"plug-in": 8 * EACH, "pulsar_admin": 8}:
            assert query.isActive and time.monotonic() < until
            time.sleep(0.5)
    finally:
        query.stop()
    assert accounted(both)["pulsar_admin"] == 8


def test_polls_of_a_source_that_says_nothing_are_judged(
    spark: SparkSession, both: Settings
) -> None:
    archive = govern.Writers(archive=archive_query.writer_of(both, gathers=False))
    given = both.model_copy(update={"idle_advance_ms": 2_000})
    query = govern.start(spark, given, given.jobs, {"processingTime": "1 second"}, writers=archive)
    try:
        until = time.monotonic() + WAIT_S
        number = 0
        while POLLED not in checked(given):
            assert query.isActive and time.monotonic() < until
            poll(given, number, int(time.time() * 1000))
            number += 1
            time.sleep(3)
    finally:
        query.stop()
    assert table(given, "quarantine").to_pylist() == []
