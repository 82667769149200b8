"""The tables that `client_quotas` writes: their columns, what these mean, and the kernel's rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from state.engine.table import (
    FROM_RECORD,
    GIVEN,
    KEY,
    RECORD,
    ROW,
    WINDOW,
    Columns,
    Output,
    begins,
    long,
    rate,
    text,
)
from state.events import QUOTA_TYPES

BASES = ("requests", "metrics")
LEVELS = (
    "user_client",
    "user_default_client",
    "user",
    "default_user_client",
    "default_user_default_client",
    "default_user",
    "client",
    "default_client",
    "none",
)
RULES = (
    "within_bound",
    "rate_over_bound",
    "request_time_over_bound",
    "tokens_below_zero",
    "refused_over_bound",
    "no_bound",
    "exempt",
)
VERDICTS = ("throttled", "refused", "allowed")

WINDOW_RULE, MEASURED_RULE = "window", "measured"
OTHERS = "<others>"
"""Client id of the row of all beyond the largest."""
_PLACE = ("cluster", "broker")


def _level(field: str) -> Columns:
    return (
        text(
            "bound_level",
            "what set the limit: user_client, user_default_client, user, default_user_client,"
            " default_user_default_client, default_user, client, default_client or none",
            field,
            words=LEVELS,
            needed=True,
        ),
    )


def _entity(**more: Any) -> Columns:
    return (
        text("user", "user that the limit is shared by; empty = all users", **more),
        text("client", "client id that the limit is shared by; empty = all clients", **more),
    )


_JUDGED = (
    text("api", "name of the request", of=RECORD, needed=True),
    text("principal", "principal of the request", of=RECORD),
    text("client_id", "client id of the request", of=RECORD),
    text(
        "quota_type",
        "type of the quota that decided, or is nearest to its limit; null = no limit",
        "type",
        words=QUOTA_TYPES,
    ),
    *_entity(),
    *_level("level"),
    rate("bound", "limit in force (bytes, percent or partitions per s)", least=0),
    rate("rate", "rate after the charge, before bytes are taken back"),
    long("window_ms", "time that the rate is taken over (ms)", "span_ms", least=0),
    rate("tokens", "tokens after the charge; null but for controller_mutation"),
    rate("charged", "what this request was charged (bytes, percent, partitions)", least=0),
    long("throttle_ms", "throttle time of the model (ms); 0 = not throttled", least=0, needed=True),
    long(
        "observed_throttle_ms",
        "throttle time that the broker answered (ms)",
        "throttle_ms",
        of=RECORD,
    ),
    text("verdict", "throttled, refused or allowed", words=VERDICTS, needed=True),
    text("top_topic", "topic with most bytes of the request"),
)
_STATS = (
    *WINDOW,
    text("quota_type", f"{', '.join(QUOTA_TYPES)}", "type", words=QUOTA_TYPES, needed=True),
    *_entity(needed=True),
    long("requests", "requests charged; null for basis metrics", of=GIVEN, least=0),
    rate(
        "charged",
        "what they were charged, less what was taken back (bytes, percent of a second,"
        " partitions); null for basis metrics",
        of=GIVEN,
    ),
    rate("rate_max", "largest rate (per s); null where only tokens are measured"),
    rate("rate_avg", "charged per second, or mean of the measured rates", of=GIVEN),
    rate("bound", "limit in force last (per s); null without one", least=0),
    *_level("level"),
    rate("utilisation", "rate_max / bound; null without a bound", "rate_max", "bound"),
    long(
        "throttled",
        "requests that this quota throttled or refused; of metrics, measurements that showed it",
        least=0,
        needed=True,
    ),
    long(
        "throttle_ms",
        "sum of their throttle times by the model (ms); null of metrics",
        of=GIVEN,
        least=0,
    ),
    long(
        "observed_throttled",
        "requests that the broker throttled or refused; null where none of its throttle times"
        " is known",
        of=GIVEN,
    ),
    long(
        "observed_throttle_ms",
        "sum of the throttle times that the broker answered (ms); null where none is known",
        of=GIVEN,
    ),
    text(
        "basis",
        "requests (each one judged) or metrics (as the broker measures)",
        words=BASES,
        needed=True,
    ),
)
_OF_WINDOW = begins(
    GIVEN, cluster=(KEY, "cluster"), broker=(KEY, "broker"), source_feed=(ROW, "feed")
)
_USAGE = (
    *WINDOW,
    text("principal", "principal; null in the row of the others"),
    text("client_id", "client id; <others> = all beyond the largest", "client"),
    text("api", "name of the requests; null in the row of the others"),
    text("topic", "topic of the bytes; null where requests have none"),
    long("requests", "requests whose largest topic it is", least=0, needed=True),
    long("bytes", "bytes charged, or of the records where that is not known", least=0, needed=True),
    rate("handler_time_ms", "handler time of these requests (ms)", of=GIVEN, least=0, needed=True),
    long(
        "throttle_ms",
        "throttle time answered, or of the model where not known (ms)",
        needed=True,
    ),
)

DECISIONS = Output(
    "client_quota_decisions",
    "Every request that a client quota throttled or refused.",
    _JUDGED,
    sort_by=(*_PLACE, "ts_wall_ms"),
    shadowed=True,
    begins=FROM_RECORD,
    rules=RULES,
)
VERDICT_ROWS = replace(
    DECISIONS,
    name="client_quota_verdicts",
    meaning="Every request with the client quota that decided.",
    default=False,
    shadowed=False,
)
STATS = Output(
    "client_quota_stats",
    "Per window, quota type and entity of a broker: rate, limit and throttling.",
    _STATS,
    sort_by=(*_PLACE, "user", "client", "window_start_ms"),
    shadowed=True,
    begins=_OF_WINDOW,
)
USAGE = Output(
    "client_usage",
    "Per window and broker: the largest users of it by client, api and topic.",
    _USAGE,
    sort_by=(*_PLACE, "window_start_ms"),
    begins=_OF_WINDOW,
    rules=(WINDOW_RULE,),
)
OUTPUTS = (DECISIONS, VERDICT_ROWS, STATS, USAGE)
VERDICT = DECISIONS.row()
