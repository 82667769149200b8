"""Weir's numbers for a span of one broker, from its tables, without Spark."""

from __future__ import annotations

from app.jobs import parts
from app.read.spelling import TOPIC
from app.show.reconcile.side import MINUTE_MS, WeirSide
from app.show.reconcile.spans import Counted, Key, WeirValue

_BLIND = """
SELECT DISTINCT job FROM coverage_gaps
WHERE cluster = $cluster AND broker = $broker AND coalesce(gap_from_wall_ms, -1) < $end_ms
  AND blind_until_ms > $start_ms
"""
_FIRST_MINUTE = """
SELECT min(minute_ms) FROM coverage_counts
WHERE cluster = $cluster AND broker = $broker AND minute_ms > 0
"""
_FIRST = """
SELECT min(ts_wall_ms) FROM events
WHERE cluster = $cluster AND broker = $broker
  AND ts_wall_ms >= $start_ms AND ts_wall_ms < $end_ms
"""
_UNLOADED = f"""
SELECT DISTINCT {TOPIC}
FROM events
WHERE event_type = 'entry_invalidated' AND cluster = $cluster AND broker = $broker
  AND topic IS NOT NULL AND ts_wall_ms >= $start_ms AND ts_wall_ms <= $end_ms
"""


def weir(side: WeirSide) -> WeirValue:
    """Weir's side of a span."""
    counted: dict[Key, Counted] = {}
    whole = set()
    blind = _blind(side)
    for job, part in parts("reconcile").items():
        if job in side.settings.jobs:
            numbers = part.numbers(side)
            counted |= numbers.counted
            whole |= {job} if numbers.whole else set()
            if numbers.blind is not None:
                blind.setdefault(job, numbers.blind)
    return WeirValue(counted, blind, _unloaded(side), frozenset(whole))


def _blind(side: WeirSide) -> dict[str, str]:
    """By job what prevents a comparison."""
    between = {"start_ms": side.span.before.from_ms, "end_ms": side.span.after.to_ms}
    blind = {job: "GAP" for (job,) in side.ask(_BLIND, between)}
    if _began_in_it(side):
        return dict.fromkeys(side.settings.jobs, "FEED_BEGAN")
    sampled = side.settings.reconcile and side.settings.reconcile.sampled_by
    return blind | {
        job: "SAMPLED" for job, part in parts("reconcile").items() if sampled in part.SAMPLED
    }


def _began_in_it(side: WeirSide) -> bool:
    """Whether the first record of the broker is not before the span."""
    ((first,),) = side.ask(_FIRST_MINUTE, {})
    if first is None:
        return False
    start_ms = side.span.before.from_ms
    if start_ms >= first + MINUTE_MS:
        return False
    minute = {"start_ms": first, "end_ms": first + MINUTE_MS}
    ((record,),) = side.ask(_FIRST, minute)
    return record is None or record > start_ms


def _unloaded(side: WeirSide) -> frozenset[str]:
    if side.settings.reconcile is None:
        return frozenset()
    between = {"start_ms": side.span.before.from_ms, "end_ms": side.span.after.to_ms}
    return frozenset(topic for (topic,) in side.ask(_UNLOADED, between))
