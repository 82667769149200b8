"""Which clients Kafka's quotas throttle, who is near one, and what clients use."""

from __future__ import annotations

from collections.abc import Sequence

from app.jobs.client_quotas.bases import WINDOWS
from app.jobs.client_quotas.throttled import by_sharer
from app.read.questions import QUESTIONS
from app.show.report.model import Grid, GridColumn, JobSection, ReportSection, Row, Tile, filled
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import NONE
from app.terminal.counts import counted

TOP = 12
Columns = Sequence[tuple[str, str] | tuple[str, str, str]]
_SUMMARY = """
SELECT count(DISTINCT (s.cluster, s.user, s.client)) AS entities,
  count(DISTINCT (s.cluster, s.user, s.client)) FILTER (WHERE s.throttled > 0) AS throttled,
  count(DISTINCT (s.cluster, s.user, s.client)) FILTER (WHERE s.utilisation >= 0.8) AS near,
  count(DISTINCT (s.cluster, s.user, s.client)) FILTER (WHERE s.bound IS NULL) AS unlimited
FROM client_quota_stats AS s
"""
_FULLEST = f"""
SELECT s.cluster, s.quota_type, s.user AS user, s.client AS client, max(s.utilisation) AS share,
  arg_max(s.broker, s.utilisation) AS broker, arg_max(s.bound, s.utilisation) AS bound,
  arg_max(s.bound_level, s.utilisation) AS bound_level, sum(s.throttled)::BIGINT AS throttled,
  sum(s.throttle_ms)::BIGINT AS throttle_ms, max(s.ts_wall_ms) AS newest
FROM ({WINDOWS}) AS s WHERE s.utilisation IS NOT NULL
GROUP BY s.cluster, s.quota_type, s.user, s.client
ORDER BY share DESC, s.cluster, s.quota_type, s.user, s.client LIMIT $most
"""

_SHARED = f"""
SELECT * FROM ({by_sharer()}) AS s
QUALIFY count(*) OVER (PARTITION BY s.cluster, s.quota_type, s.user, s.client, s.bound_level) > 1
ORDER BY sum(s.throttle_ms) OVER (
    PARTITION BY s.cluster, s.quota_type, s.user, s.client, s.bound_level
  ) DESC, s.cluster, s.quota_type, s.user, s.client, s.charged DESC, s.sharer LIMIT $most
"""

_ENTITY = (("user", "user"), ("client", "client"), ("quota_type", "quota"), ("cluster", "cluster"))
_NEAR = (
    *_ENTITY,
    ("broker", "fullest broker"),
    ("share", "used", "ratio"),
    ("bound", "limit per s", "number"),
    ("bound_level", "set for"),
    ("throttled", "throttled", "number"),
    ("throttle_ms", "throttle time (ms)", "number"),
    ("newest", "last", "time"),
)
_SHARERS = (
    *_ENTITY,
    ("sharer", "shared by"),
    ("charged", "charged over the limit", "number"),
    ("requests", "throttled", "number"),
    ("throttle_ms", "throttle time (ms)", "number"),
)
_CLIENT = (("principal", "principal"), ("client_id", "client"))
_USED = (
    *_CLIENT,
    ("topic", "topic"),
    ("api", "request"),
    ("cluster", "cluster"),
    ("bytes", "bytes", "bytes"),
    ("requests", "requests", "number"),
    ("throttle_ms", "throttle time (ms)", "number"),
)
_HANDLED = (
    *_CLIENT,
    ("api", "request"),
    ("cluster", "cluster"),
    ("broker", "broker"),
    ("handler_time_ms", "handler time", "ms"),
    ("requests", "requests", "number"),
    ("share", "of the broker's", "ratio"),
)


def client_quotas(reader: ReportReader) -> ReportSection:
    """Entities by how near they are to their limits, and the largest users."""
    key, title = "client-quotas", "Client quotas of Kafka"
    summary = reader.row(_SUMMARY)
    entities, throttled = summary["entities"], summary["throttled"]
    nearest, shared = (reader.rows(sql, most=TOP) for sql in (_FULLEST, _SHARED))
    parts = filled(
        _grid("Nearest to their limits", _NEAR, nearest, "near-client-quota"),
        _grid("Who shares a limit that throttles", _SHARERS, shared, "throttled-clients"),
    )
    span = reader.span
    if span is not None:
        for heading, columns, question in (
            ("Largest users", _USED, "topics-of-client"),
            ("Request handler threads", _HANDLED, "handler-time"),
        ):
            times = {"since": span.start_ms, "until": span.end_ms, "rows": TOP}
            rows = reader.rows(QUESTIONS[question].sql, **times)
            parts += filled(_grid(heading, columns, rows, question, folded=True))
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


def _grid(
    title: str, columns: Columns, rows: Sequence[Row], question: str, folded: bool = False
) -> Grid:
    return Grid(title, [GridColumn(*column) for column in columns], rows, question, folded)


SECTIONS = (JobSection(75, client_quotas, ("client_quota_stats", "client_usage")),)
REACHED = ("client_quota_stats",)
