"""The tables that `producer_ids` writes: their columns, what these mean, and the kernel's rows."""

from __future__ import annotations

from state.engine.table import (
    FROM_RECORD,
    GIVEN,
    KEY,
    RECORD,
    ROW,
    Output,
    begins,
    flag,
    long,
    rate,
    short,
    text,
    windows,
)

RULES = (
    "unseen_within_bound",
    "unseen_over_bound",
    "rejected_over_bound",
    "recounted_after_disposal",
    "unseen_after_gap",
    "assigned",
)
VERDICTS = ("counted", "throttled", "rejected")
SOURCES = ("user", "default_user", "none")

_OF_WINDOW = begins(
    KEY,
    ts_mono_ns=(ROW, "mono_ns"),
    ts_wall_ms=(ROW, "at_ms"),
    source_feed=(ROW, "feed"),
    row_no=(ROW, "row_no"),
)

_USER = text("user", "name in the principal, what follows its first colon", of=KEY, needed=True)
_CLIENT_ID = text("client_id", "client id", of=RECORD)
_PRODUCER_ID = long("producer_id", "producer id (PID)", of=RECORD, least=0, needed=True)
DECISIONS = Output(
    "producer_id_decisions",
    "Every producer id that was new to its user.",
    (
        _USER,
        _CLIENT_ID,
        _PRODUCER_ID,
        text("topic", "topic that the id was first seen on", of=RECORD, needed=True),
        short("partition", "and its partition", of=RECORD),
        text(
            "verdict",
            "counted, throttled (counted, over the bound) or rejected",
            words=VERDICTS,
            needed=True,
        ),
        rate("bound", "producer_ids_rate in force (new ids per rate_unit)", least=0, needed=True),
        text(
            "bound_source",
            "user, default_user or none (unlimited)",
            "source",
            words=SOURCES,
            needed=True,
        ),
        rate(
            "rate", "sampled rate of counted ids after the decision (per s)", least=0, needed=True
        ),
        rate("tokens", "tokens of the quota after the decision; null with sampled_rate", of=GIVEN),
        long(
            "throttle_ms",
            "throttle time (ms); 0 = not throttled",
            least=-2147483648,
            most=2147483647,
            needed=True,
        ),
        short(
            "live_filters", "filters of the user after the decision", "live", least=0, needed=True
        ),
        long(
            "filter_created_ms",
            "creation of the filter that took the id (ms epoch); null if rejected",
            "created_ms",
        ),
        flag(
            "recount",
            "whether the id was counted for the user before; null without exact",
            of=GIVEN,
        ),
    ),
    sort_by=("cluster", "broker", "user", "ts_wall_ms"),
    shadowed=True,
    begins=FROM_RECORD,
    rules=RULES[:-1],
)
STATS = Output(
    "producer_id_stats",
    "Per user and window: new ids, quota and filters.",
    (
        *windows("start_ms", "window_ms"),
        _USER,
        long("new_ids", "ids counted: verdict counted or throttled", least=0, needed=True),
        long("seen_batches", "batches whose id a filter held", "seen", least=0, needed=True),
        long("rejected", "batches rejected", least=0, needed=True),
        rate("rate", "sampled rate at the window's end (ids per s)", least=0, needed=True),
        rate("tokens", "tokens at the window's end; null with sampled_rate", of=GIVEN),
        rate(
            "throttle_time_avg_ms",
            "mean throttle time of throttled and rejected batches (ms)",
            of=GIVEN,
        ),
        rate(
            "utilisation",
            "rate / bound, both per s; null for a bound of 0",
            "rate",
            "bound",
            least=0,
        ),
        short("live_filters", "filters at the window's end", "live", least=0, needed=True),
        rate(
            "filter_fill",
            "largest share of bits set in one; null with exact",
            of=GIVEN,
            least=0,
            most=1,
        ),
        rate(
            "estimated_fpp",
            "false-positive rate of that fill; null with exact",
            of=GIVEN,
            least=0,
            most=1,
        ),
        long("state_bytes", "memory of the filters (bytes)", "bytes", least=0, needed=True),
    ),
    sort_by=("cluster", "broker", "user", "window_start_ms"),
    begins=_OF_WINDOW,
    rules=("window",),
)
OWNERS = Output(
    "producer_id_owners",
    "Owners of producer ids: the latest row of an id is valid.",
    (
        _USER,
        _CLIENT_ID,
        _PRODUCER_ID,
    ),
    sort_by=("cluster", "producer_id", "ts_wall_ms"),
    begins=FROM_RECORD,
    rules=RULES,
)
OUTPUTS = (
    DECISIONS,
    STATS,
    OWNERS,
)
DECISION, OWNER = DECISIONS.row("recount", tokens="<f8"), OWNERS.row()
STATISTICS = STATS.row("throttled", "throttle_ms", tokens="<f8", fill="<f8", fpp="<f8", bound="<f8")
