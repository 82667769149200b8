"""A backlog of several Kafka partitions: caught up in many batches, it gives the rows of the run
that was never interrupted."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from app.config.settings import Settings, load_settings
from app.run.service import run
from app.tables import checkpoints
from tests.servers.live import running
from tests.support.servers.kafka import Kafka
from tests.support.traces import by_broker, every_row, punctual_trace
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.kafka

EVENTS = 18_000
PARTITIONS = 3
AHEAD, AHEAD_MS = 1, 2 * 3_600_000
"""The partition whose records begin two hours after those of the others."""
SLICES = 3
MOST = 2_000
"""Records of a batch of the catch-up, so that it has several."""
TIMES = {
    "ts_wall_ms": 1,
    "publish_time_ms": 1,
    "broker_time_ms": 1,
    "ledger_close_ms": 1,
    "ts_mono_ns": 1_000_000,
}
"""Columns of the contract that hold a time, and their units in a millisecond."""
QUERY = "govern"
Lines = list[tuple[int, bytes]]
MakeSettings = Callable[..., Settings]
Rows = dict[str, list[tuple[Any, ...]]]


def later(line: bytes, by_ms: int) -> bytes:
    """A record with all of its times moved; one that cannot be read as it is."""
    try:
        record = json.loads(line)
    except ValueError:
        return line
    for name, unit in TIMES.items():
        if isinstance(record.get(name), int):
            record[name] += by_ms * unit
    return json.dumps(record).encode()


@pytest.fixture(scope="module")
def lines() -> Lines:
    """(partition, record) in the order in which a run beside the brokers would get them."""
    found = [(broker % PARTITIONS, line) for broker, line in by_broker(punctual_trace(EVENTS))]
    return [
        *((p, line) for p, line in found if p != AHEAD),
        *((p, later(line, AHEAD_MS)) for p, line in found if p == AHEAD),
    ]


@pytest.fixture(scope="module")
def uninterrupted(
    lines: Lines, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Rows:
    """The tables of a run that got every record soon after it was written, batch by batch."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    (folder / "in").mkdir()
    size = -(-len(lines) // SLICES)
    for number in range(SLICES):
        file = folder / "in" / f"{number}.jsonl"
        file.write_bytes(b"\n".join(line for _, line in lines[number * size :][:size]))
        os.utime(file, (number, number))
    settings = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "alerts": None,
            "policies": punctual_trace(EVENTS).policies,
            "source": {
                "format": "files",
                "path": str(folder / "in"),
                "options": {"maxFilesPerTrigger": 1},
            },
        },
    )
    assert run(settings, available_now=True) == 0
    return every_row(settings.warehouse)


@pytest.fixture
def topic(kafka: Kafka) -> str:
    """A topic of the test's own."""
    kafka.create_topic(topic := f"backlog-{uuid4().hex}", PARTITIONS)
    return topic


@pytest.fixture
def settings(make_settings: MakeSettings, kafka: Kafka, topic: str) -> Settings:
    """All jobs in small batches, every distance as it is by default."""
    return make_settings(
        policies=punctual_trace(EVENTS).policies,
        source={
            "format": "kafka",
            "options": {
                "kafka.bootstrap.servers": kafka.servers,
                "subscribe": topic,
                "maxOffsetsPerTrigger": MOST,
            },
        },
    )


@pytest.mark.parametrize(
    "read_before",
    [
        0,
        pytest.param(EVENTS // 4, marks=pytest.mark.slow),
    ],
)
def test_partitions_hours_apart_are_caught_up_without_a_late_record(
    kafka: Kafka,
    topic: str,
    settings: Settings,
    lines: Lines,
    uninterrupted: Rows,
    read_before: int,
) -> None:
    if read_before:
        kafka.produce_to(topic, lines[:read_before])
        assert run(settings, available_now=True) == 0
    batches = checkpoints.last_ended(settings.location, QUERY)

    kafka.produce_to(topic, lines[read_before:])
    assert run(settings, available_now=True) == 0

    assert checkpoints.last_ended(settings.location, QUERY) - batches >= 6
    caught_up = every_row(settings.warehouse)
    assert not [row for row in caught_up["quarantine"] if "TOO_LATE" in row]
    assert caught_up == uninterrupted


def newest_written(settings: Settings) -> int:
    """The newest batch of the query in any of its tables, whether it has ended or not."""
    committed = checkpoints.committed(settings.location, QUERY).tables
    return max(
        DeltaTable(f"{settings.warehouse}/{name}").transaction_version(one.application) or 0
        for name, one in committed.items()
    )


def forget_end_of(settings: Settings, batch: int) -> None:
    """Remove from the checkpoint that a batch has ended, and the plan of the next one."""
    place = Path(checkpoints.location(settings.location, QUERY))
    for file in (place / f"commits/{batch}", place / f"offsets/{batch + 1}"):
        for one in (file, file.with_name(f".{file.name}.crc")):
            one.unlink(missing_ok=True)


def test_a_catch_up_that_is_stopped_and_repeats_a_batch_gives_the_same_rows(
    kafka: Kafka,
    topic: str,
    settings: Settings,
    lines: Lines,
    uninterrupted: Rows,
    spark: SparkSession,
) -> None:
    kafka.produce_to(topic, lines)
    with running(spark, settings):
        wait_for(lambda: checkpoints.last_ended(settings.location, QUERY) >= 2)
    last = checkpoints.last_ended(settings.location, QUERY)
    if newest_written(settings) <= last:  # else the stop interrupted a batch that had written
        forget_end_of(settings, last)

    assert run(settings, available_now=True) == 0

    assert checkpoints.last_ended(settings.location, QUERY) >= last + 2
    assert every_row(settings.warehouse) == uninterrupted
