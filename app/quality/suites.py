"""What must hold of the output tables: schema, keys, ranges, and what columns say together."""

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
"""What no two rows of an output table of one job share, if its key is a broker."""
TOPIC_KEY = ("cluster", "topic", "ts_wall_ms", "row_no")
"""The same for a job whose key is a topic."""
USER_KEY = ("cluster", "broker", "user", "ts_wall_ms", "row_no")
"""The same for a job whose key is a user of a broker."""
CHUNK_OUTCOMES = (
    "COMPLETE", "DUP_ACKED", "DUP_SAME_ID", "GAP", "NO_FIRST_CHUNK", "OVERFLOW_EXCEPTION",
    "COUNT_EXCEPTION", "GIVEN_UP_OVERFLOW", "GIVEN_UP_COUNT", "RESTART_REDELIVERY",
    "RESTART_CORRUPTED", "EVICTED", "EXPIRED", "ORPHANED", "ALREADY_ACKED", "SHARED_ORPHAN",
)
DEFECTS = ("B1", "B2", "B3", "B4", "B7", "B8")
INTEGRITY = ("exact", "short", "unknown", "too_large")
LARGEST_CRC = 2**32 - 1
VERDICTS = ("counted", "throttled", "rejected")
ID_RULES = (
    "unseen_within_bound", "unseen_over_bound", "rejected_over_bound", "recounted_after_disposal",
)
BOUND_SOURCES = ("user", "default_user", "none")
CHECK_RULES = (
    "within_limits", "size_exceeded", "time_exceeded", "size_masks_time", "deduplication_cursor",
)
SIZE_ENDS = ("target_reached", "same_cursor", "skip_zero")
TIME_ENDS = ("expired", "ledger_jump", "no_closed_ledger")
AGE_STATES = ("known", "no_backlog", "no_durable_cursor", "no_estimate")
TIMESTAMP_SOURCES = ("broker_time", "publish_time", "ledger_close", "kept", "none")
BACKLOG_ACTIONS = (
    "none", "deduplication_snapshot", "disconnect_producers", "evict_size", "evict_time",
)
EVICTION_POLICY = "consumer_backlog_eviction"
RETENTION_POLICIES = ("producer_request_hold", "producer_exception", EVICTION_POLICY)
LIMIT_SOURCES = ("topic", "namespace", "broker")
QUOTA_TYPES = ("size", "time")
REFUSAL_ERRORS = ("ProducerBlockedQuotaExceededError", "ProducerBlockedQuotaExceededException")


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
            "bool": "BooleanType", "double": "DoubleType", "binary": "BinaryType"}[str(kind)]


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

_POSITION = "^[0-9]+:[0-9]+$"
_POSITIONS = ("acks", "tracked", "orphaned")
_SIZES_BY_INTEGRITY = """
CASE integrity
  WHEN 'exact' THEN assembled_bytes IS NULL OR assembled_bytes <> declared_bytes
  WHEN 'short' THEN assembled_bytes IS NULL OR assembled_bytes >= declared_bytes
  WHEN 'unknown' THEN assembled_bytes IS NOT NULL
  ELSE payload IS NOT NULL OR checksum IS NOT NULL
END
"""


_RULE_OF_VERDICT = """
rule <> CASE WHEN verdict = 'rejected' THEN 'rejected_over_bound'
  WHEN coalesce(recount, false) THEN 'recounted_after_disposal'
  WHEN verdict = 'throttled' THEN 'unseen_over_bound' ELSE 'unseen_within_bound' END
"""
_BOUND_OF_NOBODY = """
bound_source = 'none' AND bound <>
  CASE switches['unlimited_default'] WHEN 'int' THEN 2147483647D ELSE 9223372036854775807D END
"""
_WITH_Q1 = "array_contains(split(switches['defects'], ','), 'Q1')"
_SLOWED_WITHOUT_TIME = """
CASE switches['enforcement'] WHEN 'strict' THEN (rejected > 0) <> (throttle_time_avg_ms IS NOT NULL)
  ELSE rejected > 0 OR throttle_time_avg_ms IS NOT NULL AND new_ids = 0 END
"""
_DECISION_WITHOUT_OWNER = """
SELECT d.* FROM {batch} AS d
LEFT ANTI JOIN producer_id_owners AS o
  ON o.cluster = d.cluster AND o.broker = d.broker AND o.user = d.user
  AND o.producer_id = d.producer_id AND o.ts_wall_ms = d.ts_wall_ms AND o.rule = d.rule
"""
# A decision lies in one window of each length that there is.
_WINDOW_UNLIKE_DECISIONS = """
SELECT s.* FROM {batch} AS s
LEFT JOIN (
  SELECT d.cluster, d.broker, d.user AS user, w.window_ms,
    d.ts_wall_ms - d.ts_wall_ms % w.window_ms AS window_start_ms,
    count_if(d.verdict <> 'rejected') AS new_ids, count_if(d.verdict = 'rejected') AS rejected
  FROM producer_id_decisions AS d CROSS JOIN (SELECT DISTINCT window_ms FROM {batch}) AS w
  GROUP BY 1, 2, 3, 4, 5
) AS t
  ON t.cluster = s.cluster AND t.broker = s.broker AND t.user = s.user
  AND t.window_ms = s.window_ms AND t.window_start_ms = s.window_start_ms
WHERE s.new_ids <> coalesce(t.new_ids, 0) OR s.rejected <> coalesce(t.rejected, 0)
"""

_INFO = ("oldest_subscription", "oldest_position", "oldest_timestamp_ms")
_STATE_UNLIKE_INFO = """
CASE WHEN age_state = 'known' THEN oldest_timestamp_ms IS NULL
  WHEN age_state = 'no_estimate' THEN oldest_timestamp_ms IS NOT NULL
    AND (timestamp_source <> 'kept' OR switches['age_reset'] <> 'keep')
  ELSE oldest_timestamp_ms IS NOT NULL END
"""
_AGE_UNLIKE_INFO = """
age_s <> CASE WHEN oldest_timestamp_ms IS NOT NULL
    THEN CAST((pass_ms - oldest_timestamp_ms) div 1000 AS BIGINT)
  WHEN age_state <> 'no_estimate' AND switches['age_when_empty'] = 'zero' THEN 0 ELSE -1 END
"""
_SIZE_USAGE_AMISS = """
NOT size_usage <=> CASE WHEN limit_bytes > 0
  THEN CAST(backlog_bytes AS DOUBLE) / CAST(limit_bytes AS DOUBLE) END
"""
_TIME_USAGE_AMISS = """
NOT time_usage <=> CASE WHEN limit_s > 0 AND oldest_timestamp_ms IS NOT NULL
  THEN CAST(age_s AS DOUBLE) / CAST(limit_s AS DOUBLE) END
"""
# Without a product, which may be too large for a bigint.
_TIME_EXCEEDED_AMISS = """
exceeded_time <> coalesce(limit_s > 0 AND pass_ms > oldest_timestamp_ms
  AND (pass_ms - oldest_timestamp_ms - 1) div 1000 >= limit_s, false)
"""
_ACTION_AMISS = f"""
CASE WHEN NOT exceeded_size AND NOT exceeded_time
    THEN action <> 'none' OR retention_policy IS NOT NULL
  WHEN retention_policy = '{EVICTION_POLICY}'
    THEN action <> CASE WHEN exceeded_size THEN 'evict_size' ELSE 'evict_time' END
  ELSE retention_policy IS NULL
    OR action NOT IN ('deduplication_snapshot', 'disconnect_producers') END
"""
_CHECK_RULE_AMISS = """
rule <> CASE WHEN action = 'deduplication_snapshot' THEN 'deduplication_cursor'
  WHEN exceeded_size AND exceeded_time THEN 'size_masks_time'
  WHEN exceeded_size THEN 'size_exceeded' WHEN exceeded_time THEN 'time_exceeded'
  ELSE 'within_limits' END
"""
_EVICTION_RULE_AMISS = f"""
(quota_type = 'size') <> (rule IN {SIZE_ENDS})
  OR (quota_type = 'size') <> (target_bytes IS NOT NULL)
  OR (quota_type = 'size') = (expire_older_than_s IS NOT NULL)
  OR (rule = 'expired') <> (rounds IS NULL) OR quota_type = 'time' AND factor IS NOT NULL
"""
# The largest, since a sum may be too large for a bigint.
_PHANTOM_AMISS = """
SELECT * FROM (
  SELECT *, max(entries_skipped) OVER (PARTITION BY cluster, topic, ts_wall_ms) AS most_skipped
  FROM {batch}
) AS called
WHERE phantom <> (most_skipped = 0)
"""
_COUNT_AMISS = """
count_delta <> CASE WHEN row_no = 0
  AND (switches['eviction_count_rule'] = 'every_call' OR NOT phantom) THEN 1 ELSE 0 END
"""
_FORECASTS_AMISS = """
(growth_rate IS NULL) <> (drain_rate IS NULL)
  OR coalesce(growth_rate < 0, false) <> (time_to_drain_s IS NOT NULL)
  OR time_to_quota_s IS NOT NULL AND (growth_rate IS NULL OR NOT durable)
"""
_BACKLOG_KEY = "c.cluster = r.cluster AND c.topic = r.topic AND c.pass_ms = r.ts_wall_ms"
_EVICTION_WITHOUT_CHECK = f"""
SELECT r.* FROM {{batch}} AS r
LEFT ANTI JOIN backlog_checks AS c
  ON {_BACKLOG_KEY} AND c.action = concat('evict_', r.quota_type)
  AND c.backlog_bytes = r.backlog_before
"""
_CHECK_WITHOUT_EVICTION = f"""
SELECT c.* FROM {{batch}} AS c
LEFT ANTI JOIN backlog_evictions AS r
  ON {_BACKLOG_KEY} AND c.action = concat('evict_', r.quota_type)
WHERE c.action IN ('evict_size', 'evict_time')
"""
# A reader has no say in what is checked, so its row may stand alone.
_SUBSCRIPTION_WITHOUT_CHECK = f"""
SELECT r.* FROM {{batch}} AS r
LEFT ANTI JOIN backlog_checks AS c ON {_BACKLOG_KEY} AND c.rule = r.rule
WHERE r.durable AND r.backlog_entries > 0
"""


def _chunk_table(name: str, required: tuple[str, ...], counted: tuple[str, ...]) -> list[Check]:
    """What holds of every table of the job chunks; `counted` are never negative."""
    return [
        *schema(name),
        unique(*TOPIC_KEY),
        *not_null("job", "cluster", "topic", "ts_wall_ms", "rule", "switches", "params_hash",
                  "row_no", *required),
        *(between(column, 0) for column in ("row_no", *counted)),
    ]


def _window_checks(*key: str) -> list[Check]:
    """What holds of rows about a window, one per window and `key`."""
    return [
        unique(*key, "window_start_ms"),
        between("window_ms", 1),
        rows_that("windows are aligned to the epoch", "window_start_ms % window_ms <> 0"),
        rows_that(
            "a window is written at its end",
            "ts_wall_ms <> window_start_ms + window_ms OR rule <> 'window'",
        ),
    ]


def _no_leak_amiss() -> list[Check]:
    return [
        rows_that("leaked is counter less contexts", "leaked <> counter - contexts"),
        rows_that("nothing leaks without B1",
                  "leaked <> 0 AND NOT array_contains(split(switches['defects'], ','), 'B1')"),
    ]


def _chunk_suites() -> dict[str, list[Check]]:
    window = ("window_start_ms", "window_ms")
    return {
        "chunk_messages": [
            *_chunk_table(
                "chunk_messages",
                ("subscription", "consumer", "uuid", "num_chunks", "first_position",
                 "last_position", "positions", "declared_bytes", "first_chunk_ms", "complete_ms",
                 "assembly_ms", "integrity"),
                ("declared_bytes", "assembled_bytes"),
            ),
            values("integrity", INTEGRITY),
            values("rule", ("COMPLETE",)),
            between("num_chunks", 2),
            between("checksum", 0, LARGEST_CRC),
            rows_that(
                "a message has a position for every chunk, from the first to the last",
                "size(positions) <> num_chunks OR element_at(positions, 1) <> first_position"
                " OR element_at(positions, -1) <> last_position",
            ),
            rows_that(
                "positions are ledger:entry", f"NOT forall(positions, p -> p RLIKE '{_POSITION}')"
            ),
            rows_that("integrity agrees with the sizes", _SIZES_BY_INTEGRITY),
            rows_that(
                "assembly_ms is the time between the first chunk and the last",
                "assembly_ms < 0 OR assembly_ms <> complete_ms - first_chunk_ms"
                " OR complete_ms <> ts_wall_ms",
            ),
            rows_that(
                "a payload has the length and the sum of its row",
                "payload IS NOT NULL"
                " AND (octet_length(payload) <> assembled_bytes OR crc32(payload) <> checksum)",
            ),
        ],
        "chunk_events": [
            *_chunk_table(
                "chunk_events",
                ("subscription", "uuid", "chunk_id", "num_chunks", "position", "outcome",
                 *_POSITIONS, "permits", "counter", "contexts", "leaked", "buffered_bytes"),
                ("chunk_id", "counter", "contexts", "buffered_bytes", "age_ms"),
            ),
            values("outcome", CHUNK_OUTCOMES),
            between("num_chunks", 2),
            between("permits", 0, 1),
            rows_that(
                "a rule is its outcome, with at most one defect",
                "rule <> outcome"
                f" AND NOT rule RLIKE concat('^', outcome, '[+]({'|'.join(DEFECTS)})$')",
            ),
            rows_that("a chunk is one of its message", "chunk_id >= num_chunks"),
            rows_that(
                "positions are ledger:entry",
                f"NOT forall(concat({', '.join(_POSITIONS)}, array(position)),"
                f" p -> p RLIKE '{_POSITION}')",
            ),
            rows_that(
                "a position has one fate in a row",
                "size(array_distinct(concat(acks, tracked, orphaned)))"
                " <> size(acks) + size(tracked) + size(orphaned)",
            ),
            rows_that(
                "only a gap or an end orphans",
                "size(orphaned) > 0 AND outcome NOT IN ('GAP', 'ORPHANED')",
            ),
            *_no_leak_amiss(),
        ],
        "chunk_state": [
            *_chunk_table(
                "chunk_state",
                ("subscription", "consumer", *window, "contexts", "counter", "leaked",
                 "buffered_bytes", "declared_bytes", "fifo_length", "permits_lost"),
                ("contexts", "counter", "buffered_bytes", "declared_bytes", "oldest_age_ms",
                 "fifo_length", "permits_lost"),
            ),
            *_window_checks("cluster", "topic", "subscription", "consumer"),
            *_no_leak_amiss(),
            rows_that("contexts have an age", "(contexts > 0) <> (oldest_age_ms IS NOT NULL)"),
            rows_that("every context stands in the fifo", "fifo_length < contexts"),
            rows_that("nothing is buffered without contexts",
                      "contexts = 0 AND (buffered_bytes <> 0 OR declared_bytes <> 0)"),
        ],
        "incomplete_messages": [
            *_chunk_table(
                "incomplete_messages",
                ("subscription", "consumer", *window, "uuid", "num_chunks", "next_chunk_id",
                 "first_position", "last_position", "first_chunk_ms", "last_chunk_ms", "age_ms",
                 "buffered_bytes", "declared_bytes"),
                ("next_chunk_id", "age_ms", "buffered_bytes", "declared_bytes"),
            ),
            *_window_checks("cluster", "topic", "subscription", "consumer", "uuid"),
            between("num_chunks", 2),
            rows_that("a message waits for one of its chunks", "next_chunk_id > num_chunks"),
            rows_that(
                "the times of a message follow each other",
                "first_chunk_ms > last_chunk_ms OR last_chunk_ms > ts_wall_ms"
                " OR age_ms <> ts_wall_ms - first_chunk_ms OR expires_ms <= first_chunk_ms",
            ),
        ],
        "chunk_topic_stats": [
            *_chunk_table(
                "chunk_topic_stats",
                (*window, "chunks", "chunk_bytes", "chunked_message_rate", "msg_chunk_published",
                 "producers", "max_contexts"),
                ("chunks", "chunk_bytes", "chunked_message_rate", "producers", "max_contexts"),
            ),
            *_window_checks("cluster", "topic"),
            rows_that("msg_chunk_published says whether there were chunks",
                      "msg_chunk_published <> (chunks > 0)"),
            rows_that(
                "chunks bound the first ones and the producers",
                "producers > chunks OR chunked_message_rate * window_ms / 1000 > chunks + 0.5",
            ),
        ],
    }


def _user_table(name: str, *required: str) -> list[Check]:
    """What holds of every table of the job producer_ids."""
    return [
        *schema(name),
        unique(*USER_KEY),
        *not_null("job", "cluster", "broker", "ts_wall_ms", "rule", "switches", "params_hash",
                  "row_no", "user", *required),
        between("row_no", 0),
    ]


def _known_if(column: str, switch: str, value: str) -> Check:
    """A column that has a value exactly if a parameter has one."""
    return rows_that(f"{column} is there exactly with {switch}={value}",
                     f"({column} IS NOT NULL) <> (switches['{switch}'] = '{value}')")


def _decisions_suite() -> list[Check]:
    return [
        *_user_table("producer_id_decisions", "producer_id", "topic", "verdict", "bound",
                     "bound_source", "rate", "throttle_ms", "live_filters"),
        values("verdict", VERDICTS),
        values("rule", ID_RULES),
        values("bound_source", BOUND_SOURCES),
        *(between(column, 0) for column in ("producer_id", "bound", "rate", "live_filters")),
        between("throttle_ms", -(2**31), 2**31 - 1),
        rows_that("a rule is that of its verdict", _RULE_OF_VERDICT),
        rows_that(
            "strict rejects and permissive throttles",
            "verdict = CASE switches['enforcement']"
            " WHEN 'strict' THEN 'throttled' ELSE 'rejected' END",
        ),
        rows_that("what is within its bound does not wait",
                  "verdict = 'counted' AND throttle_ms <> 0"),
        rows_that("only Q1 makes a throttle time negative", f"throttle_ms < 0 AND NOT {_WITH_Q1}"),
        rows_that("an id has a filter unless it is rejected",
                  "(verdict = 'rejected') <> (filter_created_ms IS NULL)"),
        rows_that(
            "a filter that takes an id is there",
            "filter_created_ms > ts_wall_ms OR filter_created_ms IS NOT NULL AND live_filters = 0",
        ),
        rows_that("without a policy there is no bound", _BOUND_OF_NOBODY),
        _known_if("tokens", "quota_math", "token_bucket"),
        _known_if("recount", "membership", "exact"),
    ]


def _user_stats_suite() -> list[Check]:
    counts = ("new_ids", "seen_batches", "rejected", "live_filters", "state_bytes")
    return [
        *_user_table("producer_id_stats", "window_start_ms", "window_ms", "rate", *counts),
        *_window_checks("cluster", "broker", "user"),
        *(between(column, 0) for column in (*counts, "rate", "utilisation")),
        between("filter_fill", 0, 1),
        between("estimated_fpp", 0, 1),
        rows_that("strict rejects and permissive throttles",
                  "rejected > 0 AND switches['enforcement'] <> 'strict'"),
        rows_that("what is throttled or rejected has a throttle time", _SLOWED_WITHOUT_TIME),
        rows_that("only Q1 makes a throttle time negative",
                  f"throttle_time_avg_ms < 0 AND NOT {_WITH_Q1}"),
        rows_that("filters have bytes", "(live_filters > 0) <> (state_bytes > 0)"),
        rows_that(
            "without filters nothing is filled",
            "live_filters = 0 AND (filter_fill <> 0 OR estimated_fpp <> 0)"
            " OR estimated_fpp > filter_fill",
        ),
        _known_if("tokens", "quota_math", "token_bucket"),
        _known_if("filter_fill", "membership", "bloom"),
        _known_if("estimated_fpp", "membership", "bloom"),
    ]


_POSITION_OR_BEFORE = "^-?[0-9]+:-?[0-9]+$"


def _backlog_table(name: str, *required: str) -> list[Check]:
    """What holds of every table of the job backlog."""
    return [
        *schema(name),
        unique(*TOPIC_KEY),
        *not_null("job", "cluster", "broker", "ts_wall_ms", "rule", "switches", "params_hash",
                  "row_no", "topic", *required),
        between("row_no", 0),
    ]


def _pass_checks() -> list[Check]:
    return [rows_that("a check is written at its pass, at a whole second",
                      "ts_wall_ms <> pass_ms OR pass_ms % 1000 <> 0")]


def _backlog_checks_suite() -> list[Check]:
    flags = ("exceeded_size", "exceeded_time")
    sources = ("limit_source_size", "limit_source_time")
    return [
        *_backlog_table("backlog_checks", "pass_ms", "backlog_bytes", "age_s", "age_state",
                        "timestamp_source", *flags, *sources, "action", "producers_disconnected"),
        unique("cluster", "topic", "pass_ms"),
        *_pass_checks(),
        values("rule", CHECK_RULES),
        values("age_state", AGE_STATES),
        values("timestamp_source", TIMESTAMP_SOURCES),
        values("action", BACKLOG_ACTIONS),
        values("retention_policy", RETENTION_POLICIES),
        *(values(column, LIMIT_SOURCES) for column in sources),
        *(between(column, 0) for column in (
            "backlog_bytes", "limit_bytes", "limit_s", "producers_disconnected")),
        rows_that("what is cached is there or is not, with its source", " OR ".join(
            f"({column} IS NULL) <> (timestamp_source = 'none')" for column in _INFO
        )),
        rows_that("a known age has a time, and what is kept without an estimate",
                  _STATE_UNLIKE_INFO),
        rows_that("an age is that of its time; without one it is -1, or 0 where that is asked for",
                  _AGE_UNLIKE_INFO),
        rows_that("positions are ledger:entry",
                  f"NOT oldest_position RLIKE '{_POSITION_OR_BEFORE}'"),
        rows_that("size_usage is size / limit", _SIZE_USAGE_AMISS),
        rows_that("time_usage is age / limit", _TIME_USAGE_AMISS),
        rows_that("the size is exceeded from its limit on",
                  "exceeded_size <> coalesce(backlog_bytes >= limit_bytes, false)"),
        rows_that("the age is exceeded beyond its limit", _TIME_EXCEEDED_AMISS),
        rows_that("what is exceeded is acted on by the policy of its quota", _ACTION_AMISS),
        rows_that("a rule says what is exceeded", _CHECK_RULE_AMISS),
        rows_that("only a disconnection has producers",
                  "producers_disconnected > 0 AND action <> 'disconnect_producers'"),
    ]


def _backlog_evictions_suite() -> list[Check]:
    counts = ("entries_skipped", "backlog_before", "backlog_after")
    return [
        *_backlog_table("backlog_evictions", "quota_type", *counts, "phantom", "count_delta"),
        unique("cluster", "topic", "ts_wall_ms", "subscription"),
        values("rule", (*SIZE_ENDS, *TIME_ENDS)),
        values("quota_type", QUOTA_TYPES),
        *(between(column, 0) for column in (
            *counts, "rounds", "target_bytes", "expire_older_than_s")),
        between("factor", 0, 1),
        rows_that("an eviction ends as its quota type does", _EVICTION_RULE_AMISS),
        rows_that(
            "a subscription has positions",
            "(subscription IS NULL) <> (from_position IS NULL)"
            " OR (subscription IS NULL) <> (to_position IS NULL)"
            " OR subscription IS NULL AND entries_skipped > 0",
        ),
        rows_that(
            "positions are ledger:entry",
            f"NOT from_position RLIKE '{_POSITION_OR_BEFORE}'"
            f" OR NOT to_position RLIKE '{_POSITION_OR_BEFORE}'",
        ),
        rows_that("who stands still skips nothing",
                  "from_position = to_position AND entries_skipped > 0"),
        no_rows("a call is phantom if nothing was skipped", _PHANTOM_AMISS),
        rows_that("a call counts once, on its first row", _COUNT_AMISS),
        rows_that("no backlog is larger afterwards", "backlog_after > backlog_before"),
    ]


def _backlog_subscriptions_suite() -> list[Check]:
    counts = ("backlog_entries", "backlog_bytes")
    return [
        *_backlog_table("backlog_subscriptions", "pass_ms", "subscription", "durable",
                        "mark_delete", *counts),
        unique("cluster", "topic", "subscription", "pass_ms"),
        *_pass_checks(),
        values("rule", CHECK_RULES),
        *(between(column, 0) for column in (*counts, "time_to_drain_s", "time_to_quota_s")),
        rows_that("positions are ledger:entry", f"NOT mark_delete RLIKE '{_POSITION_OR_BEFORE}'"),
        rows_that("without entries there are neither bytes nor an age",
                  "backlog_entries = 0 AND (backlog_bytes > 0 OR age_s IS NOT NULL)"),
        rows_that("forecasts are there together", _FORECASTS_AMISS),
        rows_that(
            "a backlog that falls is drained at its rate",
            "time_to_drain_s <> CAST(backlog_bytes AS DOUBLE) / -growth_rate",
        ),
    ]


def _producer_refusals_suite() -> list[Check]:
    return [
        *_backlog_table("producer_refusals", "producer_id", "error", "quota_type"),
        values("quota_type", QUOTA_TYPES),
        values("error", REFUSAL_ERRORS),
        between("producer_id", 0),
        rows_that("a rule is that of its quota", "rule <> concat(quota_type, '_exceeded')"),
    ]


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
    **_chunk_suites(),
    "producer_id_decisions": _decisions_suite(),
    "producer_id_stats": _user_stats_suite(),
    "producer_id_owners": [
        *_user_table("producer_id_owners", "producer_id"),
        values("rule", (*ID_RULES, "assigned")),
        between("producer_id", 0),
    ],
    "backlog_checks": _backlog_checks_suite(),
    "backlog_evictions": _backlog_evictions_suite(),
    "backlog_subscriptions": _backlog_subscriptions_suite(),
    "producer_refusals": _producer_refusals_suite(),
}
"""The checks of each audited table."""

ACROSS: dict[str, list[Check]] = {
    "producer_id_decisions": [
        no_rows("every decision has a row of its owner", _DECISION_WITHOUT_OWNER),
    ],
    "producer_id_stats": [
        no_rows("a window counts its decisions", _WINDOW_UNLIKE_DECISIONS),
    ],
    "backlog_checks": [
        no_rows("a check that evicts has its evictions", _CHECK_WITHOUT_EVICTION),
    ],
    "backlog_evictions": [
        no_rows("every eviction has its check, with its size", _EVICTION_WITHOUT_CHECK),
    ],
    "backlog_subscriptions": [
        no_rows("a durable subscription with a backlog has its check, of its rule",
                _SUBSCRIPTION_WITHOUT_CHECK),
    ],
}
"""Checks of a table that ask another one, which must be a view of its name."""
