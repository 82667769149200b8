"""Runs streaming queries to their end and reads their speed from Spark's own progress."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.config.settings import Settings, load_settings
from app.run.progress import records
from app.run.session import build_session
from benchmarks.inputs import Input
from benchmarks.result import middle
from benchmarks.trace import POLICY, Traffic
from tests.support.servers.kafka import Kafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

END = {"availableNow": True}


@dataclass(frozen=True)
class Bench:
    """What every benchmark gets: a session, a place for its files, and how large to be."""

    spark: SparkSession | None
    folder: Path
    small: bool = False

    @contextmanager
    def broker(self, name: str, properties: Mapping[str, object] | None = None) -> Iterator[Kafka]:
        """A broker with these properties."""
        broker = Kafka(self.folder / name, properties)
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()

    def traffic(self, **more: Any) -> Traffic:
        """Traffic of ten seconds or more, in small runs too."""
        return Traffic(**{"rate": 1_000, **more} if self.small else more)

    def trace(self, name: str, traffic: Traffic, events: int = 5_000_000) -> Input:
        """A trace of about `events` in ten micro-batches; a few thousand events if small."""
        size = 500 if self.small else events // 20
        count = 6 if self.small else 20
        return Input(self.folder / f"trace-{name}", traffic, count, size, 2).write()

    def settings(self, name: str, source: dict[str, Any], **more: Any) -> Settings:
        """Settings on a warehouse of its own, which does not exist yet."""
        warehouse = self.folder / f"warehouse-{name}"
        shutil.rmtree(warehouse, ignore_errors=True)
        return load_settings(
            None,
            {
                "warehouse": str(warehouse),
                "partitions": 2,
                "source": source,
                "policies": [POLICY],
                **more,
            },
        )

    def to_nothing(self, frame: DataFrame, name: str) -> Speed:
        """Run a stream to its end, its rows thrown away."""
        checkpoint = self.folder / f"checkpoint-{name}"
        shutil.rmtree(checkpoint, ignore_errors=True)
        query = (
            frame.writeStream.format("noop")
            .queryName(name)
            .outputMode("append")
            .option("checkpointLocation", str(checkpoint))
            .trigger(**END)
            .start()
        )
        return finished(query)


@dataclass(frozen=True)
class Speed:
    """Events per second of the batches after the first, which carries all that happens once."""

    median: float
    spread: tuple[float, float] | None
    batches: int
    batch_ms: float
    add_batch_ms: float
    progress: tuple[dict[str, Any], ...]


def open_session() -> SparkSession:
    """A session as the product builds it, on two cores."""
    spark = build_session(load_settings(None, {"partitions": 2}), "weir-bench", master="local[2]")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def after_first(query: StreamingQuery) -> None:
    """Wait until a query has ended its first batch, which carries all that happens once."""
    while query.isActive and not any(records(p) for p in query.recentProgress):
        time.sleep(0.02)


def finished(*queries: StreamingQuery) -> Speed:
    """Wait for queries to end; the speed of the first."""
    for query in queries:
        query.awaitTermination()
    every = [_plain(p) for p in queries[0].recentProgress if records(p)]
    steady = every[1:] or every
    rates = [p["events"] * 1000 / p["durationMs"]["triggerExecution"] for p in steady]
    value, spread = middle(rates)
    return Speed(
        value,
        spread,
        len(steady),
        middle([p["durationMs"]["triggerExecution"] for p in steady])[0],
        middle([p["durationMs"]["addBatch"] for p in steady])[0],
        tuple(steady),
    )


def _plain(progress: Any) -> dict[str, Any]:
    return {
        "events": records(progress),
        "durationMs": dict(progress["durationMs"]),
        "stateOperators": progress["stateOperators"],
    }
