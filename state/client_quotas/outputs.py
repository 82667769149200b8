"""The tables that `client_quotas` writes: their columns and what these mean."""

from __future__ import annotations

from state.engine.table import LONG, RATE, TEXT, WINDOW, Output, TableColumn
from state.events import QUOTA_TYPES

_PLACE = ("cluster", "broker")


def _outputs() -> tuple[Output, ...]:
    entity = (
        TableColumn("user", TEXT, "user that the limit is shared by; empty = all users"),
        TableColumn("client", TEXT, "client id that the limit is shared by; empty = all clients"),
    )
    level = TableColumn(
        "bound_level",
        TEXT,
        "what set the limit: user_client, user_default_client, user, default_user_client,"
        " default_user_default_client, default_user, client, default_client or none",
    )
    quota_type = TableColumn("quota_type", TEXT, f"{', '.join(QUOTA_TYPES)}")
    who = (
        TableColumn("principal", TEXT, "principal of the request"),
        TableColumn("client_id", TEXT, "client id of the request"),
    )
    api = TableColumn("api", TEXT, "name of the request")
    judged = (
        api,
        *who,
        TableColumn(
            "quota_type",
            TEXT,
            "type of the quota that decided, or is nearest to its limit; null = no limit",
        ),
        *entity,
        level,
        TableColumn("bound", RATE, "limit in force (bytes, percent or partitions per s)"),
        TableColumn("rate", RATE, "rate after the charge, before bytes are taken back"),
        TableColumn("window_ms", LONG, "time that the rate is taken over (ms)"),
        TableColumn("tokens", RATE, "tokens after the charge; null but for controller_mutation"),
        TableColumn("charged", RATE, "what this request was charged (bytes, percent, partitions)"),
        TableColumn("throttle_ms", LONG, "throttle time of the model (ms); 0 = not throttled"),
        TableColumn("observed_throttle_ms", LONG, "throttle time that the broker answered (ms)"),
        TableColumn("verdict", TEXT, "throttled, refused or allowed"),
        TableColumn("top_topic", TEXT, "topic with most bytes of the request"),
    )
    stats = (
        *WINDOW,
        quota_type,
        *entity,
        TableColumn("requests", LONG, "requests charged; null for basis metrics"),
        TableColumn(
            "charged",
            RATE,
            "what they were charged, less what was taken back (bytes, percent of a second,"
            " partitions); null for basis metrics",
        ),
        TableColumn("rate_max", RATE, "largest rate (per s); null where only tokens are measured"),
        TableColumn("rate_avg", RATE, "charged per second, or mean of the measured rates"),
        TableColumn("bound", RATE, "limit in force last (per s); null without one"),
        level,
        TableColumn("utilisation", RATE, "rate_max / bound; null without a bound"),
        TableColumn(
            "throttled",
            LONG,
            "requests that this quota throttled or refused; of metrics, measurements that showed it",
        ),
        TableColumn(
            "throttle_ms", LONG, "sum of their throttle times by the model (ms); null of metrics"
        ),
        TableColumn(
            "observed_throttled",
            LONG,
            "requests that the broker throttled or refused; null where none of its throttle times"
            " is known",
        ),
        TableColumn(
            "observed_throttle_ms",
            LONG,
            "sum of the throttle times that the broker answered (ms); null where none is known",
        ),
        TableColumn(
            "basis", TEXT, "requests (each one judged) or metrics (as the broker measures)"
        ),
    )
    usage = (
        *WINDOW,
        TableColumn("principal", TEXT, "principal; null in the row of the others"),
        TableColumn("client_id", TEXT, "client id; <others> = all beyond the largest"),
        TableColumn("api", TEXT, "name of the requests; null in the row of the others"),
        TableColumn("topic", TEXT, "topic of the bytes; null where requests have none"),
        TableColumn("requests", LONG, "requests whose largest topic it is"),
        TableColumn("bytes", LONG, "bytes charged, or of the records where that is not known"),
        TableColumn("handler_time_ms", RATE, "handler time of these requests (ms)"),
        TableColumn(
            "throttle_ms", LONG, "throttle time answered, or of the model where not known (ms)"
        ),
    )
    return (
        Output(
            "client_quota_decisions",
            "Every request that a client quota throttled or refused.",
            judged,
            sort_by=(*_PLACE, "ts_wall_ms"),
            shadowed=True,
        ),
        Output(
            "client_quota_verdicts",
            "Every request with the client quota that decided.",
            judged,
            sort_by=(*_PLACE, "ts_wall_ms"),
            default=False,
        ),
        Output(
            "client_quota_stats",
            "Per window, quota type and entity of a broker: rate, limit and throttling.",
            stats,
            sort_by=(*_PLACE, "user", "client", "window_start_ms"),
            shadowed=True,
        ),
        Output(
            "client_usage",
            "Per window and broker: the largest users of it by client, api and topic.",
            usage,
            sort_by=(*_PLACE, "window_start_ms"),
        ),
    )


OUTPUTS: tuple[Output, ...] = _outputs()
