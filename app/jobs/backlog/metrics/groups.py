"""Metrics of Kafka groups: lag by partition, what was lost, and the time until that."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from app.read.databases import fileless
from app.show.metrics.definition import Definition, MetricsSection, defined
from app.show.metrics.entities import OTHER, Bounds
from app.show.metrics.part import MetricsPart, Sample, Sums, labels, rows

LAG = "weir_group_lag"
AGE = "weir_group_lag_seconds"
TIME_TO_LOSS = "weir_group_time_to_loss_seconds"
LOST = "weir_group_lost_offsets_total"
USED = "weir_group_retention_used_ratio"
IN_STATE = "weir_group_partitions"
CONSUMERS = "weir_group_state"
_COLUMNS = """cluster, "group", topic, partition, pass_ms, row_no, state, lag, age_s,
  time_to_loss_s, CASE WHEN age_state = 'known' THEN time_usage END AS used,
  coalesce(log_end > coalesce(log_start, 0), false) AS has_records"""
_NEWEST = """
QUALIFY row_number() OVER (
  PARTITION BY cluster, "group", topic, partition ORDER BY pass_ms DESC, row_no DESC
) = 1
"""
# The largest have series of their own; the rest of a group is one, so that sums over a group hold.
_RANKED = """
SELECT cluster, "group", topic, partition, greatest(lag, 0) AS lag, age_s, time_to_loss_s, used,
  row_number() OVER (ORDER BY greatest(lag, 0) DESC, cluster, "group", topic, partition) AS place
FROM newest WHERE state IN ('committed', 'ahead', 'open_transaction', 'pending_offsets')
"""
_STATES = """
SELECT cluster, state, count(*) FROM newest
WHERE state NOT IN ('gone', 'offsets_expired') AND (state <> 'no_offset' OR has_records)
GROUP BY ALL
"""
_WHOLE = """
SELECT cluster, "group", state FROM group_states WHERE topic IS NULL
ORDER BY pass_ms, ts_wall_ms, row_no
"""
_LOST = """
SELECT cluster, "group", topic, CAST(sum(offsets) AS BIGINT) FROM lost_messages GROUP BY ALL
"""


class Groups(MetricsPart):
    """Lag of groups at the newest check of each partition."""

    reads = ("group_lag", "lost_messages", "group_states")

    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self._lost = Sums(LOST)
        self._whole: dict[tuple[str, ...], str] = {}
        """By cluster and group the newest state of the whole group."""
        self._kept = fileless()
        self._kept.execute(
            'CREATE TEMP TABLE newest (cluster VARCHAR, "group" VARCHAR, topic VARCHAR,'
            " partition INTEGER, pass_ms BIGINT, row_no INTEGER, state VARCHAR, lag BIGINT,"
            " age_s BIGINT, time_to_loss_s DOUBLE, used DOUBLE, has_records BOOLEAN)"
        )

    def take(self, fresh: duckdb.DuckDBPyConnection) -> None:
        self._lost.add(rows(fresh, _LOST))
        for *names, state in rows(fresh, _WHOLE):
            self._whole[labels(names)] = state
        self._whole = {key: state for key, state in self._whole.items() if state != "known"}
        self._kept.register(
            "fresh", fresh.sql(f"SELECT {_COLUMNS} FROM group_lag {_NEWEST}").to_arrow_table()
        )
        # A row that ends a group stays for the next call, since it is the newest of its group.
        self._kept.execute(
            "CREATE OR REPLACE TEMP TABLE newest AS SELECT * FROM (FROM newest UNION ALL FROM fresh)"
            + _NEWEST
        )
        self._kept.unregister("fresh")

    def samples(self) -> Iterator[Sample]:
        # From 0 on, so that the increase by a first loss is seen.
        lost = {key: value for _, key, value in self._lost.samples()}
        rest: dict[tuple[str, ...], int] = {}
        named: set[tuple[str, ...]] = set()
        for *names, lag, age_s, left_s, used, place in rows(self._kept, _RANKED):
            key = labels(names)
            if place > self.bounds.top:
                of_group = (*key[:2], OTHER, "")
                rest[of_group] = rest.get(of_group, 0) + lag
                continue
            yield LAG, key, lag
            named.add(key[:2])
            lost.setdefault(key[:3], 0.0)
            for name, value in ((AGE, age_s), (TIME_TO_LOSS, left_s), (USED, used)):
                if value is not None:
                    yield name, key, value
        for key, lag in rest.items():
            yield LAG, key, lag
        for key, count in lost.items():
            yield LOST, key, count
        for key in sorted(named & self._whole.keys()):
            yield CONSUMERS, (*key, self._whole[key]), 1
        for cluster, state, count in rows(self._kept, _STATES):
            yield IN_STATE, labels((cluster, state)), count


_PARTITION = ("cluster", "group", "topic", "partition")
_DEFINITIONS = (
    *defined(
        _PARTITION,
        "group_lag",
        (
            "weir_group_lag",
            "gauge",
            "Kafka: offsets between a group and the end of the log at the newest check, 0 if it"
            " is ahead. The rest of a group is topic=other.",
        ),
        (
            "weir_group_lag_seconds",
            "gauge",
            "Kafka: age of the oldest unread record; absent without one.",
        ),
        (
            "weir_group_time_to_loss_seconds",
            "gauge",
            "Kafka: time until unread records may be deleted; 0 = now, absent if not expected.",
        ),
        (
            "weir_group_retention_used_ratio",
            "gauge",
            "Kafka: age of the oldest unread record / retention, by a timestamp that was read;"
            " absent without one.",
        ),
        bounded=True,
    ),
    Definition(
        "weir_group_lost_offsets_total",
        "counter",
        ("cluster", "group", "topic"),
        "Kafka: offsets that were deleted before the group read them, each counted once.",
        "lost_messages",
    ),
    Definition(
        "weir_group_partitions",
        "gauge",
        ("cluster", "state"),
        "Kafka: partitions of groups by state: committed, ahead, open_transaction, pending_offsets,"
        " or no_offset where there are records.",
        "group_lag",
    ),
    Definition(
        "weir_group_state",
        "gauge",
        ("cluster", "group", "state"),
        "Kafka: 1 for the state of a group that has a series of weir_group_lag: stable,"
        " rebalancing, empty = it has no consumer, or dead.",
        "group_states",
    ),
)
GROUPS = MetricsSection("Kafka groups", _DEFINITIONS, (Groups,), place=2)
