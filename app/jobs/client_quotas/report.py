"""Which clients Kafka's quotas throttle, who is near one, and what clients use."""

from __future__ import annotations

from app.jobs.client_quotas.findings import BY_SHARER
from app.read.questions import QUESTIONS
from app.show.report.model import Chart, Grid, GridColumn, JobSection, ReportSection, Tile
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import NONE
from app.terminal.counts import counted

TOP = 12
_SUMMARY = """
SELECT count(DISTINCT (s.cluster, s.user, s.client)) AS entities,
  count(DISTINCT (s.cluster, s.user, s.client)) FILTER (WHERE s.throttled > 0) AS throttled,
  count(DISTINCT (s.cluster, s.user, s.client)) FILTER (WHERE s.utilisation >= 0.8) AS near,
  count(DISTINCT (s.cluster, s.user, s.client)) FILTER (WHERE s.bound IS NULL) AS unlimited
FROM client_quota_stats AS s
"""
_FULLEST = """
SELECT s.cluster, s.quota_type, s.user AS user, s.client AS client, max(s.utilisation) AS share,
  arg_max(s.broker, s.utilisation) AS broker, arg_max(s.bound, s.utilisation) AS bound,
  arg_max(s.bound_level, s.utilisation) AS bound_level, sum(s.throttled)::BIGINT AS throttled,
  sum(s.throttle_ms)::BIGINT AS throttle_ms, max(s.ts_wall_ms) AS newest
FROM client_quota_stats AS s WHERE s.utilisation IS NOT NULL
GROUP BY s.cluster, s.quota_type, s.user, s.client
ORDER BY share DESC, s.cluster, s.quota_type, s.user, s.client LIMIT $most
"""

_SHARED = f"""
SELECT * FROM ({BY_SHARER}) AS s
QUALIFY count(*) OVER (PARTITION BY s.cluster, s.quota_type, s.user, s.client, s.bound_level) > 1
ORDER BY sum(s.throttle_ms) OVER (
    PARTITION BY s.cluster, s.quota_type, s.user, s.client, s.bound_level
  ) DESC, s.cluster, s.quota_type, s.user, s.client, s.charged DESC, s.sharer LIMIT $most
"""


def client_quotas(reader: ReportReader) -> ReportSection:
    """Entities by how near they are to their limits, and the largest users."""
    key, title = "client-quotas", "Client quotas of Kafka"
    summary = reader.row(_SUMMARY)
    entities, throttled = summary["entities"], summary["throttled"]
    parts: list[Chart | Grid] = []
    fullest = reader.rows(_FULLEST, most=TOP)
    if fullest:
        parts.append(
            Grid(
                "Nearest to their limits",
                [
                    GridColumn("user", "user"),
                    GridColumn("client", "client"),
                    GridColumn("quota_type", "quota"),
                    GridColumn("cluster", "cluster"),
                    GridColumn("broker", "fullest broker"),
                    GridColumn("share", "used", "ratio"),
                    GridColumn("bound", "limit per s", "number"),
                    GridColumn("bound_level", "set for"),
                    GridColumn("throttled", "throttled", "number"),
                    GridColumn("throttle_ms", "throttle time (ms)", "number"),
                    GridColumn("newest", "last", "time"),
                ],
                fullest,
                "near-client-quota",
            )
        )
    shared = reader.rows(_SHARED, most=TOP)
    if shared:
        parts.append(
            Grid(
                "Who shares a limit that throttles",
                [
                    GridColumn("user", "user"),
                    GridColumn("client", "client"),
                    GridColumn("quota_type", "quota"),
                    GridColumn("cluster", "cluster"),
                    GridColumn("sharer", "shared by"),
                    GridColumn("charged", "charged over the limit", "number"),
                    GridColumn("requests", "throttled", "number"),
                    GridColumn("throttle_ms", "throttle time", "ms"),
                ],
                shared,
                "throttled-clients",
            )
        )
    span = reader.span
    if span is not None:
        times = {"since": span.start_ms, "until": span.end_ms, "rows": TOP}
        used = reader.rows(QUESTIONS["topics-of-client"].sql, **times)
        if used:
            parts.append(
                Grid(
                    "Largest users",
                    [
                        GridColumn("principal", "principal"),
                        GridColumn("client_id", "client"),
                        GridColumn("topic", "topic"),
                        GridColumn("api", "request"),
                        GridColumn("cluster", "cluster"),
                        GridColumn("bytes", "bytes", "bytes"),
                        GridColumn("requests", "requests", "number"),
                        GridColumn("throttle_ms", "throttle time (ms)", "number"),
                    ],
                    used,
                    "topics-of-client",
                    folded=True,
                )
            )
        handled = reader.rows(QUESTIONS["handler-time"].sql, **times)
        if handled:
            parts.append(
                Grid(
                    "Request handler threads",
                    [
                        GridColumn("principal", "principal"),
                        GridColumn("client_id", "client"),
                        GridColumn("api", "request"),
                        GridColumn("cluster", "cluster"),
                        GridColumn("broker", "broker"),
                        GridColumn("handler_time_ms", "handler time", "ms"),
                        GridColumn("requests", "requests", "number"),
                        GridColumn("share", "of the broker's", "ratio"),
                    ],
                    handled,
                    "handler-time",
                    folded=True,
                )
            )
    tile = Tile(
        "clients throttled by quotas",
        f"{throttled:,}" if entities else NONE,
        f"of {entities:,}" if entities else "no quotas seen",
        bool(throttled),
    )
    if not entities:
        why = reader.nothing_in("client_quota_stats")
        return ReportSection(key, title, [why], parts, tile)
    text = (
        f"{counted(entities, 'entity', 'entities')}: {throttled:,} throttled,"
        f" {summary['near']:,} at 80 % of a limit or more, {summary['unlimited']:,} without a limit"
        " of a type that is measured."
    )
    return ReportSection(key, title, [text], parts, tile)


SECTIONS = (JobSection(75, client_quotas, ("client_quota_stats", "client_usage")),)
REACHED = ("client_quota_stats",)
