"""How the first side of a comparison differs from what happened."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.read.last_policies import last_policies
from app.read.relations import Warehouse, connect
from app.terminal.counts import counted
from app.whatif.replay.choice import Choice, policy_key
from app.whatif.replay.event_span import FIRST_MS, LAST_MS, EventSpan

NAMED = 5
"""Overridden documents that a sentence names."""
_PAUSES = """
SELECT count(*), coalesce(sum(paused_ns), 0) / 1e9
FROM throttle_intervals WHERE start_ms >= $from_ms AND start_ms < $to_ms
"""
_REPORTED = """
SELECT coalesce(sum(observed_pauses), 0) FROM limiter_stats
WHERE window_start_ms >= $from_ms AND window_start_ms < $to_ms
"""

_DIGESTS = """
SELECT count(*) FROM events
WHERE event_type = 'publish_digest' AND ts_wall_ms >= $from_ms AND ts_wall_ms < $to_ms
"""

_RATES = """
SELECT count(*) FROM events
WHERE event_type = 'client_rate' AND ts_wall_ms >= $from_ms AND ts_wall_ms < $to_ms
"""


def differences(
    live: Warehouse,
    policies: Sequence[Mapping[str, Any]],
    choice: Choice,
    span: EventSpan,
    model: Warehouse,
    pauses: bool,
) -> list[str]:
    """Sentences on what the replay under the first policies has otherwise than the live run.

    `policies` are those of that replay, `choice` its records, and `model` its tables; `pauses`: it
    has pauses of connections.
    """
    found = list(_overridden(live, policies, choice, span))
    if pauses and not choice.filters:
        found += _unreported(live, model, span)
    if model.open("topic_throttle_stats") is not None and (digests := _count(live, span, _DIGESTS)):
        found.append(
            f"The archive has {counted(digests, 'digest')} in place of single publishes: their"
            " messages are counted, and throttle nobody on either side."
        )
    if model.open("client_quota_stats") is not None and (rates := _count(live, span, _RATES)):
        found.append(
            f"The archive has {counted(rates, 'measured rate')} of clients: rates_over_quota counts"
            " those above a limit. Between them clients can have exceeded it, too, and one that its"
            " present limit throttled shows no more than that."
        )
    return found


def _overridden(
    live: Warehouse, policies: Sequence[Mapping[str, Any]], choice: Choice, span: EventSpan
) -> Iterator[str]:
    """The documents of the stream that the policy files replace by others."""
    files = {policy_key(d): d["limits"] for d in policies}
    end_ms = None if span.end_ms == LAST_MS else span.end_ms
    names = sorted(
        {
            f"{scope} {name}"
            for every in last_policies(live, end_ms).values()
            for (scope, name), last in every.items()
            if choice.replaces((scope, name))
            and files.get((scope, name)) != last.document["limits"]
        }
    )
    if names:
        yield (
            f"The policy files override {counted(len(names), 'document')} of the stream "
            f"({_listed(names)}): the side before is not what happened to them."
        )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _count(live: Warehouse, span: EventSpan, sql: str) -> int:
    """How many records of the span a statement counts."""
    if live.open("events") is None:
        return 0
    values = {"from_ms": max(span.begin_ms, FIRST_MS), "to_ms": span.end_ms}
    with connect(live, sql) as connection:
        (count,) = connection.execute(sql, values).fetchall()[0]
    return int(count)


def _unreported(live: Warehouse, model: Warehouse, span: EventSpan) -> Iterable[str]:
    """The pauses that the feed has reported, and those of the model without the reports."""
    if live.open("limiter_stats") is None or live.open("throttle_events") is None:
        return ()
    values = {"from_ms": max(span.begin_ms, FIRST_MS), "to_ms": span.end_ms}
    with connect(live, _REPORTED + _PAUSES) as connection:
        (reported,) = connection.execute(_REPORTED, values).fetchall()[0]
        if not reported:
            return ()
        pauses, seconds = connection.execute(_PAUSES, values).fetchall()[0]
    alone, lasted = 0, 0.0
    if model.open("throttle_events") is not None:
        with connect(model, _PAUSES) as connection:
            alone, lasted = connection.execute(_PAUSES, values).fetchall()[0]
    return (
        f"Both sides ignore the pauses that the feed reports, since other limits would have had "
        f"others: {pauses:,} pauses ({seconds:,.1f} s) happened, the side before has {alone:,} "
        f"({lasted:,.1f} s).",
    )
