"""What a broker counts of its backlogs, against the tables of the job."""

from __future__ import annotations

from app.show.reconcile.measures import Measure
from app.show.reconcile.scrape import SUBSCRIPTIONS
from app.show.reconcile.side import CHECKS_MS, Numbers, WeirSide
from app.show.reconcile.spans import Counted, Key
from state.backlog.declaration import NAME

MEASURES = (
    Measure(
        "backlog_bytes",
        NAME,
        "pulsar_storage_backlog_size",
        "gauge",
        meaning="size of the backlog (bytes)",
    ),
    Measure(
        "backlog_entries",
        NAME,
        "pulsar_msg_backlog",
        "gauge",
        meaning="entries in the backlogs of all subscriptions",
    ),
)
GROUPS = True
"""The tables of the job have the groups of Kafka, too."""
SAMPLED: frozenset[str] = frozenset()
"""Values of `reconcile.sampled_by` under which the numbers are no comparison."""
_CHECKS = """
SELECT pass_ms, topic, CAST(max(backlog_bytes) AS BIGINT) FROM backlog_checks
WHERE cluster = $cluster AND broker = $broker AND pass_ms >= $least_ms AND pass_ms <= $most_ms
GROUP BY pass_ms, topic
"""
_SUBSCRIPTIONS = """
SELECT pass_ms, topic, CAST(sum(backlog_entries) AS BIGINT) FROM backlog_subscriptions
WHERE cluster = $cluster AND broker = $broker AND pass_ms >= $least_ms AND pass_ms <= $most_ms
  AND coalesce(kind, 'subscription') NOT IN ('replicator', 'deduplication')
GROUP BY pass_ms, topic
"""
_POLLS = """
SELECT min(ts_wall_ms) FROM coverage_polls
WHERE cluster = $cluster AND gap_from_wall_ms >= $to_ms
"""
LOOK_MS = 1000
"""`weirWatchMillis` of the plug-in, by default."""


def numbers(side: WeirSide) -> Numbers:
    """Backlogs are known at the checks."""
    missing = "NO_CHECK" if side.is_past() else "NOT_REACHED"
    found, (before, after) = _backlogs(side)
    blind = None if before or after else missing
    return Numbers(found, _all_checked(side, after), blind)


def _backlogs(side: WeirSide) -> tuple[dict[Key, Counted], tuple[int | None, int | None]]:
    """The numbers, and the times of the checks before and after the end of the span."""
    end = side.span.after
    around = {"least_ms": end.from_ms - CHECKS_MS, "most_ms": end.to_ms + CHECKS_MS}
    found: dict[Key, Counted] = {}
    checks = {
        "backlog_bytes": side.ask(_CHECKS, around),
        "backlog_entries": side.ask(_SUBSCRIPTIONS, around),
    }
    passes = {int(row[0]) for rows in checks.values() for row in rows}
    known_ms = _known_ms(side)
    before = max((p for p in passes if p <= end.from_ms), default=None)
    after = min((p for p in passes if known_ms is not None and p >= known_ms), default=None)
    near = [p for p in (before, after) if p is not None]
    came = _published(side, min(near), max(near)) if near else {}
    for name, rows in checks.items():
        values: dict[str, dict[int, int]] = {}
        for pass_ms, topic, value in rows:
            if near and pass_ms <= near[-1]:
                values.setdefault(topic, {})[pass_ms] = value or 0
        for topic in {*values, *came}:
            held = values.get(topic, {})
            # checks of a silent topic may be behind, by as much as its records came late
            ends = [held.get(p, 0) for p in (*near, max(held, default=0))]
            ends += [value for p, value in held.items() if p > near[0]]
            messages, size = came.get(topic, (0, 0))
            more = size if name == "backlog_bytes" else messages * _subscriptions(side, topic)
            found[name, topic] = Counted(max(min(ends) - more, 0), 0, max(ends) + more)
    return found, (before, after)


def _known_ms(side: WeirSide) -> int | None:
    """From when on a check has what was there at the end of the span: a plug-in looks at cursors
    once in a while, and the first poll to begin after it has to end. None: not yet."""
    to_ms = side.span.after.to_ms
    if not side.is_polled:
        return to_ms + LOOK_MS
    ((end_ms,),) = side.ask(_POLLS, {"to_ms": to_ms})
    return None if end_ms is None else int(end_ms)


def _all_checked(side: WeirSide, pass_ms: int | None) -> bool:
    """Whether there is a check so much later that those of all topics up to a time must be
    there: those of idle ones come by `idle_advance_ms` later."""
    return pass_ms is not None and side.has(
        "backlog_checks", pass_ms + side.settings.idle_advance_ms + side.window_ms
    )


def _published(side: WeirSide, from_ms: int, to_ms: int) -> dict[str, tuple[int, int]]:
    """Messages and bytes of the windows from one check to another: what may have come into a
    backlog, and gone. A feed without publishes has none, so the broker's own counts of the span
    stand for them."""
    rows = side.published(side.window_of(from_ms), max(from_ms, to_ms) + 1)
    if rows or not side.is_polled:
        return {topic: (messages, size) for topic, messages, size in rows}
    before, after = side.span.before.topics, side.span.after.topics
    return {
        topic: (came["messages_in"], came["bytes_in"])
        for topic in after
        for came in [
            {
                name: round(max(after[topic].get(name, 0) - before.get(topic, {}).get(name, 0), 0))
                for name in ("messages_in", "bytes_in")
            }
        ]
    }


def _subscriptions(side: WeirSide, topic: str) -> int:
    return round(side.span.after.topics.get(topic, {}).get(SUBSCRIPTIONS, 1))
