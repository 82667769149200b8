"""Which principals bring new producer ids, and which too many."""

from __future__ import annotations

from app.read.questions import QUESTIONS
from app.show.report.charts import bars, limit_rule, lines
from app.show.report.model import (
    Chart,
    Grid,
    GridColumn,
    JobSection,
    ReportSection,
    Row,
    Tile,
    filled,
)
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import NONE
from app.terminal.counts import counted

TOP = 12
LINES = 6
SHOWN_IDS = 3
TONES = ("var(--c1)", "var(--c5)", "var(--bad)")
VERDICTS = ("counted", "throttled", "rejected")

_SUMMARY = """
SELECT count(DISTINCT (d.cluster, d.user)) AS users,
  count(DISTINCT (d.cluster, d.user, d.producer_id)) AS ids,
  count(DISTINCT (d.cluster, d.user)) FILTER (WHERE d.verdict <> 'counted') AS over,
  count(*) FILTER (WHERE d.verdict <> 'counted') AS batches_over
FROM producer_id_decisions AS d
"""
_IDS = """
SELECT d.cluster, d.user AS user, count(DISTINCT d.producer_id) AS distinct_ids,
  count(DISTINCT d.client_id) AS clients,
  count(*) FILTER (WHERE d.verdict = 'counted') AS counted,
  count(*) FILTER (WHERE d.verdict = 'throttled') AS throttled,
  count(*) FILTER (WHERE d.verdict = 'rejected') AS rejected,
  arg_max(d.bound, d.ts_wall_ms) FILTER (WHERE d.bound_source <> 'none') AS bound,
  list(DISTINCT d.producer_id ORDER BY d.producer_id DESC)[1:$ids] AS highest_ids,
  max(d.ts_wall_ms) AS newest
FROM producer_id_decisions AS d GROUP BY d.cluster, d.user
ORDER BY distinct_ids DESC, d.cluster, d.user LIMIT $most
"""
_UTILISATION = """
WITH best AS (
  SELECT s.cluster, s.user AS user, max(s.utilisation) AS top FROM producer_id_stats AS s
  GROUP BY s.cluster, s.user HAVING max(s.utilisation) > 0
  ORDER BY top DESC, s.cluster, s.user LIMIT $lines
)
SELECT s.user AS name, s.window_start_ms - s.window_start_ms % $step AS slot,
  max(s.window_start_ms + s.window_ms) AS at, 100 * max(s.utilisation) AS value
FROM producer_id_stats AS s JOIN best AS b ON b.cluster = s.cluster AND b.user = s.user
WHERE s.utilisation IS NOT NULL
GROUP BY s.cluster, s.user, slot, b.top ORDER BY b.top DESC, name, "at"
"""
_TRANSACTIONS = [
    GridColumn("user", "user"),
    GridColumn("transactional_id", "transaction"),
    GridColumn("producer_id", "producer id", "number"),
    GridColumn("cluster", "cluster"),
    GridColumn("state", "state"),
    GridColumn("topics", "topics"),
    GridColumn("partitions", "partitions", "number"),
    GridColumn("open_since", "open since"),
]
_LIVE = [
    GridColumn("user", "user"),
    GridColumn("topic", "topic"),
    GridColumn("cluster", "cluster"),
    GridColumn("broker", "broker"),
    GridColumn("live_ids", "live ids", "number"),
    GridColumn("states", "states", "number"),
    GridColumn("heap_bytes", "heap", "bytes"),
]


def principals(reader: ReportReader) -> ReportSection:
    """New producer ids by user, against their quota."""
    key, title = "principals", "Principals and their producer ids"
    summary = reader.row(_SUMMARY)
    held = _live(reader)
    if not summary["users"]:
        why = reader.nothing_in("producer_id_decisions")
        return ReportSection(key, title, [why], held, _tile(summary))
    users = reader.rows(_IDS, most=TOP, ids=SHOWN_IDS)
    over = summary["over"]
    texts = [
        f"{counted(summary['ids'], 'new producer id')} of "
        f"{counted(summary['users'], 'user')}; "
        + (
            f"{counted(over, 'user')} went over the bound with "
            f"{counted(summary['batches_over'], 'batch', 'batches')}."
            if over
            else "nobody was over a bound."
        )
    ]
    verdicts = [
        {"name": user["user"], "kind": verdict, "value": user[verdict]}
        for user in users
        for verdict in VERDICTS
    ]
    usage = reader.rows(_UTILISATION, lines=LINES, step=reader.step_ms())
    parts = filled(
        Chart(
            "Batches with a new producer id, by user",
            "Counted: within the bound. Throttled or rejected: over it.",
            verdicts,
            lambda rows, frame: bars(rows, frame, "batches", VERDICTS, TONES),
        ),
        Chart(
            "Use of the quota of new ids",
            "The sampled rate as a share of the bound, on the "
            "broker where it is highest; the line is the bound.",
            usage,
            lambda rows, frame: lines(rows, frame, "% of the bound") + limit_rule(100),
        ),
        Grid(
            "Users",
            [
                GridColumn("user", "user"),
                GridColumn("cluster", "cluster"),
                GridColumn("distinct_ids", "distinct new ids", "number"),
                GridColumn("clients", "clients", "number"),
                GridColumn("throttled", "throttled", "number"),
                GridColumn("rejected", "rejected", "number"),
                GridColumn("bound", "bound", "number"),
                GridColumn("highest_ids", "highest ids", "list"),
                GridColumn("newest", "last", "time"),
            ],
            users,
            "new-producer-ids",
            folded=True,
        ),
    )
    return ReportSection(key, title, texts, [*parts, *held], _tile(summary))


def _tile(summary: Row) -> Tile:
    users = summary["users"]
    return Tile(
        "users over id quota",
        f"{summary['over']:,}" if users else NONE,
        f"of {users:,}" if users else "no producer ids seen",
        bool(summary["over"]),
    )


def _live(reader: ReportReader) -> list[Chart | Grid]:
    """What brokers held at the end of the report's time, if it was polled."""
    grids = (
        ("open-transactions", "Open transactions", _TRANSACTIONS, False),
        ("live-producer-ids", "Live producer ids", _LIVE, True),
    )
    until = reader.asked.end_ms
    return filled(
        *(
            Grid(
                heading,
                columns,
                reader.rows(QUESTIONS[question].sql, until=until, rows=TOP),
                question,
                folded,
            )
            for question, heading, columns, folded in grids
        )
    )


SECTIONS = (
    JobSection(70, principals, ("producer_id_decisions", "producer_id_live", "open_transactions")),
)
REACHED = ("producer_id_stats",)
