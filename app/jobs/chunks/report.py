"""Outcomes of large messages, which are sent in chunks."""

from __future__ import annotations

from app.show.report.charts import bars
from app.show.report.model import Chart, Grid, GridColumn, JobSection, ReportSection, Tile, filled
from app.show.report.report_reader import ReportReader
from app.terminal.amounts import NONE
from app.terminal.counts import counted
from app.terminal.phrases import short

TOP = 12
TONES = ("var(--c1)", "var(--c5)", "var(--bad)")
FATES = ("complete", "waiting", "lost")
_FATES = f"""
WITH whole AS (SELECT DISTINCT cluster, topic, subscription, uuid FROM chunk_messages),
lost AS (
  SELECT cluster, topic, subscription, uuid FROM given_up_messages WHERE fate = 'lost'
), waiting AS (
  SELECT DISTINCT cluster, topic, subscription, uuid FROM incomplete_now
  EXCEPT FROM whole EXCEPT FROM lost
)
SELECT topic, kind, count(*) AS value FROM (
  SELECT topic, '{FATES[0]}' AS kind FROM whole
  UNION ALL SELECT topic, '{FATES[1]}' FROM waiting
  UNION ALL SELECT topic, '{FATES[2]}' FROM lost
) GROUP BY topic, kind ORDER BY topic, kind
"""


def large_messages(reader: ReportReader) -> ReportSection:
    """Complete, incomplete and lost large messages."""
    key, title = "large-messages", "Large messages"
    fates = reader.rows(_FATES)
    if not fates:
        why = [reader.nothing_in("chunk_messages", "incomplete_messages")]
        return ReportSection(key, title, why, tile=_tile(0, 0))
    counts = {(row["topic"], row["kind"]): row["value"] for row in fates}
    by_topic = {topic: counts.get((topic, FATES[2]), 0) for topic, _ in counts}
    worst = sorted(by_topic, key=lambda topic: (-by_topic[topic], topic))[:TOP]
    chart = [
        {"name": short(topic), "kind": kind, "value": counts.get((topic, kind), 0)}
        for topic in worst
        for kind in FATES
    ]
    waiting = reader.ask("incomplete-messages", TOP)
    gone = sum(by_topic.values())
    were = f"{'was' if gone == 1 else 'were'} lost"
    texts = [
        f"Of {counted(sum(counts.values()), 'delivery', 'deliveries')} of a large message to a"
        f" subscription, {gone:,} {were}.",
        *([] if waiting else ["None waits for a chunk at the end of the newest window."]),
    ]
    whose = [GridColumn("topic", "topic", "topic"), GridColumn("subscription", "subscription")]
    parts = filled(
        Chart(
            "Outcomes",
            "Messages by topic, those with most losses first.",
            chart,
            lambda rows, frame: bars(rows, frame, "messages", FATES, TONES),
        ),
        Grid(
            "Stalled: shared subscriptions that have stopped at a chunk",
            [
                *whose,
                GridColumn("stalled", "what waits"),
                GridColumn("uuid", "message at which it stands"),
                GridColumn("since", "stored", "time"),
            ],
            reader.ask("stalled-subscriptions", TOP),
            "stalled-subscriptions",
        ),
        Grid(
            "Incomplete: waiting at the last window's end",
            [
                *whose,
                GridColumn("state", "state"),
                GridColumn("uuid", "message"),
                GridColumn("producer_name", "producer"),
                GridColumn("next_chunk_id", "waits for chunk", "number"),
                GridColumn("num_chunks", "of", "number"),
                GridColumn("age_s", "since", "seconds"),
                GridColumn("buffered_bytes", "holds", "bytes"),
                GridColumn("expires", "expires", "time"),
            ],
            waiting,
            "incomplete-messages",
            folded=True,
        ),
        Grid(
            "Given up, by outcome",
            [
                *whose,
                GridColumn("outcome", "outcome"),
                GridColumn("lost", "lost", "number"),
                GridColumn("arrived_after_all", "arrived after all", "number"),
                GridColumn("newest_lost", "newest"),
                GridColumn("newest", "at", "time"),
            ],
            reader.ask("lost-messages", TOP),
            "lost-messages",
            folded=True,
        ),
    )
    whole = sum(count for (_, kind), count in counts.items() if kind == FATES[0])
    verdict = f"{counted(gone, 'large message')} {were}" if gone else ""
    return ReportSection(key, title, texts, parts, _tile(gone, whole), verdict)


def _tile(lost: int, whole: int) -> Tile:
    return Tile(
        "large messages lost",
        f"{lost:,}" if lost + whole else NONE,
        f"{whole:,} arrived" if lost + whole else "none seen",
        bool(lost),
    )


SECTIONS = (
    JobSection(80, large_messages, ("chunk_messages", "chunk_events", "incomplete_messages")),
)
REACHED = ("chunk_topic_stats",)
