"""A trace for live brokers, a run over the same records from a file, and runs in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from app.config.settings import Settings
from app.engine.assignment import apply, plan
from app.run.service import Service, run
from app.run.shutdown import Stopping
from app.tables import inventory
from tests.support.servers.kafka import Kafka
from tests.support.traces import all_rows, by_broker, punctual_trace
from tests.support.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = 30_000
APART_MS = 600_000
"""A batch of so many records is minutes long here, and its partitions not equally far in it."""
PARTITIONS = 2
MakeSettings = Callable[..., Settings]
Lines = list[tuple[int, bytes]]


@pytest.fixture(scope="package")
def lines() -> Lines:
    """The records of a trace, by broker."""
    return by_broker(punctual_trace(EVENTS))


def policies() -> list[dict[str, object]]:
    """The limits of the trace's fleet."""
    return punctual_trace(EVENTS).policies


@pytest.fixture(scope="package")
def reference_warehouse(
    lines: Lines, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """The warehouse of a run over the same records from one file, in one batch."""
    from app.config.settings import load_settings

    folder = tmp_path_factory.mktemp("reference")
    (folder / "in").mkdir()
    (folder / "in" / "all.jsonl").write_bytes(b"\n".join(line for _, line in lines))
    settings = load_settings(
        None,
        {
            "warehouse": str(folder / "warehouse"),
            "partitions": 2,
            "alerts": None,
            "policies": policies(),
            "idle_advance_ms": APART_MS,
            "source": {"format": "files", "path": str(folder / "in")},
        },
    )
    assert run(settings, available_now=True) == 0
    return settings.warehouse


@pytest.fixture(scope="package")
def reference(reference_warehouse: str) -> dict[str, list[tuple[object, ...]]]:
    """Its tables of archive and `rate_limits`."""
    return all_rows(reference_warehouse)


@contextmanager
def running(spark: SparkSession, settings: Settings) -> Iterator[None]:
    """A run without an end; it is asked to stop at the end of the block and must end by itself."""
    stopping, failed = Stopping(), []
    inventory.claim(
        settings.location, int(spark.conf.get("spark.sql.shuffle.partitions") or 0), settings.shards
    )

    made = plan(settings)
    apply(settings.location, made)

    def work() -> None:
        try:
            Service(spark, settings, made.queries, False, stopping).work()
        except Exception as error:  # noqa: BLE001  it is raised again in the test's thread
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stopping.ask()
        thread.join(90)
    assert not thread.is_alive()
    assert not failed, failed


def rows_in(settings: Settings, table: str = "events") -> int:
    """How many rows a table has now."""
    path = f"{settings.warehouse}/{table}"
    if not DeltaTable.is_deltatable(path):
        return 0
    return int(DeltaTable(path).to_pyarrow_dataset().count_rows())


def offsets(kafka: Kafka, topic: str, partitions: int = PARTITIONS) -> list[tuple[str, int]]:
    """Identity of every record that the topic holds."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": kafka.servers, "group.id": "none"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=PATIENCE_S)[1]
            for p in range(partitions)
        ]
    finally:
        consumer.close()
    return sorted((str(p), o) for p, end in enumerate(ends) for o in range(end))
