"""The tables that `producer_ids` writes: their columns and what these mean."""

from __future__ import annotations

from state.engine.table import FLAG, LONG, RATE, SHORT, TEXT, WINDOW, Output, TableColumn


def _outputs() -> tuple[Output, ...]:
    user = TableColumn("user", TEXT, "name in the principal, what follows its first colon")
    who = (
        user,
        TableColumn("client_id", TEXT, "client id"),
        TableColumn("producer_id", LONG, "producer id (PID)"),
    )
    decisions = (
        *who,
        TableColumn("topic", TEXT, "topic that the id was first seen on"),
        TableColumn("partition", SHORT, "and its partition"),
        TableColumn("verdict", TEXT, "counted, throttled (counted, over the bound) or rejected"),
        TableColumn("bound", RATE, "producer_ids_rate in force (new ids per rate_unit)"),
        TableColumn("bound_source", TEXT, "user, default_user or none (unlimited)"),
        TableColumn("rate", RATE, "sampled rate of counted ids after the decision (per s)"),
        TableColumn(
            "tokens", RATE, "tokens of the quota after the decision; null with sampled_rate"
        ),
        TableColumn("throttle_ms", LONG, "throttle time (ms); 0 = not throttled"),
        TableColumn("live_filters", SHORT, "filters of the user after the decision"),
        TableColumn(
            "filter_created_ms",
            LONG,
            "creation of the filter that took the id (ms epoch); null if rejected",
        ),
        TableColumn(
            "recount", FLAG, "whether the id was counted for the user before; null without exact"
        ),
    )
    stats = (
        *WINDOW,
        user,
        TableColumn("new_ids", LONG, "ids counted: verdict counted or throttled"),
        TableColumn("seen_batches", LONG, "batches whose id a filter held"),
        TableColumn("rejected", LONG, "batches rejected"),
        TableColumn("rate", RATE, "sampled rate at the window's end (ids per s)"),
        TableColumn("tokens", RATE, "tokens at the window's end; null with sampled_rate"),
        TableColumn(
            "throttle_time_avg_ms",
            RATE,
            "mean throttle time of throttled and rejected batches (ms)",
        ),
        TableColumn("utilisation", RATE, "rate / bound, both per s; null for a bound of 0"),
        TableColumn("live_filters", SHORT, "filters at the window's end"),
        TableColumn("filter_fill", RATE, "largest share of bits set in one; null with exact"),
        TableColumn("estimated_fpp", RATE, "false-positive rate of that fill; null with exact"),
        TableColumn("state_bytes", LONG, "memory of the filters (bytes)"),
    )
    place = ("cluster", "broker", "user")
    return (
        Output(
            "producer_id_decisions",
            "Every producer id that was new to its user.",
            decisions,
            sort_by=(*place, "ts_wall_ms"),
            shadowed=True,
        ),
        Output(
            "producer_id_stats",
            "Per user and window: new ids, quota and filters.",
            stats,
            sort_by=(*place, "window_start_ms"),
        ),
        Output(
            "producer_id_owners",
            "Owners of producer ids: the latest row of an id is valid.",
            who,
            sort_by=("cluster", "producer_id", "ts_wall_ms"),
        ),
    )


OUTPUTS: tuple[Output, ...] = _outputs()
