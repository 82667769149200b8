"""The metric of the job: messages of each cluster."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.show.metrics.definition import Definition, MetricsSection
from app.show.metrics.entities import Bounds
from app.show.metrics.part import MetricsPart, Sample, Sums, rows

_COUNTED = "SELECT cluster, sum(messages) FROM topic_message_counts GROUP BY cluster"


class MessageCounts(MetricsPart):
    """Sums over the windows."""

    reads = ("topic_message_counts",)

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._sums = Sums("weir_messages_total")

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._sums.add(rows(fresh, _COUNTED))

    def samples(self) -> Iterator[Sample]:
        yield from self._sums.samples()


METRICS = (
    MetricsSection(
        "Messages",
        (
            Definition(
                "weir_messages_total",
                "counter",
                ("cluster",),
                "Messages persisted.",
                "topic_message_counts",
            ),
        ),
        (MessageCounts,),
    ),
)
