"""What must hold of the throttle tables: schema, keys, ranges, and every unmark has its mark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from app.tables import TABLES

TYPES = (
    "ConnectionMaxPendingPublishRequestsExceeded", "IOThreadMaxPendingPublishBytesExceeded",
    "TopicPublishRate", "ResourceGroupPublishRate", "BrokerPublishRate",
    "ConnectionOutboundBufferFull", "ConnectionPauseReceivingCooldownRateLimit",
)
REASONS = (
    "ConnectionPendingMessagesBreach", "MessageBufferSizeBreach", "TopicProduceQuotaExceeded",
    "ResourceGroupProduceQuotaExceeded", "BrokerProduceQuotaExceeded", "UNMAPPED",
)
RULES = (
    "bucket_empty", "released", "limit_removed", "in_flight_limit", "in_flight_half",
    "buffer_limit", "buffer_half", "receipt_in_time", "receipt_timeout", "client_unsupported",
    "informed_only", "connection_closed", "send_timeout",
)
LIMITERS = ("topic", "resource_group", "broker", "connection", "io_thread")
KEY = ("cluster", "broker", "ts_wall_ms", "ts_mono_ns", "row_no")
"""What no two rows of an output table of one job share."""


@dataclass(frozen=True)
class Check:
    """One expectation: its class in Great Expectations, its arguments and the name it goes by."""

    kind: str
    arguments: dict[str, Any]
    name: str = ""

    @property
    def column(self) -> str | None:
        """The columns that it is about, as the results name them."""
        columns = self.arguments.get("column_list")
        if columns and self.kind == "ExpectCompoundColumnsToBeUnique":
            return ",".join(columns)
        return self.arguments.get("column")


def rows_that(name: str, condition: str) -> Check:
    """No row satisfies `condition`; `name` says what holds instead."""
    return no_rows(name, f"SELECT * FROM {{batch}} WHERE {condition}")


def no_rows(name: str, sql: str) -> Check:
    """A query over `{batch}` finds nothing."""
    return Check("UnexpectedRowsExpectation", {"unexpected_rows_query": sql}, name)


def values(column: str, allowed: tuple[str, ...]) -> Check:
    """Every value that is not null is one of `allowed`."""
    return Check("ExpectColumnValuesToBeInSet", {"column": column, "value_set": list(allowed)})


def between(column: str, least: int | None, most: int | None = None) -> Check:
    """Every value that is not null lies in a closed range; None is open."""
    arguments = {"column": column, "min_value": least, "max_value": most}
    return Check("ExpectColumnValuesToBeBetween", arguments)


def unique(*columns: str) -> Check:
    """No two rows share the values of `columns`."""
    return Check("ExpectCompoundColumnsToBeUnique", {"column_list": list(columns)})


def not_null(*columns: str) -> list[Check]:
    """The columns always have a value."""
    return [Check("ExpectColumnValuesToNotBeNull", {"column": column}) for column in columns]


def schema(table: str) -> list[Check]:
    """The columns of `app.tables`, in order, with their types as Spark names them."""
    ordered = Check("ExpectTableColumnsToMatchOrderedList",
                    {"column_list": list(TABLES[table].names)})
    return [ordered] + [
        Check("ExpectColumnValuesToBeOfType", {"column": field.name, "type_": _spark(field.type)})
        for field in TABLES[table].schema
    ]


def _spark(kind: pa.DataType) -> str:
    if pa.types.is_map(kind):
        return "MapType"
    if pa.types.is_list(kind):
        return "ArrayType"
    return {"string": "StringType", "int64": "LongType", "int32": "IntegerType",
            "bool": "BooleanType", "double": "DoubleType"}[str(kind)]


# Marks and unmarks of one connection and type, counted in time order. Dropped ones count too: a
# producer that waits twice is marked and unmarked twice, whatever the tracker made of it.
_UNMARK_WITHOUT_MARK = """
SELECT * FROM (
  SELECT *, sum(CASE action WHEN 'mark' THEN 1 WHEN 'unmark' THEN -1 ELSE 0 END) OVER (
      PARTITION BY cluster, broker, cnx_id, throttle_type
      ORDER BY ts_wall_ms NULLS FIRST, ts_mono_ns NULLS FIRST, row_no
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS open_marks
  FROM {batch}
) AS counted
WHERE action = 'unmark' AND open_marks < 0
"""

SUITES: dict[str, list[Check]] = {
    "throttle_events": [
        *schema("throttle_events"),
        unique(*KEY),
        *not_null("job", "cluster", "broker", "ts_mono_ns", "rule", "params_hash", "row_no",
                  "cnx_id", "action", "throttle_type", "reason", "limiter", "transition",
                  "reads_paused"),
        values("action", ("mark", "unmark", "receipt")),
        values("transition", ("ConnectionStateChanged", "TypeStateChanged", "Dropped")),
        values("throttle_type", TYPES),
        values("reason", REASONS),
        values("limiter", LIMITERS),
        values("rule", RULES),
        values("receipt_state", ("not_supported", "received", "timed_out", "not_waited")),
        between("reason_number", 0, 4),
        between("row_no", 0),
        between("waiting", 0),
        between("pause_pip_ms", 0, 1000),
        between("pause_model_ns", 0),
        between("pause_observed_ns", 0),
        rows_that(
            "an empty bucket has a balance of 0 or less",
            "rule = 'bucket_empty' AND coalesce(balance_msgs, 1) > 0"
            " AND coalesce(balance_bytes, 1) > 0",
        ),
        rows_that(
            "only a paused connection has collateral topics",
            "NOT reads_paused AND size(collateral_topics) > 0",
        ),
        no_rows("every unmark has its mark", _UNMARK_WITHOUT_MARK),
    ],
    "topic_throttle_stats": [
        *schema("topic_throttle_stats"),
        unique(*KEY),
        unique("cluster", "broker", "topic", "window_start_ms"),
        *not_null("job", "cluster", "broker", "params_hash", "row_no", "topic", "window_start_ms",
                  "window_ms", "limited_times", "culprit_times", "collateral_times", "culprit_ns",
                  "collateral_ns", "messages", "bytes"),
        between("window_ms", 1),
        *(between(column, 0) for column in (
            "row_no", "limited_times", "culprit_times", "collateral_times", "culprit_ns",
            "collateral_ns", "messages", "bytes", "limit_msgs", "limit_bytes")),
        rows_that(
            "limited_times is culprit_times and collateral_times",
            "limited_times <> culprit_times + collateral_times",
        ),
        rows_that(
            "limited_by_limiter adds up to limited_times",
            "aggregate(map_values(limited_by_limiter), 0L, (a, n) -> a + n) <> limited_times",
        ),
        rows_that(
            "windows are aligned to the epoch", "window_start_ms % window_ms <> 0",
        ),
    ],
    "limiter_stats": [
        *schema("limiter_stats"),
        unique(*KEY),
        unique("cluster", "broker", "limiter", "limiter_name", "window_start_ms"),
        *not_null("job", "cluster", "broker", "params_hash", "row_no", "window_start_ms",
                  "window_ms", "limiter", "limiter_name", "throttles", "utilisation"),
        values("limiter", LIMITERS),
        between("window_ms", 1),
        *(between(column, 0) for column in (
            "row_no", "messages", "bytes", "limit_msgs", "limit_bytes", "limit_level", "throttles",
            "max_waiting", "utilisation")),
        rows_that(
            "a limiter has a rate or a level",
            "limit_msgs IS NULL AND limit_bytes IS NULL AND limit_level IS NULL",
        ),
    ],
    "producer_throttle": [
        *schema("producer_throttle"),
        unique(*KEY),
        *not_null("job", "cluster", "broker", "ts_mono_ns", "rule", "params_hash", "row_no",
                  "producer_id", "topic"),
        values("rule", RULES),
        values("reason", REASONS),
        values("exception", ("ProducerThrottledException", "TimeoutException")),
        between("row_no", 0),
        between("pause_ms", 0),
        between("throttled_ms_total", 0),
        rows_that(
            "a row is a command or a send that timed out",
            "(exception IS NULL) <> (rule <> 'send_timeout')"
            " OR (exception IS NULL AND request_id IS NULL)",
        ),
        rows_that("an announced pause ends when it is over", "end_ms <> start_ms + pause_ms"),
    ],
}
"""The checks of each audited table."""
