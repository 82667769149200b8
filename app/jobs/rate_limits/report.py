"""Pauses by publish limits: culprits, victims, and the time line."""

from __future__ import annotations

from collections.abc import Sequence

from app.show.report.charts import OTHERS, OWN, SHARED, Layers, bars, heat, pauses, stacked_time
from app.show.report.model import (
    Chart,
    Frame,
    Grid,
    GridColumn,
    JobSection,
    ReportSection,
    Row,
    Tile,
    filled,
)
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import NONE, percent_text, seconds_text
from app.terminal.counts import counted
from app.terminal.phrases import short

KINDS = ((OWN, "own_s"), (SHARED, "shared_s"), (OTHERS, "other_s"))
"""Classes of a pause, and the column of their seconds."""
KIND_NAMES = [name for name, _ in KINDS]
TOP, BARS = 12, 8
CULPRITS, VICTIMS = 8, 12
LANES, SLOTS = 10, 100
"""Connections of the time line, and the parts of its width that pauses are drawn in."""
BUCKETS = 120
SHADES = {
    1: "under 1 s",
    5: "1 to 5 s",
    15: "5 to 15 s",
    60: "15 to 60 s",
    float("inf"): "a minute or more",
}
"""Shades of the matrix, by what they stay below (s)."""

_TOTALS = """
SELECT coalesce(sum(culprit_ns), 0) / 1e9 AS own_s,
  coalesce(sum(shared_ns), 0) / 1e9 AS shared_s,
  coalesce(sum(collateral_ns), 0) / 1e9 AS other_s,
  count(DISTINCT (cluster, topic)) FILTER (WHERE is_culprit) AS culprits,
  count(DISTINCT (cluster, topic)) FILTER (WHERE is_victim) AS victims,
  count(DISTINCT (cluster, topic)) AS topics
FROM topic_pauses
"""
_BLAME = """
SELECT cluster, topic, sum(culprit_ns) / 1e9 AS own_s,
  sum(shared_ns) / 1e9 AS shared_s, sum(collateral_ns) / 1e9 AS other_s
FROM topic_throttle_stats GROUP BY cluster, topic
HAVING {order} > 0
ORDER BY {order} DESC, cluster, topic LIMIT $most
"""
# Only the newest state of an alert counts.
_TOP_OF_THE_HOUR = """
WITH newest AS (SELECT max(window_start_ms + window_ms) AS ms FROM topic_throttle_stats),
top AS (
  SELECT cluster, topic, sum(culprit_ns) / 1e9 AS own_s,
    max(culprit_ns / 1e6 / window_ms) AS worst
  FROM topic_throttle_stats, newest WHERE window_start_ms >= ms - 3600000
  GROUP BY cluster, topic HAVING sum(culprit_ns) > 0
  ORDER BY own_s DESC, cluster, topic LIMIT 1
), states AS (
  SELECT alert, labels, arg_max(state, (coalesce(number, 0), at_ms, checked_ms)) AS state
  FROM alerts GROUP BY alert, labels
)
SELECT t.*, (SELECT count(*) FROM alerts) > 0 AS checked,
  (SELECT arg_min(struct_pack(name := s.alert, state := s.state),
      CASE s.state WHEN 'firing' THEN 0 WHEN 'pending' THEN 1 ELSE 2 END)
    FROM states AS s
    WHERE s.state <> 'inactive' AND list_contains(map_values(s.labels), t.topic)) AS alert
FROM top AS t
"""
# Pauses are drawn in slots of the time line: more could not be seen, and would not fit a page.
_LANES = """
WITH pauses AS (
  SELECT cluster, broker, cnx_id, start_ms, coalesce(reason, 'unknown') AS kind,
    CASE WHEN is_open THEN $until ELSE coalesce(end_ms, start_ms) END AS end_ms
  FROM throttle_intervals WHERE start_ms IS NOT NULL
), lanes AS (
  SELECT cluster, broker, cnx_id, sum(end_ms - start_ms) AS paused_ms, count(*) AS pauses,
    min(start_ms) AS first_ms
  FROM pauses GROUP BY cluster, broker, cnx_id
  ORDER BY paused_ms DESC, cluster, broker, cnx_id LIMIT $lanes
)
SELECT concat(p.broker, ' ', p.cnx_id) AS name, p.kind,
  min(p.start_ms) AS at, max(greatest(p.end_ms, p.start_ms + 1)) AS until
FROM pauses AS p JOIN lanes AS l USING (cluster, broker, cnx_id)
GROUP BY p.cluster, p.broker, p.cnx_id, p.kind, l.first_ms, p.start_ms // $slot
ORDER BY l.first_ms, name, "at"
"""
_OVER_TIME = """
SELECT window_start_ms // $bucket AS slot, min(window_start_ms) AS at,
  max(window_start_ms + window_ms) AS until,
  sum(culprit_ns) / 1e9 AS own_s, sum(shared_ns) / 1e9 AS shared_s,
  sum(collateral_ns) / 1e9 AS other_s
FROM topic_throttle_stats GROUP BY slot HAVING own_s + shared_s + other_s > 0 ORDER BY "at"
"""


def blame(reader: ReportReader) -> ReportSection:
    """Topics by whose limits paused them, limits that topics share, and who paused whom."""
    key, title = "culprits", "Culprits and victims"
    totals = reader.row(_TOTALS)
    paused_s = sum(totals[column] for _, column in KINDS)
    victims = totals["victims"]
    tile = _tile(totals, paused_s)
    verdict = (
        f"{counted(victims, 'topic')} {'was' if victims == 1 else 'were'} paused for "
        f"the limits of others ({seconds_text(totals['other_s'])}, summed over topics)"
        if victims
        else ""
    )
    if not paused_s:
        why = (
            f"None of {counted(totals['topics'], 'topic')} was paused."
            if totals["topics"]
            else reader.nothing_in("topic_throttle_stats")
        )
        return ReportSection(key, title, [why], (), tile, verdict)
    culprits = totals["culprits"]
    parts_s = [
        f"{percent_text(totals[column] / paused_s)} was for {words}"
        for column, words in (
            ("own_s", "a topic's own limit"),
            ("shared_s", "limits that topics share"),
            ("other_s", "the limits of other topics"),
        )
    ]
    texts = [
        f"{counted(culprits, 'topic')} exceeded {'its' if culprits == 1 else 'their'} own limit; "
        f"{counted(victims, 'topic')} {'was' if victims == 1 else 'were'} paused for the limits of "
        f"others. Of {seconds_text(paused_s)} of paused time, summed over topics and connections, "
        f"{', '.join(parts_s)}.",
    ]
    texts += [_alerted(top) for top in reader.rows(_TOP_OF_THE_HOUR)]
    pairs = reader.ask("blame", 5000, by="pair")
    parts = filled(
        _blame_chart(reader, "Top culprits", "sum(culprit_ns)"),
        _blame_chart(reader, "Top victims", "sum(collateral_ns)"),
        Grid(
            "Limits that topics share",
            [
                GridColumn("limiter", "limit"),
                GridColumn("limiter_name", "of"),
                GridColumn("broker", "broker"),
                GridColumn("pauses", "pauses", "number"),
                GridColumn("paused_s", "paused", "seconds"),
                GridColumn("topics", "topics", "number"),
                GridColumn("most_used_by", "most used by", "topic"),
                GridColumn("share", "its share", "ratio"),
            ],
            reader.ask("shared-limits", TOP),
            "shared-limits",
        ),
    )
    if pairs:
        parts += [
            _matrix(pairs),
            Grid(
                "Culprits and victims, longest pause first",
                [
                    GridColumn("culprit", "because of", "topic"),
                    GridColumn("victim", "paused", "topic"),
                    GridColumn("pauses", "pauses", "number"),
                    GridColumn("paused_s", "paused", "seconds"),
                    GridColumn("share_of_victims_pauses", "share of its pauses", "ratio"),
                    GridColumn("victim_use", "use of its own limit", "ratio"),
                    GridColumn("culprit_team", "owner of the one"),
                    GridColumn("victim_team", "of the other"),
                    GridColumn("first_pause", "first", "time"),
                ],
                pairs[:TOP],
                "blame --by pair --param rows=1000",
                folded=True,
            ),
        ]
    return ReportSection(key, title, texts, parts, tile, verdict)


def _alerted(top: Row) -> str:
    """Whether the topic that its own limit held back longest has an alert, and why not."""
    text = (
        f"In the last hour {short(top['topic'])} was held back longest by its own limit, for "
        f"{seconds_text(top['own_s'])}"
    )
    if top["alert"] is not None:
        return f"{text}: its alert {top['alert']['name']} is {top['alert']['state']}."
    if not top["checked"]:
        return f"{text}; no alert has been evaluated."
    return (
        f"{text}. It has no alert: publish-limit asks for half of a window held back, or a mean at "
        f"the limit; the worst window was held back for {percent_text(top['worst'])} of its time."
    )


def _tile(totals: Row, paused_s: float) -> Tile:
    return Tile(
        "paused by others",
        seconds_text(totals["other_s"]) if paused_s else NONE,
        f"{percent_text(totals['other_s'] / paused_s)} of paused time, summed over topics"
        if paused_s
        else "no pauses",
        bool(totals["victims"]),
    )


def _blame_chart(reader: ReportReader, title: str, order: str) -> Chart:
    """A bar for each topic by whose limits paused it."""
    rows = [
        {"name": short(row["topic"]), "kind": kind, "value": round(row[column], 3)}
        for row in reader.rows(_BLAME.format(order=order), most=BARS)
        for kind, column in KINDS
    ]
    return Chart(
        title,
        "Seconds that connections with the topic were paused, by whose limit, summed over "
        "connections.",
        rows,
        lambda rows, frame: bars(rows, frame, "paused (s)", KIND_NAMES),
    )


def _matrix(pairs: Sequence[Row]) -> Chart:
    """Culprits across, victims down, the longest first in both directions."""
    culprits = _ranked(pairs, "culprit")[:CULPRITS]
    kept = [pair for pair in pairs if pair["culprit"] in culprits]
    # The first victims of every culprit, or those of the first one would fill the rows.
    each = max(1, VICTIMS // len(culprits))
    victims: list[str] = []
    for culprit in culprits:
        own = [pair["victim"] for pair in kept if pair["culprit"] == culprit]
        victims += [v for v in own if v not in victims][:each]
    victims += [v for v in _ranked(kept, "victim") if v not in victims][: VICTIMS - len(victims)]
    rows = [
        {
            "column": short(pair["culprit"]),
            "row": short(pair["victim"]),
            "seconds": pair["paused_s"] or 0.0,
            "text": _seconds(pair["paused_s"] or 0.0),
            "shade": next(s for top, s in SHADES.items() if (pair["paused_s"] or 0.0) < top),
            "place": (culprits.index(pair["culprit"]), victims.index(pair["victim"])),
        }
        for pair in kept
        if pair["victim"] in victims
    ]
    rows.sort(key=lambda row: row.pop("place"))
    return Chart(
        "Matrix of culprits and victims",
        f"Seconds that the topic in a row was paused because of the topic in a column; at most "
        f"{CULPRITS} and {VICTIMS} of them.",
        rows,
        _draw_matrix,
    )


def _draw_matrix(rows: Sequence[Row], frame: Frame) -> Layers:
    columns = list(dict.fromkeys(row["column"] for row in rows))
    shown = columns[:3] if frame.narrow else columns
    return heat([r for r in rows if r["column"] in shown], frame, list(SHADES.values()))


def _ranked(pairs: Sequence[Row], field: str) -> list[str]:
    total: dict[str, float] = {}
    for pair in pairs:
        total[pair[field]] = total.get(pair[field], 0.0) + (pair["paused_s"] or 0.0)
    return sorted(total, key=lambda name: (-total[name], name))


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}"


def timeline(reader: ReportReader) -> ReportSection:
    """The pauses of connections and topics over time."""
    key, title = "timeline", "Throttle time line"
    span = reader.span
    if span is None or not reader.written("throttle_events"):
        return ReportSection(key, title, [reader.nothing_in("throttle_events")])
    lanes = reader.rows(_LANES, until=span.end_ms, lanes=LANES, slot=reader.step_ms(SLOTS))
    over_time = [
        {"at": row["at"], "until": row["until"], "kind": kind, "value": round(row[column], 3)}
        for row in reader.rows(_OVER_TIME, bucket=reader.step_ms(BUCKETS))
        for kind, column in KINDS
    ]
    counts = reader.row(
        "SELECT count(*) AS pauses, count(DISTINCT (cluster, broker, cnx_id)) AS connections,"
        " count_if(is_open) AS still, max(paused_ns) / 1e9 AS longest"
        " FROM throttle_intervals"
    )
    if not counts["pauses"]:
        return ReportSection(key, title, ["No connection was paused in this time."])
    texts = [
        f"{counted(counts['connections'], 'connection')} "
        f"{'was' if counts['connections'] == 1 else 'were'} paused "
        f"{counted(counts['pauses'], 'time')}"
        + (
            f", the longest time for {seconds_text(counts['longest'])}"
            if counts["longest"] is not None
            else ""
        )
        + (
            f"; {counts['still']:,} {'is' if counts['still'] == 1 else 'are'} still paused at "
            "the end."
            if counts["still"]
            else "."
        )
    ]
    return ReportSection(
        key,
        title,
        texts,
        [
            Chart(
                "Paused connections",
                f"The {LANES} connections that were paused longest; a bar is a pause, its colour the "
                "reason for which it began.",
                lanes,
                pauses,
            ),
            *filled(
                Chart(
                    "Paused time by window",
                    "Seconds that topics were paused in a window, summed over topics.",
                    over_time,
                    lambda rows, frame: stacked_time(rows, frame, "paused (s)", KIND_NAMES),
                )
            ),
        ],
    )


SECTIONS = (
    JobSection(20, blame, ("topic_throttle_stats",)),
    JobSection(30, timeline, ("throttle_events",)),
)
REACHED = ("topic_throttle_stats", "limiter_stats")
